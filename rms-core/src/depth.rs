//! How many applications at the head of the queue a pass considers, where the server chooses as many as it can in time
//! (001, §6.3).
//!
//! Durations of passes come from outside, as [`Event::PassTook`](crate::Event::PassTook); the same durations give the
//! same depths. The chosen depth is a fact, so a restart begins with it, and so does a simulation of a journal.

use std::time::Duration;

use rms_model::Span;

/// Passes scale well up to this many applications (001, §6.1).
const LEAST: u32 = 200;
const MOST: u32 = 1_000_000;

/// A walk over the queue whose duration is not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    /// Counted from 1 in this core.
    pub number: u64,
    /// The number of applications within the depth.
    pub n_considered: u32,
    /// Whether each of them was placed. A walk that only looks for starts skips most of them.
    pub(crate) is_whole: bool,
    /// Whether there are applications beyond the depth.
    pub(crate) has_more: bool,
}

/// What is known about the duration of walks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Walks {
    count: u64,
    /// The latest walk without a reported duration. The report has the longest duration since the last one, so the walk
    /// counts as wide as the widest since, and as whole if any was.
    pub(crate) latest: Option<Walk>,
    /// How many applications the last whole walk could have placed in time. Other walks are faster and would suggest
    /// too many.
    fitting: Option<u32>,
}

impl Walks {
    /// Records the begin of a walk: a whole one, or one for starts only.
    pub(crate) fn begin(&mut self, n_queued: usize, depth: Option<u32>, is_whole: bool) {
        self.count += 1;
        let n_queued = u32::try_from(n_queued).unwrap_or(u32::MAX);
        let depth = depth.unwrap_or(u32::MAX);
        let (n_considered, has_more) = (n_queued.min(depth), n_queued > depth);
        let is_whole = is_whole || self.latest.is_some_and(|latest| latest.is_whole);
        let n_considered = self.latest.map_or(n_considered, |latest| latest.n_considered.max(n_considered));
        self.latest = Some(Walk { number: self.count, n_considered, is_whole, has_more });
    }

    /// Handles the duration of the latest walk and its consequences. Returns the new depth if it differs from `depth`.
    pub(crate) fn took(&mut self, depth: Option<u32>, took: Duration, bound: Span) -> Option<u32> {
        let walk = self.latest.take()?;
        if walk.is_whole {
            self.fitting = Some(fitting(walk, took, bound));
        }
        let depth = depth?;
        Some(next(depth, walk, took, bound, self.fitting)).filter(|next| *next != depth)
    }
}

/// Returns the next depth. It at most doubles or halves, so a single outlier, when the machine was busy, has little
/// effect. It doubles only if four times the duration is still in time, which suffices even if the cost grows with the
/// square of the depth; so the depth settles.
fn next(depth: u32, walk: Walk, took: Duration, bound: Span, most: Option<u32>) -> u32 {
    let bound_time = bound.to_std();
    let next = if took > bound_time {
        fitting(walk, took, bound).max(depth / 2).min(depth)
    } else if walk.has_more && took.saturating_mul(4) <= bound_time {
        depth.saturating_mul(2).min(most.unwrap_or(MOST)).max(depth)
    } else {
        depth
    };
    next.clamp(LEAST, MOST)
}

/// Returns how many applications would take three quarters of the bound.
fn fitting(walk: Walk, took: Duration, bound: Span) -> u32 {
    let in_time = bound.to_std().as_micros() * 3 / 4 * u128::from(walk.n_considered) / took.as_micros().max(1);
    u32::try_from(in_time).unwrap_or(MOST).clamp(LEAST, MOST)
}

#[cfg(test)]
mod tests;
