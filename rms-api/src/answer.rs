//! What the server answers: jobs, nodes, views and what becomes of them.

use std::sync::Arc;

use rms_model::token::{Issued, Token};
use rms_model::{
    ClusterId, Generation, Inventory, JobId, JobSpec, Outcome, Owner, Policy, Profile, Request, Run, Span, Time,
};

use crate::audit::AuditEntry;
use crate::negotiate::{AskOutcome, BudgetLine, Declared, NegotiationLine};
use crate::refusal::Refusal;
use crate::subscription::AdaptationDelays;

/// A job has moved on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobChange {
    pub job: JobId,
    pub run: Run,
    pub state: JobState,
    /// Names of its nodes, once started; host 0 first.
    pub nodes: Vec<String>,
    /// Set once it has ended.
    pub outcome: Option<Outcome>,
}

/// The states of 001, Fig. 4, and `Held` beside `Submitted` for a launcher that is kept from requesting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobState {
    Submitted,
    Held,
    RequestSent,
    Waiting,
    Started,
    /// Settled how it ends; its processes are being ended.
    Ending,
    Ghost,
    Finished,
}

impl JobState {
    pub fn word(self) -> &'static str {
        match self {
            JobState::Submitted => "submitted",
            JobState::Held => "held",
            JobState::RequestSent => "request_sent",
            JobState::Waiting => "waiting",
            JobState::Started => "started",
            JobState::Ending => "ending",
            JobState::Ghost => "ghost",
            JobState::Finished => "finished",
        }
    }
}

/// The answer to a call that was not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Submitted {
        job: JobId,
    },
    /// For `test_only`: when it would start, if it were submitted now.
    WouldStart {
        request: Request,
        at: Option<Time>,
        reason: Option<Reason>,
    },
    /// What a cancel, signal, hold, release or priority did, job by job.
    Jobs {
        done: Vec<JobId>,
        refused: Vec<(JobId, Refusal)>,
    },
    Queue {
        now: Time,
        jobs: Vec<JobLine>,
    },
    Detail {
        now: Time,
        jobs: Vec<JobDetail>,
    },
    Nodes {
        now: Time,
        nodes: Vec<NodeLine>,
        clusters: Vec<(ClusterId, String)>,
    },
    View(ViewAnswer),
    Settings(Vec<(String, String)>),
    Audit(Vec<AuditEntry>),
    Tokens(Vec<Token>),
    Certificates(Vec<Issued>),
    Status(Status),
    /// What came of an ask.
    Negotiated(AskOutcome),
    Negotiations {
        now: Time,
        lines: Vec<NegotiationLine>,
    },
    Budgets(Vec<BudgetLine>),
    /// The change is durable.
    Done,
}

/// One line of the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobLine {
    pub job: JobId,
    pub run: Run,
    pub name: String,
    pub owner: Owner,
    pub state: JobState,
    pub priority: i32,
    pub n_tasks: u32,
    pub cpus_per_task: u32,
    pub submitted: Time,
    /// When it took its place in the queue (001: its first request).
    pub requested: Option<Time>,
    /// The request as started, or the one that the last plan chose, or the first option.
    pub request: Request,
    pub started: Option<Time>,
    /// When a waiting job would start, by the last plan.
    pub estimate: Option<Time>,
    /// When a started job must end, or a ghost expires.
    pub until: Option<Time>,
    /// Names, once started; host 0 first.
    pub nodes: Vec<String>,
    pub reason: Option<Reason>,
    pub outcome: Option<Outcome>,
    /// Of an evolving application.
    pub stages: Option<Stages>,
    /// Between which sizes it may be changed while it runs.
    pub malleable: Option<Declared>,
}

/// How far an evolving application is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stages {
    /// Which stage it is in, counted from 1; the first one while it waits.
    pub number: u32,
    /// How many there are with those before.
    pub n_stages: u32,
    /// This stage and those after it, as far as they were asked for: a line of the queue has two.
    pub legs: Vec<StageLine>,
    /// By how much the next stage is late.
    pub late_by: Option<Span>,
    /// More may follow.
    pub open: bool,
    /// Counts the changes of its hosts, from 1; 0 while it waits.
    pub generation: u32,
    /// Nodes that it frees at its next smaller stage, by name.
    pub chosen: Vec<String>,
    /// Nodes that it has freed, but whose processes have not been seen gone.
    pub leaving: Vec<String>,
    /// How often its processes had to be killed because they did not leave nodes that it had freed.
    pub n_violations: u32,
}

/// One stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageLine {
    pub hosts: u32,
    /// As requested.
    pub span: Span,
    /// As promised, or estimated while it waits; absent where nobody can say.
    pub start: Option<Time>,
}

/// All that is known of one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobDetail {
    pub line: JobLine,
    /// Shared with the state where the asker may read all of it: many may ask for many.
    pub spec: Arc<JobSpec>,
    /// Of hosts whose cores were negotiated.
    pub cores: Vec<CoresLine>,
}

