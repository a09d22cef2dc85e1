//! Step profiles: a number of hosts as a function of absolute time (001: COP).

use serde::{Deserialize, Serialize};

use crate::time::{Span, Time};

/// A number of hosts over time: 0 before the first step and after the last one.
///
/// Kept canonical: neighbouring steps differ, and the last one is 0, so equal functions are equal values.
/// A sorted vector was measured against trees: it is fastest up to about 10,000 steps, and the choice is
/// private to this type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    steps: Vec<Step>,
}

/// From `from` on, until the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub from: Time,
    pub hosts: i64,
}

impl Profile {
    pub fn new() -> Profile {
        Profile::default()
    }

    /// A profile from `(duration, hosts)` pairs that start at `origin`; not necessarily canonical.
    pub fn from_pairs(origin: Time, pairs: impl IntoIterator<Item = (Span, i64)>) -> Profile {
        let mut profile = Profile::new();
        let mut from = origin;
        for (span, hosts) in pairs {
            if !span.is_zero() {
                profile.push(from, hosts);
                from += span;
            }
        }
        profile.push(from, 0);
        profile
    }

    /// A profile from many blocks at once, in O(n log n).
    pub fn from_blocks(blocks: impl IntoIterator<Item = Block>) -> Profile {
        let mut edges: Vec<(Time, i64)> = Vec::new();
        for block in blocks {
            if block.from < block.until && block.hosts != 0 {
                edges.push((block.from, block.hosts));
                edges.push((block.until, -block.hosts));
            }
        }
        edges.sort_unstable();
        let mut profile = Profile::new();
        let mut hosts = 0;
        let mut edges = edges.into_iter().peekable();
        while let Some((at, delta)) = edges.next() {
            hosts += delta;
            if edges.peek().is_none_or(|(next, _)| *next > at) {
                profile.push(at, hosts);
            }
        }
        profile
    }

    fn push(&mut self, from: Time, hosts: i64) {
        let before = self.steps.last().map_or(0, |step| step.hosts);
        if before != hosts {
            self.steps.push(Step { from, hosts });
        }
    }

    /// The steps, canonical.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Hosts at one instant.
    pub fn at(&self, time: Time) -> i64 {
        match self.index_at(time) {
            Some(idx) => self.steps[idx].hosts,
            None => 0,
        }
    }

    /// The index of the step that `time` lies in.
    fn index_at(&self, time: Time) -> Option<usize> {
        self.steps.partition_point(|step| step.from <= time).checked_sub(1)
    }

    /// The most hosts during `[from, until)`; 0 if that is empty.
    pub fn max(&self, from: Time, until: Time) -> i64 {
        if from >= until {
            return 0;
        }
        let first = self.index_at(from);
        let before = first.map_or(0, |idx| self.steps[idx].hosts);
        let rest = first.map_or(0, |idx| idx + 1);
        let inside = self.steps[rest..].iter().take_while(|step| step.from < until);
        inside.map(|step| step.hosts).fold(before, i64::max)
    }

    /// Adds `hosts` (which may be negative) during `[from, until)`.
    pub fn add(&mut self, block: Block) {
        let Block { from, until, hosts } = block;
        if from >= until || hosts == 0 {
            return;
        }
        let first = self.cut(from);
        let last = self.cut(until);
        for step in &mut self.steps[first..last] {
            step.hosts += hosts;
        }
        // Only the two edges can have become equal to their neighbours: the inside moved as one.
        self.heal(last);
        self.heal(first);
    }

    /// Takes another profile away, in O(n log n).
    pub fn subtract(&mut self, other: &Profile) {
        let mut times: Vec<Time> = self.steps.iter().chain(&other.steps).map(|step| step.from).collect();
        times.sort_unstable();
        times.dedup();
        let mut difference = Profile::new();
        for time in times {
            difference.push(time, self.at(time) - other.at(time));
        }
        *self = difference;
    }

    /// Makes a step begin at `time` and returns its index; the function does not change.
    fn cut(&mut self, time: Time) -> usize {
        let idx = self.steps.partition_point(|step| step.from < time);
        let begins_here = self.steps.get(idx).is_some_and(|step| step.from == time);
        if !begins_here {
            let hosts = idx.checked_sub(1).map_or(0, |before| self.steps[before].hosts);
            self.steps.insert(idx, Step { from: time, hosts });
        }
        idx
    }

    /// Removes the step at `idx` if it continues the one before.
    fn heal(&mut self, idx: usize) {
        let before = idx.checked_sub(1).map_or(0, |before| self.steps[before].hosts);
        if self.steps.get(idx).is_some_and(|step| step.hosts == before) {
            self.steps.remove(idx);
        }
    }

