//! One share of a job under a supervisor: its tasks, its end, its usage.

use std::collections::BTreeSet;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::unistd::{Pid, getpid};
use rms_api::desired::{JobReport, JobStatus, LaunchNode, NodeExit};
use rms_model::{JobId, Mebibytes, OnResize, Run, Span, Time, Usage, Work};

use super::cpus::{AppliedCpus, JobCpus};
use super::environment;
use super::exec::{Exec, InputPipe};
use super::folder::Folder;
use super::hostfile::HostFiles;
use super::mpi::{Action, PmiServer};
use super::pump::Pump;
use super::resize::{self, PendingNotices};
use super::singleton::{self, SingletonCheck};
use super::spawned::{self, Parent, Spawned};
use super::start::{StartError, Started, Task};
use super::step::Step;
use super::streams::Streams;
use super::tree;
use super::user::Account;
use super::variables::Variables;
use crate::cgroup::{Baseline, Cgroup, Meter};
use crate::order::Order;
use crate::pmi::RankId;
use crate::pmi::frames::Placement;
use crate::pmi::hub::Need;
use crate::pmi::ranks;
use crate::spool::{self, OutputManifest};
use crate::sys::{self, End, Reaped, SingleThreaded};

/// A share that was started, or failed to start.
#[derive(Debug)]
pub struct Job {
    pub order: Order,
    pub phase: Phase,
    pub since: Time,
    pub account: Option<Account>,
    pub variables: Variables,
    pub tasks: Vec<Task>,
    /// The number of tasks that were started with the share; they are the first ones.
    n_initial: usize,
    /// Why one of the initial tasks could not be executed.
    exec_error: Option<String>,
    /// Spawned ranks, until all of them were executed.
    pending_spawns: Vec<PendingSpawn>,
    pub input: InputPipe,
    pub pmi: Option<PmiServer>,
    pub singleton: Option<SingletonCheck>,
    pub execs: Vec<Exec>,
    pub steps: Vec<Step>,
    /// The streams of the first task, for hooks and error messages; only if the job may need them.
    pub streams: Option<Streams>,
    pub pending_notices: PendingNotices,
    /// The tasks whose streams are kept in the spool, and whether the disk had no room for them.
    spooled: Vec<Range<u32>>,
    pub pump: Pump,
    was_full: bool,
    pub cpus: JobCpus,
    /// Whether the kernel limits the job to its current memory and devices here.
    is_enforced: bool,
    /// Start of the wall time.
    begun: Instant,
    wall_at: Instant,
    /// The worst exit status of spawned ranks that have ended.
    spawned: Option<End>,
    /// Set once its own tasks have ended while other nodes do not know yet that the job is over.
    linger_until: Option<Instant>,
    /// When to report that the job runs; `None` once reported.
    report_at: Option<Instant>,
    baseline: Baseline,
    /// Out-of-memory kills in the cgroup before this job.
    n_out_of_memory: u64,
    /// Usage of reaped children, for nodes without cgroups.
    reaped: Usage,
}

/// Ranks that are being started together.
#[derive(Debug)]
struct PendingSpawn {
    placement: Placement,
    sockets: Vec<(u32, OwnedFd)>,
    problem: Option<String>,
    /// The spawned tasks that are not known to be executed yet, or have ended meanwhile.
    tasks: Vec<u32>,
}

/// The phase of a share.
#[derive(Debug)]
pub enum Phase {
    Running,
    Ending(Ending),
    Ended {
        report: JobReport,
        /// When the result becomes durable, unless the server has it earlier.
        sync_at: Instant,
    },
}

/// A share whose end is settled but whose processes have not all ended.
#[derive(Debug)]
pub struct Ending {
    exit: NodeExit,
    /// When to send TERM; `None` once sent, or if it is not sent.
    term_at: Option<Instant>,
    /// When to send the next KILL.
    kill_at: Instant,
    n_kills: u32,
    /// When the first KILL was sent.
    killed_at: Option<Instant>,
    /// Whether the job was sent TERM first.
    had_grace: bool,
}

