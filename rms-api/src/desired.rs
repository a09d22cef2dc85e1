//! Messages between the server and a node's agent: the full desired state down, the actual state up.
//!
//! The server never sends differences. A node's desired state is complete and carries a generation, so sending it again
//! recovers from a lost message, a reconnect or a restart.

use std::sync::Arc;

use rms_model::{
    Execution, Generation, Grant, Inventory, JobId, Labels, Mebibytes, NodeId, OnResize, Owner, Run, Span, Time, Usage,
};
use serde::{Deserialize, Serialize};

/// The desired state of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Desired {
    pub generation: Generation,
    /// In the order of job ids. An agent removes jobs that are not listed: it forgets an ended job, and fences off and
    /// kills a running one.
    pub jobs: Vec<DesiredJob>,
}

/// One execution of one job on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DesiredJob {
    pub job: JobId,
    pub run: Run,
    pub aim: Aim,
    /// The same on all nodes of the job.
    pub launch: Arc<Launch>,
    /// The index of this node in [`Launch::nodes`].
    pub node_idx: u32,
}

impl DesiredJob {
    /// Returns the generation of the job's nodes with which this node was added.
    pub fn joined(&self) -> u32 {
        self.launch.nodes.get(self.node_idx as usize).map_or(1, |node| node.joined)
    }

    pub fn stay(&self) -> Stay {
        Stay { submitted: self.launch.submitted, joined: self.joined() }
    }
}

/// What the agent should do with the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Aim {
    /// Start it if it was never started here, and let it run.
    Run,
    /// Wait for `patience`, send TERM, wait for `grace`, send KILL; done when no processes are left. A job that was
    /// never started here is reported as ended at once.
    End { patience: Span, grace: Span },
}

/// How to execute a job; complete, so that the agent and the supervisor need no other source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    #[serde(default)]
    pub labels: Labels,
    pub owner: Owner,
    pub execution: Execution,
    pub n_tasks: u32,
    pub cpus_per_task: u32,
    /// Measured by each node from its own start of the job, so clocks need not agree.
    pub wall: Span,
    /// The time between TERM and KILL after the end of the wall time.
    pub grace: Span,
    /// The first node runs a script; tasks are distributed in blocks in this order.
    pub nodes: Vec<LaunchNode>,
    /// Counts the changes of the nodes, from 1: an agent that receives a higher number notifies the processes.
    #[serde(default = "first")]
    pub generation: u32,
    /// For a malleable job: what happens in it when its nodes change. Its processes may then negotiate for it, with
    /// credentials that the agent places.
    pub on_resize: Option<OnResize>,
    /// The range of node counts with which a malleable job was submitted; 0 and 0 if it gave none.
    #[serde(default)]
    pub least: u32,
    #[serde(default)]
    pub most: u32,
    /// The memory limit of its processes on each node, where the node can enforce it; 0 for no limit.
    #[serde(default)]
    pub memory: Mebibytes,
    /// Its CPUs are cores: the other hardware threads of each of its cores stay idle.
    #[serde(default)]
    pub one_thread_a_core: bool,
    /// The minimum number of CPUs that each task keeps while the job lends some, as in
    /// [`rms_model::ResourceRequest::min_cpus_per_task`].
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "rms_model::checked::counts")]
    pub min_cpus_per_task: Vec<u32>,
    /// When the job was submitted; the epoch if that is unknown. See [`Stay`].
    #[serde(default = "unknown", skip_serializing_if = "is_unknown")]
    pub submitted: Time,
}

/// One of several periods in which a node has a job of the same number: a job may free a node and get it again, and a
/// server restored from a backup assigns numbers again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stay {
    pub submitted: Time,
    /// The generation of the job's nodes with which the node was added.
    pub joined: u32,
}

impl Stay {
    /// The stay of a job of which nothing is known.
    pub const UNKNOWN: Stay = Stay { submitted: Time::EPOCH, joined: 1 };

    /// Returns whether this stay is over if the server wants `other`.
    pub fn is_before(self, other: Stay) -> bool {
        let is_known = self.submitted != unknown() && other.submitted != unknown();
        (is_known && self.submitted != other.submitted) || self.joined < other.joined
    }
}

fn unknown() -> Time {
    Time::EPOCH
}

fn is_unknown(submitted: &Time) -> bool {
    *submitted == unknown()
}

impl Launch {
    /// Creates a minimal execution: one task in `/`, with an empty environment, and no node yet.
    pub fn of(owner: Owner, execution: impl Into<Execution>) -> Launch {
        Launch {
            labels: Labels::default(),
            owner,
            execution: execution.into(),
            n_tasks: 1,
            cpus_per_task: 0,
            wall: Span::ZERO,
            grace: Span::ZERO,
            nodes: Vec::new(),
            generation: first(),
            on_resize: None,
            least: 0,
            most: 0,
            memory: Mebibytes(0),
            one_thread_a_core: false,
            min_cpus_per_task: Vec::new(),
            submitted: unknown(),
        }
    }

