//! Counts the steps that walks over profiles read (001, §6.1: basic operations); does nothing without the feature.
//!
//! A step counts when it is read in sequence, added to, or written into a new profile. A step that is found by binary
//! search, and a chunk that is skipped by its extremes, count as one. The count is per thread, only experiments read
//! it, and nothing depends on it.

#[cfg(feature = "count-steps")]
use std::cell::Cell;

#[cfg(feature = "count-steps")]
thread_local! {
    static WALKED: Cell<u64> = const { Cell::new(0) };
}

/// Returns how many steps this thread has walked over so far; always 0 without the feature `count-steps`.
pub fn steps_walked() -> u64 {
    #[cfg(feature = "count-steps")]
    let walked = WALKED.get();
    #[cfg(not(feature = "count-steps"))]
    let walked = 0;
    walked
}

#[cfg(feature = "count-steps")]
#[inline]
pub(super) fn note(n_steps: usize) {
    WALKED.set(WALKED.get() + n_steps as u64);
}

#[cfg(not(feature = "count-steps"))]
#[inline(always)]
pub(super) fn note(_: usize) {}
