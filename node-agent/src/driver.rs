//! Drives the node loop: feeds it events of supervisors, spawner and server, and carries out its orders.

pub mod look;
mod trouble_log;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rms_api::desired::{JobStatus, NodeReport};
use rms_core::NodeLoop;
use rms_core::node_loop::{ExecutionId, Inbound, JobOrder, LostReason, Made, Outbound, Question, SpoolState};
use rms_model::error::chain;
use rms_model::{JobId, Run, Span, Time};
use tokio::process::Child;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use self::trouble_log::TroubleLog;
use crate::cgroup::Cgroup;
use crate::frame;
use crate::leftovers;
use crate::order::{FromSupervisor, InputCount, Order, ToSupervisor};
use crate::pmi::JobNode;
use crate::pmi::frames::HubFrame;
use crate::seat::{self, Events, SeatEvent};
use crate::setup::Setup;
use crate::share::{Share, Shares, ToSeat, push};
use crate::slow_teams;
use crate::spawner::{self, SeatMade, SeatOrder};
use crate::spool;
use crate::supervisor::{now, seat_socket};
use crate::takeover::{self, Recovered};
use crate::work_queues::{WorkKey, WorkQueues};

/// Events for the node's task.
#[derive(Debug)]
pub enum NodeEvent {
    Inbound(Inbound),
    /// The server is connected.
    LinkUp(Box<dyn Reporter>),
    LinkDown,
    SpawnerStarted(io::Result<(UnixStream, Child)>),
    /// The connection to a new supervisor, or why there is none.
    Connected {
        seat: String,
        connected: Result<(UnixStream, i32), String>,
    },
    /// The remains of an execution in the spool.
    Examined {
        job: JobId,
        run: Run,
        recovered: Recovered,
    },
}

/// Sends reports to the server.
pub trait Reporter: Send + std::fmt::Debug {
    /// Reports all jobs of the node and, if so, why no other job can start here.
    fn hello(&self, report: &NodeReport, trouble: Option<&str>);
    fn report(&self, report: &NodeReport);
    /// Reports why no job can start here; `None` if the node is healthy.
    fn trouble(&self, reason: Option<&str>);
    /// Requests more nodes for a job; the answer is an [`Inbound::Grown`].
    fn ask(&self, seq: u64, question: &Question);
}

/// Sends frames to the other nodes of a job.
pub trait PeerTransport: Send + Sync + std::fmt::Debug {
    fn send_frame(&self, share: &Share, node: &JobNode, frame: HubFrame);
    /// Restores the connection to the hub for an execution that was taken over from an earlier agent.
    fn resume(&self, share: &Share);
}

/// The driver of the node. Its task never waits for a disk, a process or a peer.
#[derive(Debug)]
pub struct Node {
    setup: Arc<Setup>,
    node_loop: NodeLoop,
    /// The time and instant at which the loop started.
    started_at: (Time, Instant),
    shares: Shares,
    seats: BTreeMap<String, SupervisorLink>,
    /// Executions found in the spool that the loop has not handled yet.
    found: BTreeMap<ExecutionId, Recovered>,
    spawner: Option<(ToSeat, Child)>,
    /// When full, supervisors and the uplink wait for this task.
    seat_events: Events,
    events: mpsc::Sender<NodeEvent>,
    work_queues: WorkQueues,
    reporter: Option<Box<dyn Reporter>>,
    trouble_log: TroubleLog,
    transport: Arc<dyn PeerTransport>,
}

/// The connection to one supervisor.
#[derive(Debug)]
struct SupervisorLink {
    to: ToSeat,
    pid: i32,
    cgroup: Cgroup,
}

/// Does work beside the runtime's threads: before the node serves, all of them may wait to report the ends of jobs.
async fn on_own_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let (done, result) = oneshot::channel();
    thread::Builder::new().spawn(move || drop(done.send(work())))?;
    result.await.map_err(io::Error::other)
}

