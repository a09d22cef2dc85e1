//! EASY on a cluster that is shared by cores, where nodes are alike and what a job waits for is a slice of some of them: who
//! starts now, found by counts of free cores, without a look at those for whom there is no room.
//!
//! The answer is that of the walk over the queue in [`policy`](super::policy): whoever starts has the same nodes, and the
//! reservation of the first that waits is on the same ones.

use std::collections::BTreeMap;
use std::ops::{Add, Sub};

use rms_model::{ClusterId, Inventory, NodeId, Request, Slice, Time};

use super::{Placed, Placement, Plan};
use crate::state::{Demand, QueueKey, SharedCluster, SliceDemand, SliceRoom, State, memory_of};

/// Cores and memory of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
    cores: i64,
    memory: i64,
}

/// What jobs take of a node that this pass has placed.
#[derive(Clone, Debug, Default)]
struct Taken {
    size: Size,
    /// Each with its end.
    by: Vec<(Time, Size)>,
}

/// What a job wants of each of its nodes.
#[derive(Clone, Copy)]
struct Wanted {
    slice: SliceDemand,
    is_whole: bool,
    size: Size,
}

/// The reservation of the first that waits.
struct Shadow {
    at: Time,
    /// What is free of its nodes then beside it, by their places.
    left: BTreeMap<usize, Size>,
}

struct Slices<'a> {
    state: &'a State,
    cluster: ClusterId,
    shared: &'a SharedCluster,
    kind: &'a Inventory,
    now: Time,
    /// By their places, the nodes on which this pass has placed somebody.
    taken: BTreeMap<usize, Taken>,
    room: SliceRoom,
    placements: Vec<Placement>,
}

/// `None` where the walk over the queue has to be made.
pub(super) fn of_easy(state: &State, now: Time) -> Option<Plan> {
    let mut clusters = state.shared().clusters();
    let ((cluster, shared), None) = (clusters.next()?, clusters.next()) else { return None };
    let [kind] = shared.kinds() else { return None };
    let is_overdue = state.shared().ends(cluster).next().is_some_and(|(until, _)| until <= now);
    let is_simple = state.clusters().len() == 1 && shared.are_all_open() && state.n_promised() == 0 && !is_overdue;
    if !is_simple || !state.wants_are_slices() {
        return None;
    }
    let room =
        SliceRoom::new(kind.threads_per_core(), (0..=kind.cores).map(|cores| shared.n_with_free(cores)).collect());
    let (taken, placements) = (BTreeMap::new(), Vec::new());
    let slices = Slices { state, cluster, shared, kind, now, taken, room, placements };
    Some(Plan { placements: slices.starts(), ..Plan::of_nobody(now) })
}

