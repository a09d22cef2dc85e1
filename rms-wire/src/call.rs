//! What a user or an admin asks of the server: the first frame of each call channel.

use bincode::{Decode, Encode};

use crate::evolving::{Evolving, Stage};
use crate::follow::Offset;
use crate::message::{Kind, Message, Size};
use crate::negotiate::{Ask, Malleable, NegotiationId, Order};
use crate::vocabulary::{Constraint, Identity, Limits, Stdio, TokenIdentity, Variable, Work};

/// One call a channel. `Follow` and `Watch` are answered by [`Followed`](crate::Followed) frames until the end,
/// `Launcher` begins a conversation of its own (see [`launcher`](crate::launcher)), and everything else is answered by
/// [`ClientAnswer`](crate::ClientAnswer) frames until the last part.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum ClientCall {
    Submit(Box<Submission>),
    Cancel {
        select: Select,
    },
    Signal {
        select: Select,
        signal: i32,
    },
    Hold {
        select: Select,
    },
    Release {
        select: Select,
    },
    SetPriority {
        select: Select,
        priority: i32,
    },
    Query(Query),
    Set {
        key: String,
        value: String,
    },
    Drain {
        nodes: Vec<String>,
        reason: String,
    },
    Down {
        nodes: Vec<String>,
        reason: String,
    },
    Resume {
        nodes: Vec<String>,
    },
    Remove {
        nodes: Vec<String>,
    },
    CreateToken(TokenOrder),
    RevokeToken {
        id: String,
    },
    Renew {
        csr: Vec<u8>,
    },
    RevokeCertificate {
        which: CertificateSelect,
        /// What becomes of the jobs of users who are shut out; refused without it where there are any.
        jobs: Option<JobsOfRevoked>,
    },
    History(HistoryQuery),
    Follow(Follow),
    Watch {
        jobs: Vec<u64>,
    },
    /// The channel is a launcher's from here on.
    Launcher,
    /// The same in both directions; a bandwidth of 0 is unknown.
    SetLink {
        a: String,
        b: String,
        latency_us: u32,
        bandwidth_mbit: u32,
    },
    /// What launchers have cost.
    Launchers,
    Evolve {
        job: u64,
        stages: Vec<Stage>,
        open: bool,
    },
    FreeNodes {
        job: u64,
        nodes: Vec<String>,
    },
    /// The channel is that of a process of a job from here on, which negotiates for it (see
    /// [`negotiate`](crate::negotiate)).
    Negotiator,
    Negotiate {
        job: u64,
        ask: Ask,
    },
    ResizeDone {
        job: u64,
        generation: u32,
    },
    OrderNegotiation {
        job: u64,
        negotiation: NegotiationId,
        order: Order,
    },
    RemoveCluster {
        name: String,
    },
    /// How the server itself is.
    Server,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Submission {
    pub name: String,
    pub work: Work,
    pub n_tasks: Option<u32>,
    pub cpus_per_task: u32,
    pub cwd: String,
    pub environment: Vec<Variable>,
    pub umask: u32,
    pub stdio: Stdio,
    pub limits: Limits,
    pub shapes: Vec<Shape>,
    pub clusters: Vec<String>,
    pub constraint: Constraint,
    pub priority: i32,
    pub hold: bool,
    pub requeue: Option<bool>,
    pub begin: Option<i64>,
    pub comment: String,
    pub test_only: bool,
    pub evolving: Option<Evolving>,
    pub malleable: Option<Malleable>,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Shape {
    pub nodes: Nodes,
    pub wall: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Nodes {
    FromTasks,
    Count(u32),
    PerCluster(Vec<ClusterCount>),
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ClusterCount {
    pub cluster: String,
    pub nodes: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Select {
    Ids(Vec<u64>),
    Last,
    All,
    User(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Query {
    Queue,
    Job(Select),
    Nodes,
    Explain(Select),
    View { job: Option<u64> },
    Settings,
    Audit,
    Tokens,
    Certificates,
    Status,
    Negotiations { job: Option<u64> },
    Budgets,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct TokenOrder {
    pub id: String,
    pub digest: [u8; 32],
    pub identity: TokenIdentity,
    pub cluster: Option<String>,
    pub ttl: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum CertificateSelect {
    Serial(String),
    Identity(Identity),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum JobsOfRevoked {
    Keep,
    Cancel,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct HistoryQuery {
    pub user: Option<String>,
    pub states: Vec<String>,
    pub since: Option<i64>,
    pub until: Option<i64>,
    pub jobs: Vec<u64>,
    pub name: Option<String>,
    pub limit: u32,
    pub offset: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Follow {
    pub job: u64,
    /// The execution that `from` counts in.
    pub run: Option<u32>,
    pub from: Vec<Offset>,
    pub input: bool,
}

impl Message for ClientCall {
    const KIND: Kind = Kind::ClientCall;
    const SIZE: Size = Size::Bulk;
}
