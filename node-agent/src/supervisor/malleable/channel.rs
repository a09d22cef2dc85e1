//! The socket on which processes of a job join its supervisor: the kernel identifies them, and none of them can block
//! it.

use std::fs;
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, bind, getsockopt, listen, recv,
    sendmsg, socket,
};
use nix::unistd::{Pid, Uid};
use rms_malleable::{Answer, REQUEST_BYTES, Request};

use crate::spool;

/// The listening socket.
#[derive(Debug)]
pub struct Listener {
    /// A message socket, although its type is named for streams.
    listener: UnixListener,
    path: PathBuf,
}

/// The most connections that wait to be accepted.
const BACKLOG: i32 = 128;

impl Listener {
    /// Opens the socket to all users: each client is checked.
    ///
    /// # Errors
    /// See socket(2) and bind(2).
    pub fn open(path: &Path) -> io::Result<Listener> {
        let _left_over = fs::remove_file(path);
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let listener = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
        let (_dir, short) = spool::short_path(path)?;
        bind(listener.as_raw_fd(), &UnixAddr::new(&short)?)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
        listen(&listener, Backlog::new(BACKLOG)?)?;
        Ok(Listener { listener: listener.into(), path: path.to_owned() })
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Accepts the next connection.
    pub fn accept(&self) -> Option<Client> {
        loop {
            match self.listener.accept() {
                Ok((socket, _)) => {
                    // A process that has already ended has sent nothing.
                    if let Ok(peer) = getsockopt(&socket, PeerCredentials) {
                        let (pid, uid) = (Pid::from_raw(peer.pid()), Uid::from_raw(peer.uid()));
                        return Some(Client { socket, pid, uid, may_join: false });
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(_nobody_or_no_files) => return None,
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _gone_already = fs::remove_file(&self.path);
    }
}

/// A connected process.
#[derive(Debug)]
pub struct Client {
    socket: UnixStream,
    pub pid: Pid,
    pub uid: Uid,
    /// Whether it is a process of the job.
    pub may_join: bool,
}

/// The result of reading from a client.
#[derive(Debug)]
pub enum Received {
    Nothing,
    Request(Request),
    /// The process has ended, or sent an invalid message.
    Closed,
}

impl Client {
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Receives the next message, if there is one.
    pub fn receive(&self) -> Received {
        let mut bytes = [0; REQUEST_BYTES];
        match recv(self.socket.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) {
            Ok(0) => Received::Closed,
            Ok(n) => Request::parse(&bytes[..n]).map_or(Received::Closed, Received::Request),
            Err(Errno::EAGAIN | Errno::EINTR) => Received::Nothing,
            Err(_) => Received::Closed,
        }
    }

    /// Sends an answer. A process that does not read misses it: the page has the same content, and a caller has a
    /// time-out of its own.
    pub fn send(&self, answer: &Answer, file: Option<BorrowedFd<'_>>) {
        let bytes = answer.to_bytes();
        let fds = file.map(|file| [file.as_raw_fd()]);
        let control = fds.as_ref().map(|fds| [ControlMessage::ScmRights(fds)]);
        let control = control.as_ref().map_or(&[][..], |control| control);
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let _not_read = sendmsg::<()>(self.socket.as_raw_fd(), &[IoSlice::new(&bytes)], control, flags, None);
    }
}
