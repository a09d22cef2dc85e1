//! The local socket: who may have put it there, what is said first over it, and how a client comes to a link by it.

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
use super::peering::{Bond, Link, Wire};
use super::tuning::Tuning;
use crate::codec::{self, HEADER_BYTES, Header};
use crate::hello::{Hello, HelloAnswer, Proof, SOFTWARE};
use crate::message::Message;
use crate::tls::{Credentials, Peer, Revoked};

/// The directory of a socket, held open so that what was checked is what is used.
struct Place {
    dir: std::os::fd::OwnedFd,
    owner: u32,
    name: PathBuf,
}

impl Place {
    /// # Errors
    /// Others than the directory's owner may put a socket there.
    fn of(path: &Path) -> io::Result<Place> {
        let of_path = |words: &str| io::Error::new(io::ErrorKind::InvalidInput, words.to_owned());
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(of_path("it is no path of a socket"));
        };
        let dir = open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let found = fstat(&dir)?;
        if found.st_mode & 0o022 != 0 {
            return Err(of_path("others may write to its directory"));
        }
        Ok(Place { dir, owner: found.st_uid, name: name.into() })
    }

    /// However long the path is, this one is short enough for an address.
    fn path(&self) -> PathBuf {
        Path::new("/proc/self/fd").join(self.dir.as_raw_fd().to_string()).join(&self.name)
    }
}

/// Listens at `path`, where a process before may have left a socket. Everybody who can reach the directory may connect.
///
/// # Errors
/// A directory that is not our own alone, or cannot be written.
pub(super) fn listen(path: &Path) -> io::Result<UnixListener> {
    let place = Place::of(path)?;
    if place.owner != rustix::process::geteuid().as_raw() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "its directory belongs to somebody else"));
    }
    let path = place.path();
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

/// Connects to the server whose socket is at `path`, if nobody but whom the directory belongs to can have put it there. Who
/// we are our certificate says, as over the network, and a signature that counts for our user's processes alone.
///
/// # Errors
/// Nobody listens there, or somebody else, or we are not welcome. Over the network it may be otherwise.
pub async fn dial_local(path: &Path, credentials: &Credentials) -> Result<Link, LinkError> {
    let dialled = tokio::time::timeout(PATIENCE, dial(path, credentials)).await;
    dialled.unwrap_or(Err(LinkError::TooSlow { secs: PATIENCE.as_secs() }))
}

async fn dial(path: &Path, credentials: &Credentials) -> Result<Link, LinkError> {
    let of_path = |source| LinkError::Local { path: path.to_owned(), source };
    let place = Place::of(path).map_err(of_path)?;
    let mut stream = UnixStream::connect(place.path()).await.map_err(of_path)?;
    let server = stream.peer_cred().map_err(of_path)?.uid();
    if server != place.owner && server != 0 {
        return Err(of_path(io::Error::new(io::ErrorKind::PermissionDenied, "somebody else listens there")));
    }
    let mut nonce = [0; NONCE_BYTES];
    stream.read_exact(&mut nonce).await.map_err(of_path)?;
    let signature = credentials.sign(&signed(&nonce, rustix::process::geteuid().as_raw()));
    let chain = credentials.chain().iter().map(|certificate| certificate.to_vec().into()).collect();
    let proof = Proof { chain, signature: signature.ok_or(LinkError::NoCertificate)?.into() };
    say(&mut stream, &Hello { software: SOFTWARE.to_owned(), proof: Some(proof) }).await?;
    let authorities = match hear::<HelloAnswer>(&mut stream).await? {
        HelloAnswer::Welcome { software: _, authorities } => authorities,
        HelloAnswer::Denied { reason } => return Err(LinkError::Denied { reason }),
    };
    if !authorities.iter().any(|authority| credentials.trusts(authority)) {
        return Err(of_path(io::Error::new(io::ErrorKind::PermissionDenied, "it is the socket of another deployment")));
    }
    let tuning = Tuning::default();
    let wire = Wire::new(Connection::Local(local::Connection::dialled(stream)), tuning.window(), tuning.frame);
    // The server has shown no certificate: that of its user's directory stands for it, as long as our own is good.
    let peer = Peer {
        deployment: credentials.deployment().to_owned(),
        identity: Identity { role: Role::Server, name: "server".to_owned() },
        serial: String::new(),
        issued: credentials.issued(),
        expires: credentials.expires(),
    };
    Ok(Link::new(wire, peer, authorities, &Revoked::new(), Bond::Dialled(None)))
}

/// What makes a signature good for one connection: it cannot be used again.
pub(super) fn draw_nonce() -> [u8; NONCE_BYTES] {
    let mut nonce = [0; NONCE_BYTES];
    rand::rng().fill_bytes(&mut nonce);
    nonce
}

/// What a client signs. It is nothing that TLS or a request for a certificate has signed, and good for processes of one user
/// alone, whom the kernel names: an impostor of another user cannot pass it on.
pub(super) fn signed(nonce: &[u8; NONCE_BYTES], uid: u32) -> Vec<u8> {
    [b"limber local hello 1\0", &nonce[..], &uid.to_le_bytes()].concat()
}

pub(super) async fn say<M: Message>(stream: &mut UnixStream, message: &M) -> Result<(), LinkError> {
    let frame = codec::encode(message)?;
    stream.write_all(&frame).await.map_err(|error| lost(&error))
}

pub(super) async fn hear<M: Message>(stream: &mut UnixStream) -> Result<M, LinkError> {
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

/// A server that is there answers at once.
const PATIENCE: Duration = Duration::from_secs(2);
