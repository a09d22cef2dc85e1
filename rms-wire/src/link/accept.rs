//! Accepts connections: runs each through the handshake and the hello, in a task of its own, in bounded time and
//! memory.

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use quinn::Incoming;
use quinn::crypto::rustls::HandshakeData;
use rms_model::{Identity, Role};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::Instant;

use super::channel::Channel;
use super::connection::Connection;
use super::door::{draw_nonce, receive, send, signed};
use super::error::{CODE_CLOSED, CODE_DENIED, CODE_LEAVING, LinkError};
use super::lasting::{PeerAddress, PeerEntry, PeerList};
use super::local;
use super::log_limit::{Line, LogLimit};
use super::peering::{Link, LinkOrigin, Wire, check_role, peer_of};
use super::places::{Place, Places, network};
use super::shares::Shares;
use super::tuning::Tuning;
use crate::hello::{Hello, HelloAnswer, JoinAnswer, JoinRequest, Proof, SOFTWARE};
use crate::tls::{ALPN, ALPN_JOIN, Credentials, Peer, Revoked, proven};
use rms_api::Refused;
use rms_model::error::chain;

/// An accepted connection.
#[derive(Debug)]
pub enum Accepted {
    /// A link to a peer with a valid certificate and an admitted role; it was welcomed.
    Link(Link),
    /// A peer without a certificate that presents a token.
    Join(Box<Joining>),
}

/// A join request that awaits its answer.
#[derive(Debug)]
pub struct Joining {
    request: JoinRequest,
    channel: Channel,
    wire: Wire,
    /// Holds its place among the joining peers until it is answered.
    _place: oneshot::Sender<()>,
}

impl Joining {
    pub fn request(&self) -> &JoinRequest {
        &self.request
    }

    pub fn remote(&self) -> SocketAddr {
        self.wire.connection().remote_address()
    }

    /// Sends the certificate and the CA, both in PEM. Waits until they have arrived.
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
            // The joining side closes the connection once it has read the answer.
            self.wire.connection().closed().await;
            Ok::<(), LinkError>(())
        };
        if let Ok(Err(error)) = tokio::time::timeout(ANSWER_TIMEOUT, told).await {
            tracing::info!(reason = chain(&error), "a joining peer has gone before it was answered");
        }
        self.wire.close(CODE_CLOSED, "joined");
    }
}

/// Which peers are accepted, and how long it may take.
#[derive(Debug)]
pub struct Admission {
    pub roles: Vec<Role>,
    pub revoked: Revoked,
    /// The credentials that handshakes use now.
    pub credentials: Arc<RwLock<Credentials>>,
    pub tuning: Tuning,
    /// The list of peers that have links.
    pub peer_list: Option<PeerList>,
}

/// Accepts new connections of one endpoint. No connection waits for a place: each kind has a number of places, and when
/// all are taken, the oldest place of the holder with the most is evicted. So no number of silent connections blocks
/// other connections.
#[derive(Debug)]
pub struct AcceptLoop {
    quinn: quinn::Endpoint,
    acceptor: Arc<Acceptor>,
}

/// The state that all connections in the handshake share.
#[derive(Debug)]
pub struct Acceptor {
    admission: Admission,
    /// When full, an admitted connection waits in its place.
    accepted: mpsc::Sender<Accepted>,
    /// Connections whose TLS handshake is in progress.
    half_open: Places<IpAddr>,
    /// Connections without a certificate that have not sent their request yet.
    strangers: Places<IpAddr>,
    /// Connections that have presented a token and await the answer.
    joining: Places<IpAddr>,
    /// Connections with a certificate that have not sent their hello yet.
    known: Places<Identity>,
    /// Users on the local socket who have not proven their identity yet.
    unproven_local: Places<u32>,
    /// Slots for proven connections over the local socket: each takes file descriptors. A client that gets none uses
    /// the network.
    local_slots: Arc<Semaphore>,
    /// Set to the reason when the local connections must end.
    leaving: watch::Sender<Option<String>>,
    shares: Shares,
    log_limit: Arc<LogLimit>,
}

impl AcceptLoop {
    pub fn new(quinn: quinn::Endpoint, admission: Admission, accepted: mpsc::Sender<Accepted>) -> AcceptLoop {
        let acceptor = Acceptor {
            admission,
            accepted,
            half_open: Places::new(Tuning::MAX_HALF_OPEN),
            strangers: Places::new(Tuning::MAX_STRANGERS),
            joining: Places::new(Tuning::MAX_STRANGERS),
            known: Places::new(Tuning::MAX_SILENT_KNOWN),
            unproven_local: Places::new(Tuning::MAX_UNPROVEN_LOCAL),
            local_slots: Arc::new(Semaphore::new(Tuning::MAX_LOCAL)),
            leaving: watch::Sender::new(None),
            shares: Shares::default(),
            log_limit: Arc::default(),
        };
        AcceptLoop { quinn, acceptor: Arc::new(acceptor) }
    }

