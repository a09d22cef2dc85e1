//! Holds the nodes that the server has offered or agreed to give, so that an accept never fails for lack of nodes
//! (002); and counts nodes by cluster.

use std::collections::{BTreeMap, BTreeSet};

use negotiation::{Action, NegotiationId, Phase, Reason, Resource, Template};
use rms_api::negotiate::Keeps;
use rms_model::{ClusterId, JobId, NodeAdmin, NodeId, NodeLink, Time};
use thiserror::Error;

use super::{Negotiations, Negotiators};
use crate::plan;
use crate::state::State;
use crate::state::fact::Fact;
use crate::state::negotiations::Negotiation;
use crate::state::node::Node;
use crate::step::Step;

/// The nodes held for negotiations are not those that were promised: always a bug.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HoldError {
    #[error("{job}/{id} is {phase} and holds {held} nodes of cluster {cluster}, but {promised} are promised")]
    Count { job: JobId, id: NegotiationId, phase: Phase, cluster: ClusterId, held: u64, promised: u64 },
    #[error("{job}/{id} holds node {node}, which it cannot")]
    Node { job: JobId, id: NegotiationId, node: NodeId },
    #[error("the dialogue {job}/{id} is inconsistent: {sentence}")]
    Dialogue { job: JobId, id: NegotiationId, sentence: &'static str },
    #[error("job {0} does not run, or is being ended, and negotiates")]
    NotRunning(JobId),
}

impl Negotiators {
    /// Returns the nodes that the job's negotiator has declared as pinned until the job ends.
    pub(super) fn pinned_nodes<'a>(&'a self, state: &'a State, job: JobId) -> impl Iterator<Item = NodeId> + 'a {
        let kept = self.attached.get(&job).into_iter().flatten().copied();
        kept.filter(move |node| state.jobs().get(&job).is_some_and(|entry| entry.nodes().contains(node)))
    }

    pub(crate) fn n_pinned(&self, state: &State, job: JobId) -> u32 {
        self.pinned_nodes(state, job).count() as u32
    }
}

impl Negotiations<'_> {
    /// Holds exactly these nodes for a negotiation from now on.
    pub(super) fn set_held(&mut self, step: &mut Step, job: JobId, id: NegotiationId, nodes: Vec<NodeId>) {
        let Some(negotiation) = self.negotiation(job, id) else { return };
        let is_same = negotiation.held.len() == nodes.len() && nodes.iter().all(|node| negotiation.held.contains(node));
        if is_same {
            return;
        }
        let gives_back = negotiation.held.iter().any(|node| !nodes.contains(node));
        let new: Vec<NodeId> = nodes.iter().filter(|node| !negotiation.held.contains(node)).copied().collect();
        let grants = self.context.state().grants(job, &plan::slices_to_grow(self.context.state(), job, &new));
        self.context.record(step, Fact::NodesHeld { job, negotiation: id, nodes, grants });
        self.context.passes.wanted |= gives_back;
    }

    /// Returns nodes that may be granted to a growth on a cluster: first those held for it already, then free ones,
    /// plain ones first.
    pub(super) fn grantable(&self, job: JobId, id: NegotiationId, cluster: ClusterId, most: usize) -> Vec<NodeId> {
        let mut nodes = self.held_on(job, id, cluster);
        nodes.truncate(most);
        nodes.extend(plan::free_for(self.context.state(), job, cluster, most - nodes.len()));
        nodes
    }

    /// Returns the nodes of a cluster that are held for a negotiation.
    pub(super) fn held_on(&self, job: JobId, id: NegotiationId, cluster: ClusterId) -> Vec<NodeId> {
        let held = self.negotiation(job, id).into_iter().flat_map(|negotiation| negotiation.held.iter().copied());
        held.filter(|node| self.cluster_of(*node) == Some(cluster)).collect()
    }

    /// Replaces held nodes that have become unusable, or withdraws the offer.
    pub(super) fn replace_lost_holds(&mut self, now: Time, step: &mut Step, job: JobId) {
        for id in self.open_negotiations(job) {
            let Some(negotiation) = self.negotiation(job, id) else { continue };
            let is_usable = |node: &NodeId| self.context.state().nodes().get(node).is_some_and(Node::is_usable);
            let (usable, lost): (Vec<NodeId>, Vec<NodeId>) = negotiation.held.iter().partition(|node| is_usable(node));
            if lost.is_empty() {
                continue;
            }
            let named = named_nodes(negotiation.dialogue.promised());
            let left = self.count_by_cluster(&usable);
            let mut nodes = usable;
            let mut is_whole = true;
            for (cluster, n_wanted) in n_promised(negotiation) {
                let n_left = left.get(&cluster).copied().unwrap_or(0);
                let n_missing = n_wanted.saturating_sub(n_left) as usize;
                let mut others = plan::free_for(self.context.state(), job, cluster, n_missing);
                // An agent that is merely away may come back in time.
                let is_away = |node: &&NodeId| {
                    self.context
                        .state()
                        .nodes()
                        .get(node)
                        .is_some_and(|entry| entry.cluster == cluster && is_only_away(entry))
                };
                others.extend(lost.iter().filter(is_away).take(n_missing - others.len()));
                is_whole &= others.len() == n_missing;
                nodes.extend(others);
            }
            is_whole &= named.iter().all(|node| nodes.contains(node));
            if is_whole {
                self.set_held(step, job, id, nodes);
            } else {
                // The offer cannot be kept. A dialogue that has lapsed ends with its next tick.
                let _ = self.act(now, step, job, id, Action::Withdraw(Reason::Lost));
            }
        }
    }

    pub(super) fn pinned_nodes(&self, job: JobId) -> impl Iterator<Item = NodeId> + '_ {
        self.negotiators.pinned_nodes(self.context.state(), job)
    }

    /// Returns the cluster of the job's first node, which stays until the job ends.
    pub(super) fn first_cluster(&self, job: JobId) -> Option<ClusterId> {
        let first = self.context.state().jobs().get(&job)?.started()?.nodes.first()?;
        self.cluster_of(*first)
    }

    /// Returns how many nodes of a cluster the job has.
    pub(super) fn n_nodes_on(&self, job: JobId, cluster: ClusterId) -> u32 {
        let started = self.context.state().jobs().get(&job).and_then(|entry| entry.started());
        started.and_then(|started| started.request.nodes.get(&cluster)).copied().unwrap_or(0)
    }

    /// Returns how many nodes of a cluster the job can give up: not its first node, nor pinned ones.
    pub(super) fn n_spare_on(&self, job: JobId, cluster: ClusterId) -> u32 {
        let first = self.context.state().jobs().get(&job).and_then(|entry| entry.started()?.nodes.first().copied());
        let kept = self.pinned_nodes(job).filter(|node| Some(*node) != first);
        let n_bound = first.into_iter().chain(kept).filter(|node| self.cluster_of(*node) == Some(cluster)).count();
        self.n_nodes_on(job, cluster).saturating_sub(n_bound as u32)
    }

    /// Returns the job's nodes on a cluster without its first node, in the job's order.
    pub(super) fn others_on(&self, job: JobId, cluster: ClusterId) -> impl DoubleEndedIterator<Item = NodeId> + '_ {
        let started = self.context.state().jobs().get(&job).and_then(|entry| entry.started());
        let others = started.into_iter().flat_map(|started| started.nodes.iter().skip(1).copied());
        others.filter(move |node| self.cluster_of(*node) == Some(cluster))
    }

    /// Returns the nodes that an attaching negotiator declares as pinned; if the job has none of the named ones, all.
    pub(super) fn pinned_by(&self, job: JobId, keeps: &Keeps) -> BTreeSet<NodeId> {
        let Some(started) = self.context.state().jobs().get(&job).and_then(|entry| entry.started()) else {
            return BTreeSet::new();
        };
        let stays = |node: &&NodeId| !started.is_leaving(**node);
        let all = || started.nodes.iter().filter(stays).copied().collect();
        let is_named = |names: &[String], node: &NodeId| names.contains(&self.context.state().nodes()[node].name);
        let named: BTreeSet<NodeId> = match keeps {
            Keeps::Nothing => return BTreeSet::new(),
            Keeps::All => return all(),
            Keeps::Nodes(names) => started.nodes.iter().filter(|node| is_named(names, node)).copied().collect(),
        };
        if named.is_empty() { all() } else { named }
    }

    /// Counts these nodes by cluster.
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

