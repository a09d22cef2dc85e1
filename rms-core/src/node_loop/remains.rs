//! Interprets the spool entry of an execution, however far it got before an agent, a supervisor or the node died.

use rms_api::desired::{JobReport, NodeExit, Stay};

use crate::agent::Told;

/// What the spool has of one execution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpoolEntry {
    /// Whether its folder exists and is not empty.
    pub is_there: bool,
    /// The stored order, if it can be read and belongs to this execution.
    pub entry: Option<Entry>,
    /// The server has the result; only the streams are kept.
    pub is_forgotten: bool,
    /// How the execution ended, if that was written.
    pub result: Option<JobReport>,
}

/// The content of an order that is stored in the spool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The supervisor that took it.
    pub seat: String,
    /// Whether that supervisor can serve another job after this one.
    pub can_start_over: bool,
    pub stay: Stay,
    /// The last state that the supervisor was told of.
    pub told: Told,
    /// Whether the streams are kept for readers that follow them.
    pub is_streamed: bool,
    pub is_of_this_boot: bool,
    /// Whether a process listens at the socket, and is connected; checked only where nothing else shows the state.
    pub is_heard: bool,
}

/// The state of an execution as its spool entry shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpoolState {
    /// No supervisor has taken the execution.
    Nothing,
    /// The supervisor runs and listens.
    Alive,
    Ended(JobReport),
    Forgotten,
    /// The end of the execution was not observed.
    Vanished(LostReason),
}

/// Why the end of an execution was not observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostReason {
    SupervisorKilled,
    NodeRestarted,
    EntryDamaged,
}

impl SpoolEntry {
    pub fn meaning(&self) -> SpoolState {
        match (&self.entry, &self.result) {
            (Some(_), _) if self.is_forgotten => SpoolState::Forgotten,
            (_, Some(report)) => SpoolState::Ended(report.clone()),
            (Some(entry), None) if !entry.is_of_this_boot => SpoolState::Vanished(LostReason::NodeRestarted),
            (Some(entry), None) if entry.is_heard => SpoolState::Alive,
            (Some(_), None) => SpoolState::Vanished(LostReason::SupervisorKilled),
            (None, None) if self.is_there => SpoolState::Vanished(LostReason::EntryDamaged),
            (None, None) => SpoolState::Nothing,
        }
    }

    /// Returns whether the entry is of an earlier stay.
    pub fn is_before(&self, stay: Stay) -> bool {
        self.entry.as_ref().is_some_and(|entry| entry.stay.is_before(stay))
    }
}

impl LostReason {
    /// Returns the exit that is reported for the execution, `n_left` of whose processes cannot be killed.
    pub fn exit(self, n_left: usize) -> NodeExit {
        let reason = match n_left {
            0 => self.reason().to_owned(),
            n => format!("{}; {n} of its processes cannot be killed", self.reason()),
        };
        match self {
            LostReason::SupervisorKilled => NodeExit::Unsupervised { reason },
            LostReason::NodeRestarted | LostReason::EntryDamaged => NodeExit::Vanished { reason },
        }
    }

    pub fn reason(self) -> &'static str {
        match self {
            LostReason::SupervisorKilled => {
                "the process that watched over it (rms-supervisor) was killed there, so what was left of the job was ended"
            }
            LostReason::NodeRestarted => "the node was restarted",
            LostReason::EntryDamaged => "its spool entry is damaged",
        }
    }
}
