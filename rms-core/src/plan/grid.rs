//! The nodes of one cluster that is shared by cores, as they fill up in a pass: who is placed here has named nodes.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use rms_model::profile::Block;
use rms_model::{ClusterId, JobId, JobSpec, NodeId, Packing, Profile, Request, Slice, Span, Time};

use super::alike::{Group, Timelines};
use super::frontier::{SliceFrontier, SliceWant};
use super::timeline::{Hole, Start, Timeline, first_start};
use crate::state::job::Job;
use crate::state::{Line, Piece, Shared, SharedCluster, pieces, pieces_of, pieces_to_grow};

/// A piece of one node, for somebody who was placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) cluster: ClusterId,
    pub(super) node: NodeId,
    pub(super) piece: Piece,
}

/// Nodes in the order in which stages take them: a stage of so many nodes has the first ones. So a count of nodes says when
/// a stage has room, as it does where nodes are given away whole.
#[derive(Debug, Default)]
pub(super) struct Row {
    pub(super) places: Vec<Place>,
    /// How many of its nodes cannot be had when: they have no room, or ones before them have none.
    pub(super) occupied: Profile,
}

/// Is told of times at which a place makes the difference between a node that nobody has and one that somebody has.
pub(super) type Changed<'c> = dyn FnMut(&Place, Time, Time) + 'c;

#[derive(Debug)]
pub(super) struct Grid<'a> {
    cluster: ClusterId,
    all: &'a Shared,
    shared: &'a SharedCluster,
    /// All nodes in the order in which they follow one another.
    pub(super) in_order: &'a [NodeId],
    now: Time,
    /// Until when those stay who should have left.
    overdue: Time,
    /// Of nodes that were asked about, by their place among all of them.
    timelines: Timelines,
    /// Is anything planned that begins later than now, or a node taken for free that is not? If not, room that a node has
    /// stays, and none has more than the state says.
    has_plans: bool,
    /// By their place among all nodes, when the first of those who wait gets something of them.
    next_use: Vec<Time>,
    /// What was searched last and when it starts, and the groups of nodes that have room then; until something is taken.
    found: Option<(Wanted, Time, Vec<usize>)>,
    /// What was found from now on; nothing is known any more once somebody has given something back.
    frontier: Option<RefCell<SliceFrontier>>,
}

/// What somebody wants of the nodes of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wanted {
    pub(super) n_nodes: u32,
    wall: Span,
    /// For each kind of node what may be taken of it: the first that is free.
    pub(super) pieces: Vec<Vec<Piece>>,
    packing: Packing,
    /// Nodes that it does not take, by their place among all of them.
    except: BTreeSet<usize>,
    /// They follow one another.
    pub(super) is_contiguous: bool,
}

impl Wanted {
    /// As far as it is known that who wants more starts no earlier.
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

    /// A node with fewer free cores has no room for it.
    fn least_cores(&self) -> u32 {
        self.pieces.iter().flatten().map(|piece| piece.slice.cores).min().unwrap_or(0)
    }
}

impl<'a> Grid<'a> {
    pub(super) fn new(
        all: &'a Shared,
        (cluster, shared): (ClusterId, &'a SharedCluster),
        in_order: &'a [NodeId],
        now: Time,
        overdue: Time,
    ) -> Grid<'a> {
        let most_cores = shared.kinds().iter().map(|kind| kind.cores).max().unwrap_or(0);
        Grid {
            cluster,
            all,
            shared,
            in_order,
            now,
            overdue,
            timelines: Timelines::new(now, most_cores),
            has_plans: false,
            next_use: Vec::new(),
            found: None,
            frontier: Some(RefCell::default()),
        }
    }

    /// What a job wants here if it starts with this size.
    pub(super) fn wanted(&self, spec: &JobSpec, request: &Request) -> Wanted {
        Wanted {
            n_nodes: request.nodes.get(&self.cluster).copied().unwrap_or(0),
            wall: request.wall,
            pieces: self.shared.kinds().iter().map(|kind| pieces_of(spec, request, kind)).collect(),
            packing: spec.resources.packing,
            except: BTreeSet::new(),
            is_contiguous: spec.resources.contiguous,
        }
    }

