//! The gate: takes new connections through the handshake and the hello, each on its own and in bounded time.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use quinn::crypto::rustls::HandshakeData;
use quinn::{Connection, Incoming, VarInt};
use rms_model::Role;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::channel::Channel;
use super::endpoint::{SOFTWARE, check_role, peer_of};
use super::error::{CODE_CLOSED, CODE_DENIED, LinkError, chain};
use super::lasting::{Caller, Lasting};
use super::peering::{Bond, Link, Wire};
use super::tuning::Tuning;
use crate::hello::{Hello, HelloAnswer, JoinAnswer, JoinRequest};
use crate::refused::Refused;
use crate::tls::{ALPN, ALPN_JOIN, Credentials, Revoked};

/// Who has come.
#[derive(Debug)]
pub enum Accepted {
    /// A peer with a valid certificate and an admitted role; it was welcomed.
    Link(Link),
    /// Somebody without a certificate who shows a token.
    Join(Box<Joining>),
}

/// A token that waits to be judged.
#[derive(Debug)]
pub struct Joining {
    request: JoinRequest,
    channel: Channel,
    wire: Wire,
    /// Holds its place among the handshakes until it is answered.
    _place: oneshot::Sender<()>,
}

impl Joining {
    pub fn request(&self) -> &JoinRequest {
        &self.request
    }

    pub fn remote(&self) -> SocketAddr {
        self.wire.connection().remote_address()
    }

    /// Hands out the certificate, both texts in PEM. Waits until it has arrived.
    pub async fn grant(self, chain: String, ca: String, cluster: Option<String>) {
        self.answer(&JoinAnswer::Granted { chain, ca, cluster }).await;
    }

    pub async fn refuse(self, refused: Refused) {
        self.answer(&JoinAnswer::Refused(refused)).await;
    }

    async fn answer(mut self, answer: &JoinAnswer) {
        let told = async {
            self.channel.send(answer).await?;
            self.channel.finish();
            // The joining side closes when it has read the answer.
            self.wire.connection().closed().await;
            Ok::<(), LinkError>(())
        };
        if let Ok(Err(error)) = tokio::time::timeout(LINGER, told).await {
            tracing::info!(reason = chain(&error), "a joining peer has gone before it was answered");
        }
        self.wire.close(CODE_CLOSED, "joined");
    }
}

/// Who is let in, and how long it may take.
#[derive(Debug)]
pub struct Admission {
    pub roles: Vec<Role>,
    pub revoked: Revoked,
    /// Those that handshakes use now.
    pub credentials: Arc<RwLock<Credentials>>,
    pub patience: Duration,
    /// What each connection is made with.
    pub window: VarInt,
    /// Where peers are listed that have links.
    pub lasting: Option<Lasting>,
}

/// Lets new connections of one endpoint in.
#[derive(Debug)]
pub struct Gate {
    quinn: quinn::Endpoint,
    admission: Arc<Admission>,
    /// Full: a handshake that is done waits in its place.
    accepted: mpsc::Sender<Accepted>,
    handshakes: JoinSet<()>,
    /// When they began, in that order; some may be over.
    turns: VecDeque<(Instant, AbortHandle)>,
}

impl Gate {
    pub fn new(quinn: quinn::Endpoint, admission: Admission, accepted: mpsc::Sender<Accepted>) -> Gate {
        let admission = Arc::new(admission);
        Gate { quinn, admission, accepted, handshakes: JoinSet::new(), turns: VecDeque::new() }
    }

    /// Until the endpoint is closed, or nobody asks any more who has come.
    pub async fn run(mut self) {
        loop {
            // A place first: who waits, waits in QUIC's bounded queue, where it costs least.
            self.make_room().await;
            let next = tokio::select! {
                next = self.quinn.accept() => next,
                () = self.accepted.closed() => None,
            };
            let Some(incoming) = next else {
                self.quinn.set_server_config(None);
                return;
            };
            let is_crowded = self.handshakes.len() >= Tuning::PROVE_ADDRESS_FROM;
            if is_crowded && !incoming.remote_address_validated() {
                // It may be a forged address; an honest peer comes back with the proof.
                if incoming.retry().is_err() {
                    tracing::debug!("a newcomer cannot be asked to prove its address");
                }
                continue;
            }
            let admit = admit(incoming, Arc::clone(&self.admission), self.accepted.clone());
            self.turns.push_back((Instant::now(), self.handshakes.spawn(admit)));
        }
    }

