//! Checks which peers get a link, and every way in which others are refused.

mod common;

use std::net::UdpSocket;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::raw::Raw;
use common::{Deployment, LOOPBACK, accept_link, now};
use rms_model::{Role, Span};
use rms_wire::codec::Header;
use rms_wire::{Credentials, Endpoint, Expect, LinkError, Revoked, Serve};
use test_kit::Dice;

/// Tries to connect and returns why it failed.
async fn refusal(server: &Endpoint, credentials: &Credentials, expect: Expect) -> String {
    let client = Endpoint::bind(LOOPBACK, credentials, Serve::Nobody).expect("a free port");
    let address = server.local_addr().expect("bound");
    client.connect(address, expect).await.expect_err("it must be refused").to_string()
}

/// Checks that no peer has been accepted in the meantime.
async fn expect_nobody(server: &Endpoint) {
    let came = tokio::time::timeout(Duration::from_millis(100), server.accept()).await;
    assert!(came.is_err(), "{came:?}");
}

#[tokio::test]
async fn without_a_certificate_nothing_is_served() {
    let deployment = Deployment::new("d1");
    let server = deployment.server();
    let raw = Raw::new();
    // Where tokens can be redeemed, TLS accepts it; the connection ends right after.
    let connection = raw.connect(server.local_addr().expect("bound"), b"limber/1", None).await;
    let closed = connection.expect("TLS itself is open").closed().await;
    assert!(closed.to_string().contains("no certificate"), "{closed}");
    expect_nobody(&server).await;

    let agent = deployment.credentials(Role::Agent, "n1");
    let serve = Serve::Peers { roles: vec![Role::Agent], join: false, revoked: deployment.revoked.clone() };
    let agent = Endpoint::bind(LOOPBACK, &agent, serve).expect("a free port");
    let closed = match raw.connect(agent.local_addr().expect("bound"), b"limber/1", None).await {
        Ok(connection) => connection.closed().await,
        Err(error) => error,
    };
    assert!(closed.to_string().contains("error 116"), "certificate required: {closed}");
    expect_nobody(&agent).await;
}

#[tokio::test]
async fn a_certificate_of_another_authority_opens_nothing() {
    let ours = Deployment::new("d1");
    // The same name of the deployment does not help.
    let theirs = Deployment::new("d1");
    let server = ours.server();
    let stranger = theirs.credentials(Role::Admin, "mallory");
    let reason = refusal(&server, &stranger, Expect::server()).await;
    assert_eq!(reason, "the peer was not accepted: its certificate is not from a CA that is trusted here");
    // A client that would accept any server is not accepted by it.
    let raw = Raw::new();
    let address = server.local_addr().expect("bound");
    let closed = match raw.connect(address, b"limber/1", Some(&stranger)).await {
        Ok(connection) => connection.closed().await.to_string(),
        Err(error) => error.to_string(),
    };
    assert!(closed.contains("cryptographic handshake failed"), "{closed}");
    expect_nobody(&server).await;
}

#[tokio::test]
async fn only_admitted_roles_get_a_link() {
    let deployment = Deployment::new("d1");
    let agent = deployment.credentials(Role::Agent, "n1");
    let serve = Serve::Peers { roles: vec![Role::Agent], join: false, revoked: deployment.revoked.clone() };
    let agent = Endpoint::bind(LOOPBACK, &agent, serve).expect("a free port");
    for role in [Role::User, Role::Admin, Role::Job] {
        let reason = refusal(&agent, &deployment.credentials(role, "alice"), Expect::agent("n1")).await;
        assert_eq!(reason, format!("denied: only agent may connect here, not {role}/alice"));
    }
    expect_nobody(&agent).await;
    let other = deployment.dialler(Role::Agent, "n2");
    let address = agent.local_addr().expect("bound");
    let (up, down) = tokio::join!(other.connect(address, Expect::agent("n1")), accept_link(&agent));
    assert_eq!(up.expect("agents are admitted").identity().to_string(), "agent/n1");
    assert_eq!(down.identity().to_string(), "agent/n2");
}

