//! The nouns that several messages share, as they travel: plain numbers and texts, nothing checked yet.
//!
//! Times and spans are milliseconds. Each type stands for the one of the same name in `rms-model`.

use bincode::{Decode, Encode};

use crate::evolving::{Evolving, Stage};
use crate::negotiate::Malleable;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Role {
    Server,
    Agent,
    User,
    Admin,
    Job,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Identity {
    pub role: Role,
    pub name: String,
}

/// An environment variable.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Variable {
    pub name: String,
    pub value: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Work {
    Script { script: String, args: Vec<String> },
    Tasks { argv: Vec<String> },
    Hosts,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Stdio {
    pub input: Option<String>,
    pub output: Option<String>,
    pub error: Option<String>,
    pub append: bool,
    pub stream: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Limits {
    pub open_files: Option<u64>,
    pub core_bytes: Option<u64>,
    pub stack_bytes: Option<u64>,
    pub locked_bytes: Option<u64>,
    pub processes: Option<u64>,
    pub address_space_bytes: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Constraint {
    pub features: Vec<String>,
    pub memory_mib: u64,
    pub cpus: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Inventory {
    pub sockets: u32,
    pub numa_nodes: u32,
    pub cores: u32,
    pub cpus: u32,
    pub memory_mib: u64,
    pub speed_milli: u32,
    pub features: Vec<String>,
}

/// Hosts on one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ClusterHosts {
    pub cluster: u16,
    pub hosts: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Request {
    pub hosts: Vec<ClusterHosts>,
    pub wall: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Step {
    pub from: i64,
    pub hosts: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Profile {
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Outcome {
    Completed,
    Failed { code: i32 },
    Signaled { signal: i32 },
    Cancelled { by: String },
    WallTime,
    NodeLost { node: String },
    LauncherLost,
    NotStarted { node: String, reason: String },
    Violation { reason: String },
    StageLate { stage: u32 },
    OutOfMemory { node: String, limit_mib: u64 },
    Unsupervised { node: String, reason: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Usage {
    pub cpu: i64,
    pub peak_memory_kib: u64,
}

/// How many tasks a job has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum TaskCount {
    PerHost(u32),
    Total(u32),
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct JobSpec {
    pub name: String,
    pub owner: String,
    pub work: Work,
    pub tasks: TaskCount,
    pub cpus_per_task: u32,
    pub cwd: String,
    pub environment: Vec<Variable>,
    pub umask: u32,
    pub stdio: Stdio,
    pub limits: Limits,
    pub options: Vec<Request>,
    pub constraint: Constraint,
    pub priority: i32,
    pub requeue: Option<bool>,
    pub begin: Option<i64>,
    pub comment: String,
    pub evolving: Option<Evolving>,
    pub malleable: Option<Malleable>,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct JobRecord {
    pub job: u64,
    pub run: u32,
    pub name: String,
    pub owner: String,
    pub submitted: i64,
    pub eligible: i64,
    pub started: Option<i64>,
    pub ended: i64,
    pub request: Request,
    pub n_tasks: u32,
    pub cpus_per_task: u32,
    pub nodes: Vec<String>,
    pub outcome: Outcome,
    pub usage: Usage,
    pub evolution: Option<Vec<Stage>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum JobState {
    Submitted,
    Held,
    RequestSent,
    Waiting,
    Started,
    Ending,
    Ghost,
    Finished,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct JobChange {
    pub job: u64,
    pub run: u32,
    pub state: JobState,
    pub nodes: Vec<String>,
    pub outcome: Option<Outcome>,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum TokenIdentity {
    Named(Identity),
    AnyAgent,
}