    /// Returns the number of CPUs that a task keeps while the job lends some.
    pub fn kept_by(&self, task: u32) -> u32 {
        let least = self.min_cpus_per_task.get(task as usize).or(self.min_cpus_per_task.last());
        least.copied().unwrap_or(1).max(1)
    }
}

/// Returns the first generation of the nodes of a job.
fn first() -> u32 {
    1
}

/// One node of a job and its share of the tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchNode {
    pub node: NodeId,
    #[serde(deserialize_with = "rms_model::checked::name")]
    pub name: String,
    #[serde(deserialize_with = "rms_model::checked::name")]
    pub cluster: String,
    /// `ip:port` at which the other agents of the job reach this one.
    pub address: String,
    pub first_task: u32,
    pub n_tasks: u32,
    /// The CPUs that the job has there: all of the node, unless it has given some back.
    pub cpus: u32,
    /// The CPUs that it requested there, if it has fewer now (it borrows some, lends some, or has given some back);
    /// else 0.
    #[serde(default, skip_serializing_if = "rms_model::checked::is_zero")]
    pub asked_cpus: u32,
    /// It borrows or lends CPUs and will get `asked_cpus` back by itself, so its steps may request as many. What it has
    /// given back is not its own any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shares_cpus: bool,
    /// The generation with which it was added. A node that was freed and added again starts from scratch.
    #[serde(default = "first")]
    pub joined: u32,
    /// The job was asked to leave it; processes there continue until it has left or its time is over.
    #[serde(default)]
    pub departing: bool,
    /// The job's part of a node that it shares; absent for all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<Grant>,
}

/// One job as reported by an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobReport {
    pub job: JobId,
    pub run: Run,
    pub status: JobStatus,
}

/// The actual state on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobStatus {
    Running {
        since: Time,
        /// The generation of the job's nodes and resources, as known to its share here.
        generation: u32,
        /// Whether all its processes are confined to the cores, memory and devices that it has here in that generation.
        /// False if the node cannot enforce this.
        is_confined: bool,
    },
    /// No process of the job is left on this node.
    Ended { at: Time, exit: NodeExit, usage: Usage },
    /// It was ordered, and no process has answered yet. Only a full report contains this: a server that has given up
    /// the job must know that it is there.
    Starting,
}

impl JobStatus {
    /// Returns the status of a job that runs with its initial resources.
    pub const fn running(since: Time) -> JobStatus {
        JobStatus::Running { since, generation: 1, is_confined: true }
    }
}

/// How a job's share on one node ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeExit {
    /// The exit code of the script, or the highest of the node's tasks; 0 is success.
    Exited {
        code: i32,
    },
    /// The script or a task was killed by a signal that was not ordered.
    Signaled {
        signal: i32,
    },
    /// A rank called abort, or left without finalizing: the whole job must end.
    Aborted {
        code: i32,
    },
    WallTime,
    /// Ended because the server ordered it.
    Ordered,
    /// Its processes vanished for an unknown reason: the node was restarted or the supervisor killed.
    Vanished {
        reason: String,
    },
    NotStarted {
        reason: String,
        /// Whether the node is at fault, so that the job may start elsewhere.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_node_fault: bool,
    },
    /// Ended by KILL on the server's order: it had not ended within the grace period after TERM.
    Overstayed,
    /// The kernel killed some of its processes because they needed more memory than requested.
    OutOfMemory,
    /// The supervisor was killed, and the agent ended the remaining processes.
    Unsupervised {
        reason: String,
    },
    /// Ended by the node because it violated a rule.
    Violated {
        reason: String,
    },
}

impl NodeExit {
    /// Creates the exit of a job that could not start.
    pub fn not_started(reason: &str) -> NodeExit {
        NodeExit::NotStarted { reason: reason.to_owned(), is_node_fault: false }
    }

    /// Creates the exit of a job that the node could not start, and could not have started another one.
    pub fn at_fault(reason: &str) -> NodeExit {
        let reason = format!("the node is at fault, not the job: {reason}");
        NodeExit::NotStarted { reason, is_node_fault: true }
    }
}

/// A report of an agent: all its jobs after a (re)connect, otherwise those that changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// The highest generation that the agent has acted on.
    pub seen: Generation,
    pub jobs: Vec<JobReport>,
}

/// The description of a node that its agent sends when it connects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentHello {
    #[serde(deserialize_with = "rms_model::checked::name")]
    pub cluster: String,
    /// `ip:port` where other agents reach it.
    #[serde(deserialize_with = "rms_model::checked::text")]
    pub address: String,
    pub inventory: Inventory,
    /// Why no job can start there, if so: part of the hello, so that the server knows before it sends a job.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "rms_model::checked::opt_text")]
    pub trouble: Option<String>,
}
