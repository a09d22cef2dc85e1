//! The loop of a node, without I/O: takes events and returns orders.
//!
//! It decides which supervisor serves which job, which peer is told what, and what the death of a supervisor, the
//! agent, the spawner or the node means. The driver passes events to [`NodeLoop::take`], calls [`NodeLoop::on_time`]
//! when [`NodeLoop::next_timer`] is due, and carries out what [`NodeLoop::orders`] returns.

mod growth;
mod health;
mod message;
mod remains;
mod seats;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use rms_api::desired::{DesiredJob, JobReport, JobStatus, NodeExit, Stay};
use rms_model::{Span, Time, Usage};

use crate::agent::{self, Agent, AgentEffect, AgentEvent, Told};

use self::growth::GrowthRequests;
pub use self::growth::growth;
use self::health::NodeHealth;
pub use self::message::{Disk, ExecutionId, Growth, Inbound, JobOrder, Look, Made, Outbound, Question};
pub use self::remains::{Entry, LostReason, SpoolEntry, SpoolState};
use self::seats::Seats;

/// The supervisors and jobs of one node.
#[derive(Debug)]
pub struct NodeLoop {
    agent: Agent,
    jobs: BTreeMap<ExecutionId, LocalJob>,
    seats: Seats,
    spawner: Spawner,
    is_linked: bool,
    growth_requests: GrowthRequests,
    /// When requests that no server has answered time out.
    question_timeouts: BTreeMap<u64, Time>,
    /// Forgotten executions, with the time until which their streams are kept.
    lingering: BTreeMap<ExecutionId, Time>,
    /// Jobs that start once the streams of another job with the same number have been removed.
    delayed: BTreeMap<ExecutionId, DesiredJob>,
    health: NodeHealth,
    /// The trouble last reported to the server.
    reported_trouble: Option<String>,
    /// When the disk is checked next; `None` during a check.
    look_at: Option<Time>,
    /// The check in progress began before a start failed.
    is_look_stale: bool,
    /// A start has failed, and a check must show whether that was the disk: reports of failed starts wait for it.
    has_fault: bool,
    unstarted: Vec<JobReport>,
    out: Vec<Outbound>,
}

/// What is kept about an execution.
#[derive(Debug)]
struct LocalJob {
    stay: Stay,
    told: Told,
    is_streamed: bool,
    has_ended: bool,
    /// It was told that it violates a rule.
    is_violated: bool,
    /// The order to end it, which a supervisor that died may not have received.
    stop: Option<JobOrder>,
    /// Its spool entry is being examined, for this reason.
    examined: Option<ExamineReason>,
}

/// Why the spool entry of an execution is examined.
#[derive(Debug)]
enum ExamineReason {
    /// Its supervisor is gone; what is left of that is under this name.
    Gone { seat: String },
    /// Another supervisor serves it.
    AlreadyThere,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spawner {
    Starting,
    Running,
    /// The time of the next try.
    Down(Time),
}

/// How often a node checks its disk. The output of a job in one second fills only a disk that is nearly full.
const LOOK_INTERVAL: Span = Span::from_secs(1);
/// A spawner that dies repeatedly means a broken installation; the pause keeps restarts from burning a CPU.
const SPAWNER_PAUSE: Span = Span::from_secs(1);
/// A restarted server is back sooner.
const SERVER_TIMEOUT: Span = Span::from_secs(10);
/// How long the streams of an ended job are kept for a client that has lost its connection to them.
const LINGER: Span = Span::from_secs(600);
/// How long they are kept on a disk that is full.
const LEAST_LINGER: Span = Span::from_secs(30);

impl NodeLoop {
    /// Creates the loop of a node with this spool and `n_warm` idle supervisors. The names of seats begin with
    /// `seat_prefix`, which no earlier agent used. The first event must be [`Inbound::Found`].
    pub fn new(seat_prefix: String, n_warm: usize, spool: String) -> NodeLoop {
        NodeLoop {
            agent: Agent::new(),
            jobs: BTreeMap::new(),
            seats: Seats::new(seat_prefix, n_warm),
            spawner: Spawner::Starting,
            is_linked: false,
            growth_requests: GrowthRequests::default(),
            question_timeouts: BTreeMap::new(),
            lingering: BTreeMap::new(),
            delayed: BTreeMap::new(),
            health: NodeHealth::new(spool),
            reported_trouble: None,
            look_at: None,
            is_look_stale: false,
            has_fault: false,
            unstarted: Vec::new(),
            out: Vec::new(),
        }
    }

