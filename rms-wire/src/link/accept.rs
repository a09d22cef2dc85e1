//! The gate: takes new connections through the handshake and the hello, each on its own and in bounded time and memory.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use quinn::Incoming;
use quinn::crypto::rustls::HandshakeData;
use rms_model::{Identity, Role};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

use super::channel::Channel;
use super::connection::Connection;
use super::door::{draw_nonce, hear, say, signed};
use super::error::{CODE_CLOSED, CODE_DENIED, CODE_LEAVING, LinkError};
use super::lasting::{Caller, Lasting, Listed};
use super::local;
use super::peering::{Bond, Link, Wire, check_role, peer_of};
use super::places::{Place, Places, network};
use super::shares::Shares;
use super::tuning::Tuning;
use crate::hello::{Hello, HelloAnswer, JoinAnswer, JoinRequest, Proof, SOFTWARE};
use crate::tls::{ALPN, ALPN_JOIN, Credentials, Peer, Revoked, proven};
use rms_api::Refused;
use rms_model::error::chain;

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
    pub tuning: Tuning,
    /// Where peers are listed that have links.
    pub lasting: Option<Lasting>,
}

/// Lets new connections of one endpoint in. Nobody waits for a place: there are some for each kind of newcomer, and when
/// they are taken the oldest of whoever has the most is given up. So silence, however much of it, keeps nobody out.
#[derive(Debug)]
pub struct Gate {
    quinn: quinn::Endpoint,
    porter: Arc<Porter>,
}

/// What all newcomers share.
#[derive(Debug)]
pub struct Porter {
    admission: Admission,
    /// Full: a newcomer that has agreed waits in its place.
    accepted: mpsc::Sender<Accepted>,
    /// TLS is not done.
    half_open: Places<IpAddr>,
    /// They have no certificate, and have not said yet what they want.
    strangers: Places<IpAddr>,
    /// They have shown a token, and wait for the answer.
    joining: Places<IpAddr>,
    /// They have a certificate, and have not said hello yet.
    known: Places<Identity>,
    /// Users who have come over the local socket, and not proven yet who they are.
    unproven_here: Places<u32>,
    /// Connections over it beside them: each takes files of ours. Who gets none comes over the network.
    here: Arc<Semaphore>,
    /// Why those are to end.
    leaving: watch::Sender<Option<String>>,
    shares: Shares,
}

impl Gate {
    pub fn new(quinn: quinn::Endpoint, admission: Admission, accepted: mpsc::Sender<Accepted>) -> Gate {
        let porter = Porter {
            admission,
            accepted,
            half_open: Places::new(Tuning::MAX_HALF_OPEN),
            strangers: Places::new(Tuning::MAX_STRANGERS),
            joining: Places::new(Tuning::MAX_STRANGERS),
            known: Places::new(Tuning::MAX_SILENT_KNOWN),
            unproven_here: Places::new(Tuning::MAX_UNPROVEN_HERE),
            here: Arc::new(Semaphore::new(Tuning::MAX_HERE)),
            leaving: watch::Sender::new(None),
            shares: Shares::default(),
        };
        Gate { quinn, porter: Arc::new(porter) }
    }

    /// Until the endpoint is closed, or nobody asks any more who has come.
    pub async fn run(self) {
        loop {
            let next = tokio::select! {
                next = self.quinn.accept() => next,
                () = self.porter.accepted.closed() => None,
            };
            let Some(incoming) = next else {
                self.quinn.set_server_config(None);
                return;
            };
            let porter = &self.porter;
            let n_unproven = porter.half_open.n_taken() + porter.strangers.n_taken();
            if n_unproven >= Tuning::PROVE_ADDRESS_FROM && !incoming.remote_address_validated() {
                // It may be a forged address; an honest peer comes back with the proof.
                if incoming.retry().is_err() {
                    tracing::debug!("a newcomer cannot be asked to prove its address");
                }
                continue;
            }
            // QUIC keeps a connection for a moment after its end.
            let n_over = self.quinn.open_connections().saturating_sub(porter.shares.n_links());
            if n_over >= Tuning::MAX_UNSETTLED {
                // It says so again by itself, and by then some of them are forgotten.
                incoming.ignore();
                continue;
            }
            tokio::spawn(admit(incoming, Arc::clone(porter)));
        }
    }