#[tokio::test]
async fn nobody_answers_in_the_place_of_another() {
    let deployment = Deployment::new("d1");
    let user = deployment.credentials(Role::User, "alice");
    let cases = [
        // An agent that poses as the server.
        (Role::Agent, "n1", Expect::server(), "agent/n1 answers where any server was expected"),
        // One agent that poses as another.
        (Role::Agent, "n1", Expect::agent("n2"), "agent/n1 answers where agent/n2 was expected"),
        // Certificates of users are not valid for servers at all.
        (Role::User, "mallory", Expect::server(), "not accepted"),
    ];
    for (role, name, expect, expected) in cases {
        let impostor = deployment.credentials(role, name);
        let impostor = Endpoint::bind(LOOPBACK, &impostor, deployment.serve_all()).expect("a free port");
        let reason = refusal(&impostor, &user, expect).await;
        assert!(reason.contains(expected), "{reason}");
    }
}

#[tokio::test]
async fn a_revoked_certificate_opens_nothing_from_then_on() {
    let deployment = Deployment::new("d1");
    let server = deployment.server();
    let credentials = deployment.credentials(Role::User, "alice");
    let client = Endpoint::bind(LOOPBACK, &credentials, Serve::Nobody).expect("a free port");
    let address = server.local_addr().expect("bound");
    let (up, down) = tokio::join!(client.connect(address, Expect::server()), accept_link(&server));
    up.expect("not yet revoked");
    deployment.revoked.insert(down.serial());
    let reason = refusal(&server, &credentials, Expect::server()).await;
    assert_eq!(reason, "denied: our certificate is revoked");
    // Another certificate of the same user is not affected.
    let fresh = deployment.dialler(Role::User, "alice");
    fresh.connect(address, Expect::server()).await.expect("only the serial is revoked");
}

#[tokio::test]
async fn a_link_ends_when_either_side_hears_that_the_others_certificate_is_revoked() {
    let deployment = Deployment::new("d1");
    for connecting_side_hears in [true, false] {
        let heard = [Revoked::new(), Revoked::new()];
        let [first, second] = ["n1", "n2"].map(|name| deployment.credentials(Role::Agent, name));
        let bind = |credentials: &Credentials, revoked: &Revoked| {
            let serve = Serve::Peers { roles: vec![Role::Agent], join: false, revoked: revoked.clone() };
            Endpoint::bind(LOOPBACK, credentials, serve).expect("a free port")
        };
        let (one, two) = (bind(&first, &heard[0]), bind(&second, &heard[1]));
        let address = two.local_addr().expect("bound");
        let (up, down) = tokio::join!(one.connect(address, Expect::agent("n2")), accept_link(&two));
        let up = up.expect("not yet revoked");
        // Other serials have no effect.
        heard.iter().for_each(|revoked| revoked.insert("4a01"));
        assert!(!up.is_closed() && !down.is_closed());
        match connecting_side_hears {
            true => heard[0].replace([up.serial().to_owned()]),
            false => heard[1].replace([down.serial().to_owned()]),
        }
        assert_eq!(up.closed().await, "the certificate is revoked");
        assert_eq!(down.closed().await, "the certificate is revoked");
    }
}

#[tokio::test]
async fn a_certificate_opens_nothing_before_and_after_its_time() {
    let deployment = Deployment::new("d1");
    let server = deployment.server();
    let hour = Span::from_hours(1);
    let expired = deployment.credentials_for(Role::Agent, "n1", now() - hour - hour, now() - hour);
    let reason = refusal(&server, &expired, Expect::server()).await;
    assert!(reason.contains("expired"), "{reason}");
    let early = deployment.credentials_for(Role::Agent, "n1", now() + hour, now() + hour + hour);
    let reason = refusal(&server, &early, Expect::server()).await;
    assert!(!reason.is_empty(), "{reason}");
    expect_nobody(&server).await;
}

