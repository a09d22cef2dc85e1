//! One UDP port: connects to peers, and accepts peers if it serves.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex as SyncMutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use quinn::{AsyncUdpSocket, ClientConfig, Connection, Runtime as _, ServerConfig, TokioRuntime, TransportConfig};
use rms_model::Role;
use tokio::sync::{Mutex, mpsc};

use super::accept::{AcceptLoop, Accepted, Acceptor, Admission};
use super::backoff::Backoff;
use super::channel::Channel;
use super::connection;
use super::error::{CODE_CLOSED, CODE_LEAVING, EndpointError, LinkError};
use super::knock::{KnockReceiver, KnockSocket, KnockTable};
use super::lasting::{PeerList, reset_key};
use super::peering::{Link, LinkOrigin, Wire, peer_of};
use super::tuning::Tuning;
use super::{Expect, door, socket};
use crate::hello::{Hello, HelloAnswer, SOFTWARE};
use crate::tls::{Credentials, Revoked, client_config, server_config};

/// Which peers an endpoint accepts.
#[derive(Clone, Debug)]
pub enum Serve {
    /// It only connects.
    Nobody,
    Peers {
        /// Only these roles get a link.
        roles: Vec<Role>,
        /// Whether tokens can be redeemed here.
        join: bool,
        /// Serials that are refused.
        revoked: Revoked,
    },
}

/// One UDP port with our credentials. When the last clone is dropped, no more peers are accepted, and the port is free
/// once the links have ended; [`Endpoint::close`] ends them.
#[derive(Clone, Debug)]
pub struct Endpoint(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    quinn: quinn::Endpoint,
    tuning: Tuning,
    transport: Arc<TransportConfig>,
    serve: Serve,
    credentials: Arc<RwLock<Credentials>>,
    accepted: Option<Mutex<mpsc::Receiver<Accepted>>>,
    knocks: KnockTable,
    /// Receives knocks from the address that was dialled last; a knock ends a pause.
    dialled: SyncMutex<Option<KnockReceiver>>,
    peer_list: Option<PeerList>,
    /// Exists as long as peers can be accepted.
    acceptor: Weak<Acceptor>,
}

impl Endpoint {
    /// Binds a port. `listen` may have port 0.
    ///
    /// # Errors
    /// The port is taken, or TLS cannot be set up.
    pub fn bind(listen: SocketAddr, credentials: &Credentials, serve: Serve) -> Result<Endpoint, EndpointError> {
        Endpoint::bind_tuned(listen, credentials, serve, Tuning::default())
    }

    /// Like [`Endpoint::bind`], with other limits.
    ///
    /// # Errors
    /// See [`Endpoint::bind`].
    pub fn bind_tuned(
        listen: SocketAddr,
        credentials: &Credentials,
        serve: Serve,
        tuning: Tuning,
    ) -> Result<Endpoint, EndpointError> {
        Endpoint::bind_on(bind(listen)?, credentials, serve, tuning)
    }

    /// Like [`Endpoint::bind`], for an endpoint that a later process continues: `dir` keeps the state by which its
    /// peers notice the restart at once.
    ///
    /// # Errors
    /// See [`Endpoint::bind`].
    pub fn bind_lasting(
        listen: SocketAddr,
        credentials: &Credentials,
        serve: Serve,
        dir: &Path,
        tuning: Tuning,
    ) -> Result<Endpoint, EndpointError> {
        let persistent = reset_key(dir).and_then(|key| Ok((key, PeerList::open(dir)?)));
        let persistent = persistent.inspect_err(|error| {
            let dir = dir.display();
            tracing::warn!(%error, %dir, "cannot keep the list of links here: after a restart, peers will notice later");
        });
        Endpoint::bind_persistent(bind(listen)?, credentials, serve, tuning, persistent.ok())
    }

    /// Creates an endpoint that only connects, to both IPv6 and IPv4 where the system has both.
    ///
    /// # Errors
    /// No port is free, or TLS cannot be set up.
    pub fn dial(credentials: &Credentials) -> Result<Endpoint, EndpointError> {
        Endpoint::dial_tuned("", credentials, Tuning::default())
    }

    /// Like [`Endpoint::dial`], for a server known as `host:port`. If that is an IPv4 address, no IPv6 socket is
    /// created: the first IPv6 socket on a system, and the end of the last one, make the kernel patch its code on all
    /// CPUs, which a short command would wait for twice.
    ///
    /// # Errors
    /// See [`Endpoint::dial`].
    pub fn dial_to(server: &str, credentials: &Credentials) -> Result<Endpoint, EndpointError> {
        Endpoint::dial_tuned(server, credentials, Tuning::default())
    }