    /// Honest peers are done within a few round trips. So when all places are taken, the oldest gives its own up
    /// after a fair turn: connections that do nothing cannot keep others out for long.
    async fn make_room(&mut self) {
        while self.handshakes.try_join_next().is_some() {}
        while self.handshakes.len() >= Tuning::MAX_HANDSHAKES {
            self.turns.retain(|(_, handshake)| !handshake.is_finished());
            let oldest = self.turns.front();
            let turn_ends = oldest.map_or_else(Instant::now, |(began, _)| *began + Tuning::LEAST_TURN);
            tokio::select! {
                _ = self.handshakes.join_next() => {}
                () = tokio::time::sleep_until(turn_ends) => {
                    if let Some((_, oldest)) = self.turns.pop_front() {
                        oldest.abort();
                    }
                    self.handshakes.join_next().await;
                }
            }
        }
        if self.turns.len() >= 2 * Tuning::MAX_HANDSHAKES {
            self.turns.retain(|(_, handshake)| !handshake.is_finished());
        }
    }
}

async fn admit(incoming: Incoming, admission: Arc<Admission>, accepted: mpsc::Sender<Accepted>) {
    let remote = incoming.remote_address();
    let handshake = async {
        let connection = incoming.await.map_err(|error| LinkError::closed(&error))?;
        let wire = Wire::new(connection, admission.window);
        let unfinished = Unfinished { wire: wire.clone(), is_over: false };
        let greeted = greet(wire.clone(), &admission).await;
        if let Err(error) = &greeted {
            wire.close(CODE_DENIED, &chain(error));
        }
        greeted.map(|(peer, answered)| (peer, answered, unfinished))
    };
    match tokio::time::timeout(admission.patience, handshake).await {
        Ok(Ok((peer, answered, mut unfinished))) => {
            // The receiver is gone only when the endpoint is, and then the peer goes too.
            let _ = accepted.send(peer).await;
            if let Some(answered) = answered {
                // Ends when the joining peer has been answered, or this place is wanted.
                let _ = answered.await;
            }
            unfinished.is_over = true;
        }
        Ok(Err(error)) => tracing::warn!(%remote, reason = chain(&error), "refused a connection"),
        Err(_) => tracing::warn!(%remote, "gave up a connection that was not agreed in time"),
    }
}

/// A connection that is closed if its place is taken away.
struct Unfinished {
    wire: Wire,
    is_over: bool,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_over {
            self.wire.close(CODE_DENIED, "nothing was agreed in time");
        }
    }
}

/// Who it is; for one who wants to join, also what to wait for until it was answered.
async fn greet(wire: Wire, admission: &Admission) -> Result<(Accepted, Option<oneshot::Receiver<()>>), LinkError> {
    let protocol = protocol(wire.connection());
    if protocol.as_deref() == Some(ALPN_JOIN) {
        let mut channel = first_channel(&wire).await?;
        let request = channel.recv::<JoinRequest>().await?.ok_or(LinkError::Silent)?;
        let (place, answered) = oneshot::channel();
        let joining = Joining { request, channel, wire, _place: place };
        return Ok((Accepted::Join(Box::new(joining)), Some(answered)));
    }
    if protocol.as_deref() != Some(ALPN) {
        return Err(LinkError::Protocol);
    }
    // Where joining is possible, TLS lets peers without a certificate through: they end here.
    let peer = peer_of(wire.connection())?.ok_or(LinkError::NoCertificate)?;
    let mut channel = first_channel(&wire).await?;
    let hello = channel.recv::<Hello>().await?.ok_or(LinkError::Silent)?;
    if let Err(error) = check_role(&admission.roles, &peer.identity) {
        channel.send(&HelloAnswer::Denied { reason: error.to_string() }).await?;
        channel.finish();
        // The peer closes once it has read why.
        wire.connection().closed().await;
        return Err(error);
    }
    let authorities = admission.credentials.read().unwrap_or_else(PoisonError::into_inner).authorities();
    channel.send(&HelloAnswer::Welcome { software: SOFTWARE.to_owned(), authorities }).await?;
    channel.finish();
    tracing::debug!(peer = %peer.identity, software = hello.software, "welcomed");
    let (remote, local) = (wire.connection().remote_address(), wire.connection().local_ip());
    let listed = admission.lasting.as_ref().map(|lasting| lasting.list(Caller { remote, local }));
    let bond = Bond::Accepted { _listed: listed };
    Ok((Accepted::Link(Link::new(wire, peer, Vec::new(), &admission.revoked, bond)), None))
}

async fn first_channel(wire: &Wire) -> Result<Channel, LinkError> {
    let (send, receive) = wire.connection().accept_bi().await.map_err(|error| wire.ended(&error))?;
    Ok(Channel::new(wire.clone(), send, receive))
}

fn protocol(connection: &Connection) -> Option<Vec<u8>> {
    let data = connection.handshake_data()?.downcast::<HandshakeData>().ok()?;
    data.protocol
}

/// How long an answer may take to arrive.
const LINGER: Duration = Duration::from_secs(5);
