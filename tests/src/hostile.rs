//! Peers that break the rules on purpose: forged certificates, raw connections, bytes that are no messages.

use rms_api::Call;
use rms_api::call::Query;
use std::io::{ErrorKind, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quinn::crypto::rustls::QuicClientConfig;
use rms_model::{Identity, Role, Span, Time};
use rms_wire::codec::{HEADER_BYTES, Header};
use rms_wire::hello::{HelloAnswer, Proof};
use rms_wire::tls::draw_serial;
use rms_wire::{Authority, ClientRequest, Credentials, Endpoint, Expect, Link, LinkError, NewKey};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use test_kit::Deployment;

/// What the tests wait for at most.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Runs the asynchronous part of a test.
pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(work)
}

/// Somebody who holds a CA's key: the deployment's own, so that tests can hold any certificate, or another.
#[derive(Debug)]
pub struct Forger {
    authority: Authority,
}

impl Forger {
    /// With the key of the deployment whose server has this data directory.
    pub fn of(server_dir: &Path) -> Forger {
        Forger { authority: Authority::load(&server_dir.join("ca")).expect("the deployment has a CA") }
    }

    /// With a CA of its own that claims to be the deployment called `limber`.
    pub fn foreign(dir: &Path) -> Forger {
        Forger { authority: Authority::create(dir, "limber", now()).expect("a new CA") }
    }

    /// A valid certificate.
    pub fn credentials(&self, role: Role, name: &str) -> Credentials {
        self.valid(role, name, now() - Span::from_mins(1), now() + Span::from_hours(1))
    }

    pub fn expired(&self, role: Role, name: &str) -> Credentials {
        self.valid(role, name, now() - Span::from_hours(2), now() - Span::from_mins(1))
    }

    pub fn valid(&self, role: Role, name: &str, from: Time, until: Time) -> Credentials {
        let key = NewKey::generate().expect("a key");
        let identity = Identity::new(role, name).expect("a name");
        let chain = self.authority.sign(key.csr_der(), &identity, &draw_serial(), from, until).expect("a certificate");
        key.into_credentials(&chain, self.authority.ca_pem()).expect("credentials")
    }
}

/// A server alone, and whoever is to meet it.
#[derive(Debug)]
pub struct Alone {
    pub deployment: Deployment,
    pub forger: Forger,
}

impl Alone {
    pub fn start() -> Alone {
        let deployment = Deployment::builder().start();
        let forger = Forger::of(deployment.server_dir());
        Alone { deployment, forger }
    }

    pub fn address(&self) -> SocketAddr {
        self.deployment.address()
    }

    /// A link of an honest user.
    pub async fn honest(&self) -> Link {
        let credentials = self.forger.credentials(Role::User, "honest");
        link(self.address(), &credentials).await.expect("an honest user gets in")
    }
}

pub fn now() -> Time {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    Time::from_millis(now.as_millis() as i64)
}

/// A link as honest programs make it.
///
/// # Errors
/// As [`Endpoint::connect`].
pub async fn link(address: SocketAddr, credentials: &Credentials) -> Result<Link, LinkError> {
    let endpoint = Endpoint::dial(credentials).expect("a free port");
    endpoint.connect(address, Expect::server()).await
}

/// One call over a link of an honest client, and how long its answer took.
pub async fn ask(link: &Link) -> Duration {
    let start = std::time::Instant::now();
    let asked = tokio::time::timeout(PATIENCE, link.call(&ClientRequest::Call(Call::Query(Query::Status)))).await;
    asked.expect("the server answers in time").expect("the server answers");
    start.elapsed()
}

/// A QUIC connection whose client checks nothing and offers what it is told to.
///
/// # Errors
/// The handshake fails. A success says little: the server may still be about to refuse.
pub async fn raw(
    address: SocketAddr,
    alpn: &[u8],
    credentials: Option<&Credentials>,
) -> Result<quinn::Connection, quinn::ConnectionError> {
    let endpoint = quinn::Endpoint::client(([127, 0, 0, 1], 0).into()).expect("a free port");
    raw_from(&endpoint, address, alpn, credentials)?.await
}

/// As [`raw`], from an endpoint that can make many.
///
/// # Errors
/// Nothing was sent.
pub fn raw_from(
    endpoint: &quinn::Endpoint,
    address: SocketAddr,
    alpn: &[u8],
    credentials: Option<&Credentials>,
) -> Result<quinn::Connecting, quinn::ConnectionError> {
    let mut tls = careless(credentials);
    tls.alpn_protocols = vec![alpn.to_vec()];
    let config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).expect("TLS 1.3")));
    let connecting = endpoint.connect_with(config, address, "limber");
    Ok(connecting.expect("an address that can be connected to"))
}

/// Client TLS that believes everything and remembers sessions, early data included.
pub fn careless(credentials: Option<&Credentials>) -> rustls::ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3 is known")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Believer));
    let mut config = match credentials {
        None => builder.with_no_client_auth(),
        Some(credentials) => {
            builder.with_client_auth_cert(chain_of(credentials), key_of(credentials)).expect("key and certificate fit")
        }
    };
    config.enable_early_data = true;
    config
}

