//! What the server answers: jobs, nodes, views and what becomes of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use rms_model::token::{Issued, Token};
use rms_model::{
    ClusterId, CpuLoans, Generation, Grant, Inventory, JobId, JobRecord, JobSpec, Labels, Outcome, Owner, Policy,
    Profile, Request, ResourceRequest, Run, Slice, Span, Time,
};
use serde::{Deserialize, Serialize};

use crate::audit::AuditEntry;
pub use crate::masks::LoanLine;
use crate::masks::NodeMasks;
use crate::negotiate::{AskOutcome, BudgetLine, Declared, NegotiationLine};
use crate::refusal::Refused;
pub use crate::stages::{StageLine, Stages};
use crate::subscription::AdaptationDelays;

/// A job has moved on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobChange {
    pub job: JobId,
    pub run: Run,
    pub state: JobState,
    /// Names of its nodes, once started; node 0 first.
    pub nodes: Vec<String>,
    /// Set once it has ended.
    pub outcome: Option<Outcome>,
}

/// The states of 001, Fig. 4, and `Held` beside `Submitted` for a launcher that is kept from requesting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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
    /// Those of jobs that have not left the system, in the order of a job's life.
    pub const IN_SYSTEM: [JobState; 7] = [
        JobState::Submitted,
        JobState::Held,
        JobState::RequestSent,
        JobState::Waiting,
        JobState::Started,
        JobState::Ending,
        JobState::Ghost,
    ];

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

    /// Whether nothing will change any more that a watcher cares for.
    pub fn is_over(self) -> bool {
        match self {
            JobState::Ghost | JobState::Finished => true,
            JobState::Submitted
            | JobState::Held
            | JobState::RequestSent
            | JobState::Waiting
            | JobState::Started
            | JobState::Ending => false,
        }
    }
}

/// The answer to a call that was not refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
        refused: Vec<(JobId, Refused)>,
    },
    Queue {
        now: Time,
        /// When the plan was made by which waiting jobs would start.
        #[serde(default)]
        planned: Time,
        jobs: Vec<JobLine>,
    },
    Detail {
        now: Time,
        /// As for the queue.
        #[serde(default)]
        planned: Time,
        jobs: Vec<JobDetail>,
    },
    Nodes {
        now: Time,
        nodes: Vec<NodeLine>,
        clusters: Vec<(ClusterId, String)>,
    },
    Clusters(Vec<(ClusterId, String)>),
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
    Masks {
        now: Time,
        nodes: Vec<NodeMasks>,
    },
    /// The change is durable.
    Done,
    /// From here on: what the server around the core answers.
    History(Vec<JobRecord>),
    Launchers(Box<LauncherReport>),
    Server(ServerReport),
    /// Certificates in PEM, for a renewal.
    Certificate {
        chain: String,
        ca: String,
    },
}

/// One line of the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobLine {
    pub job: JobId,
    pub run: Run,
    /// Without the comment, which is in the details.
    #[serde(default)]
    pub labels: Labels,
    pub owner: Owner,
    pub state: JobState,
    pub priority: i32,
    pub n_tasks: u32,
    pub cpus_per_task: u32,
    /// What it asks of its nodes beside tasks and CPUs.
    #[serde(default, skip_serializing_if = "ResourceRequest::is_default")]
    pub resources: ResourceRequest,
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
    /// Names, once started; node 0 first.
    pub nodes: Vec<String>,
    pub reason: Option<Reason>,
    pub outcome: Option<Outcome>,
    /// Of an evolving application.
    pub stages: Option<Stages>,
    /// Between which sizes it may be changed while it runs.
    pub malleable: Option<Declared>,
}

/// All that is known of one job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobDetail {
    pub line: JobLine,
    /// Shared with the state where the asker may read all of it: many may ask for many.
    pub spec: Arc<JobSpec>,
    /// Of nodes whose cores were negotiated.
    pub cores: Vec<CoresLine>,
    /// What it has of nodes that it shares, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub grants: BTreeMap<String, Grant>,
    /// Once it has lent CPUs or begun on those of others (004).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<SharingDetail>,
}

/// What a running job has lent and borrowed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharingDetail {
    /// The wall time that it asked for; with fewer CPUs it may take longer.
    pub asked_wall: Span,
    pub lent: Vec<LoanLine>,
    pub borrowed: Vec<LoanLine>,
    /// Until now.
    pub loans: CpuLoans,
}

/// How many cores of a node a job has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoresLine {
    pub node: String,
    pub n_cores: u32,
    /// As many as the node has.
    pub all: u32,
    /// Its agent has said that all processes of the job keep to them.
    pub is_in_force: bool,
}

