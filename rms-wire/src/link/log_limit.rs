//! Keeps unknown peers from filling the log: one line per second for each kind of error, and a count of the others.

use std::mem::Discriminant;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::error::LinkError;

/// Decides which refused connections get a line of their own.
#[derive(Debug, Default)]
pub(super) struct LogLimit {
    /// One for each kind of error that has occurred.
    seconds: Mutex<Vec<(Discriminant<LinkError>, Second)>>,
}

/// The second after a line was logged.
#[derive(Clone, Copy, Debug)]
struct Second {
    ends: Instant,
    /// The number of refusals since the line.
    n_refused: u64,
}

/// What to log about one refused connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line of its own.
    Now,
    /// It is the first one over the limit: log one line at this time for all that were refused by then.
    SumAt(Instant),
    /// It is part of a sum.
    Nothing,
}

impl LogLimit {
    pub(super) fn refused(&self, error: &LinkError, now: Instant) -> Line {
        let kind = std::mem::discriminant(error);
        let mut seconds = self.seconds.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((_, second)) = seconds.iter_mut().find(|(known, _)| *known == kind) else {
            seconds.push((kind, Second::after(now)));
            return Line::Now;
        };
        // A sum that is still due is logged first.
        if second.n_refused == 0 && now >= second.ends {
            *second = Second::after(now);
            return Line::Now;
        }
        second.n_refused += 1;
        if second.n_refused == 1 { Line::SumAt(second.ends) } else { Line::Nothing }
    }

    /// Takes the number of connections for the line that is logged now.
    pub(super) fn take_sum(&self, error: &LinkError, now: Instant) -> u64 {
        let kind = std::mem::discriminant(error);
        let mut seconds = self.seconds.lock().unwrap_or_else(PoisonError::into_inner);
        let second = seconds.iter_mut().find(|(known, _)| *known == kind);
        second.map_or(0, |(_, second)| std::mem::replace(second, Second::after(now)).n_refused)
    }
}

impl Second {
    fn after(now: Instant) -> Second {
        Second { ends: now + Duration::from_secs(1), n_refused: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_kind_has_a_line_and_the_others_of_its_second_one_together() {
        let (limit, start) = (LogLimit::default(), Instant::now());
        let after = |ms| start + Duration::from_millis(ms);
        let (silent, other) = (LinkError::Silent, LinkError::Protocol);
        assert_eq!(limit.refused(&silent, after(0)), Line::Now);
        assert_eq!(limit.refused(&other, after(1)), Line::Now, "another kind");
        assert_eq!(limit.refused(&silent, after(2)), Line::SumAt(after(1000)));
        assert_eq!(limit.refused(&silent, after(3)), Line::Nothing);
        // The task that is to log the sum is late.
        assert_eq!(limit.refused(&silent, after(1001)), Line::Nothing);
        assert_eq!(limit.take_sum(&silent, after(1002)), 3);
        assert_eq!(limit.refused(&silent, after(1003)), Line::SumAt(after(2002)));
        assert_eq!(limit.take_sum(&silent, after(2002)), 1);
        assert_eq!(limit.refused(&silent, after(3002)), Line::Now, "a second without any");
    }
}
