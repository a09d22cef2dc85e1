//! Keeps free what the server has offered or agreed to give, so that an accept never fails for want of hosts (002); and who
//! has how many hosts where.

use std::collections::{BTreeMap, BTreeSet};

use negotiation::{Action, NegotiationId, Phase, Reason, Resource, Template};
use rms_api::negotiate::Keeps;
use rms_model::{ClusterId, JobId, NodeAdmin, NodeId, NodeLink, Time};
use thiserror::Error;

use super::{Negotiations, Negotiators};
use crate::plan;
use crate::state::State;
use crate::state::fact::Fact;
use crate::state::node::Node;
use crate::state::talks::Case;
use crate::step::Step;

/// What is kept for negotiations is not what was promised: always a bug.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Leak {
    #[error("{job}/{id} is {phase} and holds {held} hosts of cluster {cluster}, but {promised} are promised")]
    Count { job: JobId, id: NegotiationId, phase: Phase, cluster: ClusterId, held: u64, promised: u64 },
    #[error("{job}/{id} holds node {node}, which it cannot")]
    Host { job: JobId, id: NegotiationId, node: NodeId },
    #[error("the dialogue {job}/{id} is not right: {sentence}")]
    Dialogue { job: JobId, id: NegotiationId, sentence: &'static str },
    #[error("job {0} does not run, or is being ended, and negotiates")]
    Over(JobId),
}

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
    /// From now on these hosts, and no others, are kept for a negotiation.
    pub(super) fn keep(&mut self, step: &mut Step, job: JobId, id: NegotiationId, nodes: Vec<NodeId>) {
        let Some(case) = self.case(job, id) else { return };
        let is_same = case.held.len() == nodes.len() && nodes.iter().all(|node| case.held.contains(node));
        if is_same {
            return;
        }
        let gives_back = case.held.iter().any(|node| !nodes.contains(node));
        self.context.record(step, Fact::HostsHeld { job, negotiation: id, nodes });
        self.context.passes.wanted |= gives_back;
    }

    /// What may be given for a growth on a cluster: what is kept for it already, then free hosts, plain ones first.
    pub(super) fn givable(&self, job: JobId, id: NegotiationId, cluster: ClusterId, most: usize) -> Vec<NodeId> {
        let mut hosts = self.held_on(job, id, cluster);
        hosts.truncate(most);
        hosts.extend(plan::free_for(self.context.state(), job, cluster, most - hosts.len()));
        hosts
    }

    /// What is kept for it on a cluster.
    pub(super) fn held_on(&self, job: JobId, id: NegotiationId, cluster: ClusterId) -> Vec<NodeId> {
        let held = self.case(job, id).into_iter().flat_map(|case| case.held.iter().copied());
        held.filter(|node| self.cluster_of(*node) == Some(cluster)).collect()
    }

    /// Hosts that are kept and cannot be had any more are replaced, or what was offered is taken back.
    pub(super) fn replace_lost_holds(&mut self, now: Time, step: &mut Step, job: JobId) {
        for id in self.open_cases(job) {
            let Some(case) = self.case(job, id) else { continue };
            let is_usable = |node: &NodeId| self.context.state().nodes().get(node).is_some_and(Node::is_usable);
            let (usable, lost): (Vec<NodeId>, Vec<NodeId>) = case.held.iter().partition(|node| is_usable(node));
            if lost.is_empty() {
                continue;
            }
            let named = named_hosts(case.dialogue.promised());
            let left = self.count_by_cluster(&usable);
            let mut hosts = usable;
            let mut is_whole = true;
            for (cluster, n_wanted) in n_promised(case) {
                let n_left = left.get(&cluster).copied().unwrap_or(0);
                let n_missing = n_wanted.saturating_sub(n_left) as usize;
                let mut others = plan::free_for(self.context.state(), job, cluster, n_missing);
                // An agent that is only away may come back in time.
                let is_away = |node: &&NodeId| {
                    self.context
                        .state()
                        .nodes()
                        .get(node)
                        .is_some_and(|entry| entry.cluster == cluster && is_only_away(entry))
                };
                others.extend(lost.iter().filter(is_away).take(n_missing - others.len()));
                is_whole &= others.len() == n_missing;
                hosts.extend(others);
            }
            is_whole &= named.iter().all(|node| hosts.contains(node));
            if is_whole {
                self.keep(step, job, id, hosts);
            } else {
                // It cannot be kept any more. A dialogue whose time is over ends with its next tick.
                let _ = self.act(now, step, job, id, Action::Withdraw(Reason::Lost));
            }
        }
    }

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

fn is_only_away(entry: &Node) -> bool {
    let is_away = match entry.link {
        NodeLink::Away { .. } | NodeLink::Expected { .. } => true,
        NodeLink::Connected { .. } => !entry.stale.is_empty(),
        NodeLink::Lost { .. } => false,
    };
    is_away && entry.admin == NodeAdmin::Enabled
}

/// The hosts that a template insists on.
pub(super) fn named_hosts(template: Option<&Template>) -> BTreeSet<NodeId> {
    let live = template.into_iter().flat_map(|template| template.items()).filter(|item| item.is_live());
    // Those of cores are held already.
    let of_hosts = live.filter(|item| matches!(item.resource, Resource::Hosts(_)));
    of_hosts.flat_map(|item| item.hosts.iter().copied()).collect()
}

/// How many hosts of each cluster the server has promised in a negotiation, counted from what was said.
fn n_promised(case: &Case) -> BTreeMap<ClusterId, u64> {
    let promised = case.dialogue.promised().filter(|_| !case.is_handed_over);
    promised.map(Template::hosts_by_cluster).unwrap_or_default()
}

/// What must hold of everything that is kept for negotiations: it is what was promised, no more and no less, held once
/// and of the right cluster. Tests and the simulator ask.
///
/// # Errors
/// The first that does not hold.
pub fn check(state: &State) -> Result<(), Leak> {
    let mut seen = BTreeSet::new();
    for (job, entry) in state.jobs() {
        let Some(talks) = &entry.talks else { continue };
        let started = entry.started().ok_or(Leak::Over(*job))?;
        for case in &talks.cases {
            let (job, id) = (*job, case.id());
            case.dialogue.check().map_err(|sentence| Leak::Dialogue { job, id, sentence })?;
            let promised = n_promised(case);
            let mut held: BTreeMap<ClusterId, u64> = promised.keys().map(|cluster| (*cluster, 0)).collect();
            for node in &case.held {
                let entry = state.nodes().get(node).filter(|entry| entry.holders.contains(&job));
                let Some(entry) = entry.filter(|_| !started.nodes.contains(node) && seen.insert(*node)) else {
                    return Err(Leak::Host { job, id, node: *node });
                };
                *held.entry(entry.cluster).or_default() += 1;
            }
            for (cluster, held) in held {
                let promised = promised.get(&cluster).copied().unwrap_or(0);
                if held != promised {
                    return Err(Leak::Count { job, id, phase: case.phase(), cluster, held, promised });
                }
            }
        }
        let is_talking = talks.open().next().is_some();
        if is_talking && started.ending.is_some() {
            return Err(Leak::Over(*job));
        }
    }
    Ok(())
}
