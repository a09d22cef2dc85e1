//! Orders and sets derived from the state, for fast access in a pass. Each fact updates them, and a restart rebuilds
//! them.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rms_model::{Allocation, ClusterId, Environment, Execution, Inventory, JobId, JobSpec, NodeId, Owner, Time};

use super::free::FreeNodes;
use super::lenders::{Lender, Lenders};
use super::neighbours::Neighbours;
use super::occupation::Occupation;
use super::shared::Shared;
use super::usage::{Usage, environment_bytes, work_bytes};
use super::waiting::{Demand, JobQueue, QueueKey};
use super::{Nodes, State};
use crate::state::job::{Job, Launcher, LauncherTimerIndex, Phase, Promise, Started};
use crate::state::node::Node;

/// Derived from the rest of the state, so it is compared but not stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Index {
    pub(crate) queue: JobQueue,
    /// The number of queued jobs without a plain demand.
    pub(crate) n_not_plain: usize,
    /// The number of queued jobs without a slice demand.
    pub(crate) n_unsliced: usize,
    pub(crate) occupation: Occupation,
    pub(crate) shared: Shared,
    pub(crate) unseen: BTreeSet<JobId>,
    pub(crate) holding: BTreeSet<JobId>,
    /// Running jobs that have a course.
    pub(crate) evolved: BTreeSet<JobId>,
    /// Running jobs that have licences.
    pub(crate) licensed: BTreeSet<JobId>,
    /// Running jobs whose nodes may change.
    pub(crate) malleable: BTreeSet<JobId>,
    /// Applications with a launcher of their own.
    pub(crate) with_launcher: BTreeSet<JobId>,
    pub(crate) lenders: Lenders,
    pub(crate) ghosts: BTreeSet<(Time, JobId)>,
    /// Nodes that running applications have given back, by the time when they are free.
    pub(crate) node_ghosts: BTreeSet<(Time, NodeId)>,
    /// Jobs that wait for their begin time; an external launcher sends its first request by itself.
    pub(crate) begins: BTreeSet<(Time, JobId)>,
    pub(crate) launcher_timers: LauncherTimerIndex,
    /// The promised starts of queued jobs.
    pub(crate) promises: BTreeSet<(Time, JobId)>,
    /// The times when running evolving applications reach their next stage, or their end.
    pub(crate) stages: BTreeSet<(Time, JobId)>,
    /// The free nodes of each cluster that has nodes.
    pub(crate) free: BTreeMap<ClusterId, FreeNodes>,
    pub(crate) usable: BTreeMap<ClusterId, u32>,
    pub(crate) node_ids: BTreeMap<String, NodeId>,
    pub(crate) neighbours: Neighbours,
    /// The number of nodes of each kind in a cluster, in any state: admission considers kinds, not nodes.
    pub(crate) kinds: BTreeMap<ClusterId, BTreeMap<Inventory, u32>>,
    /// Agents that are away and not yet lost, by the time since when.
    pub(crate) away: BTreeSet<(Time, NodeId)>,
    /// Agents whose nodes are planned with nevertheless, because the server was restarted then.
    pub(crate) expected: BTreeSet<(Time, NodeId)>,
    /// Each environment once, and how many jobs have it: most jobs of a user share theirs, and it is most of a job's
    /// size.
    pub(crate) environments: BTreeMap<Arc<Environment>, BTreeMap<Owner, u32>>,
    /// The resources that the jobs of each user take.
    pub(crate) usage: BTreeMap<Owner, Usage>,
    /// The jobs of each user, so that listing them does not visit those of all users.
    pub(crate) owned: BTreeMap<Owner, BTreeSet<JobId>>,
}

/// Returns when the application enters its next stage; a job that is being ended enters none.
fn next_stage(started: &Started) -> Option<Time> {
    let evolved = started.evolved.as_ref().filter(|_| started.ending.is_none())?;
    Some(evolved.course.next_change())
}

impl Index {
    fn enqueue(&mut self, job: JobId, entry: &Job) {
        let demand = Demand::of(entry, &self.shared);
        self.n_not_plain += usize::from(demand.plain.is_none());
        self.n_unsliced += usize::from(demand.slice.is_none());
        self.queue.insert(QueueKey::of(job, entry), demand);
        if let Some(promise) = &entry.promised {
            self.promises.insert((promise.at, job));
            self.occupation.promise(&entry.spec.options[promise.option_idx as usize], promise.at, 1, &self.shared);
        }
    }

    fn dequeue(&mut self, job: JobId, entry: &Job) {
        if let Some(demand) = self.queue.remove(QueueKey::of(job, entry)) {
            self.n_not_plain -= usize::from(demand.plain.is_none());
            self.n_unsliced -= usize::from(demand.slice.is_none());
        }
        if let Some(promise) = &entry.promised {
            self.promises.remove(&(promise.at, job));
            self.occupation.promise(&entry.spec.options[promise.option_idx as usize], promise.at, -1, &self.shared);
        }
    }

