//! Moves all threads of a running job from its old CPUs to its new ones.
//!
//! A cpuset, if available, does so at once, and no process can leave it. It does not widen the masks of threads that
//! were restricted earlier, so masks are always set, one by one, until none needs a change: a thread that was created
//! meanwhile has the mask of its creator.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::unistd::{Pid, getpid};
use thiserror::Error;

use super::tree;
use crate::cgroup::Cgroup;
use crate::topology::cpulist::{self, CpuSet};
use crate::topology::{cpus_of, set_cpus_of};

/// Why a job's processes are not confined to their CPUs.
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

/// The CPUs that threads are moved from and to.
#[derive(Clone, Debug)]
pub struct CpuMove {
    pub before: CpuSet,
    pub after: CpuSet,
}

/// Moves of processes that differ from the job's, by process id.
pub type CpuMoves = BTreeMap<i32, CpuMove>;

/// Moves every descendant of this process, and all other processes in its cgroup, from the CPUs `before` to `after`.
///
/// # Errors
/// Some threads may have been moved, and others not.
pub fn confine(cgroup: &Cgroup, all: &CpuMove, own: &CpuMoves) -> Result<(), ConfineError> {
    let after = &all.after;
    let set = cgroup.set_cpus(after);
    set.map_err(|source| ConfineError::Cpuset { cpus: cpulist::print(after), source })?;
    let (start, mut n_quiet, mut dead) = (Instant::now(), 0, BTreeSet::new());
    for n_walks in 1.. {
        let n_moved = walk(cgroup, all, own, &mut dead)?;
        n_quiet = if n_moved == 0 { n_quiet + 1 } else { 0 };
        if n_quiet == QUIET_WALKS {
            return Ok(());
        }
        if n_walks >= LEAST_WALKS && start.elapsed() > MOST_TIME {
            break;
        }
    }
    Err(ConfineError::Unstable)
}

/// A new thread has copied its mask shortly before it is visible; the next walk sees it.
const QUIET_WALKS: u32 = 2;
/// Two or three walks are usually enough, however long each takes. Programs that keep setting masks are given up,
/// because the supervisor does nothing else meanwhile.
const LEAST_WALKS: u32 = 8;
const MOST_TIME: Duration = Duration::from_millis(500);

/// Returns how many threads had to be moved. `dead` are the processes that were found dead by earlier walks.
fn walk(cgroup: &Cgroup, all: &CpuMove, own: &CpuMoves, dead: &mut BTreeSet<Pid>) -> Result<usize, ConfineError> {
    let mut processes = tree::living(getpid(), dead);
    let others = cgroup.processes().into_iter().filter(|process| tree::is_alive(*process, dead));
    processes.extend(others);
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

/// Returns whether the thread was moved.
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
        // Some of the CPUs may be offline: the next walk would get no more.
        true => Ok(got != has),
        false => Err(ConfineError::Escapes { thread }),
    }
}

/// Returns the CPUs that a thread should have. A thread that the program has pinned keeps the remaining part of its
/// mask.
fn wanted(has: &CpuSet, before: &CpuSet, after: &CpuSet) -> CpuSet {
    let is_pinned = has != before;
    let remaining: CpuSet = has.intersection(after).copied().collect();
    if is_pinned && !remaining.is_empty() { remaining } else { after.clone() }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

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

    /// Thousands of them would cost seconds in each walk.
    #[test]
    fn dead_processes_are_left_as_they_are() {
        let forks = "import os, time\nif os.fork() == 0: os._exit(0)\ntime.sleep(60)\n";
        let Ok(mut child) = Command::new("python3").args(["-c", forks]).spawn() else {
            return eprintln!("SKIPPED: python3 is not installed");
        };
        let pid = Pid::from_raw(child.id() as i32);
        let dead_child = loop {
            let below = tree::descendants(pid);
            if let Some(dead) = below.iter().copied().find(|below| tree::is_dead(*below)) {
                break dead;
            }
            std::thread::yield_now();
        };
        let before = cpus_of(pid).expect("it runs");
        let after: CpuSet = before.iter().copied().take(1).collect();
        let all = CpuMove { before: before.clone(), after: after.clone() };
        // Some kernels know the CPUs of a dead process, others say that there is none.
        let of_dead = cpus_of(dead_child);
        let confined = confine(&Cgroup::none(), &all, &CpuMoves::new());
        let has = (cpus_of(pid), cpus_of(dead_child));
        child.kill().expect("our child");
        child.wait().expect("our child");
        confined.expect("nothing runs that could escape");
        assert_eq!(has, (Ok(after), of_dead));
    }
}
