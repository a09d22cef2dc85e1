//! A lower bound for the start of a request, from the starts found for smaller ones: within a pass nothing is taken
//! back.
//!
//! While a pass runs, profiles only grow. So a request for as many nodes or more, for as long or longer, cannot fit
//! before the start that was found for a smaller one. Searching from the latest such start gives the same answer as
//! searching from now, without reading the crowded part of the profile again for each of thousands of applications.

use rms_model::{Mebibytes, Span, Time};

/// The starts found so far, in a Fenwick tree over the nodes wanted whose nodes are staircases over the spans.
#[derive(Clone, Debug)]
pub(super) struct Frontier {
    /// Indexed by 1 + nodes wanted; index 0 is not used.
    nodes: Vec<Staircase>,
}

/// The latest start for each span and all longer ones: both ascend.
#[derive(Clone, Debug, Default)]
struct Staircase {
    stairs: Vec<(Span, Time)>,
}

impl Frontier {
    /// Creates a frontier for requests of at most `capacity` nodes.
    pub(super) fn new(capacity: u32) -> Frontier {
        Frontier { nodes: vec![Staircase::default(); capacity as usize + 2] }
    }

    /// Records that no request for `wanted` nodes or more, for `span` or longer, starts before `start`.
    pub(super) fn record(&mut self, wanted: u32, span: Span, start: Time) {
        let mut idx = wanted as usize + 1;
        while idx < self.nodes.len() {
            self.nodes[idx].raise(span, start);
            idx += lowest_bit(idx);
        }
    }

    /// Returns the latest start recorded for a request that is at most as large.
    pub(super) fn bound(&self, wanted: u32, span: Span) -> Option<Time> {
        let mut idx = (wanted as usize + 1).min(self.nodes.len() - 1);
        let mut bound = None;
        while idx > 0 {
            bound = bound.max(self.nodes[idx].at(span));
            idx -= lowest_bit(idx);
        }
        bound
    }
}

/// What a job wants of each of some nodes that jobs share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SliceWant {
    pub(super) n_nodes: u32,
    pub(super) cores: u32,
    pub(super) memory: Mebibytes,
    pub(super) wall: Span,
    /// No other job may have anything of the nodes.
    pub(super) is_whole: bool,
    /// A bit for each suitable kind of node.
    pub(super) kinds: u64,
}

impl SliceWant {
    /// Returns whether the other one can start wherever this one can.
    fn covers(&self, other: &SliceWant) -> bool {
        self.n_nodes >= other.n_nodes
            && self.cores >= other.cores
            && self.memory >= other.memory
            && self.wall >= other.wall
            && self.is_whole == other.is_whole
            && self.kinds & !other.kinds == 0
    }
}

/// The starts found so far for slices, without those that add nothing to the others.
#[derive(Clone, Debug, Default)]
pub(super) struct SliceFrontier {
    starts: Vec<(SliceWant, Time)>,
}

impl SliceFrontier {
    /// Records that no job that wants as much or more starts before `start`.
    pub(super) fn record(&mut self, want: SliceWant, start: Time) {
        if self.bound(&want).is_none_or(|known| known < start) {
            self.starts.retain(|(known, at)| *at > start || !known.covers(&want));
            self.starts.push((want, start));
        }
    }

    /// Returns the latest start recorded for a job that wants no more.
    pub(super) fn bound(&self, want: &SliceWant) -> Option<Time> {
        self.starts.iter().filter(|(known, _)| want.covers(known)).map(|(_, start)| *start).max()
    }
}

fn lowest_bit(idx: usize) -> usize {
    idx & idx.wrapping_neg()
}

impl Staircase {
    fn at(&self, span: Span) -> Option<Time> {
        let n_shorter = self.stairs.partition_point(|(shorter, _)| *shorter <= span);
        Some(self.stairs[n_shorter.checked_sub(1)?].1)
    }

    fn raise(&mut self, span: Span, start: Time) {
        if self.at(span).is_some_and(|known| known >= start) {
            return;
        }
        let first = self.stairs.partition_point(|(shorter, _)| *shorter < span);
        let n_lower = self.stairs[first..].iter().take_while(|(_, known)| *known <= start).count();
        self.stairs.splice(first..first + n_lower, [(span, start)]);
    }
}

#[cfg(test)]
mod tests {
    use test_kit::Dice;

    use super::*;

    /// Every request against every one before it.
    #[test]
    fn a_bound_is_the_latest_start_of_what_is_dominated() {
        let mut frontier = Frontier::new(20);
        let mut recorded: Vec<(u32, Span, Time)> = Vec::new();
        let mut dice = Dice::new(1);
        let mut roll = |n: u64| dice.below(n);
        for _ in 0..3000 {
            let (wanted, span) = (roll(21) as u32, Span::from_secs(roll(50) as i64));
            let smaller = recorded.iter().filter(|(nodes, short, _)| *nodes <= wanted && *short <= span);
            let expected = smaller.map(|(_, _, start)| *start).max();
            assert_eq!(frontier.bound(wanted, span), expected, "{wanted} nodes for {span}");
            let start = Time::from_secs(roll(1000) as i64);
            frontier.record(wanted, span, start);
            recorded.push((wanted, span, start));
            for staircase in &frontier.nodes {
                assert!(staircase.stairs.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 < two[1].1));
            }
        }
    }

    #[test]
    fn a_bound_of_slices_is_the_latest_start_of_what_is_covered() {
        let mut frontier = SliceFrontier::default();
        let mut recorded: Vec<(SliceWant, Time)> = Vec::new();
        let mut dice = Dice::new(2);
        for _ in 0..2000 {
            let mut roll = |n: u64| dice.below(n);
            let want = SliceWant {
                n_nodes: roll(6) as u32,
                cores: roll(6) as u32,
                memory: Mebibytes(roll(4)),
                wall: Span::from_secs(roll(8) as i64),
                is_whole: roll(8) == 0,
                kinds: 1 + roll(3),
            };
            let expected = recorded.iter().filter(|(known, _)| want.covers(known)).map(|(_, start)| *start).max();
            assert_eq!(frontier.bound(&want), expected, "{want:?}");
            let start = Time::from_secs(dice.below(1000) as i64);
            frontier.record(want, start);
            recorded.push((want, start));
        }
        assert!(frontier.starts.len() < recorded.len() / 4, "{} say something", frontier.starts.len());
    }
}
