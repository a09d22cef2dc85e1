//! A model node: the real loop of a node, and supervisors that outlive it.

use std::collections::BTreeMap;

use rms_api::desired::{AgentHello, DesiredJob, JobReport};
use rms_core::node_loop::{Disk, ExecutionId, Inbound, JobOrder, Look, LostReason, Made, NodeLoop, Outbound};
use rms_model::{JobId, Run, Span, Time};

use crate::agenda::EventQueue;
use crate::supervisor::Supervisor;

#[derive(Debug)]
pub struct ModelNode {
    pub name: String,
    pub hello: AgentHello,
    pub is_on: bool,
    agent: Option<NodeLoop>,
    /// Counts the agents of this node, so that a timer of one does not wake another.
    pub(crate) life: u64,
    /// Everything in the spool.
    supervisors: BTreeMap<ExecutionId, Supervisor>,
    /// The processes of supervisors, and the agent to which each is connected.
    seats: BTreeMap<String, u64>,
    has_spawner: bool,
    /// The latest order of the server to start each execution.
    desired: BTreeMap<ExecutionId, DesiredJob>,
    doings: EventQueue<NodeAction>,
    /// The time of the last action, before which no later one is done.
    last_at: Time,
    /// How long actions on this node take.
    pub(crate) pace: Span,
    /// Whether the disk is full.
    pub(crate) is_full: bool,
    /// After how many more orders the agent dies.
    pub(crate) dies_after: Option<u32>,
    pub(crate) wakes_at: Option<Time>,
}

/// A pending action on a node.
#[derive(Clone, Debug)]
pub(crate) enum NodeAction {
    /// The agent receives an event.
    Hear(Inbound),
    Spawner,
    MakeSeat(String),
    /// A supervisor receives its order.
    Take {
        seat: String,
        wanted: Box<DesiredJob>,
    },
    Tell {
        execution: ExecutionId,
        what: JobOrder,
    },
    Examine(ExecutionId),
    RemoveEntry(ExecutionId),
    EndLeftovers(ExecutionId, LostReason),
    Look,
}

impl ModelNode {
    pub(crate) fn new(name: String, hello: AgentHello) -> ModelNode {
        ModelNode {
            name,
            hello,
            is_on: true,
            agent: None,
            life: 0,
            supervisors: BTreeMap::new(),
            seats: BTreeMap::new(),
            has_spawner: false,
            desired: BTreeMap::new(),
            doings: EventQueue::new(),
            last_at: Time::EPOCH,
            pace: Span::ZERO,
            is_full: false,
            dies_after: None,
            wakes_at: None,
        }
    }

    pub fn has_agent(&self) -> bool {
        self.agent.is_some()
    }

    /// Starts a new agent, which reads the spool as the real one does; returns its first input.
    pub(crate) fn start_agent(&mut self) -> Inbound {
        self.life += 1;
        // Supervisors without a job end when an agent connects to them and disconnects.
        let (supervisors, doings) = (&self.supervisors, &self.doings);
        let has_order =
            |name: &String| doings.items().any(|doing| matches!(doing, NodeAction::Take { seat, .. } if seat == name));
        self.seats.retain(|name, _| supervisors.values().any(|of| of.seat() == name) || has_order(name));
        self.agent = Some(NodeLoop::new(format!("{}", self.life), N_WARM, "the spool".to_owned()));
        Inbound::Found(self.supervisors.iter().map(|(id, supervisor)| (*id, self.remains(supervisor))).collect())
    }

    fn remains(&self, supervisor: &Supervisor) -> rms_core::node_loop::SpoolEntry {
        supervisor.remains(self.seats.contains_key(supervisor.seat()))
    }

    /// Kills the agent with kill -9: the supervisors of jobs are not affected. Those that have just got an order may
    /// read it.
    pub(crate) fn kill_agent(&mut self, reads_orders: bool) {
        self.dies_after = None;
        self.agent = None;
        self.has_spawner = false;
        self.desired.clear();
        self.doings.retain(|doing| match doing {
            NodeAction::Take { .. } | NodeAction::Tell { .. } => reads_orders,
            NodeAction::Hear(_) | NodeAction::Spawner | NodeAction::MakeSeat(_) | NodeAction::Examine(_) => false,
            NodeAction::RemoveEntry(_) | NodeAction::EndLeftovers(..) | NodeAction::Look => false,
        });
        let (supervisors, doings) = (&self.supervisors, &self.doings);
        self.seats.retain(|name, _| {
            let is_ordered = doings.items().any(|doing| matches!(doing, NodeAction::Take { seat, .. } if seat == name));
            is_ordered || supervisors.values().any(|of| of.seat() == name && of.report_is_open())
        });
    }

