//! The nodes of one cluster that is shared by cores, as they fill up in a pass. A job placed here has named nodes.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use rms_model::profile::Block;
use rms_model::{ClusterId, JobId, JobSpec, NodeId, Packing, Profile, Request, Slice, Span, Time};

use super::Overdue;
use super::alike::{Checks, Timelines};
use super::frontier::{SliceFrontier, SliceWant};
use super::slices::keeping_least;
use super::timeline::{Hole, Start, Timeline, first_start, united};
use crate::state::job::Job;
use crate::state::{Line, Nodes, Piece, Shared, SharedCluster, State, pieces, pieces_of, pieces_to_grow};

/// A piece of one node, for a job that was placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) cluster: ClusterId,
    pub(super) node: NodeId,
    /// Index of the node in its cluster.
    pub(super) idx: usize,
    pub(super) piece: Piece,
}

/// Nodes in the order in which stages use them: a stage of n nodes has the first n. So a count of nodes says when a
/// stage has room, as it does where nodes are allocated whole.
#[derive(Debug, Default)]
pub(super) struct Row {
    pub(super) places: Vec<Place>,
    /// How many of its nodes are unavailable over time: they have no room, or nodes before them have none.
    pub(super) occupied: Profile,
}

/// Called for times at which a place decides whether any job has something of a node.
pub(super) type Changed<'c> = dyn FnMut(&Place, Time, Time) + 'c;

#[derive(Clone, Debug)]
pub(super) struct Grid<'a> {
    pub(super) cluster: ClusterId,
    nodes: &'a Nodes,
    all: &'a Shared,
    pub(super) shared: &'a SharedCluster,
    /// All nodes in their order of neighbourhood.
    pub(super) in_order: &'a [NodeId],
    pub(super) now: Time,
    pub(super) overdue: Overdue,
    /// The timelines of nodes that were searched, by the index of the node.
    pub(super) timelines: Timelines,
    /// Whether anything is planned that begins later than now, or a held node is treated as free. If not, room on a
    /// node stays, and no node has more than the state says.
    pub(super) has_plans: bool,
    /// By index, the time when the first waiting job gets a part of the node.
    next_use: Vec<Time>,
    /// The last search, its start and the groups of nodes with room then; reset when something is taken.
    found: Option<(Wanted, Time, Vec<usize>)>,
    /// Starts found from now on; `None` once something was given back.
    frontier: Option<RefCell<SliceFrontier>>,
    pub(super) checks: RefCell<Checks>,
}

/// What a job wants of the nodes of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wanted {
    pub(super) n_nodes: u32,
    pub(super) wall: Span,
    /// For each kind of node what may be taken of it: the first piece that is free.
    pub(super) pieces: Vec<Vec<Piece>>,
    packing: Packing,
    /// Nodes that it does not use, by index.
    pub(super) except: BTreeSet<usize>,
    /// The nodes must be contiguous.
    pub(super) is_contiguous: bool,
}

impl Wanted {
    /// Returns the want, if it is certain that a job that wants more starts no earlier.
    fn want(&self) -> Option<SliceWant> {
        let mut pieces = self.pieces.iter().flatten();
        let first = pieces.next()?;
        let are_alike = pieces.all(|piece| piece == first) && self.pieces.iter().all(|pieces| pieces.len() <= 1);
        let is_plain = are_alike && first.slice.devices.is_empty() && self.except.is_empty() && !self.is_contiguous;
        let kinds = self.pieces.iter().enumerate().filter(|(_, pieces)| !pieces.is_empty());
        let bits = kinds.map(|(kind, _)| 1_u64.checked_shl(kind as u32)).try_fold(0, |bits, bit| Some(bits | bit?))?;
        let Slice { cores, memory, devices: _ } = first.slice;
        let want =
            SliceWant { n_nodes: self.n_nodes, cores, memory, wall: self.wall, is_whole: first.is_whole, kinds: bits };
        is_plain.then_some(want)
    }

    /// Returns the number of free cores below which a node has no room for it.
    fn least_cores(&self) -> u32 {
        self.pieces.iter().flatten().map(|piece| piece.slice.cores).min().unwrap_or(0)
    }
}

