//! The server's answers: jobs, nodes, views and what happens to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rms_model::token::{Issued, Token};
use rms_model::{
    ClusterId, CpuLoans, Devices, FormerRun, Generation, Grant, Inventory, JobId, JobRecord, JobSpec, Labels,
    Mebibytes, Outcome, Owner, Policy, Profile, Request, ResourceRequest, Run, Slice, Span, Time,
};
use serde::{Deserialize, Serialize};

use crate::audit::AuditEntry;
pub use crate::masks::LoanLine;
use crate::masks::NodeMasks;
use crate::negotiate::{AskOutcome, BudgetLine, Declared, NegotiationLine};
use crate::refusal::Refused;
pub use crate::stages::{StageLine, Stages};
use crate::subscription::AdaptationDelays;

/// A change of a job's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobChange {
    pub job: JobId,
    pub run: Run,
    pub state: JobState,
    /// Names of its nodes, once it has started; the first node first.
    pub nodes: Vec<String>,
    /// Set once the job has ended.
    pub outcome: Option<Outcome>,
    /// When the job was submitted. With its number it names the job for ever: a server that was restored from a backup
    /// gives the numbers of later jobs again. Servers that are older than this field do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted: Option<Time>,
}

/// The states of 001, Fig. 4, plus `Held` for a job whose launcher must not send a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum JobState {
    Submitted,
    Held,
    RequestSent,
    Waiting,
    Started,
    /// The outcome is decided; its processes are being ended.
    Ending,
    Ghost,
    Finished,
}

impl JobState {
    /// The states of jobs that have not left the system, in the order of a job's life.
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

    /// Returns whether no further change matters to a watcher.
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
    /// For `test_only`: when the job would start if it were submitted now.
    WouldStart {
        request: Request,
        at: Option<Time>,
        reason: Option<Reason>,
        /// If several sizes are possible: when each would start if it were the only one. Empty otherwise, and if the
        /// job cannot be planned yet.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        sizes: Vec<(Request, Option<Time>)>,
        /// The server's clock when it answered; servers that do not know this field leave it out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        now: Option<Time>,
        /// The running jobs on whose cores it would start at once (004, §3). The request then has the time that it would
        /// take there.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        lent_by: Vec<JobId>,
    },
    /// The result of a cancel, signal, hold, release or priority, job by job.
    Jobs {
        done: Vec<JobId>,
        refused: Vec<(JobId, Refused)>,
    },
    Queue {
        now: Time,
        /// The time of the plan that determines the starts of waiting jobs.
        #[serde(default)]
        planned: Time,
        jobs: Vec<JobLine>,
    },
    Detail {
        now: Time,
        /// The same as for the queue.
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
    /// The result of [`Call::Negotiate`](crate::call::Call::Negotiate).
    Negotiated(AskOutcome),
    Negotiations {
        now: Time,
        lines: Vec<NegotiationLine>,
    },
    Budgets(Vec<BudgetLine>),
    /// Those of one cluster follow one another, in the order of their names.
    Licences(Vec<LicenceLine>),
    Masks {
        now: Time,
        nodes: Vec<NodeMasks>,
    },
    /// The change is durable.
    Done,
    /// The following answers come from the server, not from its core.
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
    /// Without the comment, which is part of the details.
    #[serde(default)]
    pub labels: Labels,
    pub owner: Owner,
    pub state: JobState,
    pub priority: i32,
    pub n_tasks: u32,
    pub cpus_per_task: u32,
    /// What it requests of its nodes in addition to tasks and CPUs.
    #[serde(default, skip_serializing_if = "ResourceRequest::is_default")]
    pub resources: ResourceRequest,
    pub submitted: Time,
    /// When it took its place in the queue (001: at its first request).
    pub requested: Option<Time>,
    /// The request with which it started, else the one chosen by the last plan, else the first option.
    pub request: Request,
    pub started: Option<Time>,
    /// When a waiting job would start according to the last plan.
    pub estimate: Option<Time>,
    /// When a started job must end, or a ghost expires.
    pub until: Option<Time>,
    /// Names of its nodes, once started; the first node first.
    pub nodes: Vec<String>,
    pub reason: Option<Reason>,
    pub outcome: Option<Outcome>,
    /// The stages of an evolving application.
    pub stages: Option<Stages>,
    /// The sizes between which it may be changed while it runs.
    pub malleable: Option<Declared>,
}

/// All details of one job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobDetail {
    pub line: JobLine,
    /// Shared with the core's state if the caller may read all of it, because many callers may query many jobs.
    pub spec: Arc<JobSpec>,
    /// Lists nodes with negotiated cores.
    pub cores: Vec<CoresLine>,
    /// Its part of each node that it shares, by the node's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub grants: BTreeMap<String, Grant>,
    /// Licences that a running job has now of each of its clusters, none where it has given all back. Absent for jobs
    /// that never had any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub licences: BTreeMap<ClusterId, Devices>,
    /// Why its last run ended, of a job that has returned to the queue; kept in its next run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_before: Option<Outcome>,
    /// The runs after which it returned to the queue; older servers send none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_runs: Vec<FormerRun>,
    /// Present once it has lent CPUs or has started on CPUs of other jobs (004).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<SharingDetail>,
    /// Nodes that it has for a limited time, by negotiation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limited: Vec<LimitedNodes>,
}

