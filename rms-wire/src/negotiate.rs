//! What a process of a job and the server say to each other on a negotiator's channel (002).
//!
//! The channel begins with [`ClientRequest::Negotiator`](crate::ClientRequest); then [`NegotiatorSays`] frames go up and
//! [`NegotiatorTold`] frames come down, each at any time. Who connects with a job's certificate may open nothing else but
//! calls for that job.

use rms_api::Refused;
use rms_api::negotiate::{NegotiatorAnswer, NegotiatorCall, NegotiatorNotice};
use serde::{Deserialize, Serialize};

use crate::message::{Kind, Message, Size};

/// `seq` is the caller's to choose. `Attach` and `Declare` are answered once each, under their `seq`; `Say` is not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NegotiatorSays {
    pub seq: u64,
    pub call: NegotiatorCall,
}

/// What the server tells who negotiates: answers, and what it was not asked for.
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
