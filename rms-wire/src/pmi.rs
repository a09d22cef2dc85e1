//! The PMI messages between the nodes of a job and its hub.
//!
//! The connection between them may break and be re-established; then messages are lost or arrive twice. So each end
//! repeats what the other has not answered, and all messages are idempotent.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One process group of a job, numbered in the order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WorldId(pub u32);

impl WorldId {
    /// The initial world of the job.
    pub const FIRST: WorldId = WorldId(0);
}

impl fmt::Display for WorldId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// One rank of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RankId {
    pub world: WorldId,
    pub rank: u32,
}

impl fmt::Display for RankId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.world {
            WorldId::FIRST => write!(formatter, "rank {}", self.rank),
            world => write!(formatter, "rank {} of world {world}", self.rank),
        }
    }
}

/// One program of a spawn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    pub argv: Vec<String>,
    pub n_ranks: u32,
    /// The nodes on which it must run; empty for any node with room.
    pub nodes: Vec<NamedNode>,
    pub wdir: Option<String>,
    /// Directories in which the program is looked up, joined by colons.
    pub path: Option<String>,
}

/// A node that a program requested by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedNode {
    pub node: String,
    /// How many ranks the node takes before the next one is used.
    pub slots: Option<u32>,
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    pub key: String,
    pub value: String,
}

impl Pair {
    /// Returns what the pair counts towards the limit of a frame: its texts, and at most this much for all around them.
    pub fn n_bytes(&self) -> usize {
        144 + self.key.len() + self.value.len()
    }
}

/// From a node to the hub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Up {
    /// The connection is up: orders that the node has not answered must be repeated.
    Hello,
    /// All participating ranks of the world on this node are in fence `seq`; `pairs` were put since the previous fence.
    Fence {
        world: WorldId,
        seq: u64,
        pairs: Vec<Pair>,
    },
    Abort {
        code: i32,
        message: String,
    },
    /// A rank asks one question at a time; `id` numbers its questions.
    Ask {
        from: RankId,
        id: u64,
        question: Question,
    },
    /// A [`Down::Place`] was carried out, or the reason why not.
    Placed {
        world: WorldId,
        problem: Option<String>,
    },
    /// This many ranks of the world on this node still participate.
    Remaining {
        world: WorldId,
        n_ranks: u32,
    },
    /// The node knows about [`Down::Over`].
    Bye,
}

/// A request of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    Publish { service: String, port: String },
    Unpublish { service: String },
    Lookup { service: String },
    Spawn { commands: Vec<Command>, pairs: Vec<Pair> },
}

/// From the hub to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Down {
    /// Every node is in fence `seq`; these are all pairs put since the previous fence.
    FenceDone {
        world: WorldId,
        seq: u64,
        pairs: Vec<Pair>,
    },
    Answer {
        to: RankId,
        id: u64,
        answer: HubAnswer,
    },
    /// Start these ranks of a new world.
    Place(Placement),
    /// The world failed to start: any started part of it must be killed.
    Cancel {
        world: WorldId,
    },
    /// [`Up::Remaining`] was received.
    Noted {
        world: WorldId,
        n_ranks: u32,
    },
    Aborted {
        code: i32,
    },
    /// No rank of any world is left, and none will be started.
    Over,
}

/// The answer to a [`Question`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HubAnswer {
    Published {
        ok: bool,
    },
    Unpublished {
        ok: bool,
    },
    Found {
        port: Option<String>,
    },
    Spawned {
        n_ranks: u32,
    },
    /// No rank of the spawn runs.
    NotSpawned {
        reason: String,
    },
}

/// The ranks of a new world on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    pub world: WorldId,
    pub kvsname: String,
    /// The number of ranks of the world on all nodes.
    pub n_ranks: u32,
    /// The number of ranks for which the job has room.
    pub universe: u32,
    /// The number of the first task here.
    pub first_task: u32,
    pub parts: Vec<Part>,
    /// The initial content of the key-value space.
    pub pairs: Vec<Pair>,
}

/// Consecutive ranks that run the same program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub first_rank: u32,
    pub n_ranks: u32,
    /// The index of the command in the spawn.
    pub appnum: u32,
    pub argv: Vec<String>,
    pub wdir: Option<String>,
    pub path: Option<String>,
}