    /// Changes a promise in the index, before it changes in `entry`.
    pub(super) fn change_promise(&mut self, job: JobId, entry: &Job, promise: Option<&Promise>) {
        let request = |promise: &Promise| &entry.spec.options[promise.option_idx as usize];
        if let Some(old) = &entry.promised {
            self.promises.remove(&(old.at, job));
            self.occupation.promise(request(old), old.at, -1, &self.shared);
        }
        if let Some(new) = promise {
            self.promises.insert((new.at, job));
            self.occupation.promise(request(new), new.at, 1, &self.shared);
        }
        if let Some(demand) = self.queue.get_mut(QueueKey::of(job, entry)) {
            demand.promised = promise.map(|promise| promise.at);
        }
    }

    pub(super) fn insert_job(&mut self, job: JobId, entry: &Job, nodes: &Nodes) {
        self.launcher_timers.insert(job, entry);
        if entry.launcher.is_some() {
            self.with_launcher.insert(job);
        }
        match &entry.phase {
            Phase::Submitted { hold: Some(_) } => {}
            Phase::Submitted { hold: None } if entry.launcher.is_some() => {}
            Phase::Submitted { hold: None } => {
                self.begins.insert((entry.spec.begin.unwrap_or(entry.submitted), job));
            }
            Phase::RequestSent => {
                self.enqueue(job, entry);
                self.unseen.insert(job);
            }
            Phase::Waiting => {
                self.enqueue(job, entry);
            }
            Phase::Started(started) => {
                self.holding.insert(job);
                // Before its launcher has launched, nothing could change its size.
                let is_there = entry.launcher.as_ref().is_none_or(Launcher::has_launched);
                if entry.spec.malleable.is_some() && is_there {
                    self.malleable.insert(job);
                }
                if started.evolved.is_some() {
                    self.evolved.insert(job);
                }
                if entry.is_licensed() {
                    self.licensed.insert(job);
                }
                self.hold(job, entry, nodes);
                // If nodes or cores have changed once, they may change again without an update of this index.
                let lender = started.evolved.is_none().then(|| Lender::of(entry, nodes, &self.shared)).flatten();
                self.lenders.extend(lender.map(|lender| (job, lender)));
                self.stages.extend(next_stage(started).map(|at| (at, job)));
            }
            Phase::Ghost(ghost) => {
                self.holding.insert(job);
                self.hold(job, entry, nodes);
                self.ghosts.insert((ghost.next_until(), job));
            }
        }
    }

    pub(super) fn remove_job(&mut self, job: JobId, entry: &Job) {
        self.launcher_timers.remove(job, entry);
        if entry.launcher.is_some() {
            self.with_launcher.remove(&job);
        }
        match &entry.phase {
            Phase::Submitted { hold: Some(_) } => {}
            Phase::Submitted { hold: None } if entry.launcher.is_some() => {}
            Phase::Submitted { hold: None } => {
                self.begins.remove(&(entry.spec.begin.unwrap_or(entry.submitted), job));
            }
            Phase::RequestSent => {
                self.dequeue(job, entry);
                self.unseen.remove(&job);
            }
            Phase::Waiting => {
                self.dequeue(job, entry);
            }
            Phase::Started(started) => {
                self.holding.remove(&job);
                self.malleable.remove(&job);
                self.evolved.remove(&job);
                self.licensed.remove(&job);
                self.lenders.remove(&job);
                self.release(job);
                if let Some(at) = next_stage(started) {
                    self.stages.remove(&(at, job));
                }
            }
            Phase::Ghost(ghost) => {
                self.holding.remove(&job);
                self.release(job);
                self.ghosts.remove(&(ghost.next_until(), job));
            }
        }
    }

    fn hold(&mut self, job: JobId, entry: &Job, nodes: &Nodes) {
        let all_usable = self.usable.values().sum::<u32>() as usize == nodes.len();
        self.occupation.hold(job, entry, nodes, (all_usable, &self.shared));
        self.shared.hold(job, entry);
    }

    fn release(&mut self, job: JobId) {
        self.occupation.release(job);
        self.shared.release(job);
    }

    /// Updates the index after the usability or the parts of a job's nodes have changed.
    pub(super) fn recount(&mut self, job: JobId, entry: &Job, nodes: &Nodes) {
        self.release(job);
        self.hold(job, entry, nodes);
    }

    pub(super) fn insert_node(&mut self, node: NodeId, entry: &Node) {
        self.node_ids.insert(entry.name.clone(), node);
        self.shared.insert_node(node, entry);
        let kinds = self.kinds.entry(entry.cluster).or_default();
        match kinds.get_mut(&entry.inventory) {
            Some(n_alike) => *n_alike += 1,
            None => {
                kinds.insert(entry.inventory.clone(), 1);
            }
        }
        self.away.extend(entry.away_since().map(|since| (since, node)));
        self.expected.extend(entry.expected_since().map(|since| (since, node)));
        if let Some(ghost) = entry.ghost {
            self.node_ghosts.insert((ghost.until, node));
            if entry.is_usable() && self.shared.get(entry.cluster).is_none() {
                self.occupation.count_node_ghost(entry.cluster, &ghost, 1);
            }
        }
        if entry.is_usable() {
            *self.usable.entry(entry.cluster).or_default() += 1;
        }
        let free = self.free.entry(entry.cluster).or_default();
        if entry.is_free() {
            free.insert(node, entry);
        }
    }

