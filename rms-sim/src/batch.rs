//! Runs a whole workload through the real core as fast as possible: jobs are submitted and end here, the core does
//! everything else.
//!
//! There are no agents here, no messages and no faults (for those there is [`World`](crate::World)): model launchers
//! report when their jobs are done, as in 001. The core's facts show when jobs start.

mod estimates;
pub mod heat;
mod journal;
mod pace;
mod progress;
mod result;
mod schedule;
mod trace;
pub mod tune;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::convert::Infallible;
use std::io;

use rms_api::call::update::{Changes, WallChange};
use rms_api::call::{Select, Submission};
use rms_api::desired::AgentHello;
use rms_api::desired::{JobReport, JobStatus, NodeExit, NodeReport};
use rms_api::{Call, Refusal};
use rms_core::effect::Effect;
use rms_core::state::job::Job;
use rms_core::{Config, Event, Fact, Journal, Rms, State, Step, Ticket};
use rms_model::{Identity, Inventory, JobId, NodeId, Outcome, Role, Run, RuntimeModel, Settings, Span, Time, Usage};
use thiserror::Error;

use estimates::Estimates;
pub use estimates::RunTimes;
pub use journal::{Census, JournalJobs, known_nodes};
use pace::Pace;
pub use progress::Elastic;
use progress::Progress;
pub use result::{Figures, Finished, Summary};
use schedule::Schedule;
pub use schedule::{Capacity, Part, Stretch, Unsound, check_schedule};
pub use trace::TraceJobs;
pub use trace::submission;

/// The jobs to run, by their place in the order of their submits.
pub trait Workload {
    /// Returns how many jobs there are.
    fn n_jobs(&self) -> usize;
    /// Returns when a job is submitted; never before the previous one.
    fn submit(&self, job_idx: usize) -> Time;
    /// Returns the submission and its submitter.
    fn submission(&self, job_idx: usize) -> (Identity, Submission);
    /// Returns how long the job runs once it has started; at most its wall time.
    fn run(&self, job_idx: usize) -> Span;
    /// Returns how its run time depends on its nodes, if these may change.
    fn elastic(&self, _job_idx: usize) -> Option<Elastic> {
        None
    }
    /// Returns the model by which jobs really run with some of their cores.
    fn paced_by(&self) -> RuntimeModel {
        RuntimeModel::default()
    }
}

/// The nodes of one cluster, which are all equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterNodes {
    pub cluster: String,
    pub names: Vec<String>,
    pub inventory: Inventory,
}

/// Why a workload cannot be run.
#[derive(Debug, Error)]
pub enum BatchError {
    #[error("node {node} can not join")]
    Node { node: String, source: Box<Refusal> },
    #[error("{n_left} jobs wait for ever: nothing happens any more")]
    Stuck { n_left: usize },
    #[error("what ran can not be recorded")]
    Record(#[source] io::Error),
}

/// A cluster in virtual time.
#[derive(Debug)]
pub struct Batch<'a, W> {
    rms: Rms,
    workload: &'a W,
    watch: Watch,
    /// The running jobs by their end; those whose nodes change also by their former ends.
    ends: BinaryHeap<Reverse<(Time, JobId, Run)>>,
    /// The progress of running jobs whose nodes change.
    progress: BTreeMap<JobId, Progress>,
    /// The pace of running jobs that have lent or borrowed cores.
    paces: BTreeMap<JobId, Pace>,
    /// How fast jobs really run with some of their cores.
    model: RuntimeModel,
    /// The run times with which the core plans, if not with those that jobs request.
    estimates: Estimates,
    /// The reports that nodes are to make.
    reports: VecDeque<(NodeId, JobReport)>,
    /// Where each job ran, if that is recorded.
    schedule: Option<Schedule>,
    now: Time,
    /// The next job to submit.
    next_idx: usize,
    n_refused: usize,
    n_done: usize,
}

/// Reads the facts as they become durable.
#[derive(Debug, Default)]
struct Watch {
    /// The index in the workload of each job id: ids are given in the order of submits, to the jobs that are accepted.
    job_idxs: Vec<u32>,
    started: Vec<(JobId, Run, Time)>,
    resized: Vec<Resized>,
    /// The jobs whose cores have changed.
    shared: Vec<JobId>,
    /// By index in the workload.
    finished: Vec<Option<Finished>>,
}