    /// Powers the machine off: every process ends. The content of its disk stays.
    pub(crate) fn power_off(&mut self) {
        self.kill_agent(false);
        self.is_on = false;
        self.seats.clear();
        self.supervisors.values_mut().for_each(Supervisor::lose_power);
    }

    /// Wipes the disk, with every result on it.
    pub(crate) fn wipe(&mut self) {
        self.supervisors.clear();
    }

    /// Sends an event to the agent, if there is one.
    pub(crate) fn hear(&mut self, now: Time, inbound: Inbound) {
        if let Some(agent) = &mut self.agent {
            agent.take(now, inbound);
        }
    }

    /// Lets the agent do what is due.
    pub(crate) fn on_time(&mut self, now: Time) {
        if let Some(agent) = &mut self.agent
            && agent.next_timer().is_some_and(|at| at <= now)
        {
            agent.on_time(now);
        }
    }

    /// Returns the agent's orders.
    pub(crate) fn orders(&mut self) -> Vec<Outbound> {
        self.agent.as_mut().map(NodeLoop::orders).unwrap_or_default()
    }

    /// Returns whether the agent lives to perform one more order. Orders that it has performed stay performed; the next
    /// one is not.
    pub(crate) fn lives_on(&mut self) -> bool {
        if self.dies_after == Some(0) {
            self.agent = None;
            return false;
        }
        self.dies_after = self.dies_after.map(|n_left| n_left - 1);
        true
    }

    /// Schedules an action after those that were ordered before.
    pub(crate) fn later(&mut self, now: Time, doing: NodeAction) {
        self.later_by(now, self.pace, doing);
    }

    fn later_by(&mut self, now: Time, span: Span, doing: NodeAction) {
        self.last_at = self.last_at.max(now + span);
        self.doings.push(self.last_at, doing);
    }

    /// Performs an order that concerns only this node; returns orders for the server.
    pub(crate) fn perform(&mut self, now: Time, order: Outbound) -> Option<Outbound> {
        match order {
            Outbound::StartSpawner => self.later(now, NodeAction::Spawner),
            Outbound::MakeSeat { seat } => self.later(now, NodeAction::MakeSeat(seat)),
            Outbound::EndSeat { seat, with_folder: _ } => drop(self.seats.remove(&seat)),
            Outbound::Register(wanted) => drop(self.desired.insert((wanted.job, wanted.run), wanted)),
            Outbound::Order { seat, job, run } => {
                if let Some(wanted) = self.desired.get(&(job, run)).cloned() {
                    self.later(now, NodeAction::Take { seat, wanted: Box::new(wanted) });
                }
            }
            Outbound::Adopt { seat, job, run } => self.adopt(now, seat, (job, run)),
            Outbound::Update(wanted) => {
                let execution = (wanted.job, wanted.run);
                self.desired.insert(execution, wanted);
                self.later(now, NodeAction::Tell { execution, what: JobOrder::Update });
            }
            Outbound::Tell { job, run, what } => self.later(now, NodeAction::Tell { execution: (job, run), what }),
            Outbound::MarkForgotten { job, run } => {
                self.supervisors.get_mut(&(job, run)).into_iter().for_each(Supervisor::mark_forgotten);
            }
            Outbound::RemoveEntry { job, run } => self.later(now, NodeAction::RemoveEntry((job, run))),
            Outbound::Examine { job, run } => self.later(now, NodeAction::Examine((job, run))),
            Outbound::EndLeftovers { job, run, why } => self.later(now, NodeAction::EndLeftovers((job, run), why)),
            Outbound::Look { unkillable: _ } => self.look_later(now),
            Outbound::Drop { job, run } => drop(self.desired.remove(&(job, run))),
            // Nobody follows streams here.
            Outbound::Restore { .. } | Outbound::Detach { .. } | Outbound::Begun { .. } | Outbound::Ended { .. } => {}
            for_server @ (Outbound::Hello { .. }
            | Outbound::Report(_)
            | Outbound::Trouble(_)
            | Outbound::Ask { .. }) => {
                return Some(for_server);
            }
        }
        None
    }

    /// Schedules a check of the disk. Checks of a healthy disk have no effect, so there are few of them.
    fn look_later(&mut self, now: Time) {
        let span = if self.is_full { self.pace } else { LOOK_TAKES };
        self.doings.push(now + span, NodeAction::Look);
    }

