//! The parties and the resources of a negotiation: the terms that all other modules use.

use std::fmt;

use rms_model::{ClusterId, JobId, Run, Span};
use serde::{Deserialize, Serialize};

use crate::terms::Quantity;

/// One of the two ends of a dialogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Side {
    /// The resource management system, which is also the arbiter.
    Rms,
    /// A running application: evolving if it opens the negotiation, malleable if it answers one.
    Application,
}

/// What the application does if the negotiation succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Direction {
    /// It gets resources: the RMS gives.
    Grow,
    /// It gives resources back: the RMS takes.
    Shrink,
}

/// Section 1 of the template: the parties.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Parties {
    /// The application.
    pub job: JobId,
    /// The execution of the application: what was agreed with an earlier one is void.
    pub run: Run,
    /// The side that opened the negotiation.
    pub initiator: Side,
}

/// A resource to negotiate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Resource {
    /// A number of nodes of a cluster.
    Nodes(ClusterId),
    /// Cores on each node that the application holds in a cluster, or on some of these nodes.
    Cores(ClusterId),
    /// Wall time, in milliseconds.
    Time,
    /// MiB of memory on each node that it holds in a cluster, or on some of these nodes.
    Memory(ClusterId),
    /// Devices of one kind on each of these nodes: `gpu`, or with a type, `gpu:a100`.
    Devices(ClusterId, String),
    /// Licences of one kind, which belong to a cluster and not to its nodes.
    Licences(ClusterId, String),
}

/// How the items of one set belong together. All sets of a template must be met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SetRule {
    /// All or nothing.
    All,
    /// At least one; those that are left when the proposal is accepted are agreed.
    AnyOf,
    /// Alternatives: exactly one must be left when the proposal is accepted.
    OneOf,
}

/// Identifies one negotiation between the RMS and one execution of an application. Each end counts its own from 1 and
/// never reuses a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NegotiationId {
    /// The side that opened it.
    pub initiator: Side,
    /// Counted by the side that opened it.
    pub number: u32,
}

/// More nodes than a cluster has.
pub const MAX_NODES: u64 = 1 << 20;
/// More cores than a node has.
pub const MAX_CORES: u64 = 1 << 16;
/// More MiB of memory than a node has.
pub const MAX_MEMORY: u64 = 1 << 30;
/// More devices than a node has, and more licences than a cluster.
pub const MAX_DEVICES: u64 = rms_model::devices::MAX_DEVICES as u64;

impl Side {
    /// Returns the other side.
    pub fn other(self) -> Side {
        match self {
            Side::Rms => Side::Application,
            Side::Application => Side::Rms,
        }
    }
}

impl Direction {
    /// Returns the side that gives.
    pub fn giver(self) -> Side {
        match self {
            Direction::Grow => Side::Rms,
            Direction::Shrink => Side::Application,
        }
    }
}

impl Resource {
    /// Returns the largest total that can be held.
    pub fn limit(&self) -> Quantity {
        match self {
            Resource::Nodes(_) => Quantity(MAX_NODES),
            Resource::Cores(_) => Quantity(MAX_CORES),
            Resource::Memory(_) => Quantity(MAX_MEMORY),
            Resource::Devices(..) | Resource::Licences(..) => Quantity(MAX_DEVICES),
            Resource::Time => Quantity(Span::MAX_WALL.as_millis().unsigned_abs()),
        }
    }

    /// Returns whether it is a part of each of some held nodes, and of no others.
    pub fn is_inside_nodes(&self) -> bool {
        match self {
            Resource::Cores(_) | Resource::Memory(_) | Resource::Devices(..) => true,
            Resource::Nodes(_) | Resource::Licences(..) | Resource::Time => false,
        }
    }

    /// Returns a quantity with its unit, in words: `924 MiB of memory`.
    pub fn amount(&self, Quantity(count): Quantity) -> String {
        let many = |what: &str| if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") };
        match self {
            Resource::Nodes(_) => many("node"),
            Resource::Cores(_) => many("core"),
            Resource::Memory(_) => format!("{count} MiB of memory"),
            Resource::Devices(_, name) => format!("{count} {name}"),
            Resource::Licences(_, name) => format!("{} of {name}", many("licence")),
            Resource::Time => format!("{count} ms"),
        }
    }

    /// Returns the cluster that it belongs to; `None` for wall time.
    pub fn cluster(&self) -> Option<ClusterId> {
        match self {
            Resource::Nodes(cluster) | Resource::Cores(cluster) | Resource::Memory(cluster) => Some(*cluster),
            Resource::Devices(cluster, _) | Resource::Licences(cluster, _) => Some(*cluster),
            Resource::Time => None,
        }
    }

    /// Returns the name of a device or a licence.
    pub fn name(&self) -> Option<&str> {
        match self {
            Resource::Devices(_, name) | Resource::Licences(_, name) => Some(name),
            Resource::Nodes(_) | Resource::Cores(_) | Resource::Memory(_) | Resource::Time => None,
        }
    }
}

impl NegotiationId {
    /// Returns the next id of the same initiator; `None` when the numbers of 32 bits are used up.
    pub fn next(self) -> Option<NegotiationId> {
        Some(NegotiationId { number: self.number.checked_add(1)?, ..self })
    }
}

impl fmt::Display for NegotiationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.initiator {
            Side::Rms => write!(f, "r{}", self.number),
            Side::Application => write!(f, "a{}", self.number),
        }
    }
}
