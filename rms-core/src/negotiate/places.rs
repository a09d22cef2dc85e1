//! On which clusters a running application has its hosts, and how many on each.

use std::collections::{BTreeMap, BTreeSet};

use rms_api::negotiate::Keeps;
use rms_model::{ClusterId, JobId, NodeId};

use super::{Negotiations, Negotiators};
use crate::state::State;

impl Negotiators {
    /// Those of its hosts that who speaks for it has said to be bound to its end.
    pub(super) fn kept_hosts<'a>(&'a self, state: &'a State, job: JobId) -> impl Iterator<Item = NodeId> + 'a {
        let kept = self.attached.get(&job).into_iter().flatten().copied();
        kept.filter(move |node| state.jobs().get(&job).is_some_and(|entry| entry.nodes().contains(node)))
    }

    pub(crate) fn n_kept(&self, state: &State, job: JobId) -> u32 {
        self.kept_hosts(state, job).count() as u32
    }
}

impl Negotiations<'_> {
    pub(super) fn kept_hosts(&self, job: JobId) -> impl Iterator<Item = NodeId> + '_ {
        self.negotiators.kept_hosts(self.context.state(), job)
    }

    /// The cluster of its first host, which stays to its end.
    pub(super) fn home(&self, job: JobId) -> Option<ClusterId> {
        let first = self.context.state().jobs().get(&job)?.started()?.nodes.first()?;
        self.cluster_of(*first)
    }

    /// How many hosts of a cluster it has.
    pub(super) fn n_hosts_on(&self, job: JobId, cluster: ClusterId) -> u32 {
        let started = self.context.state().jobs().get(&job).and_then(|entry| entry.started());
        started.and_then(|started| started.request.hosts.get(&cluster)).copied().unwrap_or(0)
    }

    /// How many hosts of a cluster it can be without: at home all but the first, and those that it keeps.
    pub(super) fn n_spare_on(&self, job: JobId, cluster: ClusterId) -> u32 {
        let first = self.context.state().jobs().get(&job).and_then(|entry| entry.started()?.nodes.first().copied());
        let bound: BTreeSet<NodeId> = first.into_iter().chain(self.kept_hosts(job)).collect();
        let n_bound = bound.iter().filter(|node| self.cluster_of(**node) == Some(cluster)).count() as u32;
        self.n_hosts_on(job, cluster).saturating_sub(n_bound)
    }

    /// Its hosts on a cluster but the first of all, in the order in which it has them.
    pub(super) fn others_on(&self, job: JobId, cluster: ClusterId) -> impl DoubleEndedIterator<Item = NodeId> + '_ {
        let started = self.context.state().jobs().get(&job).and_then(|entry| entry.started());
        let others = started.into_iter().flat_map(|started| started.nodes.iter().skip(1).copied());
        others.filter(move |node| self.cluster_of(*node) == Some(cluster))
    }

    /// The hosts that somebody means who attaches; where it has none of those that are named, all.
    pub(super) fn kept_by(&self, job: JobId, keeps: &Keeps) -> BTreeSet<NodeId> {
        let Some(started) = self.context.state().jobs().get(&job).and_then(|entry| entry.started()) else {
            return BTreeSet::new();
        };
        let stays = |node: &&NodeId| !started.is_leaving(**node);
        let all = || started.nodes.iter().filter(stays).copied().collect();
        let is_named = |names: &[String], node: &NodeId| names.contains(&self.context.state().nodes()[node].name);
        let named: BTreeSet<NodeId> = match keeps {
            Keeps::Nothing => return BTreeSet::new(),
            Keeps::All => return all(),
            Keeps::Hosts(names) => started.nodes.iter().filter(|node| is_named(names, node)).copied().collect(),
        };
        if named.is_empty() { all() } else { named }
    }

    /// How many of these hosts each cluster has.
    pub(super) fn count_by_cluster<'a>(&self, nodes: impl IntoIterator<Item = &'a NodeId>) -> BTreeMap<ClusterId, u64> {
        let mut counts = BTreeMap::new();
        for cluster in nodes.into_iter().filter_map(|node| self.cluster_of(*node)) {
            *counts.entry(cluster).or_default() += 1;
        }
        counts
    }

    pub(super) fn cluster_of(&self, node: NodeId) -> Option<ClusterId> {
        self.context.state().nodes().get(&node).map(|entry| entry.cluster)
    }
}