/// A result that the server receives within this time never costs a disk flush. It is already in the file: only a power
/// failure within this time can lose it.
const SYNC_AFTER: Duration = Duration::from_millis(200);

/// Most jobs that end sooner are reported only once, at their end. Jobs whose streams are followed are reported at
/// once.
const REPORT_DELAY: Duration = Duration::from_millis(5);

/// Ranks on other nodes finalize with those here; a node whose last frame was lost is not waited for much longer.
const FINALIZE_TIMEOUT: Duration = Duration::from_secs(30);

/// A process that is alive after this many KILLs, with pauses in between, is treated as unkillable.
const MIN_KILLS: u32 = 5;
/// How long to wait for processes that cannot be killed.
const UNKILLABLE_AFTER: Duration = Duration::from_secs(60);

impl Job {
    pub fn new(order: Order, baseline: Baseline, cgroup: &Cgroup) -> Job {
        let n_out_of_memory = if order.memory() > Mebibytes(0) { cgroup.n_out_of_memory() } else { 0 };
        // A wall time that is too long for the clock never expires.
        let begun = Instant::now();
        let wall_at = begun.checked_add(order.launch.wall.to_std()).unwrap_or_else(far_future);
        Job {
            phase: Phase::Running,
            since: now(),
            account: None,
            variables: Variables::new(),
            tasks: Vec::new(),
            n_initial: 0,
            exec_error: None,
            pending_spawns: Vec::new(),
            spawned: None,
            input: InputPipe::default(),
            pmi: None,
            singleton: None,
            execs: Vec::new(),
            steps: Vec::new(),
            streams: None,
            pending_notices: PendingNotices::default(),
            spooled: Vec::new(),
            pump: Pump::default(),
            was_full: false,
            cpus: JobCpus::of(&order),
            is_enforced: true,
            begun,
            wall_at,
            linger_until: None,
            report_at: None,
            baseline,
            n_out_of_memory,
            reaped: Usage::default(),
            order,
        }
    }

    pub fn job(&self) -> JobId {
        self.order.job
    }

    pub fn run(&self) -> Run {
        self.order.run
    }

    /// Records the tasks that were started.
    pub fn started(&mut self, started: Started, actions: &mut Vec<Action>) {
        if self.has_ranks() {
            let pmi = self.pmi.insert(PmiServer::new(&self.order, started.rank_sockets));
            pmi.open(actions);
            self.singleton = SingletonCheck::of_job(&self.order);
        }
        self.cpus.bound_tasks.add(started.bound);
        self.account = Some(started.account);
        self.variables = started.variables;
        self.n_initial = started.tasks.len();
        self.spooled.extend(started.tasks.first().map(|first| first.task..first.task + self.n_initial as u32));
        self.tasks = started.tasks;
        self.pump.add(started.piped);
        self.streams = started.streams.filter(|_| match &self.order.launch.on_resize {
            Some(OnResize::Hook(_) | OnResize::Signal(_)) => true,
            Some(OnResize::Negotiates | OnResize::Workers) | None => {
                self.pmi.is_some() || self.cpus.malleable.is_some()
            }
        });
        self.input = started.input.map(InputPipe::new).unwrap_or_default();
        self.since = now();
        let delay = if self.order.is_streamed() { Duration::ZERO } else { REPORT_DELAY };
        self.report_at = Some(Instant::now() + delay);
        self.check_exec_statuses(actions);
    }

    /// Returns the status pipes of tasks that were not executed yet.
    pub fn exec_pipes(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.tasks.iter().filter_map(|task| task.exec_status.pending_pipe())
    }

    fn is_starting(&self) -> bool {
        self.tasks.iter().any(|task| task.exec_status.is_pending())
    }

