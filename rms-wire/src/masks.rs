//! The server's queries to an agent about the CPUs of the processes of jobs on its node.

use rms_api::Refused;
use rms_api::masks::{MaskOrder, MaskedJob, SeenMasks};
use rms_model::{JobId, Run};
use serde::{Deserialize, Serialize};

use crate::message::{Kind, Message, Size};

/// The first and only frame of a channel that the server opens on an agent's link; [`MasksSeen`] is the answer. Sent
/// only to an agent that has sent [`ToServer::Serves`](crate::ToServer::Serves) with this kind: older ones close the
/// link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MasksAsked {
    pub jobs: Vec<MaskedJob>,
    /// The most processes of all jobs together that are listed; the others are counted.
    pub most: u32,
    /// Sets the mask of a process before the answer; there must be only one job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<MaskOrder>,
}

/// An agent's answer to [`MasksAsked`]: for each job that it has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MasksSeen {
    pub jobs: Vec<(JobId, Run, SeenMasks)>,
    /// Why the mask was not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refused>,
}

impl Message for MasksAsked {
    const KIND: Kind = Kind::MasksAsked;
}

impl Message for MasksSeen {
    const KIND: Kind = Kind::MasksSeen;
    const SIZE: Size = Size::Whole;
}
