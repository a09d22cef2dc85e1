//! Moves all threads of a running job from its old CPUs to its new ones.
//!
//! A cpuset, if available, does so at once, and no process can leave it. It does not widen the masks of threads that
//! were restricted earlier, or widens them to all CPUs of the job, depending on the kernel. So masks are always set, one
//! by one, until none needs a change: a thread that was created meanwhile has the mask of its creator. On a busy node it
//! may take longer to be created than all others to be moved; [`confine_late`] finds it.

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

/// The moves of all processes of a job.
#[derive(Debug)]
pub struct JobMove {
    pub all: CpuMove,
    /// The moves of processes that have joined.
    pub joined: CpuMoves,
    /// The moves of tasks that were bound to CPUs of their own, and of what they have started.
    pub tasks: CpuMoves,
}

/// The threads that their program, or a user, has pinned to a part of the CPUs that they could have. A mask alone does
/// not tell: once a job has lent all others, all of its threads have the same one.
#[derive(Debug, Default)]
pub struct Pins(BTreeMap<Pid, Pin>);

/// The CPUs to which a thread was pinned, and those of them that it was given, or others if its job has none of them.
#[derive(Clone, Debug)]
struct Pin {
    cpus: CpuSet,
    given: CpuSet,
}

impl Pins {
    /// Finds out which threads are pinned, before they are moved. Their masks are `masks`.
    fn update(&mut self, processes: &[Pid], of_tasks: &BTreeMap<Pid, &CpuMove>, all: &CpuMove, masks: &Masks) {
        let known = std::mem::take(&mut self.0);
        for process in processes {
            let own = of_tasks.get(process).map_or(all, |own| *own);
            let creators = || [Some(*process), tree::parent_of(*process)].into_iter().flatten();
            for thread in tree::threads(*process) {
                let Some(has) = masks.get(&thread) else { continue };
                let is_kept = |pin: &&Pin| pin.given == *has;
                // What a pinned thread has started since has its mask.
                let inherited = || creators().find_map(|creator| known.get(&creator).filter(is_kept));
                let before =
                    if known.is_empty() { None } else { known.get(&thread).filter(is_kept).or_else(inherited) };
                let is_pinned = *has != own.before && *has != all.before && has.is_subset(&all.before);
                let pin = || is_pinned.then(|| Pin { cpus: has.clone(), given: has.clone() });
                self.0.extend(before.cloned().or_else(pin).map(|pin| (thread, pin)));
            }
        }
    }
}

