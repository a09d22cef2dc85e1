//! The hands of the agent: gives orders to supervisors as the core decides, and tells it what came of them.

mod faults;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nix::unistd::Pid;
use rms_api::desired::{Desired, JobReport, JobStatus, NodeExit, NodeReport};
use rms_core::agent::{Agent, AgentEffect, AgentEvent, Found as Known};
use rms_model::{JobId, Run, Usage};
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use crate::cgroup::Cgroup;
use crate::frame;
use crate::growth::{Growths, Wish};
use crate::leftovers;
use crate::order::{FromSupervisor, Growth, Order, ToSupervisor};
use crate::pmi::HostId;
use crate::pmi::frames::HubFrame;
use crate::seat::{self, Events, SeatEvent};
use crate::setup::Setup;
use crate::share::{Share, Shares, ToSeat, push};
use crate::spawner::{self, SeatMade, SeatOrder};
use crate::spool;
use crate::supervisor::{now, seat_socket};
use crate::takeover::{self, Found};
use crate::trouble::Trouble;

/// What the node's one task is told.
#[derive(Debug)]
pub enum NodeEvent {
    Desired(Desired),
    Signal {
        job: JobId,
        run: Run,
        signal: i32,
    },
    /// The server listens: everything is said again, and news from now on.
    LinkUp(Box<dyn Reporter>),
    LinkDown,
    /// The server has answered a question for more hosts.
    Grown {
        seq: u64,
        result: Growth,
    },
    /// A question for more hosts has waited long enough for a server.
    GrowthLapsed {
        seq: u64,
    },
    /// What was left of a job without a supervisor is gone.
    Vanished(JobReport),
    /// Nobody needs the streams of a forgotten job any more.
    Lingered {
        job: JobId,
        run: Run,
    },
}

/// Whom reports go to.
pub trait Reporter: Send + std::fmt::Debug {
    /// All jobs of the node.
    fn hello(&self, report: &NodeReport);
    fn report(&self, report: &NodeReport);
    /// Why no job can start here; none: the node is well.
    fn trouble(&self, reason: Option<&str>);
    /// More hosts for a job; the answer is a [`NodeEvent::Grown`].
    fn ask(&self, seq: u64, wish: &Wish);
}

/// Who carries frames to the other hosts of a job.
pub trait Carrier: Send + Sync + std::fmt::Debug {
    fn carry(&self, share: &Share, host: &HostId, frame: HubFrame);
    /// An execution was taken over from an earlier agent, which had a way to its hub.
    fn resume(&self, share: &Share);
}

/// The node.
#[derive(Debug)]
pub struct Node {
    setup: Arc<Setup>,
    agent: Agent,
    shares: Shares,
    seats: BTreeMap<String, Seat>,
    idle: Vec<String>,
    /// Shares that no supervisor was free for.
    waiting: VecDeque<(JobId, Run)>,
    n_making: usize,
    n_made: u64,
    /// Seats of this agent differ from those of every earlier one.
    seat_prefix: String,
    spawner: Option<(ToSeat, Child)>,
    /// Full: supervisors and the uplink wait for this task.
    seat_events: Events,
    events: mpsc::Sender<NodeEvent>,
    reporter: Option<Box<dyn Reporter>>,
    carrier: Arc<dyn Carrier>,
    growths: Growths,
    trouble: Trouble,
    /// What the server was told of it.
    told: Option<String>,
}

/// One supervisor.
#[derive(Debug)]
struct Seat {
    to: ToSeat,
    pid: i32,
    cgroup: Cgroup,
    serves: Option<(JobId, Run)>,
    /// The entry of the job before, which the supervisor was told to clear away.
    cleared: Option<PathBuf>,
}

/// How often a node looks at its disk. A second's output of a job fills none that is not nearly full.
const LOOK: Duration = Duration::from_secs(1);
/// A spawner that dies again and again is a broken installation; the pause keeps that from burning a CPU.
const SPAWNER_PAUSE: Duration = Duration::from_secs(1);
/// A server that is restarted is back sooner.
const SERVER_PATIENCE: Duration = Duration::from_secs(10);
/// The streams of an ended job are kept so long for a client that has lost its way to them.
const LINGER: Duration = Duration::from_secs(600);

