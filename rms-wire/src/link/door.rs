//! The local socket: checks its owner, exchanges the first messages, and connects a client.

use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rand::Rng as _;
use rms_model::{Identity, Role};
use rustix::fs::{Mode, OFlags, fstat, open};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

use super::connection::Connection;
use super::error::LinkError;
use super::local;
use super::peering::{Link, LinkOrigin, Wire};
use super::tuning::Tuning;
use crate::codec::{self, HEADER_BYTES, Header};
use crate::hello::{Hello, HelloAnswer, Proof, SOFTWARE};
use crate::message::Message;
use crate::tls::{Credentials, Peer, Revoked};

/// The directory of a socket, held open so that the directory that was checked is the one that is used.
struct SocketDir {
    dir: std::os::fd::OwnedFd,
    owner: u32,
    name: PathBuf,
}

impl SocketDir {
    /// # Errors
    /// Users other than the directory's owner can create a socket there.
    fn of(path: &Path) -> io::Result<SocketDir> {
        let of_path = |words: &str| io::Error::new(io::ErrorKind::InvalidInput, words.to_owned());
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(of_path("not a path of a socket"));
        };
        let dir = open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let found = fstat(&dir)?;
        if found.st_mode & 0o022 != 0 {
            return Err(of_path("its directory is writable by other users"));
        }
        Ok(SocketDir { dir, owner: found.st_uid, name: name.into() })
    }

    /// Returns a path to the socket that is short enough for a socket address, however long the original path is.
    fn path(&self) -> PathBuf {
        Path::new("/proc/self/fd").join(self.dir.as_raw_fd().to_string()).join(&self.name)
    }
}

/// Listens at `path`, and replaces a socket left by an earlier process. Every user with access to the directory may
/// connect.
///
/// # Errors
/// The directory belongs to another user, is writable by others, or cannot be written.
pub(super) fn listen(path: &Path) -> io::Result<UnixListener> {
    let socket_dir = SocketDir::of(path)?;
    if socket_dir.owner != rustix::process::geteuid().as_raw() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "its directory belongs to another user"));
    }
    let path = socket_dir.path();
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

/// Connects to the server whose socket is at `path`, if only the owner of the directory can have created it. We prove
/// our identity by our certificate, as over the network, and by a signature that is valid only for processes of our
/// user.
///
/// # Errors
/// No process listens there, or one of another user does, or the server refuses us. A connection over the network may
/// still succeed.
pub async fn dial_local(path: &Path, credentials: &Credentials) -> Result<Link, LinkError> {
    let dialled = tokio::time::timeout(DIAL_TIMEOUT, dial(path, credentials)).await;
    dialled.unwrap_or(Err(LinkError::TooSlow { secs: DIAL_TIMEOUT.as_secs() }))
}

async fn dial(path: &Path, credentials: &Credentials) -> Result<Link, LinkError> {
    let of_path = |source| LinkError::Local { path: path.to_owned(), source };
    let socket_dir = SocketDir::of(path).map_err(of_path)?;
    let mut stream = UnixStream::connect(socket_dir.path()).await.map_err(of_path)?;
    let server = stream.peer_cred().map_err(of_path)?.uid();
    if server != socket_dir.owner && server != 0 {
        return Err(of_path(io::Error::new(io::ErrorKind::PermissionDenied, "another user listens there")));
    }
    let mut nonce = [0; NONCE_BYTES];
    stream.read_exact(&mut nonce).await.map_err(of_path)?;
    let signature = credentials.sign(&signed(&nonce, rustix::process::geteuid().as_raw()));
    let chain = credentials.chain().iter().map(|certificate| certificate.to_vec().into()).collect();
    let proof = Proof { chain, signature: signature.ok_or(LinkError::NoCertificate)?.into() };
    send(&mut stream, &Hello { software: SOFTWARE.to_owned(), proof: Some(proof) }).await?;
    let authorities = match receive::<HelloAnswer>(&mut stream).await? {
        HelloAnswer::Welcome { software: _, authorities } => authorities,
        HelloAnswer::Denied { reason } => return Err(LinkError::Denied { reason }),
    };
    if !authorities.iter().any(|authority| credentials.trusts(authority)) {
        return Err(of_path(io::Error::new(io::ErrorKind::PermissionDenied, "it is the socket of another deployment")));
    }
    let tuning = Tuning::default();
    let wire = Wire::new(Connection::Local(local::Connection::dialled(stream)), tuning.window(), tuning.frame);
    // The server has shown no certificate: the owner of the directory vouches for it, as long as our own is valid.
    let peer = Peer {
        deployment: credentials.deployment().to_owned(),
        identity: Identity { role: Role::Server, name: "server".to_owned() },
        serial: String::new(),
        issued: credentials.issued(),
        expires: credentials.expires(),
    };
    Ok(Link::new(wire, peer, authorities, &Revoked::new(), LinkOrigin::DialledLocally))
}

/// Draws a nonce, which makes a signature valid for one connection only.
pub(super) fn draw_nonce() -> [u8; NONCE_BYTES] {
    let mut nonce = [0; NONCE_BYTES];
    rand::rng().fill_bytes(&mut nonce);
    nonce
}

/// Returns the bytes that a client signs. They differ from anything that TLS or a certificate request signs, and name
/// the user, which the kernel confirms: an impostor under another user cannot relay the signature.
pub(super) fn signed(nonce: &[u8; NONCE_BYTES], uid: u32) -> Vec<u8> {
    [b"limber local hello 1\0", &nonce[..], &uid.to_le_bytes()].concat()
}

pub(super) async fn send<M: Message>(stream: &mut UnixStream, message: &M) -> Result<(), LinkError> {
    let frame = codec::encode(message)?;
    stream.write_all(&frame).await.map_err(|error| lost(&error))
}

pub(super) async fn receive<M: Message>(stream: &mut UnixStream) -> Result<M, LinkError> {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).await.map_err(|error| lost(&error))?;
    let length = Header::from_bytes(header).expect::<M>()?;
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).await.map_err(|error| lost(&error))?;
    Ok(codec::decode(&payload)?)
}

fn lost(error: &io::Error) -> LinkError {
    LinkError::Closed { reason: format!("the local connection has ended: {error}") }
}

pub(super) const NONCE_BYTES: usize = 32;

/// A running server answers at once.
const DIAL_TIMEOUT: Duration = Duration::from_secs(2);