    pub(super) fn remove_node(&mut self, node: NodeId, entry: &Node) {
        self.node_ids.remove(&entry.name);
        self.shared.remove_node(node, entry);
        if let Some(kinds) = self.kinds.get_mut(&entry.cluster) {
            match kinds.get_mut(&entry.inventory) {
                Some(n_alike) if *n_alike > 1 => *n_alike -= 1,
                Some(_) | None => {
                    kinds.remove(&entry.inventory);
                }
            }
            if kinds.is_empty() {
                self.kinds.remove(&entry.cluster);
                self.free.remove(&entry.cluster);
            }
        }
        if let Some(since) = entry.away_since() {
            self.away.remove(&(since, node));
            self.expected.remove(&(since, node));
        }
        if let Some(ghost) = entry.ghost {
            self.node_ghosts.remove(&(ghost.until, node));
            if entry.is_usable() && self.shared.get(entry.cluster).is_none() {
                self.occupation.count_node_ghost(entry.cluster, &ghost, -1);
            }
        }
        if entry.is_usable()
            && let Some(n_usable) = self.usable.get_mut(&entry.cluster)
        {
            *n_usable -= 1;
            if *n_usable == 0 {
                self.usable.remove(&entry.cluster);
            }
        }
        if let Some(free) = self.free.get_mut(&entry.cluster) {
            free.remove(node, entry);
        }
    }
}

impl Index {
    pub(super) fn add_owned(&mut self, job: JobId, owner: &Owner) {
        match self.owned.get_mut(owner) {
            Some(owned) => drop(owned.insert(job)),
            None => drop(self.owned.insert(owner.clone(), BTreeSet::from([job]))),
        }
    }

    pub(super) fn remove_owned(&mut self, job: JobId, owner: &Owner) {
        if let Some(owned) = self.owned.get_mut(owner) {
            owned.remove(&job);
            if owned.is_empty() {
                self.owned.remove(owner);
            }
        }
    }

    /// Counts a new job for its owner, and returns the shared copy of its environment.
    pub(super) fn add_usage(&mut self, spec: &JobSpec) -> Arc<Environment> {
        let JobSpec { execution: Execution { environment, work, .. }, owner, .. } = spec;
        let (shared, of_owners) = match self.environments.entry(Arc::clone(environment)) {
            Entry::Occupied(entry) => (Arc::clone(entry.key()), entry.into_mut()),
            Entry::Vacant(entry) => (Arc::clone(environment), entry.insert(BTreeMap::new())),
        };
        let mut n_bytes = work_bytes(work);
        match of_owners.get_mut(owner) {
            Some(n_jobs) => *n_jobs += 1,
            None => {
                of_owners.insert(owner.clone(), 1);
                n_bytes += environment_bytes(environment);
            }
        }
        match self.usage.get_mut(owner) {
            Some(usage) => {
                usage.n_jobs += 1;
                usage.n_bytes += n_bytes;
            }
            None => drop(self.usage.insert(owner.clone(), Usage { n_jobs: 1, n_bytes })),
        }
        shared
    }

    /// Removes a job that has left or changed from its owner's usage.
    pub(super) fn remove_usage(&mut self, spec: &JobSpec) {
        let JobSpec { execution: Execution { environment, work, .. }, owner, .. } = spec;
        let mut n_bytes = work_bytes(work);
        if let Some(of_owners) = self.environments.get_mut(environment) {
            if let Some(n_jobs) = of_owners.get_mut(owner) {
                *n_jobs -= 1;
                if *n_jobs == 0 {
                    of_owners.remove(owner);
                    n_bytes += environment_bytes(environment);
                }
            }
            if of_owners.is_empty() {
                self.environments.remove(environment);
            }
        }
        if let Some(usage) = self.usage.get_mut(owner) {
            usage.n_jobs -= 1;
            usage.n_bytes -= n_bytes;
            if usage.n_jobs == 0 {
                self.usage.remove(owner);
            }
        }
    }
}

impl State {
    /// Derives the index from the rest of the state.
    pub(super) fn derived_index(&self) -> Index {
        let mut index = Index { neighbours: Neighbours::derived(&self.nodes), ..Index::default() };
        let is_shared = |name: &str| self.settings.allocation_of(name) == Allocation::Cores;
        let shared = self.clusters.iter().filter(|(_, name)| is_shared(name));
        shared.for_each(|(cluster, _)| index.shared.add_cluster(*cluster));
        for (node, entry) in &self.nodes {
            index.insert_node(*node, entry);
        }
        for (job, entry) in &self.jobs {
            index.insert_job(*job, entry, &self.nodes);
            index.add_usage(&entry.spec);
            index.add_owned(*job, &entry.spec.owner);
        }
        index
    }

    /// Rebuilds the index; call it once on a state that was read from a snapshot.
    pub fn rebuild_index(&mut self) {
        self.index = self.derived_index();
    }
}