    /// Like [`Endpoint::dial_to`], with other limits.
    ///
    /// # Errors
    /// See [`Endpoint::dial`].
    pub fn dial_tuned(server: &str, credentials: &Credentials, tuning: Tuning) -> Result<Endpoint, EndpointError> {
        let bind = |any: SocketAddr| Endpoint::bind_tuned(any, credentials, Serve::Nobody, tuning.clone());
        let on_ipv4 = || bind((Ipv4Addr::UNSPECIFIED, 0).into());
        match server.parse::<SocketAddr>() {
            Ok(SocketAddr::V4(_)) => on_ipv4(),
            Ok(SocketAddr::V6(_)) | Err(_) => bind((Ipv6Addr::UNSPECIFIED, 0).into()).or_else(|error| match error {
                EndpointError::Bind { .. } => on_ipv4(),
                EndpointError::Tls(_) => Err(error),
            }),
        }
    }

    /// Like [`Endpoint::bind`], on any socket, for example of a simulated network.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn bind_on(
        socket: Arc<dyn AsyncUdpSocket>,
        credentials: &Credentials,
        serve: Serve,
        tuning: Tuning,
    ) -> Result<Endpoint, EndpointError> {
        Endpoint::bind_persistent(socket, credentials, serve, tuning, None)
    }

    /// Like [`Endpoint::bind_on`], with the state left by an earlier process.
    fn bind_persistent(
        socket: Arc<dyn AsyncUdpSocket>,
        credentials: &Credentials,
        serve: Serve,
        tuning: Tuning,
        persistent: Option<([u8; 32], PeerList)>,
    ) -> Result<Endpoint, EndpointError> {
        let (secret, peer_list) = persistent.unzip();
        let knocks = KnockTable::default();
        let knock_socket = Arc::new(KnockSocket::new(socket, knocks.clone()));
        let socket: Arc<dyn AsyncUdpSocket> = Arc::clone(&knock_socket) as Arc<dyn AsyncUdpSocket>;
        let address = socket.local_addr().unwrap_or_else(|_| (Ipv4Addr::UNSPECIFIED, 0).into());
        let server = quic_server(&serve, credentials, &tuning)?;
        let quinn = quinn::Endpoint::new_with_abstract_socket(
            tuning.endpoint(credentials, secret),
            server,
            socket,
            Arc::new(TokioRuntime),
        )
        .map_err(|source| EndpointError::Bind { address, source })?;
        let shared = Arc::new(RwLock::new(credentials.clone()));
        let (accepted, acceptor) = match &serve {
            Serve::Nobody => (None, Weak::new()),
            Serve::Peers { roles, join: _, revoked } => {
                // When full, finished handshakes wait in their places.
                let (sender, receiver) = mpsc::channel(64);
                let admission = Admission {
                    roles: roles.clone(),
                    revoked: revoked.clone(),
                    credentials: Arc::clone(&shared),
                    tuning: tuning.clone(),
                    peer_list: peer_list.clone(),
                };
                let accept_loop = AcceptLoop::new(quinn.clone(), admission, sender);
                let acceptor = Arc::downgrade(&accept_loop.acceptor());
                tokio::spawn(accept_loop.run());
                (Some(Mutex::new(receiver)), acceptor)
            }
        };
        let transport = tuning.connecting();
        if let Some(peer_list) = &peer_list {
            tokio::spawn(knock_at_previous(peer_list.clone(), Arc::downgrade(&knock_socket)));
        }
        let dialled = SyncMutex::default();
        let credentials = shared;
        let parts =
            Parts { quinn, tuning, transport, serve, credentials, accepted, knocks, dialled, peer_list, acceptor };
        Ok(Endpoint(Arc::new(parts)))
    }

    /// Returns the address at which this endpoint is bound.
    ///
    /// # Errors
    /// The system has lost the socket.
    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.0.quinn.local_addr()
    }

    /// Also accepts users of this machine at a local socket, in addition to what is served over the network: see
    /// [`dial_local`](super::dial_local).
    ///
    /// # Errors
    /// The path's directory is not ours alone, or cannot be written.
    pub fn listen_local(&self, path: &Path) -> std::io::Result<()> {
        let listener = door::listen(path)?;
        if let Some(acceptor) = self.0.acceptor.upgrade() {
            acceptor.listen_local(listener);
        }
        Ok(())
    }

    /// Accepts the next peer, after its handshake and the check of its identity. Returns `None` once the endpoint is
    /// closed, or if it serves no peers.
    pub async fn accept(&self) -> Option<Accepted> {
        match &self.0.accepted {
            Some(accepted) => accepted.lock().await.recv().await,
            None => None,
        }
    }

    /// Connects, checks the peer's identity, and waits for the welcome.
    ///
    /// # Errors
    /// There is no answer in time, another peer answers, or the peer refuses us.
    pub async fn connect(&self, address: SocketAddr, expect: Expect) -> Result<Link, LinkError> {
        let mut knock_receiver = self.0.knocks.expect(address);
        *self.0.dialled.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.0.knocks.expect(address));
        let result = async {
            tokio::select! {
                result = self.handshake(address, expect.clone()) => return result,
                () = knock_after_delay(&mut knock_receiver) => {}
            }
            // If the first packets are lost, QUIC retransmits them, but later than a knock allows.
            self.handshake(address, expect).await
        };
        let result = tokio::time::timeout(self.0.tuning.handshake, result).await;
        result.unwrap_or(Err(LinkError::TooSlow { secs: self.0.tuning.handshake.as_secs() }))
    }

    /// Waits before the next attempt to connect: for `delay`, or until a knock from the address that was dialled last.
    pub async fn pause(&self, delay: Duration) {
        let address =
            self.0.dialled.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(KnockReceiver::address);
        let Some(address) = address else { return tokio::time::sleep(delay).await };
        let mut knock_receiver = self.0.knocks.expect(address);
        // A knock ends the delay early.
        let _ = tokio::time::timeout(delay, knock_receiver.knock()).await;
    }

    /// Connects to `host:port`, and retries with growing delays until it succeeds. Calls `failed` with each failure and
    /// the delay that follows.
    pub async fn connect_patiently(
        &self,
        address: &str,
        expect: &Expect,
        backoff: &mut Backoff,
        mut failed: impl FnMut(&LinkError, Duration),
    ) -> Link {
        loop {
            let attempt = async { self.connect(resolve(address).await?, expect.clone()).await };
            match attempt.await {
                Ok(link) => {
                    backoff.reset();
                    return link;
                }
                Err(error) => {
                    let delay = backoff.delay();
                    failed(&error, delay);
                    self.pause(delay).await;
                }
            }
        }
    }

    async fn handshake(&self, address: SocketAddr, expect: Expect) -> Result<Link, LinkError> {
        let revoked = match &self.0.serve {
            Serve::Nobody => Revoked::new(),
            Serve::Peers { revoked, roles: _, join: _ } => revoked.clone(),
        };
        let tls = client_config(&self.credentials(), &revoked, &expect).map_err(EndpointError::from)?;
        let connection = self.connect_with(tls, address).await?;
        let peer = peer_of(&connection)?.ok_or(LinkError::NoCertificate)?;
        let connection = connection::Connection::Quic(connection);
        let wire = Wire::new(connection, self.0.tuning.window(), self.0.tuning.frame);
        // TLS reports a connection before the other side has verified our certificate: only a welcome counts.
        let streams = wire.connection().open_bi().await.map_err(|error| wire.ended(&error))?;
        let mut channel = Channel::new(wire.clone(), streams);
        let greeted = channel.send(&Hello { software: SOFTWARE.to_owned(), proof: None }).await;
        channel.finish();
        let answered = match greeted {
            Ok(()) => channel.recv::<HelloAnswer>().await,
            Err(error) => Err(error),
        };
        match answered? {
            Some(HelloAnswer::Welcome { software: _, authorities }) => {
                let (knocks, idle) = (self.0.knocks.expect(address), self.0.tuning.idle);
                let origin = LinkOrigin::Dialled { knocks, idle };
                Ok(Link::new(wire, peer, authorities, &revoked, origin))
            }
            Some(HelloAnswer::Denied { reason }) => {
                wire.close(CODE_CLOSED, "denied");
                Err(LinkError::Denied { reason })
            }
            None => Err(LinkError::Silent),
        }
    }

    async fn connect_with(
        &self,
        tls: quinn::crypto::rustls::QuicClientConfig,
        address: SocketAddr,
    ) -> Result<Connection, LinkError> {
        dial_with(&self.0.quinn, &self.0.transport, tls, address).await
    }

    /// Makes handshakes use these credentials from now on. Existing links continue until their certificates expire.
    ///
    /// # Errors
    /// TLS cannot be set up; the old credentials stay.
    pub fn rotate(&self, credentials: &Credentials) -> Result<(), EndpointError> {
        let server = quic_server(&self.0.serve, credentials, &self.0.tuning)?;
        if server.is_some() {
            self.0.quinn.set_server_config(server);
        }
        *self.0.credentials.write().unwrap_or_else(PoisonError::into_inner) = credentials.clone();
        Ok(())
    }

    /// Returns the credentials that handshakes use now.
    pub fn credentials(&self) -> Credentials {
        self.0.credentials.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends every link with this reason and accepts no further peers.
    pub fn close(&self, reason: &str) {
        if let Some(peer_list) = &self.0.peer_list {
            peer_list.close();
        }
        if let Some(acceptor) = self.0.acceptor.upgrade() {
            acceptor.leave(reason);
        }
        self.0.quinn.close(CODE_LEAVING, reason.as_bytes());
    }

    /// Waits until the peers have received the close of their links, or do not answer.
    pub async fn wait_idle(&self) {
        self.0.quinn.wait_idle().await;
        if let Some(acceptor) = self.0.acceptor.upgrade() {
            acceptor.left().await;
        }
    }
}

