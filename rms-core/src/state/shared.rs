//! The nodes of core-shared clusters: what is free of each now, and which job holds how much of it until when.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rms_model::{
    ClusterId, Devices, Grant, Indices, Inventory, JobId, JobSpec, Mebibytes, NodeId, Request, Slice, Time,
};

use super::constraint::{Piece, pieces_of};
use super::free::IdSet;
use super::pick::{TaskSize, pick_cores};
use crate::state::job::{Job, Phase, Started};
use crate::state::node::Node;

/// The free resources of a node at one instant. They are negative where a job overstays while its place was promised to
/// others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) cores: i64,
    pub(crate) memory: i64,
    /// Counts by name, empty on most nodes; passes have many rooms.
    devices: Box<[(String, i64)]>,
    /// The number of jobs that have a part of it.
    n_holders: u32,
}

/// What one job holds of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) until: Time,
    job: JobId,
    /// Shared by equal holds, because nodes change hands often.
    pub(crate) piece: Arc<Piece>,
    grant: Option<Box<Grant>>,
}

/// One node.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// What is free now.
    pub(crate) room: Room,
    /// Ordered by their ends.
    holds: Vec<Hold>,
    /// Cores and devices that are in use.
    cores: Indices,
    devices: BTreeMap<String, Indices>,
    /// Whether jobs may be planned here.
    pub(crate) is_usable: bool,
    /// Whether a job may start here, if there is room.
    pub(crate) is_open: bool,
    /// The time until which a node that a running application has given back is kept from all jobs.
    pub(crate) ghost: Option<Time>,
    /// Index into the kinds of its cluster.
    pub(crate) kind: usize,
}

/// The nodes of all core-shared clusters; other clusters are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shared {
    clusters: BTreeMap<ClusterId, SharedCluster>,
    held: BTreeMap<JobId, Holding>,
}

/// The nodes on which a job holds something, and until when in each cluster. Nodes that it is leaving have ends of
/// their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Holding {
    nodes: Vec<(ClusterId, NodeId)>,
    ends: BTreeSet<(ClusterId, Time)>,
}

/// The nodes of one cluster, in the order of their ids.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedCluster {
    lines: Vec<(NodeId, Line)>,
    /// By node, the number of the last change of its holds.
    edits: Vec<u64>,
    n_edits: u64,
    /// The kinds of its nodes, each once, in the order in which they appeared.
    kinds: Vec<Inventory>,
    /// A whole node of each kind.
    wholes: Vec<Arc<Piece>>,
    /// How many nodes of each kind may be planned with.
    n_usable: Vec<u32>,
    /// Usable nodes where nothing may start now.
    n_closed: u32,
    /// Nodes where something may start, by free cores.
    by_free: Vec<(u32, IdSet)>,
    /// Jobs that hold parts of nodes, by their ends; and the number of usable nodes that are free of holders from then
    /// on.
    ends: BTreeMap<(Time, JobId), i64>,
    /// Free logical CPUs over all nodes where something may start.
    pub(crate) n_free_cpus: u64,
}

impl Room {
    pub(crate) fn of(slice: &Slice) -> Room {
        let devices = slice.devices.iter().map(|(name, count)| (name.to_owned(), i64::from(count))).collect();
        Room { cores: slice.cores.into(), memory: memory_of(slice.memory), devices, n_holders: 0 }
    }

    /// Takes a piece; or, with a `sign` of -1, gives it back.
    pub(crate) fn take(&mut self, piece: &Piece, sign: i64) {
        self.cores -= sign * i64::from(piece.slice.cores);
        self.memory -= sign * memory_of(piece.slice.memory);
        for (name, left) in &mut self.devices {
            *left -= sign * i64::from(piece.slice.devices.count(name));
        }
        self.n_holders = self.n_holders.saturating_add_signed(sign as i32);
    }