    /// Takes the orders, in the sequence in which to carry them out.
    pub fn orders(&mut self) -> Vec<Outbound> {
        std::mem::take(&mut self.out)
    }

    /// Returns the execution that a supervisor serves.
    pub fn serves(&self, seat: &str) -> Option<ExecutionId> {
        self.seats.serves(seat)
    }

    /// Returns when to call [`on_time`](NodeLoop::on_time) if no event arrives.
    pub fn next_timer(&self) -> Option<Time> {
        let respawn = match self.spawner {
            Spawner::Down(until) => Some(until),
            Spawner::Starting | Spawner::Running => None,
        };
        let timeouts = self.question_timeouts.values().chain(self.lingering.values()).copied().min();
        [self.look_at, respawn, timeouts].into_iter().flatten().min()
    }

    /// Handles the timers that are due.
    pub fn on_time(&mut self, now: Time) {
        if self.look_at.is_some_and(|at| at <= now) {
            self.look();
        }
        if matches!(self.spawner, Spawner::Down(until) if until <= now) {
            self.spawner = Spawner::Starting;
            self.out.push(Outbound::StartSpawner);
        }
        for seq in take_due(&mut self.question_timeouts, now) {
            self.answer_growth(seq, Growth::Refused { reason: "the server is out of reach".to_owned() });
        }
        self.drop_streams(now);
    }

    /// Removes the kept streams of jobs for which nobody has to wait until this time.
    fn drop_streams(&mut self, until: Time) {
        for execution in take_due(&mut self.lingering, until) {
            self.drop_job(execution);
            self.remove_entry(execution);
        }
    }

    /// Handles an event. `now` must not decrease.
    pub fn take(&mut self, now: Time, inbound: Inbound) {
        match inbound {
            Inbound::Found(found) => self.found(now, found),
            Inbound::Desired(desired) => self.handle_agent_event(now, AgentEvent::Desired(desired)),
            Inbound::Signal { job, run, signal } => self.tell((job, run), JobOrder::Signal { signal }),
            Inbound::LinkUp => self.link_up(now),
            Inbound::LinkDown => {
                self.is_linked = false;
                let open = self.growth_requests.all().map(|(seq, _)| (seq, now + SERVER_TIMEOUT));
                self.question_timeouts.extend(open);
            }
            Inbound::Grown { seq, result } => self.answer_growth(seq, result),
            Inbound::SpawnerStarted(Ok(())) => {
                self.spawner = Spawner::Running;
                self.assign_seats();
            }
            Inbound::SpawnerStarted(Err(error)) => {
                self.spawner = Spawner::Down(now + SPAWNER_PAUSE);
                let reason = format!("cannot start a spawner: {error}");
                self.fault(now, &reason);
                while let Some(execution) = self.seats.pop_waiting() {
                    self.not_started(now, execution, NodeExit::at_fault(&reason));
                }
            }
            Inbound::SpawnerGone => {
                // Idle supervisors ended with it; those with jobs did not.
                self.spawner = Spawner::Down(now + SPAWNER_PAUSE);
                self.seats.spawner_gone(&mut self.out);
            }
            Inbound::SeatMade { seat, made } => self.seat_made(now, seat, made),
            Inbound::SeatIdle { seat } => {
                self.seats.is_idle(&seat);
                self.assign_seats();
            }
            Inbound::SeatGone { seat } => self.seat_gone(seat),
            Inbound::AlreadyThere { seat, job, run } => {
                self.seats.hand_back(&seat);
                self.out.push(Outbound::Detach { job, run });
                self.examine((job, run), ExamineReason::AlreadyThere);
                self.assign_seats();
            }
            Inbound::Changed(report) => self.changed(now, report),
            Inbound::Fault { reason } => self.fault(now, &reason),
            Inbound::Unkillable { pids } => {
                self.health.add_unkillable(pids);
                self.report_health();
            }
            Inbound::AskGrowth { seat, seq, nodes, least } => self.ask_growth(now, &seat, seq, nodes, least),
            Inbound::Examined { job, run, remains } => self.examined(now, (job, run), &remains),
            Inbound::Removed { job, run } => {
                self.seats.removed((job, run));
                if let Some(desired) = self.delayed.remove(&(job, run)) {
                    self.start(desired);
                }
                self.assign_seats();
            }
            Inbound::LeftoversEnded(report) => self.changed(now, report),
            Inbound::SpoolMade => {
                self.seats.end_idle(&mut self.out);
                self.assign_seats();
            }
            Inbound::Looked(look) => self.looked(now, look),
        }
    }

