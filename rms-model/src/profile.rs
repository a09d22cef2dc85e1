//! Step profiles: a number of nodes as a function of absolute time (000, 003: EP; 001: COP).

mod chunks;
mod operators;
#[cfg(test)]
mod tests;
mod walked;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::time::{Span, Time};
use chunks::Chunks;

pub use walked::steps_walked;

/// A number of nodes over time: 0 before the first step and from the last one on.
///
/// Kept canonical: neighbouring steps differ, and the last one is 0, so equal functions are equal values. It is a
/// finite sum of blocks. All results are exact, in whole milliseconds and nodes of 64 bits.
///
/// The steps are stored privately: a sorted vector, cut into chunks of up to 128 steps with their extremes. With n
/// steps, `at` and the edges of every other operation cost O(log n); `add` costs at most O(n/128 + 128); `max` and the
/// searches cost as much for each alternation between too full and free on their way. Measured: `add` takes 0.15 µs at
/// 1,000 steps and 0.4 µs at 100,000 (one sorted vector: 0.18 and 38 µs), `first_hole` for an hour 0.09 and 0.4 µs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Profile {
    steps: Chunks,
}

/// The serialised form of a profile.
#[derive(Serialize, Deserialize)]
struct Stored {
    steps: Vec<Step>,
}

/// A number of nodes from `from` until the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(Time, i64)", into = "(Time, i64)")]
pub struct Step {
    pub from: Time,
    pub nodes: i64,
}

impl From<(Time, i64)> for Step {
    fn from((from, nodes): (Time, i64)) -> Step {
        Step { from, nodes }
    }
}

impl From<Step> for (Time, i64) {
    fn from(step: Step) -> (Time, i64) {
        (step.from, step.nodes)
    }
}

/// Some nodes during `[from, until)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub from: Time,
    pub until: Time,
    pub nodes: i64,
}

/// Where a request fits, and the last step that prevents an earlier fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    pub start: Time,
    pub blocked_by: Option<Step>,
}

/// The error for stored steps that are not a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the steps of a profile must ascend in time, each unlike the one before, and the last one must have 0 nodes")]
pub struct NotCanonical;

impl Profile {
    pub const fn new() -> Profile {
        Profile { steps: Chunks::EMPTY }
    }

    /// Builds a profile from `(duration, nodes)` pairs that start at `origin`; they need not be canonical.
    pub fn from_pairs(origin: Time, pairs: impl IntoIterator<Item = (Span, i64)>) -> Profile {
        let mut builder = Builder::default();
        let mut from = origin;
        for (span, nodes) in pairs {
            if span > Span::ZERO {
                builder.push(from, nodes);
                from += span;
            }
        }
        builder.push(from, 0);
        builder.build()
    }

    /// Builds a profile from many blocks at once, in O(n log n).
    pub fn from_blocks(blocks: impl IntoIterator<Item = Block>) -> Profile {
        let mut edges: Vec<(Time, i64)> = Vec::new();
        for block in blocks {
            if block.from < block.until && block.nodes != 0 {
                edges.push((block.from, block.nodes));
                edges.push((block.until, -block.nodes));
            }
        }
        edges.sort_unstable();
        let mut builder = Builder::default();
        let mut nodes = 0;
        for (at, delta) in edges {
            nodes += delta;
            builder.push(at, nodes);
        }
        builder.build()
    }