/// Nodes of a cluster that a running job has for a limited time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitedNodes {
    pub cluster: String,
    pub nodes: u64,
    /// When it is asked for them.
    pub until: Time,
}

/// What a running job has lent and borrowed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharingDetail {
    /// The wall time that it requested; with fewer CPUs it may take longer.
    pub asked_wall: Span,
    pub lent: Vec<LoanLine>,
    pub borrowed: Vec<LoanLine>,
    /// The loans until now.
    pub loans: CpuLoans,
}

/// The number of cores of a node that a job has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoresLine {
    pub node: String,
    pub n_cores: u32,
    /// The number of cores of the node.
    pub all: u32,
    /// The agent has confirmed that all processes of the job run only on them.
    pub is_in_force: bool,
}

/// The reason why a job is not running now, or what it awaits of its launcher once it has started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    Held {
        by: String,
    },
    NotBefore {
        at: Time,
    },
    /// No pass has considered it yet; the next one is due at `next_pass`.
    NotPlanned {
        next_pass: Time,
    },
    /// It is behind the first `depth` applications, and a pass considers only these.
    BeyondDepth {
        depth: u32,
        position: u32,
    },
    /// The cluster has too few usable nodes for any of its sizes, until nodes return.
    TooFewNodes {
        cluster: String,
        wanted: u32,
        usable: u32,
        total: u32,
        /// A licence of which the cluster has too few in total.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        licence: Option<Box<LicenceShortage>>,
        /// The nodes must be contiguous, and at most `usable` are.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        contiguous: bool,
        /// What usable nodes lack, if enough nodes are usable.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lacking: Option<Box<Lacking>>,
    },
    /// The step of the profile that blocks it, where `busy` of `capacity` nodes are taken.
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
        /// The resource that is short, if jobs share nodes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        short: Option<Box<Shortage>>,
        /// The licence that is short, even if nodes are free.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        licence: Option<Box<LicenceShortage>>,
        /// The contiguous nodes that it waits for.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        neighbours: Vec<String>,
        /// If it may run on lent cores: why no running job lends to it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lenders: Option<Box<Lenders>>,
    },
    /// Its launcher has subscribed and sent no request, which is expected by then. Of a started job: its launcher has
    /// neither launched nor accepted.
    NoRequest {
        until: Option<Time>,
    },
    /// Its nodes are free, but that many agents of the cluster are away and expected back. Until
    /// then it is planned on their nodes.
    AgentsExpected {
        cluster: String,
        n_nodes: u32,
        until: Time,
    },
    /// It could start, but its launcher could not be notified, or it has started and needs its launcher: it has been
    /// away since `since`, and is lost at `until`.
    LauncherAway {
        since: Time,
        until: Option<Time>,
    },
    /// The policy lets no job pass the job ahead of it, which waits until then.
    Behind {
        policy: Policy,
        job: JobId,
        until: Time,
    },
}

