//! Bounds how often somebody may call, in the core's own time.

use rms_model::Time;

/// The calls of one caller in the present second, and since when there are too many.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallRate {
    second: i64,
    n_calls: u32,
    /// Seconds without a pause in which there were too many.
    n_exceeded: u32,
}

/// What is to become of a call.
pub(crate) enum RateDecision {
    Allowed,
    Refused,
    /// It has been told often enough.
    Ended,
}

impl CallRate {
    /// One more call, where `most` are allowed in a second.
    pub(crate) fn call(&mut self, now: Time, most: u32) -> RateDecision {
        let second = now.as_secs();
        if second != self.second {
            let was_exceeded = self.n_calls > most && second == self.second + 1;
            let n_exceeded = if was_exceeded { self.n_exceeded } else { 0 };
            *self = CallRate { second, n_calls: 0, n_exceeded };
        }
        self.n_calls = self.n_calls.saturating_add(1);
        let is_first_too_many = self.n_calls == most + 1;
        self.n_exceeded += u32::from(is_first_too_many);
        match self.n_calls <= most {
            true => RateDecision::Allowed,
            false if self.n_exceeded >= MAX_SECONDS_EXCEEDED => RateDecision::Ended,
            false => RateDecision::Refused,
        }
    }
}

/// Far more than a launcher that answers each change of its view at once has reason for.
pub(crate) const MAX_CALLS: u32 = 100;
/// Seconds in a row above the rate, after which the application is ended.
pub(crate) const MAX_SECONDS_EXCEEDED: u32 = 5;
