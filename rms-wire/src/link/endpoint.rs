//! One UDP port: connects to others, and accepts them if it serves.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use quinn::{AsyncUdpSocket, ClientConfig, Connection, Runtime as _, ServerConfig, TokioRuntime, TransportConfig};
use rms_model::{Identity, Role};
use rustls_pki_types::CertificateDer;
use thiserror::Error;
use tokio::sync::{Mutex, mpsc};

use super::accept::{Accepted, Admission, Gate};
use super::backoff::Backoff;
use super::channel::Channel;
use super::error::{CODE_CLOSED, LinkError};
use super::peering::{Link, Wire};
use super::tuning::Tuning;
use super::{Expect, socket};
use crate::hello::{Hello, HelloAnswer};
use crate::tls::{Credentials, Peer, Revoked, TlsError, client_config, server_config};

/// Whom an endpoint accepts.
#[derive(Clone, Debug)]
pub enum Serve {
    /// It only connects.
    Nobody,
    Peers {
        /// Only these roles get a link.
        roles: Vec<Role>,
        /// May tokens be redeemed here?
        join: bool,
        /// Serials that are refused.
        revoked: Revoked,
    },
}

/// Why an endpoint cannot be made or changed.
#[derive(Debug, Error)]
pub enum EndpointError {
    #[error("cannot bind to {address}")]
    Bind { address: SocketAddr, source: std::io::Error },
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// One UDP port with our credentials. When the last clone is dropped, nobody is accepted any more, and the port is
/// free once the links have ended; [`Endpoint::close`] ends them.
#[derive(Clone, Debug)]
pub struct Endpoint(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    quinn: quinn::Endpoint,
    tuning: Tuning,
    transport: Arc<TransportConfig>,
    serve: Serve,
    credentials: RwLock<Credentials>,
    accepted: Option<Mutex<mpsc::Receiver<Accepted>>>,
}

impl Endpoint {
    /// Binds a port. `listen` may have port 0.
    ///
    /// # Errors
    /// The port is taken, or TLS cannot be set up.
    pub fn bind(listen: SocketAddr, credentials: &Credentials, serve: Serve) -> Result<Endpoint, EndpointError> {
        Endpoint::bind_tuned(listen, credentials, serve, Tuning::default())
    }

    /// As [`Endpoint::bind`], with other limits.
    ///
    /// # Errors
    /// As [`Endpoint::bind`].
    pub fn bind_tuned(
        listen: SocketAddr,
        credentials: &Credentials,
        serve: Serve,
        tuning: Tuning,
    ) -> Result<Endpoint, EndpointError> {
        let failed = |source| EndpointError::Bind { address: listen, source };
        let socket = socket::bind(listen).map_err(failed)?;
        let socket = TokioRuntime.wrap_udp_socket(socket).map_err(failed)?;
        Endpoint::bind_on(socket, credentials, serve, tuning)
    }

    /// An endpoint that only connects, to IPv6 and IPv4 alike where the system has both.
    ///
    /// # Errors
    /// No port is free, or TLS cannot be set up.
    pub fn dial(credentials: &Credentials) -> Result<Endpoint, EndpointError> {
        let any = (Ipv6Addr::UNSPECIFIED, 0).into();
        Endpoint::bind(any, credentials, Serve::Nobody).or_else(|error| match error {
            EndpointError::Bind { .. } => Endpoint::bind((Ipv4Addr::UNSPECIFIED, 0).into(), credentials, Serve::Nobody),
            EndpointError::Tls(_) => Err(error),
        })
    }

    /// As [`Endpoint::dial`], for a server known as `host:port`. Where that is an address of IPv4, no socket of IPv6 is
    /// made: the first one on a system, and the end of the last one, have the kernel patch itself on all CPUs, which a
    /// short command would wait for twice.
    ///
    /// # Errors
    /// As [`Endpoint::dial`].
    pub fn dial_to(server: &str, credentials: &Credentials) -> Result<Endpoint, EndpointError> {
        match server.parse::<SocketAddr>() {
            Ok(SocketAddr::V4(_)) => Endpoint::bind((Ipv4Addr::UNSPECIFIED, 0).into(), credentials, Serve::Nobody),
            Ok(SocketAddr::V6(_)) | Err(_) => Endpoint::dial(credentials),
        }
    }

