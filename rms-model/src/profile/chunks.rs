//! The storage of a profile's steps: in order, in chunks that record their minimum and maximum.
//!
//! A single sorted vector is fastest while it is short; beyond a few thousand steps an insertion moves too much memory,
//! and a search reads too much of it. So the vector is cut into chunks. A search skips a chunk by its extremes, and
//! adding to all steps of a chunk is one addition to its `lift`. A profile of up to [`MOST_STEPS`] steps is one chunk,
//! which is a plain vector. The bench prints figures.

use super::{Step, walked};
use crate::time::Time;

/// Steps in ascending order of time, never two at the same time.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunks {
    /// No chunk is empty.
    chunks: Vec<Chunk>,
}

#[derive(Debug)]
struct Chunk {
    /// The time of the first step, stored outside the vector so that a search need not read the vector.
    first: Time,
    /// The number to add to the nodes of every step, and to `least` and `most`.
    lift: i64,
    least: i64,
    most: i64,
    /// Whether `first`, `least` and `most` must be recomputed; only during a change.
    is_stale: bool,
    steps: Vec<Step>,
}

/// The position of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    chunk_idx: usize,
    step_idx: usize,
}

/// Measured best between 64 and 256: longer chunks make each insertion dearer, shorter ones make searches longer.
const MOST_STEPS: usize = 128;

/// A chunk with fewer steps is merged with the next one if both are small.
const FEW_STEPS: usize = MOST_STEPS / 8;

/// Reserves room for the next addition: a block has two edges.
impl Clone for Chunk {
    fn clone(&self) -> Chunk {
        let mut steps = Vec::with_capacity(self.steps.len() + 4);
        steps.extend_from_slice(&self.steps);
        Chunk { steps, ..*self }
    }
}

impl Chunk {
    fn new(steps: Vec<Step>) -> Chunk {
        let mut chunk = Chunk { first: Time::EPOCH, lift: 0, least: 0, most: 0, is_stale: true, steps };
        chunk.summarise();
        chunk
    }

    fn summarise(&mut self) {
        self.is_stale = false;
        if let Some(step) = self.steps.first() {
            self.first = step.from;
        }
        (self.least, self.most) = self
            .steps
            .iter()
            .fold((i64::MAX, i64::MIN), |(least, most), step| (least.min(step.nodes), most.max(step.nodes)));
    }

    /// Adds to some steps. The extremes are recomputed only if one of those steps may have been an extreme.
    fn add(&mut self, steps: std::ops::Range<usize>, nodes: i64) {
        if steps.len() == self.steps.len() {
            walked::note(1);
            self.lift += nodes;
            return;
        }
        walked::note(steps.len());
        let (mut least, mut most) = (i64::MAX, i64::MIN);
        for step in &mut self.steps[steps] {
            least = least.min(step.nodes);
            most = most.max(step.nodes);
            step.nodes += nodes;
        }
        if least > most {
            return;
        }
        if nodes > 0 {
            self.is_stale |= least == self.least;
            self.most = self.most.max(most + nodes);
        } else {
            self.is_stale |= most == self.most;
            self.least = self.least.min(least + nodes);
        }
    }

    fn step(&self, step_idx: usize) -> Step {
        let step = self.steps[step_idx];
        Step { from: step.from, nodes: step.nodes + self.lift }
    }

    fn steps(&self) -> impl DoubleEndedIterator<Item = Step> + Clone + '_ {
        self.steps.iter().map(|step| Step { from: step.from, nodes: step.nodes + self.lift })
    }
}

impl Chunks {
    pub(super) const EMPTY: Chunks = Chunks { chunks: Vec::new() };

    /// Creates the chunks from ordered steps.
    pub(super) fn new(steps: Vec<Step>) -> Chunks {
        let chunks = match steps.len() {
            0 => Vec::new(),
            1..=MOST_STEPS => vec![Chunk::new(steps)],
            // Half full, as chunks are after a split.
            _ => steps.chunks(MOST_STEPS / 2).map(|steps| Chunk::new(steps.to_vec())).collect(),
        };
        Chunks { chunks }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    pub(super) fn n_steps(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.steps.len()).sum()
    }

    pub(super) fn is_longer_than(&self, n_steps: usize) -> bool {
        let mut n_left = n_steps;
        self.chunks.iter().any(|chunk| {
            let is_more = chunk.steps.len() > n_left;
            n_left = n_left.saturating_sub(chunk.steps.len());
            is_more
        })
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = Step> + Clone + '_ {
        self.chunks.iter().flat_map(Chunk::steps)
    }