/// Sends knocks to the peers of the previous process, a few at a time, so that they do not all return at once.
async fn knock_at_previous(peer_list: PeerList, knock_socket: Weak<KnockSocket>) {
    for wait in KNOCK_AFTER {
        tokio::time::sleep(wait).await;
        for some in peer_list.missing().chunks(KNOCKS_AT_ONCE) {
            let Some(knock_socket) = knock_socket.upgrade() else { return };
            for peer in some {
                // A knock that is lost, or that a full socket did not take, is sent again.
                let _ = knock_socket.knock(peer.remote, peer.local);
            }
            tokio::time::sleep(KNOCK_PAUSE).await;
        }
    }
    tokio::time::sleep(KNOCK_FINAL_WAIT).await;
    peer_list.clear_missing();
}

/// Waits until an answer would be expected, and then for a knock.
async fn knock_after_delay(knock_receiver: &mut KnockReceiver) {
    tokio::time::sleep(EXPECTED_ANSWER_TIME).await;
    knock_receiver.knock().await;
}

fn bind(listen: SocketAddr) -> Result<Arc<dyn AsyncUdpSocket>, EndpointError> {
    let socket = socket::bind(listen).and_then(|socket| TokioRuntime.wrap_udp_socket(socket));
    socket.map_err(|source| EndpointError::Bind { address: listen, source })
}