impl Slices<'_> {
    fn starts(mut self) -> Vec<Placement> {
        let last = match self.state.settings().queue_depth {
            0 => None,
            depth => self.state.nth_queued(depth as usize - 1),
        };
        let is_beyond = |key: QueueKey| last.is_some_and(|last| key > last);
        let mut head = None;
        for (key, demand) in self.state.keyed_demands().take_while(|(key, _)| !is_beyond(*key)) {
            // No size of others fits the nodes that there are.
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
                // Until somebody may start, nobody needs to know when the first of them will.
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

    /// `None` if the nodes that may be planned with are too few or too small.
    fn wanted(&self, demand: &Demand) -> Option<Wanted> {
        let slice = demand.slice?;
        let cores = slice.cores(self.kind)?;
        let is_whole = cores == self.kind.cores;
        let memory = memory_of(if is_whole { self.kind.memory } else { slice.memory });
        let fits = slice.memory <= self.kind.memory && slice.nodes <= self.shared.n_usable()[0];
        fits.then_some(Wanted { slice, is_whole, size: Size { cores: cores.into(), memory } })
    }

    /// What is free of a node now.
    fn free(&self, idx: usize) -> Size {
        let room = &self.shared.lines()[idx].1.room;
        let taken = self.taken.get(&idx).map_or(Size::default(), |taken| taken.size);
        Size { cores: room.cores, memory: room.memory } - taken
    }

    /// What will be free of it then, if nobody else starts.
    fn free_at(&self, idx: usize, at: Time) -> Size {
        let holds = self.shared.lines()[idx].1.holds().iter().take_while(|hold| hold.until <= at);
        let held = holds.map(|hold| Size::of(&hold.piece.slice));
        let taken = self.taken.get(&idx).into_iter().flat_map(|taken| &taken.by).filter(|(until, _)| *until <= at);
        held.chain(taken.map(|(_, size)| *size)).fold(self.free(idx), |free, size| free + size)
    }

    /// Starts it if enough nodes have room, beside the reservation if it would still run then.
    fn start(&mut self, key: QueueKey, wanted: &Wanted, shadow: Option<&mut Shadow>) -> bool {
        let until = self.now + wanted.slice.wall;
        let beside = shadow.as_deref().filter(|shadow| until > shadow.at);
        let Some(nodes) = self.choose(wanted, beside) else { return false };
        let mut left = shadow.map(|shadow| (&mut shadow.left, until > shadow.at));
        for idx in &nodes {
            let before = self.free(*idx);
            let taken = self.taken.entry(*idx).or_default();
            taken.size = taken.size + wanted.size;
            taken.by.push((until, wanted.size));
            let after = before - wanted.size;
            self.room.take_now(before.cores, after.cores);
            if let Some((left, is_long)) = &mut left {
                let left = left.get_mut(idx);
                let spare = left.as_ref().map_or(i64::MAX, |left| left.cores);
                let still_spare = if *is_long { spare - wanted.size.cores } else { spare };
                self.room.take_later(before.cores.min(spare), after.cores.min(still_spare));
                if let Some(left) = left.filter(|_| *is_long) {
                    *left = *left - wanted.size;
                }
            }
        }
        self.place(key, &nodes, wanted);
        true
    }

    fn place(&mut self, key: QueueKey, nodes: &[usize], wanted: &Wanted) {
        let Wanted { slice: demand, is_whole, size } = wanted;
        let mut nodes: Vec<NodeId> = nodes.iter().map(|idx| self.shared.lines()[*idx].0).collect();
        nodes.sort_unstable();
        let slice = Slice { cores: size.cores as u32, memory: demand.memory, ..Slice::default() };
        let slices = match is_whole {
            true => BTreeMap::new(),
            false => nodes.iter().map(|node| (*node, slice.clone())).collect(),
        };
        let request = Request::on_one(self.cluster, demand.nodes, demand.wall);
        let outcome = Placed::Now { request, nodes, slices, fit: None };
        self.placements.push(Placement { job: key.job, outcome, view: None });
    }

    /// The fullest nodes that have room, or the emptiest.
    fn choose(&self, wanted: &Wanted, beside: Option<&Shadow>) -> Option<Vec<usize>> {
        let n_wanted = wanted.slice.nodes as usize;
        let sign = if wanted.slice.is_spread { -1 } else { 1 };
        let has_room = |idx: &usize| {
            let left = beside.and_then(|shadow| shadow.left.get(idx));
            self.free(*idx).holds(wanted.size) && left.is_none_or(|left| left.holds(wanted.size))
        };
        // What was taken in this pass has less free than its place among the others says.
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
        (ranked.len() == n_wanted).then(|| ranked.into_iter().map(|(_, idx)| idx).collect())
    }

    /// When the first that waits will start, and on which nodes: those that have room last, so that what is free now is
    /// left to others meanwhile. `None` if it never will.
    fn reserve(&self, first: &Wanted) -> Option<Shadow> {
        let n_wanted = first.slice.nodes as usize;
        let fit_now = || {
            let nodes = self.shared.with_free(first.size.cores as u32).flat_map(|(_, nodes)| nodes);
            nodes.filter(|idx| self.free(*idx).holds(first.size))
        };
        let n_now = fit_now().take(n_wanted).count();
        let mut own: Vec<(Time, usize)> =
            self.taken.iter().flat_map(|(idx, taken)| taken.by.iter().map(|(until, _)| (*until, *idx))).collect();
        own.sort_unstable();
        let mut own = own.into_iter().peekable();
        let mut ends = self.state.shared().ends(self.cluster).peekable();
        let mut later: Vec<usize> = Vec::new();
        let mut is_later = vec![false; self.shared.lines().len()];
        let at = loop {
            let next = [own.peek().map(|(until, _)| *until), ends.peek().map(|(until, _)| *until)];
            let at = next.into_iter().flatten().min()?;
            // Nodes on which this pass has placed somebody come first.
            let mut gain: (Vec<usize>, Vec<usize>) = Default::default();
            while let Some((_, idx)) = own.next_if(|(until, _)| *until == at) {
                gain.0.push(idx);
            }
            while let Some((_, nodes)) = ends.next_if(|(until, _)| *until == at) {
                for idx in nodes.filter(|idx| self.shared.lines()[*idx].1.is_usable) {
                    if self.taken.contains_key(&idx) { gain.0.push(idx) } else { gain.1.push(idx) }
                }
            }
            gain.0.sort_unstable();
            for idx in gain.0.into_iter().chain(gain.1) {
                let is_new = !is_later[idx] && !self.free(idx).holds(first.size);
                if is_new && self.free_at(idx, at).holds(first.size) {
                    is_later[idx] = true;
                    later.push(idx);
                }
            }
            if n_now + later.len() >= n_wanted {
                break at;
            }
        };
        let chosen = later.into_iter().rev().chain(fit_now()).take(n_wanted);
        let left = chosen.map(|idx| (idx, self.free_at(idx, at) - first.size)).collect();
        Some(Shadow { at, left })
    }

    /// How many nodes have so many cores for somebody who stays beyond the reservation, by their number.
    fn counts_beside(&self, shadow: &Shadow) -> Vec<u32> {
        let mut counts = self.room.now().to_vec();
        for (idx, left) in &shadow.left {
            let free = self.free(*idx).cores;
            SliceRoom::take(&mut counts, free, free.min(left.cores));
        }
        counts
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