    /// Returns the steps from `place` on.
    pub(super) fn iter_from(&self, place: Place) -> impl Iterator<Item = Step> + '_ {
        let rest = self.chunks[place.chunk_idx..].iter().flat_map(Chunk::steps);
        rest.skip(place.step_idx)
    }

    pub(super) fn step(&self, place: Place) -> Step {
        self.chunks[place.chunk_idx].step(place.step_idx)
    }

    /// Returns the last step that begins at or before `time`.
    pub(super) fn at(&self, time: Time) -> Option<Place> {
        let chunk_idx = self.chunk_at(time)?;
        walked::note(1);
        let steps = &self.chunks[chunk_idx].steps;
        let step_idx = steps.partition_point(|step| step.from <= time) - 1;
        Some(Place { chunk_idx, step_idx })
    }

    /// Returns the last chunk that begins at or before `time`.
    fn chunk_at(&self, time: Time) -> Option<usize> {
        self.chunks.partition_point(|chunk| chunk.first <= time).checked_sub(1)
    }

    pub(super) fn first(&self) -> Option<Place> {
        (!self.chunks.is_empty()).then_some(Place { chunk_idx: 0, step_idx: 0 })
    }

    pub(super) fn last(&self) -> Option<Place> {
        let chunk_idx = self.chunks.len().checked_sub(1)?;
        Some(Place { chunk_idx, step_idx: self.chunks[chunk_idx].steps.len() - 1 })
    }

    pub(super) fn before(&self, place: Place) -> Option<Place> {
        let Place { chunk_idx, step_idx } = place;
        if let Some(step_idx) = step_idx.checked_sub(1) {
            return Some(Place { chunk_idx, step_idx });
        }
        let chunk_idx = chunk_idx.checked_sub(1)?;
        Some(Place { chunk_idx, step_idx: self.chunks[chunk_idx].steps.len() - 1 })
    }

    pub(super) fn after(&self, place: Place) -> Option<Place> {
        let Place { chunk_idx, step_idx } = place;
        if step_idx + 1 < self.chunks[chunk_idx].steps.len() {
            return Some(Place { chunk_idx, step_idx: step_idx + 1 });
        }
        (chunk_idx + 1 < self.chunks.len()).then_some(Place { chunk_idx: chunk_idx + 1, step_idx: 0 })
    }

    /// Returns the last step from `place` on that begins before `until`; the step at `place` must.
    pub(super) fn last_before(&self, until: Time, place: Place) -> Place {
        let mut chunk_idx = place.chunk_idx;
        while self.chunks.get(chunk_idx + 1).is_some_and(|next| next.first < until) {
            chunk_idx += 1;
        }
        let first_idx = if chunk_idx == place.chunk_idx { place.step_idx } else { 0 };
        // A request rarely spans many steps of a chunk, so a linear search is faster than a binary one.
        let n_steps = self.chunks[chunk_idx].steps[first_idx..].iter().take_while(|step| step.from < until).count();
        walked::note(n_steps + chunk_idx - place.chunk_idx);
        Place { chunk_idx, step_idx: first_idx + n_steps - 1 }
    }

    /// Returns the first step from `place` on that has at most `limit` nodes.
    pub(super) fn next_within(&self, limit: i64, place: Place) -> Option<Place> {
        let mut first_idx = place.step_idx;
        for (chunk_idx, chunk) in self.chunks.iter().enumerate().skip(place.chunk_idx) {
            let limit = limit - chunk.lift;
            if chunk.least <= limit {
                let found = chunk.steps[first_idx..].iter().position(|step| step.nodes <= limit);
                walked::note(found.map_or(chunk.steps.len() - first_idx, |idx| idx + 1));
                if let Some(idx) = found {
                    return Some(Place { chunk_idx, step_idx: first_idx + idx });
                }
            } else {
                walked::note(1);
            }
            first_idx = 0;
        }
        None
    }

    /// Returns the first step from `place` on that has more than `limit` nodes.
    pub(super) fn next_above(&self, limit: i64, place: Place) -> Option<Place> {
        let mut first_idx = place.step_idx;
        for (chunk_idx, chunk) in self.chunks.iter().enumerate().skip(place.chunk_idx) {
            let limit = limit - chunk.lift;
            if chunk.most > limit {
                let found = chunk.steps[first_idx..].iter().position(|step| step.nodes > limit);
                walked::note(found.map_or(chunk.steps.len() - first_idx, |idx| idx + 1));
                if let Some(idx) = found {
                    return Some(Place { chunk_idx, step_idx: first_idx + idx });
                }
            } else {
                walked::note(1);
            }
            first_idx = 0;
        }
        None
    }

    /// Returns the last of the steps from `first` to `last` that has more than `limit` nodes.
    pub(super) fn last_above(&self, limit: i64, first: Place, last: Place) -> Option<Place> {
        let mut end_idx = last.step_idx + 1;
        for chunk_idx in (first.chunk_idx..=last.chunk_idx).rev() {
            let chunk = &self.chunks[chunk_idx];
            let limit = limit - chunk.lift;
            if chunk.most > limit {
                let begin_idx = if chunk_idx == first.chunk_idx { first.step_idx } else { 0 };
                let steps = &chunk.steps[begin_idx..end_idx.min(chunk.steps.len())];
                let found = steps.iter().rposition(|step| step.nodes > limit);
                walked::note(steps.len() - found.unwrap_or(0));
                if let Some(idx) = found {
                    return Some(Place { chunk_idx, step_idx: begin_idx + idx });
                }
            } else {
                walked::note(1);
            }
            end_idx = usize::MAX;
        }
        None
    }

    /// Returns the maximum number of nodes from `place` on, among the steps that begin before `until`.
    pub(super) fn most(&self, place: Place, until: Time) -> i64 {
        let mut most = i64::MIN;
        let mut first_idx = place.step_idx;
        for (chunk_idx, chunk) in self.chunks.iter().enumerate().skip(place.chunk_idx) {
            let is_whole = first_idx == 0 && self.chunks.get(chunk_idx + 1).is_some_and(|next| next.first < until);
            if is_whole {
                walked::note(1);
                most = most.max(chunk.most + chunk.lift);
            } else {
                let inside = chunk.steps[first_idx..].iter().take_while(|step| step.from < until);
                let fold = |(most, n_steps), step: &Step| (i64::max(most, step.nodes + chunk.lift), n_steps + 1);
                let n_inside;
                (most, n_inside) = inside.fold((most, 0), fold);
                walked::note(n_inside);
                if chunk.steps.last().is_some_and(|step| step.from >= until) {
                    break;
                }
            }
            first_idx = 0;
        }
        most
    }

    /// Adds `nodes` to everything during `[from, until)`. Neighbouring steps that have become equal are merged.
    pub(super) fn add(&mut self, from: Time, until: Time, nodes: i64) {
        let first = self.cut(from);
        let last = self.cut(until);
        for chunk_idx in first.chunk_idx..=last.chunk_idx {
            let begin = if chunk_idx == first.chunk_idx { first.step_idx } else { 0 };
            let chunk = &mut self.chunks[chunk_idx];
            let end = if chunk_idx == last.chunk_idx { last.step_idx } else { chunk.steps.len() };
            chunk.add(begin..end, nodes);
        }
        // Only the two edges can have become equal to the preceding step: the steps inside changed together.
        self.heal(last);
        self.heal(first);
        // From the back, because a removal moves the elements behind it.
        if last.chunk_idx != first.chunk_idx {
            self.settle(last.chunk_idx);
        }
        self.settle(first.chunk_idx);
    }

    /// Makes a step begin at `time` without changing the function. The chunk may be too long until [`Chunks::settle`].
    fn cut(&mut self, time: Time) -> Place {
        let chunk_idx = match self.chunk_at(time) {
            Some(chunk_idx) => chunk_idx,
            None if self.chunks.is_empty() => {
                self.chunks.push(Chunk::new(vec![Step { from: time, nodes: 0 }]));
                return Place { chunk_idx: 0, step_idx: 0 };
            }
            None => 0,
        };
        let chunk = &mut self.chunks[chunk_idx];
        let step_idx = chunk.steps.partition_point(|step| step.from < time);
        let begins_here = chunk.steps.get(step_idx).is_some_and(|step| step.from == time);
        if !begins_here {
            // Before the first step of the first chunk there are 0 nodes; in other chunks `time` is not before the
            // first step.
            let nodes = step_idx.checked_sub(1).map_or(-chunk.lift, |before| chunk.steps[before].nodes);
            chunk.steps.insert(step_idx, Step { from: time, nodes });
            chunk.first = chunk.first.min(time);
            chunk.least = chunk.least.min(nodes);
            chunk.most = chunk.most.max(nodes);
        }
        Place { chunk_idx, step_idx }
    }

    /// Removes the step at `place` if it equals the preceding one.
    fn heal(&mut self, place: Place) {
        let before = self.before(place).map_or(0, |before| self.step(before).nodes);
        if self.step(place).nodes == before {
            let chunk = &mut self.chunks[place.chunk_idx];
            chunk.steps.remove(place.step_idx);
            // Otherwise a step with as many nodes remains, so the extremes stay.
            chunk.is_stale |= place.step_idx == 0;
        }
    }

    /// Recomputes the extremes of a changed chunk if necessary, and splits, merges or removes it according to its
    /// length.
    fn settle(&mut self, chunk_idx: usize) {
        let n_steps = self.chunks[chunk_idx].steps.len();
        if n_steps == 0 {
            self.chunks.remove(chunk_idx);
            return;
        }
        if n_steps > MOST_STEPS {
            self.split(chunk_idx);
        } else if n_steps < FEW_STEPS {
            self.join_with_next(chunk_idx);
        }
        let chunk = &mut self.chunks[chunk_idx];
        if chunk.is_stale {
            chunk.summarise();
        }
    }

    fn split(&mut self, chunk_idx: usize) {
        let chunk = &mut self.chunks[chunk_idx];
        let mut second = Chunk::new(chunk.steps.split_off(chunk.steps.len() / 2));
        second.lift = chunk.lift;
        chunk.is_stale = true;
        self.chunks.insert(chunk_idx + 1, second);
    }

    fn join_with_next(&mut self, chunk_idx: usize) {
        let n_steps = self.chunks[chunk_idx].steps.len();
        let are_small = |next: &Chunk| n_steps + next.steps.len() <= MOST_STEPS / 2;
        if self.chunks.get(chunk_idx + 1).is_some_and(are_small) {
            let next = self.chunks.remove(chunk_idx + 1);
            let chunk = &mut self.chunks[chunk_idx];
            let lift = next.lift - chunk.lift;
            chunk.steps.extend(next.steps.iter().map(|step| Step { from: step.from, nodes: step.nodes + lift }));
            chunk.is_stale = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(secs: i64) -> Time {
        Time::from_secs(secs)
    }

    #[test]
    fn chunks_split_and_join_and_their_summaries_hold() {
        let mut chunks = Chunks::default();
        let check = |chunks: &Chunks| {
            let mut before = None;
            for chunk in &chunks.chunks {
                assert!((1..=MOST_STEPS).contains(&chunk.steps.len()));
                assert_eq!(chunk.first, chunk.steps[0].from);
                assert_eq!(chunk.least, chunk.steps.iter().map(|step| step.nodes).min().expect("not empty"));
                assert_eq!(chunk.most, chunk.steps.iter().map(|step| step.nodes).max().expect("not empty"));
                for step in chunk.steps() {
                    assert!(before.is_none_or(|before: Step| before.from < step.from && before.nodes != step.nodes));
                    before = Some(step);
                }
            }
            assert!(before.is_none_or(|last| last.nodes == 0));
        };
        // A comb, built from the middle outwards, then one block over all of it, which lifts whole chunks.
        for tooth in 0..500 {
            let at = if tooth % 2 == 0 { 1000 + tooth } else { 1000 - tooth };
            chunks.add(from(2 * at), from(2 * at + 1), 1 + tooth % 3);
            check(&chunks);
        }
        assert_eq!(chunks.n_steps(), 1000);
        let n_chunks = chunks.chunks.len();
        assert!(n_chunks > 5, "{n_chunks}");
        chunks.add(from(0), from(10_000), 5);
        check(&chunks);
        assert_eq!(chunks.n_steps(), 1002);
        let n_lifted = chunks.chunks.iter().filter(|chunk| chunk.lift == 5).count();
        assert!(n_lifted + 2 >= n_chunks);
        chunks.add(from(0), from(10_000), -5);
        for tooth in 0..500 {
            let at = if tooth % 2 == 0 { 1000 + tooth } else { 1000 - tooth };
            chunks.add(from(2 * at), from(2 * at + 1), -(1 + tooth % 3));
            check(&chunks);
        }
        assert!(chunks.is_empty());
    }
}
