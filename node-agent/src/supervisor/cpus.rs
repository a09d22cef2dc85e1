//! The CPUs on which the processes of a job run, and how they change.
//!
//! Joined processes are notified first. CPUs are removed once the processes have acknowledged, or after a while; CPUs
//! are added before the processes are notified. Other processes are only moved; tasks that were bound to CPUs of their
//! own have a share each of those that the job then has. If a change is interrupted, the union of both sets is held until
//! the smaller one is applied.

use std::time::{Duration, Instant};

use super::binding::BoundTasks;
use super::confine::{ConfineError, CpuMove, CpuMoves, JobMove, Pins, confine, confine_late};
use super::malleable::{Malleable, Outcome};
use crate::cgroup::Cgroup;
use crate::order::Order;
use crate::topology::cpulist::CpuSet;
use crate::topology::own_cpus;

/// The CPUs of one job on one node.
#[derive(Debug)]
pub struct JobCpus {
    /// The CPUs that the processes are confined to; during a change, the old and the new ones.
    held: CpuSet,
    /// Whether the last change could be enforced.
    is_confined: bool,
    /// The generation of the job's nodes and cores that is applied.
    generation: u32,
    /// The previous CPUs, if some tasks may not have been executed when they changed.
    before_exec: Option<CpuSet>,
    /// The CPUs of the newest order, by packages.
    packages: Vec<Vec<u32>>,
    pub bound_tasks: BoundTasks,
    /// The threads that are pinned to a part of these CPUs.
    pins: Pins,
    pub malleable: Option<Malleable>,
    change: Option<Change>,
    late: Option<Late>,
}

/// When to look again for threads that were being created while CPUs were taken away. They appear with the CPUs that
/// their creator had.
#[derive(Debug)]
struct Late {
    of_job: JobMove,
    at: Instant,
    /// After which further times to repeat it.
    then: &'static [Duration],
}

/// How long it takes until a thread that is being created is visible: microseconds, unless it has to wait for a CPU.
const UNTIL_VISIBLE: &[Duration] = &[Duration::from_millis(20), Duration::from_millis(500)];

impl Late {
    /// Returns when to look next, unless `times` is empty.
    fn after(of_job: JobMove, times: &'static [Duration]) -> Option<Late> {
        let (next, then) = times.split_first()?;
        Some(Late { of_job, at: Instant::now() + *next, then })
    }
}

/// A change in progress: processes have been notified.
#[derive(Debug)]
struct Change {
    after: CpuSet,
    generation: u32,
    until: Instant,
}

/// What is applied to the processes of a job, as reported to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppliedCpus {
    pub generation: u32,
    pub is_confined: bool,
}

impl JobCpus {
    pub fn of(order: &Order) -> JobCpus {
        JobCpus {
            held: cpus_of(order),
            is_confined: true,
            generation: order.launch.generation,
            before_exec: None,
            packages: order.packages.clone(),
            bound_tasks: BoundTasks::default(),
            pins: Pins::default(),
            malleable: None,
            change: None,
            late: None,
        }
    }

    pub fn held(&self) -> &CpuSet {
        &self.held
    }

    pub fn applied(&self) -> AppliedCpus {
        AppliedCpus { generation: self.generation, is_confined: self.is_confined }
    }

    /// Applies a changed order: moves the processes to the CPUs that the job now has here. If that fails, they return
    /// to their old ones, and the server decides what follows.
    pub fn follow(&mut self, order: &Order, is_starting: bool, cgroup: &Cgroup) {
        let (after, generation) = (cpus_of(order), order.launch.generation);
        self.packages.clone_from(&order.packages);
        let aim = self.change.as_ref().map_or(&self.held, |change| &change.after);
        if after == *aim && self.is_confined {
            match &mut self.change {
                Some(change) => change.generation = generation,
                None => self.generation = generation,
            }
            return;
        }
        // A process that was not executed yet may still set the old ones.
        self.before_exec = is_starting.then(|| self.held.clone());
        self.begin_change(after, generation, order.shrink_patience(), cgroup);
    }

    /// Applies a changed distribution of the job's CPUs among its processes.
    fn redistribute(&mut self, patience: Duration, cgroup: &Cgroup) {
        let (after, generation) = match &self.change {
            Some(change) => (change.after.clone(), change.generation),
            None => (self.held.clone(), self.generation),
        };
        self.begin_change(after, generation, patience, cgroup);
    }