    /// The earliest time at or after `from` when `wanted` more hosts fit under `capacity` for `span`.
    /// `None` if that never comes, which is only so when `wanted > capacity`.
    ///
    /// 001, Fig. 5, step 4b: the first hole in the view.
    pub fn first_hole(&self, capacity: i64, wanted: i64, span: Span, from: Time) -> Option<Hole> {
        if wanted > capacity {
            return None;
        }
        let limit = capacity - wanted;
        let mut start = from;
        let mut blocked_by = None;
        let mut idx = self.index_at(from).unwrap_or(0);
        while idx < self.steps.len() {
            let step = self.steps[idx];
            if step.from >= start + span && step.from > start {
                break;
            }
            if step.hosts > limit {
                // The last step is 0 hosts, so a blocking step has a successor unless the capacity is negative.
                let next = self.steps.get(idx + 1)?;
                if next.from > start {
                    start = next.from;
                    blocked_by = Some(step);
                }
            }
            idx += 1;
        }
        Some(Hole { start, blocked_by })
    }

    /// The part from `time` on; what is before is 0.
    pub fn cut_before(&self, time: Time) -> Profile {
        let Some(idx) = self.index_at(time) else {
            return self.clone();
        };
        let mut profile = Profile::new();
        profile.push(time, self.steps[idx].hosts);
        for step in &self.steps[idx + 1..] {
            profile.push(step.from, step.hosts);
        }
        profile
    }

    /// `(duration, hosts)` pairs from `origin` on, canonical: a leading free gap is a pair, no trailing 0 pair.
    pub fn pairs_from(&self, origin: Time) -> Vec<(Span, i64)> {
        let cut = self.cut_before(origin);
        let mut pairs = Vec::with_capacity(cut.steps.len());
        if let Some(first) = cut.steps.first()
            && first.from > origin
        {
            pairs.push((first.from.since(origin), 0));
        }
        for two in cut.steps.windows(2) {
            pairs.push((two[1].from.since(two[0].from), two[0].hosts));
        }
        pairs
    }
}

/// Some hosts during `[from, until)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub from: Time,
    pub until: Time,
    pub hosts: i64,
}

/// Where a request fits, and the last step that kept it from fitting earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    pub start: Time,
    pub blocked_by: Option<Step>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(from: i64, until: i64, hosts: i64) -> Block {
        Block { from: Time::from_secs(from), until: Time::from_secs(until), hosts }
    }

    /// A profile as an array of seconds, which cannot be wrong in an interesting way.
    fn brute(blocks: &[(i64, i64, i64)]) -> Vec<i64> {
        let mut hosts = vec![0; 64];
        for (from, until, count) in blocks {
            for slot in &mut hosts[*from as usize..*until as usize] {
                *slot += count;
            }
        }
        hosts
    }

    #[test]
    fn adding_blocks_equals_the_brute_force_model() {
        // Every pair of blocks on a small grid, then a third one that touches both.
        for a in 0..5 {
            for b in a + 1..7 {
                for c in 0..6 {
                    for d in c + 1..8 {
                        let blocks = [(a, b, 2), (c, d, 1), (b, b + 2, 2), (0, 3, -1)];
                        let mut profile = Profile::new();
                        for (from, until, hosts) in blocks {
                            profile.add(block(from, until, hosts));
                        }
                        let expected = brute(&blocks);
                        for (sec, hosts) in expected.iter().enumerate() {
                            assert_eq!(profile.at(Time::from_secs(sec as i64)), *hosts);
                        }
                        let at_once = Profile::from_blocks(blocks.map(|(f, u, h)| block(f, u, h)));
                        assert_eq!(at_once, profile);
                        let canonical = profile.steps().windows(2).all(|two| two[0].hosts != two[1].hosts);
                        assert!(canonical, "{profile:?}");
                        assert!(profile.steps().last().is_none_or(|step| step.hosts == 0));
                    }
                }
            }
        }
    }

    #[test]
    fn the_first_hole_is_the_earliest_that_holds() {
        let blocks = [(0, 4, 3), (6, 9, 2), (9, 12, 4), (14, 15, 1)];
        let profile = Profile::from_blocks(blocks.map(|(f, u, h)| block(f, u, h)));
        let busy = brute(&blocks);
        for wanted in 0..=4 {
            for span in 1..10 {
                for from in 0..20 {
                    let fits = |start: usize| busy[start..start + span].iter().all(|b| b + wanted <= 4);
                    let expected = (from..40).find(|start| fits(*start)).expect("it is free in the end");
                    let hole = profile
                        .first_hole(4, wanted, Span::from_secs(span as i64), Time::from_secs(from as i64))
                        .expect("it fits");
                    assert_eq!(hole.start, Time::from_secs(expected as i64), "{wanted} for {span} from {from}");
                }
            }
        }
        assert_eq!(profile.first_hole(4, 5, Span::from_secs(1), Time::EPOCH), None);
    }

    #[test]
    fn pairs_go_out_and_come_back() {
        let profile = Profile::from_blocks([block(2, 5, 3), block(5, 6, 1)]);
        let pairs = profile.pairs_from(Time::EPOCH);
        let secs = |n| Span::from_secs(n);
        assert_eq!(pairs, [(secs(2), 0), (secs(3), 3), (secs(1), 1)]);
        assert_eq!(Profile::from_pairs(Time::EPOCH, pairs), profile);
        assert_eq!(profile.pairs_from(Time::from_secs(3)), [(secs(2), 3), (secs(1), 1)]);
        assert_eq!(profile.pairs_from(Time::from_secs(6)), []);
    }
}
