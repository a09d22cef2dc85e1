//! One link: an established connection to an authenticated peer, on which channels are opened.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use quinn::{ConnectionError, VarInt};
use rms_model::{Identity, Role};
use rustls_pki_types::CertificateDer;
use tokio::sync::OwnedSemaphorePermit;

use super::channel::{Budget, Channel};
use super::connection::Connection;
use super::error::{CODE_CLOSED, CODE_LEAVING, CODE_VIOLATION, LinkError, MAX_REASON_BYTES, UNHEARD, reason};
use super::knock::KnockReceiver;
use super::lasting::PeerEntry;
use super::shares::{Sharing, large_frames};
use crate::message::HELLO_BYTES;
use crate::tls::{Credentials, Peer, Revoked};
use rms_model::error::chain;

/// A link to a peer whose certificate was verified. Clones are the same link; it ends when it is closed, when the peer
/// falls silent, when the peer's certificate expires or is revoked, or when the last clone and channel are dropped.
#[derive(Clone, Debug)]
pub struct Link(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    wire: Wire,
    peer: Peer,
    /// The CAs that the peer named when it welcomed us; empty if the peer has connected to us.
    authorities: Vec<String>,
    /// The share of our memory that an accepted link uses; it ends with the connection.
    sharing: Weak<Mutex<Sharing>>,
}

/// How a link has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Neither side closed it: the peer was killed or is unreachable.
    Lost,
    /// The peer's process is ending, and another process may take its place.
    Leaving,
    /// One side has closed this link.
    Closed,
}

/// Which side has opened a link; it determines how a restart of either side is noticed.
#[derive(Debug)]
pub(super) enum LinkOrigin {
    /// The peer has connected: it is on the list of peers that get a knock after our restart, if there is one, and has
    /// a share of our memory.
    Accepted { _entry: Option<PeerEntry>, sharing: Arc<Mutex<Sharing>> },
    /// We have connected: a knock tells us that the peer restarted, and it is silent if nothing arrives for `idle`.
    Dialled { knocks: KnockReceiver, idle: Duration },
    /// We have connected to a local socket: the kernel tells us of the peer's end.
    DialledLocally,
}

/// The part of a link that its channels share: the connection lives as long as any of them.
#[derive(Clone, Debug)]
pub(super) struct Wire(Arc<WireInner>);

#[derive(Debug)]
struct WireInner {
    connection: Connection,
    closed_here: OnceLock<String>,
    /// The receive window of the connection.
    window: VarInt,
    frame: Duration,
    /// The memory for large frames; shared by all links of the peer if we have accepted it.
    large_frames: Mutex<Budget>,
}

/// The reason for the end of a link whose peer's certificate was revoked.
pub const REVOKED: &str = "the certificate is revoked";

/// Frames up to this size are read without waiting for each other.
pub(super) const SMALL_FRAME: usize = 16 << 10;

// A hello, which arrives before the peer has its share of our memory, must not count as a large frame.
const _: () = assert!(HELLO_BYTES <= SMALL_FRAME);

impl Link {
    pub(super) fn new(wire: Wire, peer: Peer, authorities: Vec<String>, revoked: &Revoked, origin: LinkOrigin) -> Link {
        let sharing = match &origin {
            LinkOrigin::Accepted { sharing, .. } => Arc::downgrade(sharing),
            LinkOrigin::Dialled { .. } | LinkOrigin::DialledLocally => Weak::new(),
        };
        let link = Link(Arc::new(Parts { wire, peer, authorities, sharing }));
        tokio::spawn(link.0.wire.end_with_certificate(&link.0.peer, revoked.clone(), origin));
        link
    }

    /// Returns the peer's identity, according to its certificate.
    pub fn identity(&self) -> &Identity {
        &self.0.peer.identity
    }

    /// Returns the serial of the peer's certificate, in lower-case hexadecimal.
    pub fn serial(&self) -> &str {
        &self.0.peer.serial
    }

    /// Returns the fingerprints of the CAs that the server trusts, first the one that signs; empty unless a client's
    /// link.
    pub fn authorities(&self) -> &[String] {
        &self.0.authorities
    }

    /// Returns whether these credentials should be renewed now: the server that has welcomed us trusts other CAs, or
    /// signs with another one.
    pub fn wants_renewal(&self, credentials: &Credentials) -> bool {
        let told = &self.0.authorities;
        self.identity().role == Role::Server && !told.is_empty() && *told != credentials.authorities()
    }

    /// Returns the peer's current address; it may change. Over a local socket, it is the loopback address without a
    /// port.
    pub fn remote(&self) -> SocketAddr {
        let address = self.0.wire.connection().remote_address();
        SocketAddr::new(address.ip().to_canonical(), address.port())
    }

    /// Returns the smoothed round-trip time.
    pub fn rtt(&self) -> Duration {
        self.0.wire.connection().rtt()
    }