#[tokio::test]
async fn a_link_ends_when_the_certificate_does() {
    let deployment = Deployment::new("d1");
    let server = deployment.server();
    let brief = deployment.credentials_for(Role::Agent, "n1", now() - Span::from_mins(1), now() + Span::from_secs(2));
    let client = Endpoint::bind(LOOPBACK, &brief, Serve::Nobody).expect("a free port");
    let address = server.local_addr().expect("bound");
    let (up, down) = tokio::join!(client.connect(address, Expect::server()), accept_link(&server));
    let up = up.expect("still valid");
    let ended = tokio::time::timeout(Duration::from_secs(5), up.closed()).await.expect("it ends");
    assert_eq!(ended, "the certificate of agent/n1 has expired");
    drop(down);
}

#[tokio::test]
async fn another_protocol_version_is_refused_by_tls() {
    let deployment = Deployment::new("d1");
    let server = deployment.server();
    let credentials = deployment.credentials(Role::Admin, "alice");
    let address = server.local_addr().expect("bound");
    for alpn in [&b"limber/2"[..], b"h3", b"limber", b"limber/1 "] {
        let error = Raw::new().connect(address, alpn, Some(&credentials)).await.expect_err("no such protocol");
        assert!(error.to_string().contains("error 120"), "no application protocol: {error}");
    }
    expect_nobody(&server).await;
}

#[tokio::test]
async fn a_connection_that_says_nothing_is_dropped_in_time() {
    let deployment = Deployment::new("d1");
    let credentials = deployment.credentials(Role::Server, "server");
    let tuning = rms_wire::Tuning { handshake: Duration::from_millis(300), ..rms_wire::Tuning::default() };
    let server = Endpoint::bind_tuned(LOOPBACK, &credentials, deployment.serve_all(), tuning).expect("a free port");
    let user = deployment.credentials(Role::User, "alice");
    let address = server.local_addr().expect("bound");
    let raw = Raw::new();
    let silent = raw.connect(address, b"limber/1", Some(&user)).await.expect("a valid certificate");
    let ended = tokio::time::timeout(Duration::from_secs(5), silent.closed()).await;
    ended.expect("it is dropped");
    expect_nobody(&server).await;
}

#[tokio::test]
async fn strangers_do_not_fill_the_log() {
    let (ours, theirs) = (Deployment::new("d1"), Deployment::new("d1"));
    let server = ours.server();
    let stranger = theirs.credentials(Role::User, "mallory");
    let warnings = Warnings::default();
    let _logging = tracing::subscriber::set_default(warnings.clone());
    for _ in 0..30 {
        refusal(&server, &stranger, Expect::server()).await;
    }
    // The last refusals are logged a second later, as a count.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let lines = warnings.0.lock().expect("nothing panics with it").clone();
    let n_refused = |line: &String| line.split("n_refused=").nth(1).map_or(1, |rest| rest.parse().expect("a number"));
    assert_eq!(lines.iter().map(n_refused).sum::<u32>(), 30, "{lines:?}");
    assert!(lines.len() < 10, "{lines:?}");
}

/// Collects the logged warnings, with their number of refused connections.
#[derive(Clone, Debug, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN && metadata.target().starts_with("rms_wire")
    }

    fn new_span(&self, _span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _span: &tracing::span::Id, _values: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _span: &tracing::span::Id, _follows: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = String::new();
        event.record(&mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
            let is_number = field.name() == "n_refused";
            line += &if is_number { format!(" n_refused={value:?}") } else { format!("{value:?}") };
        });
        self.0.lock().expect("nothing panics with it").push(line);
    }

    fn enter(&self, _span: &tracing::span::Id) {}

    fn exit(&self, _span: &tracing::span::Id) {}
}

