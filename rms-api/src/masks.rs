//! The CPUs assigned to jobs on their nodes, which the server knows, and those on which their processes may run, which
//! agents observe.

use rms_model::{Indices, JobId, Owner, Run, Time, checked};
use serde::{Deserialize, Serialize};

/// The scope of a request for masks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MasksOf {
    /// One job, on all of its nodes.
    Job(JobId),
    /// All jobs that run on a node.
    Node(#[serde(deserialize_with = "checked::name")] String),
}

/// Sets the mask of one process of a job, as DROM does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaskOrder {
    /// The node of the process; may be absent for a job with one node.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "checked::opt_name")]
    pub node: Option<String>,
    pub process: ProcessOf,
    /// The kernel's numbers; empty for all CPUs that the job has there, as before any change.
    pub cpus: Indices,
}

/// A process of a job on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessOf {
    Pid(i32),
    /// The first process of a task, by the task's number in the job.
    Task(u32),
}

/// The jobs of one node and their CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMasks {
    pub node: String,
    pub jobs: Vec<JobMasks>,
    /// Why the processes on the node were not inspected, if they were not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent: Option<String>,
}

/// One job on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobMasks {
    pub of: MaskedJob,
    pub name: String,
    pub owner: Owner,
    /// Its cores there that it lends to guests.
    pub lent: Vec<LoanLine>,
    /// Cores that it borrows from owners as their guest.
    pub borrowed: Vec<LoanLine>,
    /// What the agent reports; absent if it has not answered or does not have the job yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<SeenMasks>,
}

/// Cores of one node that one job has lent to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoanLine {
    pub node: String,
    /// The other job.
    pub job: JobId,
    pub cores: Indices,
    /// The time since which the borrower has these cores.
    pub since: Time,
    /// The owner's processes have left them.
    pub is_in_force: bool,
}

/// What a job should have of a node now, according to the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaskedJob {
    pub job: JobId,
    pub run: Run,
    /// The cores of a node that it shares, by the server's numbers; absent for all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<Indices>,
    /// The number of CPUs that it has on these cores.
    pub n_cpus: u32,
    #[serde(default)]
    pub one_thread_a_core: bool,
}

/// What an agent observes of one job. CPUs have the kernel's numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenMasks {
    /// The CPUs of this node that are assigned to the job.
    pub intended: Indices,
    /// The CPUs on which any of the listed processes may run.
    pub actual: Indices,
    /// Parents before their children; only the first ones if there are many.
    pub processes: Vec<ProcessMask>,
    /// The number of all processes.
    pub n_processes: u32,
}

/// One process of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessMask {
    pub pid: i32,
    /// The task that it belongs to, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<u32>,
    /// The name of its program; empty for callers who may not read the job.
    pub program: String,
    pub n_threads: u32,
    /// The CPUs on which any of its threads may run.
    pub cpus: Indices,
    /// Which threads may run where, if not all may run on the same CPUs; the most threads first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub of_threads: Vec<ThreadMask>,
    /// The CPUs that it was told to use, if it adapts to the CPUs of its job itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<Indices>,
    /// It has not adapted to them yet.
    #[serde(default)]
    pub is_behind: bool,
    /// It has a team of GCC's OpenMP with more threads than CPUs since these changed; such a team cannot adapt and may
    /// be many times slower than its CPUs.
    #[serde(default)]
    pub is_slow_team: bool,
}

/// Threads of a process that may run on the same CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadMask {
    pub n_threads: u32,
    pub cpus: Indices,
}
