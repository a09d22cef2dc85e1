//! EASY on a cluster that is shared by cores, where nodes are alike and each job waits for a slice of some of them.
//! Finds the jobs that start now by counts of free cores, without visiting jobs for which there is no room.
//!
//! The result is that of the walk over the queue in [`policy`](super::policy): each job starts on the same nodes, and
//! the reservation of the first waiting job is on the same ones.

use std::collections::BTreeMap;
use std::ops::{Add, Sub};

use rms_model::{ClusterId, Inventory, NodeId, Request, Slice, Time};

use super::{Placed, Placement, Plan};
use crate::state::{Demand, IdSet, QueueKey, SharedCluster, SliceDemand, SliceRoom, State, memory_of};

/// Cores and memory of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
    cores: i64,
    memory: i64,
}

/// What jobs placed in this pass take of a node that none of them has exclusively.
#[derive(Clone, Debug, Default)]
struct Taken {
    size: Size,
    /// The size of each job, with its end.
    by: Vec<(Time, Size)>,
}

/// What a job requests of each of its nodes.
#[derive(Clone, Copy)]
struct Wanted {
    slice: SliceDemand,
    is_whole: bool,
    size: Size,
}

/// The reservation of the first waiting job. Nodes without a free core are left out: no job can start there anyway.
struct Shadow {
    at: Time,
    /// What is free beside the reservation on its nodes then, by the index of the node. A node that no job holds now is
    /// listed only if something is left.
    left: BTreeMap<usize, Size>,
    /// Its nodes that no job holds now.
    clear: IdSet,
    /// How many of these it has exclusively.
    n_whole: u32,
}

struct Slices<'a> {
    state: &'a State,
    cluster: ClusterId,
    shared: &'a SharedCluster,
    kind: &'a Inventory,
    now: Time,
    /// Nodes of which no job has anything, nor got it in this pass.
    clear: IdSet,
    /// By index, the nodes of which this pass has given parts away.
    taken: BTreeMap<usize, Taken>,
    /// Placements that have their nodes exclusively, with their ends.
    whole: Vec<(Time, usize)>,
    room: SliceRoom,
    placements: Vec<Placement>,
}

/// Returns `None` if the walk over the queue is required.
pub(super) fn of_easy(state: &State, now: Time) -> Option<Plan> {
    let mut clusters = state.shared().clusters();
    let ((cluster, shared), None) = (clusters.next()?, clusters.next()) else { return None };
    let [kind] = shared.kinds() else { return None };
    let is_overdue = state.shared().ends(cluster).next().is_some_and(|(until, _)| until <= now);
    let has_rows = state.evolved().any(|(.., started)| !started.row().is_empty());
    let is_simple =
        state.clusters().len() == 1 && shared.are_all_open() && state.n_promised() == 0 && !is_overdue && !has_rows;
    if !is_simple || !state.wants_are_slices() {
        return None;
    }
    let slices = Slices {
        state,
        cluster,
        shared,
        kind,
        now,
        clear: shared.clear(kind.cores),
        taken: BTreeMap::new(),
        whole: Vec::new(),
        room: SliceRoom::new(kind.threads_per_core(), shared.counts_with_free(kind.cores)),
        placements: Vec::new(),
    };
    Some(Plan { placements: slices.starts(), ..Plan::of_nobody(now) })
}

