//! A client's call once it is parsed: for the core, or for the server around it.

use rms_api::Call;
use rms_api::answer::LauncherStatus;
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
    /// The channel becomes that of who negotiates for a job.
    Negotiator,
    /// What launchers have cost: answered by the core and by the server around it.
    Launchers,
    /// How the server itself is.
    Server,
}

/// What launchers have cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LauncherReport {
    /// By the core's count.
    pub status: LauncherStatus,
    /// By the server's.
    pub traffic: LauncherTraffic,
}

/// Launchers' channels since the server was started, with all bytes of their frames (001, Fig. 12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LauncherTraffic {
    /// Open now.
    pub n_open: u64,
    pub n_opened: u64,
    /// From launchers.
    pub bytes_up: u64,
    /// To launchers.
    pub bytes_down: u64,
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
