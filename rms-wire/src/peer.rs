//! What the agents of one job say to each other: process management for MPI, and remote execution.

use rms_model::{JobId, Run, Span};
use serde::{Deserialize, Serialize};

use crate::message::{Encoding, Kind, Message, Size};
use crate::pmi::{Down, Up};

/// First frame of a channel between agents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerOpen {
    /// To the agent of node 0, which is the hub: [`PmiUp`] frames go there, [`PmiDown`] frames come back.
    Pmi { job: JobId, run: Run },
    /// Execute inside the job on the receiving node; [`PeerExec`] frames follow in both directions.
    Exec(Exec),
    /// Start the tasks that a step of the job has on the receiving node; [`StepDown`] frames go there, [`StepUp`] frames
    /// come back.
    Step(Box<StepPart>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    pub job: JobId,
    pub run: Run,
    /// For a shell, as remote shells take it.
    pub command: String,
}

/// What a step of a job is on one of its nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepPart {
    pub job: JobId,
    pub run: Run,
    /// Its number in the job.
    pub step: u32,
    pub argv: Vec<String>,
    /// How its environment differs from the job's on that node.
    pub set: Vec<(String, String)>,
    pub unset: Vec<String>,
    pub cwd: String,
    pub umask: u32,
    /// The tasks here, and all of them.
    pub first_task: u32,
    pub n_local: u32,
    pub n_tasks: u32,
    pub cpus_per_task: u32,
    /// So many tasks here, the first ones, read what is typed; the others find no input.
    pub n_readers: u32,
    /// The nodes of the step in the order of its tasks, folded; how many they are, and which of them this one is.
    pub nodes: String,
    pub n_nodes: u32,
    pub node_idx: u32,
    /// `2(x3),1`: two tasks on each of three nodes, then one.
    pub tasks_per_node: String,
    /// The key-value space of its ranks, which of them live together, and for how many there is room.
    pub kvsname: String,
    pub mapping: String,
    pub universe: u32,
    /// Between TERM and KILL.
    pub grace: Span,
}

/// To the tasks of a step on one node. Closing the channel ends them.
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
    /// TERM, and KILL once the grace time is over.
    End,
    /// From the hub of the step's ranks.
    Pmi(Down),
}

/// From the tasks of a step on one node.
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
    /// So much of what was typed has been read by all who read it here.
    Taken { n_bytes: u64 },
    /// One of the two is set.
    TaskEnded { task: u32, code: Option<i32>, signal: Option<i32> },
    /// The ranks abort: the step is to end everywhere.
    Aborted { code: i32 },
    /// To the hub of the step's ranks.
    Pmi(Up),
    /// Last: no process of it is left here.
    Done,
    /// Last: it was not executed, or not to its end.
    Failed { reason: String },
}

/// From a node of the job to the hub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PmiUp {
    /// First: with which generation of the job's nodes the sender came, and how many ranks it began with.
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
    /// The node is none of the job.
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
    /// Last: one of the two is set.
    Exit {
        code: Option<i32>,
        signal: Option<i32>,
    },
    /// Last: it was never executed.
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