    #[inline]
    pub(crate) fn holds(&self, piece: &Piece) -> bool {
        let Piece { slice, is_whole } = piece;
        match is_whole {
            true => self.n_holders == 0,
            false => {
                self.cores >= i64::from(slice.cores)
                    && self.memory >= memory_of(slice.memory)
                    && (slice.devices.is_empty() || self.has_devices(&slice.devices))
            }
        }
    }

    /// Returns a number that is the same for equal rooms, and seldom for others.
    pub(crate) fn digest(&self) -> u64 {
        let holders = u64::from(self.n_holders).rotate_left(40);
        let amounts = (self.cores as u64).wrapping_mul(0xd6e8_feb8_6659_fd93) ^ (self.memory as u64).rotate_left(20);
        self.devices.iter().fold(amounts ^ holders, |digest, (_, left)| digest.rotate_left(7) ^ (*left as u64))
    }

    fn n_devices(&self, name: &str) -> i64 {
        self.devices.iter().find(|(known, _)| known == name).map_or(0, |(_, left)| *left)
    }

    fn has_devices(&self, wanted: &Devices) -> bool {
        wanted.iter().all(|(name, count)| self.n_devices(name) >= i64::from(count))
    }

    /// Limits each resource to what `other` has.
    pub(crate) fn cap(&mut self, other: &Room) {
        self.cores = self.cores.min(other.cores);
        self.memory = self.memory.min(other.memory);
        for (name, left) in &mut self.devices {
            *left = other.n_devices(name).min(*left);
        }
    }

    /// Returns whether no job has a part of it.
    pub(crate) fn is_clear(&self) -> bool {
        self.n_holders == 0
    }

    /// Returns what is left of it.
    pub(crate) fn left(&self) -> Slice {
        let count = |count: i64| u32::try_from(count).unwrap_or(0);
        let devices: Devices = self.devices.iter().map(|(name, left)| (name.clone(), count(*left))).collect();
        Slice { cores: count(self.cores), memory: Mebibytes(u64::try_from(self.memory).unwrap_or(0)), devices }
    }
}

#[inline]
pub(crate) fn memory_of(memory: Mebibytes) -> i64 {
    i64::try_from(memory.0).unwrap_or(i64::MAX / 4)
}

impl Hold {
    pub(crate) fn job(&self) -> JobId {
        self.job
    }
}

impl Line {
    fn new(entry: &Node, kind: usize) -> Line {
        let ghost = entry.ghost.map(|ghost| ghost.until);
        Line {
            room: Room::of(&Slice::whole(&entry.inventory)),
            holds: Vec::new(),
            cores: Indices::default(),
            devices: BTreeMap::new(),
            is_usable: entry.is_usable(),
            is_open: entry.is_open(),
            ghost,
            kind,
        }
    }

    /// Returns whether the same is free of both at each time, whichever jobs have the rest.
    pub(crate) fn is_like(&self, other: &Line) -> bool {
        let are_alike = |(one, other): (&Hold, &Hold)| {
            one.until == other.until && (Arc::ptr_eq(&one.piece, &other.piece) || one.piece == other.piece)
        };
        (self.kind, self.is_usable, self.is_open, self.ghost)
            == (other.kind, other.is_usable, other.is_open, other.ghost)
            && self.room == other.room
            && self.holds.len() == other.holds.len()
            && std::iter::zip(&self.holds, &other.holds).all(are_alike)
    }

    /// Returns a number that is the same for lines that are alike, and seldom for others.
    pub(crate) fn digest(&self) -> u64 {
        let look = (self.kind as u64) << 2 | u64::from(self.is_usable) << 1 | u64::from(self.is_open);
        let ghost = self.ghost.map_or(0, |ghost| ghost.as_millis() as u64);
        let add = |digest: u64, hold: &Hold| {
            let Slice { cores, memory, devices: _ } = hold.piece.slice;
            let amounts = u64::from(cores).rotate_left(48) ^ memory.0.rotate_left(16);
            (digest ^ (hold.until.as_millis() as u64) ^ amounts).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        };
        self.holds.iter().fold(self.room.digest() ^ look.rotate_left(60) ^ ghost, add)
    }