impl Node {
    pub fn new(
        setup: Arc<Setup>,
        shares: Shares,
        transport: Arc<dyn PeerTransport>,
        seat_events: Events,
        events: mpsc::Sender<NodeEvent>,
    ) -> Node {
        let seat_prefix = format!("{:x}-{:x}", now().as_millis(), std::process::id());
        let spool = setup.spool.dir().display().to_string();
        Node {
            node_loop: NodeLoop::new(seat_prefix, setup.n_warm, spool),
            started_at: (now(), Instant::now()),
            setup,
            shares,
            seats: BTreeMap::new(),
            found: BTreeMap::new(),
            spawner: None,
            seat_events,
            events,
            work_queues: WorkQueues::default(),
            reporter: None,
            trouble_log: TroubleLog::default(),
            transport,
        }
    }

    /// Takes over running jobs. Call it once, before [`run`](Node::run).
    ///
    /// # Errors
    /// The spool cannot be read.
    pub async fn open(&mut self) -> io::Result<()> {
        takeover::clear_seats(&self.setup.spool.seats_dir());
        let boot = spool::boot_id();
        for (job, run, _) in self.setup.spool.entries()? {
            self.found.insert((job, run), takeover::examine(&self.setup.spool, job, run, &boot));
        }
        let remains = |(id, recovered): (&ExecutionId, &Recovered)| (*id, recovered.remains.clone());
        let found: Vec<_> = self.found.iter().map(remains).collect();
        let n_found = found.iter().filter(|(_, remains)| is_job(&remains.meaning())).count();
        if n_found > 0 {
            tracing::info!(n_found, "took over the jobs of an earlier agent");
        }
        self.take(Inbound::Found(found));
        self.found.clear();
        self.setup.keys.clear();
        // Done before the server knows the node, or it would send jobs that cannot start here.
        let (setup, shares) = (Arc::clone(&self.setup), self.shares.clone());
        let look = on_own_thread(move || look::look(&setup, &shares, Vec::new())).await?;
        self.take(Inbound::Looked(look));
        let (cgroups, alive) = (self.setup.cgroups.clone(), self.seats.keys().cloned().collect::<Vec<_>>());
        on_own_thread(move || leftovers::clear_all(&cgroups, &alive)).await
    }

    /// Serves until both queues are closed.
    pub async fn run(mut self, mut seat_events: mpsc::Receiver<SeatEvent>, mut events: mpsc::Receiver<NodeEvent>) {
        let sleep = tokio::time::sleep_until(self.started_at.1);
        tokio::pin!(sleep);
        loop {
            let timer = self.node_loop.next_timer().map(|at| self.instant(at));
            if let Some(at) = timer.filter(|at| *at != sleep.deadline()) {
                sleep.as_mut().reset(at);
            }
            tokio::select! {
                () = sleep.as_mut(), if timer.is_some() => {
                    self.node_loop.on_time(self.time());
                    self.run_orders();
                }
                Some(event) = seat_events.recv() => self.seat_event(event),
                Some(event) = events.recv() => self.event(event),
                else => return,
            }
        }
    }

    /// Returns the loop's time, which never goes back.
    fn time(&self) -> Time {
        let (time, instant) = self.started_at;
        time + Span::from_millis(i64::try_from(instant.elapsed().as_millis()).unwrap_or(i64::MAX))
    }

    fn instant(&self, at: Time) -> Instant {
        let (time, instant) = self.started_at;
        // The loop counts in milliseconds, and this must not be before its time.
        instant + at.since(time).to_std() + Duration::from_millis(1)
    }

    fn event(&mut self, event: NodeEvent) {
        match event {
            NodeEvent::Inbound(inbound) => self.take(inbound),
            NodeEvent::LinkUp(reporter) => {
                self.reporter = Some(reporter);
                self.take(Inbound::LinkUp);
            }
            NodeEvent::LinkDown => {
                self.reporter = None;
                self.take(Inbound::LinkDown);
            }
            NodeEvent::SpawnerStarted(started) => self.spawner_started(started),
            NodeEvent::Connected { seat, connected } => self.connected(seat, connected),
            NodeEvent::Examined { job, run, recovered } => {
                let remains = recovered.remains.clone();
                self.found.insert((job, run), recovered);
                self.take(Inbound::Examined { job, run, remains });
                self.found.clear();
            }
        }
    }

