//! What a host of a job and the hub tell each other, in the one direction or the other.

pub use rms_wire::pmi::{Answer, Command, Down, NamedHost, Pair, Part, Placement, Question, Up};
use serde::{Deserialize, Serialize};

/// Between a host and the hub, carried by agents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HubFrame {
    Up(Up),
    Down(Down),
}
