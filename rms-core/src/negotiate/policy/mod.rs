//! The server's aims in its negotiations: pure functions that know numbers of nodes and nothing of dialogues.
//!
//! 002 leaves the decisions of its manager open and gives examples. The rules here are those of the literature on
//! malleable jobs: *equi-sharing* of idle nodes, and the *agreement* policies, which take nodes back from the jobs with
//! the most above their minimum, only where that suffices for the waiting job, and give what is left over to the jobs
//! with the fewest above it.

mod balance;
mod drain;
mod limit;
mod occasion;
mod offers;
mod price;
mod shrinks;

pub use balance::{Balance, Exhausted, affordable};
pub use drain::nodes_to_leave;
pub use limit::may_gain;
use negotiation::Price;
pub use occasion::Occasion;
pub use offers::{UserWeight, offers};
pub use price::{Pricing, Reply};
use rms_api::negotiate::Declared;
use rms_model::{JobId, Span};
pub use shrinks::{most_shrinks, shrinks};

/// A running application whose number of nodes can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// The application.
    pub job: JobId,
    /// Its owner.
    pub user: &'a str,
    /// Its number of nodes now.
    pub held: u32,
    /// Its number of nodes when it started.
    pub started_with: u32,
    /// The bounds within which it can be changed.
    pub declared: &'a Declared,
    /// Higher is more urgent.
    pub priority: i32,
    /// A negotiation in this direction is open: no second one is opened.
    pub is_negotiating: bool,
    /// It declined a change by that many nodes recently; 0: it did not.
    pub declined: u32,
    /// The most by which it can be changed, whatever it declares: more would delay others, or the nodes are not
    /// suitable.
    pub room: u32,
    /// What a node more costs for an hour, and for how long it is paid for.
    pub price: Price,
    pub paid_for: Span,
}

/// By how many nodes an application is to grow, or to shrink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The application.
    pub job: JobId,
    /// The number of nodes gained or given back; never 0.
    pub nodes: u32,
}