impl<'a> Grid<'a> {
    pub(super) fn new(state: &'a State, (cluster, shared): (ClusterId, &'a SharedCluster), now: Time) -> Grid<'a> {
        let most_cores = shared.kinds().iter().map(|kind| kind.cores).max().unwrap_or(0);
        Grid {
            cluster,
            nodes: state.nodes(),
            all: state.shared(),
            shared,
            in_order: state.neighbours(cluster),
            now,
            overdue: Overdue::new(now, state.settings()),
            timelines: Timelines::new(now, most_cores),
            has_plans: false,
            next_use: Vec::new(),
            found: None,
            frontier: Some(RefCell::default()),
            checks: RefCell::default(),
        }
    }

    /// Returns what a job wants here if it starts with this size.
    pub(super) fn wanted(&self, spec: &JobSpec, request: &Request) -> Wanted {
        let constraint = &spec.constraint;
        // Most jobs name none, and there are many nodes.
        let lines = if constraint.names_nodes() { self.shared.lines() } else { &[] };
        let except = lines
            .iter()
            .enumerate()
            .filter(|(_, (node, _))| !constraint.allows(&self.nodes[node].name))
            .map(|(idx, _)| idx);
        Wanted {
            n_nodes: request.nodes.get(&self.cluster).copied().unwrap_or(0),
            wall: request.wall,
            pieces: self.shared.kinds().iter().map(|kind| pieces_of(spec, request, kind)).collect(),
            packing: spec.resources.packing,
            except: except.collect(),
            is_contiguous: spec.resources.contiguous,
        }
    }

    /// Returns what a job wants for `n_nodes` more nodes and `wall`, beside these nodes.
    pub(super) fn wanted_beside(
        &self,
        (spec, request): (&JobSpec, &Request),
        (n_nodes, wall): (u32, Span),
        others: &BTreeSet<NodeId>,
    ) -> Wanted {
        let mut wanted = Wanted { n_nodes, wall, is_contiguous: false, ..self.wanted(spec, request) };
        wanted.except.extend(others.iter().filter_map(|node| self.shared.line_idx(*node).ok()));
        wanted
    }

    /// Returns how many of the usable nodes are large enough.
    pub(super) fn n_eligible(&self, wanted: &Wanted) -> u32 {
        if !wanted.except.is_empty() {
            return self.eligible(wanted).count() as u32;
        }
        let kinds = std::iter::zip(&wanted.pieces, self.shared.n_usable());
        kinds.filter(|(pieces, _)| !pieces.is_empty()).map(|(_, n_usable)| n_usable).sum()
    }

    fn eligible<'w>(&'w self, wanted: &'w Wanted) -> impl Iterator<Item = (usize, &'w Line)> + 'w {
        let lines = self.shared.lines().iter().enumerate().map(|(idx, (_, line))| (idx, line));
        lines.filter(move |(idx, line)| self.is_eligible(*idx, line, wanted))
    }

    pub(super) fn is_eligible(&self, idx: usize, line: &Line, wanted: &Wanted) -> bool {
        line.is_usable && !wanted.pieces[line.kind].is_empty() && !wanted.except.contains(&idx)
    }

    pub(super) fn line_idx(&self, node: NodeId) -> Option<usize> {
        self.shared.line_idx(node).ok()
    }

    pub(super) fn lines(&self) -> &[(NodeId, Line)] {
        self.shared.lines()
    }

    pub(super) fn line(&self, idx: usize) -> &Line {
        &self.shared.lines()[idx].1
    }

    /// Finds the earliest time from `from` on at which enough nodes have room, and how many have room at `from`; `None`
    /// if there are too few nodes. It is faster if that time is not after `likely`.
    pub(super) fn first_start(&mut self, wanted: &Wanted, from: Time, likely: Option<Time>) -> Option<(Time, usize)> {
        let n_wanted = wanted.n_nodes as usize;
        if (self.n_eligible(wanted) as usize) < n_wanted {
            return None;
        }
        if wanted.is_contiguous {
            return self.first_run(wanted, from);
        }
        if from == self.now && self.is_simple() {
            let n_now = self.fit_now(wanted).take(n_wanted).count();
            if n_now == n_wanted {
                return Some((self.now, n_now));
            }
            let at = self.fit_later(wanted).nth(n_wanted - n_now - 1).map(|(at, _)| at);
            return at.map(|at| (at, n_now));
        }
        self.draw_all();
        let frontier = self.frontier.as_ref().filter(|_| from == self.now);
        let known = frontier.and_then(|frontier| Some((frontier, wanted.want()?)));
        let bound = known.and_then(|(frontier, want)| frontier.borrow().bound(&want)).filter(|bound| *bound > from);
        let first = bound.unwrap_or(from);
        let by_stretch = self.timelines.by_stretch(&wanted.pieces, wanted.wall, first);
        let n_except = self.timelines.count(&wanted.except);
        let find = |until: Time| {
            let groups = self.timelines.in_order(&by_stretch, &n_except, first);
            first_start(groups, n_wanted, (first, until), |group, times| self.next_hole_in(group, wanted, times))
        };
        let found = likely.and_then(find);
        let Start { at, n_now, groups: with_room } = found.or_else(|| find(Time::NEVER))?;
        if let Some((frontier, want)) = known {
            frontier.borrow_mut().record(want, at);
        }
        let n_now = if bound.is_some() { self.fit_now(wanted).count() } else { n_now };
        self.found = Some((wanted.clone(), at, with_room));
        Some((at, n_now))
    }

    fn draw_all(&mut self) {
        let (shared, now, overdue) = (self.shared, self.now, self.overdue);
        self.timelines.draw_all(shared.lines(), |line| Timeline::of(line, &shared.kinds()[line.kind], now, overdue));
    }

    fn draw(&mut self, idx: usize) -> usize {
        let (shared, now, overdue) = (self.shared, self.now, self.overdue);
        let draw = |line: &Line| Timeline::of(line, &shared.kinds()[line.kind], now, overdue);
        self.timelines.draw(idx, shared.lines(), draw)
    }

    /// Finds the first times at which a node of a group has room for a piece: as [`Timeline::first_hole_by`].
    pub(super) fn next_hole_in(&self, group: usize, wanted: &Wanted, (from, latest): (Time, Time)) -> Option<Hole> {
        let Timelines { scale, outlines, .. } = &self.timelines;
        let entry = &self.timelines.groups()[group];
        let from = self.opens(entry.is_open, from);
        let latest = latest.max(from);
        let hole = |piece: &Piece| {
            let from = outlines.not_before(group, piece, wanted.wall, from, scale)?;
            match from <= latest {
                true => entry.timeline.first_hole_by(piece, wanted.wall, (from, latest)),
                false => Some(Hole::not_before(from)),
            }
        };
        wanted.pieces[entry.kind].iter().filter_map(hole).min_by_key(|hole| hole.first)
    }

    /// Returns whether room on a node stays once it is there, and all jobs leave in time.
    fn is_simple(&self) -> bool {
        let is_overdue = self.all.ends(self.cluster).next().is_some_and(|(until, _)| until <= self.now);
        !self.has_plans && !is_overdue && self.shared.are_all_open()
    }

    /// Returns the nodes that have room now; while [`Grid::is_simple`], it stays.
    fn fit_now<'w>(&'w self, wanted: &'w Wanted) -> impl Iterator<Item = usize> + 'w {
        let buckets = self.shared.with_free(wanted.least_cores()).flat_map(|(_, nodes)| nodes);
        buckets.filter(|idx| self.next_fit(*idx, self.line(*idx), wanted) == Some(self.now))
    }

    /// Returns the nodes that have no room now, by the time when they will; only while [`Grid::is_simple`].
    fn fit_later<'w>(&'w self, wanted: &'w Wanted) -> impl Iterator<Item = (Time, usize)> + 'w {
        let planned = self.timelines.planned().iter().filter_map(|idx| {
            let fit = self.next_fit(*idx, self.line(*idx), wanted)?;
            (fit > self.now).then_some((fit, *idx))
        });
        let mut planned: Vec<(Time, usize)> = planned.collect();
        planned.sort_unstable();
        let mut planned = planned.into_iter().peekable();
        let others = self.all.ends(self.cluster).flat_map(move |(until, nodes)| {
            let is_new = move |idx: &usize| {
                let line = self.line(*idx);
                let is_other = line.is_usable && !self.timelines.is_planned(*idx);
                is_other && self.next_fit(*idx, line, wanted) == Some(until)
            };
            nodes.filter(is_new).map(move |idx| (until, idx))
        });
        let mut others = others.peekable();
        let in_order = std::iter::from_fn(move || match (planned.peek(), others.peek()) {
            (Some((first, _)), Some((second, _))) if first <= second => planned.next(),
            (Some(_), None) => planned.next(),
            (_, Some(_)) => others.next(),
            (None, None) => None,
        });
        // Two jobs that leave a node at the same time make room together, once.
        let mut last = (Time::EPOCH, BTreeSet::new());
        in_order.filter(move |(at, idx)| {
            if last.0 != *at {
                last = (*at, BTreeSet::new());
            }
            last.1.insert(*idx)
        })
    }

    /// Counts the nodes that have room now, up to `most`.
    pub(super) fn n_with_room_now(&self, wanted: &Wanted, most: u32) -> u32 {
        self.fit_now(wanted).take(most as usize).count() as u32
    }

    /// Returns whether a job can start now, as far as these nodes matter.
    pub(super) fn has_room_now(&self, wanted: &Wanted) -> bool {
        let n_wanted = wanted.n_nodes as usize;
        // Jobs placed in this pass have only taken some of the nodes.
        (self.shared.n_with_free(wanted.least_cores()) as usize) >= n_wanted
            && self.fit_now(wanted).take(n_wanted).count() == n_wanted
    }

    /// Finds the first times from `from` on at which a node has room for one of the pieces.
    pub(super) fn next_hole(&self, idx: usize, line: &Line, wanted: &Wanted, from: Time) -> Option<Hole> {
        let pieces = wanted.pieces[line.kind].iter();
        pieces.filter_map(|piece| self.next_hole_of(idx, line, piece, wanted.wall, from)).min_by_key(|hole| hole.first)
    }

    /// As [`Grid::next_hole`], for one piece.
    fn next_hole_of(&self, idx: usize, line: &Line, piece: &Piece, wall: Span, from: Time) -> Option<Hole> {
        let from = self.opens(line.is_open, from);
        match self.timelines.get(idx) {
            Some(timeline) => timeline.first_hole(piece, wall, from),
            None => self.fit_for_good(line, piece).map(|fit| Hole::for_good(fit.max(from))),
        }
    }

    /// Returns the first time from `from` on at which a job may start there: not now, if no agent is connected.
    pub(super) fn opens(&self, is_open: bool, from: Time) -> Time {
        if is_open { from } else { from.max(self.now + Span::from_millis(1)) }
    }

    /// Returns the time from which on a node has room for one of the pieces.
    fn next_fit(&self, idx: usize, line: &Line, wanted: &Wanted) -> Option<Time> {
        if wanted.except.contains(&idx) {
            return None;
        }
        self.next_hole(idx, line, wanted, self.now).map(|hole| hole.first)
    }

    /// Returns whether a node has room for the piece at `at`.
    fn fits_at(&self, idx: usize, line: &Line, piece: &Piece, wall: Span, at: Time) -> bool {
        self.opens(line.is_open, at) == at
            && match self.timelines.get(idx) {
                Some(timeline) => timeline.fits_at(piece, wall, at),
                None => self.fit_for_good(line, piece).is_some_and(|fit| fit <= at),
            }
    }

    /// Returns the time from which on a node without plans has room for good.
    fn fit_for_good(&self, line: &Line, piece: &Piece) -> Option<Time> {
        let ghost = line.ghost.unwrap_or(self.now);
        if line.room.holds(piece) {
            return Some(ghost);
        }
        let mut room = line.room.clone();
        let mut leave = |(until, held): (Time, &Piece)| {
            room.take(held, -1);
            room.holds(piece).then_some(until.max(ghost))
        };
        let mut ends = line.holds().iter().map(|hold| (self.overdue.until(hold.until), &*hold.piece));
        if line.holds().first().is_none_or(|hold| hold.until > self.now) {
            return ends.find_map(leave);
        }
        // Jobs that should have left by now may stay longer than some that leave in time.
        let mut ends: Vec<(Time, &Piece)> = ends.collect();
        ends.sort_by_key(|(until, _)| *until);
        ends.into_iter().find_map(&mut leave)
    }

    /// Chooses nodes for a job that starts at a time when enough have room; `None` if too few have.
    pub(super) fn choose(&self, wanted: &Wanted, at: Time) -> Option<Vec<Place>> {
        if wanted.is_contiguous {
            return self.choose_run(wanted, at);
        }
        if self.is_simple() && self.shared.kinds().len() == 1 && wanted.except.is_empty() {
            return match at == self.now {
                true => self.choose_now(wanted),
                false => self.choose_later(wanted, at),
            };
        }
        // For each group that was checked: the piece for which it has room, if any, what makes its nodes the last to
        // choose, and the number of free cores.
        type Room<'w> = (&'w Piece, (usize, usize), i64);
        let mut by_group: Vec<Option<Option<Room<'_>>>> = vec![None; self.timelines.groups().len()];
        if let Some((_, _, with_room)) = self.found.as_ref().filter(|(known, time, _)| *time == at && known == wanted) {
            by_group.fill(Some(None));
            with_room.iter().for_each(|group| by_group[*group] = None);
        }
        let fitting = self.shared.lines().iter().enumerate().filter_map(|(idx, (_, line))| {
            let group = self.timelines.group_idx(idx);
            if group.is_some_and(|group| by_group[group] == Some(None)) || !self.is_eligible(idx, line, wanted) {
                return None;
            }
            let room = |idx: usize| {
                let free = self.timelines.get(idx).map_or(line.room.cores, |timeline| timeline.at(at).cores);
                let (piece, kind) = (self.piece_at(idx, wanted, at)?, &self.shared.kinds()[line.kind]);
                let n_spare_devices = kind.devices.iter().count() - piece.slice.devices.iter().count();
                Some((piece, (kind.features.len(), n_spare_devices), free))
            };
            let (piece, spare, free) = match group {
                Some(group) => *by_group[group].get_or_insert_with(|| room(idx)),
                None => room(idx),
            }?;
            let free = if self.timelines.is_planned(idx) { free } else { line.room.cores };
            let order = if wanted.packing == Packing::Pack { free } else { -free };
            Some(((spare, order, idx), piece))
        });
        let mut ranked: Vec<_> = fitting.collect();
        let n_wanted = wanted.n_nodes as usize;
        if ranked.len() < n_wanted {
            return None;
        }
        if n_wanted < ranked.len() {
            ranked.select_nth_unstable_by_key(n_wanted, |(rank, _)| *rank);
            ranked.truncate(n_wanted);
        }
        Some(self.places(ranked.into_iter().map(|((.., idx), piece)| (idx, piece))))
    }

    /// Returns the first piece of a node for which there is room at `at`.
    pub(super) fn piece_at<'w>(&self, idx: usize, wanted: &'w Wanted, at: Time) -> Option<&'w Piece> {
        let line = self.line(idx);
        let mut pieces = wanted.pieces[line.kind].iter();
        pieces.find(|piece| self.fits_at(idx, line, piece, wanted.wall, at))
    }

    pub(super) fn places<'p>(&self, chosen: impl Iterator<Item = (usize, &'p Piece)>) -> Vec<Place> {
        let place = |(idx, piece): (usize, &Piece)| {
            let (node, _) = self.shared.lines()[idx];
            Place { cluster: self.cluster, node, idx, piece: piece.clone() }
        };
        let mut places: Vec<Place> = chosen.map(place).collect();
        places.sort_unstable_by_key(|place| place.node);
        places
    }

    /// Chooses nodes now among nodes that are alike: those with the fewest free cores, or with the most.
    fn choose_now(&self, wanted: &Wanted) -> Option<Vec<Place>> {
        let n_wanted = wanted.n_nodes as usize;
        let sign = if wanted.packing == Packing::Pack { 1 } else { -1 };
        let ranked_at = |idx: usize| {
            let piece = self.piece_at(idx, wanted, self.now)?;
            Some((sign * self.free_now(idx), idx, piece))
        };
        // A node with plans of this pass has fewer free cores than its bucket says.
        let mut ranked: Vec<(i64, usize, &Piece)> =
            self.timelines.planned().iter().filter_map(|idx| ranked_at(*idx)).collect();
        let buckets = self.shared.with_free(wanted.least_cores());
        let buckets: Vec<_> = match wanted.packing {
            Packing::Pack => buckets.collect(),
            Packing::Spread => buckets.rev().collect(),
        };
        let others = buckets.into_iter().flat_map(|(_, nodes)| nodes);
        let others = others.filter(|idx| !self.timelines.is_planned(*idx));
        ranked.extend(others.filter_map(ranked_at).take(n_wanted));
        ranked.sort_unstable_by_key(|(rank, idx, _)| (*rank, *idx));
        ranked.truncate(n_wanted);
        (ranked.len() == n_wanted).then(|| self.places(ranked.into_iter().map(|(_, idx, piece)| (idx, piece))))
    }

    /// Chooses nodes for a later start: those of which the job keeps the fewest free cores from others until then, and of
    /// these the ones that get room last.
    fn choose_later(&self, wanted: &Wanted, at: Time) -> Option<Vec<Place>> {
        let n_wanted = wanted.n_nodes as usize;
        let later = self.fit_later(wanted).take_while(|(fit, _)| *fit <= at);
        let later: Vec<usize> = later.map(|(_, idx)| idx).collect();
        let mut chosen = keeping_least(later, n_wanted, |idx| self.n_kept_free(idx, wanted, at));
        chosen.extend(self.fit_now(wanted).take(n_wanted.saturating_sub(chosen.len())));
        chosen.truncate(n_wanted);
        let chosen = chosen.into_iter().filter_map(|idx| Some((idx, self.piece_at(idx, wanted, at)?)));
        let places = self.places(chosen);
        (places.len() == n_wanted).then_some(places)
    }

    /// Returns the number of a node's cores that this pass leaves free now.
    fn free_now(&self, idx: usize) -> i64 {
        let planned = self.timelines.get(idx).filter(|_| self.timelines.is_planned(idx));
        planned.map_or(self.line(idx).room.cores, |timeline| timeline.at(self.now).cores)
    }

    /// Returns how many cores of a node are free now, and cannot be used beyond `at` once the job has its place then.
    fn n_kept_free(&self, idx: usize, wanted: &Wanted, at: Time) -> i64 {
        let own = || self.piece_at(idx, wanted, at).map_or(0, |piece| i64::from(piece.slice.cores));
        let kept = |free: i64| (free + own() - self.drawn(idx).at(at).cores).max(0);
        Some(self.free_now(idx)).filter(|free| *free > 0).map_or(0, kept)
    }

    /// Returns the given nodes and, if more are wanted, those that have room for good soonest.
    pub(super) fn row(&self, wanted: &Wanted, first: &[NodeId]) -> Row {
        let candidate = |idx: usize| {
            let line = self.line(idx);
            // A node that is held stays, even if it now reports less than before.
            let kind = &self.shared.kinds()[line.kind];
            let piece = wanted.pieces[line.kind].first().cloned().unwrap_or_else(|| Piece::whole(kind));
            let opens = self.opens(line.is_open, self.now);
            // A node that is held but no longer usable serves until it is given back.
            let lacking = if line.is_usable { self.drawn(idx).lacking(&piece, (self.now, opens)) } else { Vec::new() };
            let for_good = lacking.last().map_or(self.now, |(_, until)| *until);
            let n_spare_devices = kind.devices.iter().count() - piece.slice.devices.iter().count();
            ((for_good, kind.features.len(), n_spare_devices, idx), piece, lacking)
        };
        let known: Vec<usize> = first.iter().filter_map(|node| self.shared.line_idx(*node).ok()).collect();
        let mut chosen: Vec<_> = known.iter().map(|idx| candidate(*idx)).collect();
        let known: BTreeSet<usize> = known.into_iter().collect();
        let others = self.eligible(wanted).filter(|(idx, _)| !known.contains(idx));
        let mut others: Vec<_> = others.map(|(idx, _)| candidate(idx)).collect();
        others.retain(|((for_good, ..), ..)| *for_good < Time::NEVER);
        others.sort_unstable_by_key(|(rank, ..)| *rank);
        chosen.extend(others);
        chosen.truncate(wanted.n_nodes as usize);
        let mut lacking_so_far = Vec::new();
        let mut row = Row::default();
        let mut blocks = Vec::new();
        for ((.., idx), piece, lacking) in chosen {
            lacking_so_far = united(&lacking_so_far, &lacking);
            blocks.extend(lacking_so_far.iter().map(|(from, until)| Block { from: *from, until: *until, nodes: 1 }));
            let (node, _) = self.shared.lines()[idx];
            row.places.push(Place { cluster: self.cluster, node, idx, piece });
        }
        row.occupied = Profile::from_blocks(blocks);
        row
    }

    /// Returns what is free of a node over time.
    pub(super) fn drawn(&self, idx: usize) -> Cow<'_, Timeline> {
        let line = self.line(idx);
        let draw = || Timeline::of(line, &self.shared.kinds()[line.kind], self.now, self.overdue);
        self.timelines.get(idx).map_or_else(|| Cow::Owned(draw()), Cow::Borrowed)
    }

    /// Keeps the same nodes, if they still have room at `at` for a job of this size.
    pub(super) fn keep(&self, wanted: &Wanted, nodes: &[NodeId], at: Time) -> Option<Vec<Place>> {
        let mut places = Vec::with_capacity(wanted.n_nodes as usize);
        // Most nodes are like the one before.
        let mut last: Option<(usize, &Piece)> = None;
        for node in nodes {
            let Ok(idx) = self.shared.line_idx(*node) else { continue };
            let group = self.timelines.group_idx(idx);
            let known = last.filter(|(known, _)| group == Some(*known)).map(|(_, piece)| piece);
            if wanted.except.contains(&idx) {
                return None;
            }
            let is_usable = self.line(idx).is_usable;
            let piece = known.or_else(|| self.piece_at(idx, wanted, at).filter(|_| is_usable))?;
            last = group.map(|group| (group, piece));
            places.push(Place { cluster: self.cluster, node: *node, idx, piece: piece.clone() });
        }
        (places.len() == wanted.n_nodes as usize && self.are_together(wanted, &places)).then_some(places)
    }

    /// Takes places from `from` to `until`, or with a `sign` of -1 gives them back. Calls `changed`, if given, for each
    /// time at which that decides whether any job has something of the node.
    pub(super) fn take(
        &mut self,
        places: &[Place],
        (from, until): (Time, Time),
        sign: i64,
        mut changed: Option<&mut Changed<'_>>,
    ) {
        // Known results by the group of a node: the piece that it gave, and its group afterwards.
        let mut known: BTreeMap<usize, (&Piece, usize)> = BTreeMap::new();
        // Most nodes are like the one before.
        let mut last: Option<(usize, (&Piece, usize))> = None;
        self.found = None;
        self.next_use.resize(self.shared.lines().len(), Time::NEVER);
        self.timelines.reach(from);
        for place in places {
            let idx = place.idx;
            self.has_plans |= from > self.now;
            if sign < 0 {
                self.frontier = None;
            }
            let before = self.draw(idx);
            self.timelines.plan_on(idx, sign as i32);
            let known_after = match &last {
                Some((group, after)) if *group == before => Some(after),
                Some(_) | None => known.get(&before),
            };
            let after = known_after.filter(|(piece, _)| **piece == place.piece).map(|(_, after)| *after);
            let clear = |timelines: &Timelines, group: usize| timelines.groups()[group].timeline.clear(from, until);
            let clear_before = if sign > 0 && changed.is_some() { clear(&self.timelines, before) } else { Vec::new() };
            let after = after.unwrap_or_else(|| {
                let after = self.timelines.edited(before, |timeline| timeline.take(from, until, &place.piece, sign));
                known.insert(before, (&place.piece, after));
                after
            });
            last = Some((before, (&place.piece, after)));
            self.timelines.put(idx, after);
            if sign > 0 {
                self.next_use[idx] = from.min(self.next_use[idx]);
            }
            if let Some(changed) = &mut changed {
                let clear = if sign > 0 { clear_before } else { clear(&self.timelines, after) };
                clear.into_iter().for_each(|(from, until)| changed(place, from, until));
            }
        }
        self.timelines.vacate();
    }

    /// Returns when the first waiting job gets a part of each node.
    pub(super) fn next_use(&self) -> impl Iterator<Item = (NodeId, Time)> + '_ {
        let used = std::iter::zip(self.shared.lines(), &self.next_use).filter(|(_, at)| **at < Time::NEVER);
        used.map(|((node, _), at)| (*node, *at))
    }

    /// Prepares to treat a job as not holding this node. Returns what the job has of it, and until when.
    pub(super) fn free_up(&mut self, job: JobId, node: NodeId) -> Option<(Place, Time)> {
        let idx = self.shared.line_idx(node).ok()?;
        let hold = self.line(idx).hold_of(job)?;
        let until = self.overdue.until(hold.until);
        let place = Place { cluster: self.cluster, node, idx, piece: Piece::clone(&hold.piece) };
        self.has_plans = true;
        Some((place, until))
    }

    /// Returns what a job has of a node, or else would take of it: all of it, if the node is now too small for that.
    pub(super) fn place_of(&self, job: JobId, entry: &Job, node: NodeId) -> Option<Place> {
        let idx = self.shared.line_idx(node).ok()?;
        let line = self.line(idx);
        let kind = &self.shared.kinds()[line.kind];
        let to_grow = || {
            let pieces = pieces_to_grow(entry, kind);
            let with_room = pieces.iter().find(|piece| line.room.holds(piece)).or(pieces.first());
            with_room.cloned().unwrap_or_else(|| Piece::whole(kind))
        };
        let piece = line.hold_of(job).map_or_else(to_grow, |hold| Piece::clone(&hold.piece));
        Some(Place { cluster: self.cluster, node, idx, piece })
    }

    /// Returns the times at which a node has room for one of these pieces, as far as its kind has them.
    pub(super) fn times_with_room(
        &self,
        node: NodeId,
        pieces: &[Vec<Piece>],
        times: (Time, Time),
    ) -> Vec<(Time, Time)> {
        let Ok(idx) = self.shared.line_idx(node) else { return Vec::new() };
        let pieces = &pieces[self.line(idx).kind];
        self.drawn(idx).times(times, |room| pieces.iter().any(|piece| room.holds(piece)))
    }

    /// Returns the pieces of a node of each kind that serve a slice.
    pub(super) fn pieces(&self, slice: &Slice) -> Vec<Vec<Piece>> {
        self.shared.kinds().iter().map(|kind| pieces(slice, kind)).collect()
    }

    pub(super) fn usable(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.shared.lines().iter().filter(|(_, line)| line.is_usable).map(|(node, _)| *node)
    }

    /// Returns what of a node no job has or will have from now until `until`.
    pub(super) fn spare(&self, node: NodeId, until: Time) -> Option<Slice> {
        Some(self.drawn(self.shared.line_idx(node).ok()?).least((self.now, until)))
    }

    /// Returns the usable nodes of which a job has something, as places of nothing, and from when until when.
    pub(super) fn busy(&self) -> impl Iterator<Item = (Place, Time, Time)> + '_ {
        let lines = self.shared.lines().iter().enumerate().filter(|(_, (_, line))| line.is_usable);
        lines.flat_map(|(idx, (node, line))| {
            let times = match self.timelines.get(idx) {
                Some(timeline) => timeline.busy(self.now),
                None => {
                    let last = line.holds().iter().map(|hold| self.overdue.until(hold.until)).max();
                    let last = last.max(line.ghost.filter(|ghost| *ghost > self.now));
                    last.map(|last| (self.now, last)).into_iter().collect()
                }
            };
            let place = Place { cluster: self.cluster, node: *node, idx, piece: Piece::default() };
            times.into_iter().map(move |(from, until)| (place.clone(), from, until))
        })
    }

    /// Returns the number of logical CPUs of the cores of a place.
    pub(super) fn n_cpus(&self, place: &Place) -> usize {
        let kind = &self.shared.kinds()[self.line(place.idx).kind];
        (place.piece.slice.cores * kind.threads_per_core()) as usize
    }

    /// Returns, for each usable node that no job has now, the time until which none will.
    pub(super) fn clear_until(&self) -> impl Iterator<Item = Time> + '_ {
        let usable = self.shared.lines().iter().enumerate().filter(|(_, (_, line))| line.is_usable);
        usable.filter_map(|(idx, (_, line))| match self.timelines.get(idx) {
            Some(timeline) => {
                let clear = timeline.clear(self.now, Time::NEVER);
                clear.first().filter(|(from, _)| *from == self.now).map(|(_, end)| *end)
            }
            None => (line.room.is_clear() && line.ghost.is_none()).then_some(Time::NEVER),
        })
    }
}
