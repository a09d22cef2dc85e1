//! The messages between a process of a job and the server on a negotiator's channel (002).
//!
//! The channel begins with [`ClientRequest::Negotiator`](crate::ClientRequest); then [`NegotiatorSays`] frames go to
//! the server and [`NegotiatorTold`] frames come back, each at any time. A peer with a job's certificate may open no
//! other channels except for calls for that job.

use rms_api::Refused;
use rms_api::negotiate::{NegotiatorAnswer, NegotiatorCall, NegotiatorNotice};
use serde::{Deserialize, Serialize};

use crate::message::{Kind, Message, Size};

/// A call of a negotiator, which chooses `seq`. `Attach` and `Declare` are answered once each, with their `seq`; `Say`
/// is not answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NegotiatorSays {
    pub seq: u64,
    pub call: NegotiatorCall,
}

/// What the server sends to a negotiator: answers and notices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NegotiatorTold {
    Answer { seq: u64, answer: Result<NegotiatorAnswer, Refused> },
    Notice(NegotiatorNotice),
}

impl Message for NegotiatorSays {
    const KIND: Kind = Kind::NegotiatorSays;
}

impl Message for NegotiatorTold {
    const KIND: Kind = Kind::NegotiatorTold;
    // It may name all nodes of a cluster.
    const SIZE: Size = Size::Bulk;
}