/// The first requirement of a job that too few usable nodes of a cluster meet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lacking {
    pub required: Required,
    /// The number of nodes that meet it.
    pub n_nodes: u32,
    /// The number of usable nodes that they are among: those that meet the requirements before it, which are in the order
    /// of `Required`.
    pub among: u32,
    /// Names of the first other nodes that meet it and those before it, and cannot be used now; at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unusable: Vec<String>,
    /// The first names that the job lists and no node has; at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
}

/// What a job requires of each of its nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Required {
    /// To be one of the nodes that the job lists, or none of those that it excludes.
    Names,
    Features(BTreeSet<String>),
    Sockets(u32),
    /// The speed in thousandths of the reference node's speed.
    Speed(u32),
    Scratch(Mebibytes),
    /// Physical cores.
    Cores(u32),
    /// Logical CPUs.
    Cpus(u32),
    Memory(Mebibytes),
    Devices(Devices),
}

/// The numbers of nodes that have what a job takes of each free, one resource after the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortage {
    pub each: Slice,
    pub with_cores: u32,
    /// The number of those with enough free memory.
    pub with_memory: u32,
    /// The number of those with enough free devices.
    pub with_devices: u32,
}

/// Running jobs of a cluster that share their nodes, and why none of them lends cores to a waiting job (004, §3.2).
/// Each is counted under the first reason that applies; the others could lend, but no permitted number of them has
/// exactly as many nodes as the job needs, or a stage that was promised to a running job would be late.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lenders {
    /// Even on as many cores as the sharing factor allows, the job would not end earlier than planned.
    pub ends_no_earlier: bool,
    pub n_sharing: u32,
    /// Jobs that lend or borrow cores, negotiate, start or end, or have not begun the last stage of their profile.
    pub n_busy: u32,
    /// Jobs with a slowdown that would exceed the cut-off.
    pub n_slowed: u32,
    /// Jobs with more nodes than the waiting job asks for.
    pub n_larger: u32,
    /// Jobs that end before the waiting job would, can spare too few cores for it to end earlier than planned, or have
    /// nodes without something that it asks for.
    pub n_unfit: u32,
    /// A licence that the waiting job asks for is not free now, and no job starts on lent cores without it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lacks_licence: bool,
    /// Why it never starts on lent cores; nothing is counted then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub never: Option<NeverGuest>,
}

/// Why a job that shares cores does not start on those that others lend, whatever they could lend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NeverGuest {
    /// It has a profile, whose stages would be late on fewer cores.
    Profile,
    /// It asks for nodes of several clusters.
    Clusters,
}

/// A licence of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LicenceLine {
    /// The name of the cluster.
    pub cluster: String,
    pub name: String,
    /// As many as the settings say; jobs may still have more.
    pub total: u32,
    /// The jobs that have some, in ascending order.
    pub holders: Vec<LicenceHolder>,
}

/// A job that runs and has some of a licence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LicenceHolder {
    pub job: JobId,
    pub count: u32,
}

impl LicenceLine {
    /// Returns how many jobs have.
    pub fn in_use(&self) -> u32 {
        self.holders.iter().map(|holder| holder.count).fold(0, u32::saturating_add)
    }

