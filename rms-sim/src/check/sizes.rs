//! An application is offered nothing that it has declared useless, and has what was agreed when it is ready.

use std::collections::BTreeMap;

use negotiation::{Dialogue, Direction, Phase, Resource, Side};
use rms_api::negotiate::Declared;
use rms_core::{Fact, State};
use rms_model::{ClusterId, JobId};

use super::{Rule, Violation};

#[derive(Debug, Default)]
pub(super) struct SizesAgreed {
    limits: BTreeMap<JobId, Declared>,
    /// The number of nodes in all clusters after the checked facts; the state may be ahead of them.
    n_nodes: BTreeMap<JobId, u64>,
}

impl SizesAgreed {
    /// Checks a durable fact; `then` is the state with this fact and without those that were written after it in the
    /// same instant; `state` is the one with all of them.
    pub(super) fn durable(&mut self, fact: &Fact, then: &State, state: &State) -> Result<(), Violation> {
        match fact {
            Fact::JobSubmitted { job, spec, .. } => {
                if let Some(malleable) = &spec.malleable {
                    self.limits.insert(*job, Declared::from(malleable));
                }
                Ok(())
            }
            Fact::JobStarted { job, nodes, .. } => {
                self.n_nodes.insert(*job, nodes.len() as u64);
                Ok(())
            }
            Fact::StageEntered { job, gained, freed, .. } => {
                let n_nodes = self.n_nodes.entry(*job).or_default();
                *n_nodes = (*n_nodes + gained.len() as u64).saturating_sub(freed.len() as u64);
                Ok(())
            }
            Fact::LimitsDeclared { job, declared } => {
                self.limits.insert(*job, declared.clone());
                Ok(())
            }
            Fact::DialogueChanged { job, at, dialogue, .. } => {
                let negotiations = then.jobs().get(job).and_then(|entry| entry.negotiations.as_deref());
                // A loan is recalled at its deadline, whatever the application wants to keep.
                if !negotiations.is_some_and(|negotiations| negotiations.loans.iter().any(|loan| loan.until <= *at)) {
                    self.offered(*job, dialogue)?;
                }
                is_ready(*job, dialogue, state)
            }
            _ => Ok(()),
        }
    }

    /// Checks that the server's first offer is within the limits of the application, which apply to all of its nodes.
    fn offered(&self, job: JobId, dialogue: &Dialogue) -> Result<(), Violation> {
        let is_first = dialogue.phase() == Phase::Offered(Side::Rms);
        let Some((template, limits)) = dialogue.proposal().filter(|_| is_first).zip(self.limits.get(&job)) else {
            return Ok(());
        };
        for item in template.items() {
            let Resource::Nodes(_) = item.resource else { continue };
            let n_nodes = self.n_nodes.get(&job).copied().unwrap_or(0);
            let elsewhere = n_nodes.saturating_sub(item.held.0);
            let total = elsewhere + item.total(template.direction(), item.quantity).unwrap_or(0);
            // Lost or lent nodes may have taken it out of its limits.
            let was_within = within(limits, elsewhere + item.held.0);
            if was_within && !within(limits, total) {
                let id = dialogue.id();
                return Err(Rule::Sizes.broken(format!("job {job}, {id} would have {total} nodes: {limits:?}")));
            }
        }
        Ok(())
    }
}

fn within(limits: &Declared, total: u64) -> bool {
    u64::from(limits.least) <= total && total <= u64::from(limits.most)
}

/// Checks when it is ready that nodes that came are there, and nodes that went are not.
fn is_ready(job: JobId, dialogue: &Dialogue, state: &State) -> Result<(), Violation> {
    let entry = state.jobs().get(&job).filter(|_| dialogue.phase() == Phase::Applied);
    let Some((entry, template)) = entry.zip(dialogue.proposal()) else { return Ok(()) };
    let nodes = dialogue.nodes().cloned().unwrap_or_default();
    let mut agreed: BTreeMap<ClusterId, u64> = BTreeMap::new();
    for item in template.items().iter().filter(|item| item.is_live()) {
        let Resource::Nodes(cluster) = item.resource else { continue };
        *agreed.entry(cluster).or_default() += item.quantity.0;
    }
    let id = dialogue.id();
    let n_agreed: u64 = agreed.values().sum();
    // The cluster of a node that was removed since is unknown.
    let known = nodes.iter().filter_map(|node| state.nodes().get(node));
    let are_right = agreed
        .iter()
        .all(|(cluster, quantity)| known.clone().filter(|entry| entry.cluster == *cluster).count() as u64 <= *quantity);
    if nodes.len() as u64 != n_agreed || !are_right {
        return Err(Rule::Sizes.broken(format!("job {job}, {id}: {agreed:?} was agreed, and {nodes:?} changed hands")));
    }
    let is_true = match template.direction() {
        // The application may have lost nodes or given them back in the same instant.
        Direction::Grow => true,
        Direction::Shrink => {
            let leaving = entry.leaving();
            nodes.iter().all(|node| !leaving.contains(node))
        }
    };
    if is_true { Ok(()) } else { Err(Rule::Sizes.broken(format!("job {job}, {id}: it is still on some of {nodes:?}"))) }
}