/// A change of a job's nodes.
#[derive(Debug)]
struct Resized {
    job: JobId,
    at: Time,
    gained: Vec<NodeId>,
    freed: Vec<NodeId>,
}

impl<'a, W: Workload> Batch<'a, W> {
    /// # Errors
    /// Some nodes cannot join.
    pub fn new(settings: Settings, nodes: &[ClusterNodes], workload: &'a W) -> Result<Batch<'a, W>, BatchError> {
        let config = Config { settings, tells_anyone: false, ..Config::default() };
        let watch = Watch { finished: vec![None; workload.n_jobs()], ..Watch::default() };
        let rms = Rms::new(config);
        let now = if workload.n_jobs() > 0 { workload.submit(0) } else { Time::EPOCH };
        let mut batch = Batch {
            rms,
            workload,
            watch,
            ends: BinaryHeap::new(),
            progress: BTreeMap::new(),
            paces: BTreeMap::new(),
            model: workload.paced_by(),
            estimates: Estimates::default(),
            reports: VecDeque::new(),
            schedule: None,
            now,
            next_idx: 0,
            n_refused: 0,
            n_done: 0,
        };
        for cluster in nodes {
            for name in &cluster.names {
                let hello = AgentHello {
                    cluster: cluster.cluster.clone(),
                    address: String::new(),
                    inventory: cluster.inventory.clone(),
                    trouble: None,
                };
                let event = Event::AgentConnected { name: name.clone(), hello, report: NodeReport::default() };
                let step = batch.rms.handle(now, event);
                if let Some(source) = batch.commit(step) {
                    return Err(BatchError::Node { node: name.clone(), source: Box::new(source) });
                }
            }
        }
        Ok(batch)
    }

    /// Sets the model by which jobs really run in place of the workload's, whichever model estimates are made with.
    #[must_use]
    pub fn paced_by(self, model: RuntimeModel) -> Batch<'a, W> {
        Batch { model, ..self }
    }

