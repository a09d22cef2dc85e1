//! What the server tells a node agent on its control channel.

use bincode::{Decode, Encode};

use crate::message::{Kind, Message, Size};
use crate::negotiate::{AskOutcome, OnResize};
use crate::refused::Refused;
use crate::vocabulary::{Limits, Stdio, Variable, Work};

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum ToAgent {
    /// The node's whole desired state, one job a frame: a job may bring a script and an environment.
    Desire(DesirePart),
    /// Best effort: a signal to every task of the job on this node.
    Signal {
        job: u64,
        run: u32,
        signal: i32,
    },
    /// The answer to a renewal: certificates in PEM.
    Renewed {
        chain: String,
        ca: String,
    },
    NotRenewed(Refused),
    /// Serials of certificates that must not be served any more.
    Revoked {
        serials: Vec<String>,
        last: bool,
    },
    /// What came of [`ToServer::Ask`](crate::to_server::ToServer).
    Asked {
        seq: u64,
        outcome: AskOutcome,
    },
    NotAsked {
        seq: u64,
        refused: Refused,
    },
    /// A certificate for the processes of a job: in PEM.
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

/// `job` is absent only where nothing at all is desired.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct DesirePart {
    pub generation: u64,
    pub job: Option<Box<DesiredJob>>,
    pub last: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct DesiredJob {
    pub job: u64,
    pub run: u32,
    pub aim: Aim,
    pub launch: Launch,
    pub host_idx: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Aim {
    Run,
    /// In milliseconds.
    End {
        patience: i64,
        grace: i64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Launch {
    pub name: String,
    pub owner: String,
    pub work: Work,
    pub n_tasks: u32,
    pub cpus_per_task: u32,
    pub cwd: String,
    pub environment: Vec<Variable>,
    pub umask: u32,
    pub stdio: Stdio,
    pub limits: Limits,
    pub wall: i64,
    pub grace: i64,
    pub hosts: Vec<Host>,
    pub generation: u32,
    pub on_resize: Option<OnResize>,
    pub least: u32,
    pub most: u32,
    pub memory_mib: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Host {
    pub node: u32,
    pub name: String,
    pub cluster: String,
    pub address: String,
    pub first_task: u32,
    pub n_tasks: u32,
    pub cpus: u32,
    pub joined: u32,
    pub departing: bool,
}

impl Message for ToAgent {
    const KIND: Kind = Kind::ToAgent;
    const SIZE: Size = Size::Whole;
}
