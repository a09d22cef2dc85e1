//! What a node agent tells the server on its control channel.

use bincode::{Decode, Encode};

use crate::message::{Kind, Message};
use crate::negotiate::Ask;
use crate::vocabulary::{Inventory, Usage};

/// The first frame is the hello; after it the reports of all jobs follow, the last one marked so.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum ToServer {
    Hello(AgentHello),
    /// Reality; long reports come in parts.
    Report(ReportPart),
    /// A certificate signing request over the agent's next key.
    Renew {
        csr: Vec<u8>,
    },
    /// A rank of a job on this node wants to spawn, and there is no room. `seq` is the agent's to choose.
    Ask {
        seq: u64,
        job: u64,
        run: u32,
        ask: Ask,
    },
    /// A certificate signing request over a key for the processes of a job on this node.
    Certify {
        seq: u64,
        job: u64,
        run: u32,
        csr: Vec<u8>,
    },
    /// Why no job can start on the node; absent: it is well. Said on each new link, and at each change.
    Trouble {
        reason: Option<String>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct AgentHello {
    pub cluster: String,
    /// `ip:port` where other agents reach this one.
    pub address: String,
    pub inventory: Inventory,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ReportPart {
    pub seen: u64,
    pub jobs: Vec<JobReport>,
    pub last: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct JobReport {
    pub job: u64,
    pub run: u32,
    pub status: JobStatus,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum JobStatus {
    Running { since: i64, generation: u32, is_confined: bool },
    Ended { at: i64, exit: NodeExit, usage: Usage },
    Starting,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum NodeExit {
    Exited { code: i32 },
    Signaled { signal: i32 },
    Aborted { code: i32 },
    WallTime,
    Ordered,
    Vanished { reason: String },
    NotStarted { reason: String },
    Overstayed,
    OutOfMemory,
    Unsupervised { reason: String },
    Violated { reason: String },
}

impl Message for ToServer {
    const KIND: Kind = Kind::ToServer;
}
