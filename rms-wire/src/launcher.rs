//! The messages between a launcher and the server on a launcher's channel (001, §4.2).
//!
//! The channel begins with [`ClientRequest::Launcher`](crate::ClientRequest); then [`LauncherSays`] frames go to the
//! server and [`LauncherTold`] frames come back, each at any time. The channel serves one application: the one that its
//! first call subscribes or attaches to.

use rms_api::Refused;
use rms_api::subscription::{Grant, LauncherAnswer, LauncherCall};
use rms_model::{ClusterId, Outcome, Time};
use serde::{Deserialize, Serialize};

use crate::message::{Kind, Message, Size};

/// A call of a launcher, which chooses `seq`. Each call is answered once, with its `seq`, and the answers come in the
/// order of the calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LauncherSays {
    pub seq: u64,
    pub call: LauncherCall,
}

/// What the server sends to a launcher: answers and notices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LauncherTold {
    Answer {
        seq: u64,
        answer: Result<LauncherAnswer, Refused>,
    },
    /// 001: changeNotify. A long change is sent in parts, all with the same version.
    Changed(ViewPart),
    /// 001: startNotify.
    Started(Box<Grant>),
    /// The application has ended; nothing comes after this.
    Ended {
        outcome: Outcome,
    },
    /// Another channel serves the application now; nothing comes after this.
    Replaced,
}

/// A part of a change of the view; `last` marks the part that completes it. A cluster whose pairs do not fit into a
/// part continues as the first one of the next part, with the same id: its pairs follow the previous ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewPart {
    pub version: u64,
    pub at: Time,
    pub clusters: Vec<ClusterPart>,
    pub last: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterPart {
    pub cluster: ClusterId,
    /// 0 for whole nodes; from 1 on, the slices of the filter in their order.
    #[serde(default, skip_serializing_if = "rms_model::checked::is_zero")]
    pub shape: u32,
    pub info: bool,
    pub capacity: u32,
    pub occupied: Option<Occupied>,
}

/// An occupation profile in compact form: its beginning, and its steps in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Occupied {
    /// Milliseconds from the part's `at` to the beginning of the first pair.
    pub after: i64,
    /// No pair has a zero duration, neighbours differ in nodes, and neither the first nor the last has 0 nodes.
    pub pairs: Vec<NodeSpan>,
}

/// Milliseconds, and the number of busy nodes during them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u64, i64)", into = "(u64, i64)")]
pub struct NodeSpan {
    pub millis: u64,
    pub nodes: i64,
}

impl From<(u64, i64)> for NodeSpan {
    fn from((millis, nodes): (u64, i64)) -> NodeSpan {
        NodeSpan { millis, nodes }
    }
}

impl From<NodeSpan> for (u64, i64) {
    fn from(pair: NodeSpan) -> (u64, i64) {
        (pair.millis, pair.nodes)
    }
}

impl Message for LauncherSays {
    const KIND: Kind = Kind::LauncherSays;
    const SIZE: Size = Size::Bulk;
}

impl Message for LauncherTold {
    const KIND: Kind = Kind::LauncherTold;
    // A grant may name all nodes of a cluster.
    const SIZE: Size = Size::Whole;
}

/// The most pairs in one part of a view, over all its clusters. Outdated changes are dropped between parts of different
/// changes, so parts are short.
pub const MAX_PAIRS: usize = 4096;
