//! Commands that `rms-rsh` runs inside the job on this node, and their streams.

use std::collections::VecDeque;
use std::ffi::CString;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::{Pid, fchown, pipe2};

use super::child::{ChildError, ExecStatus, Program};
use super::start::StartError;
use super::streams::Input;
use super::tree;
use super::user::Account;
use super::variables::{self, Variables};
use crate::order::{InputCount, Order, STREAMS_PER_EXEC, WINDOW, cost};
use crate::sys::{End, SingleThreaded};

/// A command that runs, or whose last output is being forwarded.
#[derive(Debug)]
pub struct Exec {
    /// The stream of its input; output is the next stream, errors the one after that.
    pub stream: u64,
    pub pid: Pid,
    pub exec_status: ExecStatus,
    pub end: Option<End>,
    /// It was ordered from another node, where its caller runs and waits.
    pub is_of_other_node: bool,
    pub input: InputPipe,
    /// The most unconfirmed bytes of each output.
    window: u64,
    outputs: [Option<Output>; 2],
}

/// A pipe that a process reads from.
#[derive(Debug, Default)]
pub struct InputPipe {
    pipe: Option<File>,
    /// Input that the pipe has not taken, bounded by the sender's window.
    waiting: VecDeque<u8>,
    /// How much there was, with what is waiting.
    n_received: u64,
    is_complete: bool,
}

#[derive(Debug)]
struct Output {
    pipe: File,
    /// Bytes sent to the agent and not yet confirmed; nothing more is read while the window is full.
    n_unconfirmed: u64,
}

impl Exec {
    /// # Errors
    /// No process can be created, or no file opened.
    pub fn start(
        order: &Order,
        account: &Account,
        variables: &Variables,
        stream: u64,
        command: String,
        single: &SingleThreaded,
    ) -> Result<Exec, StartError> {
        let argv = ["sh".to_owned(), "-c".to_owned(), command].map(super::start::c_string);
        let argv = argv.into_iter().collect::<Result<Vec<CString>, StartError>>()?;
        Exec::with_pipes(stream, WINDOW, account, |stdin, stdout, stderr| {
            let program = Program {
                order,
                cwd: &order.launch.execution.cwd,
                account,
                argv: &argv,
                candidates: &[CString::from(c"/bin/sh")],
                environment: variables::to_c(variables),
                stdin,
                stdout,
                stderr,
                cpus: None,
                inherited: None,
            };
            Ok(program.start(single)?)
        })
    }

    /// Runs `start` with three pipes as standard streams.
    ///
    /// # Errors
    /// Those of `start`; also if no more files can be opened.
    pub fn with_pipes(
        stream: u64,
        window: u64,
        account: &Account,
        start: impl FnOnce(&Input, &OwnedFd, &OwnedFd) -> Result<(Pid, ExecStatus), StartError>,
    ) -> Result<Exec, StartError> {
        let pipe = || pipe2(OFlag::O_CLOEXEC).map_err(|error| StartError::Child(ChildError::Pipe(error)));
        let (stdin, input) = pipe()?;
        let (output, stdout) = pipe()?;
        let (errors, stderr) = pipe()?;
        for end in [&stdin, &stdout, &stderr] {
            // So that it can be opened as `/dev/stdout`. An agent that is not root created it as the owner anyway.
            let _only_root_may = fchown(end, Some(account.uid), Some(account.gid));
        }
        let (pid, exec_status) = start(&Input::Open(Rc::new(stdin)), &stdout, &stderr)?;
        let outputs = [output, errors].map(|pipe| Some(Output { pipe: unblocked(pipe), n_unconfirmed: 0 }));
        let (end, is_of_other_node) = (None, false);
        Ok(Exec { stream, pid, exec_status, end, is_of_other_node, input: InputPipe::new(input), window, outputs })
    }

    /// Returns the pipes that may be read now: position and descriptor.
    pub fn readable(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        let open = self.outputs.iter().enumerate().filter_map(|(idx, output)| Some((idx, output.as_ref()?)));
        open.filter(|(_, output)| output.n_unconfirmed < self.window).map(|(idx, output)| (idx, output.pipe.as_fd()))
    }

