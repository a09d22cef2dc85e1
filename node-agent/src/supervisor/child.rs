//! Forks one process of a job and executes it: session, directory, limits, mask, streams, identity.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{ForkResult, Pid, chdir, dup2_stderr, dup2_stdin, dup2_stdout, execve, pipe2, setsid};
use rms_model::Limits;
use thiserror::Error;

use super::order::Order;
use super::user::Account;
use crate::sys::{self, SingleThreaded};

/// Everything about a process that is decided before the fork.
#[derive(Debug)]
pub struct Program<'a> {
    pub order: &'a Order,
    pub account: &'a Account,
    pub argv: Vec<CString>,
    /// Tried one after the other, as a shell searches `PATH`.
    pub candidates: Vec<CString>,
    pub environment: Vec<CString>,
    pub stdin: &'a OwnedFd,
    pub stdout: &'a OwnedFd,
    pub stderr: &'a OwnedFd,
    /// Stays open under its number.
    pub inherited: Option<&'a OwnedFd>,
}

/// A process that was forked; whether it could be executed is known after [`Forked::executed`].
#[derive(Debug)]
pub struct Forked {
    pub pid: Pid,
    complaint: File,
}

/// Why a process of a job did not start.
#[derive(Debug, Error)]
pub enum ChildError {
    #[error("cannot fork")]
    Fork(#[source] nix::Error),
    #[error("{0}")]
    Complaint(String),
}

impl Program<'_> {
    /// # Errors
    /// No more processes or files.
    pub fn fork(&self, single: &SingleThreaded) -> Result<Forked, ChildError> {
        let (complaint, voice) = pipe2(OFlag::O_CLOEXEC).map_err(ChildError::Fork)?;
        match single.fork().map_err(ChildError::Fork)? {
            ForkResult::Parent { child } => Ok(Forked { pid: child, complaint: File::from(complaint) }),
            ForkResult::Child => {
                let complaint = match self.execute() {
                    Ok(never) => match never {},
                    Err(complaint) => complaint,
                };
                let _nobody_listens = File::from(voice).write_all(complaint.as_bytes());
                sys::exit_now(127)
            }
        }
    }

    /// In the child: does not return but with the reason.
    fn execute(&self) -> Result<std::convert::Infallible, String> {
        let order = self.order;
        setsid().map_err(|error| format!("cannot start a session: {}", error.desc()))?;
        set_limits(&order.limits)?;
        if let Some(mask) = &order.mask {
            let mut set = CpuSet::new();
            // CPUs that the kernel does not know are accounted, not applied.
            let n_set = mask.iter().filter(|cpu| set.set(**cpu as usize).is_ok()).count();
            if n_set > 0 {
                let _inside_a_smaller_cpuset = sched_setaffinity(Pid::from_raw(0), &set);
            }
        }
        umask(Mode::from_bits_truncate(order.umask));
        let streams =
            dup2_stdin(self.stdin).and_then(|()| dup2_stdout(self.stdout)).and_then(|()| dup2_stderr(self.stderr));
        streams.map_err(|error| format!("cannot set the standard streams: {}", error.desc()))?;
        if let Some(fd) = self.inherited {
            fcntl(fd.as_fd(), FcntlArg::F_SETFD(FdFlag::empty()))
                .map_err(|error| format!("cannot pass a file on: {}", error.desc()))?;
        }
        let who = &self.account.name;
        self.account.become_for_good().map_err(|error| format!("cannot become user {who}: {}", error.desc()))?;
        chdir(order.cwd.as_str())
            .map_err(|error| format!("cannot enter the working directory {}: {}", order.cwd, error.desc()))?;
        sys::reset_signals();
        let error = self.try_candidates();
        let name = self.argv.first().map(|name| name.to_string_lossy()).unwrap_or_default();
        Err(match error {
            Errno::ENOENT if !name.contains('/') => format!("cannot execute '{name}': it is not found in PATH"),
            error => format!("cannot execute '{name}': {}", error.desc()),
        })
    }

    /// As execvp(3): the first candidate that is there; a file without an interpreter is given to `/bin/sh`.
    fn try_candidates(&self) -> Errno {
        let mut worst = Errno::ENOENT;
        for candidate in &self.candidates {
            match execve(candidate, &self.argv, &self.environment) {
                Ok(never) => match never {},
                Err(Errno::ENOEXEC) => return self.try_shell(candidate),
                Err(Errno::ENOENT | Errno::ENOTDIR) => {}
                Err(error) => worst = error,
            }
        }
        worst
    }

    fn try_shell(&self, candidate: &CStr) -> Errno {
        let mut argv: Vec<&CStr> = vec![c"/bin/sh", candidate];
        argv.extend(self.argv.iter().skip(1).map(CString::as_c_str));
        match execve(c"/bin/sh", &argv, &self.environment) {
            Ok(never) => match never {},
            Err(error) => error,
        }
    }
}

impl Forked {
    /// Waits until the process is executed or has said why not.
    ///
    /// # Errors
    /// What it said.
    pub fn executed(mut self) -> Result<(), ChildError> {
        let mut complaint = String::new();
        let _cut_short = self.complaint.read_to_string(&mut complaint);
        if complaint.is_empty() { Ok(()) } else { Err(ChildError::Complaint(complaint)) }
    }
}

/// Soft limits as they were at submit, as far as this node allows.
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
        let set = getrlimit(resource).and_then(|(_, hard)| setrlimit(resource, value.min(hard), hard));
        set.map_err(|error| format!("cannot set the limit {resource:?}: {}", error.desc()))?;
    }
    Ok(())
}