    /// Reads the exec statuses of all tasks, and reports spawns that are complete.
    pub fn check_exec_statuses(&mut self, actions: &mut Vec<Action>) {
        for idx in 0..self.tasks.len() {
            self.check_exec_status(idx);
        }
        let Some(pmi) = &mut self.pmi else { return };
        let is_pending = |id: &u32| self.tasks.iter().any(|task| task.task == *id && task.exec_status.is_pending());
        for spawn in self.pending_spawns.extract_if(.., |spawn| !spawn.tasks.iter().any(is_pending)).collect::<Vec<_>>()
        {
            pmi.started(&spawn.placement, spawn.sockets, spawn.problem, actions);
            // Some may have ended already, which the PMI server could not know before.
            for id in spawn.tasks {
                let gone = self.tasks.iter().position(|task| task.task == id && task.end.is_some());
                if let Some(idx) = gone {
                    record_exit(pmi, &mut self.tasks, idx, self.n_initial, &mut self.spawned, actions);
                }
            }
        }
    }

    fn check_exec_status(&mut self, idx: usize) {
        let Some(exec_error) = self.tasks[idx].exec_status.take_error() else { return };
        let task = self.tasks[idx].task;
        match self.pending_spawns.iter_mut().find(|spawn| spawn.tasks.contains(&task)) {
            Some(spawn) => spawn.problem.get_or_insert(exec_error),
            None => self.exec_error.get_or_insert(exec_error),
        };
    }

    /// Returns whether there may be ranks here, now or later. Tasks of nodes that join later are no ranks.
    fn has_ranks(&self) -> bool {
        let is_rank_node = |place: &LaunchNode| place.joined == 1 || place.n_tasks == 0;
        match self.order.launch.execution.work {
            Work::Tasks { .. } => self.order.place().is_some_and(is_rank_node),
            Work::Script { .. } | Work::Nodes => false,
        }
    }

    /// Applies changed nodes or wall time; processes started from now on see them in their environment. Returns false
    /// if the order is outdated.
    pub fn update(&mut self, order: Order, files: &HostFiles, actions: &mut Vec<Action>) -> bool {
        let is_outdated = order.launch.generation < self.order.launch.generation;
        if is_outdated || matches!(self.phase, Phase::Ended { .. }) {
            return false;
        }
        self.wall_at = self.begun.checked_add(order.launch.wall.to_std()).unwrap_or_else(far_future);
        self.order = order;
        if let Some(account) = &self.account {
            self.variables = environment::of_job(&self.order, account, files);
        }
        if let Some(pmi) = &mut self.pmi {
            pmi.update(&self.order, actions);
        }
        true
    }

    /// Moves the processes to the CPUs that the job now has here.
    pub fn follow_cpus(&mut self, cgroup: &Cgroup) {
        let is_starting = self.is_starting();
        self.cpus.follow(&self.order, is_starting, cgroup);
    }

    /// Records whether the kernel limits the job to its current memory and devices here.
    pub fn set_enforced(&mut self, is_enforced: bool) {
        self.is_enforced = is_enforced;
    }

    /// Moves tasks that were executed only after a change.
    pub fn follow_cpus_late(&mut self, cgroup: &Cgroup) {
        let is_starting = self.is_starting();
        self.cpus.follow_after_exec(is_starting, cgroup);
    }

    /// Returns the current report and marks it as sent.
    pub fn take_report(&mut self) -> JobReport {
        if !self.is_starting() {
            self.report_at = None;
        }
        self.report()
    }

    /// Returns the report that the job runs, if it is due.
    pub fn running_report(&mut self, now: Instant) -> Option<JobReport> {
        let is_due = self.report_at.is_some_and(|at| at <= now);
        (is_due && !self.is_starting()).then(|| self.take_report())
    }

    fn report(&self) -> JobReport {
        match &self.phase {
            Phase::Running | Phase::Ending(_) if self.is_starting() => {
                JobReport { job: self.job(), run: self.run(), status: JobStatus::Starting }
            }
            Phase::Running | Phase::Ending(_) => {
                let AppliedCpus { generation, is_confined } = self.cpus.applied();
                let is_confined = is_confined && self.is_enforced;
                let status = JobStatus::Running { since: self.since, generation, is_confined };
                JobReport { job: self.job(), run: self.run(), status }
            }
            Phase::Ended { report, .. } => report.clone(),
        }
    }

