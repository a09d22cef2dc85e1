//! The queue in order, in blocks with their smallest demands: a search skips blocks for which there is no room.

use std::cmp::Reverse;

use rms_model::job::Constraint;
use rms_model::{ClusterId, Inventory, JobId, JobSpec, Mebibytes, Packing, Request, Span, Time};

use super::constraint::{cpus_on_a_node, memory_on_a_node, takes_whole_nodes};
use super::shared::Shared;
use super::takes_any_nodes;
use crate::state::job::Job;

/// The order of the queue: priority, then first request, then id. Of launchers' first requests at one instant, the one
/// that came first is first (001, §5.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueKey {
    priority: Reverse<i32>,
    requested: Time,
    first_request: u64,
    pub job: JobId,
}

impl QueueKey {
    pub(super) fn of(job: JobId, entry: &Job) -> QueueKey {
        let requested = entry.requested.expect("a queued job has sent a request");
        let first_request = entry.launcher.as_ref().map_or(0, |launcher| launcher.first_request);
        QueueKey { priority: Reverse(entry.spec.priority), requested, first_request, job }
    }
}

/// What a pass must know about a queued job to skip it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    /// The nodes of its smallest size over all clusters; on core-shared clusters, logical CPUs.
    pub(crate) least_nodes: u32,
    /// Its size, if it has only one and any nodes of one cluster will do.
    pub(crate) plain: Option<PlainDemand>,
    /// Its size, if it has only one and any nodes of one core-shared cluster will do.
    pub(crate) slice: Option<SliceDemand>,
    pub(crate) promised: Option<Time>,
}

/// A demand for the same slice of each of some shared nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SliceDemand {
    pub(crate) nodes: u32,
    /// Logical CPUs, or cores of which one thread each is used.
    cpus: u32,
    is_of_cores: bool,
    pub(crate) memory: Mebibytes,
    pub(crate) is_whole: bool,
    pub(crate) is_spread: bool,
    pub(crate) wall: Span,
}

impl SliceDemand {
    fn of(spec: &JobSpec, request: &Request) -> Option<SliceDemand> {
        let resources = &spec.resources;
        let constraint = Constraint { memory: spec.constraint.memory, ..Constraint::default() };
        let names_devices = !resources.devices.is_empty() || !resources.devices_in_all.is_empty();
        let names_more = names_devices || !resources.licences.is_empty() || resources.contiguous || resources.share;
        if spec.evolving.is_some() || spec.constraint != constraint || names_more {
            return None;
        }
        Some(SliceDemand {
            nodes: request.n_nodes(),
            cpus: cpus_on_a_node(spec, request),
            is_of_cores: resources.one_thread_a_core,
            memory: memory_on_a_node(spec, request),
            is_whole: takes_whole_nodes(spec),
            is_spread: resources.packing == Packing::Spread,
            wall: request.wall,
        })
    }