    /// Counts the link for `who` instead of its peer: a process of a job uses the share of all jobs of its owner. Until
    /// then, a job's link may use very little.
    pub fn count_for(&self, who: &Identity) {
        let Some(sharing) = self.0.sharing.upgrade() else { return };
        // No change under the lock can panic half-way.
        let mut sharing = sharing.lock().unwrap_or_else(PoisonError::into_inner);
        sharing.count_for(who);
        self.0.wire.allow(&sharing);
    }

    /// Returns whether both are handles to one link.
    pub fn is_same(&self, other: &Link) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Opens a channel. The peer learns of it from its first frame.
    ///
    /// # Errors
    /// The link has ended. While the peer allows no further channel, this waits.
    pub async fn open(&self) -> Result<Channel, LinkError> {
        let wire = &self.0.wire;
        let streams = wire.connection().open_bi().await.map_err(|error| wire.ended(&error))?;
        Ok(Channel::new(wire.clone(), streams))
    }

    /// Accepts the next channel that the peer opens.
    ///
    /// # Errors
    /// The link has ended.
    pub async fn accept(&self) -> Result<Channel, LinkError> {
        let wire = &self.0.wire;
        let streams = wire.connection().accept_bi().await.map_err(|error| wire.ended(&error))?;
        Ok(Channel::new(wire.clone(), streams))
    }

    /// Ends the link at once, with all its channels. The peer reads the reason.
    pub fn close(&self, reason: &str) {
        self.0.wire.close(CODE_CLOSED, reason);
    }

    /// Ends the link because the peer violated the protocol, and logs why.
    pub fn close_for(&self, error: &LinkError) {
        self.0.wire.violated(error);
    }

    /// Waits for the end of the link, and returns the reason.
    pub async fn closed(&self) -> String {
        let error = self.0.wire.connection().closed().await;
        self.0.wire.reason(&error)
    }

    /// Returns how the link has ended; `None` as long as it has not.
    pub fn end(&self) -> Option<End> {
        let is_unheard = self.0.wire.0.closed_here.get().is_some_and(|reason| reason == UNHEARD);
        Some(match self.0.wire.connection().close_reason()? {
            ConnectionError::ApplicationClosed(close) if close.error_code == CODE_LEAVING => End::Leaving,
            ConnectionError::LocallyClosed if is_unheard => End::Lost,
            ConnectionError::Reset | ConnectionError::TimedOut => End::Lost,
            ConnectionError::ApplicationClosed(_)
            | ConnectionError::ConnectionClosed(_)
            | ConnectionError::LocallyClosed
            | ConnectionError::TransportError(_)
            | ConnectionError::VersionMismatch
            | ConnectionError::CidsExhausted => End::Closed,
        })
    }

    /// Returns whether the link has ended.
    pub fn is_closed(&self) -> bool {
        self.0.wire.connection().close_reason().is_some()
    }
}

impl Wire {
    /// Creates the shared part; `window` is the connection's initial receive window.
    pub fn new(connection: Connection, window: VarInt, frame: Duration) -> Wire {
        let large_frames = Mutex::new(large_frames(Role::Server));
        Wire(Arc::new(WireInner { connection, closed_here: OnceLock::new(), window, frame, large_frames }))
    }

    pub fn connection(&self) -> &Connection {
        &self.0.connection
    }

    /// Gives the peer its share of our memory, once its identity is known.
    pub fn allow(&self, sharing: &Sharing) {
        self.connection().allow(&sharing.allowance());
        // Nothing large was read earlier: a hello is small.
        *self.large_frames() = sharing.large_frames.clone();
    }

    fn large_frames(&self) -> MutexGuard<'_, Budget> {
        self.0.large_frames.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves memory for a frame over [`SMALL_FRAME`]: a peer cannot make us hold one for each channel.
    pub async fn large_frame(&self, n_bytes: usize) -> OwnedSemaphorePermit {
        let Budget { kib: semaphore, most, patience: _ } = self.large_frames().clone();
        let kib = u32::try_from(n_bytes.div_ceil(1024)).unwrap_or(u32::MAX).min(most);
        semaphore.acquire_many_owned(kib).await.expect("the semaphore is never closed")
    }

    /// Returns the time-out of short frames.
    pub fn frame(&self) -> Duration {
        self.0.frame
    }

    pub fn close(&self, code: VarInt, reason: &str) {
        self.0.close(code, reason);
    }

    pub fn violated(&self, error: &LinkError) {
        let reason = chain(error);
        let remote = self.connection().remote_address();
        tracing::warn!(%remote, reason, "closing a link: protocol violation by the peer");
        self.close(CODE_VIOLATION, &reason);
    }

    pub fn ended(&self, error: &ConnectionError) -> LinkError {
        match LinkError::closed(error) {
            LinkError::Closed { reason: _ } => LinkError::Closed { reason: self.reason(error) },
            other => other,
        }
    }