impl Node {
    pub fn new(
        setup: Arc<Setup>,
        shares: Shares,
        carrier: Arc<dyn Carrier>,
        seat_events: Events,
        events: mpsc::Sender<NodeEvent>,
    ) -> Node {
        let trouble = Trouble::new(setup.spool.dir().to_owned());
        Node {
            setup,
            agent: Agent::new(),
            shares,
            seats: BTreeMap::new(),
            idle: Vec::new(),
            waiting: VecDeque::new(),
            n_making: 0,
            n_made: 0,
            seat_prefix: format!("{:x}-{:x}", now().as_millis(), std::process::id()),
            spawner: None,
            seat_events,
            events,
            reporter: None,
            carrier,
            growths: Growths::default(),
            trouble,
            told: None,
        }
    }

    /// Starts the spawner and takes over what runs. Call it once, before [`run`](Node::run).
    ///
    /// # Errors
    /// The spool cannot be read, or no process can be started.
    pub async fn open(&mut self) -> io::Result<()> {
        takeover::clear_seats(&self.setup.spool.seats_dir());
        let boot = spool::boot_id();
        let mut reports: Vec<Known> = Vec::new();
        for (job, run, dir) in self.setup.spool.entries()? {
            match takeover::examine(&self.setup.spool, job, run, &boot)? {
                Found::Nothing => {}
                Found::Alive { entry, socket } => {
                    self.want_key(&entry.order);
                    let share = Share::new(entry.order.clone(), dir);
                    self.shares.insert(share.clone());
                    reports.push(takeover::known(takeover::unknown(job, run), Some(&entry.order)));
                    self.adopt(&share, &entry, &socket);
                }
                Found::Ended { entry, report } => {
                    self.insert_ended(entry.as_deref(), dir);
                    reports.push(takeover::known(report, entry.as_deref().map(|entry| &entry.order)));
                }
                Found::Forgotten { entry } => {
                    self.insert_ended(Some(&entry), dir);
                    self.linger(job, run);
                }
                Found::Vanished { entry, reason } => {
                    tracing::warn!(%job, %run, reason, "a job has vanished");
                    let report = leftovers::vanish(&dir, entry.as_deref(), takeover::unknown(job, run), reason).await;
                    self.insert_ended(entry.as_deref(), dir);
                    reports.push(takeover::known(report, entry.as_deref().map(|entry| &entry.order)));
                }
            }
        }
        let n_found = reports.len();
        if n_found > 0 {
            tracing::info!(n_found, "took over the jobs of an earlier agent");
        }
        self.setup.keys.clear();
        let effects = self.agent.handle(AgentEvent::Found(reports));
        self.perform(effects);
        let alive: Vec<String> = self.seats.keys().cloned().collect();
        leftovers::clear_all(&self.setup.cgroups, &alive).await;
        self.start_spawner()?;
        self.fill_seats();
        Ok(())
    }

    /// Beside the start: whoever needs it in the job waits for it.
    fn want_key(&self, order: &Order) {
        if order.negotiates.is_some() {
            self.setup.keys.want(order.job, order.run, &order.launch.owner);
        }
    }

    fn insert_ended(&self, entry: Option<&spool::Entry>, dir: PathBuf) {
        if let Some(entry) = entry {
            let share = Share::new(entry.order.clone(), dir);
            share.end();
            self.shares.insert(share);
        }
    }