impl Slices<'_> {
    fn starts(mut self) -> Vec<Placement> {
        let last = self.state.depth().and_then(|depth| self.state.nth_queued(depth as usize - 1));
        let is_beyond = |key: QueueKey| last.is_some_and(|last| key > last);
        let mut head = None;
        for (key, demand) in self.state.keyed_demands().take_while(|(key, _)| !is_beyond(*key)) {
            // A job none of whose sizes fits the existing nodes is skipped.
            let Some(wanted) = self.wanted(demand) else { continue };
            if !self.start(key, &wanted, None) {
                head = Some((key, wanted));
                break;
            }
        }
        let Some((mut behind, first)) = head else { return self.placements };
        let mut shadow = None;
        while let Some((key, demand)) = self.state.next_slice(behind, &self.room).filter(|(key, _)| !is_beyond(*key)) {
            if shadow.is_none() {
                // The reservation is computed only once a job behind the head may start.
                let Some(found) = self.reserve(&first) else { break };
                self.room.reserve(found.at.since(self.now), self.counts_beside(&found));
                shadow = Some(found);
                continue;
            }
            behind = key;
            if let Some(wanted) = self.wanted(demand) {
                self.start(key, &wanted, shadow.as_mut());
            }
        }
        self.placements
    }

    /// Returns `None` if too few of the usable nodes are large enough.
    fn wanted(&self, demand: &Demand) -> Option<Wanted> {
        let slice = demand.slice?;
        let cores = slice.cores(self.kind)?;
        let is_whole = cores == self.kind.cores;
        let memory = memory_of(if is_whole { self.kind.memory } else { slice.memory });
        let fits = slice.memory <= self.kind.memory && slice.nodes <= self.shared.n_usable()[0];
        fits.then_some(Wanted { slice, is_whole, size: Size { cores: cores.into(), memory } })
    }

    /// Returns what is free of a node now.
    fn free(&self, idx: usize) -> Size {
        let (node, line) = &self.shared.lines()[idx];
        let free = Size { cores: line.room.cores, memory: line.room.memory };
        match self.taken.get(&idx) {
            Some(taken) => free - taken.size,
            None if free.cores == i64::from(self.kind.cores) && !self.clear.contains(*node) => Size::default(),
            None => free,
        }
    }

    /// Starts a job if enough nodes have room; beside the reservation, if the job would still run then.
    fn start(&mut self, key: QueueKey, wanted: &Wanted, mut shadow: Option<&mut Shadow>) -> bool {
        let until = self.now + wanted.slice.wall;
        let beside = shadow.as_deref().filter(|shadow| until > shadow.at);
        let enough = self.room.now().get(wanted.size.cores as usize).is_some_and(|count| *count >= wanted.slice.nodes);
        let chosen = match (enough, wanted.is_whole) {
            (false, _) => None,
            (true, true) => self.choose_whole(wanted, beside),
            (true, false) => self.choose(wanted, beside),
        };
        let Some(nodes) = chosen else { return false };
        match wanted.is_whole {
            true => self.take_whole(&nodes, until, shadow.as_deref()),
            false => {
                for idx in nodes.iter().filter_map(|node| self.shared.line_idx(*node).ok()) {
                    self.take(idx, wanted, until, shadow.as_deref_mut());
                }
            }
        }
        self.place(key, nodes, wanted);
        true
    }

    /// Gives all of these nodes to a job, whose placement is the next one.
    fn take_whole(&mut self, nodes: &[NodeId], until: Time, shadow: Option<&Shadow>) {
        let all = i64::from(self.kind.cores);
        let mut n_others = nodes.len() as u32;
        for node in nodes {
            self.clear.remove(*node);
            if let Some(shadow) = shadow.filter(|shadow| shadow.clear.contains(*node)) {
                n_others -= 1;
                let idx = self.shared.line_idx(*node).ok();
                let left = idx.and_then(|idx| shadow.left.get(&idx)).map_or(0, |left| left.cores);
                self.room.take_later(left, 0, 1);
            }
        }
        self.room.take_now(all, 0, nodes.len() as u32);
        self.room.take_later(all, 0, n_others);
        self.whole.push((until, self.placements.len()));
    }

    /// Gives a part of this node to a job.
    fn take(&mut self, idx: usize, wanted: &Wanted, until: Time, shadow: Option<&mut Shadow>) {
        let before = self.free(idx);
        self.clear.remove(self.shared.lines()[idx].0);
        let taken = self.taken.entry(idx).or_default();
        taken.size = taken.size + wanted.size;
        taken.by.push((until, wanted.size));
        let after = before - wanted.size;
        self.room.take_now(before.cores, after.cores, 1);
        let Some(shadow) = shadow else { return };
        let is_long = until > shadow.at;
        let spare = shadow.left_of(idx, self.shared).map_or(i64::MAX, |left| left.cores);
        let still_spare = if is_long { spare - wanted.size.cores } else { spare };
        self.room.take_later(before.cores.min(spare), after.cores.min(still_spare), 1);
        if let Some(left) = shadow.left.get_mut(&idx).filter(|_| is_long) {
            *left = *left - wanted.size;
        }
    }

    fn place(&mut self, key: QueueKey, mut nodes: Vec<NodeId>, wanted: &Wanted) {
        let Wanted { slice: demand, is_whole, size } = wanted;
        nodes.sort_unstable();
        let slice = Slice { cores: size.cores as u32, memory: demand.memory, ..Slice::default() };
        let slices = match is_whole {
            true => BTreeMap::new(),
            false => nodes.iter().map(|node| (*node, slice.clone())).collect(),
        };
        let request = Request::on_one(self.cluster, demand.nodes, demand.wall);
        let outcome = Placed::Now { request, nodes, slices, row: Vec::new(), fit: None };
        self.placements.push(Placement { job: key.job, outcome, view: None });
    }

    /// Chooses the first nodes of which no job has anything.
    fn choose_whole(&self, wanted: &Wanted, beside: Option<&Shadow>) -> Option<Vec<NodeId>> {
        let nobody = IdSet::default();
        let kept = beside.map_or(&nobody, |shadow| &shadow.clear);
        let nodes = self.clear.first_without(kept, wanted.slice.nodes as usize);
        (nodes.len() == wanted.slice.nodes as usize).then_some(nodes)
    }

    /// Chooses the fullest nodes that have room, or the emptiest.
    fn choose(&self, wanted: &Wanted, beside: Option<&Shadow>) -> Option<Vec<NodeId>> {
        let n_wanted = wanted.slice.nodes as usize;
        let sign = if wanted.slice.is_spread { -1 } else { 1 };
        let has_room = |idx: &usize| {
            let left = beside.and_then(|shadow| shadow.left_of(*idx, self.shared));
            self.free(*idx).holds(wanted.size) && left.is_none_or(|left| left.holds(wanted.size))
        };
        // A node used in this pass has fewer free cores than its bucket says.
        let taken = self.taken.keys().copied().filter(has_room);
        let mut ranked: Vec<(i64, usize)> = taken.map(|idx| (sign * self.free(idx).cores, idx)).collect();
        let buckets = self.shared.with_free(wanted.size.cores as u32);
        let is_other = |idx: &usize| !self.taken.contains_key(idx) && has_room(idx);
        let buckets: Vec<_> = if wanted.slice.is_spread { buckets.rev().collect() } else { buckets.collect() };
        let others = buckets
            .into_iter()
            .flat_map(|(n_free, nodes)| nodes.filter(is_other).map(move |idx| (sign * i64::from(n_free), idx)));
        ranked.extend(others.take(n_wanted));
        ranked.sort_unstable();
        ranked.truncate(n_wanted);
        (ranked.len() == n_wanted).then(|| ranked.into_iter().map(|(_, idx)| self.shared.lines()[idx].0).collect())
    }

    /// Finds when the first waiting job will start, and on which nodes: those of which it keeps the fewest free cores from
    /// other jobs, and of these the ones that get room last. `None` if it never will.
    fn reserve(&self, first: &Wanted) -> Option<Shadow> {
        if !first.is_whole {
            return self.reserve_parts(first);
        }
        let n_wanted = i64::from(first.slice.nodes);
        let n_now = self.room.now().last().copied().unwrap_or(0);
        let (at, n_later) = self.clear_later(n_wanted - i64::from(n_now))?;
        let clears_by = |idx: usize| self.clear_at(idx).is_some_and(|clear_at| clear_at <= at);
        let parts = self.shared.with_free(1).take_while(|(n_free, _)| *n_free < self.kind.cores);
        let parts = parts.flat_map(|(_, nodes)| nodes).filter(|idx| !self.taken.contains_key(idx));
        let parts = parts.chain(self.taken.keys().copied()).filter(|idx| self.free(*idx).cores > 0);
        let mut parts: Vec<usize> = parts.filter(|idx| clears_by(*idx)).collect();
        if n_later > n_wanted {
            // Not all nodes that will be clear are needed: the others of them keep nothing from other jobs.
            if n_later - (parts.len() as i64) < n_wanted {
                return self.reserve_parts(first);
            }
            parts.clear();
        }
        let left = parts.into_iter().map(|idx| (idx, Size::default())).collect();
        let n_whole = (n_wanted - n_later).max(0) as u32;
        Some(Shadow { at, left, clear: self.clear.first(n_whole as usize), n_whole })
    }

    /// Returns when a node that is not clear now is free of all its jobs.
    fn clear_at(&self, idx: usize) -> Option<Time> {
        let last = self.shared.lines()[idx].1.last().map(|(until, _)| until);
        let own = self.taken.get(&idx).and_then(|taken| taken.by.iter().map(|(until, _)| *until).max());
        last.max(own)
    }

    /// Returns when that many more nodes will be clear, and how many more are clear then.
    fn clear_later(&self, n_wanted: i64) -> Option<(Time, i64)> {
        let of_whole = |(until, placement_idx): &(Time, usize)| (*until, self.nodes_of(*placement_idx).len() as i64);
        let mut own: Vec<(Time, i64)> = self.whole.iter().map(of_whole).collect();
        for idx in self.taken.keys() {
            // The node is clear later than the state says.
            own.extend(self.shared.lines()[*idx].1.last().map(|(until, _)| (until, -1)));
            own.extend(self.clear_at(*idx).map(|until| (until, 1)));
        }
        own.sort_unstable();
        let mut own = own.into_iter().peekable();
        let mut ends = self.shared.clears().peekable();
        let mut n_later = 0;
        loop {
            let next = [own.peek().map(|(until, _)| *until), ends.peek().map(|(until, _)| *until)];
            let at = next.into_iter().flatten().min()?;
            while let Some((_, n_nodes)) = own.next_if(|(until, _)| *until == at) {
                n_later += n_nodes;
            }
            while let Some((_, n_nodes)) = ends.next_if(|(until, _)| *until == at) {
                n_later += n_nodes;
            }
            if n_later >= n_wanted {
                return Some((at, n_later));
            }
        }
    }

    fn nodes_of(&self, placement_idx: usize) -> &[NodeId] {
        match &self.placements[placement_idx].outcome {
            Placed::Now { nodes, .. } => nodes,
            Placed::Later { .. } | Placed::Never { .. } => &[],
        }
    }

    /// As [`Slices::reserve`], node by node.
    fn reserve_parts(&self, first: &Wanted) -> Option<Shadow> {
        let n_wanted = first.slice.nodes as usize;
        let fit_now = || {
            let nodes = self.shared.with_free(first.size.cores as u32).flat_map(|(_, nodes)| nodes);
            nodes.filter(|idx| self.free(*idx).holds(first.size))
        };
        let n_now = fit_now().take(n_wanted).count();
        let mut own: Vec<(Time, usize)> =
            self.taken.iter().flat_map(|(idx, taken)| taken.by.iter().map(|(until, _)| (*until, *idx))).collect();
        let mut whole_until: BTreeMap<usize, Time> = BTreeMap::new();
        for (until, placement_idx) in &self.whole {
            let places = self.nodes_of(*placement_idx).iter().filter_map(|node| self.shared.line_idx(*node).ok());
            whole_until.extend(places.map(|idx| (idx, *until)));
        }
        own.extend(whole_until.iter().map(|(idx, until)| (*until, *idx)));
        own.sort_unstable();
        let all = Size { cores: self.kind.cores.into(), memory: memory_of(self.kind.memory) };
        let free_at = |idx: usize, at: Time| match whole_until.get(&idx) {
            Some(until) if *until <= at => all,
            Some(_) => Size::default(),
            None => {
                let holds = self.shared.lines()[idx].1.holds().iter().take_while(|hold| hold.until <= at);
                let held = holds.map(|hold| Size::of(&hold.piece.slice));
                let taken = self.taken.get(&idx).into_iter().flat_map(|taken| &taken.by);
                let taken = taken.filter(|(until, _)| *until <= at).map(|(_, size)| *size);
                held.chain(taken).fold(self.free(idx), |free, size| free + size)
            }
        };
        let is_own = |idx: &usize| self.taken.contains_key(idx) || whole_until.contains_key(idx);
        let mut own = own.into_iter().peekable();
        let mut ends = self.state.shared().ends(self.cluster).peekable();
        let mut later: Vec<usize> = Vec::new();
        let mut is_later = vec![false; self.shared.lines().len()];
        // Nodes on which this pass has placed jobs come first.
        let mut gain: (Vec<usize>, Vec<usize>) = Default::default();
        let at = loop {
            let next = [own.peek().map(|(until, _)| *until), ends.peek().map(|(until, _)| *until)];
            let at = next.into_iter().flatten().min()?;
            while let Some((_, idx)) = own.next_if(|(until, _)| *until == at) {
                gain.0.push(idx);
            }
            while let Some((_, nodes)) = ends.next_if(|(until, _)| *until == at) {
                for idx in nodes.filter(|idx| self.shared.lines()[*idx].1.is_usable) {
                    if is_own(&idx) { gain.0.push(idx) } else { gain.1.push(idx) }
                }
            }
            gain.0.sort_unstable();
            for idx in gain.0.drain(..).chain(gain.1.drain(..)) {
                let is_new = !is_later[idx] && !self.free(idx).holds(first.size);
                if is_new && free_at(idx, at).holds(first.size) {
                    is_later[idx] = true;
                    later.push(idx);
                }
            }
            if n_now + later.len() >= n_wanted {
                break at;
            }
        };
        let n_kept = |idx: usize| match self.free(idx).cores {
            free if free > 0 => (free + first.size.cores - free_at(idx, at).cores).max(0),
            _none => 0,
        };
        let chosen = keeping_least(later, n_wanted, n_kept).into_iter().chain(fit_now()).take(n_wanted);
        let chosen = chosen.filter(|idx| self.free(*idx).cores > 0);
        let left: BTreeMap<usize, Size> = chosen.map(|idx| (idx, free_at(idx, at) - first.size)).collect();
        let nodes = left.keys().map(|idx| self.shared.lines()[*idx].0);
        let mut clear = IdSet::default();
        for node in nodes.filter(|node| self.clear.contains(*node)) {
            clear.insert(node);
        }
        Some(Shadow { at, left, clear, n_whole: 0 })
    }

    /// Returns how many nodes have that many free cores for a job that outlasts the start of the reservation; the index
    /// is the number of cores.
    fn counts_beside(&self, shadow: &Shadow) -> Vec<u32> {
        let mut counts = self.room.now().to_vec();
        SliceRoom::take(&mut counts, self.kind.cores.into(), 0, shadow.n_whole);
        for (idx, left) in &shadow.left {
            let free = self.free(*idx).cores;
            SliceRoom::take(&mut counts, free, free.min(left.cores), 1);
        }
        counts
    }
}