    /// Takes over the executions that earlier agents have left.
    fn found(&mut self, now: Time, found: Vec<(ExecutionId, SpoolEntry)>) {
        let mut known = Vec::new();
        for (execution, remains) in found {
            let (job, run) = execution;
            let meaning = remains.meaning();
            if meaning == SpoolState::Nothing {
                continue;
            }
            let has_ended = match meaning {
                SpoolState::Alive | SpoolState::Nothing => false,
                SpoolState::Ended(_) | SpoolState::Forgotten | SpoolState::Vanished(_) => true,
            };
            if remains.entry.is_some() {
                self.out.push(Outbound::Restore { job, run, has_ended });
            }
            let local = LocalJob::found(&remains, matches!(meaning, SpoolState::Ended(_) | SpoolState::Forgotten));
            let (stay, told) = (local.stay, local.told);
            self.jobs.insert(execution, local);
            let report = match meaning {
                SpoolState::Nothing => continue,
                SpoolState::Forgotten => {
                    let end = remains.result.as_ref().and_then(|report| match report.status {
                        JobStatus::Ended { at, .. } => Some(at.min(now)),
                        JobStatus::Running { .. } | JobStatus::Starting => None,
                    });
                    // Whoever follows its streams finds the agent again within the shorter time.
                    let until = (end.unwrap_or(now) + LINGER).max(now + LEAST_LINGER);
                    self.lingering.insert(execution, until);
                    continue;
                }
                SpoolState::Ended(report) => report,
                SpoolState::Alive => {
                    self.adopt(execution, &remains);
                    starting_report(execution)
                }
                SpoolState::Vanished(why) => {
                    self.out.push(Outbound::EndLeftovers { job, run, why });
                    starting_report(execution)
                }
            };
            known.push(agent::Found { report, stay, told });
        }
        self.handle_agent_event(now, AgentEvent::Found(known));
        self.look_at = Some(now);
        self.out.push(Outbound::StartSpawner);
    }

    fn link_up(&mut self, now: Time) {
        self.is_linked = true;
        self.question_timeouts.clear();
        self.reported_trouble = self.health.reason();
        self.out.push(Outbound::Hello { report: self.agent.full_report(), trouble: self.reported_trouble.clone() });
        let asks = self.growth_requests.all().map(|(seq, question)| Outbound::Ask { seq, question: question.clone() });
        self.out.extend(asks);
        // Servers of older versions ignore the trouble in a hello; and no hello says that the node works again.
        self.out.push(Outbound::Trouble(self.reported_trouble.clone()));
        self.handle_agent_event(now, AgentEvent::LinkUp);
    }

    fn handle_agent_event(&mut self, now: Time, event: AgentEvent) {
        let effects = self.agent.handle(event);
        let has_starts = effects.iter().any(|effect| matches!(effect, AgentEffect::Start(_)));
        for effect in effects {
            match effect {
                AgentEffect::Start(desired) => self.start(desired),
                AgentEffect::Update(desired) => {
                    if let Some(delayed) = self.delayed.get_mut(&(desired.job, desired.run)) {
                        *delayed = desired;
                    } else if let Some(local) = self.jobs.get_mut(&(desired.job, desired.run)) {
                        local.told = Told::by(&desired);
                        self.out.push(Outbound::Update(desired));
                    }
                }
                AgentEffect::Stop { job, run, patience, grace } => {
                    self.stop(now, (job, run), JobOrder::Stop { patience, grace });
                }
                AgentEffect::Kill { job, run } => self.stop(now, (job, run), JobOrder::Kill),
                AgentEffect::Forget { job, run } => self.forget(now, (job, run)),
                AgentEffect::Report(report) if self.is_linked => self.out.push(Outbound::Report(report)),
                // The next hello includes it.
                AgentEffect::Report(_) => {}
            }
        }
        // Assigned together, so that no supervisor just freed is ended while one of these jobs needs it.
        if has_starts {
            self.assign_seats();
        }
    }

