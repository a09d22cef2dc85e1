//! What policies decide of negotiations, and where they are asked: the server's own answers without any.

use negotiation::Price;
use rms_model::{JobId, Span};

use crate::rms::Rms;

impl Rms {
    /// By how much a growth may delay the estimated start of a waiting job.
    pub(super) fn longest_delay(&self) -> Span {
        Span::ZERO
    }

    /// What a host and hour costs an application at least.
    pub(super) fn asked_price(&self, _job: JobId) -> Price {
        Price(0)
    }

    /// What is paid at most for a host and hour that an application gives back.
    pub(super) fn bid_price(&self, _job: JobId) -> Price {
        Price(0)
    }

    /// How many hosts more a limit or budget allows an application.
    pub(super) fn most_more_hosts(&self, _job: JobId) -> u64 {
        u64::MAX
    }

    /// How long an application may take to give what it has promised, before it is warned; and as long again after that.
    pub(super) fn promise_span(&self) -> Span {
        let grace = self.state.settings().release_grace;
        if grace.is_zero() { LONGEST_PROMISE } else { grace }
    }
}

/// An application reaches its next breakpoint within that, unless an admin knows better.
const LONGEST_PROMISE: Span = Span::from_secs(60);