#[tokio::test]
async fn garbage_datagrams_disturb_nobody() {
    let deployment = Deployment::new("d1");
    let server = deployment.server();
    let address = server.local_addr().expect("bound");
    let socket = UdpSocket::bind(LOOPBACK).expect("a free port");
    let mut dice = Dice::new(1);
    for n in 0..5000_usize {
        let mut datagram = vec![0_u8; n % 1500];
        dice.fill(&mut datagram);
        if n % 3 == 0 && datagram.len() > 5 {
            // Looks like the first packet of QUIC version 1.
            datagram[..5].copy_from_slice(&[0xc3, 0, 0, 0, 1]);
        }
        // The kernel may drop what it cannot hold.
        let _ = socket.send_to(&datagram, address);
    }
    let agent = deployment.dialler(Role::Agent, "n1");
    let (up, _down) = tokio::join!(agent.connect(address, Expect::server()), accept_link(&server));
    up.expect("honest peers are served");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_is_served_to_the_last() {
    // More than may handshake without proving their address, and more than may handshake at all.
    const N_PEERS: usize = 400;
    let deployment = Deployment::new("d1");
    let server = deployment.server();
    let address = server.local_addr().expect("bound");
    let agent = deployment.dialler(Role::Agent, "n1");
    let mut crowd = tokio::task::JoinSet::new();
    for _ in 0..N_PEERS {
        let agent = agent.clone();
        // A peer that is evicted while others wait, as happens on a busy machine, tries again, as agents do.
        crowd.spawn(async move {
            loop {
                if let Ok(link) = agent.connect(address, Expect::server()).await {
                    return link;
                }
            }
        });
    }
    let serving = tokio::spawn(async move {
        let mut served = Vec::new();
        loop {
            served.push(accept_link(&server).await);
        }
    });
    let links = crowd.join_all().await;
    assert_eq!(links.len(), N_PEERS);
    assert!(links.iter().all(|link| !link.is_closed()), "nobody is served at the cost of another");
    serving.abort();
}

#[tokio::test]
async fn rotated_credentials_serve_new_links_and_keep_the_old() {
    let deployment = Deployment::new("d1");
    let server = deployment.server();
    let agent = deployment.dialler(Role::Agent, "n1");
    let address = server.local_addr().expect("bound");
    let (up, down) = tokio::join!(agent.connect(address, Expect::server()), accept_link(&server));
    let (up, old_serial) = (up.expect("it connects"), down.serial().to_owned());

    let (next_server, next_agent) =
        (deployment.credentials(Role::Server, "server"), deployment.credentials(Role::Agent, "n1"));
    server.rotate(&next_server).expect("it rotates");
    agent.rotate(&next_agent).expect("it rotates");
    let (again, down_again) = tokio::join!(agent.connect(address, Expect::server()), accept_link(&server));
    assert_eq!(again.expect("it connects").serial(), next_server.serial());
    assert_eq!(down_again.serial(), next_agent.serial());
    assert_ne!(down_again.serial(), old_serial);
    assert!(!up.is_closed() && !down.is_closed(), "links that are up go on");
}

#[tokio::test]
async fn nobody_at_the_address_is_an_error_in_time() {
    let deployment = Deployment::new("d1");
    let credentials = deployment.credentials(Role::User, "alice");
    let tuning = rms_wire::Tuning { handshake: Duration::from_millis(300), ..rms_wire::Tuning::default() };
    let client = Endpoint::bind_tuned(LOOPBACK, &credentials, Serve::Nobody, tuning).expect("a free port");
    let silent = UdpSocket::bind(LOOPBACK).expect("a free port");
    let address = silent.local_addr().expect("bound");
    let error = client.connect(address, Expect::server()).await.expect_err("nobody is there");
    assert!(matches!(error, LinkError::TooSlow { .. }), "{error}");
}

/// No peer may reserve the memory of large frames before it is known whose share that uses.
#[tokio::test]
async fn a_hello_is_never_a_large_frame() {
    let deployment = Deployment::new("d1");
    let server = deployment.server();
    let raw = Raw::new();
    let user = deployment.credentials(Role::User, "alice");
    let connection = raw.connect(server.local_addr().expect("bound"), b"limber/1", Some(&user)).await.expect("TLS");
    let (mut send, _receive) = connection.open_bi().await.expect("a stream");
    // Complete and well-formed but for its length: bincode's varint of it, and the text.
    let text = [&[251][..], &20_000_u16.to_le_bytes(), &[b'x'; 20_000]].concat();
    let header = Header { kind: 1, version: 1, length: text.len() as u32 };
    send.write_all(&[&header.to_bytes()[..], &text].concat()).await.expect("sent");
    let closed = tokio::time::timeout(Duration::from_secs(5), connection.closed()).await.expect("it is refused");
    assert!(closed.to_string().contains("at most 16384 are taken"), "{closed}");
    expect_nobody(&server).await;
}
