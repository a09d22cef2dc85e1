//! What settings decide of negotiations.

use negotiation::Price;
use rms_model::{JobId, Settings, Span, Time};

use crate::rms::Rms;

impl Rms {
    /// By how much a growth may delay the estimated start of a waiting job.
    pub(super) fn longest_delay(&self) -> Span {
        self.state.settings().delay_tolerance
    }

    /// What is paid at most for a host and hour that an application gives back: nothing, for what it saves is its own.
    pub(super) fn bid_price(&self, _job: JobId) -> Price {
        Price(0)
    }

    /// For how long the server's proposals stand.
    pub(super) fn offer_valid(&self) -> Span {
        self.state.settings().offer_valid
    }

    /// How long an application may take to give what it has promised, before it is warned; and as long again after that.
    pub(super) fn promise_span(&self) -> Span {
        promise_span(self.state.settings())
    }
}

/// When hosts are free at the latest that an application has agreed to give back: who does not keep to it is made to.
pub(crate) fn promise_end(settings: &Settings, agreed: Time) -> Time {
    agreed + promise_span(settings) + promise_span(settings) + settings.exit_grace + settings.kill_grace
}

/// How long an application may take to give what it has promised, before it is warned.
fn promise_span(settings: &Settings) -> Span {
    if settings.release_grace.is_zero() { LONGEST_PROMISE } else { settings.release_grace }
}

/// An application reaches its next breakpoint within that, unless an admin knows better.
const LONGEST_PROMISE: Span = Span::from_secs(60);
