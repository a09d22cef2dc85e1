//! The kinds of changes, as the header numbers and names them.

use launcher_sdk::negotiator::{Direction, Resource};

use crate::layout as c;

/// Returns the kind of a change: `RMS_GROW` of nodes that are added.
pub fn kind(resource: &Resource, direction: Direction) -> i32 {
    match (resource, direction) {
        (Resource::Nodes(_), Direction::Grow) => c::RMS_GROW,
        (Resource::Nodes(_), Direction::Shrink) => c::RMS_SHRINK,
        (Resource::Time, Direction::Grow) => c::RMS_EXTEND,
        (Resource::Time, Direction::Shrink) => c::RMS_SHORTEN,
        (Resource::Cores(_), Direction::Grow) => c::RMS_MORE_CORES,
        (Resource::Cores(_), Direction::Shrink) => c::RMS_FEWER_CORES,
        (Resource::Memory(_), Direction::Grow) => c::RMS_MORE_MEMORY,
        (Resource::Memory(_), Direction::Shrink) => c::RMS_LESS_MEMORY,
        (Resource::Devices(..), Direction::Grow) => c::RMS_MORE_DEVICES,
        (Resource::Devices(..), Direction::Shrink) => c::RMS_FEWER_DEVICES,
        (Resource::Licences(..), Direction::Grow) => c::RMS_MORE_LICENCES,
        (Resource::Licences(..), Direction::Shrink) => c::RMS_FEWER_LICENCES,
    }
}

/// Returns whether a request of this kind can choose a cluster.
pub fn has_cluster(kind: i32) -> bool {
    !matches!(kind, c::RMS_EXTEND | c::RMS_SHORTEN)
}

/// Returns whether a request of this kind can name nodes that the application holds.
pub fn has_nodes(kind: i32) -> bool {
    !matches!(kind, c::RMS_GROW | c::RMS_EXTEND | c::RMS_SHORTEN | c::RMS_MORE_LICENCES | c::RMS_FEWER_LICENCES)
}

/// Returns whether a request of this kind is about something that has a name.
pub fn has_name(kind: i32) -> bool {
    matches!(kind, c::RMS_MORE_DEVICES | c::RMS_FEWER_DEVICES | c::RMS_MORE_LICENCES | c::RMS_FEWER_LICENCES)
}

/// Returns a kind as programs write it; a number that is none as it is.
pub fn name(kind: i32) -> String {
    let name = match kind {
        c::RMS_GROW => "RMS_GROW",
        c::RMS_SHRINK => "RMS_SHRINK",
        c::RMS_EXTEND => "RMS_EXTEND",
        c::RMS_SHORTEN => "RMS_SHORTEN",
        c::RMS_MORE_CORES => "RMS_MORE_CORES",
        c::RMS_FEWER_CORES => "RMS_FEWER_CORES",
        c::RMS_MORE_MEMORY => "RMS_MORE_MEMORY",
        c::RMS_LESS_MEMORY => "RMS_LESS_MEMORY",
        c::RMS_MORE_DEVICES => "RMS_MORE_DEVICES",
        c::RMS_FEWER_DEVICES => "RMS_FEWER_DEVICES",
        c::RMS_MORE_LICENCES => "RMS_MORE_LICENCES",
        c::RMS_FEWER_LICENCES => "RMS_FEWER_LICENCES",
        other => return other.to_string(),
    };
    name.to_owned()
}
