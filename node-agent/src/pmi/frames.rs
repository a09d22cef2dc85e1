//! Messages between a node of a job and the hub, in both directions.

pub use rms_wire::pmi::{Command, Down, HubAnswer, NamedNode, Pair, Part, Placement, Question, Up};
use serde::{Deserialize, Serialize};

/// A message between a node and the hub, carried by agents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HubFrame {
    Up(Up),
    Down(Down),
}
