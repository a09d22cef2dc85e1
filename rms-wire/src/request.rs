//! What a client asks: the first frame of each of its channels.

use rms_api::Call;
use rms_api::call::HistoryQuery;
use rms_model::{JobId, Run, checked};
use serde::{Deserialize, Serialize};

use crate::follow::Offset;
use crate::message::{Kind, Message, Size};

/// One a channel. `Follow` and `Watch` are answered by [`Followed`](crate::Followed) frames until the end, `Launcher` and
/// `Negotiator` begin conversations of their own (see [`launcher`](crate::launcher), [`negotiate`](crate::negotiate)), and
/// everything else is answered by [`AnswerPart`](crate::AnswerPart) frames until the last one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientRequest {
    Call(Call),
    History(HistoryQuery),
    Follow(Follow),
    Watch(Watch),
    /// The channel becomes a launcher's.
    Launcher,
    /// The channel becomes that of a process of a job, which negotiates for it.
    Negotiator,
    /// What launchers have cost: answered by the core and by the server around it.
    Launchers,
    /// How the server itself is.
    Server,
}

/// Streams a job's output, and its changes until it has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Follow {
    pub job: JobId,
    /// The execution that `from` counts in; another one is streamed from its beginning.
    pub run: Option<Run>,
    pub from: Vec<Offset>,
    /// Will [`Input`](crate::Input) frames come?
    pub input: bool,
}

/// Tells every change of these jobs until all have ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    #[serde(deserialize_with = "checked::ids")]
    pub jobs: Vec<JobId>,
}

impl Message for ClientRequest {
    const KIND: Kind = Kind::ClientRequest;
    const SIZE: Size = Size::Bulk;
}