    /// Sends TERM to the whole tree, and KILL after `grace`. The first reason and the shortest grace time apply.
    pub fn end(&mut self, exit: NodeExit, grace: Span, cgroup: &Cgroup) {
        self.end_after(Span::ZERO, exit, grace, cgroup);
    }

    /// Like [`Job::end`], but gives the processes `patience` to end on their own before TERM. The share ends once none
    /// is left.
    pub fn end_after(&mut self, patience: Span, exit: NodeExit, grace: Span, cgroup: &Cgroup) {
        let term_at = Instant::now().checked_add(patience.to_std()).unwrap_or_else(far_future);
        let kill_at = term_at.checked_add(grace.to_std()).unwrap_or_else(far_future);
        match &mut self.phase {
            Phase::Running => {
                let had_grace = !grace.is_zero();
                let term_at = had_grace.then_some(term_at);
                self.phase = Phase::Ending(Ending { exit, term_at, kill_at, n_kills: 0, killed_at: None, had_grace });
            }
            Phase::Ending(ending) => {
                ending.term_at = ending.term_at.map(|before| before.min(term_at));
                ending.kill_at = ending.kill_at.min(kill_at);
            }
            Phase::Ended { .. } => {}
        }
        self.on_time(Instant::now(), cgroup);
    }

    /// Returns when [`on_time`](Job::on_time) is to be called next.
    pub fn deadline(&self) -> Instant {
        match &self.phase {
            Phase::Running => self.linger_until.map_or(self.wall_at, |until| until.min(self.wall_at)),
            Phase::Ending(ending) => ending.term_at.map_or(ending.kill_at, |at| at.min(ending.kill_at)),
            Phase::Ended { sync_at, .. } => *sync_at,
        }
    }

    /// Returns whether its processes were sent TERM because it ends.
    pub fn has_term(&self) -> bool {
        matches!(&self.phase, Phase::Ending(ending) if ending.had_grace && ending.term_at.is_none())
    }

    /// Returns whether tasks run here.
    pub fn waits_for_tasks(&self) -> bool {
        self.tasks.iter().any(|task| task.end.is_none())
    }

    /// Returns the latest time at which its supervisor must wake up.
    pub fn wakes_at(&self) -> Instant {
        let of_pmi = self.pmi.as_ref().and_then(PmiServer::wakes_at);
        let of_singleton = self.singleton.as_ref().and_then(SingletonCheck::wakes_at);
        let of_steps = self.steps.iter().filter_map(Step::wakes_at).min();
        let report_at = self.report_at.filter(|_| !self.is_starting());
        let others = [report_at, resize::wakes_at(self), of_pmi, of_singleton, of_steps, self.cpus.wakes_at()]
            .into_iter()
            .flatten();
        others.fold(self.deadline(), Instant::min)
    }