    fn begin_change(&mut self, after: CpuSet, generation: u32, patience: Duration, cgroup: &Cgroup) {
        let both: CpuSet = self.held.union(&after).copied().collect();
        let told = self.malleable.as_mut().filter(|malleable| !malleable.is_empty());
        let Some(malleable) = told else {
            if let Some(malleable) = &mut self.malleable {
                // Processes that join from now on are told these CPUs.
                malleable.publish(&after);
            }
            self.change = None;
            return self.settle(after, generation, cgroup);
        };
        malleable.publish(&after);
        let moves = malleable.moves(true);
        let is_wider = both != self.held || moves.values().any(|own| own.before != own.after);
        // Tasks are moved once it is known which CPUs they share.
        let tasks = if both == after { self.task_moves(&after) } else { self.bound_tasks.stays() };
        if is_wider && let Err(error) = self.move_to(&both, moves, tasks, cgroup) {
            return self.fail(&after, generation, error, cgroup);
        }
        if both == after {
            // Nothing is taken away, so the change is applied at once.
            (self.generation, self.is_confined) = (generation, true);
        }
        let until = Instant::now() + patience;
        // Joins and requests during a change do not postpone its deadline.
        let sooner = self.change.take().filter(|change| change.after == after).map(|change| change.until);
        let until = sooner.map_or(until, |sooner| sooner.min(until));
        self.change = Some(Change { after, generation, until });
        self.finish_change(Instant::now(), cgroup);
    }

    fn task_moves(&self, after: &CpuSet) -> CpuMoves {
        self.bound_tasks.moves(after, &self.packages)
    }

    fn move_to(
        &mut self,
        after: &CpuSet,
        joined: CpuMoves,
        tasks: CpuMoves,
        cgroup: &Cgroup,
    ) -> Result<(), ConfineError> {
        let all = CpuMove { before: self.held.clone(), after: after.clone() };
        let of_job = JobMove { all, joined, tasks };
        confine(cgroup, &of_job, &mut self.pins)?;
        self.held.clone_from(after);
        self.bound_tasks.moved(&of_job.tasks);
        self.malleable.iter_mut().for_each(|malleable| malleable.moved(of_job.joined.clone()));
        let takes_cpus = !of_job.all.before.is_subset(&of_job.all.after);
        self.late = takes_cpus.then_some(of_job).and_then(|of_job| Late::after(of_job, UNTIL_VISIBLE));
        Ok(())
    }

    /// Does what is due by now: ends a change whose deadline has passed, and looks for late threads.
    pub fn on_time(&mut self, now: Instant, cgroup: &Cgroup) {
        self.finish_change(now, cgroup);
        let Some(Late { of_job, then, .. }) = self.late.take_if(|late| late.at <= now) else { return };
        if let Err(error) = confine_late(cgroup, &of_job) {
            eprintln!("the CPUs of the job's late threads: {:#}", anyhow::Error::new(error));
            self.is_confined = false;
        }
        self.late = Late::after(of_job, then);
    }

    /// Ends the change if all processes have answered or the deadline has passed.
    pub fn finish_change(&mut self, now: Instant, cgroup: &Cgroup) {
        let Some(malleable) = &mut self.malleable else { return };
        let is_over = |change: &mut Change| malleable.is_acknowledged() || change.until <= now;
        let Some(Change { after, generation, until: _ }) = self.change.take_if(is_over) else { return };
        self.settle(after, generation, cgroup);
        self.malleable.iter_mut().for_each(Malleable::close_change);
    }

    /// Moves all processes to their final CPUs.
    fn settle(&mut self, after: CpuSet, generation: u32, cgroup: &Cgroup) {
        let moves = self.malleable.as_ref().map(|malleable| malleable.moves(false)).unwrap_or_default();
        let tasks = self.task_moves(&after);
        match self.move_to(&after, moves, tasks, cgroup) {
            Ok(()) => (self.generation, self.is_confined) = (generation, true),
            Err(error) => self.fail(&after, generation, error, cgroup),
        }
    }

    fn fail(&mut self, after: &CpuSet, generation: u32, error: ConfineError, cgroup: &Cgroup) {
        eprintln!("the CPUs of the job: {:#}", anyhow::Error::new(error));
        let held = self.held.clone();
        self.malleable.iter_mut().for_each(|malleable| malleable.publish(&held));
        let joined = self.malleable.as_ref().map(|malleable| malleable.moves(true)).unwrap_or_default();
        let mut tasks = self.task_moves(after);
        for CpuMove { before, after } in tasks.values_mut() {
            std::mem::swap(before, after);
        }
        let all = CpuMove { before: after.clone(), after: held };
        let _as_far_as_possible = confine(cgroup, &JobMove { all, joined, tasks }, &mut self.pins);
        (self.change, self.late) = (None, None);
        (self.generation, self.is_confined) = (generation, false);
    }

    /// Moves tasks that were executed only after a change.
    pub fn follow_after_exec(&mut self, is_starting: bool, cgroup: &Cgroup) {
        let is_settled = self.is_confined && !is_starting && self.change.is_none();
        if let Some(before) = self.before_exec.take_if(|_| is_settled) {
            let joined = self.malleable.as_ref().map(|malleable| malleable.moves(false)).unwrap_or_default();
            let all = CpuMove { before, after: self.held.clone() };
            let of_job = JobMove { all, joined, tasks: self.bound_tasks.late_moves() };
            self.is_confined = confine(cgroup, &of_job, &mut self.pins).is_ok();
        }
    }

    /// Returns the latest time to call [`on_time`](JobCpus::on_time).
    pub fn wakes_at(&self) -> Option<Instant> {
        let of_late = self.late.as_ref().map(|late| late.at);
        self.change.as_ref().map(|change| change.until).into_iter().chain(of_late).min()
    }

