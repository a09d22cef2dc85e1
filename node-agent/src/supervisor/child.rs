//! Forks one process of a job and executes it: session, directory, limits, mask, streams, identity.

use std::convert::Infallible;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Pid, chdir, dup2_stderr, dup2_stdin, dup2_stdout, setsid};
use rms_model::Limits;
use thiserror::Error;

use super::order::Order;
use super::user::Account;
use crate::sys::{self, Image, SingleThreaded};

/// Everything about a process that is decided before the fork.
#[derive(Debug)]
pub struct Program<'a> {
    pub order: &'a Order,
    pub cwd: &'a str,
    pub account: &'a Account,
    pub argv: &'a [CString],
    /// Tried one after the other, as a shell searches `PATH`.
    pub candidates: &'a [CString],
    pub environment: Vec<CString>,
    pub stdin: &'a OwnedFd,
    pub stdout: &'a OwnedFd,
    pub stderr: &'a OwnedFd,
    /// Stays open under its number.
    pub inherited: Option<&'a OwnedFd>,
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
    /// Makes the process and waits until it is executed.
    ///
    /// # Errors
    /// No more processes, or what the process said that could not be executed; that one has ended.
    pub fn start(&self, single: &SingleThreaded) -> Result<Pid, ChildError> {
        let mut image = Image::new(self.argv, &self.environment);
        let mut complaint = None;
        let pid = single.fork_to_execute(|| match self.execute(&mut image) {
            Ok(never) => match never {},
            Err(reason) => {
                complaint = Some(reason);
                127
            }
        });
        let pid = pid.map_err(ChildError::Fork)?;
        complaint.map_or(Ok(pid), |complaint| Err(ChildError::Complaint(complaint)))
    }

    /// In the child, which has the parent's memory: does not return but with the reason, and leaves no allocation
    /// behind if it succeeds.
    fn execute(&self, image: &mut Image<'_>) -> Result<Infallible, String> {
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
        let cwd = self.cwd;
        chdir(cwd).map_err(|error| format!("cannot enter the working directory {cwd}: {}", error.desc()))?;
        // Their actions are the supervisor's, which are the default ones.
        sys::unblock_signals();
        let error = self.try_candidates(image);
        let name = self.argv.first().map(|name| name.to_string_lossy()).unwrap_or_default();
        Err(match error {
            Errno::ENOENT if !name.contains('/') => format!("cannot execute '{name}': it is not found in PATH"),
            error => format!("cannot execute '{name}': {}", error.desc()),
        })
    }

    /// As execvp(3): the first candidate that is there; a file without an interpreter is given to `/bin/sh`.
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
        let set = getrlimit(resource).and_then(|(soft, hard)| match value.min(hard) {
            wanted if wanted == soft => Ok(()),
            wanted => setrlimit(resource, wanted, hard),
        });
        set.map_err(|error| format!("cannot set the limit {resource:?}: {}", error.desc()))?;
    }
    Ok(())
}