/// Returns the nodes that a template names.
pub(super) fn named_nodes(template: Option<&Template>) -> BTreeSet<NodeId> {
    let live = template.into_iter().flat_map(|template| template.items()).filter(|item| item.is_live());
    // Nodes named for cores are held already.
    let of_nodes = live.filter(|item| matches!(item.resource, Resource::Nodes(_)));
    of_nodes.flat_map(|item| item.nodes.iter().copied()).collect()
}

/// Counts, from the dialogue, how many nodes of each cluster the server has promised in a negotiation.
fn n_promised(negotiation: &Negotiation) -> BTreeMap<ClusterId, u64> {
    let promised = negotiation.dialogue.promised().filter(|_| !negotiation.is_handed_over);
    promised.map(Template::nodes_by_cluster).unwrap_or_default()
}

/// Checks that the nodes held for negotiations are exactly those promised, each held once and of the right cluster. For
/// tests and the simulator.
///
/// # Errors
/// The first violation.
pub fn check(state: &State) -> Result<(), HoldError> {
    let mut seen = BTreeSet::new();
    for (job, entry) in state.jobs() {
        let Some(negotiations) = &entry.negotiations else { continue };
        let started = entry.started().ok_or(HoldError::NotRunning(*job))?;
        for negotiation in &negotiations.all {
            let (job, id) = (*job, negotiation.id());
            negotiation.dialogue.check().map_err(|sentence| HoldError::Dialogue { job, id, sentence })?;
            let promised = n_promised(negotiation);
            let mut held: BTreeMap<ClusterId, u64> = promised.keys().map(|cluster| (*cluster, 0)).collect();
            for node in &negotiation.held {
                let entry = state.nodes().get(node).filter(|entry| entry.holders.contains(&job));
                let Some(entry) = entry.filter(|_| !started.nodes.contains(node) && seen.insert(*node)) else {
                    return Err(HoldError::Node { job, id, node: *node });
                };
                *held.entry(entry.cluster).or_default() += 1;
            }
            for (cluster, held) in held {
                let promised = promised.get(&cluster).copied().unwrap_or(0);
                if held != promised {
                    return Err(HoldError::Count { job, id, phase: negotiation.phase(), cluster, held, promised });
                }
            }
        }
        let is_negotiating = negotiations.open().next().is_some();
        if is_negotiating && started.ending.is_some() {
            return Err(HoldError::NotRunning(*job));
        }
    }
    Ok(())
}
