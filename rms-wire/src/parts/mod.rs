//! Messages that are too long for one frame: split by the sender, joined by the receiver.

mod answer;
mod desired;
mod report;
mod view;

pub use answer::{AnswerParts, Parts, answer_parts};
pub use desired::{DesiredParts, desire_parts};
pub use report::{ReportParts, report_parts};
pub use view::{ViewParts, notice_parts};

use thiserror::Error;

use crate::message::MAX_LINES;

/// Why parts cannot be joined.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    #[error("{field} has {n} entries, but at most {max} are taken")]
    TooMany { field: &'static str, n: usize, max: usize },
    #[error("{field} names the same cluster twice")]
    ClusterTwice { field: &'static str },
    #[error("{field} is no step profile: its steps must go forward, differ, and end at 0")]
    Profile { field: &'static str },
    #[error("parts of generation {first} and of {later} are mixed")]
    MixedGenerations { first: u64, later: u64 },
    #[error("the parts of one list are of different kinds")]
    MixedParts,
    #[error("a part is empty but is not the only one")]
    EmptyPart,
    #[error("a job is to run on node {idx} of {n_nodes}")]
    NoSuchNode { idx: u32, n_nodes: usize },
}
