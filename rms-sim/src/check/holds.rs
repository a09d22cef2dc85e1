//! Exactly what is offered is held, and only once: recomputed from the stored dialogues (002, and
//! `docs/negotiation.md`: the server holds what it offers).

use std::collections::BTreeMap;

use negotiation::{Direction, Item, Resource, SetRule, Template};
use rms_core::State;
use rms_core::state::negotiations::Negotiation;
use rms_model::{ClusterId, JobId, NodeId};

use super::{Rule, Violation};

pub(crate) fn held_is_promised(state: &State) -> Result<(), Violation> {
    let mut holders: BTreeMap<NodeId, JobId> = BTreeMap::new();
    for (job, entry) in state.jobs() {
        // A job that shares nodes has its own parts there, which the state's own check compares.
        let is_alone = |node: &NodeId| {
            let known = state.nodes().get(node);
            known.is_some_and(|known| entry.part_of(*node, &known.inventory).is_none())
        };
        let mine = entry.nodes().iter().chain(&entry.leaving()).copied().filter(is_alone).collect::<Vec<_>>();
        let all = entry.negotiations.iter().flat_map(|negotiations| &negotiations.all);
        let held = all.clone().flat_map(|negotiation| negotiation.held.iter().copied()).filter(is_alone);
        for node in mine.into_iter().chain(held) {
            if let Some(other) = holders.insert(node, *job) {
                return Err(Rule::Holds.broken(format!("node {node} is kept for job {job}, and for job {other}")));
            }
        }
        for negotiation in all {
            for cluster in state.clusters().keys().copied() {
                let (least, most) = promised(negotiation, cluster);
                let is_here = |node: &&NodeId| state.nodes().get(node).is_some_and(|entry| entry.cluster == cluster);
                let n_held = negotiation.held.iter().filter(is_here).count() as u64;
                if n_held < least || n_held > most {
                    let (id, phase) = (negotiation.id(), negotiation.phase());
                    return Err(Rule::Holds.broken(format!(
                        "job {job}, {id} is {phase}: {n_held} nodes of cluster {cluster} are held, where {least} to \
                         {most} are promised"
                    )));
                }
            }
        }
    }
    Ok(())
}

/// Returns the fewest and the most nodes of a cluster that must be held, so that an accept of any standing proposal can
/// be kept.
fn promised(negotiation: &Negotiation, cluster: ClusterId) -> (u64, u64) {
    let promised = negotiation.dialogue.promised().filter(|template| template.direction() == Direction::Grow);
    match promised.filter(|_| !negotiation.is_handed_over) {
        Some(template) => (fewest(template, cluster), of_cluster(template.items().iter(), cluster).sum()),
        None => (0, 0),
    }
}

fn of_cluster<'a>(items: impl Iterator<Item = &'a Item>, cluster: ClusterId) -> impl Iterator<Item = u64> {
    items.filter(move |item| item.is_live() && item.resource == Resource::Nodes(cluster)).map(|item| item.quantity.0)
}

/// Counts only one of several alternatives.
fn fewest(template: &Template, cluster: ClusterId) -> u64 {
    let of_set = |(set, rule): (usize, &SetRule)| {
        let members = template.items().iter().filter(|item| usize::from(item.set) == set);
        let nodes = of_cluster(members, cluster);
        match rule {
            SetRule::All | SetRule::AnyOf => nodes.sum::<u64>(),
            SetRule::OneOf => nodes.max().unwrap_or(0),
        }
    };
    template.rules().iter().enumerate().map(of_set).sum()
}