/// How many cores of a host a job has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoresLine {
    pub node: String,
    pub n_cores: u32,
    /// As many as the host has.
    pub all: u32,
    /// Its agent has said that all processes of the job keep to them.
    pub is_in_force: bool,
}

/// Why a job is not running now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    Held {
        by: String,
    },
    NotBefore {
        at: Time,
    },
    /// No pass has seen it yet; the next one is due at `next_pass`.
    NotPlanned {
        next_pass: Time,
    },
    /// It stands behind the first `depth` applications, which alone are considered.
    BeyondDepth {
        depth: u32,
        position: u32,
    },
    /// The usable hosts of the cluster are too few for any of its sizes, until nodes come back.
    TooFewHosts {
        cluster: String,
        wanted: u32,
        usable: u32,
        total: u32,
    },
    /// The step of the profile that blocks it: there `busy` of `capacity` hosts are taken.
    Blocked {
        cluster: String,
        wanted: u32,
        capacity: u32,
        busy: u32,
        from: Time,
        until: Time,
        by: Vec<Blocker>,
        /// All hosts of the cluster, usable or not.
        total: u32,
    },
    /// Its launcher has subscribed and sent no request; it is expected by then.
    NoRequest {
        until: Option<Time>,
    },
    /// Its hosts are free, but the agents of so many nodes of the cluster have not come back since the server was
    /// restarted; it is planned with them until then.
    AgentsExpected {
        cluster: String,
        n_nodes: u32,
        until: Time,
    },
    /// It could start, but its launcher could not be told: it has been away since then, and is lost at `until`.
    LauncherAway {
        since: Time,
        until: Option<Time>,
    },
    /// The policy lets nobody pass that job, which waits until then.
    Behind {
        policy: Policy,
        job: JobId,
        until: Time,
    },
}

/// A job that holds hosts, or is planned on some, while too few are free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocker {
    pub job: JobId,
    pub state: JobState,
    pub hosts: u32,
    pub from: Time,
    pub until: Time,
    /// It does not have them: they are kept for what is negotiated with it.
    pub is_offer: bool,
    /// It waits, and was promised them (the policy `conservative`).
    pub is_promised: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeLine {
    pub name: String,
    pub cluster: String,
    pub state: NodeState,
    pub reason: Option<String>,
    /// Since when it is in this state.
    pub since: Time,
    pub inventory: Inventory,
    pub address: String,
    pub generation: Generation,
    pub jobs: Vec<JobId>,
}

/// A node's state as one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    Idle,
    Busy,
    /// A ghost keeps it.
    Ghost,
    Draining,
    Drained,
    Down,
    Away,
    Lost,
}

impl NodeState {
    pub fn word(self) -> &'static str {
        match self {
            NodeState::Idle => "idle",
            NodeState::Busy => "busy",
            NodeState::Ghost => "ghost",
            NodeState::Draining => "draining",
            NodeState::Drained => "drained",
            NodeState::Down => "down",
            NodeState::Away => "away",
            NodeState::Lost => "lost",
        }
    }
}

/// Occupation profiles at `now`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewAnswer {
    pub now: Time,
    /// The job whose view it is; absent for the whole system.
    pub job: Option<JobId>,
    pub clusters: Vec<ClusterView>,
}

/// The occupation of one cluster, layer by layer; their sum is the cluster occupation profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterView {
    pub cluster: ClusterId,
    pub name: String,
    /// Hosts that may be used.
    pub capacity: u32,
    /// Hosts that exist.
    pub total: u32,
    pub started: Profile,
    pub ghosts: Profile,
    /// Waiting jobs, placed at their estimates.
    pub planned: Profile,
    /// Hosts that nobody has: they are kept for what is negotiated with running jobs.
    pub offered: Profile,
}

/// Sizes and counters of the core.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    pub now: Time,
    pub n_nodes: u32,
    pub n_connected: u32,
    pub n_waiting: u32,
    pub n_started: u32,
    pub n_ghosts: u32,
    /// Jobs ever submitted.
    pub n_submitted: u64,
    pub n_passes: u64,
    pub last_pass: Option<Time>,
    /// Host-milliseconds that expired ghosts have kept idle.
    pub ghost_host_time: Span,
    pub launchers: LauncherStatus,
}

/// What launchers outside have cost, since the server started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LauncherStatus {
    /// Applications that a launcher outside speaks for, and how many of those are connected.
    pub n_launchers: u32,
    pub n_connected: u32,
    /// Views sent, requests taken, and their bytes by the count of 001, B.1.
    pub n_notices: u64,
    pub notice_bytes: u64,
    pub n_requests: u64,
    pub request_bytes: u64,
    /// Calls that were refused.
    pub n_refused: u64,
    pub adaptations: AdaptationDelays,
    /// Of [`Status::ghost_host_time`], by the name of the cluster. Not only since the server started.
    pub ghost_host_time: Vec<(String, Span)>,
}