    fn start(&mut self, desired: DesiredJob) {
        let execution = (desired.job, desired.run);
        // The job may have left this node and come back: what was kept for followers is replaced.
        let was_kept = self.lingering.remove(&execution).is_some();
        let comes_back = |stay: Stay| stay.submitted == desired.launch.submitted && stay.is_before(desired.stay());
        if was_kept && self.jobs.get(&execution).is_some_and(|local| !comes_back(local.stay)) {
            // The streams of one job must not be read as those of another, nor as those of this run: a server that was
            // restored from a backup starts it again.
            self.drop_job(execution);
            self.remove_entry(execution);
            self.delayed.insert(execution, desired);
            return;
        }
        let local = LocalJob::new(desired.stay(), Told::by(&desired), desired.launch.execution.stdio.is_followed());
        self.jobs.insert(execution, local);
        self.out.push(Outbound::Register(desired));
        self.seats.wait(execution, false);
    }

    /// Assigns supervisors to waiting executions.
    fn assign_seats(&mut self) {
        let has_spawner = self.spawner == Spawner::Running;
        for ((job, run), seat) in self.seats.assign(has_spawner, &mut self.out) {
            self.out.push(Outbound::Order { seat, job, run });
        }
    }

    fn stop(&mut self, now: Time, execution: ExecutionId, what: JobOrder) {
        if let Some(local) = self.jobs.get_mut(&execution) {
            local.stop = Some(what.clone());
        }
        if self.delayed.remove(&execution).is_some() || self.seats.stop_waiting(execution) {
            self.not_started(now, execution, NodeExit::Ordered);
        } else {
            self.tell(execution, what);
        }
    }

    fn tell(&mut self, (job, run): ExecutionId, what: JobOrder) {
        if self.seats.seat_of((job, run)).is_some() {
            self.out.push(Outbound::Tell { job, run, what });
        }
    }

    fn not_started(&mut self, now: Time, (job, run): ExecutionId, exit: NodeExit) {
        let status = JobStatus::Ended { at: now, exit, usage: Usage::default() };
        self.changed(now, JobReport { job, run, status });
    }

    fn seat_made(&mut self, now: Time, seat: String, made: Result<Made, String>) {
        match made {
            Ok(made) if self.seats.made(&seat, made) => {}
            // Its spawner is gone, so this supervisor ends, too.
            Ok(_) => self.out.push(Outbound::EndSeat { seat, with_folder: true }),
            Err(reason) => {
                let is_expected = self.seats.not_made(&seat);
                self.out.push(Outbound::EndSeat { seat, with_folder: true });
                if !is_expected {
                    return;
                }
                self.fault(now, &reason);
                if let Some(execution) = self.seats.pop_waiting() {
                    self.not_started(now, execution, NodeExit::at_fault(&reason));
                }
            }
        }
    }

    fn seat_gone(&mut self, seat: String) {
        let Some(gone) = self.seats.gone(&seat) else { return };
        if let Some(before) = gone.cleared {
            let is_needed = self.jobs.get(&before).is_some_and(|local| !local.has_ended);
            // Another supervisor may have taken its name.
            if !is_needed || self.seats.seat_of(before).is_none() {
                self.remove_entry(before);
            }
        }
        let Some((job, run)) = gone.serves else {
            self.out.push(Outbound::EndSeat { seat, with_folder: true });
            return self.assign_seats();
        };
        self.out.push(Outbound::Detach { job, run });
        match self.jobs.get(&(job, run)) {
            // It ended before it read the order to forget.
            None => {
                self.remove_entry((job, run));
                self.out.push(Outbound::EndSeat { seat, with_folder: false });
            }
            Some(local) if local.has_ended => self.out.push(Outbound::EndSeat { seat, with_folder: false }),
            Some(_) => self.examine((job, run), ExamineReason::Gone { seat }),
        }
        self.assign_seats();
    }

    fn examine(&mut self, (job, run): ExecutionId, why: ExamineReason) {
        if let Some(local) = self.jobs.get_mut(&(job, run)) {
            local.examined = Some(why);
            self.out.push(Outbound::Examine { job, run });
        }
    }

