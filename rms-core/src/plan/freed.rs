//! What was freed where nodes are shared, so that only those jobs are searched again that could use it.

use rms_model::{ClusterId, NodeId, Span, Time};

use super::grid::{Grid, Place, Wanted};
use super::grids::Grids;
use super::taken::Taken;
use super::timeline::{Alike, Hole, first_start};

/// Nodes of a cluster, by their indices, on which something was freed from one time to another.
#[derive(Debug)]
pub(super) struct FreedPlaces {
    cluster: ClusterId,
    lines: Vec<usize>,
    from: Time,
    until: Time,
}

/// The places that a job would give back if it started earlier.
pub(super) struct OwnPlaces<'p> {
    pub(super) places: &'p [Place],
    pub(super) from: Time,
    pub(super) until: Time,
}

impl Grids<'_> {
    /// Returns what was freed on these nodes.
    pub(super) fn freed(
        &self,
        nodes: impl Iterator<Item = NodeId> + Clone,
        (from, until): (Time, Time),
    ) -> impl Iterator<Item = FreedPlaces> {
        let by_cluster = self.by_cluster.iter().filter(move |_| from < until);
        let freed = by_cluster.map(move |(cluster, grid)| {
            let lines = nodes.clone().filter_map(|node| grid.line_idx(node)).collect();
            FreedPlaces { cluster: *cluster, lines, from, until }
        });
        freed.filter(|freed| !freed.lines.is_empty())
    }

    /// Returns what a job frees that moves from `held` to `taken`, or gets nothing any more. Where it has the same as
    /// before, only its last part becomes free; but stages have each node for times of their own.
    pub(super) fn freed_by_move(&self, held: &Taken, taken: Option<&Taken>) -> Vec<FreedPlaces> {
        let (from, until) = (held.at, held.at + held.wall());
        let place_of = |place: &Place| (place.cluster, place.node);
        let places = taken.filter(|taken| taken.stages.is_none()).map_or(&[][..], |taken| &taken.places);
        // Both are in the order of clusters and nodes.
        let mut later = places.iter().peekable();
        let stays_on = |place: &&Place| {
            while later.next_if(|other| place_of(other) < place_of(place)).is_some() {}
            later.next_if_eq(place).is_some()
        };
        let (same, others): (Vec<&Place>, Vec<&Place>) = held.places.iter().partition(stays_on);
        let nodes = |places: &[&Place]| places.iter().map(|place| place.node).collect::<Vec<NodeId>>();
        let still_held = taken.map_or(from, |taken| from.max(taken.at + taken.wall()));
        let freed = self.freed(nodes(&others).into_iter(), (from, until));
        freed.chain(self.freed(nodes(&same).into_iter(), (still_held, until))).collect()
    }
}