    fn seat_event(&mut self, event: SeatEvent) {
        match event {
            SeatEvent::Made(SeatMade { name: seat, made: Ok(pid) }) => self.connect(seat, pid),
            SeatEvent::Made(SeatMade { name: seat, made: Err(error) }) => {
                self.connected(seat, Err(format!("cannot make a supervisor: {error}")));
            }
            SeatEvent::Message { seat, message } => self.seat_message(seat, message),
            SeatEvent::Bytes { seat, stream, bytes } => {
                if let Some(share) = self.share_of(&seat) {
                    share.receive_bytes(stream, bytes);
                }
            }
            SeatEvent::Closed { seat } => self.take(Inbound::SeatGone { seat }),
            SeatEvent::SpawnerGone => {
                tracing::error!("the spawner has ended; starting another");
                if let Some((_, mut child)) = self.spawner.take() {
                    tokio::spawn(async move { child.wait().await });
                }
                self.take(Inbound::SpawnerGone);
            }
        }
    }

    fn seat_message(&mut self, seat: String, message: FromSupervisor) {
        match message {
            FromSupervisor::Idle => self.take(Inbound::SeatIdle { seat }),
            FromSupervisor::Job(report) => {
                match &report.status {
                    JobStatus::Ended { exit, .. } => {
                        tracing::debug!(job = %report.job, run = %report.run, ?exit, "ended");
                    }
                    // The job's nodes or cores have changed.
                    JobStatus::Running { generation: 2.., is_confined: true, .. } => {
                        if let Some(share) = self.share_of(&seat) {
                            let id = WorkKey::Execution(report.job, report.run);
                            self.work_queues.add(id, move || slow_teams::warn_of(&share));
                        }
                    }
                    JobStatus::Running { .. } | JobStatus::Starting => {}
                }
                self.take(Inbound::Changed(report));
            }
            FromSupervisor::Fault { reason } => {
                tracing::error!(reason, "cannot start a job, through a fault of this node");
                self.take(Inbound::Fault { reason });
            }
            FromSupervisor::Unkillable { pids } => {
                tracing::error!(?pids, seat, "processes of a job cannot be killed");
                self.take(Inbound::Unkillable { pids });
            }
            FromSupervisor::AlreadyThere { job, run } => self.take(Inbound::AlreadyThere { seat, job, run }),
            FromSupervisor::AskGrowth { seq, nodes, least } => {
                tracing::info!(seat, nodes, least, "ranks ask for more nodes");
                self.take(Inbound::AskGrowth { seat, seq, nodes, least });
            }
            FromSupervisor::Pmi { node, frame } => {
                if let Some(share) = self.share_of(&seat) {
                    self.transport.send_frame(&share, &node, frame);
                }
            }
            about_streams @ (FromSupervisor::ExecStarted { .. }
            | FromSupervisor::ExecEnded { .. }
            | FromSupervisor::ExecFailed { .. }
            | FromSupervisor::Taken { .. }
            | FromSupervisor::StepTaskEnded { .. }
            | FromSupervisor::StepAborted { .. }
            | FromSupervisor::StepPmi { .. }
            | FromSupervisor::StepDone { .. }
            | FromSupervisor::StepFailed { .. }) => {
                if let Some(share) = self.share_of(&seat) {
                    share.receive(about_streams);
                }
            }
        }
    }

    fn share_of(&self, seat: &str) -> Option<Share> {
        let (job, run) = self.node_loop.serves(seat)?;
        self.shares.get(job, run)
    }

    fn take(&mut self, inbound: Inbound) {
        self.node_loop.take(self.time(), inbound);
        self.run_orders();
    }

    /// Carries out the loop's orders, and those that follow from their results.
    fn run_orders(&mut self) {
        let mut follow_ups = VecDeque::new();
        loop {
            for order in self.node_loop.orders() {
                self.run_order(order, &mut follow_ups);
            }
            let Some(inbound) = follow_ups.pop_front() else { return };
            self.node_loop.take(self.time(), inbound);
        }
    }