    fn examined(&mut self, now: Time, execution: ExecutionId, remains: &SpoolEntry) {
        let (job, run) = execution;
        let Some(local) = self.jobs.get_mut(&execution) else { return };
        let Some(why) = local.examined.take() else { return };
        let is_earlier = remains.is_before(local.stay);
        let meaning = match (remains.meaning(), &why) {
            (_, _) if is_earlier => SpoolState::Nothing,
            // It closed its connection, or sent something that cannot be parsed.
            (SpoolState::Alive, ExamineReason::Gone { .. }) => SpoolState::Vanished(LostReason::SupervisorKilled),
            (SpoolState::Forgotten, _) => SpoolState::Vanished(LostReason::EntryDamaged),
            (meaning, _) => meaning,
        };
        let is_gone = matches!(why, ExamineReason::Gone { .. });
        if let ExamineReason::Gone { seat } = why {
            // Its folder has the name of the execution, unless it was killed before the execution began.
            self.out.push(Outbound::EndSeat { seat, with_folder: meaning == SpoolState::Nothing });
        }
        match meaning {
            SpoolState::Nothing => {
                if is_earlier && !self.seats.is_being_cleared(execution) {
                    self.remove_entry(execution);
                }
                self.wait_again(now, execution, is_gone);
            }
            SpoolState::Alive => self.adopt(execution, remains),
            SpoolState::Ended(report) => self.changed(now, report),
            SpoolState::Vanished(why) => self.out.push(Outbound::EndLeftovers { job, run, why }),
            SpoolState::Forgotten => {}
        }
        self.assign_seats();
    }

    /// Queues an execution again that no supervisor has begun, unless it is to end.
    fn wait_again(&mut self, now: Time, execution: ExecutionId, is_first: bool) {
        let is_to_end = self.jobs.get(&execution).is_some_and(|local| local.stop.is_some());
        match is_to_end {
            true => self.not_started(now, execution, NodeExit::Ordered),
            false => self.seats.wait(execution, is_first),
        }
    }

    /// Uses the supervisor of an earlier agent that serves the execution.
    fn adopt(&mut self, execution: ExecutionId, remains: &SpoolEntry) {
        let Some(entry) = &remains.entry else { return };
        let (job, run) = execution;
        let seat = entry.seat.clone();
        self.seats.adopt(seat.clone(), entry.can_start_over, execution);
        self.out.push(Outbound::Adopt { seat, job, run });
        let Some(local) = self.jobs.get(&execution) else { return };
        let is_outdated = local.told != entry.told;
        let stop = local.stop.clone();
        for what in is_outdated.then_some(JobOrder::Update).into_iter().chain(stop) {
            self.tell(execution, what);
        }
    }

    fn changed(&mut self, now: Time, report: JobReport) {
        let (job, run) = (report.job, report.run);
        match &report.status {
            JobStatus::Starting => self.begun((job, run)),
            JobStatus::Running { .. } => {
                self.health.start_succeeded();
                self.begun((job, run));
            }
            JobStatus::Ended { exit: NodeExit::NotStarted { .. }, .. } if self.has_fault => {
                return self.unstarted.push(report);
            }
            JobStatus::Ended { exit, .. } => {
                if !matches!(exit, NodeExit::NotStarted { .. }) {
                    self.health.start_succeeded();
                }
                self.seats.begun((job, run));
                self.out.push(Outbound::Ended { job, run });
                if let Some(local) = self.jobs.get_mut(&(job, run)) {
                    local.has_ended = true;
                }
            }
        }
        self.handle_agent_event(now, AgentEvent::Changed(report));
    }

    fn begun(&mut self, (job, run): ExecutionId) {
        self.seats.begun((job, run));
        self.out.push(Outbound::Begun { job, run });
    }

    /// Forgets an execution whose result the server has. The streams of a followed job are kept for a while.
    fn forget(&mut self, now: Time, execution: ExecutionId) {
        let (job, run) = execution;
        let Some(local) = self.jobs.get(&execution) else { return self.remove_entry(execution) };
        let keep = local.is_streamed;
        let has_seat = self.seats.seat_of(execution).is_some();
        self.tell(execution, JobOrder::Forget { keep });
        if self.seats.free(execution, !keep) {
            self.out.push(Outbound::Detach { job, run });
        }
        if keep {
            self.out.push(Outbound::MarkForgotten { job, run });
            self.lingering.insert(execution, now + LINGER);
            return;
        }
        self.drop_job(execution);
        if !has_seat {
            self.remove_entry(execution);
        }
    }

    fn drop_job(&mut self, (job, run): ExecutionId) {
        if self.jobs.remove(&(job, run)).is_some() {
            self.out.push(Outbound::Drop { job, run });
        }
    }

    fn remove_entry(&mut self, (job, run): ExecutionId) {
        self.seats.removing((job, run));
        self.out.push(Outbound::RemoveEntry { job, run });
    }

