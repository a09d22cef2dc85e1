//! Keeps free what the server has offered or agreed to give, so that an accept never fails for want of hosts (002).

use std::collections::BTreeSet;

use negotiation::{Action, NegotiationId, Phase, Reason, Resource, Template};
use rms_model::{JobId, NodeAdmin, NodeId, NodeLink, Time};
use thiserror::Error;

use super::talks::Case;
use crate::fact::Fact;
use crate::node::Node;
use crate::plan::evolve::cluster_of;
use crate::rms::Rms;
use crate::state::State;
use crate::step::Step;

impl Rms {
    /// From now on these hosts, and no others, are kept for a negotiation.
    pub(super) fn keep(&mut self, step: &mut Step, job: JobId, id: NegotiationId, nodes: Vec<NodeId>) {
        let Some(case) = self.case(job, id) else { return };
        let is_same = case.held.len() == nodes.len() && nodes.iter().all(|node| case.held.contains(node));
        if is_same {
            return;
        }
        let gives_back = case.held.iter().any(|node| !nodes.contains(node));
        self.record(step, Fact::HostsHeld { job, negotiation: id, nodes });
        self.passes.wanted |= gives_back;
    }

    /// What may be given for a growth: what is kept for it already, then free hosts, plain ones first.
    pub(super) fn givable(&self, job: JobId, id: NegotiationId, most: usize) -> Vec<NodeId> {
        let held = self.case(job, id).into_iter().flat_map(|case| case.held.iter().copied());
        let mut hosts: Vec<NodeId> = held.take(most).collect();
        hosts.extend(self.free_for(job, most - hosts.len()));
        hosts
    }

    /// Hosts that are kept and cannot be had any more are replaced, or what was offered is taken back.
    pub(super) fn mend_holds(&mut self, now: Time, step: &mut Step, job: JobId) {
        for id in self.open_cases(job) {
            let Some(case) = self.case(job, id) else { continue };
            let is_well = |node: &NodeId| self.state.nodes().get(node).is_some_and(Node::is_usable);
            let n_wanted = case.held.len();
            let (well, ill): (Vec<NodeId>, Vec<NodeId>) = case.held.iter().partition(|node| is_well(node));
            if ill.is_empty() {
                continue;
            }
            let named = named_hosts(case.dialogue.promised());
            let mut hosts = well;
            hosts.extend(self.free_for(job, n_wanted - hosts.len()));
            // An agent that is only away may come back in time.
            let is_away = |node: &&NodeId| self.state.nodes().get(node).is_some_and(is_only_away);
            hosts.extend(ill.iter().filter(is_away).take(n_wanted - hosts.len()));
            let is_whole = hosts.len() == n_wanted && named.iter().all(|node| hosts.contains(node));
            if is_whole {
                self.keep(step, job, id, hosts);
            } else {
                // It cannot be kept any more. A dialogue whose time is over ends with its next tick.
                let _ = self.act(now, step, job, id, Action::Withdraw(Reason::Lost));
            }
        }
    }
}

fn is_only_away(entry: &Node) -> bool {
    let is_away = match entry.link {
        NodeLink::Away { .. } => true,
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

/// How many hosts the server has promised in a negotiation, counted from what was said.
fn n_promised(case: &Case) -> u64 {
    let promised = case.dialogue.promised().filter(|_| !case.is_handed_over);
    let live = promised.into_iter().flat_map(|template| template.items()).filter(|item| item.is_live());
    live.filter(|item| matches!(item.resource, Resource::Hosts(_))).map(|item| item.quantity.0).sum()
}

/// What is kept for negotiations is not what was promised: always a bug.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Leak {
    #[error("{job}/{id} is {phase} and holds {held} hosts, but {promised} are promised")]
    Count { job: JobId, id: NegotiationId, phase: Phase, held: u64, promised: u64 },
    #[error("{job}/{id} holds node {node}, which it cannot")]
    Host { job: JobId, id: NegotiationId, node: NodeId },
    #[error("the dialogue {job}/{id} is not right: {sentence}")]
    Dialogue { job: JobId, id: NegotiationId, sentence: &'static str },
    #[error("job {0} does not run, or is being ended, and negotiates")]
    Over(JobId),
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
            let (held, promised) = (case.held.len() as u64, n_promised(case));
            if held != promised {
                return Err(Leak::Count { job, id, phase: case.phase(), held, promised });
            }
            for node in &case.held {
                let is_right = state
                    .nodes()
                    .get(node)
                    .is_some_and(|entry| entry.cluster == cluster_of(&started.request) && entry.holders.contains(&job));
                if !is_right || started.nodes.contains(node) || !seen.insert(*node) {
                    return Err(Leak::Host { job, id, node: *node });
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
