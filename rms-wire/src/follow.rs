//! The streams of a running job: output from the nodes to its followers, input in the other direction.

use std::ops::Not;

use rms_api::Refused;
use rms_api::answer::JobChange;
use rms_model::{JobId, Run, Time};
use serde::{Deserialize, Serialize};

use crate::message::{Encoding, Kind, Message, Size};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Stream {
    Out,
    Err,
}

/// How much of a task's stream the follower already has. There can be many, so they are encoded without names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "(u32, u32, Stream, u64)", into = "(u32, u32, Stream, u64)")]
pub struct Offset {
    pub node_idx: u32,
    pub task: u32,
    pub stream: Stream,
    pub offset: u64,
}

impl From<(u32, u32, Stream, u64)> for Offset {
    fn from((node_idx, task, stream, offset): (u32, u32, Stream, u64)) -> Offset {
        Offset { node_idx, task, stream, offset }
    }
}

impl From<Offset> for (u32, u32, Stream, u64) {
    fn from(from: Offset) -> (u32, u32, Stream, u64) {
        (from.node_idx, from.task, from.stream, from.offset)
    }
}

/// Bytes of a stream and their offset in it; at most [`MAX_CHUNK_BYTES`](crate::message::MAX_CHUNK_BYTES).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    pub node_idx: u32,
    pub task: u32,
    pub stream: Stream,
    pub offset: u64,
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
}

/// The first frame of a channel that the server opens on an agent's link: send the job's streams from these offsets on.
/// [`Spooled`] frames answer, [`Input`] frames may follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowOrder {
    pub job: JobId,
    pub run: Run,
    pub from: Vec<Offset>,
    /// The job has ended: an agent that does not know it need not wait for it.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub is_over: bool,
    /// When the job was submitted, as in [`Launch`](rms_api::desired::Launch).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted: Option<Time>,
}

/// What an agent sends for a [`FollowOrder`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Spooled {
    Chunk(Chunk),
    /// The job has ended on this node and everything was sent.
    End,
    Failed {
        reason: String,
    },
    /// The job has ended on this node and the rest of its streams was sent, but data is missing from these offsets on.
    /// At most [`MAX_LINES`](crate::message::MAX_LINES) offsets are named.
    Missing {
        reason: String,
        from: Vec<Offset>,
    },
}

/// Output of a job that will never arrive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    pub node: String,
    pub reason: String,
    /// How much of the streams has arrived; at most [`MAX_LINES`](crate::message::MAX_LINES) are named. Of other
    /// streams, and of all if none is named, nothing may have arrived.
    pub from: Vec<Offset>,
    /// The node is connected and has sent nothing: the job has written nothing there that it keeps, or it was removed.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub is_unknown: bool,
}

/// What the server sends to a client that follows or watches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Followed {
    Chunk(Chunk),
    Change(JobChange),
    /// Nothing more will come.
    End,
    Refused(Refused),
    /// A node's output, or a part of it, will not arrive.
    Missing(Missing),
    /// The job has ended, and the server waits for its output on a node: for this many more seconds, or until the
    /// node's agent returns.
    Away {
        node: String,
        secs: u64,
    },
    /// All output of the job on this node was received, or is known to be missing.
    Whole {
        node: String,
    },
}

/// Standard input for task 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
    pub eof: bool,
}

impl Input {
    /// The end of the input. It may be sent again: a peer that has already ended the input ignores it.
    pub const END: Input = Input { bytes: Vec::new(), eof: true };
}

impl Message for FollowOrder {
    const KIND: Kind = Kind::FollowOrder;
}

impl Message for Spooled {
    const KIND: Kind = Kind::Spooled;
    const ENCODING: Encoding = Encoding::Fixed;
    const SIZE: Size = Size::Chunk;
}

impl Message for Followed {
    const KIND: Kind = Kind::Followed;
}

impl Message for Input {
    const KIND: Kind = Kind::Input;
    const ENCODING: Encoding = Encoding::Fixed;
    const SIZE: Size = Size::Chunk;
    /// A job that does not read its input now may do so much later.
    const MAY_WAIT: bool = true;
}
