//! The logic of one node: compares the desired state with the actual one, and orders the difference.
//!
//! It runs in every node agent and in the simulator. The driver handles processes, timers and files. Supervisors
//! enforce wall times and grace periods, so these hold while the agent is away.

use std::collections::BTreeMap;

use rms_api::desired::{Aim, Desired, DesiredJob, JobReport, JobStatus, NodeExit, NodeReport, Stay};
use rms_model::{Generation, JobId, Run, Span, Time, Usage};

/// An event on the node or from the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentEvent {
    /// Sent once, when the agent starts: the jobs that supervisors of an earlier agent still run or have ended.
    Found(Vec<Found>),
    /// The desired state from the server.
    Desired(Desired),
    /// A supervisor reported a change.
    Changed(JobReport),
    /// The link to the server is up; the full report is part of the hello, so nothing needs sending.
    LinkUp,
}

/// A job that an earlier agent started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub report: JobReport,
    pub stay: Stay,
    /// What its supervisor was told last; generation 1 if unknown.
    pub told: Told,
}

/// What may change while a job runs, as last sent to its supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    pub generation: u32,
    pub wall: Span,
}

/// An order to the driver, which acts on processes and files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentEffect {
    Start(DesiredJob),
    /// The job runs, and its nodes or its wall time have changed.
    Update(DesiredJob),
    /// To the whole process tree: wait for `patience`, send SIGTERM, wait for `grace`, send SIGKILL.
    Stop {
        job: JobId,
        run: Run,
        patience: Span,
        grace: Span,
    },
    /// Send SIGKILL now: the job is fenced, because another execution may run elsewhere under its number.
    Kill {
        job: JobId,
        run: Run,
    },
    /// The server knows how the job ended: what is kept of it may be removed.
    Forget {
        job: JobId,
        run: Run,
    },
    Report(NodeReport),
}

/// The jobs of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agent {
    /// The highest generation acted on; 0 before the first desired state.
    seen: Generation,
    jobs: BTreeMap<(JobId, Run), LocalJob>,
}

/// The state of a job on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LocalJob {
    status: Status,
    /// The patience with which its end was ordered.
    stopping: Option<Span>,
    /// Whether the server still desires the job.
    is_desired: bool,
    /// Whether the server was told how it ended while it desired the job. It may have ignored what a hello said: a
    /// server that was restored from a backup does not know the job yet, and starts it then.
    is_end_reported: bool,
    stay: Stay,
    told: Told,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Status {
    /// Start ordered; no supervisor has answered yet.
    Starting,
    Running {
        since: Time,
        generation: u32,
        is_confined: bool,
    },
    Ended {
        at: Time,
        exit: NodeExit,
        usage: Usage,
    },
}

impl Agent {
    pub fn new() -> Agent {
        Agent::default()
    }

    pub fn handle(&mut self, event: AgentEvent) -> Vec<AgentEffect> {
        let mut effects = Vec::new();
        match event {
            AgentEvent::Found(reports) => self.found(reports),
            AgentEvent::Desired(desired) => self.reconcile(desired, &mut effects),
            AgentEvent::Changed(report) => self.changed(report, &mut effects),
            AgentEvent::LinkUp => self.jobs.values_mut().for_each(|local| local.is_end_reported = false),
        }
        effects
    }

    /// Returns the report of every job on the node, for the hello.
    pub fn full_report(&self) -> NodeReport {
        let report = |((job, run), local): (&(JobId, Run), &LocalJob)| local.report(*job, *run);
        NodeReport { seen: self.seen, jobs: self.jobs.iter().map(report).collect() }
    }

    /// Takes over jobs from before. They count as desired until the server says otherwise: a restart must not kill
    /// jobs.
    fn found(&mut self, found: Vec<Found>) {
        for Found { report: JobReport { job, run, status }, stay, told } in found {
            let local = LocalJob { status: Status::of(status), ..LocalJob::new(stay, told) };
            self.jobs.insert((job, run), local);
        }
    }

    fn reconcile(&mut self, desired: Desired, effects: &mut Vec<AgentEffect>) {
        // A newer desired state has arrived already.
        if desired.generation < self.seen {
            return;
        }
        self.seen = desired.generation;
        for (key, local) in &mut self.jobs {
            local.is_desired = desired.jobs.iter().any(|wanted| (wanted.job, wanted.run) == *key);
        }
        self.drop_undesired(effects);
        let mut reports = Vec::new();
        for wanted in desired.jobs {
            self.reconcile_job(wanted, effects, &mut reports);
        }
        // An empty report would only confirm the generation; that is not worth a message.
        if !reports.is_empty() {
            effects.push(AgentEffect::Report(NodeReport { seen: self.seen, jobs: reports }));
        }
    }

