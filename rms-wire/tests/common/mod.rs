//! A deployment for tests: an authority in a temporary directory, and credentials for any identity.
#![allow(dead_code, reason = "each test program uses its own part of this")]

pub mod contained;
pub mod domain;
pub mod later;
pub mod launching;
pub mod negotiating;
pub mod raw;
pub mod samples;
pub mod simnet;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{SystemTime, UNIX_EPOCH};

use rms_model::{Identity, Role, Span, Time};
use rms_wire::tls::draw_serial;
use rms_wire::{Accepted, Authority, Credentials, Endpoint, Link, NewKey, Revoked, Serve};
use tempfile::TempDir;

pub const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

pub struct Deployment {
    pub authority: Authority,
    pub revoked: Revoked,
    pub dir: TempDir,
}

impl Deployment {
    pub fn new(name: &str) -> Deployment {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let authority = Authority::create(&dir.path().join("ca"), name, now()).expect("a new authority");
        Deployment { authority, revoked: Revoked::new(), dir }
    }

    pub fn credentials(&self, role: Role, name: &str) -> Credentials {
        self.credentials_for(role, name, now() - Span::from_mins(1), now() + Span::from_hours(1))
    }

    pub fn credentials_for(&self, role: Role, name: &str, from: Time, until: Time) -> Credentials {
        let key = NewKey::generate().expect("a key");
        let chain = self.sign(&key, role, name, from, until);
        key.into_credentials(&chain, self.authority.ca_pem()).expect("credentials")
    }

    fn sign(&self, key: &NewKey, role: Role, name: &str, from: Time, until: Time) -> String {
        let identity = Identity::new(role, name).expect("a name");
        self.authority.sign(key.csr_der(), &identity, &draw_serial(), from, until).expect("a certificate")
    }

    pub fn serve_all(&self) -> Serve {
        let roles = vec![Role::Agent, Role::User, Role::Admin, Role::Job];
        Serve::Peers { roles, join: true, revoked: self.revoked.clone() }
    }

    pub fn server(&self) -> Endpoint {
        let credentials = self.credentials(Role::Server, "server");
        Endpoint::bind(LOOPBACK, &credentials, self.serve_all()).expect("a free port")
    }

    pub fn dialler(&self, role: Role, name: &str) -> Endpoint {
        Endpoint::bind(LOOPBACK, &self.credentials(role, name), Serve::Nobody).expect("a free port")
    }
}

pub fn now() -> Time {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    Time::from_millis(now.as_millis() as i64)
}

pub async fn accept_link(endpoint: &Endpoint) -> Link {
    match endpoint.accept().await.expect("the endpoint is open") {
        Accepted::Link(link) => link,
        Accepted::Join(joining) => panic!("a join instead of a link: {joining:?}"),
    }
}
