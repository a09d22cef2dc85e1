//! A client of the socket on which the supervisor of a job answers requests about the CPUs of its processes.

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use nix::sys::socket::sockopt::{ReceiveTimeout, SendTimeout};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, send, setsockopt, socket,
};
use nix::sys::time::{TimeVal, TimeValLike};
use rms_malleable::{ANSWER_BYTES, Answer, Request};

use crate::spool;

/// A connection to a supervisor. It blocks its thread, for up to a short time-out.
#[derive(Debug)]
pub struct SupervisorClient(OwnedFd);

/// The time-out: a supervisor that is moving threads answers a little later.
const TIMEOUT_MS: i64 = 1500;

impl SupervisorClient {
    /// # Errors
    /// There is no such socket, because no process of the job follows its CPUs. Otherwise see socket(2) and connect(2).
    pub fn to(path: &Path) -> io::Result<SupervisorClient> {
        let fd = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
        let patience = TimeVal::milliseconds(TIMEOUT_MS);
        setsockopt(&fd, ReceiveTimeout, &patience)?;
        setsockopt(&fd, SendTimeout, &patience)?;
        let (_dir, short) = spool::short_path(path)?;
        connect(fd.as_raw_fd(), &UnixAddr::new(&short)?)?;
        Ok(SupervisorClient(fd))
    }

    /// # Errors
    /// The supervisor has exited, or has not answered in time ([`ErrorKind::WouldBlock`]).
    pub fn ask(&self, request: &Request) -> io::Result<Answer> {
        send(self.0.as_raw_fd(), &request.to_bytes(), MsgFlags::MSG_NOSIGNAL)?;
        let mut bytes = [0; ANSWER_BYTES];
        let n_bytes = recv(self.0.as_raw_fd(), &mut bytes, MsgFlags::empty())?;
        Answer::parse(&bytes[..n_bytes]).ok_or_else(|| ErrorKind::UnexpectedEof.into())
    }
}