    /// Carries out one order; immediate results go to `follow_ups`.
    fn run_order(&mut self, order: Outbound, follow_ups: &mut VecDeque<Inbound>) {
        match order {
            Outbound::StartSpawner => self.start_spawner(),
            Outbound::MakeSeat { seat } => self.make_seat(seat),
            Outbound::EndSeat { seat, with_folder } => self.end_seat(seat, with_folder),
            Outbound::Register(desired) => {
                let order = self.setup.order(&desired);
                self.request_key(&order);
                // The execution may have been here earlier.
                let n_steps = self.shares.get(desired.job, desired.run).map_or(0, |before| before.n_steps());
                let entry_dir = self.setup.spool.entry_dir(desired.job, desired.run);
                self.shares.insert(Share::new(order, entry_dir, n_steps, self.work_queues.clone()));
            }
            Outbound::Restore { job, run, has_ended } => self.restore((job, run), has_ended),
            Outbound::Order { seat, job, run } => {
                if let (Some(seat), Some(share)) = (self.seats.get(&seat), self.shares.get(job, run)) {
                    share.attach(seat.to.clone(), seat.pid);
                    share.count_input(InputCount::default());
                    share.send(&ToSupervisor::Start(Box::new((*share.order()).clone())));
                }
            }
            Outbound::Adopt { seat, job, run } => {
                if !self.adopt(&seat, job, run) {
                    follow_ups.push_back(Inbound::SeatGone { seat });
                }
            }
            Outbound::Update(desired) => {
                if let Some(share) = self.shares.get(desired.job, desired.run) {
                    let (before, mut order) = (share.order(), self.setup.order(&desired));
                    if self.setup.exceeds_node(&before) {
                        // The job's old numbers now denote resources of other jobs.
                        (order.mask, order.packages) = (before.mask.clone(), before.packages.clone());
                        order.devices.clone_from(&before.devices);
                    }
                    share.update(order);
                    tell(&share, JobOrder::Update);
                }
            }
            Outbound::Tell { job, run, what } => {
                self.shares.get(job, run).iter().for_each(|share| tell(share, what.clone()))
            }
            Outbound::Detach { job, run } => self.shares.get(job, run).iter().for_each(Share::detach),
            Outbound::Begun { job, run } => self.shares.get(job, run).iter().for_each(Share::begin),
            Outbound::Ended { job, run } => {
                if self.setup.keys.forget(job, run) {
                    let keys = self.setup.keys.clone();
                    self.work_queues.add(WorkKey::Execution(job, run), move || keys.remove(job, run));
                }
                self.shares.get(job, run).iter().for_each(Share::end);
            }
            Outbound::Drop { job, run } => drop(self.shares.remove(job, run)),
            Outbound::MarkForgotten { job, run } => {
                let entry_dir = self.setup.spool.entry_dir(job, run);
                self.work_queues.add(WorkKey::Execution(job, run), move || {
                    let _asked_again_after_a_restart = spool::mark_forgotten(&entry_dir);
                });
            }
            Outbound::RemoveEntry { job, run } => self.remove_entry(job, run),
            Outbound::Examine { job, run } => self.examine(job, run),
            Outbound::EndLeftovers { job, run, why } => self.end_leftovers(job, run, why),
            Outbound::Look { unkillable } => self.look(unkillable),
            Outbound::Hello { report, trouble } => {
                self.reporter.iter().for_each(|reporter| reporter.hello(&report, trouble.as_deref()));
            }
            Outbound::Report(report) => self.reporter.iter().for_each(|reporter| reporter.report(&report)),
            Outbound::Trouble(reason) => {
                self.trouble_log.say(reason.as_deref());
                self.reporter.iter().for_each(|reporter| reporter.trouble(reason.as_deref()));
            }
            Outbound::Ask { seq, question } => self.reporter.iter().for_each(|reporter| reporter.ask(seq, &question)),
        }
    }

    fn start_spawner(&self) {
        let (setup, events) = (Arc::clone(&self.setup), self.events.clone());
        self.work_queues.add(WorkKey::Node, move || {
            let started = spawner::start(&setup.program, setup.spool.dir());
            let _agent_ends = events.blocking_send(NodeEvent::SpawnerStarted(started));
        });
    }

