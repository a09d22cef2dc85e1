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

/// From a host of the job to the hub.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum PmiUp {
    /// First: which host, and how many ranks it has.
    Init {
        host_idx: u32,
        n_local: u32,
    },
    /// All local ranks have entered fence `seq`; these pairs were put since the last one.
    Fence {
        seq: u64,
        pairs: Vec<Pair>,
    },
    Abort {
        code: i32,
        message: String,
    },
    Publish {
        id: u64,
        service: String,
        port: String,
    },
    Unpublish {
        id: u64,
        service: String,
    },
    Lookup {
        id: u64,
        service: String,
    },
    /// All local ranks have finalized.
    Finalized,
}

/// From the hub to a host.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum PmiDown {
    /// Every host has entered fence `seq`; these pairs are the others'.
    FenceDone {
        seq: u64,
        pairs: Vec<Pair>,
    },
    PublishDone {
        id: u64,
        ok: bool,
    },
    UnpublishDone {
        id: u64,
        ok: bool,
    },
    LookupDone {
        id: u64,
        port: Option<String>,
    },
    Aborted {
        code: i32,
    },
    /// The job is not here, or the host is none of it.
    Refused {
        reason: String,
    },
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