    /// Returns the steps, in canonical form.
    pub fn steps(&self) -> impl DoubleEndedIterator<Item = Step> + Clone + '_ {
        self.steps.iter()
    }

    pub fn n_steps(&self) -> usize {
        self.steps.n_steps()
    }

    /// Returns whether it has more than `n_steps` steps, without counting further than needed.
    pub fn is_longer_than(&self, n_steps: usize) -> bool {
        self.steps.is_longer_than(n_steps)
    }

    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Returns when it drops to 0 for good; `None` if it is always 0.
    pub fn end(&self) -> Option<Time> {
        self.steps.last().map(|last| self.steps.step(last).from)
    }

    /// Returns the number of nodes at one instant.
    pub fn at(&self, time: Time) -> i64 {
        self.steps.at(time).map_or(0, |place| self.steps.step(place).nodes)
    }

    /// Returns the maximum number of nodes during `[from, until)`; 0 if that is empty.
    pub fn max(&self, from: Time, until: Time) -> i64 {
        if from >= until {
            return 0;
        }
        match self.steps.at(from) {
            Some(place) => self.steps.most(place, until),
            None => self.steps.first().map_or(0, |place| self.steps.most(place, until).max(0)),
        }
    }

    /// Returns how many nodes of `capacity` are free at every instant of `[from, until)`; all of them if that is empty.
    pub fn least_free(&self, capacity: i64, from: Time, until: Time) -> i64 {
        capacity - self.max(from, until)
    }

    /// Returns the end of the last step that holds the maximum of `[from, until)`, clamped to `until` (003, §3.1: loc);
    /// `from` if that is empty.
    pub fn loc(&self, from: Time, until: Time) -> Time {
        if from >= until {
            return from;
        }
        let most = self.max(from, until);
        // Nothing within the interval is above `most`, so the last part above `most - 1` is a maximum.
        self.last_above(most - 1, from, until).unwrap_or(until)
    }

    /// Returns where the last part of `[from, until)` with more than `limit` nodes ends, clamped to `until`.
    pub fn last_above(&self, limit: i64, from: Time, until: Time) -> Option<Time> {
        if from >= until {
            return None;
        }
        let Some(first) = self.steps.at(from).or_else(|| self.steps.first()) else {
            return (limit < 0).then_some(until);
        };
        let end = match self.steps.at(until - Span::from_millis(1)) {
            // Before the first step there are 0 nodes, which are too many for a negative limit.
            None => (limit < 0).then_some(until),
            Some(last) => match self.steps.last_above(limit, first, last) {
                Some(above) => {
                    Some(self.steps.after(above).map_or(until, |next| self.steps.step(next).from.min(until)))
                }
                None => self.steps.first().filter(|_| limit < 0).map(|first| self.steps.step(first).from),
            },
        };
        end.filter(|end| *end > from)
    }

    /// Returns the first instant at or after `from` with more than `limit` nodes.
    pub fn first_above(&self, limit: i64, from: Time) -> Option<Time> {
        let place = match self.steps.at(from) {
            Some(place) => self.steps.next_above(limit, place),
            None if limit < 0 => return Some(from),
            None => self.steps.next_above(limit, self.steps.first()?),
        };
        place.map(|place| self.steps.step(place).from.max(from))
    }

    /// Lists its change-points as seen from `now`: `now`, and every later time at which a step begins (003, §3.1:
    /// chps).
    pub fn change_points(&self, now: Time) -> impl Iterator<Item = Time> + '_ {
        let place = match self.steps.at(now) {
            Some(place) => self.steps.after(place),
            None => self.steps.first(),
        };
        let later = place.into_iter().flat_map(|place| self.steps.iter_from(place));
        std::iter::once(now).chain(later.map(|step| step.from).inspect(|_| walked::note(1)))
    }

    /// Adds `nodes` (which may be negative) during `[from, until)`.
    pub fn add(&mut self, block: Block) {
        let Block { from, until, nodes } = block;
        if from < until && nodes != 0 {
            self.steps.add(from, until, nodes);
        }
    }

    /// Subtracts another profile.
    pub fn subtract(&mut self, other: &Profile) {
        *self -= other;
    }

    /// Returns the profile shifted later by `span` (003, §3.1: delay).
    pub fn delayed(&self, span: Span) -> Profile {
        let moved = self.steps().map(|step| Step { from: step.from + span, nodes: step.nodes });
        moved.collect::<Builder>().build()
    }

    /// Returns the part during `[from, until)` reversed in time: the nodes at `t` are those at `-t`, so that the end of
    /// each step becomes its beginning. Elsewhere it is 0.
    pub fn mirrored(&self, from: Time, until: Time) -> Profile {
        let mirror = |time: Time| Time::from_millis(time.as_millis().saturating_neg());
        let mut builder = Builder::default();
        if from < until {
            let cut = self.cut_before(from);
            let inside: Vec<Step> = cut.steps().take_while(|step| step.from < until).collect();
            let mut end = until;
            for step in inside.into_iter().rev() {
                builder.push(mirror(end), step.nodes);
                end = step.from;
            }
            builder.push(mirror(end), 0);
        }
        builder.build()
    }

    /// Finds the earliest time at or after `from` at which `wanted` more nodes fit under `capacity` for `span`. Returns
    /// `None` if there is none, which happens only if `wanted > capacity`.
    ///
    /// This is 001, Fig. 5, step 4b: the first hole in the view.
    pub fn first_hole(&self, capacity: i64, wanted: i64, span: Span, from: Time) -> Option<Hole> {
        if wanted > capacity {
            return None;
        }
        let start = self.free_from(capacity - wanted, span, from)?;
        let blocked_by = if start > from { self.step_before(start) } else { None };
        Some(Hole { start, blocked_by })
    }

    /// Finds the earliest time at or after `from` from which at most `limit` nodes are busy for `span`. Returns `None`
    /// if there is none, which happens only for a negative limit.
    pub fn free_from(&self, limit: i64, span: Span, from: Time) -> Option<Time> {
        let mut start = from;
        // The steps before this one are known to fit, as far as they are after the start.
        let mut unknown = self.steps.at(from).or_else(|| self.steps.first());
        while let Some(first) = unknown {
            // Even an empty hole must not begin inside a step that is too full.
            let end = (start + span).max(start + Span::from_millis(1));
            if self.steps.step(first).from >= end {
                break;
            }
            let last = self.steps.last_before(end, first);
            unknown = self.steps.after(last);
            // The last step that is too full: no start before its end fits, whatever is before it.
            if let Some(above) = self.steps.last_above(limit, first, last) {
                // The last step is 0 nodes, so the blocking step has a successor unless the limit is negative.
                let free = self.steps.next_within(limit, self.steps.after(above)?)?;
                start = self.steps.step(free).from;
                if above == last {
                    unknown = self.steps.after(free);
                }
            }
        }
        Some(start)
    }

    /// Finds the first instant at or after `from` with at most `limit` nodes. Returns `None` if there is none, which
    /// happens only for a negative limit.
    pub fn first_within(&self, limit: i64, from: Time) -> Option<Time> {
        let Some(place) = self.steps.at(from).filter(|place| self.steps.step(*place).nodes > limit) else {
            return Some(from);
        };
        let free = self.steps.next_within(limit, self.steps.after(place)?)?;
        Some(self.steps.step(free).from)
    }

    /// Returns whether no start during `[from, before)` leaves at most `limit` nodes busy for `span` or until `until`.
    pub fn is_full(&self, limit: i64, span: Span, (from, before, until): (Time, Time, Time)) -> bool {
        if limit < 0 {
            return true;
        }
        let (mut start, mut here) = (from, self.steps.at(from));
        while start < before {
            if let Some(above) = here.filter(|here| self.steps.step(*here).nodes > limit) {
                // The last step is 0 nodes, so a step above the limit has a successor.
                let Some(free) = self.steps.after(above).and_then(|next| self.steps.next_within(limit, next)) else {
                    return true;
                };
                (start, here) = (self.steps.step(free).from, Some(free));
                continue;
            }
            let end = (start + span).min(until);
            let last = self.steps.at(end - Span::from_millis(1)).filter(|_| start < end);
            let first = here.or_else(|| self.steps.first());
            let above = first.zip(last).and_then(|(first, last)| self.steps.last_above(limit, first, last));
            let Some(next) = above.and_then(|above| self.steps.after(above)) else { return false };
            // No start before the end of this step fits.
            (start, here) = (self.steps.step(next).from, Some(next));
        }
        true
    }

    /// Returns the step that ends at `time` or holds the instant before it.
    pub fn step_before(&self, time: Time) -> Option<Step> {
        self.steps.at(time - Span::from_millis(1)).map(|place| self.steps.step(place))
    }

    /// Returns the part from `time` on; before that it is 0.
    pub fn cut_before(&self, time: Time) -> Profile {
        let Some(place) = self.steps.at(time) else {
            return self.clone();
        };
        let mut builder = Builder::default();
        let mut steps = self.steps.iter_from(place);
        if let Some(step) = steps.next() {
            builder.push(time, step.nodes);
        }
        for step in steps {
            builder.push(step.from, step.nodes);
        }
        builder.build()
    }

    /// Returns `(duration, nodes)` pairs from `origin` on, in canonical form: a leading free gap is a pair, and there
    /// is no trailing 0 pair.
    pub fn pairs_from(&self, origin: Time) -> Vec<(Span, i64)> {
        let cut = self.cut_before(origin);
        let mut pairs = Vec::with_capacity(cut.n_steps());
        let mut before = Step { from: origin, nodes: 0 };
        for step in cut.steps() {
            if step.from > before.from {
                pairs.push((step.from.since(before.from), before.nodes));
            }
            before = step;
        }
        pairs
    }
}