    pub fn porter(&self) -> Arc<Porter> {
        Arc::clone(&self.porter)
    }
}

async fn admit(incoming: Incoming, porter: Arc<Porter>) {
    let remote = incoming.remote_address();
    note(porter.let_in(incoming).await, &remote);
}

/// Until the endpoint is closed, or nobody asks any more who has come.
async fn accept_here(listener: UnixListener, porter: Arc<Porter>) {
    let mut leaving = porter.leaving.subscribe();
    loop {
        let next = tokio::select! {
            next = listener.accept() => next,
            () = porter.accepted.closed() => return,
            _ = leaving.wait_for(Option::is_some) => return,
        };
        match next {
            Ok((stream, _)) => drop(tokio::spawn(admit_here(stream, Arc::clone(&porter)))),
            Err(error) => {
                // Too many open files, for example; whoever waits meanwhile comes over the network.
                tracing::warn!(%error, "cannot accept on the local socket");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

async fn admit_here(stream: UnixStream, porter: Arc<Porter>) {
    let uid = match stream.peer_cred() {
        Ok(found) => found.uid(),
        Err(error) => return tracing::warn!(%error, "the kernel does not say who connects to the local socket"),
    };
    note(porter.let_in_here(stream, uid).await, &format_args!("user {uid} here"));
}

fn note(agreed: Result<(), LinkError>, remote: &dyn std::fmt::Display) {
    match agreed {
        Ok(()) => {}
        // A flood of them fills no log.
        Err(LinkError::Evicted) => tracing::debug!(%remote, "gave up a connection for a newer one"),
        Err(LinkError::TooSlow { secs }) => tracing::debug!(%remote, secs, "gave up a connection that says nothing"),
        Err(error) => tracing::warn!(%remote, reason = chain(&error), "refused a connection"),
    }
}

impl Porter {
    /// Takes connections over the local socket, too.
    pub fn listen_here(self: &Arc<Porter>, listener: UnixListener) {
        tokio::spawn(accept_here(listener, Arc::clone(self)));
    }

    async fn let_in(&self, incoming: Incoming) -> Result<(), LinkError> {
        let Admission { tuning, .. } = &self.admission;
        let network = network(incoming.remote_address().ip());
        let mut place = self.half_open.take(network);
        let connection = place.hold(tuning.handshake.min(Tuning::HALF_OPEN), incoming.into_future()).await?;
        let quic = connection.map_err(|error| LinkError::closed(&error))?;
        let wire = Wire::new(Connection::Quic(quic.clone()), tuning.entry_window(), tuning.frame);
        let unfinished = Unfinished { wire: wire.clone(), is_over: false };
        let agreed = match protocol(&quic).as_deref() {
            Some(ALPN_JOIN) => {
                let stranger = self.strangers.take(network);
                drop(place);
                self.take_join(&wire, stranger).await
            }
            Some(ALPN) => match peer_of(&quic) {
                Ok(Some(peer)) => {
                    let known = self.known.take(peer.identity.clone());
                    drop(place);
                    self.take_link(&wire, &quic, peer, known).await
                }
                // Where joining is possible, TLS lets peers without a certificate through: they end here.
                Ok(None) => Err(LinkError::NoCertificate),
                Err(error) => Err(error),
            },
            Some(_) | None => Err(LinkError::Protocol),
        };
        unfinished.settle(agreed)
    }

    async fn take_join(&self, wire: &Wire, mut stranger: Place<IpAddr>) -> Result<(), LinkError> {
        let asking = async {
            let mut channel = first_channel(wire).await?;
            let request = channel.recv::<JoinRequest>().await?.ok_or(LinkError::Silent)?;
            Ok::<_, LinkError>((channel, request))
        };
        let patience = self.admission.tuning.handshake.min(Tuning::STRANGER);
        let (channel, request) = stranger.hold(patience, asking).await??;
        let mut joining = self.joining.take(network(wire.connection().remote_address().ip()));
        drop(stranger);
        let (place, answered) = oneshot::channel();
        let accepted = Accepted::Join(Box::new(Joining { request, channel, wire: wire.clone(), _place: place }));
        let answering = async {
            // The receiver is gone only when the endpoint is, and then the peer goes too.
            let _ = self.accepted.send(accepted).await;
            // Ends when the joining peer has been answered.
            let _ = answered.await;
        };
        joining.hold(JOINED_WITHIN, answering).await
    }

    async fn take_link(
        &self,
        wire: &Wire,
        quic: &quinn::Connection,
        peer: Peer,
        mut known: Place<Identity>,
    ) -> Result<(), LinkError> {
        let greeted = known.hold(self.admission.tuning.handshake, self.greet(wire, &peer)).await?;
        greeted?;
        let (remote, local) = (quic.remote_address(), quic.local_ip());
        let listed = self.admission.lasting.as_ref().map(|lasting| lasting.list(Caller { remote, local }));
        self.hand_over(wire, peer, listed, known).await
    }

    /// A connection over the local socket: the client proves who it is, then it is a link as any other until it ends.
    async fn let_in_here(&self, mut stream: UnixStream, uid: u32) -> Result<(), LinkError> {
        let Admission { tuning, .. } = &self.admission;
        let mut place = self.unproven_here.take(uid);
        let greeted = place.hold(tuning.handshake.min(Tuning::STRANGER), self.greet_here(&mut stream, uid)).await?;
        let (peer, _held) = greeted?;
        let known = self.known.take(peer.identity.clone());
        drop(place);
        let connection = Connection::Local(local::Connection::accepted(stream, Tuning::CHANNELS_HERE));
        let wire = Wire::new(connection.clone(), tuning.entry_window(), tuning.frame);
        let unfinished = Unfinished { wire: wire.clone(), is_over: false };
        unfinished.settle(self.hand_over(&wire, peer, None, known).await)?;
        drop(wire);
        let mut leaving = self.leaving.subscribe();
        tokio::select! {
            _ = connection.closed() => {}
            Ok(why) = leaving.wait_for(Option::is_some) => {
                connection.close(CODE_LEAVING, why.as_deref().unwrap_or_default().as_bytes());
            }
        }
        Ok(())
    }

    /// Says welcome to who proves to be somebody, or why not.
    async fn greet_here(&self, stream: &mut UnixStream, uid: u32) -> Result<(Peer, OwnedSemaphorePermit), LinkError> {
        let nonce = draw_nonce();
        stream.write_all(&nonce).await.map_err(|error| LinkError::Closed { reason: error.to_string() })?;
        let Hello { software, proof } = hear::<Hello>(stream).await?;
        let credentials = self.admission.credentials.read().unwrap_or_else(PoisonError::into_inner).clone();
        let judge = || {
            let Proof { chain, signature } = proof.ok_or(LinkError::NoCertificate)?;
            let peer = proven(&credentials, &self.admission.revoked, &chain, &signed(&nonce, uid), &signature)?;
            check_role(&ROLES_HERE, &peer.identity)?;
            check_role(&self.admission.roles, &peer.identity)?;
            let held = Arc::clone(&self.here).try_acquire_owned().map_err(|_| LinkError::Evicted)?;
            Ok::<_, LinkError>((peer, held))
        };
        match judge() {
            Ok((peer, held)) => {
                let authorities = credentials.authorities();
                say(stream, &HelloAnswer::Welcome { software: SOFTWARE.to_owned(), authorities }).await?;
                tracing::debug!(peer = %peer.identity, software, "welcomed");
                Ok((peer, held))
            }
            Err(error) => {
                say(stream, &HelloAnswer::Denied { reason: chain(&error) }).await?;
                Err(error)
            }
        }
    }

    /// Ends the connections over the local socket.
    pub fn leave(&self, reason: &str) {
        self.leaving.send_replace(Some(reason.to_owned()));
    }

    /// Waits until they have ended.
    pub async fn left(&self) {
        let _all = self.here.acquire_many(Tuning::MAX_HERE as u32).await;
    }

    async fn hand_over(
        &self,
        wire: &Wire,
        peer: Peer,
        listed: Option<Listed>,
        mut known: Place<Identity>,
    ) -> Result<(), LinkError> {
        let Admission { tuning, .. } = &self.admission;
        let sharing = self.shares.take(&peer.identity, tuning);
        match peer.identity.role {
            Role::User | Role::Admin | Role::Agent | Role::Server => wire.allow(&sharing),
            // It has what it begins with, until it is known whose job it is.
            Role::Job => {}
        }
        let bond = Bond::Accepted { _listed: listed, sharing: Arc::new(Mutex::new(sharing)) };
        let link = Link::new(wire.clone(), peer, Vec::new(), &self.admission.revoked, bond);
        known.hold(tuning.handshake, self.accepted.send(Accepted::Link(link))).await.map(drop)
    }

    /// Says welcome to a peer that says hello, or why not.
    async fn greet(&self, wire: &Wire, peer: &Peer) -> Result<(), LinkError> {
        let mut channel = first_channel(wire).await?;
        let hello = channel.recv::<Hello>().await?.ok_or(LinkError::Silent)?;
        if let Err(error) = check_role(&self.admission.roles, &peer.identity) {
            channel.send(&HelloAnswer::Denied { reason: error.to_string() }).await?;
            channel.finish();
            // The peer closes once it has read why.
            wire.connection().closed().await;
            return Err(error);
        }
        let authorities = self.admission.credentials.read().unwrap_or_else(PoisonError::into_inner).authorities();
        channel.send(&HelloAnswer::Welcome { software: SOFTWARE.to_owned(), authorities }).await?;
        channel.finish();
        tracing::debug!(peer = %peer.identity, software = hello.software, "welcomed");
        Ok(())
    }
}

/// A connection that is closed unless something came of it.
struct Unfinished {
    wire: Wire,
    is_over: bool,
}

impl Unfinished {
    /// Closes it with the reason if nothing was agreed.
    fn settle(mut self, agreed: Result<(), LinkError>) -> Result<(), LinkError> {
        if let Err(error) = &agreed {
            self.wire.close(CODE_DENIED, &chain(error));
        }
        self.is_over = true;
        agreed
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_over {
            self.wire.close(CODE_DENIED, "nothing was agreed in time");
        }
    }
}

async fn first_channel(wire: &Wire) -> Result<Channel, LinkError> {
    let streams = wire.connection().accept_bi().await.map_err(|error| wire.ended(&error))?;
    Ok(Channel::new(wire.clone(), streams))
}

fn protocol(connection: &quinn::Connection) -> Option<Vec<u8>> {
    let data = connection.handshake_data()?.downcast::<HandshakeData>().ok()?;
    data.protocol
}

/// Programs of people: agents are known by their addresses, and processes of jobs are on nodes.
const ROLES_HERE: [Role; 2] = [Role::User, Role::Admin];

const ACCEPT_AGAIN: Duration = Duration::from_millis(200);

/// How long an answer may take to arrive.
const LINGER: Duration = Duration::from_secs(5);

/// From a token to the end of the connection: a judgement, and an answer that takes its time to arrive.
const JOINED_WITHIN: Duration = Duration::from_secs(15);