    fn spawner_started(&mut self, started: io::Result<(UnixStream, Child)>) {
        let attached = started.and_then(|(stream, child)| {
            self.spawner = Some((seat::attach_spawner(stream, self.seat_events.clone())?, child));
            Ok(())
        });
        if let Err(error) = &attached {
            tracing::error!(%error, "cannot start a spawner; no job can start here");
        }
        self.take(Inbound::SpawnerStarted(attached.map_err(|error| error.to_string())));
    }

    fn make_seat(&self, name: String) {
        let Some((spawner, _)) = &self.spawner else { return };
        let (spawner, setup) = (spawner.clone(), Arc::clone(&self.setup));
        self.work_queues.add(WorkKey::Seat(name.clone()), move || {
            let cgroup = setup.cgroups.make(&name).unwrap_or_else(|error| {
                tracing::warn!(%error, "cannot make a cgroup; the next job runs without one");
                Cgroup::none()
            });
            let (seats_dir, jobs_dir) = (setup.spool.seats_dir(), setup.spool.jobs_dir());
            push(&spawner, frame::message(&SeatOrder { name, cgroup, seats_dir, jobs_dir }));
        });
    }

    fn connect(&self, seat: String, pid: i32) {
        let socket = seat_socket(&self.setup.spool.seats_dir(), &seat);
        let events = self.events.clone();
        self.work_queues.add(WorkKey::Seat(seat.clone()), move || {
            let connected = spool::connect_socket(&socket).map(|stream| (stream, pid));
            let connected = connected.map_err(|error| format!("cannot reach a new supervisor: {error}"));
            let _agent_ends = events.blocking_send(NodeEvent::Connected { seat, connected });
        });
    }

    fn connected(&mut self, seat: String, connected: Result<(UnixStream, i32), String>) {
        let attached = connected.and_then(|(stream, pid)| {
            let to = seat::attach(stream, seat.clone(), self.seat_events.clone());
            to.map(|to| (to, pid)).map_err(|error| format!("cannot watch a new supervisor: {error}"))
        });
        let made = attached.map(|(to, pid)| {
            let cgroup = self.setup.cgroups.at(&seat);
            let made = Made { can_start_over: cgroup.can_start_over() };
            self.seats.insert(seat.clone(), SupervisorLink { to, pid, cgroup });
            made
        });
        if let Err(reason) = &made {
            tracing::error!(reason, "cannot start a job, through a fault of this node");
        }
        self.take(Inbound::SeatMade { seat, made });
    }

    /// Ends a supervisor without a job, which exits when its connection is closed.
    fn end_seat(&mut self, name: String, with_folder: bool) {
        let cgroup = self.seats.remove(&name).map_or_else(|| self.setup.cgroups.at(&name), |seat| seat.cgroup);
        let folder = self.setup.spool.seats_dir().join(&name);
        self.work_queues.add(WorkKey::Seat(name), move || {
            leftovers::clear(&cgroup);
            if with_folder {
                // The supervisor has usually removed it on exit.
                let _tried_again_by_the_next_agent = spool::remove(&folder);
            }
        });
    }

    /// Requests the key without delaying the start: processes that need the key wait for it.
    fn request_key(&self, order: &Order) {
        if order.negotiates.is_some() {
            self.setup.keys.want(order.job, order.run, &order.launch.owner);
        }
    }

    fn restore(&self, id: ExecutionId, has_ended: bool) {
        let Some(recovered) = self.found.get(&id) else { return };
        let Some(entry) = &recovered.entry else { return };
        let entry_dir = self.setup.spool.entry_dir(id.0, id.1);
        let share = Share::new(entry.order.clone(), entry_dir, recovered.n_steps, self.work_queues.clone());
        match has_ended {
            true => share.end(),
            false => self.request_key(&entry.order),
        }
        self.shares.insert(share);
    }