/// Server TLS that lets everybody in who shows any certificate.
pub fn credulous(credentials: &Credentials) -> rustls::ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3 is known")
        .with_client_cert_verifier(Arc::new(Believer))
        .with_single_cert(chain_of(credentials), key_of(credentials))
        .expect("key and certificate fit")
}

fn chain_of(credentials: &Credentials) -> Vec<CertificateDer<'static>> {
    let pem = credentials.chain_pem();
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>().expect("a chain")
}

/// The key leaves credentials only by way of the disk.
fn key_of(credentials: &Credentials) -> PrivateKeyDer<'static> {
    let dir = tempfile::tempdir().expect("a directory");
    credentials.save(dir.path()).expect("saved");
    PrivateKeyDer::from_pem_file(dir.path().join("key.pem")).expect("a key")
}

/// Takes every server for the right one, and every client.
#[derive(Debug)]
struct Believer;

impl ClientCertVerifier for Believer {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        ServerCertVerifier::verify_tls12_signature(self, message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        ServerCertVerifier::verify_tls13_signature(self, message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ServerCertVerifier::supported_verify_schemes(self)
    }
}

impl ServerCertVerifier for Believer {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// A connection over the local socket of a server whose client says what it is told to.
#[derive(Debug)]
pub struct RawHere {
    control: UnixStream,
}

/// What the server says to whoever claims to hold these credentials, and to be a process of that user.
pub fn raw_here(socket: &Path, credentials: &Credentials, uid: u32) -> (RawHere, HelloAnswer) {
    let mut control = UnixStream::connect(socket).expect("the server listens");
    control.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut nonce = [0; 32];
    control.read_exact(&mut nonce).expect("the server speaks first");
    let key = rustls::crypto::ring::sign::any_supported_type(&key_of(credentials)).expect("a key");
    let key = key.choose_scheme(&[SignatureScheme::ED25519]).expect("the keys that Limber makes");
    let signature = key.sign(&[b"limber local hello 1\0", &nonce[..], &uid.to_le_bytes()].concat()).expect("signed");
    let pem = credentials.chain_pem();
    let chain =
        CertificateDer::pem_slice_iter(pem.as_bytes()).map(|der| der.expect("a chain").to_vec().into()).collect();
    let proof = Some(Proof { chain, signature: signature.into() });
    let hello = rms_wire::codec::encode(&rms_wire::Hello { software: "hostile".to_owned(), proof }).expect("it fits");
    control.write_all(&hello).expect("sent");
    let mut header = [0; HEADER_BYTES];
    control.read_exact(&mut header).expect("an answer");
    let mut payload = vec![0; Header::from_bytes(header).length as usize];
    control.read_exact(&mut payload).expect("a whole one");
    (RawHere { control }, rms_wire::codec::decode(&payload).expect("an answer"))
}

impl RawHere {
    /// Bytes where channels are asked for.
    pub fn say(&mut self, bytes: &[u8]) {
        self.control.write_all(bytes).expect("sent");
    }

    pub fn open(&mut self) -> UnixStream {
        self.say(&[1]);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let (mut word, mut ancillary) = ([0], RecvAncillaryBuffer::new(&mut space));
        let mut into = [IoSliceMut::new(&mut word)];
        recvmsg(&self.control, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC).expect("a channel");
        let found = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        let channel = UnixStream::from(found.expect("a socket is handed over"));
        channel.set_read_timeout(Some(PATIENCE)).expect("a socket");
        channel
    }

    /// The words with which the connection was closed.
    pub fn last_words(mut self) -> String {
        let mut words = Vec::new();
        match self.control.read_to_end(&mut words) {
            Ok(_) => {}
            // There was something that the server did not read.
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "the server closes the connection"),
        }
        String::from_utf8_lossy(words.get(2..).unwrap_or_default()).into_owned()
    }
}

/// A frame's head and payload as bytes, right or wrong.
pub fn frame(kind: u16, version: u16, length: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(8 + payload.len());
    frame.extend(kind.to_le_bytes());
    frame.extend(version.to_le_bytes());
    frame.extend(length.to_le_bytes());
    frame.extend(payload);
    frame
}

/// The words with which a connection was closed.
pub async fn last_words(connection: &quinn::Connection) -> String {
    let closed = tokio::time::timeout(PATIENCE, connection.closed()).await;
    closed.expect("the server closes the connection").to_string()
}

/// Does the hello as an honest client would, on a raw connection.
pub async fn say_hello(connection: &quinn::Connection) -> Vec<u8> {
    let (mut send, mut receive) = connection.open_bi().await.expect("a channel");
    let hello =
        rms_wire::codec::encode(&rms_wire::Hello { software: "hostile".to_owned(), proof: None }).expect("it fits");
    send.write_all(&hello).await.expect("sent");
    send.finish().expect("not finished yet");
    receive.read_to_end(1 << 20).await.expect("an answer")
}
