//! The mean slowdown of jobs relative to what they requested: the cut-off of 004 that follows the load (§3.2.2).

use rms_model::Span;
use serde::{Deserialize, Serialize};

use super::sharing::millis;

/// The number of jobs, and the sum of their slowdowns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "(u64, u64, u64)", from = "(u64, u64, u64)")]
pub struct Slowdowns {
    n_jobs: u64,
    /// In units of 1 / [`UNIT`]; each summand is rounded down.
    sum: u128,
}

/// The unit of a slowdown: a sum over a million jobs is off by less than one in a million.
const UNIT: u128 = 1 << 40;

impl Slowdowns {
    /// Returns whether no job has been added.
    pub(crate) fn is_empty(&self) -> bool {
        self.n_jobs == 0
    }

    /// Adds a job with its response time and its requested time.
    pub(crate) fn add(&mut self, response: Span, requested: Span) {
        let requested = u128::from(millis(requested).max(1));
        self.n_jobs = self.n_jobs.saturating_add(1);
        self.sum = self.sum.saturating_add(u128::from(millis(response)) * UNIT / requested);
    }

    /// Returns the mean as a fraction; `None` if there are no jobs.
    pub(crate) fn mean(&self) -> Option<(i128, i128)> {
        let sum = i128::try_from(self.sum).ok()?;
        let count = i128::from(self.n_jobs).checked_mul(UNIT as i128)?;
        (self.n_jobs > 0).then_some((sum, count))
    }
}

impl From<Slowdowns> for (u64, u64, u64) {
    fn from(slowdowns: Slowdowns) -> (u64, u64, u64) {
        (slowdowns.n_jobs, (slowdowns.sum >> 64) as u64, slowdowns.sum as u64)
    }
}

impl From<(u64, u64, u64)> for Slowdowns {
    fn from((n_jobs, high, low): (u64, u64, u64)) -> Slowdowns {
        Slowdowns { n_jobs, sum: u128::from(high) << 64 | u128::from(low) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_exact_where_the_slowdowns_are_whole() {
        let mut slowdowns = Slowdowns::default();
        assert_eq!(slowdowns.mean(), None);
        slowdowns.add(Span::from_secs(30), Span::from_secs(10));
        slowdowns.add(Span::from_secs(10), Span::from_secs(10));
        let (sum, count) = slowdowns.mean().expect("there are two");
        assert_eq!(sum, 2 * count);
        assert_eq!(Slowdowns::from(<(u64, u64, u64)>::from(slowdowns)), slowdowns);
    }
}