    /// Returns the hold of a job on this node.
    pub(crate) fn hold_of(&self, job: JobId) -> Option<&Hold> {
        self.holds.iter().find(|hold| hold.job == job)
    }

    #[cfg(test)]
    pub(crate) fn of_nobody(inventory: &Inventory, is_open: bool) -> Line {
        let room = Room::of(&Slice::whole(inventory));
        let (holds, cores, devices) = (Vec::new(), Indices::default(), BTreeMap::new());
        Line { room, holds, cores, devices, is_usable: true, is_open, ghost: None, kind: 0 }
    }

    /// Returns the holder that leaves the node last, and when; `None` if the node is not usable.
    pub(crate) fn last(&self) -> Option<(Time, JobId)> {
        self.holds.last().filter(|_| self.is_usable).map(|hold| (hold.until, hold.job))
    }

    /// Returns the holds on this node, in the order of their ends.
    pub(crate) fn holds(&self) -> &[Hold] {
        &self.holds
    }

    fn add(&mut self, hold: Hold) {
        self.room.take(&hold.piece, 1);
        if let Some(grant) = &hold.grant {
            self.cores.insert_all(&grant.cores);
            for (name, indices) in &grant.devices {
                self.devices.entry(name.clone()).or_default().insert_all(indices);
            }
        }
        let place = self.holds.partition_point(|known| (known.until, known.job) < (hold.until, hold.job));
        self.holds.insert(place, hold);
    }

    fn remove(&mut self, job: JobId) {
        let Some(idx) = self.holds.iter().position(|hold| hold.job == job) else { return };
        let is_only = self.holds.len() == 1;
        let Some(hold) = (if is_only { self.holds.pop() } else { Some(self.holds.remove(idx)) }) else { return };
        self.room.take(&hold.piece, -1);
        if let Some(grant) = &hold.grant {
            self.cores.remove_all(&grant.cores);
            for (name, indices) in &grant.devices {
                if let Some(known) = self.devices.get_mut(name) {
                    known.remove_all(indices);
                    if known.is_empty() {
                        self.devices.remove(name);
                    }
                }
            }
        }
    }

    /// Returns the number of cores that are free for a start now.
    fn n_free(&self) -> u32 {
        if self.is_open { u32::try_from(self.room.cores).unwrap_or(0) } else { 0 }
    }

    /// Chooses the cores and devices for a slice that fits.
    fn grant(&self, slice: &Slice, inventory: &Inventory, task: TaskSize) -> Grant {
        let devices = slice.devices.iter().map(|(name, count)| {
            let nobody = Indices::default();
            let taken = self.devices.get(name).unwrap_or(&nobody);
            let free = (0..inventory.devices.count(name)).filter(|index| !taken.contains(*index));
            (name.to_owned(), free.take(count as usize).collect())
        });
        Grant {
            cores: pick_cores(inventory, &self.cores, &Indices::default(), slice.cores, task),
            memory: slice.memory,
            devices: devices.collect(),
        }
    }
}

/// Returns the last piece if this one is equal; otherwise replaces it by this one.
fn reuse_if_equal(last: &mut Arc<Piece>, piece: Piece) -> Arc<Piece> {
    if **last != piece {
        *last = Arc::new(piece);
    }
    Arc::clone(last)
}

/// `kind` is not compared: kinds are numbered in the order in which they appeared.
impl PartialEq for Line {
    fn eq(&self, other: &Line) -> bool {
        let Line { room, holds, cores, devices, is_usable, is_open, ghost, kind: _ } = self;
        let others = (&other.room, &other.holds, &other.cores, &other.devices);
        (room, holds, cores, devices) == others
            && (is_usable, is_open, ghost) == (&other.is_usable, &other.is_open, &other.ghost)
    }
}

