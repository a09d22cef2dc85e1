//! Moves all threads of a running job from the CPUs that it had to those that it has now.
//!
//! A cpuset, where there is one, does it at once and lets nobody out. It leaves masks narrower that threads once were
//! given, so they are set in any case, one by one, until none is found that would have to change: a thread that was
//! made meanwhile has the mask of the one that made it.

use std::collections::BTreeMap;
use std::io;

use nix::errno::Errno;
use nix::unistd::{Pid, getpid};
use thiserror::Error;

use super::tree;
use crate::cgroup::Cgroup;
use crate::topology::cpulist::{self, CpuSet};
use crate::topology::{cpus_of, set_cpus_of};

/// Why a job's processes do not keep to their CPUs.
#[derive(Debug, Error)]
pub enum ConfineError {
    #[error("cannot set the CPUs of its cgroup to {cpus}")]
    Cpuset { cpus: String, source: io::Error },
    #[error("cannot set the CPUs of thread {thread}")]
    Thread { thread: Pid, source: Errno },
    #[error("thread {thread} runs on other CPUs than it was given")]
    Escapes { thread: Pid },
    #[error("its threads change faster than their CPUs can be set")]
    Unstable,
}

/// From which CPUs threads are moved to which.
#[derive(Clone, Debug)]
pub struct CpuMove {
    pub before: CpuSet,
    pub after: CpuSet,
}

/// Processes that go another way than the others of the job.
pub type CpuMoves = BTreeMap<i32, CpuMove>;

/// Puts every descendant of this process, and whoever else is in its cgroup, from the CPUs `before` on those `after`.
///
/// # Errors
/// Some threads may have been moved, and others not.
pub fn confine(cgroup: &Cgroup, all: &CpuMove, own: &CpuMoves) -> Result<(), ConfineError> {
    let after = &all.after;
    let set = cgroup.set_cpus(after);
    set.map_err(|source| ConfineError::Cpuset { cpus: cpulist::print(after), source })?;
    let mut n_quiet = 0;
    for _ in 0..MOST_WALKS {
        let n_moved = walk(cgroup, all, own)?;
        n_quiet = if n_moved == 0 { n_quiet + 1 } else { 0 };
        if n_quiet == QUIET_WALKS {
            return Ok(());
        }
    }
    Err(ConfineError::Unstable)
}

/// A thread is copied with its mask a moment before it is seen; it is, when we look once more.
const QUIET_WALKS: u32 = 2;
/// Mostly two or three do. Who forks or sets masks without end is not waited for: nothing else happens meanwhile.
const MOST_WALKS: u32 = 256;

/// How many threads had to be moved.
fn walk(cgroup: &Cgroup, all: &CpuMove, own: &CpuMoves) -> Result<usize, ConfineError> {
    let mut processes = tree::descendants(getpid());
    processes.extend(cgroup.processes());
    processes.sort_unstable();
    processes.dedup();
    let mut n_moved = 0;
    for process in processes.into_iter().filter(|process| *process != getpid()) {
        let CpuMove { before, after } = own.get(&process.as_raw()).unwrap_or(all);
        for thread in tree::threads(process) {
            match move_thread(thread, before, after) {
                Ok(is_moved) => n_moved += usize::from(is_moved),
                Err(ConfineError::Thread { source: Errno::ESRCH, .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(n_moved)
}

/// Was it moved?
fn move_thread(thread: Pid, before: &CpuSet, after: &CpuSet) -> Result<bool, ConfineError> {
    let fail = |source| ConfineError::Thread { thread, source };
    let has = cpus_of(thread).map_err(fail)?;
    let wanted = wanted(&has, before, after);
    if wanted == has {
        return Ok(false);
    }
    set_cpus_of(thread, &wanted).map_err(fail)?;
    let got = cpus_of(thread).map_err(fail)?;
    match got.is_subset(after) {
        // Not all of them, where some are offline: it will not be otherwise next time.
        true => Ok(got != has),
        false => Err(ConfineError::Escapes { thread }),
    }
}

/// Which CPUs a thread is to have. One that the program has pinned keeps what remains of that.
fn wanted(has: &CpuSet, before: &CpuSet, after: &CpuSet) -> CpuSet {
    let is_pinned = has != before;
    let remaining: CpuSet = has.intersection(after).copied().collect();
    if is_pinned && !remaining.is_empty() { remaining } else { after.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_keeps_what_remains_of_its_pin() {
        let set = |cpus: &[u32]| cpus.iter().copied().collect::<CpuSet>();
        let (all, half) = (set(&[0, 1, 2, 3]), set(&[0, 1]));
        let check = |has: &[u32], before: &CpuSet, after: &CpuSet, expected: &[u32]| {
            assert_eq!(wanted(&set(has), before, after), set(expected), "{has:?}");
        };
        check(&[0, 1, 2, 3], &all, &half, &[0, 1]);
        check(&[1], &all, &half, &[1]);
        check(&[1, 2], &all, &half, &[1]);
        check(&[3], &all, &half, &[0, 1]);
        check(&[0, 1], &half, &all, &[0, 1, 2, 3]);
        check(&[1], &half, &all, &[1]);
        check(&[0, 1, 2, 3], &half, &half, &[0, 1]);
    }
}