    fn reason(&self, error: &ConnectionError) -> String {
        match (error, self.0.closed_here.get()) {
            (ConnectionError::LocallyClosed, Some(reason)) => reason.clone(),
            _ => reason(error),
        }
    }

    /// Ends the link when the certificate expires or is revoked: handshakes check it only once. Also answers knocks.
    fn end_with_certificate(
        &self,
        peer: &Peer,
        revoked: Revoked,
        origin: LinkOrigin,
    ) -> impl Future<Output = ()> + use<> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let expires = Duration::from_millis(peer.expires.as_millis().max(0) as u64);
        let end = tokio::time::Instant::now() + expires.saturating_sub(now);
        let (who, serial) = (peer.identity.clone(), peer.serial.clone());
        // The task must not keep the link alive.
        let (connection, inner, window) = (self.connection().clone(), Arc::downgrade(&self.0), self.0.window);
        let idle = if let LinkOrigin::Dialled { idle, .. } = &origin { Some(*idle) } else { None };
        let mut origin = origin;
        async move {
            let pinging = async {
                match (&mut origin, &connection) {
                    (LinkOrigin::Dialled { knocks, .. }, Connection::Quic(connection)) => loop {
                        knocks.knock().await;
                        ping(connection, window);
                    },
                    _ => std::future::pending().await,
                }
            };
            let unheard = async {
                match (idle, &connection) {
                    (Some(idle), Connection::Quic(connection)) => until_unheard(connection, idle).await,
                    _ => std::future::pending().await,
                }
            };
            let reason = tokio::select! {
                _ = connection.closed() => return,
                () = pinging => return,
                () = unheard => {
                    if let Some(inner) = inner.upgrade() {
                        let _ = inner.closed_here.set(UNHEARD.to_owned());
                        inner.connection.close(CODE_CLOSED, b"nothing from here arrives there");
                    }
                    return;
                }
                () = tokio::time::sleep_until(end) => format!("the certificate of {who} has expired"),
                () = revoked.until_it_has(&serial) => {
                    tracing::debug!(peer = %who, serial, "closing a link: revoked");
                    REVOKED.to_owned()
                }
            };
            if let Some(inner) = inner.upgrade() {
                inner.close(CODE_CLOSED, &reason);
            }
        }
    }
}

/// Waits until nothing has arrived for `idle`, although heartbeats are answered: then QUIC gives up, too, but tells the
/// peer nothing. A peer from which nothing arrives, but which receives, would take each retransmission for a sign of
/// life, and give up only when `idle` has passed again. Intervals are counted, so that a process that was stopped does
/// not take its own pause for silence.
async fn until_unheard(connection: &quinn::Connection, idle: Duration) {
    const INTERVALS: u32 = 8;
    let (mut n_received, mut n_silent) = (0, 0);
    while n_silent < INTERVALS {
        tokio::time::sleep(idle / INTERVALS).await;
        let before = std::mem::replace(&mut n_received, connection.stats().udp_rx.datagrams);
        n_silent = if n_received == before { n_silent + 1 } else { 0 };
    }
}

/// Sends a packet that the peer must acknowledge. quinn has no call for this, but it announces a receive window at once
/// that has grown by one byte.
fn ping(connection: &quinn::Connection, window: VarInt) {
    connection.set_receive_window(window);
    connection.set_receive_window(VarInt::from_u64(window.into_inner() + 1).unwrap_or(window));
}

impl WireInner {
    fn close(&self, code: VarInt, reason: &str) {
        // quinn would forget why the connection has ended.
        if self.connection.close_reason().is_some() {
            return;
        }
        let reason = &reason[..reason.floor_char_boundary(MAX_REASON_BYTES)];
        // The first reason is the relevant one.
        let _ = self.closed_here.set(reason.to_owned());
        self.connection.close(code, reason.as_bytes());
    }
}

impl Drop for WireInner {
    fn drop(&mut self) {
        // No clone or channel is left; closing twice changes nothing.
        self.close(CODE_CLOSED, "the peer has let the link go");
    }
}

/// Returns the identity of the other side; `None` if it showed no certificate.
pub(super) fn peer_of(connection: &quinn::Connection) -> Result<Option<Peer>, LinkError> {
    let Some(identity) = connection.peer_identity() else { return Ok(None) };
    let chain = identity.downcast::<Vec<CertificateDer<'static>>>().expect("rustls gives certificates");
    let certificate = chain.first().ok_or(LinkError::NoCertificate)?;
    Ok(Some(Peer::of(certificate)?))
}

/// Checks that a role may have a link.
pub(super) fn check_role(roles: &[Role], identity: &Identity) -> Result<(), LinkError> {
    if roles.contains(&identity.role) {
        return Ok(());
    }
    let roles: Vec<String> = roles.iter().map(Role::to_string).collect();
    Err(LinkError::Role { expected: roles.join(" or "), actual: identity.to_string() })
}
