//! What the server wants in its negotiations: pure functions, which know numbers of nodes and nothing of dialogues.
//!
//! 002 leaves the decisions of its manager open and gives examples. The rules here are those of the literature on
//! malleable jobs: *equi-sharing* of idle nodes, and the *agreement* policies, which take nodes back from those with the
//! most above their minimum, only where that suffices for the job that waits, and give what is left over to those with
//! the fewest above it.

mod account;
mod drain;
mod limit;
mod occasion;
mod offers;
mod price;
mod shrinks;

pub use account::{Account, Exhausted, affordable};
pub use drain::nodes_to_leave;
pub use limit::may_gain;
pub use occasion::Occasion;
pub use offers::{UserWeight, offers};
pub use price::{Pricing, Reply};
use rms_api::negotiate::Declared;
use rms_model::JobId;
pub use shrinks::shrinks;

/// A running application whose number of nodes can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// The application.
    pub job: JobId,
    /// Whose it is.
    pub user: &'a str,
    /// Its number of nodes now.
    pub held: u32,
    /// Its number of nodes when it started.
    pub started_with: u32,
    /// Within what it can be changed.
    pub declared: &'a Declared,
    /// Higher is more urgent.
    pub priority: i32,
    /// A negotiation about the same is open: it is not asked a second time.
    pub is_negotiating: bool,
    /// Not long ago it declined a change by so many nodes; 0: it did not.
    pub declined: u32,
    /// By no more can it be changed, whatever it declares: others would be delayed, or nodes would not do.
    pub room: u32,
}

/// By how many nodes an application is to grow, or to shrink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The application.
    pub job: JobId,
    /// More, or fewer; never 0.
    pub nodes: u32,
}