impl Eq for Line {}

impl PartialEq for SharedCluster {
    fn eq(&self, other: &SharedCluster) -> bool {
        self.lines == other.lines && self.n_free_cpus == other.n_free_cpus && self.ends == other.ends
    }
}

impl Eq for SharedCluster {}

impl SharedCluster {
    pub(crate) fn kinds(&self) -> &[Inventory] {
        &self.kinds
    }

    /// Returns the nodes ordered by id.
    pub(crate) fn lines(&self) -> &[(NodeId, Line)] {
        &self.lines
    }

    /// Returns, for each node, a number that differs after each change of its holds.
    pub(crate) fn edits(&self) -> &[u64] {
        &self.edits
    }

    pub(crate) fn line_idx(&self, node: NodeId) -> Result<usize, usize> {
        let [(first, _), .., (last, _)] = self.lines.as_slice() else {
            return self.lines.binary_search_by_key(&node, |(known, _)| *known);
        };
        let farthest = node.0.wrapping_sub(first.0) as usize;
        match (last.0 - first.0) as usize + 1 == self.lines.len() && farthest < self.lines.len() {
            // No number is missing between the first and the last node.
            true => Ok(farthest),
            false => self.lines.binary_search_by_key(&node, |(known, _)| *known),
        }
    }

    /// Changes a node's holds, and updates the counts by free cores. Returns the holder that leaves it last, before and
    /// now.
    fn edit(&mut self, idx: usize, edit: impl FnOnce(&mut Line)) -> [Option<(Time, JobId)>; 2] {
        self.n_edits += 1;
        self.edits[idx] = self.n_edits;
        let (node, line) = &mut self.lines[idx];
        let (node, before, first) = (*node, line.n_free(), line.last());
        edit(line);
        let (after, threads, last) = (line.n_free(), self.kinds[line.kind].threads_per_core(), line.last());
        if before != after {
            let cpus = |n_free: u32| u64::from(n_free) * u64::from(threads);
            self.n_free_cpus = self.n_free_cpus - cpus(before) + cpus(after);
            let (n_nodes, nodes) = &mut self.by_free[before as usize];
            *n_nodes -= u32::from(nodes.remove(node));
            let (n_nodes, nodes) = self.bucket(after);
            *n_nodes += u32::from(nodes.insert(node));
        }
        [first, last]
    }

    /// Adds to the number of nodes that are left last at this end.
    fn count_last(&mut self, end: (Time, JobId), n_nodes: i64) {
        if let Some(known) = self.ends.get_mut(&end) {
            *known += n_nodes;
        }
    }

    fn bucket(&mut self, n_free: u32) -> &mut (u32, IdSet) {
        while self.by_free.len() <= n_free as usize {
            self.by_free.push((0, IdSet::default()));
        }
        &mut self.by_free[n_free as usize]
    }

    /// Adds a node to the counts, or removes it.
    fn count(&mut self, idx: usize, comes: bool) {
        let (node, line) = &self.lines[idx];
        let n_free = line.n_free();
        let n_cpus = u64::from(n_free) * u64::from(self.kinds[line.kind].threads_per_core());
        let n_closed = u32::from(line.is_usable && !line.is_open);
        let n_usable = u32::from(line.is_usable);
        let (node, is_open, kind) = (*node, line.is_open, line.kind);
        if is_open {
            let (n_nodes, nodes) = self.bucket(n_free);
            match comes {
                true => *n_nodes += u32::from(nodes.insert(node)),
                false => *n_nodes -= u32::from(nodes.remove(node)),
            }
        }
        let usable = &mut self.n_usable;
        match comes {
            true => (self.n_free_cpus, self.n_closed) = (self.n_free_cpus + n_cpus, self.n_closed + n_closed),
            false => (self.n_free_cpus, self.n_closed) = (self.n_free_cpus - n_cpus, self.n_closed - n_closed),
        }
        usable[kind] = if comes { usable[kind] + n_usable } else { usable[kind] - n_usable };
    }