    /// Returns the number of cores that it takes of each node of this kind; `None` if the node is too small.
    pub(crate) fn cores(&self, kind: &Inventory) -> Option<u32> {
        let threads = if self.is_of_cores { 1 } else { kind.threads_per_core() };
        let cores = self.cpus.div_ceil(threads).max(1);
        let fits = cores <= kind.cores && self.cpus <= kind.cpus;
        fits.then_some(if self.is_whole { kind.cores } else { cores })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlainDemand {
    pub(crate) cluster: ClusterId,
    pub(crate) wall: Span,
}

impl Demand {
    pub(super) fn of(entry: &Job, shared: &Shared) -> Demand {
        // An evolving application starts with what its first stage needs.
        let first_stage = entry.spec.evolving.as_ref().and_then(|evolving| evolving.stages.stages().first());
        let sizes = entry.spec.options.iter().map(|request| least_units(&entry.spec, request, shared));
        let least_nodes = sizes.chain(first_stage.map(|stage| stage.nodes)).min().unwrap_or(0);
        let is_shared = |request: &Request| request.nodes.keys().any(|cluster| shared.get(*cluster).is_some());
        let plain = match entry.spec.options.as_slice() {
            [only] if entry.spec.evolving.is_none() && takes_any_nodes(&entry.spec) && !is_shared(only) => {
                only_cluster(only)
            }
            _ => None,
        };
        let slice = match entry.spec.options.as_slice() {
            [only] if is_shared(only) && only.nodes.len() == 1 => SliceDemand::of(&entry.spec, only),
            _ => None,
        };
        Demand { least_nodes, plain, slice, promised: entry.promised.as_ref().map(|promise| promise.at) }
    }

    /// Returns the shortest time for which it wants nodes; zero if not known.
    fn shortest(&self) -> Span {
        self.plain.map_or(Span::ZERO, |plain| plain.wall)
    }
}

/// Returns the nodes, or on core-shared clusters the logical CPUs, without which this size cannot start.
fn least_units(spec: &JobSpec, request: &Request, shared: &Shared) -> u32 {
    if shared.is_empty() {
        return request.n_nodes();
    }
    let cpus = cpus_on_a_node(spec, request).max(1);
    let units = |(cluster, nodes): (&ClusterId, &u32)| match shared.get(*cluster) {
        Some(_) => nodes.saturating_mul(cpus),
        None => *nodes,
    };
    request.nodes.iter().map(units).fold(0, u32::saturating_add)
}

fn only_cluster(request: &Request) -> Option<PlainDemand> {
    let mut nodes = request.nodes.iter();
    match (nodes.next(), nodes.next()) {
        (Some((cluster, _)), None) => Some(PlainDemand { cluster: *cluster, wall: request.wall }),
        (Some(_), Some(_)) | (None, _) => None,
    }
}

/// Queued jobs and their demands.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobQueue {
    /// Each block has at least one job.
    blocks: Vec<Block>,
    n_jobs: usize,
}

#[derive(Clone, Debug)]
struct Block {
    entries: Vec<(QueueKey, Demand)>,
    /// The shortest time wanted in the block, by class of node count.
    shortest: [Option<Span>; N_CLASSES],
    /// The fewest nodes wanted by slices, by class of CPUs per node.
    fewest: [u32; N_CPU_CLASSES],
}

/// For each number of cores, how many nodes have that many free, now and beside the reservation of the first waiting
/// job; for searches of the queue for slices.
#[derive(Clone, Debug, Default)]
pub(crate) struct SliceRoom {
    threads: u32,
    /// Indexed by the number of cores.
    now: Vec<u32>,
    /// The counts for jobs that run beyond the start of the reservation, which is this far ahead.
    later: Option<(Span, Vec<u32>)>,
}

/// How long a number of nodes stays free from now on; for searches of the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    n_free: u32,
    /// By class, for the fewest nodes of the class; `None` if that many are not free.
    longest: [Option<Span>; N_CLASSES],
}

/// The number of classes of node counts. A class spans the numbers between two powers of two, and the last one has no
/// upper limit.
const N_CLASSES: usize = 21;

/// The number of classes of CPUs per node.
const N_CPU_CLASSES: usize = 8;

/// The most jobs of a block: few enough to look at one by one, and enough to make skipping a block worthwhile.
const MAX_BLOCK_JOBS: usize = 64;

fn class(nodes: u32) -> usize {
    (nodes.max(1).ilog2() as usize).min(N_CLASSES - 1)
}

impl JobQueue {
    pub(super) fn len(&self) -> usize {
        self.n_jobs
    }

