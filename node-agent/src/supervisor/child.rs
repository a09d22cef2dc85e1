//! Forks one process of a job and executes it: session, directory, limits, mask, streams, identity.

use std::convert::Infallible;
use std::ffi::{CStr, CString, OsStr};
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{AccessFlags, Pid, access, chdir, dup2_stderr, dup2_stdin, dup2_stdout, pipe2, setsid};
use rms_model::Limits;
use thiserror::Error;

use super::streams::{Input, open_input};
use super::user::Account;
use crate::order::Order;
use crate::sys::{self, Image, Memory, SingleThreaded};
use crate::topology;

/// Everything about a process that is decided before the fork.
#[derive(Debug)]
pub struct Program<'a> {
    pub order: &'a Order,
    pub cwd: &'a str,
    pub account: &'a Account,
    pub argv: &'a [CString],
    /// Candidate paths, tried in order, as a shell searches `PATH`.
    pub candidates: &'a [CString],
    pub environment: Vec<CString>,
    pub stdin: &'a Input,
    pub stdout: &'a OwnedFd,
    pub stderr: &'a OwnedFd,
    /// The CPUs of the process, out of the job's; `None`: all of them.
    pub cpus: Option<&'a topology::cpulist::CpuSet>,
    /// A descriptor that the program inherits under the same number.
    pub inherited: Option<&'a OwnedFd>,
}

/// Why a process of a job did not start.
#[derive(Debug, Error)]
pub enum ChildError {
    #[error("cannot fork: {0}")]
    Fork(nix::Error),
    #[error("cannot make a pipe: {0}")]
    Pipe(nix::Error),
}

/// Whether a process has been executed: no error if it has, else the reason.
#[derive(Debug)]
pub enum ExecStatus {
    /// Not known yet. The user may stop the process before it reports, so the supervisor polls this pipe and never
    /// blocks on it.
    Pending(File),
    /// Known at once: the child shared the memory of its parent, which was suspended until the exec or its failure.
    Known(Option<String>),
}

impl ExecStatus {
    /// Returns the pipe that becomes readable when [`take_error`](ExecStatus::take_error) has news; `None` once the
    /// status is known.
    pub fn pending_pipe(&self) -> Option<BorrowedFd<'_>> {
        match self {
            ExecStatus::Pending(pipe) => Some(pipe.as_fd()),
            ExecStatus::Known(_) => None,
        }
    }

    pub fn is_pending(&self) -> bool {
        self.pending_pipe().is_some()
    }

    /// Takes the error of the exec, if it is known by now.
    pub fn take_error(&mut self) -> Option<String> {
        let pipe = match self {
            ExecStatus::Known(error) => return error.take(),
            ExecStatus::Pending(pipe) => pipe,
        };
        let mut text = [0; MOST_BYTES];
        let n = match pipe.read(&mut text) {
            Ok(n) => n,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return None,
            Err(_) => 0,
        };
        *self = ExecStatus::Known(None);
        (n > 0).then(|| String::from_utf8_lossy(&text[..n]).into_owned())
    }
}

/// The most bytes that a pipe takes atomically.
const MOST_BYTES: usize = 4096;

