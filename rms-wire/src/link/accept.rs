//! The gate: takes new connections through the handshake and the hello, each on its own and in bounded time and memory.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use quinn::crypto::rustls::HandshakeData;
use quinn::{Connection, Incoming};
use rms_model::{Identity, Role};
use tokio::sync::{mpsc, oneshot};

use super::channel::Channel;
use super::endpoint::{SOFTWARE, check_role, peer_of};
use super::error::{CODE_CLOSED, CODE_DENIED, LinkError};
use super::lasting::{Caller, Lasting};
use super::peering::{Bond, Link, Wire};
use super::places::{Place, Places, network};
use super::shares::Shares;
use super::tuning::Tuning;
use crate::hello::{Hello, HelloAnswer, JoinAnswer, JoinRequest};
use crate::tls::{ALPN, ALPN_JOIN, Credentials, Peer, Revoked};
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
struct Porter {
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
}

async fn admit(incoming: Incoming, porter: Arc<Porter>) {
    let remote = incoming.remote_address();
    match porter.let_in(incoming).await {
        Ok(()) => {}
        // A flood of them fills no log.
        Err(LinkError::Evicted) => tracing::debug!(%remote, "gave up a connection for a newer one"),
        Err(LinkError::TooSlow { secs }) => tracing::debug!(%remote, secs, "gave up a connection that says nothing"),
        Err(error) => tracing::warn!(%remote, reason = chain(&error), "refused a connection"),
    }
}

impl Porter {
    async fn let_in(&self, incoming: Incoming) -> Result<(), LinkError> {
        let Admission { tuning, .. } = &self.admission;
        let network = network(incoming.remote_address().ip());
        let mut place = self.half_open.take(network);
        let connection = place.hold(tuning.handshake.min(Tuning::HALF_OPEN), incoming.into_future()).await?;
        let wire =
            Wire::new(connection.map_err(|error| LinkError::closed(&error))?, tuning.entry_window(), tuning.frame);
        let unfinished = Unfinished { wire: wire.clone(), is_over: false };
        let agreed = match protocol(wire.connection()).as_deref() {
            Some(ALPN_JOIN) => {
                let stranger = self.strangers.take(network);
                drop(place);
                self.take_join(&wire, stranger).await
            }
            Some(ALPN) => match peer_of(wire.connection()) {
                Ok(Some(peer)) => {
                    let known = self.known.take(peer.identity.clone());
                    drop(place);
                    self.take_link(&wire, peer, known).await
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

    async fn take_link(&self, wire: &Wire, peer: Peer, mut known: Place<Identity>) -> Result<(), LinkError> {
        let Admission { tuning, .. } = &self.admission;
        let greeted = known.hold(tuning.handshake, self.greet(wire, &peer)).await?;
        greeted?;
        let (remote, local) = (wire.connection().remote_address(), wire.connection().local_ip());
        let listed = self.admission.lasting.as_ref().map(|lasting| lasting.list(Caller { remote, local }));
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
    let (send, receive) = wire.connection().accept_bi().await.map_err(|error| wire.ended(&error))?;
    Ok(Channel::new(wire.clone(), send, receive))
}

fn protocol(connection: &Connection) -> Option<Vec<u8>> {
    let data = connection.handshake_data()?.downcast::<HandshakeData>().ok()?;
    data.protocol
}

/// How long an answer may take to arrive.
const LINGER: Duration = Duration::from_secs(5);

/// From a token to the end of the connection: a judgement, and an answer that takes its time to arrive.
const JOINED_WITHIN: Duration = Duration::from_secs(15);
