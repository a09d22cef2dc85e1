//! What the server and a node's agent tell each other: the whole desired state down, reality up.
//!
//! The server never sends differences. A node's desired state is complete and carries a generation, so a
//! lost message, a reconnect or a restart is healed by sending it again.

use std::sync::Arc;

use rms_model::{
    Execution, Generation, Grant, Inventory, JobId, Labels, Mebibytes, NodeId, OnResize, Owner, Run, Span, Time, Usage,
};
use serde::{Deserialize, Serialize};

/// Everything one node should be doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Desired {
    pub generation: Generation,
    /// In the order of job ids. What is not listed should not be there: a job that ended is forgotten, one
    /// that still runs is fenced off and killed.
    pub jobs: Vec<DesiredJob>,
}

/// One execution of one job on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DesiredJob {
    pub job: JobId,
    pub run: Run,
    pub aim: Aim,
    /// The same on every node of the job.
    pub launch: Arc<Launch>,
    /// Which of [`Launch::nodes`] this node is.
    pub node_idx: u32,
}

impl DesiredJob {
    /// With which generation of the job's nodes this one came.
    pub fn joined(&self) -> u32 {
        self.launch.nodes.get(self.node_idx as usize).map_or(1, |node| node.joined)
    }
}

/// What the node should bring about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Aim {
    /// Start it if it was never started here, and let it run.
    Run,
    /// Wait for `patience`, TERM, wait for `grace`, KILL; no longer than processes are left. A job that was never started
    /// here is reported as ended at once.
    End { patience: Span, grace: Span },
}

/// How to execute a job; complete, so that an agent, and the supervisor that it hands this to, need to ask nobody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    #[serde(default)]
    pub labels: Labels,
    pub owner: Owner,
    pub execution: Execution,
    pub n_tasks: u32,
    pub cpus_per_task: u32,
    /// Counted by each node from its own start of the job, so clocks need not agree.
    pub wall: Span,
    /// Between TERM and KILL when the wall time is over.
    pub grace: Span,
    /// Node 0 runs a script; tasks are spread in blocks in this order.
    pub nodes: Vec<LaunchNode>,
    /// Counts the changes of the nodes, from 1: an agent that sees a higher one tells the processes.
    #[serde(default = "first")]
    pub generation: u32,
    /// Of a malleable job: what happens in it when its nodes change. Its processes may negotiate for it then, with
    /// credentials that the agent places.
    pub on_resize: Option<OnResize>,
    /// Between how many nodes a malleable job was submitted; 0 and 0 where it named none.
    #[serde(default)]
    pub least: u32,
    #[serde(default)]
    pub most: u32,
    /// So much its processes may have on each node, where the node can see to that; 0: all.
    #[serde(default)]
    pub memory: Mebibytes,
    /// Its CPUs are cores: of each core that it has, the other hardware threads stay idle.
    #[serde(default)]
    pub one_thread_a_core: bool,
}

impl Launch {
    /// The least that can be said of an execution: one task in `/`, with an empty environment, and no node yet.
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
        }
    }
}

/// Of the nodes of a job.
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
    /// `ip:port` where the other agents of the job reach this one.
    pub address: String,
    pub first_task: u32,
    pub n_tasks: u32,
    /// Those that the job has there: all of the node, unless it has given some back.
    pub cpus: u32,
    /// The generation with which it came. A node that was freed and comes again is started again.
    #[serde(default = "first")]
    pub joined: u32,
    /// The job was asked to leave it; what runs there runs on until it has, or is given up.
    #[serde(default)]
    pub departing: bool,
    /// What the job has of a node that it shares; absent: all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<Grant>,
}

/// One job as an agent sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobReport {
    pub job: JobId,
    pub run: Run,
    pub status: JobStatus,
}

/// Reality on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobStatus {
    Running {
        since: Time,
        /// Of the job's nodes and what it has of them, as its share here knows them.
        generation: u32,
        /// Do all its processes keep to the cores, memory and devices that it has here by that generation? Not if the node
        /// refuses.
        is_confined: bool,
    },
    /// No process of the job is left on this node.
    Ended { at: Time, exit: NodeExit, usage: Usage },
    /// It was ordered, and no process has answered yet. Only a whole report says so: a server that gave the job up
    /// must know that it is there.
    Starting,
}

impl JobStatus {
    /// It runs, with what it was started with.
    pub const fn running(since: Time) -> JobStatus {
        JobStatus::Running { since, generation: 1, is_confined: true }
    }
}

/// How a job's share on one node ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeExit {
    /// The script, or the highest code of the node's tasks; 0 is success.
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
    /// Ended because the server wanted it.
    Ordered,
    /// Its processes are gone and nobody saw how: the node was restarted or the supervisor killed.
    Vanished {
        reason: String,
    },
    NotStarted {
        reason: String,
    },
    /// Ended because the server wanted it, by KILL: it had not left within the grace after TERM.
    Overstayed,
    /// The kernel killed processes of it that wanted more memory than it had asked for.
    OutOfMemory,
    /// Somebody killed the supervisor, and the agent ended what it had left.
    Unsupervised {
        reason: String,
    },
    /// Ended by the node, whose rules it did not keep to.
    Violated {
        reason: String,
    },
}

/// What an agent tells: all its jobs after a (re)connect, the changed ones otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// The highest generation that the agent acts on.
    pub seen: Generation,
    pub jobs: Vec<JobReport>,
}

/// What an agent says of its node when it connects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentHello {
    #[serde(deserialize_with = "rms_model::checked::name")]
    pub cluster: String,
    /// `ip:port` where other agents reach it.
    #[serde(deserialize_with = "rms_model::checked::text")]
    pub address: String,
    pub inventory: Inventory,
    /// Why no job can start there, if none can: said with the hello, so that none is sent before that is known.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "rms_model::checked::opt_text")]
    pub trouble: Option<String>,
}