    /// Handles a join, a request or an answer of a process.
    pub fn receive(&mut self, source: Option<u64>, patience: Duration, cgroup: &Cgroup) -> Outcome {
        let Some(malleable) = &mut self.malleable else { return Outcome::default() };
        let outcome = malleable.receive(source, &self.bound_tasks, cgroup);
        if outcome.has_changed {
            self.redistribute(patience, cgroup);
        }
        outcome
    }
}

/// Returns the CPUs of an order; without a mask, all that this process itself may use.
pub fn cpus_of(order: &Order) -> CpuSet {
    order.mask.clone().or_else(own_cpus).unwrap_or_default()
}

/// Returns how many CPUs the job has here, or requested, if it has fewer now.
pub fn most_cpus(order: &Order) -> usize {
    let asked = order.place().map_or(0, |place| place.asked_cpus as usize);
    cpus_of(order).len().max(asked)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};
    use std::sync::Arc;

    use nix::unistd::Pid;

    use super::*;
    use crate::order::tests;
    use crate::supervisor::tree;
    use crate::topology::{cpus_of as cpus_of_process, set_cpus_of};

    /// A task with a child, both on this CPU.
    fn task_on(cpu: u32) -> (Child, [Pid; 2]) {
        let task = Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().expect("sh");
        let pid = Pid::from_raw(task.id() as i32);
        let child = loop {
            match tree::descendants(pid)[..] {
                [child] => break child,
                _ => std::thread::yield_now(),
            }
        };
        for process in [pid, child] {
            set_cpus_of(process, &CpuSet::from([cpu])).expect("it runs");
        }
        (task, [pid, child])
    }

    #[test]
    fn threads_that_appear_late_lose_the_cpus_that_were_taken() {
        let all: Vec<u32> = own_cpus().into_iter().flatten().take(2).collect();
        let [one, other] = all[..] else { return eprintln!("SKIPPED: this machine has one CPU") };
        let order = |generation: u32, cpus: &[u32]| {
            let mut order = tests::order([test_kit::place("a1")]);
            Arc::make_mut(&mut order.launch).generation = generation;
            order.mask = Some(cpus.iter().copied().collect());
            order
        };
        let none = Cgroup::none();
        let mut cpus = JobCpus::of(&order(1, &all));
        let (mut task, [pid, child]) = task_on(other);
        cpus.follow(&order(2, &[one]), false, &none);
        let mut seen = Vec::new();
        for _ in UNTIL_VISIBLE {
            // As a thread would that was created from one which has not been moved yet.
            set_cpus_of(child, &all.iter().copied().collect()).expect("it runs");
            let at = cpus.wakes_at().expect("a late look");
            cpus.on_time(at - Duration::from_millis(1), &none);
            seen.push(cpus_of_process(child).expect("it runs").len());
            cpus.on_time(at, &none);
            seen.push(cpus_of_process(child).expect("it runs").len());
        }
        assert_eq!((seen, cpus.wakes_at()), (vec![2, 1, 2, 1], None));
        assert!(cpus.applied().is_confined);
        // What a job gains may be pinned by its program at once.
        cpus.follow(&order(3, &all), false, &none);
        assert_eq!(cpus.wakes_at(), None);
        for process in [pid, child] {
            let _gone_already = crate::sys::kill(process.as_raw(), 9);
        }
        task.wait().expect("our child");
    }

    #[test]
    fn bound_tasks_and_what_they_have_started_have_their_own_cpus_back() {
        let all: Vec<u32> = own_cpus().into_iter().flatten().take(2).collect();
        let [one, other] = all[..] else { return eprintln!("SKIPPED: this machine has one CPU") };
        let order = |generation: u32, cpus: &[u32]| {
            let mut order = tests::order([test_kit::place("a1")]);
            Arc::make_mut(&mut order.launch).generation = generation;
            (order.mask, order.packages) = (Some(cpus.iter().copied().collect()), vec![cpus.to_vec()]);
            order
        };
        let mut cpus = JobCpus::of(&order(1, &all));
        let mut tasks = all.iter().map(|cpu| task_on(*cpu)).collect::<Vec<_>>();
        let first = tasks.iter().zip(&all).map(|((_, [pid, _]), cpu)| (*pid, CpuSet::from([*cpu]), 1)).collect();
        cpus.bound_tasks.add(first);
        let mut seen = Vec::new();
        for (generation, now) in [(2, &[one][..]), (3, &all), (4, &[other]), (5, &all)] {
            cpus.follow(&order(generation, now), false, &Cgroup::none());
            assert_eq!(cpus.applied(), AppliedCpus { generation, is_confined: true });
            let of_task = |(_, pids): &(Child, [Pid; 2])| pids.map(|pid| cpus_of_process(pid).unwrap_or_default());
            seen.push(tasks.iter().flat_map(of_task).flatten().collect::<Vec<u32>>());
        }
        for (task, pids) in &mut tasks {
            for pid in pids {
                let _gone_already = crate::sys::kill(pid.as_raw(), 9);
            }
            task.wait().expect("our child");
        }
        let own = [one, one, other, other];
        assert_eq!(seen, [[one; 4], own, [other; 4], own]);
    }
}