    /// Returns what the agent sees now of the disk.
    pub(crate) fn look(&self) -> Look {
        let free = if self.is_full { 0 } else { 1 << 40 };
        let disk = Disk { size: 1 << 41, free, has_files: true, is_out_of_room: self.is_full, is_read_only: false };
        Look { disk: Some(disk), ..Look::default() }
    }

    /// Makes the disk full, or no longer full: the agent's next check sees that at once.
    pub(crate) fn set_full(&mut self, now: Time, is_full: bool) {
        self.is_full = is_full;
        let n_looks = self.doings.retain(|doing| !matches!(doing, NodeAction::Look));
        (0..n_looks).for_each(|_| self.doings.push(now, NodeAction::Look));
    }

    fn adopt(&mut self, now: Time, seat: String, execution: ExecutionId) {
        match (self.seats.get_mut(&seat), self.supervisors.get(&execution)) {
            (Some(life), Some(supervisor)) => {
                *life = self.life;
                let report = supervisor.report();
                self.later(now, NodeAction::Hear(Inbound::Changed(report)));
            }
            _ => self.later(now, NodeAction::Hear(Inbound::SeatGone { seat })),
        }
    }

    pub(crate) fn spawner(&mut self, now: Time) {
        self.has_spawner = true;
        self.later(now, NodeAction::Hear(Inbound::SpawnerStarted(Ok(()))));
    }

    pub(crate) fn make_seat(&mut self, now: Time, seat: String) {
        if !self.has_spawner {
            return;
        }
        if self.is_full {
            let made = Err("no space left on device".to_owned());
            return self.later(now, NodeAction::Hear(Inbound::SeatMade { seat, made }));
        }
        self.seats.insert(seat.clone(), self.life);
        let made = Ok(Made { can_start_over: true });
        self.later(now, NodeAction::Hear(Inbound::SeatMade { seat: seat.clone(), made }));
        self.later(now, NodeAction::Hear(Inbound::SeatIdle { seat }));
    }

    /// Kills the spawner, and with it supervisors without a job.
    pub(crate) fn kill_spawner(&mut self, now: Time) {
        if !std::mem::take(&mut self.has_spawner) || self.agent.is_none() {
            return;
        }
        self.doings.retain(|doing| !matches!(doing, NodeAction::MakeSeat(_)));
        self.later(now, NodeAction::Hear(Inbound::SpawnerGone));
        let idle: Vec<String> = self.seats.keys().filter(|name| !self.is_busy(name)).cloned().collect();
        idle.iter().for_each(|name| self.kill_seat(now, name));
    }

    fn is_busy(&self, name: &str) -> bool {
        self.supervisors.values().any(|of| of.seat() == name)
    }

    /// Kills a supervisor with kill -9: the processes of its job go on unwatched.
    pub(crate) fn kill_seat(&mut self, now: Time, name: &str) {
        let Some(life) = self.seats.remove(name) else { return };
        self.supervisors.values_mut().filter(|of| of.seat() == name).for_each(Supervisor::lose_watcher);
        if life == self.life && self.agent.is_some() {
            self.later(now, NodeAction::Hear(Inbound::SeatGone { seat: name.to_owned() }));
        }
    }

    pub(crate) fn seat_names(&self) -> Vec<String> {
        self.seats.keys().cloned().collect()
    }

    /// Returns whether the supervisor lives to take an order, and no other supervisor has the execution that it is
    /// ordered to start.
    pub(crate) fn claims(&mut self, now: Time, seat: &str, wanted: &DesiredJob) -> bool {
        let Some(life) = self.seats.get(seat).copied() else { return false };
        let is_connected = life == self.life && self.agent.is_some();
        let (job, run) = (wanted.job, wanted.run);
        if self.supervisors.contains_key(&(job, run)) {
            match is_connected {
                true => self.later(now, NodeAction::Hear(Inbound::AlreadyThere { seat: seat.to_owned(), job, run })),
                false => drop(self.seats.remove(seat)),
            }
            return false;
        }
        true
    }

    pub(crate) fn takes(&mut self, supervisor: Supervisor) {
        self.supervisors.insert(supervisor.id(), supervisor);
    }

    /// Sends a message of a supervisor to its agent, if it has one.
    pub(crate) fn says(&mut self, now: Time, seat: &str, inbound: Inbound) {
        let is_connected = self.seats.get(seat).is_some_and(|life| *life == self.life) && self.agent.is_some();
        if is_connected {
            self.later(now, NodeAction::Hear(inbound));
        }
    }