    /// Sets the run times with which the core plans.
    #[must_use]
    pub fn planned_by(self, run_times: RunTimes) -> Batch<'a, W> {
        Batch { estimates: Estimates::by(run_times), ..self }
    }

    /// Runs all jobs. `progress` is called from time to time with the number of jobs that have ended.
    ///
    /// # Errors
    /// Some jobs never start, which some settings cause.
    pub fn run(self, progress: impl FnMut(usize)) -> Result<Summary, BatchError> {
        self.drive(progress, |_| Ok(()))
    }

    /// Like [`Batch::run`]; `record` is called with the jobs that have ended, in the order of their ends.
    ///
    /// # Errors
    /// Those of [`Batch::run`], and those of `record`.
    pub fn run_recorded(
        mut self,
        progress: impl FnMut(usize),
        record: impl FnMut(&Stretch) -> io::Result<()>,
    ) -> Result<Summary, BatchError> {
        self.schedule = Some(Schedule::new(self.rms.state()));
        self.drive(progress, record)
    }

    fn drive(
        mut self,
        mut progress: impl FnMut(usize),
        mut record: impl FnMut(&Stretch) -> io::Result<()>,
    ) -> Result<Summary, BatchError> {
        let mut n_told = 0;
        while self.turn()? {
            if let Some(schedule) = &mut self.schedule {
                schedule.ended.drain(..).try_for_each(|stretch| record(&stretch)).map_err(BatchError::Record)?;
            }
            if self.n_done >= n_told + PROGRESS_EVERY {
                n_told = self.n_done;
                progress(n_told);
            }
        }
        progress(self.n_done);
        Ok(self.summary())
    }

    /// Summarizes all jobs.
    pub fn summary(self) -> Summary {
        let n_nodes = self.rms.state().nodes().len() as u32;
        let ghosts = self.rms.state().ghost_node_time();
        Summary::new(self.watch.finished, n_nodes, self.n_refused, ghosts)
    }

    /// Processes everything of the next instant at which something happens; returns false if all jobs have ended.
    ///
    /// # Errors
    /// No event is left, but jobs wait.
    pub fn turn(&mut self) -> Result<bool, BatchError> {
        let n_jobs = self.workload.n_jobs();
        let n_left = n_jobs - self.n_done - self.n_refused;
        if n_left == 0 {
            return Ok(false);
        }
        let submit = (self.next_idx < n_jobs).then(|| self.workload.submit(self.next_idx));
        self.forget_old_ends();
        let end = self.ends.peek().map(|Reverse((end, ..))| *end);
        let next = [submit, end, self.estimates.next(), self.rms.next_timer()].into_iter().flatten().min();
        // A timer in the past is due at once.
        let now = next.ok_or(BatchError::Stuck { n_left })?.max(self.now);
        self.now = now;
        // At one instant nodes are freed first, then jobs are submitted, and one pass serves them all.
        while let Some(Reverse((end, job, run))) = self.ends.peek().copied()
            && end <= now
        {
            self.ends.pop();
            self.progress.remove(&job);
            self.paces.remove(&job);
            if let Some(schedule) = &mut self.schedule {
                schedule.end(job, end);
            }
            self.learn(job);
            self.handle(Event::ApplicationDone { job, run, outcome: Outcome::Completed });
            self.n_done += 1;
            self.forget_old_ends();
        }
        while let Some((job, run)) = self.estimates.pop(now) {
            self.raise(job, run);
        }
        while self.next_idx < n_jobs && self.workload.submit(self.next_idx) <= now {
            self.submit(self.next_idx);
            self.next_idx += 1;
        }
        while self.rms.next_timer().is_some_and(|due| due <= now) {
            self.handle(Event::Tick);
        }
        Ok(true)
    }

    /// Drops ends of jobs whose nodes have changed since, or that have ended at another time.
    fn forget_old_ends(&mut self) {
        while let Some(Reverse((end, job, run))) = self.ends.peek() {
            let is_running = self.rms.state().jobs().get(job).is_some_and(|entry| entry.run == *run);
            let is_moved = self.progress.get(job).is_some_and(|progress| progress.end() != *end)
                || self.paces.get(job).is_some_and(|pace| pace.end() != *end);
            if is_running && !is_moved {
                return;
            }
            self.ends.pop();
        }
    }

    /// Returns the time of the last turn.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the core's state, for tests.
    pub fn state(&self) -> &State {
        self.rms.state()
    }

    fn submit(&mut self, job_idx: usize) {
        let (who, mut submission) = self.workload.submission(job_idx);
        self.estimates.shorten(job_idx, &who.name, &mut submission);
        let call = Call::Submit(Box::new(submission));
        let step = self.rms.handle(self.now, Event::Called { ticket: Ticket(0), who, call });
        match self.commit(step) {
            None => self.watch.job_idxs.push(job_idx as u32),
            Some(_) => self.n_refused += 1,
        }
        self.report();
    }

    /// Lets the core's estimates learn from the job, which ends now.
    fn learn(&mut self, job: JobId) {
        let job_idx = self.idx_of(job);
        let (Some(entry), Some(finished)) = (self.rms.state().jobs().get(&job), self.watch.finished[job_idx]) else {
            return;
        };
        let ran = Span::from_millis((finished.node_s * 1000.0 / f64::from(finished.n_nodes.max(1))).round() as i64);
        self.estimates.learn(job_idx, &entry.spec.owner.0, ran);
    }

    /// Raises the estimate of a job that runs for longer, unless the estimate has changed since.
    fn raise(&mut self, job: JobId, run: Run) {
        let planned = |state: &State| {
            let started = state.jobs().get(&job).filter(|entry| entry.run == run)?.started()?;
            Some(started.at + started.request.wall)
        };
        let Some(end) = planned(self.rms.state()).filter(|end| *end <= self.now) else { return };
        let job_idx = self.idx_of(job);
        let wall = Some(WallChange::More(self.estimates.raise(job_idx)));
        let changes = Box::new(Changes { wall, ..Changes::default() });
        let who = Identity { role: Role::Admin, name: "root".to_owned() };
        let call = Call::Update { select: Select::Ids(vec![job]), changes };
        self.handle(Event::Called { ticket: Ticket(0), who, call });
        let raised = planned(self.rms.state());
        assert!(raised.is_some_and(|raised| raised > end), "an admin may give a job that runs more time");
        self.expect(job);
    }

    /// Records until when the core plans the job to run.
    fn expect(&mut self, job: JobId) {
        let Some(entry) = self.rms.state().jobs().get(&job) else { return };
        let Some(started) = entry.started() else { return };
        let (run, end) = (entry.run, started.at + started.request.wall);
        self.estimates.expect(self.idx_of(job), (job, run), end);
    }

    fn idx_of(&self, job: JobId) -> usize {
        self.watch.job_idxs[job.0 as usize - 1] as usize
    }

    fn handle(&mut self, event: Event) {
        let step = self.rms.handle(self.now, event);
        let refusal = self.commit(step);
        assert!(refusal.is_none(), "only submits and nodes can be refused: {refusal:?}");
        self.report();
    }

    /// Reports at once for the nodes what runs on them and what has ended.
    fn report(&mut self) {
        while let Some((node, report)) = self.reports.pop_front() {
            let Some(entry) = self.rms.state().nodes().get(&node) else { continue };
            let (name, seen) = (entry.name.clone(), entry.generation);
            let report = NodeReport { seen, jobs: vec![report] };
            let step = self.rms.handle(self.now, Event::AgentReported { name, report });
            self.commit(step);
        }
    }

    /// Handles the start of a job: it ends when it has done its work, unless its nodes change.
    fn begin(&mut self, job: JobId, run: Run, at: Time) {
        let entry = self.rms.state().jobs().get(&job);
        let nodes = entry.map_or(&[][..], |entry| entry.nodes());
        let job_idx = self.idx_of(job);
        let (runs, n_nodes) = (self.workload.run(job_idx), nodes.len() as u32);
        let mut ended = at + runs;
        if let Some(elastic) = self.workload.elastic(job_idx) {
            let progress = Progress::new(elastic, runs, at, n_nodes);
            ended = progress.end();
            self.progress.insert(job, progress);
            let status = JobStatus::running(at);
            self.reports.extend(nodes.iter().map(|node| (*node, JobReport { job, run, status: status.clone() })));
        }
        self.ends.push(Reverse((ended, job, run)));
        let submitted = self.workload.submit(job_idx);
        let share = match entry {
            Some(entry) if !entry.grants().is_empty() => {
                nodes.iter().map(|node| share(self.rms.state(), entry, *node)).sum()
            }
            // All cores of each node.
            Some(_) | None => f64::from(n_nodes),
        };
        if let Some(schedule) = &mut self.schedule {
            schedule.begin(job, job_idx, submitted, at, self.rms.state());
        }
        let finished = Finished {
            submitted,
            started: at,
            ended,
            alone: ended.since(at),
            n_nodes,
            node_s: ended.since(at).as_secs_f64() * share,
            n_changes: 0,
            was_guest: false,
            was_mate: false,
        };
        self.watch.finished[job_idx] = Some(finished);
        self.expect(job);
    }

    fn resize(&mut self, resized: &Resized) {
        let Resized { job, at, gained, freed } = resized;
        if let Some(schedule) = &mut self.schedule {
            schedule.resize(*job, *at, self.rms.state());
        }
        let Some(entry) = self.rms.state().jobs().get(job) else { return };
        let (run, n_nodes) = (entry.run, entry.nodes().len() as u32);
        let Some(progress) = self.progress.get_mut(job) else { return };
        progress.resize(*at, n_nodes);
        let ended = progress.end();
        let job_idx = self.watch.job_idxs[job.0 as usize - 1] as usize;
        if let Some(finished) = &mut self.watch.finished[job_idx] {
            let (node_s, n_changes) = (progress.node_time(ended).as_secs_f64(), progress.n_changes());
            *finished = Finished { ended, alone: ended.since(finished.started), node_s, n_changes, ..*finished };
        }
        self.ends.push(Reverse((ended, *job, run)));
        let running = JobStatus::running(*at);
        let gone = JobStatus::Ended { at: *at, exit: NodeExit::Exited { code: 0 }, usage: Usage::default() };
        let report = |status: &JobStatus| JobReport { job: *job, run, status: status.clone() };
        self.reports.extend(gained.iter().map(|node| (*node, report(&running))));
        self.reports.extend(freed.iter().map(|node| (*node, report(&gone))));
    }

    /// Handles a change of the job's cores, which changes the time of its end.
    fn repace(&mut self, job: JobId) {
        if let Some(schedule) = &mut self.schedule {
            schedule.resize(job, self.now, self.rms.state());
        }
        let state = self.rms.state();
        let Some(entry) = state.jobs().get(&job).filter(|entry| entry.started().is_some()) else { return };
        let job_idx = self.watch.job_idxs[job.0 as usize - 1] as usize;
        if !self.paces.contains_key(&job) {
            self.paces.extend(Pace::new(state, entry, self.workload.run(job_idx)).map(|pace| (job, pace)));
        }
        let Some(pace) = self.paces.get_mut(&job) else { return };
        pace.change(state, entry, self.model, self.now);
        let ended = pace.end();
        if let Some(finished) = &mut self.watch.finished[job_idx] {
            let nodes: f64 = entry.nodes().iter().map(|node| share_asked(state, entry, *node)).sum();
            let share = pace.share(finished.started) * nodes;
            *finished = Finished { ended, node_s: ended.since(finished.started).as_secs_f64() * share, ..*finished };
            let sharing = entry.sharing();
            finished.was_guest |= sharing.is_some_and(|sharing| !sharing.mates.is_empty());
            finished.was_mate |= sharing.is_some_and(|sharing| !sharing.lent.is_empty());
        }
        self.ends.push(Reverse((ended, job, entry.run)));
        self.expect(job);
    }

    /// Commits the step; jobs that have started get their end. Returns the refusal among the effects, if there is one.
    fn commit(&mut self, step: Step) -> Option<Refusal> {
        let Ok(effects) = step.commit(&mut self.watch);
        for (job, run, at) in std::mem::take(&mut self.watch.started) {
            self.begin(job, run, at);
        }
        for resized in std::mem::take(&mut self.watch.resized) {
            self.resize(&resized);
        }
        for job in std::mem::take(&mut self.watch.shared) {
            self.repace(job);
        }
        effects.into_iter().find_map(|effect| match effect {
            Effect::Answer { answer: Err(refusal), ticket: _ } | Effect::RefuseAgent { node: _, refusal } => {
                Some(refusal)
            }
            Effect::Answer { answer: Ok(_), ticket: _ }
            | Effect::Desire { .. }
            | Effect::Signal { .. }
            | Effect::Announce(_)
            | Effect::Sign { .. }
            | Effect::CloseLinks { .. }
            | Effect::LauncherAnswer { .. }
            | Effect::Notify { .. }
            | Effect::NegotiatorAnswer { .. }
            | Effect::TellNegotiator { .. } => None,
        })
    }
}