/// Why a job is not running now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The usable nodes of the cluster are too few for any of its sizes, until nodes come back.
    TooFewNodes {
        cluster: String,
        wanted: u32,
        usable: u32,
        total: u32,
        /// The cluster has too few of these, whatever nodes there are.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        licence: Option<Box<LicenceShortage>>,
        /// They are to follow one another, as no more than `usable` do.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        contiguous: bool,
    },
    /// The step of the profile that blocks it: there `busy` of `capacity` nodes are taken.
    Blocked {
        cluster: String,
        wanted: u32,
        capacity: u32,
        busy: u32,
        from: Time,
        until: Time,
        by: Vec<Blocker>,
        /// All nodes of the cluster, usable or not.
        total: u32,
        /// Where jobs share nodes: what of them is short.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        short: Option<Box<Shortage>>,
        /// It lacks these, whatever nodes are free.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        licence: Option<Box<LicenceShortage>>,
        /// It waits for these, which follow one another.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        neighbours: Vec<String>,
        /// Of a job that may run on lent cores: why no running job lends to it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lenders: Option<Box<Lenders>>,
    },
    /// Its launcher has subscribed and sent no request; it is expected by then.
    NoRequest {
        until: Option<Time>,
    },
    /// Its nodes are free, but the agents of so many nodes of the cluster have not come back since the server was
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

/// How many nodes have free what a job takes of each, one resource after the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortage {
    pub each: Slice,
    pub with_cores: u32,
    /// Of those.
    pub with_memory: u32,
    /// Of those.
    pub with_devices: u32,
}

/// Running jobs of a cluster that share their nodes, and why none of them lends cores to a job that waits (004, §3.2). Each
/// is counted under the first reason that holds; the rest could lend, but no permitted number of them has exactly as many
/// nodes as the job needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lenders {
    /// Even on as many cores as the sharing factor allows the job would end no earlier than it is planned to.
    pub ends_no_earlier: bool,
    pub n_sharing: u32,
    /// Lend or borrow cores, negotiate, start or end.
    pub n_busy: u32,
    /// Their slowdown would exceed the cut-off.
    pub n_slowed: u32,
    /// Have more nodes than the job asks for.
    pub n_larger: u32,
    /// End before the job would, can spare too few cores, or their nodes lack something that it asks for.
    pub n_unfit: u32,
}

/// A licence of which too few are free for a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LicenceShortage {
    pub name: String,
    pub wanted: u32,
    pub free: u32,
    pub total: u32,
}

/// A job that holds nodes, or is planned on some, while too few are free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocker {
    pub job: JobId,
    pub state: JobState,
    pub nodes: u32,
    pub from: Time,
    pub until: Time,
    /// It does not have them: they are kept for what is negotiated with it.
    pub is_offer: bool,
    /// It waits, and was promised them (the policy `conservative`).
    pub is_promised: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLine {
    pub name: String,
    pub cluster: String,
    pub state: NodeState,
    pub reason: Option<String>,
    /// Since when it is in this state.
    pub since: Time,
    pub inventory: Inventory,
    /// What nobody has of it, where jobs share nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<Slice>,
    pub address: String,
    pub generation: Generation,
    pub jobs: Vec<JobId>,
}

/// A node's state as one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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
    pub const ALL: [NodeState; 8] = [
        NodeState::Idle,
        NodeState::Busy,
        NodeState::Ghost,
        NodeState::Draining,
        NodeState::Drained,
        NodeState::Down,
        NodeState::Away,
        NodeState::Lost,
    ];

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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewAnswer {
    pub now: Time,
    /// The job whose view it is; absent for the whole system.
    pub job: Option<JobId>,
    pub clusters: Vec<ClusterView>,
}

/// The occupation of one cluster, layer by layer; their sum is the cluster occupation profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterView {
    pub cluster: ClusterId,
    pub name: String,
    /// Nodes that may be used.
    pub capacity: u32,
    /// Nodes that exist.
    pub total: u32,
    pub started: Profile,
    pub ghosts: Profile,
    /// Waiting jobs, placed at their estimates.
    pub planned: Profile,
    /// Nodes that nobody has: they are kept for what is negotiated with running jobs.
    pub offered: Profile,
    /// Of the view of a job with an external launcher: from so many of the nodes it may choose, if not from all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choosable: Option<u32>,
}

/// Sizes and counters of the core.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Node-milliseconds that expired ghosts have kept idle.
    pub ghost_node_time: Span,
    pub launchers: LauncherStatus,
    /// How many of the queue's first applications a pass considers now; none: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_depth: Option<u32>,
}

/// What external launchers have cost, since the server started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LauncherStatus {
    /// Applications that an external launcher serves, and how many of those are connected.
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
    /// Of [`Status::ghost_node_time`], by the name of the cluster. Not only since the server started.
    pub ghost_node_time: Vec<(String, Span)>,
}

/// What launchers have cost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LauncherReport {
    /// By the core's count.
    pub status: LauncherStatus,
    /// By the server's.
    pub traffic: LauncherTraffic,
}

/// Launchers' channels since the server was started, with all bytes of their frames (001, Fig. 12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LauncherTraffic {
    /// Open now.
    pub n_open: u64,
    pub n_opened: u64,
    /// From launchers.
    pub bytes_up: u64,
    /// To launchers.
    pub bytes_down: u64,
}

/// How the server itself is, beside what it decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerReport {
    pub version: String,
    /// When it was started.
    pub since: Time,
    /// The journal with the history, on the disk.
    pub journal_bytes: u64,
    /// When the last snapshot was made, if there is one.
    pub snapshot: Option<Time>,
    pub snapshot_bytes: u64,
    /// Why jobs that end now are not written to the history, if that is so.
    pub history_failure: Option<String>,
}
