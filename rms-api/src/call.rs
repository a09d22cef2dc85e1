//! What users and programs ask of the server, as they say it and before it is checked.

pub mod update;

use std::collections::BTreeMap;

use negotiation::NegotiationId;
use rms_model::checked;
use rms_model::job::Constraint;
use rms_model::token::TokenIdentity;
use rms_model::{
    Evolution, Evolving, Execution, Identity, JobId, Labels, Malleable, ResourceRequest, Span, Time, Work,
};
use serde::{Deserialize, Serialize};

use crate::filter::{JobFilter, NodeFilter, RecordColumn, Way};
use crate::masks::{MaskOrder, MasksOf};
use crate::negotiate::{Ask, Order};
use update::Changes;

/// What a client may ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Call {
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
    /// Changes what was said of each of the jobs, all of it or nothing.
    Update {
        select: Select,
        changes: Box<Changes>,
    },
    Query(Query),
    Set {
        key: String,
        value: String,
    },
    /// Nodes by name; nothing new starts on them.
    Drain {
        nodes: Vec<String>,
        reason: String,
    },
    /// Nodes by name; what runs on them is ended.
    Down {
        nodes: Vec<String>,
        reason: String,
    },
    Resume {
        nodes: Vec<String>,
    },
    /// Forgets nodes that are lost or never came back; refused while they hold jobs.
    Remove {
        nodes: Vec<String>,
    },
    CreateToken(TokenOrder),
    RevokeToken {
        id: String,
    },
    /// Redeems a token for a certificate over the key that signed `csr`. The only call without a certificate.
    /// The caller of a join speaks for nobody: `who` is not looked at. `serial` was drawn by the server.
    #[serde(skip)]
    Join {
        token_id: String,
        digest: [u8; 32],
        /// The name that an agent wants; without one, and if the token has none, that of its `machine`.
        name: Option<String>,
        machine: Option<String>,
        /// Whether an agent joins, or somebody else; older ones do not say.
        is_agent: Option<bool>,
        csr: Vec<u8>,
        /// SHA-256 of the public key that signed `csr`.
        key: [u8; 32],
        serial: String,
        /// The certificate that the new one takes the place of, by its serial. It is revoked.
        replaces: Option<String>,
    },
    /// A fresh certificate for the caller's own identity. `serial` was drawn by the server.
    Renew {
        #[serde(with = "serde_bytes")]
        csr: Vec<u8>,
        #[serde(skip)]
        serial: String,
    },
    /// By serial, or all certificates of an identity.
    RevokeCertificate {
        which: CertificateSelect,
        /// What becomes of the jobs of users who are shut out; refused without it where there are any.
        jobs: Option<JobsOfRevoked>,
    },
    /// What lies between two clusters, by name, in both directions (001: ICINFO).
    SetLink {
        a: String,
        b: String,
        latency_us: u32,
        /// Megabits in a second; 0 is unknown.
        bandwidth_mbit: u32,
    },
    /// An evolving application announces its stages anew: a waiting one all of them, a running one those from now on,
    /// of which the first is what it holds.
    Evolve {
        job: JobId,
        stages: Evolution,
        open: bool,
    },
    /// An evolving application names, by name, nodes that it frees at its next smaller stage.
    FreeNodes {
        job: JobId,
        nodes: Vec<String>,
    },
    /// Somebody asks for an application. Answered once something came of it.
    Negotiate {
        job: JobId,
        ask: Ask,
    },
    /// The application has adapted itself to this generation of its nodes: those that it was asked to leave are free of
    /// it.
    ResizeDone {
        job: JobId,
        generation: u32,
    },
    /// An admin, or the owner, takes a hand in a negotiation.
    OrderNegotiation {
        job: JobId,
        negotiation: NegotiationId,
        order: Order,
    },
    /// Sets the CPUs of one process of a job that runs. Answered with the masks there, once its agent has done so.
    SetMask {
        job: JobId,
        order: MaskOrder,
    },
    /// Forgets a cluster that has no nodes.
    RemoveCluster {
        name: String,
    },
}

impl Call {
    /// The higher, the sooner.
    pub fn set_priority(select: Select, priority: i32) -> Call {
        Call::Update { select, changes: Box::new(Changes::of_priority(priority)) }
    }
}

/// A token to be remembered; its secret was drawn outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenOrder {
    #[serde(deserialize_with = "checked::name")]
    pub id: String,
    pub digest: [u8; 32],
    pub identity: TokenIdentity,
    #[serde(default, deserialize_with = "checked::opt_name")]
    pub cluster: Option<String>,
    #[serde(deserialize_with = "checked::span")]
    pub ttl: Span,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CertificateSelect {
    Serial(String),
    Identity(Identity),
}

