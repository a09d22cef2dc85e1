//! The connection from a process of a job to the agent of its node.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use node_agent::frame::{self, Decoder, Frame, FrameError};
use node_agent::rsh::{Call, CommandEnd, SOCKET_VARIABLE};
use node_agent::spool::short_path;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::failure::{Exit, Failure};

/// The two halves of the connection: what this process sends to the agent, and what it receives from it.
#[derive(Debug)]
pub struct ToAgent(OwnedWriteHalf);

#[derive(Debug)]
pub struct FromAgent {
    read: OwnedReadHalf,
    decoder: Decoder,
    was_reset: bool,
}

/// Returns the agent's socket, if this is a process of a job.
pub fn socket() -> Option<PathBuf> {
    let path = std::env::var_os(SOCKET_VARIABLE).filter(|path| !path.is_empty())?;
    std::env::var_os("RMS_JOB_ID").filter(|id| !id.is_empty())?;
    Some(PathBuf::from(path))
}

/// Calls the agent, which may be restarting; cancel-safe.
///
/// # Errors
/// The agent does not answer.
pub async fn call(socket: &Path, call: &Call) -> Result<(FromAgent, ToAgent), Failure> {
    let begun = Instant::now();
    let stream = loop {
        let error = match connect(socket).await {
            Ok(stream) => break stream,
            Err(error) => error,
        };
        use io::ErrorKind::{ConnectionRefused, NotFound, WouldBlock};
        // Callers of a stopped agent fill its backlog.
        let may_come = matches!(error.kind(), ConnectionRefused | NotFound | WouldBlock);
        if !may_come || begun.elapsed() > PATIENCE {
            let doing = format!("the agent of this node cannot be reached at {}", socket.display());
            return Err(Failure::io(doing, error).exit(Exit::SYSTEM));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    };
    let (read, mut write) = stream.into_split();
    // An agent that refuses the call says why, and may have closed the connection before the call was sent.
    let _heard_below = write.write_all(&frame::message(call)).await;
    Ok((FromAgent { read, decoder: Decoder::default(), was_reset: false }, ToAgent(write)))
}

async fn connect(socket: &Path) -> io::Result<UnixStream> {
    let (_dir, short) = short_path(socket)?;
    UnixStream::connect(short).await
}

impl ToAgent {
    /// Sends some of these bytes, and returns how many; cancel-safe.
    ///
    /// # Errors
    /// The agent has closed the connection, which reading reports, too.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).await
    }
}

impl FromAgent {
    /// Receives the next frame, `None` once the agent has closed the connection; cancel-safe.
    ///
    /// # Errors
    /// The agent sends an invalid frame.
    pub async fn next(&mut self) -> Result<Option<Frame<CommandEnd>>, Failure> {
        let foreign = |error: FrameError| {
            Failure::new("foreign_agent", format!("cannot read an answer of the agent of this node: {error}"))
                .hint("'rms' and 'node-agent' are of different versions: install the same ones on this node")
                .exit(Exit::SYSTEM)
        };
        loop {
            if let Some(frame) = self.decoder.take::<CommandEnd>().map_err(foreign)? {
                return Ok(Some(frame));
            }
            let mut piece = vec![0; 64 << 10];
            match self.read.read(&mut piece).await {
                Ok(0) => return Ok(None),
                Err(error) => {
                    self.was_reset = error.kind() == io::ErrorKind::ConnectionReset;
                    return Ok(None);
                }
                Ok(n) => self.decoder.push(&piece[..n]),
            }
        }
    }

    /// Returns whether the agent closed the connection before it had read everything: the kernel resets such a
    /// connection, and also one that the agent had not accepted yet.
    pub fn left_words_unread(&self) -> bool {
        self.was_reset
    }
}

/// Returns the directory of the job's own credentials, and the server's address. The agent has the key created at the
/// first request.
///
/// # Errors
/// The agent does not answer, or this process does not belong to a job.
pub async fn credentials(socket: &Path) -> Result<(PathBuf, String), Failure> {
    let (mut from, _to) = call(socket, &Call::Credentials { credentials: () }).await?;
    match from.next().await? {
        Some(Frame::Message(CommandEnd::Credentials { dir, server })) => Ok((dir, server)),
        Some(Frame::Message(CommandEnd::Failed { reason })) => Err(Failure::new("not_in_job", reason)),
        Some(Frame::Message(_) | Frame::Bytes { .. }) | None => {
            Err(Failure::new("not_in_job", "the agent of this node gives this job no credentials"))
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// A call that a stopped agent has not read may be repeated; after that the agent may have begun to execute it.
    #[tokio::test]
    async fn a_call_that_was_not_read_is_told_from_one_that_was() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("agent");
        for (is_accepted, is_read) in [(false, false), (true, false), (true, true)] {
            let _left_over = std::fs::remove_file(&path);
            let listener = UnixListener::bind(&path).expect("a socket");
            let (mut from, _to) = call(&path, &Call::Credentials { credentials: () }).await.expect("it listens");
            let accepted = is_accepted.then(|| listener.accept().expect("a caller").0);
            if let Some(mut stream) = accepted.as_ref().filter(|_| is_read) {
                assert!(io::Read::read(&mut stream, &mut [0; 1024]).expect("a call") > 0);
            }
            drop((listener, accepted));
            assert!(from.next().await.expect("no frame").is_none());
            assert_eq!(from.left_words_unread(), !is_read, "accepted: {is_accepted}");
        }
    }
}
