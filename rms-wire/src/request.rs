//! The requests of clients: the first frame of each of their channels.

use rms_api::Call;
use rms_api::call::HistoryQuery;
use rms_model::{JobId, Run, checked};
use serde::{Deserialize, Serialize};

use crate::follow::Offset;
use crate::message::{Kind, Message, Size};

/// One request per channel. `Follow` and `Watch` are answered by [`Followed`](crate::Followed) frames until the end,
/// `Launcher` and `Negotiator` begin exchanges of their own (see [`launcher`](crate::launcher),
/// [`negotiate`](crate::negotiate)), and all others are answered by [`AnswerPart`](crate::AnswerPart) frames until the
/// last one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientRequest {
    Call(Call),
    History(HistoryQuery),
    Follow(Follow),
    Watch(Watch),
    /// The channel becomes a launcher's.
    Launcher,
    /// The channel becomes a negotiator's, for the process of a job.
    Negotiator,
    /// The cost of launchers, answered by the core and the server.
    Launchers,
    /// The status of the server itself.
    Server,
}

/// Streams a job's output and its state changes until it has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Follow {
    pub job: JobId,
    /// The execution to which `from` refers; another one is streamed from its beginning.
    pub run: Option<Run>,
    pub from: Vec<Offset>,
    /// Whether [`Input`](crate::Input) frames will follow.
    pub input: bool,
    /// With `input`: the follower repeats what was not taken, and sends [`InputAt`](crate::InputAt) frames instead if
    /// the server answers with [`Taken`](crate::Followed::Taken). As far as it knows, the run has taken so many bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_from: Option<u64>,
}

/// Streams every change of these jobs until all have ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    #[serde(deserialize_with = "checked::ids")]
    pub jobs: Vec<JobId>,
}

impl Message for ClientRequest {
    const KIND: Kind = Kind::ClientRequest;
    const SIZE: Size = Size::Bulk;
}
