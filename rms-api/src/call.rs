//! Calls of users and programs to the server, before validation.

pub mod traits;
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

/// The calls of a client.
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
    /// Changes the given attributes of each of the jobs; either all changes are made or none.
    Update {
        select: Select,
        changes: Box<Changes>,
    },
    Query(Query),
    Set {
        key: String,
        value: String,
    },
    /// Drains nodes by name: nothing new starts on them.
    Drain {
        nodes: Vec<String>,
        reason: String,
    },
    /// Sets nodes down by name: jobs on them are ended.
    Down {
        nodes: Vec<String>,
        reason: String,
    },
    Resume {
        nodes: Vec<String>,
    },
    /// Removes nodes that are lost or will not return; refused while they hold jobs.
    Remove {
        nodes: Vec<String>,
    },
    CreateToken(TokenOrder),
    RevokeToken {
        id: String,
    },
    /// Redeems a token for a certificate over the key that signed `csr`. The only call without a certificate.
    /// The caller of a join has no identity: `who` is ignored. The server draws `serial`.
    #[serde(skip)]
    Join {
        token_id: String,
        digest: [u8; 32],
        /// The name that an agent requests. Without one, and if the token has none, the node is named after its
        /// `machine`.
        name: Option<String>,
        machine: Option<String>,
        /// Whether the caller is an agent; older callers do not say.
        is_agent: Option<bool>,
        csr: Vec<u8>,
        /// SHA-256 of the public key that signed `csr`.
        key: [u8; 32],
        serial: String,
        /// The serial of the certificate that the new one replaces, which is revoked.
        replaces: Option<String>,
    },
    /// Issues a new certificate for the caller's own identity. The server draws `serial`, and `renews` is the serial of
    /// the certificate with which the caller is connected.
    Renew {
        #[serde(with = "serde_bytes")]
        csr: Vec<u8>,
        #[serde(skip)]
        serial: String,
        #[serde(skip)]
        renews: Option<String>,
    },
    /// Revokes a certificate by serial, or all certificates of an identity.
    RevokeCertificate {
        which: CertificateSelect,
        /// What to do with the jobs of users who lose access. If there are such jobs, the call is refused without it.
        jobs: Option<JobsOfRevoked>,
    },
    /// Describes the connection of two clusters, by name, in both directions (001: ICINFO).
    SetLink {
        a: String,
        b: String,
        latency_us: u32,
        /// Megabits per second; 0 is unknown.
        bandwidth_mbit: u32,
    },
    /// Announces the stages of an evolving application again: all stages of a waiting one; of a running one those from
    /// now on, of which the first is what it holds.
    Evolve {
        job: JobId,
        stages: Evolution,
        open: bool,
    },
    /// Names the nodes that an evolving application frees at its next smaller stage.
    FreeNodes {
        job: JobId,
        nodes: Vec<String>,
    },
    /// Requests a change on behalf of an application. Answered once there is a result.
    Negotiate {
        job: JobId,
        ask: Ask,
    },
    /// Reports that the application has adapted to this generation of its nodes: it has left the nodes that it was
    /// asked to leave.
    ResizeDone {
        job: JobId,
        generation: u32,
    },
    /// Lets an admin or the owner intervene in a negotiation.
    OrderNegotiation {
        job: JobId,
        negotiation: NegotiationId,
        order: Order,
    },
    /// Sets the CPUs of one process of a running job. Answered with the job's masks on that node, once its agent has
    /// set them.
    SetMask {
        job: JobId,
        order: MaskOrder,
    },
    /// Removes a cluster that has no nodes.
    RemoveCluster {
        name: String,
    },
}

impl Call {
    /// Creates a call that sets the priority of jobs; those with higher values start first.
    pub fn set_priority(select: Select, priority: i32) -> Call {
        Call::Update { select, changes: Box::new(Changes::of_priority(priority)) }
    }
}

/// A token to be stored; the client drew its secret.
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
    /// The fingerprint of the CA that the token names: the token can be redeemed only while this CA signs.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "checked::opt_name")]
    pub ca: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CertificateSelect {
    Serial(String),
    Identity(Identity),
}

/// What to do with the jobs of a user whose certificates are revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobsOfRevoked {
    Keep,
    Cancel,
}

/// The jobs that a call is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Select {
    Ids(#[serde(deserialize_with = "checked::ids")] Vec<JobId>),
    /// The caller's newest job that is still in the system.
    Last,
    /// All of the caller's jobs; for an admin, all jobs.
    All,
    /// All jobs of one user.
    User(#[serde(deserialize_with = "checked::name")] String),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Query {
    /// Jobs in the system, in the order of their planned starts.
    Queue(JobFilter),
    Job(Select),
    /// Like `Job`, of the jobs that a filter selects, in the order of `Queue`.
    Details(JobFilter),
    Nodes(NodeFilter),
    /// The names of the clusters.
    Clusters,
    /// Why a job is in its current state.
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
    /// The negotiations of jobs in the system: of one job, or of all that the caller may see.
    Negotiations {
        job: Option<JobId>,
    },
    /// The CPUs assigned to jobs and the CPUs on which their processes may run, as known to the core and to the agents
    /// of the nodes.
    Masks(MasksOf),
    /// What the caller has paid for nodes; for an admin, what each user has paid.
    Budgets,
    /// The licences of all clusters, and which jobs have them.
    Licences,
}

/// The finished jobs to list, the last to end first. Absent or empty fields do not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryQuery {
    /// Owners of the jobs.
    pub users: Vec<String>,
    /// Words of [`Outcome::word`](rms_model::Outcome::word).
    pub states: Vec<String>,
    /// Jobs that ended at or after this time.
    pub since: Option<Time>,
    /// Jobs that ended before this time.
    pub until: Option<Time>,
    #[serde(deserialize_with = "checked::ids")]
    pub jobs: Vec<JobId>,
    pub names: Vec<String>,
    /// Jobs that had or requested nodes of these clusters, by name.
    #[serde(default)]
    pub clusters: Vec<String>,
    /// Replaces the default order (the last to end first), which still breaks ties.
    #[serde(default)]
    pub sort: Vec<(RecordColumn, Way)>,
    /// The most jobs to list; 0 for all.
    pub limit: u32,
    pub offset: u64,
    /// Accounts of the jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accounts: Vec<String>,
}

/// A job as requested; nothing in it is checked yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submission {
    #[serde(default)]
    pub labels: Labels,
    pub execution: Execution,
    /// Absent for one task per node.
    pub n_tasks: Option<u32>,
    /// 0 if not requested: the tasks share the CPUs of their node.
    pub cpus_per_task: u32,
    /// In order of preference if several are equally good; empty means [`Nodes::FromTasks`] for the default wall time.
    pub shapes: Vec<Shape>,
    /// Clusters that may be used; empty means any.
    pub clusters: Vec<String>,
    pub constraint: Constraint,
    #[serde(default, skip_serializing_if = "ResourceRequest::is_default")]
    pub resources: ResourceRequest,
    pub priority: i32,
    pub hold: bool,
    /// Whether it runs again after one of its nodes is lost; if absent, the setting decides.
    pub requeue: Option<bool>,
    pub begin: Option<Time>,
    /// Only validates and estimates; nothing is submitted.
    pub test_only: bool,
    /// Stages that replace the shapes.
    pub evolving: Option<Evolving>,
    pub malleable: Option<Malleable>,
}

impl Submission {
    /// Creates a minimal submission: one task on each node in `/`, with an empty environment, named after its work.
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

/// One possible size of a job.
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