    /// As [`Endpoint::bind`], on any socket; a simulated network, for example.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn bind_on(
        socket: Arc<dyn AsyncUdpSocket>,
        credentials: &Credentials,
        serve: Serve,
        tuning: Tuning,
    ) -> Result<Endpoint, EndpointError> {
        let address = socket.local_addr().unwrap_or_else(|_| (Ipv4Addr::UNSPECIFIED, 0).into());
        let server = quic_server(&serve, credentials, &tuning)?;
        let quinn = quinn::Endpoint::new_with_abstract_socket(
            tuning.endpoint(credentials),
            server,
            socket,
            Arc::new(TokioRuntime),
        )
        .map_err(|source| EndpointError::Bind { address, source })?;
        let accepted = match &serve {
            Serve::Nobody => None,
            Serve::Peers { roles, join: _, revoked } => {
                // Full: handshakes that are done wait in their places.
                let (sender, receiver) = mpsc::channel(64);
                let admission =
                    Admission { roles: roles.clone(), revoked: revoked.clone(), patience: tuning.handshake };
                tokio::spawn(Gate::new(quinn.clone(), admission, sender).run());
                Some(Mutex::new(receiver))
            }
        };
        let transport = tuning.connecting();
        let credentials = RwLock::new(credentials.clone());
        Ok(Endpoint(Arc::new(Parts { quinn, tuning, transport, serve, credentials, accepted })))
    }

    /// Where this endpoint is bound.
    ///
    /// # Errors
    /// The system has lost the socket.
    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.0.quinn.local_addr()
    }

    /// The next peer: its handshake is done and its identity checked. `None` once the endpoint is closed, or if
    /// it serves nobody.
    pub async fn accept(&self) -> Option<Accepted> {
        match &self.0.accepted {
            Some(accepted) => accepted.lock().await.recv().await,
            None => None,
        }
    }

    /// Connects, checks who answers, and waits for the welcome.
    ///
    /// # Errors
    /// Nobody answers in time, somebody else answers, or we are not welcome.
    pub async fn connect(&self, address: SocketAddr, expect: Expect) -> Result<Link, LinkError> {
        let agreed = tokio::time::timeout(self.0.tuning.handshake, self.agree(address, expect)).await;
        agreed.unwrap_or(Err(LinkError::TooSlow { secs: self.0.tuning.handshake.as_secs() }))
    }

    /// Connects to `host:port`, again and again with growing delays, until it works. `failed` is told of each
    /// failure and of the delay that follows.
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
                    tokio::time::sleep(delay).await;
                }
            }
        }
    }

    async fn agree(&self, address: SocketAddr, expect: Expect) -> Result<Link, LinkError> {
        let revoked = match &self.0.serve {
            Serve::Nobody => Revoked::new(),
            Serve::Peers { revoked, roles: _, join: _ } => revoked.clone(),
        };
        let tls = client_config(&self.credentials(), &revoked, &expect).map_err(EndpointError::from)?;
        let connection = self.connect_with(tls, address).await?;
        let wire = Wire::new(connection);
        let peer = peer_of(wire.connection())?.ok_or(LinkError::NoCertificate)?;
        // TLS believes us connected before the other side has looked at our certificate: only a welcome counts.
        let (send, receive) = wire.connection().open_bi().await.map_err(|error| wire.ended(&error))?;
        let mut channel = Channel::new(wire.clone(), send, receive);
        let greeted = channel.send(&Hello { software: SOFTWARE.to_owned() }).await;
        channel.finish();
        let answered = match greeted {
            Ok(()) => channel.recv::<HelloAnswer>().await,
            Err(error) => Err(error),
        };
        match answered? {
            Some(HelloAnswer::Welcome { software: _ }) => Ok(Link::new(wire, peer, &revoked)),
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

    /// From now on, handshakes use these credentials. Links that are up go on until their certificates expire.
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

    /// The credentials that handshakes use now.
    pub fn credentials(&self) -> Credentials {
        self.0.credentials.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends every link with this reason and accepts nobody any more.
    pub fn close(&self, reason: &str) {
        self.0.quinn.close(CODE_CLOSED, reason.as_bytes());
    }

    /// Waits until the peers were told of the end of their links, or do not answer.
    pub async fn wait_idle(&self) {
        self.0.quinn.wait_idle().await;
    }
}

/// The first address that `host:port` stands for.
///
/// # Errors
/// An unknown host, or text of another form.
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
    // The name plays no part: the verifier looks at the identity in the certificate.
    let connecting = quinn.connect_with(config, address, "limber");
    let connecting = connecting.map_err(|source| LinkError::Connect { address, source })?;
    connecting.await.map_err(|error| LinkError::closed(&error))
}

/// The identity of the other side; `None` if it showed no certificate.
pub(super) fn peer_of(connection: &Connection) -> Result<Option<Peer>, LinkError> {
    let Some(identity) = connection.peer_identity() else { return Ok(None) };
    let chain = identity.downcast::<Vec<CertificateDer<'static>>>().expect("rustls gives certificates");
    let certificate = chain.first().ok_or(LinkError::NoCertificate)?;
    Ok(Some(Peer::of(certificate)?))
}

/// Says whether a role may have a link.
pub(super) fn check_role(roles: &[Role], identity: &Identity) -> Result<(), LinkError> {
    if roles.contains(&identity.role) {
        return Ok(());
    }
    let roles: Vec<String> = roles.iter().map(Role::to_string).collect();
    Err(LinkError::Role { expected: roles.join(" or "), actual: identity.to_string() })
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

/// What peers may log of us.
pub(super) const SOFTWARE: &str = concat!("limber ", env!("CARGO_PKG_VERSION"));