    /// Serves until both queues are closed.
    pub async fn run(mut self, mut seat_events: mpsc::Receiver<SeatEvent>, mut events: mpsc::Receiver<NodeEvent>) {
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = look.tick() => self.look(),
                Some(event) = seat_events.recv() => self.seat_event(event).await,
                Some(event) = events.recv() => self.event(event),
                else => return,
            }
        }
    }

    fn event(&mut self, event: NodeEvent) {
        match event {
            NodeEvent::Desired(desired) => self.feed(AgentEvent::Desired(desired)),
            NodeEvent::Signal { job, run, signal } => {
                if let Some(share) = self.shares.get(job, run) {
                    share.tell(&ToSupervisor::Signal { signal });
                }
            }
            NodeEvent::LinkUp(reporter) => {
                reporter.hello(&self.agent.full_report());
                self.growths.all().for_each(|(seq, wish)| reporter.ask(seq, wish));
                self.told = self.trouble.reason();
                reporter.trouble(self.told.as_deref());
                self.reporter = Some(reporter);
                self.feed(AgentEvent::LinkUp);
            }
            NodeEvent::LinkDown => {
                self.reporter = None;
                self.growths.all().for_each(|(seq, _)| self.let_lapse(seq));
            }
            NodeEvent::Grown { seq, result } => self.grown(seq, result),
            NodeEvent::GrowthLapsed { seq } if self.reporter.is_none() => {
                let reason = "the server is out of reach".to_owned();
                self.grown(seq, Growth::Refused { reason });
            }
            // It was asked again over a new link.
            NodeEvent::GrowthLapsed { .. } => {}
            NodeEvent::Vanished(report) => self.changed(report),
            NodeEvent::Lingered { job, run } => {
                if let Some(share) = self.shares.remove(job, run) {
                    remove_entry(&share);
                }
            }
        }
    }

    fn feed(&mut self, event: AgentEvent) {
        let effects = self.agent.handle(event);
        self.perform(effects);
    }

    fn perform(&mut self, effects: Vec<AgentEffect>) {
        for effect in effects {
            match effect {
                AgentEffect::Start(desired) => {
                    self.keep_spool();
                    let order = self.setup.order(&desired);
                    let entry_dir = self.setup.spool.entry_dir(desired.job, desired.run);
                    self.want_key(&order);
                    self.shares.insert(Share::new(order, entry_dir));
                    self.waiting.push_back((desired.job, desired.run));
                    self.fill_seats();
                }
                AgentEffect::Update(desired) => {
                    if let Some(share) = self.shares.get(desired.job, desired.run) {
                        let order = self.setup.order(&desired);
                        share.update(order.clone());
                        share.tell(&ToSupervisor::Update(Box::new(order)));
                    }
                }
                AgentEffect::Stop { job, run, patience, grace } => {
                    self.stop(job, run, &ToSupervisor::Stop { patience, grace });
                }
                AgentEffect::Kill { job, run } => self.stop(job, run, &ToSupervisor::Kill),
                AgentEffect::Forget { job, run } => self.forget(job, run),
                AgentEffect::Report(report) => {
                    if let Some(reporter) = &self.reporter {
                        reporter.report(&report);
                    }
                }
            }
        }
    }

    /// A node without a spool would take every job that comes, and start none. What runs goes on, without what it had there.
    fn keep_spool(&mut self) {
        let spool = &self.setup.spool;
        if spool.is_whole() {
            return;
        }
        let dir = spool.dir().display();
        match spool.make() {
            Ok(()) => tracing::error!(%dir, "somebody has deleted the spool; it was made anew"),
            Err(error) => return tracing::error!(%dir, %error, "the spool is gone and cannot be made anew"),
        }
        // Their folders are gone, too, so they could not take a job. They end with their connections.
        for name in std::mem::take(&mut self.idle) {
            if let Some(seat) = self.seats.remove(&name) {
                self.clear_seat(&name, seat.cgroup);
            }
        }
    }

    fn stop(&mut self, job: JobId, run: Run, message: &ToSupervisor) {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| *waiting != (job, run));
        let was_waiting = self.waiting.len() < before;
        if was_waiting {
            self.ended_without_start(job, run, NodeExit::Ordered);
        } else if let Some(share) = self.shares.get(job, run) {
            share.tell(message);
        }
    }

    fn ended_without_start(&mut self, job: JobId, run: Run, exit: NodeExit) {
        let status = JobStatus::Ended { at: now(), exit, usage: Usage::default() };
        self.changed(JobReport { job, run, status });
    }

    /// Gives waiting shares to idle supervisors, and orders as many more as are missing.
    fn fill_seats(&mut self) {
        while let (Some(name), false) = (self.idle.last(), self.waiting.is_empty()) {
            let name = name.clone();
            self.idle.pop();
            let (Some(seat), Some((job, run))) = (self.seats.get_mut(&name), self.waiting.pop_front()) else {
                continue;
            };
            let Some(share) = self.shares.get(job, run) else { continue };
            seat.serves = Some((job, run));
            share.attach(seat.to.clone(), seat.pid);
            push(&seat.to, frame::message(&ToSupervisor::Start(Box::new((*share.order()).clone()))));
        }
        let n_wanted = self.waiting.len() + self.setup.n_warm;
        while self.idle.len() + self.n_making < n_wanted && self.spawner.is_some() {
            self.order_seat();
        }
        // Idle supervisors beyond need end when their connection does.
        while self.idle.len() > self.setup.n_warm + 2 {
            let surplus = self.idle.remove(0);
            if let Some(seat) = self.seats.remove(&surplus) {
                self.clear_seat(&surplus, seat.cgroup);
            }
        }
    }

    fn order_seat(&mut self) {
        let Some((spawner, _)) = &self.spawner else { return };
        self.n_made += 1;
        let name = format!("{}-{}", self.seat_prefix, self.n_made);
        let cgroup = match self.setup.cgroups.make(&name) {
            Ok(cgroup) => cgroup,
            Err(error) => {
                tracing::warn!(%error, "cannot make a cgroup; the next job runs without one");
                Cgroup::none()
            }
        };
        let spool = &self.setup.spool;
        let order = SeatOrder { name, cgroup, seats_dir: spool.seats_dir(), jobs_dir: spool.jobs_dir() };
        self.n_making += 1;
        push(spawner, frame::message(&order));
    }

    async fn seat_event(&mut self, event: SeatEvent) {
        match event {
            SeatEvent::Made(made) => self.seat_made(made),
            SeatEvent::Said { seat, message } => self.seat_said(&seat, message),
            SeatEvent::Bytes { seat, stream, bytes } => {
                if let Some(share) = self.share_of(&seat) {
                    share.bytes(stream, bytes);
                }
            }
            SeatEvent::Gone { seat } => self.seat_gone(&seat),
            SeatEvent::SpawnerGone => self.spawner_gone().await,
        }
    }

    fn share_of(&self, seat: &str) -> Option<Share> {
        let (job, run) = self.seats.get(seat)?.serves?;
        self.shares.get(job, run)
    }

    fn seat_made(&mut self, SeatMade { name, made }: SeatMade) {
        self.n_making = self.n_making.saturating_sub(1);
        let cgroup = self.setup.cgroups.at(&name);
        let socket = seat_socket(&self.setup.spool.seats_dir(), &name);
        let connected = match made {
            Ok(pid) => seat::connect(&socket, name.clone(), self.seat_events.clone())
                .map(|to| (to, pid))
                .map_err(|error| format!("cannot reach a new supervisor: {error}")),
            Err(error) => Err(format!("cannot make a supervisor: {error}")),
        };
        match connected {
            Ok((to, pid)) => drop(self.seats.insert(name, Seat { to, pid, cgroup, serves: None, cleared: None })),
            Err(reason) => {
                tracing::error!(reason);
                self.clear_seat(&name, cgroup);
                self.fault(&reason);
                if let Some((job, run)) = self.waiting.pop_front() {
                    let reason = spool::at_fault(&reason);
                    self.ended_without_start(job, run, NodeExit::NotStarted { reason });
                }
            }
        }
    }

    fn seat_said(&mut self, name: &str, message: FromSupervisor) {
        match message {
            FromSupervisor::Idle => {
                let is_free = self.seats.get(name).is_some_and(|seat| seat.serves.is_none());
                if is_free && !self.idle.iter().any(|idle| idle == name) {
                    self.idle.push(name.to_owned());
                    self.fill_seats();
                }
            }
            FromSupervisor::Job(report) => self.changed(report),
            FromSupervisor::Fault { reason } => self.fault(&reason),
            FromSupervisor::Undead { pids } => {
                tracing::error!(?pids, seat = name, "processes of a job cannot be killed");
                self.trouble.haunted(pids.into_iter().map(Pid::from_raw));
                self.tell_trouble();
            }
            FromSupervisor::AlreadyThere { job, run } => {
                if let Some(seat) = self.seats.get_mut(name) {
                    seat.serves = None;
                    self.idle.push(name.to_owned());
                }
                self.found_already(job, run);
                self.fill_seats();
            }
            FromSupervisor::Pmi { host, frame } => {
                if let Some(share) = self.share_of(name) {
                    self.carrier.carry(&share, &host, frame);
                }
            }
            FromSupervisor::AskGrowth { seq, hosts, least } => {
                if let Some(share) = self.share_of(name) {
                    self.ask_growth(&share, seq, hosts, least);
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
                if let Some(share) = self.share_of(name) {
                    share.heard(about_streams);
                }
            }
        }
    }

    /// Ranks are to be started for which the job has no room.
    fn ask_growth(&mut self, share: &Share, seq: u64, hosts: u32, least: u32) {
        tracing::info!(job = %share.job(), hosts, least, "ranks ask for more hosts");
        match self.growths.open(share.job(), share.run(), seq, hosts, least) {
            Ok(own_seq) => match (&self.reporter, self.growths.get(own_seq)) {
                (Some(reporter), Some(wish)) => reporter.ask(own_seq, wish),
                (Some(_) | None, _) => self.let_lapse(own_seq),
            },
            Err(result) => share.tell(&ToSupervisor::Growth { seq, result }),
        }
    }

    /// Without a server, ranks are not kept waiting for long.
    fn let_lapse(&self, seq: u64) {
        let events = self.events.clone();
        tokio::spawn(async move {
            tokio::time::sleep(SERVER_PATIENCE).await;
            let _agent_ends = events.send(NodeEvent::GrowthLapsed { seq }).await;
        });
    }

    fn grown(&mut self, seq: u64, result: Growth) {
        let Some(wish) = self.growths.close(seq) else { return };
        if let Some(share) = self.shares.get(wish.job, wish.run) {
            share.tell(&ToSupervisor::Growth { seq: wish.seq, result });
        }
    }

    fn changed(&mut self, report: JobReport) {
        let share = self.shares.get(report.job, report.run);
        match &report.status {
            JobStatus::Starting => share.iter().for_each(Share::begin),
            JobStatus::Running { .. } => {
                self.trouble.started();
                share.iter().for_each(Share::begin);
            }
            JobStatus::Ended { exit, .. } => {
                tracing::debug!(job = %report.job, run = %report.run, ?exit, "ended");
                if !matches!(exit, NodeExit::NotStarted { .. }) {
                    self.trouble.started();
                }
                self.setup.keys.forget(report.job, report.run);
                share.iter().for_each(Share::end);
            }
        }
        self.feed(AgentEvent::Changed(report));
    }

    /// Our order met an execution that an earlier agent had ordered in its last moment.
    fn found_already(&mut self, job: JobId, run: Run) {
        if self.is_of_earlier_place(job, run) {
            return self.waiting.push_back((job, run));
        }
        match takeover::examine(&self.setup.spool, job, run, &spool::boot_id()) {
            Ok(Found::Alive { entry, socket }) => {
                if let Some(share) = self.shares.get(job, run) {
                    self.adopt(&share, &entry, &socket);
                }
            }
            Ok(Found::Ended { entry: _, report }) => self.changed(report),
            Ok(Found::Nothing) => self.waiting.push_back((job, run)),
            Ok(Found::Vanished { entry, reason }) => self.vanish(job, run, entry.map(|entry| *entry), reason),
            Ok(Found::Forgotten { .. }) | Err(_) => self.vanish(job, run, None, "its spool entry cannot be read"),
        }
    }

    /// The job had this host before, freed it and has it again: what lies there of the earlier time is known to the
    /// server, and its supervisor is about to take it away. Streams that were kept for followers go now.
    fn is_of_earlier_place(&self, job: JobId, run: Run) -> bool {
        let Some(share) = self.shares.get(job, run) else { return false };
        let Ok(entry) = spool::read_entry(share.entry_dir()) else { return false };
        let is_earlier = entry.order.joined() < share.order().joined();
        if is_earlier && spool::forgotten_path(share.entry_dir()).exists() {
            let _gone_already = std::fs::remove_dir_all(share.entry_dir());
        }
        is_earlier
    }

    fn adopt(&mut self, share: &Share, entry: &spool::Entry, socket: &std::path::Path) {
        let (job, run) = (share.job(), share.run());
        match seat::connect(socket, entry.seat.clone(), self.seat_events.clone()) {
            Ok(to) => {
                share.attach(to.clone(), entry.supervisor);
                let (pid, cgroup, serves) = (entry.supervisor, entry.cgroup.clone(), Some((job, run)));
                self.seats.insert(entry.seat.clone(), Seat { to, pid, cgroup, serves, cleared: None });
                self.carrier.resume(share);
            }
            Err(_) => self.vanish(job, run, Some(entry.clone()), takeover::KILLED),
        }
    }

    fn clear_seat(&self, name: &str, cgroup: Cgroup) {
        tokio::spawn(leftovers::clear_seat(cgroup, self.setup.spool.seats_dir().join(name)));
    }

    fn seat_gone(&mut self, name: &str) {
        self.idle.retain(|idle| idle != name);
        let Some(seat) = self.seats.remove(name) else { return };
        if let Some(entry_dir) = seat.cleared {
            let _often_gone_already = std::fs::remove_dir_all(entry_dir);
        }
        let Some((job, run)) = seat.serves else {
            self.clear_seat(name, seat.cgroup);
            self.fill_seats();
            return;
        };
        let Some(share) = self.shares.get(job, run) else {
            // It left before it read that it is forgotten.
            let _often_gone_already = std::fs::remove_dir_all(self.setup.spool.entry_dir(job, run));
            tokio::spawn(leftovers::clear(seat.cgroup));
            return self.fill_seats();
        };
        share.detach();
        if share.has_ended() {
            tokio::spawn(leftovers::clear(seat.cgroup));
        } else if let Ok(report) = spool::read_result(share.entry_dir(), job, run) {
            tokio::spawn(leftovers::clear(seat.cgroup));
            self.changed(report);
        } else if !share.entry_dir().exists() {
            // It was killed before it had begun, so another one may.
            self.waiting.push_front((job, run));
            self.clear_seat(name, seat.cgroup);
        } else {
            self.vanish(job, run, spool::read_entry(share.entry_dir()).ok(), takeover::KILLED);
        }
        self.fill_seats();
    }

    fn vanish(&self, job: JobId, run: Run, entry: Option<spool::Entry>, reason: &'static str) {
        tracing::warn!(%job, %run, reason, "a job has vanished");
        let entry_dir = self.setup.spool.entry_dir(job, run);
        let events = self.events.clone();
        tokio::spawn(async move {
            let report = leftovers::vanish(&entry_dir, entry.as_ref(), takeover::unknown(job, run), reason).await;
            let _agent_ends = events.send(NodeEvent::Vanished(report)).await;
        });
    }

    /// The server has the result. The streams of a followed job stay for a while.
    fn forget(&mut self, job: JobId, run: Run) {
        let Some(share) = self.shares.get(job, run) else {
            let _never_there = std::fs::remove_dir_all(self.setup.spool.entry_dir(job, run));
            return;
        };
        let keep = share.order().is_streamed();
        if keep {
            let _asked_again_after_a_restart = std::fs::write(spool::forgotten_path(share.entry_dir()), "");
            self.linger(job, run);
        } else {
            self.shares.remove(job, run);
        }
        match share.to_supervisor() {
            Some(_) => {
                share.tell(&ToSupervisor::Forget { keep });
                self.free_seat(&share, keep);
            }
            None if !keep => remove_entry(&share),
            None => {}
        }
    }

    /// A supervisor that was told to forget its job can be given another one at once. Should it have to end instead,
    /// that one is not begun, and waits for the next supervisor.
    fn free_seat(&mut self, share: &Share, keep: bool) {
        let served = Some((share.job(), share.run()));
        let Some((name, seat)) = self.seats.iter_mut().find(|(_, seat)| seat.serves == served) else { return };
        if !seat.cgroup.can_start_over() {
            return;
        }
        seat.serves = None;
        seat.cleared = (!keep).then(|| share.entry_dir().clone());
        self.idle.push(name.clone());
        share.detach();
    }

    fn linger(&self, job: JobId, run: Run) {
        let events = self.events.clone();
        tokio::spawn(async move {
            tokio::time::sleep(LINGER).await;
            let _agent_ends = events.send(NodeEvent::Lingered { job, run }).await;
        });
    }

    fn start_spawner(&mut self) -> io::Result<()> {
        let (stream, child) = spawner::start(&self.setup.program, self.setup.spool.dir())?;
        self.spawner = Some((seat::attach_spawner(stream, self.seat_events.clone())?, child));
        Ok(())
    }

    /// Idle supervisors have gone with it; those with jobs have not.
    async fn spawner_gone(&mut self) {
        tracing::error!("the spawner has ended; starting another");
        if let Some((_, mut child)) = self.spawner.take() {
            let _reaped = child.wait().await;
        }
        self.n_making = 0;
        tokio::time::sleep(SPAWNER_PAUSE).await;
        match self.start_spawner() {
            Ok(()) => self.fill_seats(),
            Err(error) => {
                tracing::error!(%error, "cannot start a spawner; no job can start here");
                let reason = format!("cannot start a spawner: {error}");
                self.fault(&reason);
                while let Some((job, run)) = self.waiting.pop_front() {
                    let reason = spool::at_fault(&reason);
                    self.ended_without_start(job, run, NodeExit::NotStarted { reason });
                }
            }
        }
    }
}

fn remove_entry(share: &Share) {
    let removed = std::fs::remove_dir_all(share.entry_dir());
    if let Err(error) = removed
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(job = %share.job(), %error, "cannot remove a spool entry");
    }
}
