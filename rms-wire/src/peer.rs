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
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Exec {
    pub job: u64,
    pub run: u32,
    pub argv: Vec<String>,
    pub environment: Vec<Variable>,
    pub cwd: String,
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