/// What becomes of the jobs of a user whose certificates are revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobsOfRevoked {
    Keep,
    Cancel,
}

/// Which jobs a call means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Select {
    Ids(#[serde(deserialize_with = "checked::ids")] Vec<JobId>),
    /// The caller's newest job that is still in the system.
    Last,
    /// All of the caller's; for an admin, all of everybody's.
    All,
    /// All of one user's.
    User(#[serde(deserialize_with = "checked::name")] String),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Query {
    /// Jobs in the system, in the order in which they would start.
    Queue(JobFilter),
    Job(Select),
    Nodes(NodeFilter),
    /// What the clusters are called.
    Clusters,
    /// Why a job is where it is.
    Explain(Select),
    /// The occupation profiles: of the whole system, or as one waiting job sees them.
    View {
        job: Option<JobId>,
    },
    Settings,
    Audit,
    Tokens,
    Certificates,
    /// Counters and sizes of the server's core.
    Status,
    /// The negotiations of jobs that are in the system: of one, or of all that the caller may see.
    Negotiations {
        job: Option<JobId>,
    },
    /// Which CPUs jobs are to use, and which their processes may use: answered by the core and by the agents of the nodes.
    Masks(MasksOf),
    /// What the caller has paid for nodes; for an admin, what each user has.
    Budgets,
}

/// Which finished jobs to list, the last that ended first. What is absent or empty does not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryQuery {
    /// Their owners.
    pub users: Vec<String>,
    /// Words of [`Outcome::word`](rms_model::Outcome::word).
    pub states: Vec<String>,
    /// Ended at or after.
    pub since: Option<Time>,
    /// Ended before.
    pub until: Option<Time>,
    #[serde(deserialize_with = "checked::ids")]
    pub jobs: Vec<JobId>,
    pub names: Vec<String>,
    /// Those that had, or asked for, nodes of these clusters, by name.
    #[serde(default)]
    pub clusters: Vec<String>,
    /// In place of the last that ended first, which is left for those that are equal.
    #[serde(default)]
    pub sort: Vec<(RecordColumn, Way)>,
    /// At most so many; 0 for all.
    pub limit: u32,
    pub offset: u64,
}

/// A job as it was asked for; nothing in it is checked yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submission {
    #[serde(default)]
    pub labels: Labels,
    pub execution: Execution,
    /// Absent: one per node.
    pub n_tasks: Option<u32>,
    /// 0: not asked for, the tasks share the CPUs of their node.
    pub cpus_per_task: u32,
    /// In the order of preference between equals; empty means [`Nodes::FromTasks`] for the default wall time.
    pub shapes: Vec<Shape>,
    /// Clusters that may be used; empty means any.
    pub clusters: Vec<String>,
    pub constraint: Constraint,
    #[serde(default, skip_serializing_if = "ResourceRequest::is_default")]
    pub resources: ResourceRequest,
    pub priority: i32,
    pub hold: bool,
    /// After a node of it was lost; absent: as the setting says.
    pub requeue: Option<bool>,
    pub begin: Option<Time>,
    /// Check and estimate only: nothing is submitted.
    pub test_only: bool,
    /// Stages, in place of the shapes.
    pub evolving: Option<Evolving>,
    pub malleable: Option<Malleable>,
}

impl Submission {
    /// The least that can be asked for: one task on each node in `/`, with an empty environment, named after what it runs.
    #[must_use]
    pub fn of(execution: impl Into<Execution>, shapes: Vec<Shape>) -> Submission {
        let execution = execution.into();
        let name = match &execution.work {
            Work::Tasks { argv } => argv.first().cloned().unwrap_or_default(),
            Work::Script { .. } => "script".to_owned(),
            Work::Nodes => "nodes".to_owned(),
        };
        Submission {
            labels: Labels::named(name),
            execution,
            n_tasks: None,
            cpus_per_task: 0,
            shapes,
            clusters: Vec::new(),
            constraint: Constraint::default(),
            resources: ResourceRequest::default(),
            priority: 0,
            hold: false,
            requeue: None,
            begin: None,
            test_only: false,
            evolving: None,
            malleable: None,
        }
    }
}

/// One size a job can have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    pub nodes: Nodes,
    #[serde(default, deserialize_with = "checked::opt_span")]
    pub wall: Option<Span>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Nodes {
    /// As many nodes as the tasks and their CPUs need.
    FromTasks,
    Count(u32),
    /// Nodes on several clusters at once, by name.
    PerCluster(BTreeMap<String, u32>),
}