/// Chooses nodes for a reservation among those that get room until then, in the order in which they do: nodes of which it
/// keeps the fewest free cores from others, and of these the ones that get room last. May return more than are wanted.
pub(super) fn keeping_least(later: Vec<usize>, n_wanted: usize, n_kept: impl Fn(usize) -> i64) -> Vec<usize> {
    if later.len() <= n_wanted {
        return later;
    }
    let (mut chosen, mut others) = (Vec::with_capacity(n_wanted), Vec::new());
    for idx in later.into_iter().rev() {
        if chosen.len() == n_wanted {
            break;
        }
        match n_kept(idx) {
            0 => chosen.push(idx),
            n_kept => others.push((n_kept, idx)),
        }
    }
    others.sort_by_key(|(n_kept, _)| *n_kept);
    chosen.extend(others.into_iter().map(|(_, idx)| idx));
    chosen
}

impl Shadow {
    /// Returns `None` if the reservation does not include the node.
    fn left_of(&self, idx: usize, shared: &SharedCluster) -> Option<Size> {
        let is_whole = || self.clear.contains(shared.lines()[idx].0);
        self.left.get(&idx).copied().or_else(|| is_whole().then(Size::default))
    }
}

impl Size {
    fn of(slice: &Slice) -> Size {
        Size { cores: slice.cores.into(), memory: memory_of(slice.memory) }
    }

    fn holds(self, other: Size) -> bool {
        self.cores >= other.cores && self.memory >= other.memory
    }
}

impl Add for Size {
    type Output = Size;

    fn add(self, other: Size) -> Size {
        Size { cores: self.cores + other.cores, memory: self.memory + other.memory }
    }
}

impl Sub for Size {
    type Output = Size;

    fn sub(self, other: Size) -> Size {
        Size { cores: self.cores - other.cores, memory: self.memory - other.memory }
    }
}