    /// Asks for more nodes for ranks for which the job has no room.
    fn ask_growth(&mut self, now: Time, seat: &str, seq: u64, nodes: u32, least: u32) {
        let Some((job, run)) = self.seats.serves(seat) else { return };
        match self.growth_requests.open(job, run, seq, nodes, least) {
            Ok(own_seq) => match self.growth_requests.get(own_seq) {
                Some(question) if self.is_linked => {
                    self.out.push(Outbound::Ask { seq: own_seq, question: question.clone() });
                }
                // Without a server, ranks must not wait long.
                Some(_) | None => drop(self.question_timeouts.entry(own_seq).or_insert(now + SERVER_TIMEOUT)),
            },
            Err(result) => self.tell((job, run), JobOrder::Growth { seq, result }),
        }
    }

    fn answer_growth(&mut self, seq: u64, result: Growth) {
        self.question_timeouts.remove(&seq);
        let Some(question) = self.growth_requests.close(seq) else { return };
        self.tell((question.job, question.run), JobOrder::Growth { seq: question.seq, result });
    }

    fn look(&mut self) {
        self.look_at = None;
        self.out.push(Outbound::Look { unkillable: self.health.unkillable().to_vec() });
    }

    fn looked(&mut self, now: Time, look: Look) {
        self.look_at = Some(now + LOOK_INTERVAL);
        self.health.update(&look);
        self.health.on_time(now);
        self.report_health();
        if self.health.is_full() {
            // Running jobs come before what is only kept; followers have had the time to read it.
            self.drop_streams(now + LINGER - LEAST_LINGER);
        }
        if look.disk.is_some_and(|disk| disk.is_out_of_room) {
            let running: Vec<ExecutionId> =
                self.jobs.iter().filter(|(_, local)| !local.has_ended).map(|(id, _)| *id).collect();
            running.into_iter().for_each(|execution| self.tell(execution, JobOrder::SpoolFull));
        }
        for (execution, reason) in look.violations {
            let running = self.jobs.get_mut(&execution).filter(|local| !local.has_ended);
            if running.is_some_and(|local| !std::mem::replace(&mut local.is_violated, true)) {
                self.tell(execution, JobOrder::Violated { reason });
            }
        }
        if std::mem::take(&mut self.is_look_stale) {
            return self.look();
        }
        self.has_fault = false;
        for report in std::mem::take(&mut self.unstarted) {
            self.changed(now, report);
        }
    }

    /// Reports whether the node can start jobs, when that has changed.
    fn report_health(&mut self) {
        let reason = self.health.reason();
        if self.is_linked && reason != self.reported_trouble {
            self.out.push(Outbound::Trouble(reason.clone()));
            self.reported_trouble = reason;
        }
    }

    /// Handles a failed start that was not the job's fault. The server must hear whether it was the disk before it
    /// hears of the job.
    fn fault(&mut self, now: Time, reason: &str) {
        self.health.start_failed(reason, now);
        self.report_health();
        self.has_fault = true;
        match self.look_at {
            Some(_) => self.look(),
            None => self.is_look_stale = true,
        }
    }
}

impl LocalJob {
    fn new(stay: Stay, told: Told, is_streamed: bool) -> LocalJob {
        LocalJob { stay, told, is_streamed, has_ended: false, is_violated: false, stop: None, examined: None }
    }

    fn found(remains: &SpoolEntry, has_ended: bool) -> LocalJob {
        let unread = Told { generation: 1, wall: Span::ZERO };
        let unknown = (Stay::UNKNOWN, unread, false);
        let (stay, told, is_streamed) =
            remains.entry.as_ref().map_or(unknown, |entry| (entry.stay, entry.told, entry.is_streamed));
        LocalJob { has_ended, ..LocalJob::new(stay, told, is_streamed) }
    }
}

/// Returns the report of a job that has only been started.
fn starting_report((job, run): ExecutionId) -> JobReport {
    JobReport { job, run, status: JobStatus::Starting }
}

/// Removes and returns the keys that are due.
fn take_due<K: Copy + Ord>(timers: &mut BTreeMap<K, Time>, now: Time) -> Vec<K> {
    let due: Vec<K> = timers.iter().filter(|(_, at)| **at <= now).map(|(key, _)| *key).collect();
    timers.retain(|key, _| !due.contains(key));
    due
}