    /// Returns the nodes that have room now for what the job takes of each node with this size.
    pub(crate) fn with_room(&self, spec: &JobSpec, request: &Request) -> impl Iterator<Item = NodeId> {
        let pieces: Vec<Vec<Piece>> = self.kinds.iter().map(|kind| pieces_of(spec, request, kind)).collect();
        let open = self.lines.iter().filter(|(_, line)| line.is_open && line.ghost.is_none());
        let with_room = open.filter(move |(_, line)| pieces[line.kind].iter().any(|piece| line.room.holds(piece)));
        with_room.map(|(node, _)| *node)
    }

    /// Returns the number of usable nodes of each kind.
    pub(crate) fn n_usable(&self) -> &[u32] {
        &self.n_usable
    }

    /// Returns whether jobs can start on all usable nodes.
    pub(crate) fn are_all_open(&self) -> bool {
        self.n_closed == 0
    }

    /// Indices of the nodes where something may start, by free cores, from `n_cores` upwards.
    pub(crate) fn with_free(
        &self,
        n_cores: u32,
    ) -> impl DoubleEndedIterator<Item = (u32, impl Iterator<Item = usize> + '_)> + '_ {
        let buckets = self.by_free.iter().enumerate().skip(n_cores as usize).filter(|(_, (n_nodes, _))| *n_nodes > 0);
        buckets.map(|(n_free, (_, nodes))| (n_free as u32, nodes.iter().filter_map(|node| self.line_idx(node).ok())))
    }

    /// Returns the nodes without holders where something may start, of those with this number of cores.
    pub(crate) fn clear(&self, n_cores: u32) -> IdSet {
        self.by_free.get(n_cores as usize).map(|(_, nodes)| nodes.clone()).unwrap_or_default()
    }

    /// Returns the numbers of usable nodes that become free of holders, in order of time, as far as the state knows.
    pub(crate) fn clears(&self) -> impl Iterator<Item = (Time, i64)> + '_ {
        self.ends.iter().map(|((until, _), n_nodes)| (*until, *n_nodes))
    }

    /// Returns, for each number of cores up to `most`, the number of nodes with at least as many free.
    pub(crate) fn counts_with_free(&self, most: u32) -> Vec<u32> {
        let mut counts = vec![0; most as usize + 1];
        for (n_free, (n_nodes, _)) in self.by_free.iter().enumerate() {
            counts[n_free.min(most as usize)] += n_nodes;
        }
        for n_free in (0..most as usize).rev() {
            counts[n_free] += counts[n_free + 1];
        }
        counts
    }

    /// Returns the number of nodes with at least this number of free cores.
    pub(crate) fn n_with_free(&self, n_cores: u32) -> u32 {
        self.by_free.iter().skip(n_cores as usize).map(|(n_nodes, _)| n_nodes).sum()
    }
}

impl Shared {
    pub(super) fn add_cluster(&mut self, cluster: ClusterId) {
        self.clusters.insert(cluster, SharedCluster::default());
    }

    pub(super) fn remove_cluster(&mut self, cluster: ClusterId) {
        self.clusters.remove(&cluster);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.clusters.is_empty()
    }

    pub(crate) fn get(&self, cluster: ClusterId) -> Option<&SharedCluster> {
        self.clusters.get(&cluster)
    }

    pub(crate) fn clusters(&self) -> impl Iterator<Item = (ClusterId, &SharedCluster)> {
        self.clusters.iter().map(|(cluster, shared)| (*cluster, shared))
    }