impl Journal for Watch {
    type Error = Infallible;

    fn append(&mut self, facts: &[Fact]) -> Result<(), Infallible> {
        for fact in facts {
            if let Fact::JobStarted { job, run, at, nodes: _, grants: _, request: _ } = fact {
                self.started.push((*job, *run, *at));
            }
            if let Fact::CpusShared { job, .. } = fact {
                self.shared.push(*job);
            }
            if let Fact::StageEntered { job, at, gained, freed, .. } = fact {
                let (job, at, gained, freed) = (*job, *at, gained.clone(), freed.clone());
                self.resized.push(Resized { job, at, gained, freed });
            }
        }
        Ok(())
    }
}

/// Returns how much of a node a job has: all of it, or the fraction of its cores.
fn share(state: &State, job: &Job, node: NodeId) -> f64 {
    let Some(grant) = job.grants().get(&node) else { return 1.0 };
    let n_cores = state.nodes().get(&node).map_or(1, |entry| entry.inventory.cores.max(1));
    f64::from(grant.cores.len()) / f64::from(n_cores)
}

/// Returns how much of a node a job requested.
fn share_asked(state: &State, job: &Job, node: NodeId) -> f64 {
    // A guest has fewer cores than that, and requested as many as its mate has.
    if job.is_guest_on(node) { 1.0 } else { share(state, job, node) }
}

/// Returns nodes with the names `n1`, `n2`, …
pub fn uniform_nodes(n_nodes: u32, cores_per_node: u32) -> ClusterNodes {
    let names = (1..=n_nodes).map(|number| format!("n{number}")).collect();
    let inventory = Inventory { cores: cores_per_node, cpus: cores_per_node, ..Inventory::default() };
    ClusterNodes { cluster: "c".to_owned(), names, inventory }
}

const PROGRESS_EVERY: usize = 1024;

#[cfg(test)]
mod tests;
