//! What the spool entry of an execution means, however far it got before an agent, a supervisor or the node died.

use rms_api::desired::{JobReport, NodeExit};

use crate::agent::Told;

/// What lies in the spool of one execution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpoolEntry {
    /// Its folder is there, with something in it.
    pub is_there: bool,
    /// The order, if it can be read and is that of this execution.
    pub entry: Option<Entry>,
    /// The server has the result; only the streams are kept.
    pub is_forgotten: bool,
    /// How it ended, if that is written.
    pub result: Option<JobReport>,
}

/// What an order that is kept in the spool says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The supervisor that took it.
    pub seat: String,
    /// Whether that one can serve another job after this one.
    pub can_start_over: bool,
    /// With which generation of the job's nodes this one came.
    pub joined: u32,
    /// The last that the supervisor was told of.
    pub told: Told,
    /// Whether its streams are kept for who follows them.
    pub is_streamed: bool,
    pub is_of_this_boot: bool,
    /// Somebody listens at its socket, and is connected to; looked at only where nothing else says how it is.
    pub is_heard: bool,
}

/// What that means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpoolState {
    /// No supervisor has taken it up.
    Nothing,
    /// Its supervisor lives and listens.
    Alive,
    Ended(JobReport),
    Forgotten,
    /// Nobody saw its end.
    Vanished(LostReason),
}

/// Why nobody saw the end of an execution.
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

    /// The job had this node before `joined`, freed it, and has it again.
    pub fn is_of_earlier_time(&self, joined: u32) -> bool {
        self.entry.as_ref().is_some_and(|entry| entry.joined < joined)
    }
}

impl LostReason {
    /// How the execution counts as ended, of which so many processes cannot be killed.
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