    fn reconcile_job(&mut self, wanted: DesiredJob, effects: &mut Vec<AgentEffect>, reports: &mut Vec<JobReport>) {
        let (job, run, aim) = (wanted.job, wanted.run, wanted.aim);
        match (self.jobs.get_mut(&(job, run)), aim) {
            (None, Aim::Run) => self.start(wanted, effects),
            (None, Aim::End { .. }) => {
                // Ended before it began: nothing of the job will ever run here.
                let since = Time::EPOCH;
                let status = Status::Ended { at: since, exit: NodeExit::Ordered, usage: Usage::default() };
                let local =
                    LocalJob { status, is_end_reported: true, ..LocalJob::new(wanted.stay(), Told::by(&wanted)) };
                reports.push(local.report(job, run));
                self.jobs.insert((job, run), local);
            }
            (Some(local), Aim::Run) if local.has_ended() => {
                if local.stay.is_before(wanted.stay()) {
                    // The job left this node and comes back, or it is another job with this number.
                    effects.push(AgentEffect::Forget { job, run });
                    self.start(wanted, effects);
                } else {
                    local.report_end(&wanted, reports);
                }
            }
            (Some(local), Aim::Run) => {
                let told = Told::by(&wanted);
                if local.told != told {
                    local.told = told;
                    effects.push(AgentEffect::Update(wanted));
                }
            }
            (Some(local), Aim::End { .. }) if local.has_ended() => local.report_end(&wanted, reports),
            (Some(local), Aim::End { patience, grace }) => {
                // The end of a job that is leaving this node may still be ordered, with less patience.
                if local.stopping.is_none_or(|before| patience < before) {
                    local.stopping = Some(patience);
                    effects.push(AgentEffect::Stop { job, run, patience, grace });
                }
            }
        }
    }

    fn start(&mut self, wanted: DesiredJob, effects: &mut Vec<AgentEffect>) {
        let local = LocalJob::new(wanted.stay(), Told::by(&wanted));
        self.jobs.insert((wanted.job, wanted.run), local);
        effects.push(AgentEffect::Start(wanted));
    }

    /// Drops undesired jobs: forgets those that have ended, as the server has their results, and kills the others,
    /// which are fenced.
    fn drop_undesired(&mut self, effects: &mut Vec<AgentEffect>) {
        self.jobs.retain(|(job, run), local| {
            let (job, run) = (*job, *run);
            match (local.is_desired, local.has_ended()) {
                (true, _) => true,
                (false, true) => {
                    effects.push(AgentEffect::Forget { job, run });
                    false
                }
                (false, false) => {
                    effects.push(AgentEffect::Kill { job, run });
                    local.stopping = Some(Span::ZERO);
                    true
                }
            }
        });
    }

    fn changed(&mut self, report: JobReport, effects: &mut Vec<AgentEffect>) {
        let (job, run) = (report.job, report.run);
        let Some(local) = self.jobs.get_mut(&(job, run)) else { return };
        if local.has_ended() {
            return;
        }
        local.status = Status::of(report.status.clone());
        local.is_end_reported = local.is_desired && local.has_ended();
        effects.push(AgentEffect::Report(NodeReport { seen: self.seen, jobs: vec![report] }));
        if local.has_ended() && !local.is_desired {
            self.jobs.remove(&(job, run));
            effects.push(AgentEffect::Forget { job, run });
        }
    }
}

impl Told {
    /// Returns what a desired job tells its supervisor.
    pub fn by(wanted: &DesiredJob) -> Told {
        Told { generation: wanted.launch.generation, wall: wanted.launch.wall }
    }
}

impl LocalJob {
    fn new(stay: Stay, told: Told) -> LocalJob {
        let status = Status::Starting;
        LocalJob { status, stopping: None, is_desired: true, is_end_reported: false, stay, told }
    }

    /// Reports the end of a job that the server desires, unless it was told so.
    fn report_end(&mut self, wanted: &DesiredJob, reports: &mut Vec<JobReport>) {
        // The server may have ignored the report also as one about an earlier stay of the job here.
        if !self.is_end_reported || wanted.launch.generation > 1 {
            self.is_end_reported = true;
            reports.push(self.report(wanted.job, wanted.run));
        }
    }

    fn has_ended(&self) -> bool {
        match self.status {
            Status::Ended { .. } => true,
            Status::Starting | Status::Running { .. } => false,
        }
    }

    fn report(&self, job: JobId, run: Run) -> JobReport {
        let status = match &self.status {
            Status::Starting => JobStatus::Starting,
            Status::Running { since, generation, is_confined } => {
                JobStatus::Running { since: *since, generation: *generation, is_confined: *is_confined }
            }
            Status::Ended { at, exit, usage } => JobStatus::Ended { at: *at, exit: exit.clone(), usage: *usage },
        };
        JobReport { job, run, status }
    }
}

impl Status {
    fn of(status: JobStatus) -> Status {
        match status {
            JobStatus::Starting => Status::Starting,
            JobStatus::Running { since, generation, is_confined } => Status::Running { since, generation, is_confined },
            JobStatus::Ended { at, exit, usage } => Status::Ended { at, exit, usage },
        }
    }
}
