//! The messages between the agents of one job: process management for MPI, and remote execution.

use rms_model::{Inherited, JobId, Limits, Run, Span};
use serde::{Deserialize, Serialize};

use crate::message::{Encoding, Kind, Message, Size};
use crate::pmi::{Down, Up};

/// The first frame of a channel between agents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerOpen {
    /// To the agent of node 0, which is the hub: [`PmiUp`] frames go there, [`PmiDown`] frames come back.
    Pmi { job: JobId, run: Run },
    /// Executes a command inside the job on the receiving node; [`PeerExec`] frames follow in both directions.
    Exec(Exec),
    /// Starts the tasks of a step of the job on the receiving node; [`StepDown`] frames go there, [`StepUp`] frames
    /// come back.
    Step(Box<StepPart>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    pub job: JobId,
    pub run: Run,
    /// For a shell, as remote shells interpret it.
    pub command: String,
    /// Of the caller; that of the job if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inherited: Option<Inherited>,
}

/// The part of a job's step on one of its nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepPart {
    pub job: JobId,
    pub run: Run,
    /// Its number in the job.
    pub step: u32,
    pub argv: Vec<String>,
    /// The differences of its environment from the job's on that node.
    pub set: Vec<(String, String)>,
    pub unset: Vec<String>,
    pub cwd: String,
    pub umask: u32,
    /// Of the caller; those of the job if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// The number of the first task here, and how many tasks the step has here and on all nodes.
    pub first_task: u32,
    pub n_local: u32,
    pub n_tasks: u32,
    pub cpus_per_task: u32,
    /// How many tasks here, from the first on, read the standard input; the others have none.
    pub n_readers: u32,
    /// The nodes of the step in the order of its tasks, as a hostlist; their number, and the index of this one.
    pub nodes: String,
    pub n_nodes: u32,
    pub node_idx: u32,
    /// `2(x3),1`: two tasks on each of three nodes, then one.
    pub tasks_per_node: String,
    /// The key-value space of its ranks, the mapping of ranks to nodes, and the number of ranks for which there is
    /// room.
    pub kvsname: String,
    pub mapping: String,
    pub universe: u32,
    /// The time between TERM and KILL.
    pub grace: Span,
}

/// From the starter to the tasks of a step on one node. Closing the channel ends them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepDown {
    Stdin {
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    StdinEof,
    Signal {
        signal: i32,
    },
    /// Send TERM, and KILL once the grace time has passed.
    End,
    /// From the hub of the step's ranks.
    Pmi(Down),
}

/// From the tasks of a step on one node to the starter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepUp {
    Stdout {
        task: u32,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    Stderr {
        task: u32,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// The number of input bytes that all readers here have read.
    Taken { n_bytes: u64 },
    /// Exactly one of `code` and `signal` is set.
    TaskEnded { task: u32, code: Option<i32>, signal: Option<i32> },
    /// The ranks abort: the step must end everywhere.
    Aborted { code: i32 },
    /// To the hub of the step's ranks.
    Pmi(Up),
    /// Last: no process of the step is left here.
    Done,
    /// Last: the step was not executed, or not to its end.
    Failed { reason: String },
}

/// From a node of the job to the hub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PmiUp {
    /// First: the generation of the job's nodes that the sender knows, and its initial number of ranks.
    Init {
        joined: u32,
        n_local: u32,
    },
    Say(Up),
}

/// From the hub to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PmiDown {
    Say(Down),
    /// The node does not belong to the job.
    Refused {
        reason: String,
    },
}

/// Both directions of a remote execution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerExec {
    Stdin {
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    StdinEof,
    Stdout {
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    Stderr {
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    Signal {
        signal: i32,
    },
    /// Last: exactly one of the two is set.
    Exit {
        code: Option<i32>,
        signal: Option<i32>,
    },
    /// Last: the command was never executed.
    Failed {
        reason: String,
    },
}

impl Message for PeerOpen {
    const KIND: Kind = Kind::PeerOpen;
    const SIZE: Size = Size::Bulk;
}

impl Message for PmiUp {
    const KIND: Kind = Kind::PmiUp;
    const SIZE: Size = Size::Whole;
}

impl Message for PmiDown {
    const KIND: Kind = Kind::PmiDown;
    const SIZE: Size = Size::Whole;
}

impl Message for PeerExec {
    const KIND: Kind = Kind::PeerExec;
    const ENCODING: Encoding = Encoding::Fixed;
    const SIZE: Size = Size::Chunk;
}

impl Message for StepDown {
    const KIND: Kind = Kind::StepDown;
    const SIZE: Size = Size::Whole;
}

impl Message for StepUp {
    const KIND: Kind = Kind::StepUp;
    const SIZE: Size = Size::Whole;
}