impl Program<'_> {
    /// Forks the process. If it cannot be executed, it reports the reason and exits.
    ///
    /// # Errors
    /// No process can be created, or no file opened.
    pub fn start(&self, single: &SingleThreaded) -> Result<(Pid, ExecStatus), ChildError> {
        let mut image = Image::new(self.argv, &self.environment);
        // A process that may wait for the writer of its input must not suspend the supervisor.
        if !self.account.is_other_user() && !self.stdin.is_fifo() {
            let mut error = None;
            let pid = single.fork_to_execute(Memory::Borrowed, || match self.execute(&mut image, Memory::Borrowed) {
                Ok(never) => match never {},
                Err(reason) => {
                    error = Some(reason);
                    127
                }
            });
            return Ok((pid.map_err(ChildError::Fork)?, ExecStatus::Known(error)));
        }
        let (reader, status_pipe) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).map_err(ChildError::Pipe)?;
        let mut status_pipe = File::from(status_pipe);
        let pid = single.fork_to_execute(Memory::Copied, || match self.execute(&mut image, Memory::Copied) {
            Ok(never) => match never {},
            Err(reason) => {
                let text = reason.as_bytes();
                let _nobody_listens_any_more = status_pipe.write(&text[..text.len().min(MOST_BYTES)]);
                127
            }
        });
        Ok((pid.map_err(ChildError::Fork)?, ExecStatus::Pending(File::from(reader))))
    }

    /// Runs in the child, which may share the parent's memory: returns only on failure, with the reason, and leaves no
    /// allocation behind on success.
    fn execute(&self, image: &mut Image<'_>, memory: Memory) -> Result<Infallible, String> {
        let order = self.order;
        setsid().map_err(|error| format!("cannot start a session: {}", error.desc()))?;
        set_limits(&order.launch.execution.limits)?;
        if let Some(mask) = self.cpus.or(order.mask.as_ref()) {
            let mut set = CpuSet::new();
            // CPUs that the kernel does not know are counted, not applied.
            let n_set = mask.iter().filter(|cpu| set.set(**cpu as usize).is_ok()).count();
            if n_set > 0 {
                let _inside_a_smaller_cpuset = sched_setaffinity(Pid::from_raw(0), &set);
            }
        }
        // The kernel kills jobs before anything else on the node. Their users may only raise the score further.
        let _not_on_this_kernel = fs::write("/proc/self/oom_score_adj", OOM_SCORE);
        umask(Mode::from_bits_truncate(order.launch.execution.umask));
        let no_streams = |error: Errno| format!("cannot set the standard streams: {}", error.desc());
        dup2_stdout(self.stdout).and_then(|()| dup2_stderr(self.stderr)).map_err(no_streams)?;
        if let Some(fd) = self.inherited {
            fcntl(fd.as_fd(), FcntlArg::F_SETFD(FdFlag::empty()))
                .map_err(|error| format!("cannot pass a file on: {}", error.desc()))?;
        }
        let who = &self.account.name;
        self.account.drop_privileges().map_err(|error| format!("cannot become user {who}: {}", error.desc()))?;
        // Opened as the owner, for whom `/proc/self` is the job.
        match self.stdin {
            Input::Open(file) => dup2_stdin(file).map_err(no_streams)?,
            Input::File(path) => {
                let waits = memory == Memory::Copied;
                if waits {
                    // The job may be ended while it waits for the writer of a FIFO.
                    sys::unblock_signals();
                }
                let file = open_input(path, waits).map_err(|error| error.to_string())?;
                dup2_stdin(&file).map_err(no_streams)?;
            }
        }
        let cwd = self.cwd;
        chdir(cwd).map_err(|error| format!("cannot enter the working directory {cwd}: {}", error.desc()))?;
        // The signals' dispositions are the supervisor's, which are the defaults.
        sys::unblock_signals();
        let error = self.try_candidates(image);
        let name = self.argv.first().map(|name| name.to_string_lossy()).unwrap_or_default();
        // The kernel returns the same errors for a script and for its interpreter.
        let scripts =
            self.candidates.iter().filter(|candidate| access(candidate.as_c_str(), AccessFlags::X_OK).is_ok());
        let interpreter = scripts.filter_map(|script| interpreter_of(script)).find(|interpreter| {
            let found = access(interpreter.as_str(), AccessFlags::X_OK);
            found == Err(error)
        });
        Err(match (error, interpreter) {
            (Errno::ENOENT, Some(interpreter)) => {
                format!("cannot execute '{name}': its first line names {interpreter}, which is not there")
            }
            (Errno::EACCES, Some(interpreter)) => {
                format!("cannot execute '{name}': its first line names {interpreter}, which may not be executed")
            }
            (Errno::ENOENT, None) if !name.contains('/') => format!("cannot execute '{name}': it is not found in PATH"),
            (error, _) => format!("cannot execute '{name}': {}", error.desc()),
        })
    }

    /// Executes the first candidate that exists, like execvp(3); a file without an interpreter is given to `/bin/sh`.
    fn try_candidates(&self, image: &mut Image<'_>) -> Errno {
        let mut worst = Errno::ENOENT;
        for candidate in self.candidates {
            match image.execute(candidate) {
                Ok(never) => match never {},
                Err(Errno::ENOEXEC) => {
                    return match image.execute_by_shell(candidate) {
                        Ok(never) => match never {},
                        Err(error) => error,
                    };
                }
                Err(Errno::ENOENT | Errno::ENOTDIR) => {}
                Err(error) => worst = error,
            }
        }
        worst
    }
}

/// Returns the interpreter that the first line of this script names.
fn interpreter_of(script: &CStr) -> Option<String> {
    let mut head = [0; MOST_BYTES];
    let n = File::open(OsStr::from_bytes(script.to_bytes())).and_then(|mut file| file.read(&mut head)).ok()?;
    let line = head[..n].strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    Some(String::from_utf8_lossy(line).split_whitespace().next()?.to_owned())
}

/// The OOM score adjustment of processes of jobs, from -1000 (never killed) to 1000 (killed first).
const OOM_SCORE: &str = "500";

/// Sets the soft limits at the time of submission, as far as this node allows.
fn set_limits(limits: &Limits) -> Result<(), String> {
    let wanted = [
        (Resource::RLIMIT_NOFILE, limits.open_files),
        (Resource::RLIMIT_CORE, limits.core_bytes),
        (Resource::RLIMIT_STACK, limits.stack_bytes),
        (Resource::RLIMIT_MEMLOCK, limits.locked_bytes),
        (Resource::RLIMIT_NPROC, limits.processes),
        (Resource::RLIMIT_AS, limits.address_space_bytes),
    ];
    for (resource, value) in wanted {
        let Some(value) = value else { continue };
        let set = getrlimit(resource).and_then(|(soft, hard)| match value.min(hard) {
            wanted if wanted == soft => Ok(()),
            wanted => setrlimit(resource, wanted, hard),
        });
        set.map_err(|error| format!("cannot set the limit {resource:?}: {}", error.desc()))?;
    }
    Ok(())
}
