//! What settings decide of negotiations.

use negotiation::Price;
use rms_model::{JobId, Span};

use super::Negotiations;
use crate::state::talks::promise_span;

impl Negotiations<'_> {
    /// By how much a growth may delay the estimated start of a waiting job.
    pub(super) fn longest_delay(&self) -> Span {
        self.context.state().settings().delay_tolerance
    }

    /// What is paid at most for a host and hour that an application gives back: nothing, for what it saves is its own.
    pub(super) fn bid_price(&self, _job: JobId) -> Price {
        Price(0)
    }

    /// For how long the server's proposals stand.
    pub(super) fn offer_valid(&self) -> Span {
        self.context.state().settings().offer_valid
    }

    /// How long an application may take to give what it has promised, before it is warned; and as long again after that.
    pub(super) fn promise_span(&self) -> Span {
        promise_span(self.context.state().settings())
    }
}
