//! The server's messages to a node agent on its control channel.

use rms_api::Refused;
use rms_api::desired::DesiredJob;
use rms_api::negotiate::AskOutcome;
use rms_model::{Generation, JobId, Run};
use serde::{Deserialize, Serialize};

use crate::message::{Kind, Message, Size};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToAgent {
    /// The node's whole desired state, one job per frame: a job may contain a script and an environment.
    Desire(DesirePart),
    /// Best effort: a signal to every task of the job on this node.
    Signal {
        job: JobId,
        run: Run,
        signal: i32,
    },
    /// The answer to a renewal: certificates in PEM.
    Renewed {
        chain: String,
        ca: String,
    },
    NotRenewed(Refused),
    /// Serials of certificates that must no longer be accepted.
    Revoked {
        serials: Vec<String>,
        last: bool,
    },
    /// The result of [`ToServer::Ask`](crate::to_server::ToServer).
    Asked {
        seq: u64,
        outcome: AskOutcome,
    },
    NotAsked {
        seq: u64,
        refused: Refused,
    },
    /// A certificate for the processes of a job, in PEM.
    Certified {
        seq: u64,
        chain: String,
        ca: String,
    },
    NotCertified {
        seq: u64,
        refused: Refused,
    },
}

/// A part of the desired state; `job` is absent only if no job is desired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DesirePart {
    pub generation: Generation,
    pub job: Option<Box<DesiredJob>>,
    pub last: bool,
}

impl Message for ToAgent {
    const KIND: Kind = Kind::ToAgent;
    const SIZE: Size = Size::Whole;
}
