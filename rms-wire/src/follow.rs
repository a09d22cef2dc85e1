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
/// [`Spooled`] frames answer, [`Input`] or [`InputAt`] frames may follow.
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
    /// Input comes as [`InputAt`] frames, and [`Spooled::Taken`] acknowledges it. As far as the server knows, the run
    /// has taken so many bytes. Only for an agent that [serves](crate::ToServer::Serves) `InputAt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_from: Option<u64>,
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
    /// Task 0 has been given so many bytes of input. The first one on a channel says from where on to send.
    Taken {
        n_bytes: u64,
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
    /// Task 0 has been given so many bytes of input in this run. With `again`, the follower is to send from there on.
    /// Comes before the first `Change`, to say that the server takes [`InputAt`] frames.
    Taken {
        run: Run,
        n_bytes: u64,
        #[serde(default, skip_serializing_if = "Not::not")]
        again: bool,
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

/// Standard input for task 0, with its offset in the input of the run. Each byte is taken once, however often it comes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputAt {
    pub offset: u64,
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
    /// The input ends after these bytes.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub eof: bool,
}

impl InputAt {
    /// Returns the part from `offset` on, for a receiver that has taken so many bytes; `None` if there is nothing new,
    /// or if bytes before it are missing.
    pub fn after(mut self, offset: u64) -> Option<InputAt> {
        let n_known = usize::try_from(offset.checked_sub(self.offset)?).ok()?;
        if n_known > self.bytes.len() {
            return None;
        }
        self.bytes.drain(..n_known);
        let is_new = !self.bytes.is_empty() || self.eof;
        is_new.then_some(InputAt { offset, ..self })
    }
}

impl Message for FollowOrder {
    const KIND: Kind = Kind::FollowOrder;
    /// Like the [`Follow`](crate::Follow) whose offsets it repeats.
    const SIZE: Size = Size::Bulk;
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

impl Message for InputAt {
    const KIND: Kind = Kind::InputAt;
    const SIZE: Size = Size::Chunk;
    /// As for [`Input`].
    const MAY_WAIT: bool = true;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_twice_is_taken_once_and_nothing_over_a_gap() {
        let input = |offset, bytes: &[u8], eof| InputAt { offset, bytes: bytes.to_vec(), eof };
        assert_eq!(input(10, b"abc", false).after(10), Some(input(10, b"abc", false)));
        assert_eq!(input(10, b"abc", false).after(12), Some(input(12, b"c", false)));
        assert_eq!(input(10, b"abc", false).after(13), None);
        assert_eq!(input(10, b"abc", true).after(13), Some(input(13, b"", true)), "the end is news");
        assert_eq!(input(10, b"abc", true).after(14), None);
        assert_eq!(input(10, b"abc", true).after(9), None, "a byte is missing");
        assert_eq!(input(u64::MAX, b"", true).after(0), None);
    }
}
