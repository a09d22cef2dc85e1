//! What the agents of one job say to each other: process management for MPI, and remote execution.

use bincode::{Decode, Encode};

use crate::message::{Kind, Message, Size};
use crate::vocabulary::Variable;

/// First frame of a channel between agents.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum PeerOpen {
    /// To the agent of host 0, which is the hub: [`PmiUp`] frames go there, [`PmiDown`] frames come back.
    Pmi { job: u64, run: u32 },
    /// Execute inside the job on the receiving node; [`PeerExec`] frames follow in both directions.
    Exec(Exec),
    /// Start the tasks that a step of the job has on the receiving node; [`StepDown`] frames go there, [`StepUp`] frames
    /// come back.
    Step(StepPart),
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Exec {
    pub job: u64,
    pub run: u32,
    pub argv: Vec<String>,
    pub environment: Vec<Variable>,
    pub cwd: String,
}

/// What a step of a job is on one of its nodes.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct StepPart {
    pub job: u64,
    pub run: u32,
    /// Its number in the job.
    pub step: u32,
    pub argv: Vec<String>,
    /// How its environment differs from the job's on that node.
    pub set: Vec<Variable>,
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
    /// Milliseconds between TERM and KILL.
    pub grace: i64,
}

/// To the tasks of a step on one node. Closing the channel ends them.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum StepDown {
    Stdin {
        bytes: Vec<u8>,
    },
    StdinEof,
    Signal {
        signal: i32,
    },
    /// TERM, and KILL once the grace time is over.
    End,
    /// From the hub of the step's ranks.
    Pmi(PmiDown),
}

/// From the tasks of a step on one node.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum StepUp {
    Stdout {
        task: u32,
        bytes: Vec<u8>,
    },
    Stderr {
        task: u32,
        bytes: Vec<u8>,
    },
    /// So much of what was typed has been read by all who read it here.
    Taken {
        n_bytes: u64,
    },
    /// One of the two is set.
    TaskEnded {
        task: u32,
        code: Option<i32>,
        signal: Option<i32>,
    },
    /// The ranks abort: the step is to end everywhere.
    Aborted {
        code: i32,
    },
    /// To the hub of the step's ranks.
    Pmi(PmiUp),
    /// Last: no process of it is left here.
    Done,
    /// Last: it was not executed, or not to its end.
    Failed {
        reason: String,
    },
}

/// A key and its value in the job's key-value space.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Pair {
    pub key: String,
    pub value: String,
}

/// A rank: of which process group of the job, and which of its ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct RankId {
    pub world: u32,
    pub rank: u32,
}

/// From a host of the job to the hub.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum PmiUp {
    /// First: with which generation of the job's hosts the sender came, and how many ranks it began with.
    Init {
        joined: u32,
        n_local: u32,
    },
    /// Orders that were not answered are to be repeated.
    Hello,
    /// All local ranks of the world have entered fence `seq`; these pairs were put since the last one.
    Fence {
        world: u32,
        seq: u64,
        pairs: Vec<Pair>,
    },
    Abort {
        code: i32,
        message: String,
    },
    /// Question `id` of a rank.
    Ask {
        from: RankId,
        id: u64,
        question: Question,
    },
    /// A [`PmiDown::Place`] was carried out, or why not.
    Placed {
        world: u32,
        problem: Option<String>,
    },
    /// So many local ranks of the world have not finalized.
    Remaining {
        world: u32,
        n_ranks: u32,
    },
    /// [`PmiDown::Over`] was heard.
    Bye,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Question {
    Publish { service: String, port: String },
    Unpublish { service: String },
    Lookup { service: String },
    Spawn { commands: Vec<Command>, pairs: Vec<Pair> },
}

/// One program of a spawn.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Command {
    pub argv: Vec<String>,
    pub n_ranks: u32,
    /// None: wherever there is room.
    pub hosts: Vec<NamedHost>,
    pub wdir: Option<String>,
    pub path: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct NamedHost {
    pub node: String,
    pub slots: Option<u32>,
}

/// From the hub to a host.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum PmiDown {
    /// Every host has entered fence `seq`; these pairs are all that were put.
    FenceDone {
        world: u32,
        seq: u64,
        pairs: Vec<Pair>,
    },
    Answer {
        to: RankId,
        id: u64,
        answer: Answer,
    },
    /// Start these ranks.
    Place(Placement),
    /// End the ranks of this world, which did not come about.
    Cancel {
        world: u32,
    },
    /// [`PmiUp::Remaining`] was heard.
    Noted {
        world: u32,
        n_ranks: u32,
    },
    Aborted {
        code: i32,
    },
    /// No rank is left, or the job is not here any more.
    Over,
    /// The host is none of the job.
    Refused {
        reason: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Answer {
    Published { ok: bool },
    Unpublished { ok: bool },
    Found { port: Option<String> },
    Spawned { n_ranks: u32 },
    NotSpawned { reason: String },
}

/// The ranks of a new world on one host.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Placement {
    pub world: u32,
    pub kvsname: String,
    /// On all hosts.
    pub n_ranks: u32,
    /// How many ranks the job has room for.
    pub universe: u32,
    pub first_task: u32,
    pub parts: Vec<Part>,
    pub pairs: Vec<Pair>,
}

/// Ranks that follow each other and run the same program.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Part {
    pub first_rank: u32,
    pub n_ranks: u32,
    pub appnum: u32,
    pub argv: Vec<String>,
    pub wdir: Option<String>,
    pub path: Option<String>,
}

/// Both directions of a remote execution.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum PeerExec {
    Stdin {
        bytes: Vec<u8>,
    },
    StdinEof,
    Stdout {
        bytes: Vec<u8>,
    },
    Stderr {
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