    /// Attaches a supervisor started by an earlier agent. Returns false if the connection cannot be used.
    fn adopt(&mut self, name: &str, job: JobId, run: Run) -> bool {
        let Some(Recovered { entry: Some(entry), stream: Some(stream), remains: _, n_steps: _ }) =
            self.found.remove(&(job, run))
        else {
            return false;
        };
        let Some(share) = self.shares.get(job, run) else { return false };
        let Ok(to) = seat::attach(stream, name.to_owned(), self.seat_events.clone()) else { return false };
        share.attach(to.clone(), entry.supervisor);
        self.seats.insert(name.to_owned(), SupervisorLink { to, pid: entry.supervisor, cgroup: entry.cgroup });
        self.transport.resume(&share);
        true
    }

    fn remove_entry(&self, job: JobId, run: Run) {
        let entry_dir = self.setup.spool.entry_dir(job, run);
        let events = self.events.clone();
        self.work_queues.add(WorkKey::Execution(job, run), move || {
            if let Err(error) = spool::remove(&entry_dir) {
                tracing::warn!(%job, %error, "cannot remove a spool entry");
            }
            let _agent_ends = events.blocking_send(NodeEvent::Inbound(Inbound::Removed { job, run }));
        });
    }

    fn examine(&self, job: JobId, run: Run) {
        let (setup, events) = (Arc::clone(&self.setup), self.events.clone());
        self.work_queues.add(WorkKey::Execution(job, run), move || {
            ensure_spool(&setup, &events);
            let recovered = takeover::examine(&setup.spool, job, run, &spool::boot_id());
            let _agent_ends = events.blocking_send(NodeEvent::Examined { job, run, recovered });
        });
    }

    fn end_leftovers(&self, job: JobId, run: Run, why: LostReason) {
        tracing::warn!(%job, %run, reason = why.reason(), "a job has vanished");
        let (setup, events) = (Arc::clone(&self.setup), self.events.clone());
        self.work_queues.add(WorkKey::Execution(job, run), move || {
            let report = leftovers::end_leftovers(&setup.spool.entry_dir(job, run), job, run, why);
            let _agent_ends = events.blocking_send(NodeEvent::Inbound(Inbound::LeftoversEnded(report)));
        });
    }

    fn look(&self, unkillable: Vec<i32>) {
        let (setup, shares, events) = (Arc::clone(&self.setup), self.shares.clone(), self.events.clone());
        self.work_queues.add(WorkKey::Node, move || {
            ensure_spool(&setup, &events);
            let look = look::look(&setup, &shares, unkillable);
            let _agent_ends = events.blocking_send(NodeEvent::Inbound(Inbound::Looked(look)));
        });
    }
}

fn is_job(meaning: &SpoolState) -> bool {
    match meaning {
        SpoolState::Alive | SpoolState::Ended(_) | SpoolState::Vanished(_) => true,
        SpoolState::Forgotten | SpoolState::Nothing => false,
    }
}

fn tell(share: &Share, what: JobOrder) {
    share.send(&match what {
        JobOrder::Update => ToSupervisor::Update(Box::new((*share.order()).clone())),
        JobOrder::Stop { patience, grace } => ToSupervisor::Stop { patience, grace },
        JobOrder::Kill => ToSupervisor::Kill,
        JobOrder::Signal { signal } => ToSupervisor::Signal { signal },
        JobOrder::Forget { keep } => ToSupervisor::Forget { keep },
        JobOrder::Growth { seq, result } => ToSupervisor::Growth { seq, result },
        JobOrder::SpoolFull => ToSupervisor::SpoolFull,
        JobOrder::Violated { reason } => ToSupervisor::Violated { reason },
    });
}

/// Creates a deleted spool again: without it the node would accept every job and start none. Running jobs continue,
/// without the files that they had there.
fn ensure_spool(setup: &Setup, events: &mpsc::Sender<NodeEvent>) {
    let spool = &setup.spool;
    if spool.is_whole() {
        return;
    }
    let dir = spool.dir().display();
    match spool.make() {
        Ok(()) => {
            tracing::error!(%dir, "the spool was deleted; created it again");
            let _agent_ends = events.blocking_send(NodeEvent::Inbound(Inbound::SpoolMade));
        }
        Err(error) => {
            tracing::error!(%dir, error = chain(&error), "the spool was deleted and cannot be created again");
        }
    }
}
