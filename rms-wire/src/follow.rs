//! Streams of a running job: output from the nodes to whoever follows, input the other way.

use bincode::{Decode, Encode};

use crate::message::{Kind, Message, Size};
use crate::refused::Refused;
use crate::vocabulary::JobChange;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum Stream {
    Out,
    Err,
}

/// How much of a task's stream the follower already has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Offset {
    pub host_idx: u32,
    pub task: u32,
    pub stream: Stream,
    pub offset: u64,
}

/// Bytes of a stream and where they stand in it; never more than
/// [`MAX_CHUNK_BYTES`](crate::message::MAX_CHUNK_BYTES).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Chunk {
    pub host_idx: u32,
    pub task: u32,
    pub stream: Stream,
    pub offset: u64,
    pub bytes: Vec<u8>,
}

/// First frame of a channel that the server opens on an agent's link: send the job's streams from here on.
/// [`Spooled`] frames answer, [`Input`] frames may follow.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct FollowOrder {
    pub job: u64,
    pub run: u32,
    pub from: Vec<Offset>,
}

/// What an agent sends for a [`FollowOrder`].
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Spooled {
    Chunk(Chunk),
    /// The job's share here has ended and everything was sent.
    End,
    Failed {
        reason: String,
    },
}

/// What the server sends to a client that follows or watches.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Followed {
    Chunk(Chunk),
    Change(JobChange),
    /// Nothing will come any more.
    End,
    Refused(Refused),
}

/// Standard input for task 0.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Input {
    pub bytes: Vec<u8>,
    pub eof: bool,
}

impl Message for FollowOrder {
    const KIND: Kind = Kind::FollowOrder;
}

impl Message for Spooled {
    const KIND: Kind = Kind::Spooled;
    const SIZE: Size = Size::Chunk;
}

impl Message for Followed {
    const KIND: Kind = Kind::Followed;
}

impl Message for Input {
    const KIND: Kind = Kind::Input;
    const SIZE: Size = Size::Chunk;
    /// A job that does not read its input may do so tomorrow.
    const MAY_WAIT: bool = true;
}