/// Compares the functions, however their steps are stored.
impl PartialEq for Profile {
    fn eq(&self, other: &Profile) -> bool {
        let n_steps = self.n_steps();
        if n_steps != other.n_steps() {
            return false;
        }
        walked::note(n_steps);
        self.steps().eq(other.steps())
    }
}

impl Eq for Profile {}

impl TryFrom<Stored> for Profile {
    type Error = NotCanonical;

    fn try_from(stored: Stored) -> Result<Profile, NotCanonical> {
        let n_steps = stored.steps.len();
        let ends = stored.steps.last().is_none_or(|step| step.nodes == 0);
        let in_order = stored.steps.windows(2).all(|two| two[0].from < two[1].from);
        let profile = stored.steps.into_iter().collect::<Builder>().build();
        if ends && in_order && profile.n_steps() == n_steps { Ok(profile) } else { Err(NotCanonical) }
    }
}

impl From<Profile> for Stored {
    fn from(profile: Profile) -> Stored {
        Stored { steps: profile.steps().collect() }
    }
}

/// Collects steps in ascending order of time in canonical form.
#[derive(Default)]
struct Builder {
    steps: Vec<Step>,
}

impl Builder {
    /// Appends a step. A later step at the same time replaces an earlier one.
    fn push(&mut self, from: Time, nodes: i64) {
        if self.steps.last().is_some_and(|step| step.from == from) {
            self.steps.pop();
        }
        let before = self.steps.last().map_or(0, |step| step.nodes);
        if before != nodes {
            self.steps.push(Step { from, nodes });
        }
    }

    fn build(self) -> Profile {
        walked::note(self.steps.len());
        Profile { steps: Chunks::new(self.steps) }
    }
}

impl FromIterator<Step> for Builder {
    fn from_iter<I: IntoIterator<Item = Step>>(steps: I) -> Builder {
        let mut builder = Builder::default();
        for step in steps {
            builder.push(step.from, step.nodes);
        }
        builder
    }
}