    /// Iterates in the order of the queue.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (QueueKey, &Demand)> + Clone + '_ {
        self.blocks.iter().flat_map(|block| &block.entries).map(|(key, demand)| (*key, demand))
    }

    pub(super) fn get(&self, key: QueueKey) -> Option<&Demand> {
        let block = self.blocks.get(self.block_of(key))?;
        block.place(key).ok().map(|idx| &block.entries[idx].1)
    }

    /// Returns the demand of a job; its time and its nodes must not be changed.
    pub(super) fn get_mut(&mut self, key: QueueKey) -> Option<&mut Demand> {
        let block_idx = self.block_of(key);
        let block = self.blocks.get_mut(block_idx)?;
        block.place(key).ok().map(|idx| &mut block.entries[idx].1)
    }

    /// Returns the key at this index.
    pub(super) fn nth(&self, queue_idx: usize) -> Option<QueueKey> {
        let mut n_left = queue_idx;
        for Block { entries, .. } in &self.blocks {
            match entries.get(n_left) {
                Some((key, _)) => return Some(*key),
                None => n_left -= entries.len(),
            }
        }
        None
    }

    pub(super) fn insert(&mut self, key: QueueKey, demand: Demand) {
        if self.blocks.is_empty() {
            self.blocks.push(Block::default());
        }
        let block_idx = self.block_of(key);
        let block = &mut self.blocks[block_idx];
        match block.place(key) {
            Ok(idx) => {
                block.entries[idx].1 = demand;
                block.summarise();
            }
            Err(idx) => {
                block.entries.insert(idx, (key, demand));
                block.count(&demand);
                self.n_jobs += 1;
            }
        }
        let is_last = block_idx + 1 == self.blocks.len();
        let block = &mut self.blocks[block_idx];
        if block.entries.len() > MAX_BLOCK_JOBS {
            // Most jobs are appended, so all blocks but the last stay full.
            let n_kept = if is_last { MAX_BLOCK_JOBS } else { MAX_BLOCK_JOBS / 2 };
            let mut second = Block { entries: block.entries.split_off(n_kept), ..Block::default() };
            block.summarise();
            second.summarise();
            self.blocks.insert(block_idx + 1, second);
        }
    }

    pub(super) fn remove(&mut self, key: QueueKey) -> Option<Demand> {
        let block_idx = self.block_of(key);
        let block = self.blocks.get_mut(block_idx)?;
        let (_, demand) = block.entries.remove(block.place(key).ok()?);
        self.n_jobs -= 1;
        if block.entries.is_empty() {
            self.blocks.remove(block_idx);
        } else if block.sets_a_minimum(&demand) {
            block.summarise();
        }
        Some(demand)
    }

    /// Returns the first job behind `behind` that may fit: all jobs between them do not.
    pub(super) fn next_within(&self, behind: QueueKey, room: &Room) -> Option<(QueueKey, &Demand)> {
        let first_idx = self.block_of(behind);
        for (block_idx, block) in self.blocks.iter().enumerate().skip(first_idx) {
            if !room.may_hold_any(&block.shortest) {
                continue;
            }
            let n_before =
                if block_idx == first_idx { block.entries.partition_point(|(key, _)| *key <= behind) } else { 0 };
            let found = block.entries[n_before..].iter().find(|(_, demand)| room.may_hold(demand));
            if let Some((key, demand)) = found {
                return Some((*key, demand));
            }
        }
        None
    }

    /// Returns the first job behind `behind` that wants a slice which may fit: all others between them do not.
    pub(super) fn next_slice(&self, behind: QueueKey, room: &SliceRoom) -> Option<(QueueKey, &Demand)> {
        let first_idx = self.block_of(behind);
        let blocks =
            self.blocks.iter().enumerate().skip(first_idx).filter(|(_, block)| room.may_hold_any(&block.fewest));
        blocks.into_iter().find_map(|(block_idx, block)| {
            let n_before =
                if block_idx == first_idx { block.entries.partition_point(|(key, _)| *key <= behind) } else { 0 };
            let has_room = |demand: &Demand| demand.slice.is_some_and(|slice| room.may_hold(&slice));
            let found = block.entries[n_before..].iter().find(|(_, demand)| has_room(demand));
            found.map(|(key, demand)| (*key, demand))
        })
    }

    /// Returns the index of the block that has the key, or would have it; 0 if there is none.
    fn block_of(&self, key: QueueKey) -> usize {
        let begins_before = |block: &Block| block.entries.first().is_some_and(|(first, _)| *first <= key);
        self.blocks.partition_point(begins_before).saturating_sub(1)
    }
}