    /// Runs until the endpoint is closed, or the receiver of accepted connections is dropped.
    pub async fn run(self) {
        loop {
            let next = tokio::select! {
                next = self.quinn.accept() => next,
                () = self.acceptor.accepted.closed() => None,
            };
            let Some(incoming) = next else {
                self.quinn.set_server_config(None);
                return;
            };
            let acceptor = &self.acceptor;
            let n_unproven = acceptor.half_open.n_taken() + acceptor.strangers.n_taken();
            if n_unproven >= Tuning::PROVE_ADDRESS_FROM && !incoming.remote_address_validated() {
                // The address may be forged; an honest peer returns with a valid token.
                if incoming.retry().is_err() {
                    tracing::debug!("cannot ask a connecting peer to prove its address");
                }
                continue;
            }
            // QUIC keeps the state of a connection for a while after its end.
            let n_over = self.quinn.open_connections().saturating_sub(acceptor.shares.n_links());
            if n_over >= Tuning::MAX_UNSETTLED {
                // The peer retransmits its packet; by then some of these states are gone.
                incoming.ignore();
                continue;
            }
            tokio::spawn(admit(incoming, Arc::clone(acceptor)));
        }
    }

    pub fn acceptor(&self) -> Arc<Acceptor> {
        Arc::clone(&self.acceptor)
    }
}

async fn admit(incoming: Incoming, acceptor: Arc<Acceptor>) {
    let (remote, log_limit) = (incoming.remote_address(), Arc::clone(&acceptor.log_limit));
    let agreed = acceptor.admit_quic(incoming).await;
    drop(acceptor);
    log_outcome(agreed, &remote, &log_limit).await;
}

