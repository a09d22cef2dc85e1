//! Bounds how often a client may call, by the core's time.

use rms_model::Time;

/// The calls of one client in the current second, and for how long there have been too many.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallRate {
    second: i64,
    n_calls: u32,
    /// The number of consecutive seconds with too many calls.
    n_exceeded: u32,
}

/// The decision about a call.
pub(crate) enum RateDecision {
    Allowed,
    Refused,
    /// There were too many calls for too long: the application is ended.
    Ended,
}

impl CallRate {
    /// Counts one more call; `most` are allowed per second.
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

/// Far more than a launcher needs that answers each change of its view at once.
pub(crate) const MAX_CALLS: u32 = 100;
/// Consecutive seconds above the rate, after which the application is ended.
pub(crate) const MAX_SECONDS_EXCEEDED: u32 = 5;
