//! What was freed where nodes are shared, so that only those jobs are searched again that could use it.

use rms_model::{ClusterId, NodeId, Span, Time};

use super::grid::{Grid, Place, Wanted};
use super::grids::Grids;
use super::pass::Taken;

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
    /// before, only its last part becomes free.
    pub(super) fn freed_by_move(&self, held: &Taken, taken: Option<&Taken>) -> Vec<FreedPlaces> {
        let (from, until) = (held.at, held.at + held.wall());
        let place_of = |place: &Place| (place.cluster, place.node);
        let places = taken.map_or(&[][..], |taken| &taken.places);
        let stays_on = |place: &&Place| {
            let idx = places.binary_search_by_key(&place_of(place), place_of);
            idx.is_ok_and(|idx| places[idx].piece == place.piece)
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
        let mut is_own = vec![false; self.lines().len()];
        let here = own.places.iter().filter(|place| place.cluster == self.cluster);
        here.filter_map(|place| self.line_idx(place.node)).for_each(|idx| is_own[idx] = true);
        // By group and whether the job itself has the node: the last freed entry that was checked on such a node
        // without finding room in time.
        let mut seen = vec![[0; 2]; n_groups];
        (1..).zip(in_time).any(|(number, (freed, times))| {
            let mut is_new = |idx: usize| match self.timelines.group_idx(idx) {
                Some(group) => std::mem::replace(&mut seen[group][usize::from(is_own[idx])], number) != number,
                None => true,
            };
            freed.lines.iter().any(|idx| is_new(*idx) && self.may_start_at(*idx, wanted, own, is_own[*idx], times))
        })
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
