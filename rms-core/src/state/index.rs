//! Orders and sets over the state that a pass needs at once; kept up by each fact, rebuilt after a restart.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rms_model::{ClusterId, Environment, Inventory, JobId, NodeId, NodeLink, Time};

use super::State;
use crate::job::{AwaitedIndex, Job, Phase};
use crate::node::Node;

/// Derived from the rest of the state, so it is compared but not stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Index {
    pub(crate) queue: BTreeSet<QueueKey>,
    pub(crate) unseen: BTreeSet<JobId>,
    pub(crate) holding: BTreeSet<JobId>,
    pub(crate) ghosts: BTreeSet<(Time, JobId)>,
    /// Jobs that wait for their begin time; a launcher outside sends its first request by itself.
    pub(crate) begins: BTreeSet<(Time, JobId)>,
    pub(crate) awaited: AwaitedIndex,
    /// When queued jobs were promised to start.
    pub(crate) promises: BTreeSet<(Time, JobId)>,
    pub(crate) free: BTreeMap<ClusterId, BTreeSet<(usize, NodeId)>>,
    pub(crate) usable: BTreeMap<ClusterId, u32>,
    pub(crate) node_ids: BTreeMap<String, NodeId>,
    /// How many nodes of a cluster are alike, in whatever state they are: admission asks of kinds, not of nodes.
    pub(crate) kinds: BTreeMap<ClusterId, BTreeMap<Inventory, u32>>,
    /// Since when agents are away that are not lost yet.
    pub(crate) away: BTreeSet<(Time, NodeId)>,
    /// Each environment once, and how many jobs have it: most jobs of a user share theirs, and it is most of a job.
    pub(crate) environments: BTreeMap<Arc<Environment>, u32>,
}

/// The order of the queue: priority, then first request, then id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueKey {
    priority: Reverse<i32>,
    requested: Time,
    pub job: JobId,
}

impl QueueKey {
    fn of(job: JobId, entry: &Job) -> QueueKey {
        let requested = entry.requested.expect("a queued job has sent a request");
        QueueKey { priority: Reverse(entry.spec.priority), requested, job }
    }
}

impl Index {
    pub(super) fn insert_job(&mut self, job: JobId, entry: &Job) {
        self.awaited.insert(job, entry);
        if let Some(promise) = entry.promised {
            self.promises.insert((promise.at, job));
        }
        match &entry.phase {
            Phase::Submitted { hold: Some(_) } => {}
            Phase::Submitted { hold: None } if entry.launcher.is_some() => {}
            Phase::Submitted { hold: None } => {
                self.begins.insert((entry.spec.begin.unwrap_or(entry.submitted), job));
            }
            Phase::RequestSent => {
                self.queue.insert(QueueKey::of(job, entry));
                self.unseen.insert(job);
            }
            Phase::Waiting => {
                self.queue.insert(QueueKey::of(job, entry));
            }
            Phase::Started(_) => {
                self.holding.insert(job);
            }
            Phase::Ghost(ghost) => {
                self.holding.insert(job);
                self.ghosts.insert((ghost.until, job));
            }
        }
    }

    pub(super) fn remove_job(&mut self, job: JobId, entry: &Job) {
        self.awaited.remove(job, entry);
        if let Some(promise) = entry.promised {
            self.promises.remove(&(promise.at, job));
        }
        match &entry.phase {
            Phase::Submitted { hold: Some(_) } => {}
            Phase::Submitted { hold: None } if entry.launcher.is_some() => {}
            Phase::Submitted { hold: None } => {
                self.begins.remove(&(entry.spec.begin.unwrap_or(entry.submitted), job));
            }
            Phase::RequestSent => {
                self.queue.remove(&QueueKey::of(job, entry));
                self.unseen.remove(&job);
            }
            Phase::Waiting => {
                self.queue.remove(&QueueKey::of(job, entry));
            }
            Phase::Started(_) => {
                self.holding.remove(&job);
            }
            Phase::Ghost(ghost) => {
                self.holding.remove(&job);
                self.ghosts.remove(&(ghost.until, job));
            }
        }
    }

    pub(super) fn insert_node(&mut self, node: NodeId, entry: &Node) {
        self.node_ids.insert(entry.name.clone(), node);
        let kinds = self.kinds.entry(entry.cluster).or_default();
        match kinds.get_mut(&entry.inventory) {
            Some(n_alike) => *n_alike += 1,
            None => {
                kinds.insert(entry.inventory.clone(), 1);
            }
        }
        if let NodeLink::Away { since } = entry.link {
            self.away.insert((since, node));
        }
        if entry.is_usable() {
            *self.usable.entry(entry.cluster).or_default() += 1;
        }
        if entry.is_free() {
            self.free.entry(entry.cluster).or_default().insert(entry.rank(node));
        }
    }

    pub(super) fn remove_node(&mut self, node: NodeId, entry: &Node) {
        self.node_ids.remove(&entry.name);
        if let Some(kinds) = self.kinds.get_mut(&entry.cluster) {
            match kinds.get_mut(&entry.inventory) {
                Some(n_alike) if *n_alike > 1 => *n_alike -= 1,
                Some(_) | None => {
                    kinds.remove(&entry.inventory);
                }
            }
            if kinds.is_empty() {
                self.kinds.remove(&entry.cluster);
            }
        }
        if let NodeLink::Away { since } = entry.link {
            self.away.remove(&(since, node));
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
            free.remove(&entry.rank(node));
            if free.is_empty() {
                self.free.remove(&entry.cluster);
            }
        }
    }
}

impl Index {
    /// The one copy of a new job's environment.
    pub(super) fn share(&mut self, environment: &Arc<Environment>) -> Arc<Environment> {
        let known = self.environments.get_key_value(environment).map(|(known, _)| Arc::clone(known));
        let shared = known.unwrap_or_else(|| Arc::clone(environment));
        *self.environments.entry(Arc::clone(&shared)).or_default() += 1;
        shared
    }

    /// A job that had this environment is gone.
    pub(super) fn unshare(&mut self, environment: &Arc<Environment>) {
        if let Some(n_jobs) = self.environments.get_mut(environment) {
            *n_jobs -= 1;
            if *n_jobs == 0 {
                self.environments.remove(environment);
            }
        }
    }
}

impl State {
    /// The index as the rest of the state says it should be.
    pub(super) fn derived_index(&self) -> Index {
        let mut index = Index::default();
        for (job, entry) in &self.jobs {
            index.insert_job(*job, entry);
            index.share(&entry.spec.environment);
        }
        for (node, entry) in &self.nodes {
            index.insert_node(*node, entry);
        }
        index
    }

    /// To be called once on a state that was read back from a snapshot.
    pub fn rebuild_index(&mut self) {
        self.index = self.derived_index();
    }
}
