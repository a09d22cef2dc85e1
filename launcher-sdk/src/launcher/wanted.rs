//! The request of a launcher: nodes, wall time and slice.

use rms_model::{Request, Slice};

use crate::schedule::Proposal;

/// What an application asks for: how many nodes, for how long, and which slice of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Nodes by cluster, and the wall time.
    pub request: Request,
    /// The slice of each node; a slice without cores means whole nodes.
    pub slice: Slice,
}

impl From<Request> for Wanted {
    fn from(request: Request) -> Wanted {
        Wanted { request, slice: Slice::default() }
    }
}

impl From<Proposal> for Wanted {
    fn from(proposal: Proposal) -> Wanted {
        Wanted { request: proposal.request, slice: proposal.slice }
    }
}
