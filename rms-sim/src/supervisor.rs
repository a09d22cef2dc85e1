//! One job on one node: its processes, wall time and result. It needs neither agent nor server.

use rms_api::desired::{DesiredJob, JobReport, JobStatus, NodeExit, Stay};
use rms_core::agent::Told;
use rms_core::node_loop::{Entry, ExecutionId, LostReason, SpoolEntry};
use rms_model::{Indices, JobId, OnResize, Run, Span, Time, Usage};

use crate::program::{Part, Program};

#[derive(Clone, Debug)]
pub struct Supervisor {
    job: JobId,
    run: Run,
    seat: String,
    is_of_this_boot: bool,
    is_forgotten: bool,
    node_idx: u32,
    part: Part,
    told: Told,
    /// The cores that its processes use, each of one CPU, and the generation since which they do.
    cores: Indices,
    generation: u32,
    coming: Option<PendingMasks>,
    stay: Stay,
    on_resize: Option<OnResize>,
    grace: Span,
    heeds_term: Option<Span>,
    phase: Phase,
}

/// CPU masks that are being set.
#[derive(Clone, Debug)]
struct PendingMasks {
    at: Time,
    cores: Indices,
    generation: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Starting {
        up_at: Time,
    },
    Running {
        since: Time,
    },
    /// TERM or KILL was sent; the processes are still there.
    Ending {
        since: Time,
        gone_at: Time,
        exit: NodeExit,
    },
    /// Its supervisor has died, and its processes may still exist.
    Unwatched {
        since: Time,
        is_alive: bool,
    },
    Ended {
        at: Time,
        exit: NodeExit,
        usage: Usage,
    },
}

impl Supervisor {
    /// Starts the execution in the seat that received the order.
    pub fn start(now: Time, seat: String, wanted: &DesiredJob, program: &Program) -> Supervisor {
        Supervisor {
            job: wanted.job,
            run: wanted.run,
            seat,
            is_of_this_boot: true,
            is_forgotten: false,
            node_idx: wanted.node_idx,
            part: program.part(&wanted.launch, wanted.node_idx),
            told: Told::by(wanted),
            cores: cores_of(wanted),
            generation: wanted.launch.generation,
            coming: None,
            stay: wanted.stay(),
            on_resize: wanted.launch.on_resize.clone(),
            grace: wanted.launch.grace,
            heeds_term: program.heeds_term,
            phase: Phase::Starting { up_at: now + program.start_delay },
        }
    }

    /// Handles a change of the job's nodes, its cores or its wall time.
    pub fn update(&mut self, now: Time, wanted: &DesiredJob) {
        self.told = Told::by(wanted);
        let generation = wanted.launch.generation;
        self.coming = Some(PendingMasks { at: now + MASKS_TAKE, cores: cores_of(wanted), generation });
    }

    /// Returns the cores that its processes use.
    pub(crate) fn cores(&self) -> &Indices {
        &self.cores
    }

    /// Returns whether this is the job's first node, on which its negotiator runs.
    pub(crate) fn is_first(&self) -> bool {
        self.node_idx == 0
    }

    /// Returns what happens here when the nodes of the job change.
    pub(crate) fn on_resize(&self) -> Option<&OnResize> {
        self.on_resize.as_ref()
    }

    /// Lets the processes end on their own, while others of the job continue.
    pub(crate) fn leave(&mut self, now: Time) {
        if let Phase::Running { since } = self.phase {
            self.part = Part { runs: Some(now.since(since)), exit: NodeExit::Exited { code: 0 } };
        }
        if let Phase::Ending { since, gone_at, .. } = self.phase {
            self.phase = Phase::Ending { since, gone_at: gone_at.min(now), exit: NodeExit::Ordered };
        }
        if let Phase::Unwatched { is_alive, .. } = &mut self.phase {
            *is_alive = false;
        }
    }

    pub fn id(&self) -> ExecutionId {
        (self.job, self.run)
    }

    pub fn seat(&self) -> &str {
        &self.seat
    }

    /// Returns the generation of the job's nodes with which this one came.
    pub(crate) fn joined(&self) -> u32 {
        self.stay.joined
    }

    /// Returns the last generation that it was told of.
    pub(crate) fn generation_told(&self) -> u32 {
        self.told.generation
    }