    /// Does what is due by now, except for making the result durable.
    pub fn on_time(&mut self, now: Instant, cgroup: &Cgroup) {
        match &mut self.phase {
            Phase::Running if now >= self.wall_at => {
                if let Some(pmi) = &mut self.pmi {
                    // Ranks that end by TERM have not crashed; other programs are not affected.
                    pmi.end(ranks::Ending::Ordered, &mut Vec::new());
                }
                self.end(NodeExit::WallTime, self.order.launch.grace, cgroup);
            }
            Phase::Ending(ending) if now < ending.kill_at => {
                if ending.term_at.take_if(|at| *at <= now).is_some() {
                    // A program that cleans up on the first TERM may give up at the second.
                    let had_term =
                        self.steps.iter().filter(|step| step.is_ending()).flat_map(Step::processes).collect();
                    // Hundreds of processes that compute would leave the walk little of the CPUs.
                    sys::run_first(true);
                    // Who is stopped handles it only once it continues.
                    tree::signal_others(getpid(), &[nix::libc::SIGTERM, nix::libc::SIGCONT], &had_term);
                    sys::run_first(false);
                }
            }
            Phase::Ending(ending) => {
                ending.term_at = None;
                sys::run_first(true);
                if !cgroup.forbid_forks(true) {
                    // All are stopped first: while others can fork, killed processes are replaced by new ones; stopped
                    // processes do not fork.
                    tree::stop_descendants(getpid());
                }
                tree::signal_descendants(getpid(), &[nix::libc::SIGKILL]);
                sys::run_first(false);
                // The next walk finds what was forked during this one; usually there is no next walk, because the end
                // of the last child wakes the supervisor first.
                ending.kill_at = now + Duration::from_millis(1 << ending.n_kills.min(8));
                ending.killed_at.get_or_insert(now);
                ending.n_kills += 1;
            }
            Phase::Running | Phase::Ended { .. } => {}
        }
    }

    /// Handles the end of a child: a task, a command, or an inherited orphan.
    pub fn reaped(&mut self, reaped: Reaped, actions: &mut Vec<Action>) {
        if singleton::found_singleton(&mut self.singleton, &reaped) {
            singleton::warn_owner(self);
        }
        self.reaped = self.reaped.and(reaped.usage);
        self.cpus.bound_tasks.remove(reaped.pid);
        if let Some(local) = self.tasks.iter().position(|task| task.pid == reaped.pid && task.end.is_none()) {
            self.tasks[local].end = Some(reaped.end);
            // It reported its exec status before it ended.
            self.check_exec_status(local);
            let task = self.tasks[local].task;
            let is_spawning = self.pending_spawns.iter().any(|spawn| spawn.tasks.contains(&task));
            match &mut self.pmi {
                Some(_) if is_spawning => self.check_exec_statuses(actions),
                Some(pmi) => record_exit(pmi, &mut self.tasks, local, self.n_initial, &mut self.spawned, actions),
                None => {}
            }
        }
        if let Some(exec) = self.execs.iter_mut().find(|exec| exec.pid == reaped.pid && exec.end.is_none()) {
            exec.end = Some(reaped.end);
        }
        resize::reaped(self, reaped.pid, reaped.end);
    }

    /// Ends the job with its last task, whatever else of this node still runs. Nodes without tasks wait for the order.
    pub fn settle(&mut self, tree_is_gone: bool, cgroup: &Cgroup) {
        if let Some(reason) = self.exec_error.take() {
            self.end(NodeExit::not_started(&reason), Span::ZERO, cgroup);
        }
        // A node without tasks waits for the order, or for the message that no ranks will come.
        let has_begun = !self.tasks.is_empty() || self.pmi.is_some();
        let is_over = has_begun && self.tasks.iter().all(|task| task.end.is_some());
        match self.pmi.as_ref().map_or(Need::Nothing, PmiServer::need) {
            Need::Ranks if is_over => {
                self.linger_until = None;
                return;
            }
            Need::Bye if is_over => {
                let until = *self.linger_until.get_or_insert_with(|| Instant::now() + FINALIZE_TIMEOUT);
                if Instant::now() < until {
                    return;
                }
            }
            Need::Nothing | Need::Bye | Need::Ranks => {}
        }
        if is_over && matches!(self.phase, Phase::Running) {
            let exit = self.tasks_exit();
            // Tasks on other nodes go on, and so does what they run here. A failure ends them anyway.
            let is_used = || self.is_used_by_other_nodes() || (!tree_is_gone && has_mpi_daemon());
            if exit == (NodeExit::Exited { code: 0 }) && is_used() {
                return;
            }
            if tree_is_gone {
                let kill_at = Instant::now();
                self.phase = Phase::Ending(Ending {
                    exit,
                    term_at: None,
                    kill_at,
                    n_kills: 0,
                    killed_at: None,
                    had_grace: false,
                });
            } else {
                self.end(exit, Span::ZERO, cgroup);
            }
        }
    }

