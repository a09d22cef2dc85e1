//! Process management for MPI: PMI-1, the protocol between ranks of MPICH and its relatives and their process manager.
//!
//! The ranks of a job form *worlds*: the first one, and one for each `MPI_Comm_spawn`. Each node of a job has a
//! [`node::NodeRanks`] with a [`ranks::Ranks`] for each world, which answers its own ranks; the first node also has the
//! [`hub::Hub`], where the nodes' fences meet and which decides where spawned ranks go. All of it is free of I/O and
//! lives in the supervisors, so an agent may restart at any time; agents only forward [`frames::HubFrame`]s between
//! nodes.

pub mod fence;
pub mod frames;
pub mod hub;
pub mod line;
pub mod node;
pub mod place;
pub mod ranks;
pub mod spawn;
#[cfg(test)]
mod tests;

pub use rms_wire::pmi::{RankId, WorldId};
use serde::{Deserialize, Serialize};

/// The limits that the ranks get in reply to `get_maxes`.
pub const KVSNAME_MAX: usize = 256;
pub const KEYLEN_MAX: usize = 64;
pub const VALLEN_MAX: usize = 4096;
/// The longest line of the protocol: a command, a name, a key, a value and their labels.
pub const LINE_MAX: usize = KVSNAME_MAX + KEYLEN_MAX + VALLEN_MAX + 256;
/// The longest line of a spawn, which may hold a whole argument of a command.
pub const SPAWN_LINE_MAX: usize = 64 << 10;

/// A node of a job while it belongs to the job: a node that leaves and returns is a different `JobNode`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct JobNode {
    pub node: String,
    /// The generation of the job's nodes with which the node joined.
    pub joined: u32,
}