    /// Returns its entry in the spool; `is_heard` while its process exists.
    pub fn remains(&self, is_heard: bool) -> SpoolEntry {
        let result = matches!(self.phase, Phase::Ended { .. }).then(|| self.report());
        let entry = Entry {
            seat: self.seat.clone(),
            can_start_over: true,
            stay: self.stay,
            told: self.told,
            is_streamed: false,
            is_of_this_boot: self.is_of_this_boot,
            is_heard,
        };
        SpoolEntry { is_there: true, entry: Some(entry), is_forgotten: self.is_forgotten, result }
    }

    pub(crate) fn mark_forgotten(&mut self) {
        self.is_forgotten = true;
    }

    /// Returns whether it still waits for something. Without an agent it ends once it has sent its last report.
    pub(crate) fn report_is_open(&self) -> bool {
        !matches!(self.phase, Phase::Ended { .. })
    }

    /// Handles the death of its own process, but not of those of the job.
    pub(crate) fn lose_watcher(&mut self) {
        self.phase = match self.phase {
            // No process has come up yet, and none will.
            Phase::Starting { up_at } => Phase::Unwatched { since: up_at, is_alive: false },
            Phase::Running { since } | Phase::Ending { since, .. } => Phase::Unwatched { since, is_alive: true },
            Phase::Unwatched { .. } | Phase::Ended { .. } => return,
        };
        self.coming = None;
    }

    /// Handles a power loss of the machine.
    pub(crate) fn lose_power(&mut self) {
        self.lose_watcher();
        self.is_of_this_boot = false;
        if let Phase::Unwatched { is_alive, .. } = &mut self.phase {
            *is_alive = false;
        }
    }

    /// Ends what is left of it, and returns how it counts as ended.
    pub(crate) fn end_leftovers(&mut self, now: Time, why: LostReason) -> JobReport {
        self.end(now, now, why.exit(0));
        self.report()
    }

    /// Returns when the next change happens without input.
    pub fn due(&self) -> Option<Time> {
        let coming = self.coming.as_ref().map(|coming| coming.at);
        self.changes_at().map(|at| coming.map_or(at, |coming| coming.min(at)))
    }

    /// Returns when it enters another phase.
    fn changes_at(&self) -> Option<Time> {
        match &self.phase {
            Phase::Starting { up_at } => Some(*up_at),
            Phase::Running { since } => Some(self.exits_at(*since).min(*since + self.told.wall)),
            Phase::Ending { gone_at, .. } => Some(*gone_at),
            Phase::Unwatched { .. } | Phase::Ended { .. } => None,
        }
    }

    /// Does one thing that is due; returns the report about it.
    pub fn advance(&mut self, now: Time) -> Option<JobReport> {
        if self.due().is_none_or(|due| due > now) {
            return None;
        }
        if let Some(coming) = self.coming.take_if(|coming| coming.at <= now) {
            (self.cores, self.generation) = (coming.cores, coming.generation);
            return Some(self.report());
        }
        match self.phase.clone() {
            Phase::Starting { .. } => match &self.part.exit {
                exit @ NodeExit::NotStarted { .. } => self.end(now, now, exit.clone()),
                NodeExit::Exited { .. }
                | NodeExit::Signaled { .. }
                | NodeExit::Aborted { .. }
                | NodeExit::WallTime
                | NodeExit::Ordered
                | NodeExit::Overstayed
                | NodeExit::OutOfMemory
                | NodeExit::Violated { .. }
                | NodeExit::Unsupervised { .. }
                | NodeExit::Vanished { .. } => self.phase = Phase::Running { since: now },
            },
            Phase::Running { since } if self.exits_at(since) <= since + self.told.wall => {
                self.end(since, now, self.part.exit.clone());
            }
            Phase::Running { since } => {
                let gone_at = self.gone_after_term(now, self.grace);
                self.phase = Phase::Ending { since, gone_at, exit: NodeExit::WallTime };
                return None;
            }
            Phase::Ending { since, exit, .. } => self.end(since, now, exit),
            Phase::Unwatched { .. } | Phase::Ended { .. } => return None,
        }
        Some(self.report())
    }

