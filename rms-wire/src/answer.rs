//! What the server answers to a call: one frame, or the parts of a list.

use bincode::{Decode, Encode};

use crate::evolving::Stages;
use crate::message::{Kind, Message, Size};
use crate::negotiate::{AskOutcome, BudgetLine, Declared, NegotiationLine};
use crate::refused::Refused;
use crate::vocabulary::{Identity, Inventory, JobRecord, JobSpec, JobState, Outcome, Profile, Request, TokenIdentity};

/// `last` marks the part after which nothing comes.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum ClientAnswer {
    Refused(Refused),
    Done,
    Submitted {
        job: u64,
    },
    WouldStart {
        request: Request,
        at: Option<i64>,
        reason: Option<Reason>,
    },
    Jobs {
        done: Vec<u64>,
        refused: Vec<RefusedJob>,
        last: bool,
    },
    Queue {
        now: i64,
        jobs: Vec<JobLine>,
        last: bool,
    },
    /// One job a frame: it brings its script.
    Detail {
        now: i64,
        job: Option<Box<JobDetail>>,
        last: bool,
    },
    Nodes {
        now: i64,
        nodes: Vec<NodeLine>,
        clusters: Vec<ClusterName>,
        last: bool,
    },
    /// One cluster a frame: profiles can be long.
    View {
        now: i64,
        job: Option<u64>,
        cluster: Option<ClusterView>,
        last: bool,
    },
    Settings {
        settings: Vec<Setting>,
        last: bool,
    },
    Audit {
        changes: Vec<AuditEntry>,
        last: bool,
    },
    Tokens {
        tokens: Vec<Token>,
        last: bool,
    },
    Certificates {
        certificates: Vec<Issued>,
        last: bool,
    },
    Status(Status),
    History {
        jobs: Vec<JobRecord>,
        last: bool,
    },
    /// Certificates in PEM.
    Certificate {
        chain: String,
        ca: String,
    },
    Launchers(LauncherReport),
    /// What came of an ask.
    Negotiated(AskOutcome),
    /// One negotiation a frame: it brings all of its rounds.
    Negotiations {
        now: i64,
        line: Option<Box<NegotiationLine>>,
        last: bool,
    },
    Budgets {
        users: Vec<BudgetLine>,
        last: bool,
    },
    Server(ServerReport),
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct RefusedJob {
    pub job: u64,
    pub refused: Refused,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct JobLine {
    pub job: u64,
    pub run: u32,
    pub name: String,
    pub owner: String,
    pub state: JobState,
    pub priority: i32,
    pub n_tasks: u32,
    pub cpus_per_task: u32,
    pub submitted: i64,
    pub requested: Option<i64>,
    pub request: Request,
    pub started: Option<i64>,
    pub estimate: Option<i64>,
    pub until: Option<i64>,
    pub nodes: Vec<String>,
    pub reason: Option<Reason>,
    pub outcome: Option<Outcome>,
    pub stages: Option<Stages>,
    pub malleable: Option<Declared>,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct JobDetail {
    pub line: JobLine,
    pub spec: JobSpec,
    pub cores: Vec<CoresLine>,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct CoresLine {
    pub node: String,
    pub n_cores: u32,
    pub all: u32,
    pub is_in_force: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Reason {
    Held {
        by: String,
    },
    NotBefore {
        at: i64,
    },
    NotPlanned {
        next_pass: i64,
    },
    BeyondDepth {
        depth: u32,
        position: u32,
    },
    TooFewHosts {
        cluster: String,
        wanted: u32,
        usable: u32,
        total: u32,
    },
    Blocked {
        cluster: String,
        wanted: u32,
        capacity: u32,
        busy: u32,
        from: i64,
        until: i64,
        by: Vec<Blocker>,
        total: u32,
    },
    NoRequest {
        until: Option<i64>,
    },
    AgentsExpected {
        cluster: String,
        n_nodes: u32,
        until: i64,
    },
    LauncherAway {
        since: i64,
        until: Option<i64>,
    },
    Behind {
        policy: QueuePolicy,
        job: u64,
        until: i64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Blocker {
    pub job: u64,
    pub state: JobState,
    pub hosts: u32,
    pub from: i64,
    pub until: i64,
    pub is_offer: bool,
    pub is_promised: bool,
}

/// Who may start before whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum QueuePolicy {
    Views,
    Fcfs,
    Easy,
    Conservative,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum NodeState {
    Idle,
    Busy,
    Ghost,
    Draining,
    Drained,
    Down,
    Away,
    Lost,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct NodeLine {
    pub name: String,
    pub cluster: String,
    pub state: NodeState,
    pub reason: Option<String>,
    pub since: i64,
    pub inventory: Inventory,
    pub address: String,
    pub generation: u64,
    pub jobs: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ClusterName {
    pub cluster: u16,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ClusterView {
    pub cluster: u16,
    pub name: String,
    pub capacity: u32,
    pub total: u32,
    pub started: Profile,
    pub ghosts: Profile,
    pub planned: Profile,
    pub offered: Profile,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Setting {
    pub key: String,
    pub value: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct AuditEntry {
    pub at: i64,
    pub by: String,
    pub subject: String,
    pub old: String,
    pub new: String,
    /// `set` for settings.
    pub action: String,
}

/// A token as the server remembers it: the digest of a random secret tells nothing of it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Token {
    pub id: String,
    pub digest: [u8; 32],
    pub identity: TokenIdentity,
    pub cluster: Option<String>,
    pub created: i64,
    pub created_by: String,
    pub expires: i64,
    pub state: TokenState,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum TokenState {
    Open,
    Used { at: i64 },
    Revoked { at: i64, by: String },
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Issued {
    pub serial: String,
    pub identity: Identity,
    pub issued: i64,
    pub expires: i64,
    pub revoked: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Status {
    pub now: i64,
    pub n_nodes: u32,
    pub n_connected: u32,
    pub n_waiting: u32,
    pub n_started: u32,
    pub n_ghosts: u32,
    pub n_submitted: u64,
    pub n_passes: u64,
    pub last_pass: Option<i64>,
    pub ghost_host_time: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct LauncherReport {
    pub n_launchers: u32,
    pub n_connected: u32,
    pub n_notices: u64,
    pub notice_bytes: u64,
    pub n_requests: u64,
    pub request_bytes: u64,
    pub n_refused: u64,
    pub adaptations: Delays,
    pub ghosts: Vec<GhostTime>,
    pub n_open: u64,
    pub n_opened: u64,
    pub bytes_up: u64,
    pub bytes_down: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Delays {
    pub count: u64,
    pub total: i64,
    pub longest: i64,
    pub buckets: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct GhostTime {
    pub cluster: String,
    pub host_time: i64,
}

impl Message for ClientAnswer {
    const KIND: Kind = Kind::ClientAnswer;
    const SIZE: Size = Size::Whole;
}

/// How the server itself is, beside what it decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct ServerReport {
    pub version: String,
    /// When it was started.
    pub since: i64,
    /// The journal with the history, on the disk.
    pub journal_bytes: u64,
    /// When the last snapshot was made, if there is one.
    pub snapshot: Option<i64>,
    pub snapshot_bytes: u64,
    /// Why jobs that end now are not written to the history, if that is so.
    pub history_failure: Option<String>,
}