/// Moves every descendant of this process, and all other processes in its cgroup.
///
/// # Errors
/// Some threads may have been moved, and others not.
pub fn confine(cgroup: &Cgroup, of_job: &JobMove, pins: &mut Pins) -> Result<(), ConfineError> {
    let (start, mut n_quiet, mut dead) = (Instant::now(), 0, BTreeSet::new());
    // The masks before the cpuset changes: they tell whether a thread has all CPUs that it could have.
    let processes = processes(cgroup, &mut dead);
    let threads = processes.iter().flat_map(|process| tree::threads(*process));
    let mut masks: Masks = threads.filter_map(|thread| Some((thread, cpus_of(thread).ok()?))).collect();
    let JobMove { all, joined, tasks } = of_job;
    let mut own = of_tasks(&processes, tasks);
    own.extend(joined.iter().map(|(process, own)| (Pid::from_raw(*process), own)));
    pins.update(&processes, &own, all, &masks);
    let after = &of_job.all.after;
    let set = cgroup.set_cpus(after);
    set.map_err(|source| ConfineError::Cpuset { cpus: cpulist::print(after), source })?;
    for n_walks in 1.. {
        let n_moved = walk(cgroup, of_job, Threads::All, (&mut masks, &mut *pins), &mut dead)?;
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

/// Moves the threads that [`confine`] could not see yet, because they were being created: those that still have CPUs which
/// the job has no more. Others are left alone, because their program may have set their masks meanwhile.
///
/// # Errors
/// As those of [`confine`].
pub fn confine_late(cgroup: &Cgroup, of_job: &JobMove) -> Result<(), ConfineError> {
    walk(cgroup, of_job, Threads::Outside, (&mut Masks::new(), &mut Pins::default()), &mut BTreeSet::new()).map(drop)
}

/// Which threads are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Threads {
    All,
    /// Those that have CPUs which the job does not have.
    Outside,
}

/// A new thread has copied its mask shortly before it is visible; the next walk sees it.
const QUIET_WALKS: u32 = 2;
/// Two or three walks are usually enough, however long each takes. Programs that keep setting masks are given up,
/// because the supervisor does nothing else meanwhile.
const LEAST_WALKS: u32 = 8;
const MOST_TIME: Duration = Duration::from_millis(500);

/// The masks of the threads that were there before the cpuset of the job changed, as they were then or were set since.
type Masks = BTreeMap<Pid, CpuSet>;

/// Returns the processes of the job. `dead` are those that were found dead earlier.
fn processes(cgroup: &Cgroup, dead: &mut BTreeSet<Pid>) -> Vec<Pid> {
    let mut processes = tree::living(getpid(), dead);
    let found: BTreeSet<Pid> = processes.iter().copied().collect();
    let others = cgroup.processes().into_iter().filter(|process| *process != getpid() && !found.contains(process));
    processes.extend(others.filter(|process| tree::is_alive(*process, dead)));
    processes
}

/// Returns how many threads had to be moved.
fn walk(
    cgroup: &Cgroup,
    of_job: &JobMove,
    which: Threads,
    (masks, pins): (&mut Masks, &mut Pins),
    dead: &mut BTreeSet<Pid>,
) -> Result<usize, ConfineError> {
    let JobMove { all, joined, tasks } = of_job;
    let processes = processes(cgroup, dead);
    let of_tasks = of_tasks(&processes, tasks);
    let mut n_moved = 0;
    for process in processes {
        let of_task = || of_tasks.get(&process).map(|own| ThreadMove { own, of_job: Some(all) });
        let alone = |own| ThreadMove { own, of_job: None };
        let own = joined.get(&process.as_raw()).map(alone).or_else(of_task).unwrap_or(alone(all));
        for thread in tree::threads(process) {
            let is_inside = |has: CpuSet| has.is_subset(&all.after);
            if which == Threads::Outside && cpus_of(thread).is_ok_and(is_inside) {
                continue;
            }
            match move_thread(thread, own, masks, pins) {
                Ok(is_moved) => n_moved += usize::from(is_moved),
                Err(ConfineError::Thread { source: Errno::ESRCH, .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(n_moved)
}

/// Returns the move of each process that a bound task has started, and of the task itself. Parents come before their
/// children; processes whose parent has ended are still in the session of the task.
fn of_tasks<'a>(processes: &[Pid], tasks: &'a CpuMoves) -> BTreeMap<Pid, &'a CpuMove> {
    let mut of_tasks = BTreeMap::new();
    if tasks.is_empty() {
        return of_tasks;
    }
    for process in processes {
        let is_task = |pid: Pid| tasks.get(&pid.as_raw());
        let of_parent = || tree::parent_of(*process).and_then(|parent| of_tasks.get(&parent).copied());
        let of_session = || tree::session_of(*process).and_then(is_task);
        if let Some(own) = is_task(*process).or_else(of_parent).or_else(of_session) {
            of_tasks.insert(*process, own);
        }
    }
    of_tasks
}

/// The move of a thread.
#[derive(Clone, Copy, Debug)]
struct ThreadMove<'a> {
    own: &'a CpuMove,
    /// The move of the job, for a thread that is bound to a part of the job's CPUs.
    of_job: Option<&'a CpuMove>,
}

/// Returns whether the thread was moved.
fn move_thread(thread: Pid, own: ThreadMove<'_>, masks: &mut Masks, pins: &mut Pins) -> Result<bool, ConfineError> {
    let fail = |source| ConfineError::Thread { thread, source };
    let has = cpus_of(thread).map_err(fail)?;
    let wanted = match pins.0.get_mut(&thread) {
        Some(pin) => {
            pin.given = own.of_pinned(&pin.cpus);
            pin.given.clone()
        }
        None => own.wanted(&has, masks.get(&thread)),
    };
    masks.insert(thread, wanted.clone());
    if wanted == has {
        return Ok(false);
    }
    set_cpus_of(thread, &wanted).map_err(fail)?;
    let got = cpus_of(thread).map_err(fail)?;
    match got.is_subset(&own.of_job.unwrap_or(own.own).after) {
        // Some of the CPUs may be offline: the next walk would get no more.
        true => Ok(got != has),
        false => Err(ConfineError::Escapes { thread }),
    }
}

impl ThreadMove<'_> {
    /// Returns the CPUs of a thread that is pinned to some: those of them that the job has, if there are any.
    fn of_pinned(&self, pin: &CpuSet) -> CpuSet {
        let remaining: CpuSet = pin.intersection(&self.of_job.unwrap_or(self.own).after).copied().collect();
        if remaining.is_empty() { self.own.after.clone() } else { remaining }
    }

    /// Returns the CPUs that a thread should have, which had `had` before the cpuset changed unless it is new. A thread
    /// that the program has pinned, or whose mask was set, keeps the part of its mask that the job has.
    fn wanted(&self, has: &CpuSet, had: Option<&CpuSet>) -> CpuSet {
        let ThreadMove { own, of_job } = *self;
        // A new thread may have its mask from a creator that only the cpuset has moved yet.
        let is_moved = |of_job: &CpuMove| had.is_none() && *has == of_job.after;
        let had = had.unwrap_or(has);
        if *had == own.before || of_job.is_some_and(is_moved) {
            return own.after.clone();
        }
        let CpuMove { before, after } = of_job.unwrap_or(own);
        let remaining: CpuSet = has.intersection(after).copied().collect();
        match remaining.is_empty() {
            true => own.after.clone(),
            // It was given all CPUs of the job.
            false if had == before => after.clone(),
            false => remaining,
        }
    }
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
            let own = CpuMove { before: before.clone(), after: after.clone() };
            let thread = ThreadMove { own: &own, of_job: None };
            assert_eq!(thread.wanted(&set(has), None), set(expected), "{has:?}");
        };
        check(&[0, 1, 2, 3], &all, &half, &[0, 1]);
        check(&[1], &all, &half, &[1]);
        check(&[1, 2], &all, &half, &[1]);
        check(&[3], &all, &half, &[0, 1]);
        check(&[0, 1], &half, &all, &[0, 1, 2, 3]);
        check(&[1], &half, &all, &[1]);
        check(&[0, 1, 2, 3], &half, &half, &[0, 1]);
    }

    #[test]
    fn a_thread_of_a_bound_task_moves_with_it_unless_it_was_pinned() {
        let set = |cpus: &[u32]| cpus.iter().copied().collect::<CpuSet>();
        let to = |before: &[u32], after: &[u32]| CpuMove { before: set(before), after: set(after) };
        // What the thread had, what it has since the cpuset changed, and what it is to have.
        let check = |own: &CpuMove, of_job: &CpuMove, had: Option<&[u32]>, has: &[u32], expected: &[u32]| {
            let thread = ThreadMove { own, of_job: Some(of_job) };
            assert_eq!(thread.wanted(&set(has), had.map(set).as_ref()), set(expected), "{had:?} {has:?}");
        };
        let (all, half): (&[u32], &[u32]) = (&[0, 1, 2, 3], &[0, 1]);
        let (lends, returns) = (to(all, half), to(half, all));
        for (own, own_back) in [(to(&[0, 1], &[0]), to(&[0], &[0, 1])), (to(&[2, 3], &[1]), to(&[1], &[2, 3]))] {
            let (first, less): (Vec<u32>, Vec<u32>) =
                (own.before.iter().copied().collect(), own.after.iter().copied().collect());
            // Without a cpuset; with one that narrows masks; with one that replaces masks.
            for has in [&first[..], &less, half] {
                check(&own, &lends, Some(&first), has, &less);
            }
            for has in [&less[..], all] {
                check(&own_back, &returns, Some(&less), has, &first);
                check(&own_back, &returns, None, has, &first);
            }
        }
        // Pinned to CPUs that the job keeps, or not; given all CPUs of the job.
        check(&to(&[0, 1], &[0]), &lends, Some(&[1]), &[1], &[1]);
        check(&to(&[0, 1], &[0]), &lends, Some(&[1, 2]), &[1, 2], &[1]);
        check(&to(&[0, 1], &[0]), &lends, Some(&[3]), &[3], &[0]);
        check(&to(&[0, 1], &[0]), &lends, Some(all), all, half);
        check(&to(&[0], &[0, 1]), &returns, Some(&[1]), &[1], &[1]);
        check(&to(&[0], &[0, 1]), &returns, Some(half), half, all);
    }

    /// All three have the same CPU while the job has only this one.
    #[test]
    fn a_thread_is_pinned_as_before_once_its_job_has_more_cpus_again() {
        let sleep = || Command::new("sleep").arg("60").spawn().expect("sleep");
        let mut children = [sleep(), sleep(), sleep()];
        let pids = [0, 1, 2].map(|idx: usize| Pid::from_raw(children[idx].id() as i32));
        let all = cpus_of(pids[0]).expect("it runs");
        let one = |cpus: &mut dyn Iterator<Item = &u32>| cpus.next().copied().into_iter().collect::<CpuSet>();
        let (first, last) = (one(&mut all.iter()), one(&mut all.iter().rev()));
        let masks = || pids.map(|pid| cpus_of(pid).expect("it runs"));
        set_cpus_of(pids[1], &first).expect("ours");
        set_cpus_of(pids[2], &last).expect("ours");
        let mut pins = Pins::default();
        let mut moved = |before: &CpuSet, after: &CpuSet| {
            let all = CpuMove { before: before.clone(), after: after.clone() };
            let confined =
                confine(&Cgroup::none(), &JobMove { all, joined: CpuMoves::new(), tasks: CpuMoves::new() }, &mut pins);
            confined.expect("nothing runs that could escape");
            masks()
        };
        let seen = [moved(&all, &first), moved(&first, &all), moved(&all, &first), moved(&first, &all)];
        children.iter_mut().for_each(|child| {
            child.kill().expect("our child");
            child.wait().expect("our child");
        });
        let (lent, back) = ([&first, &first, &first].map(CpuSet::clone), [&all, &first, &last].map(CpuSet::clone));
        assert_eq!(seen, [lent.clone(), back.clone(), lent, back]);
    }

    /// Thousands of them would cost seconds in each walk.
    #[test]
    fn dead_processes_are_left_as_they_are() {
        // A program that never waits for the child of the shell before it.
        let mut child = Command::new("sh").args(["-c", "true & exec sleep 60"]).spawn().expect("sh");
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
        let of_job = JobMove { all, joined: CpuMoves::new(), tasks: CpuMoves::new() };
        let confined = confine(&Cgroup::none(), &of_job, &mut Pins::default());
        let has = (cpus_of(pid), cpus_of(dead_child));
        child.kill().expect("our child");
        child.wait().expect("our child");
        confined.expect("nothing runs that could escape");
        assert_eq!(has, (Ok(after), of_dead));
    }
}