/// Runs until the endpoint is closed, or the receiver of accepted connections is dropped.
async fn accept_local(listener: UnixListener, acceptor: Arc<Acceptor>) {
    let mut leaving = acceptor.leaving.subscribe();
    loop {
        let next = tokio::select! {
            next = listener.accept() => next,
            () = acceptor.accepted.closed() => return,
            _ = leaving.wait_for(Option::is_some) => return,
        };
        match next {
            Ok((stream, _)) => drop(tokio::spawn(admit_local(stream, Arc::clone(&acceptor)))),
            Err(error) => {
                // Too many open files, for example; clients use the network meanwhile.
                tracing::warn!(%error, "cannot accept on the local socket");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

async fn admit_local(stream: UnixStream, acceptor: Arc<Acceptor>) {
    let uid = match stream.peer_cred() {
        Ok(found) => found.uid(),
        Err(error) => return tracing::warn!(%error, "cannot get the peer's credentials on the local socket"),
    };
    let log_limit = Arc::clone(&acceptor.log_limit);
    let agreed = acceptor.admit_local_stream(stream, uid).await;
    drop(acceptor);
    log_outcome(agreed, &format!("user {uid} over the local socket"), &log_limit).await;
}

/// Logs why a connection was refused. A flood of connections must not fill the log: after the first line of a kind,
/// this waits for the end of the second and logs the number of others. It must not keep the endpoint open meanwhile.
async fn log_outcome(agreed: Result<(), LinkError>, remote: &(dyn Display + Sync), log_limit: &LogLimit) {
    let error = match agreed {
        Ok(()) => return,
        Err(LinkError::Evicted) => return tracing::debug!(%remote, "dropped a connection for a newer one"),
        Err(LinkError::TooSlow { secs }) => return tracing::debug!(%remote, secs, "dropped a silent connection"),
        Err(error) => error,
    };
    match log_limit.refused(&error, Instant::now()) {
        Line::Now => tracing::warn!(%remote, reason = chain(&error), "refused a connection"),
        Line::SumAt(end) => {
            tokio::time::sleep_until(end).await;
            let n_refused = log_limit.take_sum(&error, Instant::now());
            tracing::warn!(%remote, reason = chain(&error), n_refused, "refused more connections, this one first");
        }
        Line::Nothing => {}
    }
}

impl Acceptor {
    /// Accepts connections over the local socket, too.
    pub fn listen_local(self: &Arc<Acceptor>, listener: UnixListener) {
        tokio::spawn(accept_local(listener, Arc::clone(self)));
    }

    async fn admit_quic(&self, incoming: Incoming) -> Result<(), LinkError> {
        let Admission { tuning, .. } = &self.admission;
        let network = network(incoming.remote_address().ip());
        let mut place = self.half_open.take(network);
        let connection = place.hold(tuning.handshake.min(Tuning::HALF_OPEN), incoming.into_future()).await?;
        let quic = connection.map_err(|error| LinkError::closed(&error))?;
        let wire = Wire::new(Connection::Quic(quic.clone()), tuning.entry_window(), tuning.frame);
        let close_guard = CloseGuard { wire: wire.clone(), is_over: false };
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
                // Where joining is possible, TLS accepts peers without a certificate: they are refused here.
                Ok(None) => Err(LinkError::NoCertificate),
                Err(error) => Err(error),
            },
            Some(_) | None => Err(LinkError::Protocol),
        };
        close_guard.settle(agreed)
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
            // The receiver is dropped only with the endpoint, and then the connection is closed, too.
            let _ = self.accepted.send(accepted).await;
            // Completes when the joining peer has been answered.
            let _ = answered.await;
        };
        joining.hold(JOIN_TIMEOUT, answering).await
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
        let entry = self.admission.peer_list.as_ref().map(|peer_list| peer_list.list(PeerAddress { remote, local }));
        self.hand_over(wire, peer, entry, known).await
    }

    /// Serves a connection over the local socket: the client proves its identity; after that it is a link like any
    /// other.
    async fn admit_local_stream(&self, mut stream: UnixStream, uid: u32) -> Result<(), LinkError> {
        let Admission { tuning, .. } = &self.admission;
        let mut place = self.unproven_local.take(uid);
        let greeted = place.hold(tuning.handshake.min(Tuning::STRANGER), self.greet_local(&mut stream, uid)).await?;
        let (peer, _held) = greeted?;
        let known = self.known.take(peer.identity.clone());
        drop(place);
        let connection = Connection::Local(local::Connection::accepted(stream, Tuning::LOCAL_CHANNELS));
        let wire = Wire::new(connection.clone(), tuning.entry_window(), tuning.frame);
        let close_guard = CloseGuard { wire: wire.clone(), is_over: false };
        close_guard.settle(self.hand_over(&wire, peer, None, known).await)?;
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

    /// Checks the proof of a local client, and answers with a welcome or the reason for the refusal.
    async fn greet_local(&self, stream: &mut UnixStream, uid: u32) -> Result<(Peer, OwnedSemaphorePermit), LinkError> {
        let nonce = draw_nonce();
        stream.write_all(&nonce).await.map_err(|error| LinkError::Closed { reason: error.to_string() })?;
        let Hello { software, proof } = receive::<Hello>(stream).await?;
        let credentials = self.admission.credentials.read().unwrap_or_else(PoisonError::into_inner).clone();
        let verify = || {
            let Proof { chain, signature } = proof.ok_or(LinkError::NoCertificate)?;
            let peer = proven(&credentials, &self.admission.revoked, &chain, &signed(&nonce, uid), &signature)?;
            check_role(&LOCAL_ROLES, &peer.identity)?;
            check_role(&self.admission.roles, &peer.identity)?;
            let held = Arc::clone(&self.local_slots).try_acquire_owned().map_err(|_| LinkError::Evicted)?;
            Ok::<_, LinkError>((peer, held))
        };
        match verify() {
            Ok((peer, held)) => {
                let authorities = credentials.authorities();
                send(stream, &HelloAnswer::Welcome { software: SOFTWARE.to_owned(), authorities }).await?;
                tracing::debug!(peer = %peer.identity, software, "welcomed");
                Ok((peer, held))
            }
            Err(error) => {
                send(stream, &HelloAnswer::Denied { reason: chain(&error) }).await?;
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
        let _all = self.local_slots.acquire_many(Tuning::MAX_LOCAL as u32).await;
    }

    async fn hand_over(
        &self,
        wire: &Wire,
        peer: Peer,
        entry: Option<PeerEntry>,
        mut known: Place<Identity>,
    ) -> Result<(), LinkError> {
        let Admission { tuning, .. } = &self.admission;
        let sharing = self.shares.take(&peer.identity, tuning);
        match peer.identity.role {
            Role::User | Role::Admin | Role::Agent | Role::Server => wire.allow(&sharing),
            // The link keeps its initial limits until the owner of the job is known.
            Role::Job => {}
        }
        let origin = LinkOrigin::Accepted { _entry: entry, sharing: Arc::new(Mutex::new(sharing)) };
        let link = Link::new(wire.clone(), peer, Vec::new(), &self.admission.revoked, origin);
        known.hold(tuning.handshake, self.accepted.send(Accepted::Link(link))).await.map(drop)
    }

    /// Receives a peer's hello, and answers with a welcome or the reason for the refusal.
    async fn greet(&self, wire: &Wire, peer: &Peer) -> Result<(), LinkError> {
        let mut channel = first_channel(wire).await?;
        let hello = channel.recv::<Hello>().await?.ok_or(LinkError::Silent)?;
        if let Err(error) = check_role(&self.admission.roles, &peer.identity) {
            channel.send(&HelloAnswer::Denied { reason: error.to_string() }).await?;
            channel.finish();
            // The peer closes the connection once it has read the reason.
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

/// Closes the connection on drop, unless its outcome was settled.
struct CloseGuard {
    wire: Wire,
    is_over: bool,
}

impl CloseGuard {
    /// Settles the outcome: closes the connection with the reason if it failed.
    fn settle(mut self, agreed: Result<(), LinkError>) -> Result<(), LinkError> {
        if let Err(error) = &agreed {
            self.wire.close(CODE_DENIED, &chain(error));
        }
        self.is_over = true;
        agreed
    }
}

impl Drop for CloseGuard {
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

/// Only programs of people: agents are known by their addresses, and processes of jobs run on nodes.
const LOCAL_ROLES: [Role; 2] = [Role::User, Role::Admin];

const ACCEPT_RETRY: Duration = Duration::from_millis(200);

/// How long an answer may take to arrive.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// From the token to the end of the connection: the decision, and the time for the answer to arrive.
const JOIN_TIMEOUT: Duration = Duration::from_secs(15);