    /// Passes an order to a supervisor that is alive; returns the supervisor if the order removes it.
    pub(crate) fn tell(&mut self, now: Time, execution: ExecutionId, what: &JobOrder) -> Option<Supervisor> {
        let supervisor = self.supervisors.get_mut(&execution)?;
        if !self.seats.contains_key(supervisor.seat()) {
            return None;
        }
        match what {
            JobOrder::Update => {
                if let Some(wanted) = self.desired.get(&execution) {
                    supervisor.update(now, wanted);
                }
            }
            JobOrder::Stop { patience, grace } => supervisor.stop(now, *patience, *grace),
            JobOrder::Kill => supervisor.kill(now),
            JobOrder::Signal { signal } => supervisor.signal(now, *signal),
            JobOrder::Forget { keep: false } if !supervisor.is_alive() => return self.supervisors.remove(&execution),
            // No job here writes too much, asks for more ranks, or keeps streams.
            JobOrder::Forget { .. } | JobOrder::Growth { .. } | JobOrder::SpoolFull | JobOrder::Violated { .. } => {}
        }
        None
    }

    pub(crate) fn examine(&mut self, now: Time, (job, run): ExecutionId) {
        let remains = self.supervisors.get(&(job, run)).map(|of| self.remains(of)).unwrap_or_default();
        self.later(now, NodeAction::Hear(Inbound::Examined { job, run, remains }));
    }

    pub(crate) fn remove_entry(&mut self, now: Time, (job, run): ExecutionId) -> Option<Supervisor> {
        self.later(now, NodeAction::Hear(Inbound::Removed { job, run }));
        self.supervisors.remove(&(job, run))
    }

    /// Ends what is left of an execution, and returns how it counts as ended.
    pub(crate) fn end_leftovers(&mut self, now: Time, (job, run): ExecutionId, why: LostReason) -> Option<JobReport> {
        let report = self.supervisors.get_mut(&(job, run))?.end_leftovers(now, why);
        self.later(now, NodeAction::Hear(Inbound::LeftoversEnded(report.clone())));
        Some(report)
    }

    /// Lets each supervisor that is due do one thing; returns their reports.
    pub(crate) fn advance(&mut self, now: Time) -> Vec<JobReport> {
        let mut reports = Vec::new();
        for supervisor in self.supervisors.values_mut() {
            reports.extend(supervisor.advance(now));
        }
        for report in &reports {
            let seat = self.supervisors[&(report.job, report.run)].seat().to_owned();
            self.says(now, &seat, Inbound::Changed(report.clone()));
            // The result is on disk, and this process is no longer needed.
            let is_orphan = self.seats.get(&seat).is_some_and(|life| *life != self.life || self.agent.is_none());
            if is_orphan && !self.supervisors[&(report.job, report.run)].is_alive() {
                self.seats.remove(&seat);
            }
        }
        reports
    }

    pub(crate) fn pop_due(&mut self, now: Time) -> Option<NodeAction> {
        self.doings.pop_due(now)
    }

    /// Returns when the next event happens here without input.
    pub(crate) fn due(&self) -> Option<Time> {
        let timer = self.agent.as_ref().and_then(NodeLoop::next_timer);
        let supervisors = self.supervisors.values().filter_map(Supervisor::due).min();
        [timer, supervisors, self.doings.next()].into_iter().flatten().min()
    }

    /// Returns whether this is the first node of the execution.
    pub(crate) fn is_first_of(&self, execution: ExecutionId) -> bool {
        self.supervisors.get(&execution).is_some_and(Supervisor::is_first)
    }

    /// Lets the application end its processes here on its own.
    pub(crate) fn leaves(&mut self, now: Time, execution: ExecutionId) {
        if let Some(supervisor) = self.supervisors.get_mut(&execution) {
            supervisor.leave(now);
        }
    }

    /// Returns all entries of the spool.
    pub fn supervisors(&self) -> &BTreeMap<(JobId, Run), Supervisor> {
        &self.supervisors
    }

    /// Returns the executions with processes.
    pub fn alive(&self) -> Vec<(JobId, Run)> {
        self.supervisors.iter().filter(|(_, supervisor)| supervisor.is_alive()).map(|(key, _)| *key).collect()
    }
}

/// How many supervisors wait for a job.
const N_WARM: usize = 1;
/// The time between two checks of a disk that was healthy.
const LOOK_TAKES: Span = Span::from_secs(60);
