//! What a node of a job and the hub tell each other, in the one direction or the other.

pub use rms_wire::pmi::{Command, Down, HubAnswer, NamedNode, Pair, Part, Placement, Question, Up};
use serde::{Deserialize, Serialize};

/// Between a node and the hub, carried by agents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HubFrame {
    Up(Up),
    Down(Down),
}