    fn is_used_by_other_nodes(&self) -> bool {
        let has_exec = self.execs.iter().any(|exec| exec.is_of_other_node && exec.end.is_none());
        has_exec || self.steps.iter().any(|step| step.is_of_other_node)
    }

    /// Returns the highest exit code, unless a signal killed a task: a signal is more specific.
    fn tasks_exit(&self) -> NodeExit {
        match worst(self.tasks.iter().filter_map(|task| task.end).chain(self.spawned)) {
            Some(End::Signaled(signal)) => NodeExit::Signaled { signal },
            Some(End::Exited(code)) => NodeExit::Exited { code },
            None => NodeExit::Exited { code: 0 },
        }
    }

    /// Starts ranks that other ranks have spawned, and adds those that started to the job.
    pub fn spawn(
        &mut self,
        placement: &Placement,
        folder: &Folder,
        single: &SingleThreaded,
        actions: &mut Vec<Action>,
    ) {
        let spawned = match (&self.account, &self.phase) {
            (Some(account), Phase::Running) => {
                let parent = Parent { order: &self.order, account, variables: &self.variables, folder };
                spawned::start(&parent, placement, single)
            }
            (Some(_) | None, Phase::Running | Phase::Ending(_) | Phase::Ended { .. }) => {
                Spawned { problem: Some(StartError::Ending), ..Spawned::default() }
            }
        };
        self.spooled.extend(spawned.tasks.iter().map(|task| task.task..task.task + 1));
        let tasks = spawned.tasks.iter().map(|task| task.task).collect();
        self.tasks.extend(spawned.tasks);
        self.pump.add(spawned.piped);
        let problem = spawned.problem.map(|problem| problem.to_string());
        self.pending_spawns.push(PendingSpawn {
            placement: placement.clone(),
            sockets: spawned.sockets,
            problem,
            tasks,
        });
        self.check_exec_statuses(actions);
    }

    /// Reads the hostfiles that a rank names.
    pub fn read_hostfiles(&mut self, from: RankId, paths: &[String], folder: &Folder, actions: &mut Vec<Action>) {
        let (Some(account), Some(pmi)) = (&self.account, &mut self.pmi) else { return };
        let parent = Parent { order: &self.order, account, variables: &self.variables, folder };
        pmi.hostfiles_read(from, spawned::read_hostfiles(&parent, paths), actions);
    }

    /// Kills tasks of a spawn that failed.
    pub fn kill(&self, tasks: &[u32]) {
        for task in self.tasks.iter().filter(|task| task.end.is_none() && tasks.contains(&task.task)) {
            task.signal(nix::libc::SIGKILL);
        }
    }

    /// Returns whether KILL was sent to all processes and some still exist. A tracer can keep dead processes from their
    /// parent indefinitely, and a process stuck in the kernel does not die.
    pub fn is_unkillable(&self) -> bool {
        let Phase::Ending(Ending { killed_at: Some(killed_at), n_kills: MIN_KILLS.., .. }) = &self.phase else {
            return false;
        };
        killed_at.elapsed() > UNKILLABLE_AFTER || tree::descendants(getpid()).into_iter().all(tree::is_dead)
    }

    /// Returns the processes that KILL has not ended.
    pub fn unkillable_pids(&self) -> Vec<i32> {
        let alive = tree::descendants(getpid()).into_iter().filter(|pid| !tree::is_dead(*pid));
        alive.map(Pid::as_raw).collect()
    }

