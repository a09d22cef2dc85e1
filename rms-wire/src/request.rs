//! A client's call once it is parsed: for the core, or for the server around it.

use rms_core::Call;
use rms_model::{JobId, Run, Time};

use crate::follow::Offset;

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientRequest {
    Call(Call),
    History(HistoryQuery),
    Follow(Follow),
    Watch(Watch),
    /// The channel becomes a launcher's.
    Launcher,
}

/// Which finished jobs to list, newest first. What is absent or empty does not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryQuery {
    pub user: Option<String>,
    /// Words of [`Outcome::word`](rms_model::Outcome::word).
    pub states: Vec<String>,
    /// Ended at or after.
    pub since: Option<Time>,
    /// Ended before.
    pub until: Option<Time>,
    pub jobs: Vec<JobId>,
    pub name: Option<String>,
    /// At most so many; 0 for all.
    pub limit: u32,
    pub offset: u64,
}

/// Streams a job's output, and its changes until it has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follow {
    pub job: JobId,
    /// The execution that `from` counts in; another one is streamed from its beginning.
    pub run: Option<Run>,
    pub from: Vec<Offset>,
    /// Will [`Input`](crate::Input) frames come?
    pub input: bool,
}

/// Tells every change of these jobs until all have ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    pub jobs: Vec<JobId>,
}
