//! On which clusters a running application has its hosts, and how many on each.

use std::collections::BTreeMap;

use negotiation::{Resource, Template};
use rms_model::{ClusterId, JobId, NodeId};

use crate::rms::Rms;

impl Rms {
    /// The cluster of its first host, which stays to its end.
    pub(super) fn home(&self, job: JobId) -> Option<ClusterId> {
        let first = self.state.jobs().get(&job)?.started()?.nodes.first()?;
        self.cluster_of(*first)
    }

    /// How many hosts of a cluster it has.
    pub(super) fn n_hosts_on(&self, job: JobId, cluster: ClusterId) -> u32 {
        let started = self.state.jobs().get(&job).and_then(|entry| entry.started());
        started.and_then(|started| started.request.hosts.get(&cluster)).copied().unwrap_or(0)
    }

    /// How many hosts of a cluster it can be without: at home all but the first.
    pub(super) fn n_spare_on(&self, job: JobId, cluster: ClusterId) -> u32 {
        let held = self.n_hosts_on(job, cluster);
        if self.home(job) == Some(cluster) { held.saturating_sub(1) } else { held }
    }

    /// Its hosts on a cluster but the first of all, in the order in which it has them.
    pub(super) fn others_on(&self, job: JobId, cluster: ClusterId) -> Vec<NodeId> {
        let started = self.state.jobs().get(&job).and_then(|entry| entry.started());
        let others = started.into_iter().flat_map(|started| started.nodes.iter().skip(1).copied());
        others.filter(|node| self.cluster_of(*node) == Some(cluster)).collect()
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
        self.state.nodes().get(&node).map(|entry| entry.cluster)
    }
}

/// How many hosts of each cluster change hands, if a template is accepted as it stands.
pub(crate) fn hosts_by_cluster(template: &Template) -> BTreeMap<ClusterId, u64> {
    let mut hosts = BTreeMap::new();
    for item in template.items().iter().filter(|item| item.is_live()) {
        match item.resource {
            Resource::Hosts(cluster) => *hosts.entry(cluster).or_default() += item.quantity.0,
            Resource::Cores(_) | Resource::Time => {}
        }
    }
    hosts
}
