//! Copies the output of tasks from their pipes into the spool, where followers read it.
//!
//! Pipes are used because a job may reopen `/dev/stderr` to write to it: with a file, that would truncate it and lose
//! unread data.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::{fchown, pipe2};

use super::user::Account;

/// One stream of a task.
#[derive(Debug)]
pub struct Piped {
    /// `None` once no process can write to it any more.
    pipe: Option<File>,
    file: File,
}

impl Piped {
    /// Creates the file, and a pipe whose other end is for the task.
    ///
    /// # Errors
    /// The file cannot be created, or no more files can be opened.
    pub fn open(path: &Path, account: &Account) -> io::Result<(Piped, OwnedFd)> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        let (pipe, end) = pipe2(OFlag::O_CLOEXEC)?;
        // So that it can be opened as `/dev/stdout`. An agent that is not root created it as the owner anyway.
        let _only_root_may = fchown(&end, Some(account.uid), Some(account.gid));
        fcntl(pipe.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok((Piped { pipe: Some(File::from(pipe)), file }, end))
    }
}

/// All streams of a job here that go to the spool.
#[derive(Debug, Default)]
pub struct Pump {
    streams: Vec<Piped>,
    /// Whether the disk refused a write.
    pub has_lost: bool,
}

impl Pump {
    pub fn add(&mut self, streams: Vec<Piped>) {
        self.streams.extend(streams);
    }

    pub fn sources(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        self.streams.iter().enumerate().filter_map(|(idx, stream)| Some((idx, stream.pipe.as_ref()?.as_fd())))
    }

    /// Returns the file with the errors of the first task.
    pub fn errors(&self) -> Option<&File> {
        self.streams.get(1).map(|stream| &stream.file)
    }

    /// Copies a piece of a stream; returns its length.
    pub fn copy(&mut self, idx: usize) -> usize {
        let Some(stream) = self.streams.get_mut(idx) else { return 0 };
        let Some(pipe) = &mut stream.pipe else { return 0 };
        let mut bytes = [0; MOST_BYTES];
        match pipe.read(&mut bytes) {
            Ok(0) => stream.pipe = None,
            Ok(n_bytes) => {
                // The job need not wait for a full disk; its followers are told.
                self.has_lost |= stream.file.write_all(&bytes[..n_bytes]).is_err();
                return n_bytes;
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => stream.pipe = None,
        }
        0
    }

    /// Copies the rest when no process is left. A process that cannot be killed may still write: no more than its
    /// capacity is read from a pipe.
    pub fn drain(&mut self) {
        for idx in 0..self.streams.len() {
            let pipe = self.streams[idx].pipe.as_ref();
            let capacity = pipe.and_then(|pipe| fcntl(pipe.as_fd(), FcntlArg::F_GETPIPE_SZ).ok());
            let capacity = capacity.and_then(|n_bytes| usize::try_from(n_bytes).ok()).unwrap_or(0);
            let mut n_read = 0;
            while n_read <= capacity {
                match self.copy(idx) {
                    0 => break,
                    n_bytes => n_read += n_bytes,
                }
            }
        }
    }
}

const MOST_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_written_is_kept_though_the_stream_is_opened_anew() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("err.0");
        let account = Account::resolve("root").expect("there is one");
        let (piped, end) = Piped::open(&path, &account).expect("a pipe");
        let mut pump = Pump::default();
        pump.add(vec![piped]);
        let mut first = File::from(end);
        for word in ["one\n", "two\n"] {
            // What a shell does for `> /dev/stderr`.
            let again = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&first));
            let mut again = OpenOptions::new().write(true).truncate(true).open(again).expect("it is ours");
            again.write_all(word.as_bytes()).expect("there is room");
        }
        assert_eq!(pump.copy(0), 8);
        first.write_all(&[b'x'; 60_000]).expect("there is room");
        pump.drain();
        assert_eq!(std::fs::metadata(&path).expect("it is there").len(), 60_008);
        assert_eq!((pump.copy(0), pump.sources().count()), (0, 1), "somebody may write");
        drop(first);
        assert_eq!((pump.copy(0), pump.sources().count(), pump.has_lost), (0, 0, false));
    }
}