/// Resolves `host:port` to its first address.
///
/// # Errors
/// The node is unknown, or the text has another form.
pub async fn resolve(address: &str) -> Result<SocketAddr, LinkError> {
    let mut found = tokio::net::lookup_host(address)
        .await
        .map_err(|source| LinkError::Resolve { address: address.to_owned(), source })?;
    found.next().ok_or_else(|| LinkError::NoAddress { address: address.to_owned() })
}

pub(crate) async fn dial_with(
    quinn: &quinn::Endpoint,
    transport: &Arc<TransportConfig>,
    tls: quinn::crypto::rustls::QuicClientConfig,
    address: SocketAddr,
) -> Result<Connection, LinkError> {
    let mut config = ClientConfig::new(Arc::new(tls));
    config.transport_config(Arc::clone(transport));
    // The name does not matter: the verifier checks the identity in the certificate.
    let connecting = quinn.connect_with(config, address, "limber");
    let connecting = connecting.map_err(|source| LinkError::Connect { address, source })?;
    connecting.await.map_err(|error| LinkError::closed(&error))
}

fn quic_server(
    serve: &Serve,
    credentials: &Credentials,
    tuning: &Tuning,
) -> Result<Option<ServerConfig>, EndpointError> {
    match serve {
        Serve::Nobody => Ok(None),
        Serve::Peers { roles: _, join, revoked } => {
            let tls = server_config(credentials, revoked, *join)?;
            let mut server = ServerConfig::with_crypto(Arc::new(tls));
            tuning.limit_incoming(&mut server);
            Ok(Some(server))
        }
    }
}

/// The delays before the rounds of knocks, each after the previous round.
const KNOCK_AFTER: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(150), Duration::from_millis(500), Duration::from_secs(2)];
const KNOCKS_AT_ONCE: usize = 64;
const KNOCK_PAUSE: Duration = Duration::from_millis(10);
/// A peer that has not returned after this time has noticed the loss itself, or no longer exists.
const KNOCK_FINAL_WAIT: Duration = Duration::from_secs(27);
const EXPECTED_ANSWER_TIME: Duration = Duration::from_millis(100);
