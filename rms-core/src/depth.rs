//! How many of the queue's first applications a pass considers, where it is as many as it can in time (001, §6.3).
//!
//! The time that a pass took comes in from outside, as [`Event::PassTook`](crate::Event::PassTook); the same times give the
//! same depths. What is chosen is a fact, so a restart begins with it, and so does a simulation of what a journal holds.

use std::time::Duration;

use rms_model::Span;

/// 001, §6.1: up to so many applications, passes scale well.
const LEAST: u32 = 200;
const MOST: u32 = 1_000_000;

/// A walk over the queue whose time is not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    /// Of this core, counted from 1.
    pub number: u64,
    /// So many applications stood within the depth,
    pub n_considered: u32,
    /// and each was placed. A walk that only looks for those who start now passes most of them over.
    pub(crate) is_whole: bool,
    /// Some stood beyond it.
    pub(crate) has_more: bool,
}

/// What is known of how long walks take.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Walks {
    count: u64,
    /// The widest since a time was told.
    pub(crate) latest: Option<Walk>,
    /// How many the last whole one could have placed in time. Others are quicker, so that they alone would say too much.
    fitting: Option<u32>,
}

impl Walks {
    /// A walk begins, for starts alone or as a whole.
    pub(crate) fn begin(&mut self, n_queued: usize, depth: Option<u32>, is_whole: bool) {
        self.count += 1;
        let n_queued = u32::try_from(n_queued).unwrap_or(u32::MAX);
        let depth = depth.unwrap_or(u32::MAX);
        let (n_considered, has_more) = (n_queued.min(depth), n_queued > depth);
        let is_whole = is_whole || self.latest.is_some_and(|latest| latest.is_whole);
        self.latest = Some(Walk { number: self.count, n_considered, is_whole, has_more });
    }

    /// So long the latest took, with all that came of it: the depth from now on, if it is to be another one than `depth`.
    pub(crate) fn took(&mut self, depth: Option<u32>, took: Duration, bound: Span) -> Option<u32> {
        let walk = self.latest.take()?;
        if walk.is_whole {
            self.fitting = Some(fitting(walk, took, bound));
        }
        let depth = depth?;
        Some(next(depth, walk, took, bound, self.fitting)).filter(|next| *next != depth)
    }
}

/// What becomes of a depth. It at most doubles or halves: one time that is no measure of the others, because the machine did
/// something else, does little. It doubles only where four times as long is still in time, which holds even if the
/// cost grows as the square of the depth; so it comes to rest.
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

/// How many would take three quarters of the bound.
fn fitting(walk: Walk, took: Duration, bound: Span) -> u32 {
    let in_time = bound.to_std().as_micros() * 3 / 4 * u128::from(walk.n_considered) / took.as_micros().max(1);
    u32::try_from(in_time).unwrap_or(MOST).clamp(LEAST, MOST)
}

#[cfg(test)]
mod tests;