    /// Ends the share when no process is left. Returns the report if it has ended.
    pub fn finish(&mut self, cgroup: &Cgroup, meter: &Meter) -> Option<JobReport> {
        let Phase::Ending(ending) = &self.phase else { return None };
        if ending.n_kills > 0 {
            cgroup.forbid_forks(false);
        }
        let exit = match &ending.exit {
            // Memory may run out where the job has no task of its own: there the share ends by an order.
            NodeExit::Exited { .. }
            | NodeExit::Signaled { .. }
            | NodeExit::Aborted { .. }
            | NodeExit::Ordered
            | NodeExit::Overstayed
                if self.order.memory() > Mebibytes(0) && cgroup.n_out_of_memory() > self.n_out_of_memory =>
            {
                NodeExit::OutOfMemory
            }
            // The grace time had passed, and KILL was needed.
            NodeExit::Ordered if ending.had_grace && ending.n_kills > 0 => NodeExit::Overstayed,
            exit => exit.clone(),
        };
        Some(self.ended(exit, meter))
    }

    /// Records the end of the share, or that it never started.
    pub fn ended(&mut self, exit: NodeExit, meter: &Meter) -> JobReport {
        self.report_at = None;
        self.streams = None;
        self.singleton = None;
        self.pending_notices = PendingNotices::default();
        let usage = meter.usage(self.baseline).unwrap_or(self.reaped);
        let status = JobStatus::Ended { at: now(), exit, usage };
        let report = JobReport { job: self.job(), run: self.run(), status };
        self.phase = Phase::Ended { report: report.clone(), sync_at: Instant::now() + SYNC_AFTER };
        report
    }

    /// Checks whether the disk of the spool, which other jobs share, is full: streams may be incomplete.
    pub fn look_at_disk(&mut self, dir: &Path) {
        let is_root = self.account.as_ref().is_some_and(|account| account.uid.is_root());
        self.was_full |= spool::is_out_of_room(dir, is_root);
    }

    /// Returns the sizes of the streams kept for followers, if any. Call it when no process is left.
    pub fn output_manifest(&mut self, dir: &Path) -> Option<OutputManifest> {
        if !self.order.is_streamed() {
            return None;
        }
        self.pump.drain();
        self.look_at_disk(dir);
        self.was_full |= self.pump.has_lost;
        Some(OutputManifest::collect(dir, self.spooled.iter().cloned().flatten(), self.was_full))
    }

    /// Sends a signal to every task and what it started in its session's first process group.
    pub fn signal(&self, signal: i32) {
        for task in self.tasks.iter().filter(|task| task.end.is_none()) {
            task.signal(signal);
        }
    }
}

/// Records the end of a task. A program may spawn for as long as it runs: of spawned ranks that have ended, only the
/// worst exit status is kept.
fn record_exit(
    pmi: &mut PmiServer,
    tasks: &mut Vec<Task>,
    idx: usize,
    n_initial: usize,
    spawned: &mut Option<End>,
    actions: &mut Vec<Action>,
) {
    let Task { task, end: Some(end), .. } = tasks[idx] else { return };
    let is_discarded = pmi.is_discarded(task);
    pmi.task_ended(task, end, actions);
    if idx >= n_initial {
        tasks.swap_remove(idx);
        *spawned = worst(spawned.take().into_iter().chain((!is_discarded).then_some(end)));
    }
}

/// Returns whether an `mpirun` runs something here for another node: the daemon of Open MPI leaves the remote shell that
/// has started it, and ends with the `mpirun`.
fn has_mpi_daemon() -> bool {
    let living = tree::living(getpid(), &mut BTreeSet::new());
    living.into_iter().any(|pid| tree::parent_of(pid) == Some(getpid()) && tree::is_mpi_daemon(pid))
}

/// Returns the wall-clock time, for reports; deadlines use the monotonic clock.
pub fn now() -> Time {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

/// Returns the worst exit status: a signal is worse than any code, a high code worse than a low one.
fn worst(ends: impl Iterator<Item = End>) -> Option<End> {
    ends.reduce(|worst, end| match (worst, end) {
        (End::Signaled(_), _) => worst,
        (End::Exited(_), End::Signaled(_)) => end,
        (End::Exited(one), End::Exited(other)) => End::Exited(one.max(other)),
    })
}

fn far_future() -> Instant {
    const CENTURY: Duration = Duration::from_secs(100 * 366 * 24 * 3600);
    Instant::now() + CENTURY
}