impl Grid<'_> {
    /// Returns whether a job may start before `latest` on a freed node, and run there while it was freed.
    pub(super) fn may_start_on(
        &self,
        freed: &[FreedPlaces],
        wanted: &Wanted,
        own: &OwnPlaces<'_>,
        latest: Time,
    ) -> bool {
        let times = |freed: &FreedPlaces| {
            let first = self.now.max(freed.from - wanted.wall + Span::from_millis(1));
            Some((first, latest.min(freed.until))).filter(|(first, latest)| first < latest)
        };
        let here = freed.iter().filter(|freed| freed.cluster == self.cluster);
        let in_time = here.filter_map(|freed| Some((freed, times(freed)?)));
        let n_groups = self.timelines.groups().len();
        let n_checks: usize = in_time.clone().map(|(freed, _)| freed.lines.len().min(n_groups)).sum();
        // A search of all nodes looks at each group about twice.
        if n_checks == 0 || n_checks > 2 * n_groups {
            return n_checks > 0;
        }
        let checks = &mut *self.checks.borrow_mut();
        checks.is_own.resize(self.lines().len(), false);
        checks.seen.resize(n_groups.max(checks.seen.len()), [0; 2]);
        let here = own.places.iter().filter(|place| place.cluster == self.cluster);
        here.clone().for_each(|place| checks.is_own[place.idx] = true);
        let may_start = in_time.into_iter().any(|(freed, times)| {
            checks.number += 1;
            let mut is_new = |idx: usize| match self.timelines.group_idx(idx) {
                Some(group) => {
                    let seen = &mut checks.seen[group][usize::from(checks.is_own[idx])];
                    std::mem::replace(seen, checks.number) != checks.number
                }
                None => true,
            };
            let mut lines = freed.lines.iter();
            lines.any(|idx| is_new(*idx) && self.may_start_at(*idx, wanted, own, checks.is_own[*idx], times))
        });
        here.for_each(|place| checks.is_own[place.idx] = false);
        may_start
    }

    /// Returns whether a job may start before `latest` if it gives back its own places. All nodes are drawn.
    pub(super) fn may_start_beside(&self, wanted: &Wanted, own: &OwnPlaces<'_>, latest: Time) -> bool {
        if wanted.is_contiguous || !self.timelines.are_all_drawn() {
            return true;
        }
        let here = own.places.iter().filter(|place| place.cluster == self.cluster);
        let n_own = self.timelines.count(here.map(|place| &place.idx));
        let mut n_except = self.timelines.count(&wanted.except);
        std::iter::zip(&mut n_except, &n_own).for_each(|(n_except, n_own)| *n_except += n_own);
        let by_stretch = self.timelines.by_stretch(&wanted.pieces, wanted.wall, self.now);
        // Its own nodes are groups of their own, which have room while it has its places.
        let n_groups = self.timelines.groups().len();
        let n_own = n_own.into_iter().enumerate().filter(|(_, n_nodes)| *n_nodes > 0);
        let as_own =
            |(group, n_nodes): (usize, usize)| Alike { group: n_groups + group, n_nodes, not_before: self.now };
        let groups = n_own.map(as_own).chain(self.timelines.in_order(&by_stretch, &n_except, self.now));
        let next_hole = |group: usize, times: (Time, Time)| match group.checked_sub(n_groups) {
            Some(group) => self.next_hole_beside(group, wanted, own, times.0),
            None => self.next_hole_in(group, wanted, times),
        };
        let times = (self.now, latest - Span::from_millis(1));
        first_start(groups, wanted.n_nodes as usize, times, next_hole).is_some()
    }

    /// Finds the first times from `from` on at which a node of a group has room, with the places that a job gives back.
    fn next_hole_beside(&self, group: usize, wanted: &Wanted, own: &OwnPlaces<'_>, from: Time) -> Option<Hole> {
        let entry = &self.timelines.groups()[group];
        let opens = self.opens(entry.is_open, from);
        let given = (own.from, own.until);
        let pieces = wanted.pieces[entry.kind].iter().filter(|_| entry.is_usable);
        let hole = |piece| entry.timeline.first_hole_beside(given, piece, wanted.wall, opens);
        pieces.filter_map(hole).min_by_key(|hole| hole.first)
    }

    fn may_start_at(
        &self,
        idx: usize,
        wanted: &Wanted,
        own: &OwnPlaces<'_>,
        is_own: bool,
        (first, latest): (Time, Time),
    ) -> bool {
        let line = self.line(idx);
        let opens = self.opens(line.is_open, first);
        let given = (own.from, own.until);
        let beside = |piece| self.drawn(idx).first_hole_beside(given, piece, wanted.wall, opens);
        let hole = match self.timelines.group_idx(idx) {
            _ if !line.is_usable => None,
            _ if is_own => wanted.pieces[line.kind].iter().filter_map(beside).min_by_key(|hole| hole.first),
            Some(group) => self.next_hole_in(group, wanted, (first, latest)),
            None => self.next_hole(idx, line, wanted, first),
        };
        hole.is_some_and(|hole| hole.first < latest)
    }
}
