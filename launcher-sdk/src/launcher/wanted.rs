//! What a launcher asks for.

use rms_model::{Request, Slice};

use crate::schedule::Proposal;

/// What an application asks for: nodes, for how long, and what of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Nodes by cluster, and the wall time.
    pub request: Request,
    /// Without cores: whole nodes.
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