    /// The same for so many more nodes and so long, beside these.
    pub(super) fn wanted_beside(
        &self,
        (spec, request): (&JobSpec, &Request),
        (n_nodes, wall): (u32, Span),
        others: &BTreeSet<NodeId>,
    ) -> Wanted {
        let except = others.iter().filter_map(|node| self.shared.line_idx(*node).ok()).collect();
        Wanted { n_nodes, wall, except, is_contiguous: false, ..self.wanted(spec, request) }
    }

    /// How many nodes that may be planned with are large enough.
    pub(super) fn n_eligible(&self, wanted: &Wanted) -> u32 {
        let kinds = std::iter::zip(&wanted.pieces, self.shared.n_usable());
        kinds.filter(|(pieces, _)| !pieces.is_empty()).map(|(_, n_usable)| n_usable).sum()
    }

    fn eligible<'w>(&'w self, wanted: &'w Wanted) -> impl Iterator<Item = (usize, &'w Line)> + 'w {
        let lines = self.shared.lines().iter().enumerate().map(|(idx, (_, line))| (idx, line));
        lines.filter(move |(idx, line)| self.is_eligible(*idx, line, wanted))
    }

    fn is_eligible(&self, idx: usize, line: &Line, wanted: &Wanted) -> bool {
        line.is_usable && !wanted.pieces[line.kind].is_empty() && !wanted.except.contains(&idx)
    }

    pub(super) fn line_idx(&self, node: NodeId) -> Option<usize> {
        self.shared.line_idx(node).ok()
    }

    pub(super) fn line(&self, idx: usize) -> &Line {
        &self.shared.lines()[idx].1
    }

    /// The earliest time from `from` on at which so many nodes have room, and how many have at `from`; `None` if there
    /// are too few of them.
    pub(super) fn first_start(&mut self, wanted: &Wanted, from: Time) -> Option<(Time, usize)> {
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
        let groups = self.groups_for(wanted);
        let n_alike: Vec<usize> = groups.iter().map(|(_, n_nodes)| *n_nodes).collect();
        let in_order = self.timelines.groups();
        let next_hole =
            |place: usize, times: (Time, Time)| self.next_hole_in(&in_order[groups[place].0], wanted, times);
        let frontier = self.frontier.as_ref().filter(|_| from == self.now);
        let known = frontier.and_then(|frontier| Some((frontier, wanted.want()?)));
        let bound = known.and_then(|(frontier, want)| frontier.borrow().bound(&want)).filter(|bound| *bound > from);
        let found = first_start(&n_alike, n_wanted, bound.unwrap_or(from), next_hole)?;
        let Start { at, n_now, groups: with_room } = found;
        let with_room = with_room.into_iter().map(|place| groups[place].0).collect();
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

    /// Groups whose nodes are large enough, each with how many of its nodes are, once all are drawn.
    fn groups_for(&self, wanted: &Wanted) -> Vec<(usize, usize)> {
        let mut n_except: BTreeMap<usize, usize> = BTreeMap::new();
        for group in wanted.except.iter().filter_map(|idx| self.timelines.group_idx(*idx)) {
            *n_except.entry(group).or_default() += 1;
        }
        let groups = self.timelines.groups().iter().enumerate().filter_map(|(idx, group)| {
            let n_nodes = group.n_nodes as usize - n_except.get(&idx).copied().unwrap_or(0);
            let is_eligible = n_nodes > 0 && group.is_usable && !wanted.pieces[group.kind].is_empty();
            is_eligible.then_some((idx, n_nodes))
        });
        groups.collect()
    }

    /// The first times at which a node of a group has room for one of the pieces: as [`Timeline::first_hole_by`].
    fn next_hole_in(&self, group: &Group, wanted: &Wanted, (from, latest): (Time, Time)) -> Option<Hole> {
        let from = self.opens(group.is_open, from);
        let latest = latest.max(from);
        let hole = |piece: &Piece| {
            let from = group.outline.not_before(piece, wanted.wall, from, &self.timelines.scale)?;
            match from <= latest {
                true => group.timeline.first_hole_by(piece, wanted.wall, (from, latest)),
                false => Some(Hole::not_before(from)),
            }
        };
        wanted.pieces[group.kind].iter().filter_map(hole).min_by_key(|hole| hole.first)
    }

    /// Does room that a node has from some time on stay, and does everybody leave when he should?
    fn is_simple(&self) -> bool {
        let is_overdue = self.all.ends(self.cluster).next().is_some_and(|(until, _)| until <= self.now);
        !self.has_plans && !is_overdue && self.shared.are_all_open()
    }

    /// Nodes that have room now; while [`Grid::is_simple`] for good.
    fn fit_now<'w>(&'w self, wanted: &'w Wanted) -> impl Iterator<Item = usize> + 'w {
        let buckets = self.shared.with_free(wanted.least_cores()).flat_map(|(_, nodes)| nodes);
        buckets.filter(|idx| self.next_fit(*idx, self.line(*idx), wanted) == Some(self.now))
    }

    /// Nodes that have no room now, by when they will; only while [`Grid::is_simple`].
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
        // Two who leave a node at one time make room together, once.
        let mut last = (Time::EPOCH, BTreeSet::new());
        in_order.filter(move |(at, idx)| {
            if last.0 != *at {
                last = (*at, BTreeSet::new());
            }
            last.1.insert(*idx)
        })
    }

    /// How many nodes have room now, up to so many.
    pub(super) fn n_with_room_now(&self, wanted: &Wanted, most: u32) -> u32 {
        self.fit_now(wanted).take(most as usize).count() as u32
    }

    /// Can it start now, as far as these nodes go?
    pub(super) fn has_room_now(&self, wanted: &Wanted) -> bool {
        let n_wanted = wanted.n_nodes as usize;
        // Who was placed in this pass has only taken some of them.
        (self.shared.n_with_free(wanted.least_cores()) as usize) >= n_wanted
            && self.fit_now(wanted).take(n_wanted).count() == n_wanted
    }

    /// May one of these nodes have room for somebody from some time before `latest` on, once he has given back what he has
    /// from then until then?
    pub(super) fn may_start_on(
        &self,
        nodes: &BTreeSet<NodeId>,
        wanted: &Wanted,
        (own, from, until): (&[Place], Time, Time),
        latest: Time,
    ) -> bool {
        let mut by_cluster = own.chunk_by(|one, next| one.cluster == next.cluster);
        let own = by_cluster.find(|places| places[0].cluster == self.cluster).unwrap_or_default();
        // Groups of which a node that he has, or one that he has not, may not be had in time.
        let mut seen: BTreeSet<(usize, bool)> = BTreeSet::new();
        nodes.iter().any(|node| {
            let Ok(idx) = self.shared.line_idx(*node) else { return false };
            let is_own = own.binary_search_by_key(node, |place| place.node).is_ok();
            if self.timelines.group_idx(idx).is_some_and(|group| !seen.insert((group, is_own))) {
                return false;
            }
            let line = self.line(idx);
            let opens = self.opens(line.is_open, self.now);
            let mut pieces = wanted.pieces[line.kind].iter().filter(|_| line.is_usable);
            let hole = |piece: &Piece| match is_own {
                true => self.drawn(idx).first_hole_beside((from, until), piece, wanted.wall, opens),
                false => self.next_hole_of(idx, line, piece, wanted.wall, self.now),
            };
            pieces.any(|piece| hole(piece).is_some_and(|hole| hole.first < latest))
        })
    }

    /// The first times from `from` on at which a node has room for one of the pieces.
    pub(super) fn next_hole(&self, idx: usize, line: &Line, wanted: &Wanted, from: Time) -> Option<Hole> {
        let pieces = wanted.pieces[line.kind].iter();
        pieces.filter_map(|piece| self.next_hole_of(idx, line, piece, wanted.wall, from)).min_by_key(|hole| hole.first)
    }

    /// The same for this piece.
    fn next_hole_of(&self, idx: usize, line: &Line, piece: &Piece, wall: Span, from: Time) -> Option<Hole> {
        let from = self.opens(line.is_open, from);
        match self.timelines.get(idx) {
            Some(timeline) => timeline.first_hole(piece, wall, from),
            None => self.fit_for_good(line, piece).map(|fit| Hole::for_good(fit.max(from))),
        }
    }

    /// The first time from `from` on at which something may start there: nothing does now where no agent is.
    fn opens(&self, is_open: bool, from: Time) -> Time {
        if is_open { from } else { from.max(self.now + Span::from_millis(1)) }
    }

    /// From when on a node has room for one of the pieces.
    fn next_fit(&self, idx: usize, line: &Line, wanted: &Wanted) -> Option<Time> {
        self.next_hole(idx, line, wanted, self.now).map(|hole| hole.first)
    }

    /// Has a node room for the piece then?
    fn fits_at(&self, idx: usize, line: &Line, piece: &Piece, wall: Span, at: Time) -> bool {
        self.opens(line.is_open, at) == at
            && match self.timelines.get(idx) {
                Some(timeline) => timeline.fits_at(piece, wall, at),
                None => self.fit_for_good(line, piece).is_some_and(|fit| fit <= at),
            }
    }

    /// From when on a node for which nothing is planned has room for good.
    fn fit_for_good(&self, line: &Line, piece: &Piece) -> Option<Time> {
        let ghost = line.ghost.unwrap_or(self.now);
        if line.room.holds(piece) {
            return Some(ghost);
        }
        // Who should have left by now stays beyond some who leave in time.
        let (late, others) = line.holds().split_at(line.holds().partition_point(|hold| hold.until <= self.now));
        let (before, after) = others.split_at(others.partition_point(|hold| hold.until < self.overdue));
        let mut room = line.room.clone();
        for hold in before.iter().chain(late).chain(after) {
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
        if wanted.is_contiguous {
            return self.choose_run(wanted, at);
        }
        if self.is_simple() && self.shared.kinds().len() == 1 && wanted.except.is_empty() {
            return match at == self.now {
                true => self.choose_now(wanted),
                false => self.choose_later(wanted, at),
            };
        }
        // Of each group whether its nodes have room, once one was asked about: which piece, and how many cores are free.
        let mut by_group: Vec<Option<Option<(&Piece, i64)>>> = vec![None; self.timelines.groups().len()];
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
                Some((self.piece_at(idx, wanted, at)?, free))
            };
            let (piece, free) = match group {
                Some(group) => *by_group[group].get_or_insert_with(|| room(idx)),
                None => room(idx),
            }?;
            let is_planned = self.timelines.is_planned(idx);
            Some((idx, line, piece, if is_planned { free } else { line.room.cores }))
        });
        let mut ranked: Vec<_> = fitting
            .map(|(idx, line, piece, free)| {
                let kind = &self.shared.kinds()[line.kind];
                let n_spare_devices = kind.devices.iter().count() - piece.slice.devices.iter().count();
                let order = if wanted.packing == Packing::Pack { free } else { -free };
                ((kind.features.len(), n_spare_devices, order, idx), piece)
            })
            .collect();
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

    /// The first piece of a node that there is room for then.
    pub(super) fn piece_at<'w>(&self, idx: usize, wanted: &'w Wanted, at: Time) -> Option<&'w Piece> {
        let line = self.line(idx);
        let mut pieces = wanted.pieces[line.kind].iter();
        pieces.find(|piece| self.fits_at(idx, line, piece, wanted.wall, at))
    }

    pub(super) fn places<'p>(&self, chosen: impl Iterator<Item = (usize, &'p Piece)>) -> Vec<Place> {
        let place = |(idx, piece): (usize, &Piece)| {
            let (node, _) = self.shared.lines()[idx];
            Place { cluster: self.cluster, node, piece: piece.clone() }
        };
        let mut places: Vec<Place> = chosen.map(place).collect();
        places.sort_unstable_by_key(|place| place.node);
        places
    }

    /// The same among nodes that are alike, now: those with the fewest free cores, or with the most.
    fn choose_now(&self, wanted: &Wanted) -> Option<Vec<Place>> {
        let n_wanted = wanted.n_nodes as usize;
        let sign = if wanted.packing == Packing::Pack { 1 } else { -1 };
        let ranked_at = |idx: usize| {
            let piece = self.piece_at(idx, wanted, self.now)?;
            let room = &self.line(idx).room;
            let timeline = self.timelines.get(idx).filter(|_| self.timelines.is_planned(idx));
            let free = timeline.map_or(room.cores, |timeline| timeline.at(self.now).cores);
            Some((sign * free, idx, piece))
        };
        // What was planned on in this pass has less free than its place among the others says.
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

    /// The same, later: those that have room last, so that what is free now is left to others meanwhile.
    fn choose_later(&self, wanted: &Wanted, at: Time) -> Option<Vec<Place>> {
        let n_wanted = wanted.n_nodes as usize;
        let later = self.fit_later(wanted).take_while(|(fit, _)| *fit <= at);
        let mut chosen: Vec<usize> = later.map(|(_, idx)| idx).collect();
        chosen.reverse();
        chosen.extend(self.fit_now(wanted).take(n_wanted.saturating_sub(chosen.len())));
        chosen.truncate(n_wanted);
        let chosen = chosen.into_iter().filter_map(|idx| Some((idx, self.piece_at(idx, wanted, at)?)));
        let places = self.places(chosen);
        (places.len() == n_wanted).then_some(places)
    }

    /// The nodes that are given and, as far as more are wanted, those that have room for good soonest.
    pub(super) fn row(&self, wanted: &Wanted, first: &[NodeId]) -> Row {
        let candidate = |idx: usize| {
            let line = self.line(idx);
            // A node that is held stays, also when it says that it has less now.
            let kind = &self.shared.kinds()[line.kind];
            let piece = wanted.pieces[line.kind].first().cloned().unwrap_or_else(|| Piece::whole(kind));
            let opens = self.opens(line.is_open, self.now);
            // A node that is held and not planned with serves until it is given back.
            let lacking = if line.is_usable { self.drawn(idx).lacking(&piece, opens) } else { Vec::new() };
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
            row.places.push(Place { cluster: self.cluster, node, piece });
        }
        row.occupied = Profile::from_blocks(blocks);
        row
    }

    /// What is free of a node over time.
    fn drawn(&self, idx: usize) -> Cow<'_, Timeline> {
        let line = self.line(idx);
        let draw = || Timeline::of(line, &self.shared.kinds()[line.kind], self.now, self.overdue);
        self.timelines.get(idx).map_or_else(|| Cow::Owned(draw()), Cow::Borrowed)
    }

    /// The same nodes again, if they still have room then for a job of this size.
    pub(super) fn keep(&self, wanted: &Wanted, nodes: &[NodeId], at: Time) -> Option<Vec<Place>> {
        let mut places = Vec::with_capacity(wanted.n_nodes as usize);
        // Most of them are like the one before.
        let mut last: Option<(usize, &Piece)> = None;
        for node in nodes {
            let Ok(idx) = self.shared.line_idx(*node) else { continue };
            let group = self.timelines.group_idx(idx);
            let known = last.filter(|(known, _)| group == Some(*known)).map(|(_, piece)| piece);
            let is_usable = self.line(idx).is_usable;
            let piece = known.or_else(|| self.piece_at(idx, wanted, at).filter(|_| is_usable))?;
            last = group.map(|group| (group, piece));
            places.push(Place { cluster: self.cluster, node: *node, piece: piece.clone() });
        }
        (places.len() == wanted.n_nodes as usize && self.are_together(wanted, &places)).then_some(places)
    }

    /// Somebody takes his places from then until then, or with a `sign` of -1 gives them back. For each time at which that
    /// makes the difference between a node that nobody has and one that somebody has, `changed` is told if anybody asks.
    pub(super) fn take(
        &mut self,
        places: &[Place],
        (from, until): (Time, Time),
        sign: i64,
        mut changed: Option<&mut Changed<'_>>,
    ) {
        // What becomes of the nodes of a group that have given such a piece.
        let mut known: Vec<(usize, &Piece, usize)> = Vec::new();
        self.found = None;
        self.next_use.resize(self.shared.lines().len(), Time::NEVER);
        self.timelines.reach(from);
        for place in places {
            let Ok(idx) = self.shared.line_idx(place.node) else { continue };
            self.has_plans |= from > self.now;
            if sign < 0 {
                self.frontier = None;
            }
            let before = self.draw(idx);
            self.timelines.plan_on(idx);
            let is_known = |(group, piece, _): &&(usize, &Piece, usize)| *group == before && **piece == place.piece;
            let after = known.iter().rev().find(is_known).map(|(.., after)| *after);
            let clear = |timelines: &Timelines, group: usize| timelines.groups()[group].timeline.clear(from, until);
            let clear_before = if sign > 0 && changed.is_some() { clear(&self.timelines, before) } else { Vec::new() };
            let after = after.unwrap_or_else(|| {
                let after = self.timelines.edited(before, |timeline| timeline.take(from, until, &place.piece, sign));
                known.push((before, &place.piece, after));
                after
            });
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

    /// When the first of those who wait gets something of a node.
    pub(super) fn next_use(&self) -> impl Iterator<Item = (NodeId, Time)> + '_ {
        let used = std::iter::zip(self.shared.lines(), &self.next_use).filter(|(_, at)| **at < Time::NEVER);
        used.map(|((node, _), at)| (*node, *at))
    }

    /// A job is about to be taken for one that does not hold this node: what it has of it, and until when.
    pub(super) fn free_up(&mut self, job: JobId, node: NodeId) -> Option<(Place, Time)> {
        let hold = self.line(self.shared.line_idx(node).ok()?).hold_of(job)?;
        let until = if hold.until > self.now { hold.until } else { self.overdue };
        let place = Place { cluster: self.cluster, node, piece: Piece::clone(&hold.piece) };
        self.has_plans = true;
        Some((place, until))
    }

    /// What a job has of a node, or else would take of it: all of it if it is too small for that by now.
    pub(super) fn place_of(&self, job: JobId, entry: &Job, node: NodeId) -> Option<Place> {
        let line = self.line(self.shared.line_idx(node).ok()?);
        let kind = &self.shared.kinds()[line.kind];
        let to_grow = || {
            let pieces = pieces_to_grow(entry, kind);
            let with_room = pieces.iter().find(|piece| line.room.holds(piece)).or(pieces.first());
            with_room.cloned().unwrap_or_else(|| Piece::whole(kind))
        };
        let piece = line.hold_of(job).map_or_else(to_grow, |hold| Piece::clone(&hold.piece));
        Some(Place { cluster: self.cluster, node, piece })
    }

    /// The times at which a node has room for one of these pieces, of those that its kind can give.
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

    /// What of a node of each kind serves a slice.
    pub(super) fn pieces(&self, slice: &Slice) -> Vec<Vec<Piece>> {
        self.shared.kinds().iter().map(|kind| pieces(slice, kind)).collect()
    }

    pub(super) fn usable(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.shared.lines().iter().filter(|(_, line)| line.is_usable).map(|(node, _)| *node)
    }

    /// What of a node nobody has or is to have from now on until then.
    pub(super) fn spare(&self, node: NodeId, until: Time) -> Option<Slice> {
        Some(self.drawn(self.shared.line_idx(node).ok()?).least(until))
    }

    /// The usable nodes that somebody has something of, and from when until when.
    pub(super) fn busy(&self) -> impl Iterator<Item = (NodeId, Time, Time)> + '_ {
        let lines = self.shared.lines().iter().enumerate().filter(|(_, (_, line))| line.is_usable);
        lines.flat_map(|(idx, (node, line))| {
            let times = match self.timelines.get(idx) {
                Some(timeline) => timeline.busy(self.now),
                None => {
                    let until = |until| if until > self.now { until } else { self.overdue };
                    let last = line.holds().last().map(|hold| until(hold.until));
                    let last = last.max(line.ghost.filter(|ghost| *ghost > self.now));
                    last.map(|last| (self.now, last)).into_iter().collect()
                }
            };
            times.into_iter().map(|(from, until)| (*node, from, until))
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
        usable.filter_map(|(idx, (_, line))| match self.timelines.get(idx) {
            Some(timeline) => {
                let clear = timeline.clear(self.now, Time::NEVER);
                clear.first().filter(|(from, _)| *from == self.now).map(|(_, end)| *end)
            }
            None => (line.room.is_clear() && line.ghost.is_none()).then_some(Time::NEVER),
        })
    }
}

/// Times that are in one of two lists, each in order.
fn united(one: &[(Time, Time)], other: &[(Time, Time)]) -> Vec<(Time, Time)> {
    let mut all = [one, other].concat();
    all.sort_unstable();
    let mut united: Vec<(Time, Time)> = Vec::new();
    for (from, until) in all {
        match united.last_mut() {
            Some((_, last)) if from <= *last => *last = until.max(*last),
            Some(_) | None => united.push((from, until)),
        }
    }
    united
}
