//! A relay between a program that connects and one that accepts, each held to a version of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{Connection, Endpoint, ReadExactError, RecvStream, SendStream, TransportConfig, VarInt};
use rmpv::Value;
use rms_model::Role;
use rms_wire::codec::{HEADER_BYTES, Header};
use rms_wire::tls::{ALPN, Peer};
use rms_wire::{Kind, Message};
use rustls::pki_types::CertificateDer;
use tokio::runtime::Runtime;

use super::schema::Schema;
use crate::hostile::{Forger, careless, credulous};

/// The version that a program is held to now. Clones are the same.
#[derive(Clone, Debug)]
pub struct Held(Arc<Mutex<Schema>>);

impl Held {
    pub fn to(schema: Schema) -> Held {
        Held(Arc::new(Mutex::new(schema)))
    }

    pub fn schema(&self) -> Schema {
        *self.0.lock().expect("nobody panics with it")
    }

    pub fn set(&self, schema: Schema) {
        *self.0.lock().expect("nobody panics with it") = schema;
    }
}

/// Listens in the place of a program, and connects to it in the place of whoever comes.
#[derive(Debug)]
pub struct Relay {
    pub address: SocketAddr,
}

/// What each of its connections needs.
#[derive(Debug)]
struct Between {
    forger: Arc<Forger>,
    upstream: SocketAddr,
    endpoint: Endpoint,
    connects: Held,
    accepts: Held,
}

impl Relay {
    /// In the place of the server at `upstream`. `connects` and `accepts` are the versions of the two ends.
    pub fn start(
        runtime: &Runtime,
        forger: &Arc<Forger>,
        upstream: SocketAddr,
        connects: &Held,
        accepts: &Held,
    ) -> Relay {
        let _inside = runtime.enter();
        let mut tls = credulous(&forger.credentials(Role::Server, "relay"));
        tls.alpn_protocols = vec![ALPN.to_vec()];
        let mut config = quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls).expect("TLS 1.3")));
        config.transport_config(transport());
        let endpoint = Endpoint::server(config, (Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
        let address = endpoint.local_addr().expect("it is bound");
        let (connects, accepts) = (connects.clone(), accepts.clone());
        let between = Between { forger: Arc::clone(forger), upstream, endpoint: endpoint.clone(), connects, accepts };
        let between = Arc::new(between);
        runtime.spawn(async move {
            while let Some(incoming) = endpoint.accept().await {
                let between = Arc::clone(&between);
                tokio::spawn(async move {
                    // Whoever goes away in the middle of it comes back.
                    let Ok(down) = incoming.await else { return };
                    if let Some(up) = between.connect(&down).await {
                        between.relay(down, up).await;
                    } else {
                        down.close(VarInt::from_u32(0), b"nobody is there");
                    }
                });
            }
        });
        Relay { address }
    }
}

impl Between {
    /// Connects as whoever has connected.
    async fn connect(&self, down: &Connection) -> Option<Connection> {
        let shown = down.peer_identity()?.downcast::<Vec<CertificateDer<'static>>>().ok()?;
        let peer = Peer::of(shown.first()?).expect("only members of the deployment come").identity;
        let mut tls = careless(Some(&self.forger.credentials(peer.role, &peer.name)));
        tls.alpn_protocols = vec![ALPN.to_vec()];
        let mut config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).expect("TLS 1.3")));
        config.transport_config(transport());
        let connecting = self.endpoint.connect_with(config, self.upstream, "limber").expect("an address");
        tokio::time::timeout(Duration::from_secs(2), connecting).await.ok()?.ok()
    }

    /// Until either end closes; the other one is closed with the same words.
    async fn relay(self: Arc<Self>, down: Connection, up: Connection) {
        let (rising, falling) = (Arc::clone(&self), Arc::clone(&self));
        tokio::select! {
            () = rising.channels(&down, &up, true) => {}
            () = falling.channels(&up, &down, false) => {}
        }
        for (one, other) in [(&down, &up), (&up, &down)] {
            match one.close_reason() {
                Some(quinn::ConnectionError::ApplicationClosed(closed)) => {
                    other.close(closed.error_code, &closed.reason)
                }
                Some(_) => other.close(VarInt::from_u32(0), b"the other end is lost"),
                None => {}
            }
        }
    }

    /// Passes on the channels that `from` opens.
    async fn channels(self: Arc<Self>, from: &Connection, to: &Connection, is_rising: bool) {
        while let Ok((back, there)) = from.accept_bi().await {
            let Ok((out, answer)) = to.open_bi().await else { return };
            tokio::spawn(pass(Arc::clone(&self), there, out, is_rising));
            tokio::spawn(pass(Arc::clone(&self), answer, back, !is_rising));
        }
    }

    /// The frames that a frame becomes.
    fn rewritten(&self, header: Header, payload: Vec<u8>, is_rising: bool) -> Vec<Vec<u8>> {
        let (says, hears) = match is_rising {
            true => (self.connects.schema(), self.accepts.schema()),
            false => (self.accepts.schema(), self.connects.schema()),
        };
        let is_fixed = FIXED.iter().any(|kind| kind.number() == header.kind);
        if is_fixed {
            return vec![[header.to_bytes().to_vec(), payload].concat()];
        }
        let mut value = rmpv::decode::read_value(&mut payload.as_slice()).expect("it is MessagePack");
        says.write(&mut value);
        hears.read(&mut value);
        let mut frames = vec![frame(header, &value)];
        // What a newer program says beside, where a variant that is not known is skipped.
        let may_have_more = [Kind::ToServer, Kind::ToAgent].iter().any(|kind| kind.number() == header.kind);
        if says == Schema::Newer && may_have_more {
            let degrees = Value::Map(vec![(Value::from("degrees"), Value::from(-3))]);
            frames.push(frame(header, &Value::Map(vec![(Value::from("Weather"), degrees)])));
        }
        frames
    }
}

/// The kinds that have no names.
const FIXED: [Kind; 3] = [rms_wire::Spooled::KIND, rms_wire::Input::KIND, rms_wire::PeerExec::KIND];

fn frame(header: Header, value: &Value) -> Vec<u8> {
    let mut payload = Vec::new();
    rmpv::encode::write_value(&mut payload, value).expect("it can be written");
    let header = Header { length: payload.len() as u32, ..header };
    [header.to_bytes().to_vec(), payload].concat()
}

/// Passes on one direction of a channel, and how it ends.
async fn pass(between: Arc<Between>, mut from: RecvStream, mut to: SendStream, is_rising: bool) {
    loop {
        let mut header = [0; HEADER_BYTES];
        match from.read_exact(&mut header).await {
            Ok(()) => {}
            Err(ReadExactError::FinishedEarly(0)) => {
                let _gone_already = to.finish();
                return;
            }
            Err(_) => {
                let _gone_already = to.reset(VarInt::from_u32(0));
                return;
            }
        }
        let header = Header::from_bytes(header);
        let mut payload = vec![0; header.length as usize];
        if from.read_exact(&mut payload).await.is_err() {
            let _gone_already = to.reset(VarInt::from_u32(0));
            return;
        }
        for frame in between.rewritten(header, payload, is_rising) {
            if to.write_all(&frame).await.is_err() {
                let _gone_already = from.stop(VarInt::from_u32(0));
                return;
            }
        }
    }
}

/// Notices at once that an end is gone.
fn transport() -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport.max_concurrent_bidi_streams(256_u32.into()).keep_alive_interval(Some(Duration::from_millis(200)));
    Arc::new(transport)
}