    /// Adds a node; its holders are added later.
    pub(super) fn insert_node(&mut self, node: NodeId, entry: &Node) {
        let Some(shared) = self.clusters.get_mut(&entry.cluster) else { return };
        let known = shared.kinds.iter().position(|kind| *kind == entry.inventory);
        let line = Line::new(entry, known.unwrap_or(shared.kinds.len()));
        if known.is_none() {
            shared.kinds.push(entry.inventory.clone());
            shared.wholes.push(Arc::new(Piece::whole(&entry.inventory)));
            shared.n_usable.push(0);
        }
        if let Err(idx) = shared.line_idx(node) {
            shared.lines.insert(idx, (node, line));
            shared.edits.insert(idx, shared.n_edits);
            shared.count(idx, true);
        }
    }

    pub(super) fn remove_node(&mut self, node: NodeId, entry: &Node) {
        let Some(shared) = self.clusters.get_mut(&entry.cluster) else { return };
        if let Ok(idx) = shared.line_idx(node) {
            shared.count(idx, false);
            let (_, line) = shared.lines.remove(idx);
            shared.edits.remove(idx);
            if let Some(end) = line.last() {
                shared.count_last(end, -1);
            }
        }
    }

    /// Adds the holds of a job that has started or become a ghost, or whose nodes have changed.
    pub(super) fn hold(&mut self, job: JobId, entry: &Job) {
        if self.clusters.is_empty() {
            return;
        }
        let (mut held, mut part) = (Holding::default(), Arc::default());
        // Most jobs keep their grants until they end.
        let steady = entry.started().filter(|started| started.evolved.is_none() && started.sharing.is_none());
        // The number of nodes that this job leaves last, for successive ends.
        let mut ends: Vec<((ClusterId, Time), i64)> = Vec::new();
        let evolved = entry.started().and_then(|started| started.evolved.as_ref());
        let leaving = evolved.map(|evolved| &evolved.leaving);
        let row = entry.started().map_or(&[][..], Started::row);
        let row: BTreeMap<NodeId, usize> = row.iter().enumerate().map(|(place, node)| (*node, place)).collect();
        let mut clusters: Vec<(ClusterId, &mut SharedCluster)> =
            self.clusters.iter_mut().map(|(cluster, shared)| (*cluster, shared)).collect();
        for node in entry.held() {
            let place = clusters.iter_mut().find_map(|(cluster, shared)| {
                let idx = shared.line_idx(node).ok()?;
                Some((*cluster, shared, idx))
            });
            let Some((cluster, shared, idx)) = place else { continue };
            let left_at = leaving.and_then(|leaving| leaving.get(&node));
            let until = match &entry.phase {
                Phase::Ghost(ghost) => ghost.until_in(cluster),
                // It should have left; the readers of this handle jobs that overstay.
                Phase::Started(started) => {
                    let kept = || row.get(&node).and_then(|place| Some(evolved?.course.kept_until(*place)));
                    left_at.copied().or_else(kept).map_or(started.planned_until(), |until| until - started.late)
                }
                Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting => return,
            };
            let kind = shared.lines[idx].1.kind;
            let inventory = &shared.kinds[kind];
            let grant = match steady {
                Some(started) => started.grants.get(&node).cloned(),
                None => entry.part_of(node, inventory),
            };
            // For planning, lent cores belong to their owner, not to the guest.
            let lent = entry.started().filter(|started| started.sharing.is_some());
            let own = lent.map(|started| started.own_part_of(&entry.spec, node, inventory));
            let piece = match own.as_ref().unwrap_or(&grant) {
                Some(grant) if entry.is_guest_on(node) => {
                    let slice = Slice { cores: 0, ..grant.amount() };
                    reuse_if_equal(&mut part, Piece { slice, is_whole: false })
                }
                Some(grant) => reuse_if_equal(&mut part, Piece { slice: grant.amount(), is_whole: false }),
                None => Arc::clone(&shared.wholes[kind]),
            };
            let grant = grant.map(Box::new);
            let [before, last] = shared.edit(idx, |line| line.add(Hold { until, job, piece, grant }));
            held.nodes.push((cluster, node));
            if ends.last().is_none_or(|(end, _)| *end != (cluster, until)) {
                shared.ends.entry((until, job)).or_default();
                held.ends.insert((cluster, until));
                ends.push(((cluster, until), 0));
            }
            if before != last {
                ends.iter_mut().last().into_iter().for_each(|(_, n_nodes)| *n_nodes += 1);
                before.into_iter().for_each(|before| shared.count_last(before, -1));
            }
        }
        for ((cluster, until), n_nodes) in ends {
            if let Some(shared) = self.clusters.get_mut(&cluster) {
                shared.count_last((until, job), n_nodes);
            }
        }
        if !held.nodes.is_empty() {
            self.held.insert(job, held);
        }
    }

