//! The nodes of one cluster that is shared by cores, as they fill up in a pass: who is placed here has named nodes.

use std::collections::BTreeMap;

use rms_model::{ClusterId, JobSpec, NodeId, Packing, Request, Span, Time};

use super::timeline::{Start, Timeline, first_start};
use crate::state::{Line, Piece, SharedCluster, pieces_of};

/// A piece of one node, for somebody who was placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) cluster: ClusterId,
    pub(super) node: NodeId,
    pub(super) piece: Piece,
}

#[derive(Debug)]
pub(super) struct Grid<'a> {
    cluster: ClusterId,
    shared: &'a SharedCluster,
    now: Time,
    /// Until when those stay who should have left.
    overdue: Time,
    /// Of nodes that look otherwise than the state says, by their place among all of them.
    timelines: BTreeMap<usize, Timeline>,
}

/// What somebody wants of the nodes of a cluster.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) n_nodes: u32,
    wall: Span,
    /// For each kind of node what may be taken of it: the first that is free.
    pieces: Vec<Vec<Piece>>,
    packing: Packing,
}

impl<'a> Grid<'a> {
    pub(super) fn new(cluster: ClusterId, shared: &'a SharedCluster, now: Time, overdue: Time) -> Grid<'a> {
        Grid { cluster, shared, now, overdue, timelines: BTreeMap::new() }
    }

    /// What a job wants here if it starts with this size.
    pub(super) fn wanted(&self, spec: &JobSpec, request: &Request) -> Wanted {
        Wanted {
            n_nodes: request.nodes.get(&self.cluster).copied().unwrap_or(0),
            wall: request.wall,
            pieces: self.shared.kinds().iter().map(|kind| pieces_of(spec, request, kind)).collect(),
            packing: spec.resources.packing,
        }
    }

    /// How many nodes that may be planned with are large enough.
    pub(super) fn n_eligible(&self, wanted: &Wanted) -> u32 {
        self.eligible(wanted).count() as u32
    }

    fn eligible<'w>(&'w self, wanted: &'w Wanted) -> impl Iterator<Item = (usize, &'w Line)> + 'w {
        let lines = self.shared.lines().iter().enumerate().map(|(idx, (_, line))| (idx, line));
        lines.filter(|(_, line)| line.is_usable && !wanted.pieces[line.kind].is_empty())
    }

    /// The earliest time from `from` on at which so many nodes have room; `None` if there are too few of them.
    pub(super) fn first_start(&self, wanted: &Wanted, from: Time) -> Option<Start> {
        let lines: Vec<(usize, &Line)> = self.eligible(wanted).collect();
        let next_fit = |place: usize, from: Time| {
            let (idx, line) = lines[place];
            self.next_fit(idx, line, wanted, from)
        };
        let is_for_good = |place: usize| !self.timelines.contains_key(&lines[place].0);
        first_start(lines.len(), wanted.n_nodes as usize, from, next_fit, is_for_good)
    }

    /// Can it start now, as far as these nodes go?
    pub(super) fn has_room_now(&self, wanted: &Wanted) -> bool {
        let fitting = self.eligible(wanted).filter(|(idx, line)| {
            let fit = if line.is_open { self.next_fit(*idx, line, wanted, self.now) } else { None };
            fit == Some(self.now)
        });
        fitting.take(wanted.n_nodes as usize).count() == wanted.n_nodes as usize
    }

    /// From when on a node has room for one of the pieces.
    fn next_fit(&self, idx: usize, line: &Line, wanted: &Wanted, from: Time) -> Option<Time> {
        let pieces = wanted.pieces[line.kind].iter();
        pieces.filter_map(|piece| self.next_fit_of(idx, line, piece, wanted.wall, from)).min()
    }

    /// The same for this piece.
    fn next_fit_of(&self, idx: usize, line: &Line, piece: &Piece, wall: Span, from: Time) -> Option<Time> {
        // Nothing starts where no agent is.
        let from = if line.is_open { from } else { from.max(self.now + Span::from_millis(1)) };
        match self.timelines.get(&idx) {
            Some(timeline) => timeline.first_fit(piece, wall, from),
            None => self.fit_for_good(line, piece).map(|fit| fit.max(from)),
        }
    }

    /// From when on a node for which nothing is planned has room for good.
    fn fit_for_good(&self, line: &Line, piece: &Piece) -> Option<Time> {
        let ghost = line.ghost.unwrap_or(self.now);
        if line.room.holds(piece) {
            return Some(ghost);
        }
        let mut room = line.room.clone();
        for hold in line.holds() {
            room.take(&hold.piece, -1);
            if room.holds(piece) {
                let until = if hold.until > self.now { hold.until } else { self.overdue };
                return Some(until.max(ghost));
            }
        }
        None
    }

    /// Nodes for somebody who starts at a time at which so many have room; `None` if they have not.
    pub(super) fn choose(&self, wanted: &Wanted, at: Time) -> Option<Vec<Place>> {
        let fitting = self.eligible(wanted).filter_map(|(idx, line)| {
            let pieces = wanted.pieces[line.kind].iter();
            let mut fits = pieces.filter(|piece| self.next_fit_of(idx, line, piece, wanted.wall, at) == Some(at));
            fits.next().map(|piece| (idx, line, piece))
        });
        let mut ranked: Vec<_> = fitting
            .map(|(idx, line, piece)| {
                let kind = &self.shared.kinds()[line.kind];
                let free = self.timelines.get(&idx).map_or(line.room.cores, |timeline| timeline.at(at).cores);
                let n_spare_devices = kind.devices.iter().count() - piece.slice.devices.iter().count();
                let order = if wanted.packing == Packing::Pack { free } else { -free };
                ((kind.features.len(), n_spare_devices, order, idx), piece)
            })
            .collect();
        let n_wanted = wanted.n_nodes as usize;
        if ranked.len() < n_wanted {
            return None;
        }
        ranked.sort_unstable_by_key(|(rank, _)| *rank);
        let place = |((.., idx), piece): ((usize, usize, i64, usize), &Piece)| {
            let (node, _) = self.shared.lines()[idx];
            Place { cluster: self.cluster, node, piece: piece.clone() }
        };
        let mut places: Vec<Place> = ranked.into_iter().take(n_wanted).map(place).collect();
        places.sort_by_key(|place| place.node);
        Some(places)
    }

    /// The same nodes again, if they still have room then for a job of this size.
    pub(super) fn keep(&self, wanted: &Wanted, nodes: &[NodeId], at: Time) -> Option<Vec<Place>> {
        let mut places = Vec::with_capacity(wanted.n_nodes as usize);
        for node in nodes {
            let Ok(idx) = self.shared.line_idx(*node) else { continue };
            let line = &self.shared.lines()[idx].1;
            let mut pieces = wanted.pieces[line.kind].iter().filter(|_| line.is_usable);
            let piece = pieces.find(|piece| self.next_fit_of(idx, line, piece, wanted.wall, at) == Some(at))?;
            places.push(Place { cluster: self.cluster, node: *node, piece: piece.clone() });
        }
        (places.len() == wanted.n_nodes as usize).then_some(places)
    }

    /// Somebody takes his place from then until then, or with a `sign` of -1 gives it back. For each time at which that
    /// makes the difference between a node that nobody has and one that somebody has, `changed` is told.
    pub(super) fn take(
        &mut self,
        place: &Place,
        (from, until): (Time, Time),
        sign: i64,
        changed: &mut dyn FnMut(Time, Time),
    ) {
        let Ok(idx) = self.shared.line_idx(place.node) else { return };
        let line = &self.shared.lines()[idx].1;
        let timeline = self
            .timelines
            .entry(idx)
            .or_insert_with(|| Timeline::of(line, &self.shared.kinds()[line.kind], self.now, self.overdue));
        if sign < 0 {
            timeline.take(from, until, &place.piece, sign);
        }
        timeline.clear(from, until).into_iter().for_each(|(from, until)| changed(from, until));
        if sign > 0 {
            timeline.take(from, until, &place.piece, sign);
        }
    }

    /// As if nobody had this node, which somebody holds.
    pub(super) fn free_up(&mut self, node: NodeId) {
        let Ok(idx) = self.shared.line_idx(node) else { return };
        let kind = &self.shared.kinds()[self.shared.lines()[idx].1.kind];
        self.timelines.insert(idx, Timeline::of_free(&rms_model::Slice::whole(kind), self.now));
    }

    /// All of a node, for somebody who is to have it alone.
    pub(super) fn whole(&self, node: NodeId) -> Option<Place> {
        let line = &self.shared.lines()[self.shared.line_idx(node).ok()?].1;
        let piece = Piece::whole(&self.shared.kinds()[line.kind]);
        Some(Place { cluster: self.cluster, node, piece })
    }

    /// The usable nodes that somebody has something of, and until when, as the state says.
    pub(super) fn busy(&self) -> impl Iterator<Item = (NodeId, Time)> + '_ {
        let usable = self.shared.lines().iter().filter(|(_, line)| line.is_usable);
        usable.filter_map(|(node, line)| {
            let last = line.holds().last().map(|hold| if hold.until > self.now { hold.until } else { self.overdue });
            Some((*node, last.max(line.ghost.filter(|ghost| *ghost > self.now))?))
        })
    }

    /// Logical CPUs of the cores that somebody has there.
    pub(super) fn n_cpus(&self, place: &Place) -> usize {
        let line = self.shared.line_idx(place.node).map(|idx| &self.shared.lines()[idx].1);
        line.map_or(0, |line| place.piece.slice.cores * self.shared.kinds()[line.kind].threads_per_core()) as usize
    }

    /// For each usable node that nobody has now, until when nobody will have it.
    pub(super) fn clear_until(&self) -> impl Iterator<Item = Time> + '_ {
        let usable = self.shared.lines().iter().enumerate().filter(|(_, (_, line))| line.is_usable);
        usable.filter_map(|(idx, (_, line))| match self.timelines.get(&idx) {
            Some(timeline) => {
                let clear = timeline.clear(self.now, Time::NEVER);
                clear.first().filter(|(from, _)| *from == self.now).map(|(_, end)| *end)
            }
            None => (line.room.is_clear() && line.ghost.is_none()).then_some(Time::NEVER),
        })
    }
}
