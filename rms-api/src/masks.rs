//! Which CPUs jobs are to use on their nodes, and which their processes may use: the server knows the one, agents see the other.

use rms_model::{Indices, JobId, Owner, Run, Time, checked};
use serde::{Deserialize, Serialize};

/// Of what somebody asks for the masks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MasksOf {
    /// On all of its nodes.
    Job(JobId),
    /// All jobs that run there.
    Node(#[serde(deserialize_with = "checked::name")] String),
}

/// Sets the mask of one process of a job, as DROM does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaskOrder {
    /// Where it runs; it may be absent for a job that has one node.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "checked::opt_name")]
    pub node: Option<String>,
    pub process: ProcessOf,
    /// By the kernel's numbers; none: all that the job has there, as before anybody has set it.
    pub cpus: Indices,
}

/// Which process of a job on a node.
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
    /// Why nobody has looked at its processes, if nobody has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent: Option<String>,
}

/// One job on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobMasks {
    pub of: MaskedJob,
    pub name: String,
    pub owner: Owner,
    /// To guests, of its cores there.
    pub lent: Vec<LoanLine>,
    /// Of owners, as their guest.
    pub borrowed: Vec<LoanLine>,
    /// What the agent has seen; absent if it has said nothing, or does not have the job yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<SeenMasks>,
}

/// Cores of one node that one job has of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoanLine {
    pub node: String,
    /// The other one.
    pub job: JobId,
    pub cores: Indices,
    /// Since when the two share what they have now.
    pub since: Time,
    /// The owner's processes have left them.
    pub is_in_force: bool,
}

/// What the server means a job to have of a node now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaskedJob {
    pub job: JobId,
    pub run: Run,
    /// Of a node that it shares, by the server's numbers; absent: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<Indices>,
    /// So many CPUs of these.
    pub n_cpus: u32,
    #[serde(default)]
    pub one_thread_a_core: bool,
}

/// What an agent sees of one job. CPUs have the kernel's numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenMasks {
    /// What the job is to use, as CPUs of this machine.
    pub intended: Indices,
    /// On which any of the processes that are listed may run.
    pub actual: Indices,
    /// Parents before their children; the first ones, where there are many.
    pub processes: Vec<ProcessMask>,
    /// All of them.
    pub n_processes: u32,
}

/// One process of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessMask {
    pub pid: i32,
    /// Of which task it is, if it is of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<u32>,
    /// The name of its program; empty for those who may not read the job.
    pub program: String,
    pub n_threads: u32,
    /// On which any of its threads may run.
    pub cpus: Indices,
    /// What it was told to use, if it follows the CPUs of its job by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<Indices>,
    /// It has not taken that up yet.
    #[serde(default)]
    pub is_behind: bool,
    /// A team of GCC's OpenMP that has more threads than CPUs since these were changed, and cannot follow: it may be many
    /// times slower than its CPUs.
    #[serde(default)]
    pub is_slow_team: bool,
}
