//! Neighbouring nodes of a cluster shared by cores that all have room at once.

use std::collections::BTreeSet;

use rms_model::{NodeId, Time};

use super::grid::{Grid, Place, Wanted};
use super::timeline::Hole;
use super::window::{is_run, latest_in_windows, runs};
use crate::state::{Piece, longest_run};

impl Grid<'_> {
    /// Returns the largest number of suitable nodes that the job could have together.
    pub(super) fn most_together(&self, wanted: &Wanted) -> u32 {
        match wanted.is_contiguous {
            true => longest_run(self.in_order, |node| self.eligible_idx(wanted, node).is_some()),
            false => self.n_eligible(wanted),
        }
    }

    /// Finds the earliest time from `from` on at which enough neighbours have room, and how many nodes have room at
    /// `from`; `None` if there never are enough.
    pub(super) fn first_run(&self, wanted: &Wanted, from: Time) -> Option<(Time, usize)> {
        let lines: Vec<Option<usize>> = self.in_order.iter().map(|node| self.eligible_idx(wanted, *node)).collect();
        let next_hole = |line: &Option<usize>, from: Time| {
            line.and_then(|idx| self.next_hole(idx, self.line(idx), wanted, from)).unwrap_or(Hole::NONE)
        };
        let mut holes: Vec<Hole> = lines.iter().map(|line| next_hole(line, from)).collect();
        let n_now = holes.iter().filter(|hole| hole.first <= from).count();
        loop {
            // No earlier start exists, because none of the nodes has room before its time.
            let fits: Vec<Time> = holes.iter().map(|hole| hole.first).collect();
            let start =
                latest_in_windows(&fits, wanted.n_nodes.max(1) as usize).min().filter(|at| *at < Time::NEVER)?;
            let mut has_moved = false;
            for (hole, line) in holes.iter_mut().zip(&lines).filter(|(hole, _)| hole.last < start) {
                *hole = next_hole(line, start);
                has_moved |= hole.first > start;
            }
            if !has_moved {
                return Some((start, n_now));
            }
        }
    }

    /// Chooses neighbours with room at that time, from the shortest run that is long enough, so that long runs stay
    /// whole; between equals, the first one.
    pub(super) fn choose_run(&self, wanted: &Wanted, at: Time) -> Option<Vec<Place>> {
        let n_wanted = wanted.n_nodes as usize;
        let fitting: Vec<Option<(usize, &Piece)>> = self
            .in_order
            .iter()
            .map(|node| {
                let idx = self.eligible_idx(wanted, *node)?;
                Some((idx, self.piece_at(idx, wanted, at)?))
            })
            .collect();
        let lengths = runs(&fitting, Option::is_some).into_iter().enumerate();
        let (first, _) =
            lengths.filter(|(_, length)| *length >= n_wanted).min_by_key(|(first, length)| (*length, *first))?;
        Some(self.places(fitting.get(first..first + n_wanted)?.iter().flatten().copied()))
    }

    /// Returns whether these places are contiguous, if the request wants that.
    pub(super) fn are_together(&self, wanted: &Wanted, places: &[Place]) -> bool {
        let nodes: BTreeSet<NodeId> = places.iter().map(|place| place.node).collect();
        !wanted.is_contiguous || is_run(self.in_order, &nodes)
    }

    fn eligible_idx(&self, wanted: &Wanted, node: NodeId) -> Option<usize> {
        let idx = self.line_idx(node)?;
        self.is_eligible(idx, self.line(idx), wanted).then_some(idx)
    }
}