    /// Removes the holds of a job.
    pub(super) fn release(&mut self, job: JobId) {
        let Some(Holding { nodes, ends }) = self.held.remove(&job) else { return };
        for alike in nodes.chunk_by(|(one, _), (other, _)| one == other) {
            let Some((cluster, _)) = alike.first() else { continue };
            let Some(shared) = self.clusters.get_mut(cluster) else { continue };
            for (_, node) in alike {
                let Ok(idx) = shared.line_idx(*node) else { continue };
                let [before, last] = shared.edit(idx, |line| line.remove(job));
                // Its own ends are dropped below.
                last.filter(|_| before != last).into_iter().for_each(|last| shared.count_last(last, 1));
            }
        }
        for (cluster, until) in ends {
            if let Some(shared) = self.clusters.get_mut(&cluster) {
                shared.ends.remove(&(until, job));
            }
        }
    }

    /// Returns the ends of holds on a cluster, with the indices of the nodes.
    pub(crate) fn ends(
        &self,
        cluster: ClusterId,
    ) -> impl Iterator<Item = (Time, impl Iterator<Item = usize> + '_)> + '_ {
        let shared = self.clusters.get(&cluster);
        shared.into_iter().flat_map(move |shared| {
            shared.ends.keys().map(move |(until, job)| {
                let nodes = self.held.get(job).map_or(&[][..], |held| &held.nodes);
                let here = nodes.iter().filter(move |(known, _)| *known == cluster);
                (*until, here.filter_map(|(_, node)| shared.line_idx(*node).ok()))
            })
        })
    }

    /// Chooses further cores of a node for a job that has `own` there, beside those in use.
    pub(crate) fn more_cores(
        &self,
        node: NodeId,
        entry: &Node,
        (spec, own): (&JobSpec, &Indices),
        n_cores: u32,
    ) -> Option<Indices> {
        let shared = self.clusters.get(&entry.cluster)?;
        let (_, line) = &shared.lines[shared.line_idx(node).ok()?];
        Some(pick_cores(&entry.inventory, &line.cores, own, n_cores, TaskSize::of(spec, &entry.inventory)))
    }

    /// Chooses up to `count` further devices of this name beside those in use.
    pub(crate) fn more_devices(&self, node: NodeId, entry: &Node, name: &str, count: u32) -> Indices {
        let shared = self.clusters.get(&entry.cluster);
        let line = shared.and_then(|shared| Some(&shared.lines[shared.line_idx(node).ok()?].1));
        let taken = line.and_then(|line| line.devices.get(name));
        let free = 0..entry.inventory.devices.count(name);
        let free = free.filter(|index| taken.is_none_or(|taken| !taken.contains(*index)));
        free.take(count as usize).collect()
    }

    /// Chooses the cores and devices of a node for a slice of this job that fits.
    pub(crate) fn grant(&self, node: NodeId, entry: &Node, spec: &JobSpec, slice: &Slice) -> Option<Grant> {
        let shared = self.clusters.get(&entry.cluster)?;
        let (_, line) = &shared.lines[shared.line_idx(node).ok()?];
        Some(line.grant(slice, &entry.inventory, TaskSize::of(spec, &entry.inventory)))
    }
}