/// Compares queues without regard to their division into blocks.
impl PartialEq for JobQueue {
    fn eq(&self, other: &JobQueue) -> bool {
        self.n_jobs == other.n_jobs && self.iter().eq(other.iter())
    }
}

impl Eq for JobQueue {}

impl Default for Block {
    fn default() -> Block {
        Block { entries: Vec::new(), shortest: [None; N_CLASSES], fewest: [u32::MAX; N_CPU_CLASSES] }
    }
}

impl Block {
    fn place(&self, key: QueueKey) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&key, |(known, _)| *known)
    }

    fn count(&mut self, demand: &Demand) {
        let shortest = &mut self.shortest[class(demand.least_nodes)];
        *shortest = Some(shortest.map_or(demand.shortest(), |known| known.min(demand.shortest())));
        if let Some(slice) = &demand.slice {
            let fewest = &mut self.fewest[cpu_class(slice.cpus)];
            *fewest = slice.nodes.min(*fewest);
        }
    }

    /// Returns whether the demand is a minimum of the block, in time or in nodes of slices.
    fn sets_a_minimum(&self, demand: &Demand) -> bool {
        let is_fewest = |slice: &SliceDemand| self.fewest[cpu_class(slice.cpus)] == slice.nodes;
        self.shortest[class(demand.least_nodes)] == Some(demand.shortest())
            || demand.slice.as_ref().is_some_and(is_fewest)
    }

    fn summarise(&mut self) {
        (self.shortest, self.fewest) = ([None; N_CLASSES], [u32::MAX; N_CPU_CLASSES]);
        for idx in 0..self.entries.len() {
            let demand = self.entries[idx].1;
            self.count(&demand);
        }
    }
}

impl SliceRoom {
    /// Creates it from `now`: for each number of cores, how many nodes have that many free.
    pub(crate) fn new(threads: u32, now: Vec<u32>) -> SliceRoom {
        SliceRoom { threads: threads.max(1), now, later: None }
    }

    pub(crate) fn now(&self) -> &[u32] {
        &self.now
    }

    /// Sets a reservation that begins after this span, and the counts of nodes with room beside it.
    pub(crate) fn reserve(&mut self, after: Span, counts: Vec<u32>) {
        self.later = Some((after, counts));
    }

    /// Records that `n_nodes` nodes have fewer cores free, each of them `after` instead of `before`.
    pub(crate) fn take_now(&mut self, before: i64, after: i64, n_nodes: u32) {
        SliceRoom::take(&mut self.now, before, after, n_nodes);
    }

    /// As [`SliceRoom::take_now`], for the counts beside the reservation.
    pub(crate) fn take_later(&mut self, before: i64, after: i64, n_nodes: u32) {
        if let Some((_, counts)) = &mut self.later {
            SliceRoom::take(counts, before, after, n_nodes);
        }
    }

    pub(crate) fn take(counts: &mut [u32], before: i64, after: i64, n_nodes: u32) {
        let place = |cores: i64| (cores.max(-1) + 1) as usize;
        let gone = counts.get_mut(place(after)..).unwrap_or_default();
        let n_gone = place(before).saturating_sub(place(after));
        gone.iter_mut().take(n_gone).for_each(|count| *count -= n_nodes);
    }

    fn may_hold(&self, slice: &SliceDemand) -> bool {
        let counts = match &self.later {
            Some((after, counts)) if slice.wall > *after => counts,
            Some(_) | None => &self.now,
        };
        let threads = if slice.is_of_cores { 1 } else { self.threads };
        let cores = if slice.is_whole { counts.len() - 1 } else { slice.cpus.div_ceil(threads).max(1) as usize };
        counts.get(cores).is_some_and(|count| *count >= slice.nodes)
    }

    fn may_hold_any(&self, fewest: &[u32; N_CPU_CLASSES]) -> bool {
        let has_room = |(class, nodes): (usize, &u32)| {
            let least_cores = (1_u32 << class).div_ceil(self.threads) as usize;
            self.now.get(least_cores).is_some_and(|count| count >= nodes)
        };
        fewest.iter().enumerate().any(has_room)
    }
}