    /// Returns how many could be given to jobs now.
    pub fn free(&self) -> u32 {
        self.total.saturating_sub(self.in_use())
    }
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
    /// The job does not have the nodes; they are held for a negotiation with it.
    pub is_offer: bool,
    /// The job waits, and was promised the nodes (the policy `conservative`).
    pub is_promised: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLine {
    pub name: String,
    pub cluster: String,
    pub state: NodeState,
    pub reason: Option<String>,
    /// When its agent connected, or the node was drained, set down, away or lost, whichever its state says.
    pub since: Time,
    pub inventory: Inventory,
    /// The part that no job has, if jobs share nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<Slice>,
    pub address: String,
    pub generation: Generation,
    pub jobs: Vec<JobId>,
}

/// A node's state in one word.
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

/// The occupation of one cluster, by layers; their sum is the cluster occupation profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterView {
    pub cluster: ClusterId,
    pub name: String,
    /// The number of usable nodes.
    pub capacity: u32,
    /// The number of existing nodes.
    pub total: u32,
    pub started: Profile,
    pub ghosts: Profile,
    /// Waiting jobs, placed at their estimates.
    pub planned: Profile,
    /// Nodes that no job has, because they are held for negotiations with running jobs.
    pub offered: Profile,
    /// In the view of a job with an external launcher: the number of nodes that it may choose from, if not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choosable: Option<u32>,
    /// The same in cores, where jobs share nodes. The profiles above count a node as held if a job has any of its cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<CoresView>,
}

/// The occupation of a cluster that is shared by cores: its profiles count cores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoresView {
    /// The cores of usable nodes.
    pub capacity: u32,
    /// Cores that started jobs and ghosts have, or that are held for negotiations.
    pub taken: Profile,
    /// Those of waiting jobs, placed at their estimates.
    pub planned: Profile,
}

/// Sizes and counters of the core.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub now: Time,
    pub n_nodes: u32,
    pub n_connected: u32,
    /// Jobs that have requested nodes: not those that are held or must not start yet.
    pub n_waiting: u32,
    pub n_started: u32,
    pub n_ghosts: u32,
    /// The number of all jobs ever submitted.
    pub n_submitted: u64,
    pub n_passes: u64,
    pub last_pass: Option<Time>,
    /// Node-milliseconds that expired ghosts have kept idle.
    pub ghost_node_time: Span,
    pub launchers: LauncherStatus,
    /// The number of applications at the front of the queue that a pass considers now; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_depth: Option<u32>,
    /// Why no job starts and no new work is accepted now, if so: the disk of the server is full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shortage: Option<String>,
}

/// The cost of external launchers since the start of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LauncherStatus {
    /// Applications served by an external launcher, and how many of the launchers are connected.
    pub n_launchers: u32,
    pub n_connected: u32,
    /// Views sent, requests received, and their bytes as counted in 001, B.1.
    pub n_notices: u64,
    pub notice_bytes: u64,
    pub n_requests: u64,
    pub request_bytes: u64,
    /// The number of refused calls.
    pub n_refused: u64,
    pub adaptations: AdaptationDelays,
    /// The part of [`Status::ghost_node_time`] of each cluster, by name. Not limited to the time since the server
    /// started.
    pub ghost_node_time: Vec<(String, Span)>,
}

/// The cost of launchers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LauncherReport {
    /// The counters of the core.
    pub status: LauncherStatus,
    /// The counters of the server.
    pub traffic: LauncherTraffic,
}

/// Launchers' channels since the start of the server, with all bytes of their frames (001, Fig. 12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LauncherTraffic {
    /// Channels open now.
    pub n_open: u64,
    pub n_opened: u64,
    /// Bytes from launchers.
    pub bytes_up: u64,
    /// Bytes to launchers.
    pub bytes_down: u64,
}

/// The state of the server itself, as opposed to its decisions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerReport {
    pub version: String,
    /// The start of the server.
    pub since: Time,
    /// The size of the journal with the history on disk.
    pub journal_bytes: u64,
    /// The time of the last snapshot, if there is one.
    pub snapshot: Option<Time>,
    pub snapshot_bytes: u64,
    /// Why the history cannot be written or read now, if that fails.
    pub history_failure: Option<String>,
}