    /// Sends TERM after some patience, and KILL after the grace. A job that is starting is ended as soon as it is up.
    pub fn stop(&mut self, now: Time, patience: Span, grace: Span) {
        let term_at = now + patience;
        match &self.phase {
            Phase::Starting { up_at } => {
                self.phase = Phase::Ending { since: *up_at, gone_at: *up_at, exit: NodeExit::Ordered };
            }
            Phase::Running { since } => {
                let gone_at = self.gone_after_term(term_at, grace).min(self.exits_at(*since));
                let is_killed = !grace.is_zero() && gone_at > term_at + grace;
                let exit = if is_killed { NodeExit::Overstayed } else { NodeExit::Ordered };
                self.phase = Phase::Ending { since: *since, gone_at, exit };
            }
            // A second order does not prolong the first; one without patience may shorten it.
            Phase::Ending { since, gone_at, exit } => {
                let gone_at = (*gone_at).min(self.gone_after_term(term_at, grace));
                self.phase = Phase::Ending { since: *since, gone_at, exit: exit.clone() };
            }
            Phase::Unwatched { .. } | Phase::Ended { .. } => {}
        }
    }

    pub fn kill(&mut self, now: Time) {
        self.stop(now, Span::ZERO, Span::ZERO);
        if let Phase::Ending { gone_at, .. } = &mut self.phase {
            *gone_at = (*gone_at).min(now + KILL_TAKES);
        }
    }

    /// Delivers a signal from the user, which is not an order of the server.
    pub fn signal(&mut self, now: Time, signal: i32) {
        let is_deadly = signal == 9 || signal == 15;
        if let Phase::Running { since } = self.phase
            && is_deadly
        {
            self.phase = Phase::Ending { since, gone_at: now + KILL_TAKES, exit: NodeExit::Signaled { signal } };
        }
    }

    /// Returns whether there are processes, or will be in a moment.
    pub fn is_alive(&self) -> bool {
        match &self.phase {
            Phase::Starting { .. } | Phase::Running { .. } | Phase::Ending { .. } => true,
            Phase::Unwatched { is_alive, .. } => *is_alive,
            Phase::Ended { .. } => false,
        }
    }

    /// Returns how it really ended.
    pub fn exit(&self) -> Option<&NodeExit> {
        match &self.phase {
            Phase::Ended { exit, .. } => Some(exit),
            Phase::Starting { .. } | Phase::Running { .. } | Phase::Ending { .. } => None,
            Phase::Unwatched { .. } => None,
        }
    }

    /// Returns what an agent finds when it looks at the supervisor.
    pub fn report(&self) -> JobReport {
        let status = match &self.phase {
            Phase::Starting { .. } => JobStatus::Starting,
            Phase::Running { since } | Phase::Ending { since, .. } | Phase::Unwatched { since, .. } => {
                JobStatus::Running { since: *since, generation: self.generation, is_confined: true }
            }
            Phase::Ended { at, exit, usage } => JobStatus::Ended { at: *at, exit: exit.clone(), usage: *usage },
        };
        JobReport { job: self.job, run: self.run, status }
    }

    fn exits_at(&self, since: Time) -> Time {
        self.part.runs.map_or(Time::NEVER, |runs| since + runs)
    }

    fn gone_after_term(&self, now: Time, grace: Span) -> Time {
        let killed_at = now + grace + KILL_TAKES;
        self.heeds_term.map_or(killed_at, |delay| killed_at.min(now + delay))
    }

    fn end(&mut self, since: Time, at: Time, exit: NodeExit) {
        let usage = Usage { cpu: at.since(since), peak_memory_kib: 1024 };
        self.phase = Phase::Ended { at, exit, usage };
    }
}

/// Returns the first cores of its grant, or of all cores, in the order in which agents assign them.
pub(crate) fn cores_of(wanted: &DesiredJob) -> Indices {
    let Some(place) = wanted.launch.nodes.get(wanted.node_idx as usize) else { return Indices::default() };
    match &place.grant {
        Some(grant) => grant.cores.iter().take(place.cpus as usize).collect(),
        None => Indices::below(place.cpus),
    }
}

/// The time to find and move all threads of the job.
const MASKS_TAKE: Span = Span::from_millis(3);
/// The time from KILL until the last process is reaped.
const KILL_TAKES: Span = Span::from_millis(2);