fn cpu_class(cpus: u32) -> usize {
    (cpus.max(1).ilog2() as usize).min(N_CPU_CLASSES - 1)
}

impl Room {
    /// Creates it; `longest` returns for how long a number of nodes of one cluster stays free, on the cluster where
    /// that is longest.
    pub(crate) fn new(n_free: usize, mut longest: impl FnMut(u32) -> Span) -> Room {
        let n_free = u32::try_from(n_free).unwrap_or(u32::MAX);
        let mut room = Room { n_free, ..Room::default() };
        for (class, known) in room.longest.iter_mut().enumerate() {
            let fewest = 1 << class;
            if fewest <= n_free {
                *known = Some(longest(fewest));
            }
        }
        room
    }

    fn may_hold(&self, demand: &Demand) -> bool {
        demand.least_nodes <= self.n_free && self.longest[class(demand.least_nodes)] >= Some(demand.shortest())
    }

    fn may_hold_any(&self, shortest: &[Option<Span>; N_CLASSES]) -> bool {
        std::iter::zip(shortest, &self.longest).any(|(shortest, longest)| shortest.is_some() && shortest <= longest)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rms_model::{ClusterId, JobId, Time};

    use test_kit::Dice;

    use super::*;

    /// Compares with a map and a check of each entry, while jobs come and leave anywhere.
    #[test]
    fn a_search_finds_whom_a_look_at_each_finds() {
        let mut dice = Dice::new(3);
        let mut roll = |n: u64| dice.below(n);
        let (mut waiting, mut expected, mut most_blocks) = (JobQueue::default(), BTreeMap::new(), 0);
        for number in 0..6000 {
            let comes = roll(10) < if number < 3000 { 6 } else { 4 };
            if comes {
                let (priority, requested) = (roll(2) as i32, Time::from_secs(number / 4));
                let (priority, first_request, job) = (Reverse(priority), roll(2), JobId(number as u64));
                let key = QueueKey { priority, requested, first_request, job };
                let nodes = 1 + (roll(8) * roll(8)) as u32;
                let plain = PlainDemand { cluster: ClusterId(0), wall: Span::from_secs(1 + roll(500) as i64) };
                let plain = (roll(9) > 0).then_some(plain);
                let demand = Demand { least_nodes: nodes, plain, slice: None, promised: None };
                waiting.insert(key, demand);
                expected.insert(key, demand);
            } else if let Some(key) = expected.keys().nth(roll(expected.len().max(1) as u64) as usize).copied() {
                assert_eq!(waiting.remove(key), expected.remove(&key));
            }
            assert_eq!(waiting.len(), expected.len());
            most_blocks = most_blocks.max(waiting.blocks.len());
            for block in &waiting.blocks {
                let mut anew = block.clone();
                anew.summarise();
                assert!((1..=MAX_BLOCK_JOBS).contains(&block.entries.len()) && anew.shortest == block.shortest);
            }
            let (n_free, longest) = (roll(20) as usize, roll(200) as i64);
            let room = Room::new(n_free, |nodes| Span::from_secs(longest / i64::from(nodes)));
            let place = roll(expected.len() as u64 + 1) as usize;
            let behind = expected.keys().nth(place).copied();
            assert_eq!(waiting.nth(place), behind);
            let Some(behind) = behind else { continue };
            let mut later = expected.range(behind..).skip(1);
            let found = waiting.next_within(behind, &room).map(|(key, demand)| (key, *demand));
            assert_eq!(found, later.find(|(_, demand)| room.may_hold(demand)).map(|(key, demand)| (*key, *demand)));
            assert_eq!(waiting.get(behind), expected.get(&behind));
        }
        assert!(waiting.iter().eq(expected.iter().map(|(key, demand)| (*key, demand))));
        assert!(most_blocks > 5, "{most_blocks}");
    }
}