    /// Reads a piece and returns it with its stream; `None` if nothing is available now. An empty piece is the end.
    pub fn read(&mut self, idx: usize) -> Option<(u64, Vec<u8>)> {
        let stream = self.stream + 1 + idx as u64;
        let output = self.outputs.get_mut(idx)?.as_mut()?;
        let mut bytes = vec![0; MOST_BYTES.min(self.window as usize)];
        match output.pipe.read(&mut bytes) {
            Ok(n) => {
                bytes.truncate(n);
                output.n_unconfirmed += cost(n as u64);
                if n == 0 {
                    self.outputs[idx] = None;
                }
                Some((stream, bytes))
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => None,
            Err(_) => {
                self.outputs[idx] = None;
                Some((stream, Vec::new()))
            }
        }
    }

    /// Returns what is left in the pipes of a command that has ended, by stream; an empty piece follows if the stream
    /// ends.
    ///
    /// A background process may hold the pipes open indefinitely and write as fast as they are read: what it writes
    /// from now on is dropped.
    pub fn drain(&mut self) -> Vec<(u64, Vec<u8>)> {
        let mut pieces = Vec::new();
        for idx in 0..self.outputs.len() {
            let capacity = self.outputs[idx].as_ref().map(|output| fcntl(output.pipe.as_fd(), FcntlArg::F_GETPIPE_SZ));
            let capacity = capacity.and_then(Result::ok).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
            let mut n_read = 0;
            while n_read <= capacity
                && let Some((stream, bytes)) = self.read(idx)
            {
                let is_end = bytes.is_empty();
                n_read += bytes.len();
                pieces.push((stream, bytes));
                if is_end {
                    break;
                }
            }
        }
        pieces
    }

    /// Records that the agent has forwarded `n_bytes` of a stream.
    pub fn confirmed(&mut self, stream: u64, n_bytes: u64) {
        let idx = stream.wrapping_sub(self.stream + 1) as usize;
        if let Some(Some(output)) = self.outputs.get_mut(idx) {
            output.n_unconfirmed = output.n_unconfirmed.saturating_sub(cost(n_bytes));
        }
    }

    fn has_mpi_daemon(&self) -> bool {
        std::iter::once(self.pid).chain(tree::descendants(self.pid)).any(tree::is_mpi_daemon)
    }

    /// Closes the pipes, because no client reads any more; the process gets an error when it writes, and the job does
    /// not wait for it. Releases the stream number, which another agent may reuse.
    pub fn abandon(&mut self) {
        self.stream = ABANDONED;
        // The daemon of an `mpirun` goes on with its ranks, and ends with the `mpirun`.
        self.is_of_other_node &= self.has_mpi_daemon();
        self.outputs = [None, None];
        self.input = InputPipe::default();
    }
}

impl InputPipe {
    pub fn new(pipe: OwnedFd) -> InputPipe {
        InputPipe { pipe: Some(unblocked(pipe)), waiting: VecDeque::new(), n_received: 0, is_complete: false }
    }

    /// Queues more input; no bytes mean the end of input. Returns how many bytes were consumed.
    pub fn feed(&mut self, bytes: &[u8]) -> u64 {
        if bytes.is_empty() {
            self.is_complete = true;
        } else {
            self.waiting.extend(bytes);
            self.n_received += bytes.len() as u64;
        }
        self.flush()
    }

    pub fn count(&self) -> InputCount {
        InputCount { received: self.n_received, written: self.n_received - self.waiting.len() as u64 }
    }

    /// Returns the pipe if input is queued for it.
    pub fn writable(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().filter(|_| !self.waiting.is_empty()).map(AsFd::as_fd)
    }

    /// Writes as much as the pipe takes, and returns how much that was. Input that no process reads any more counts as
    /// taken.
    pub fn flush(&mut self) -> u64 {
        let mut n_taken = 0;
        while let (Some(pipe), false) = (&mut self.pipe, self.waiting.is_empty()) {
            match pipe.write(self.waiting.as_slices().0) {
                Ok(n) => {
                    self.waiting.drain(..n);
                    n_taken += n as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return n_taken,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_reader_gone) => self.pipe = None,
            }
        }
        if self.pipe.is_none() {
            n_taken += self.waiting.len() as u64;
            self.waiting.clear();
        }
        if self.is_complete {
            self.pipe = None;
        }
        n_taken
    }
}

/// The most bytes of a piece.
const MOST_BYTES: usize = 32 << 10;
/// A stream number that no agent uses: the end of an abandoned command is not reported.
const ABANDONED: u64 = u64::MAX - STREAMS_PER_EXEC;

fn unblocked(pipe: OwnedFd) -> File {
    let _cannot_fail_on_a_pipe = fcntl(pipe.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK));
    File::from(pipe)
}
