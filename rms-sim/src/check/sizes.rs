//! An application is offered nothing that it has said to be of no use, and has what was agreed when it is ready.

use std::collections::BTreeMap;

use negotiation::{Dialogue, Direction, Phase, Resource, Side};
use rms_api::negotiate::Declared;
use rms_core::{Fact, State};
use rms_model::{ClusterId, JobId};

use super::{Rule, Violation};

#[derive(Debug, Default)]
pub(super) struct SizesAgreed {
    limits: BTreeMap<JobId, Declared>,
    /// Hosts of all clusters, as far as the facts have come: the state may be further.
    n_hosts: BTreeMap<JobId, u64>,
}

impl SizesAgreed {
    /// `then` is what held with this fact and without those that were written after it in the same instant; `state` with
    /// all of them.
    pub(super) fn durable(&mut self, fact: &Fact, then: &State, state: &State) -> Result<(), Violation> {
        match fact {
            Fact::JobSubmitted { job, spec, .. } => {
                if let Some(malleable) = &spec.malleable {
                    let declared = Declared {
                        least: malleable.least,
                        most: malleable.most,
                        sizes: malleable.sizes.clone(),
                        speedup: malleable.speedup.clone(),
                    };
                    self.limits.insert(*job, declared);
                }
                Ok(())
            }
            Fact::JobStarted { job, nodes, .. } => {
                self.n_hosts.insert(*job, nodes.len() as u64);
                Ok(())
            }
            Fact::StageEntered { job, gained, freed, .. } => {
                let n_hosts = self.n_hosts.entry(*job).or_default();
                *n_hosts = (*n_hosts + gained.len() as u64).saturating_sub(freed.len() as u64);
                Ok(())
            }
            Fact::LimitsDeclared { job, declared } => {
                self.limits.insert(*job, declared.clone());
                Ok(())
            }
            Fact::Talked { job, at, dialogue, .. } => {
                let talks = then.jobs().get(job).and_then(|entry| entry.talks.as_deref());
                // What was lent is asked back when its time is over, whatever the application would keep.
                if !talks.is_some_and(|talks| talks.loans.iter().any(|loan| loan.until <= *at)) {
                    self.offered(*job, dialogue)?;
                }
                is_ready(*job, dialogue, state)
            }
            _ => Ok(()),
        }
    }

    /// The first word of the server: within the limits of the application, which are those of all of its hosts.
    fn offered(&self, job: JobId, dialogue: &Dialogue) -> Result<(), Violation> {
        let is_first = dialogue.phase() == Phase::Offered(Side::Rms);
        let Some((template, limits)) = dialogue.proposal().filter(|_| is_first).zip(self.limits.get(&job)) else {
            return Ok(());
        };
        for item in template.items() {
            let Resource::Hosts(_) = item.resource else { continue };
            let n_hosts = self.n_hosts.get(&job).copied().unwrap_or(0);
            let elsewhere = n_hosts.saturating_sub(item.held.0);
            let total = elsewhere + item.total(template.direction(), item.quantity).unwrap_or(0);
            // Hosts that were lost, or lent, may have taken it out of its limits.
            let was_within = within(limits, elsewhere + item.held.0);
            if was_within && !within(limits, total) {
                let id = dialogue.id();
                return Err(Rule::Sizes.broken(format!("job {job}, {id} would have {total} hosts: {limits:?}")));
            }
        }
        Ok(())
    }
}

fn within(limits: &Declared, total: u64) -> bool {
    u64::from(limits.least) <= total && total <= u64::from(limits.most)
}

/// When it is ready, hosts that came are there, and hosts that went are not.
fn is_ready(job: JobId, dialogue: &Dialogue, state: &State) -> Result<(), Violation> {
    let entry = state.jobs().get(&job).filter(|_| dialogue.phase() == Phase::Applied);
    let Some((entry, template)) = entry.zip(dialogue.proposal()) else { return Ok(()) };
    let hosts = dialogue.hosts().cloned().unwrap_or_default();
    let mut agreed: BTreeMap<ClusterId, u64> = BTreeMap::new();
    for item in template.items().iter().filter(|item| item.is_live()) {
        let Resource::Hosts(cluster) = item.resource else { continue };
        *agreed.entry(cluster).or_default() += item.quantity.0;
    }
    let id = dialogue.id();
    let n_agreed: u64 = agreed.values().sum();
    // Of what was removed since nobody knows the cluster.
    let known = hosts.iter().filter_map(|node| state.nodes().get(node));
    let are_right = agreed
        .iter()
        .all(|(cluster, quantity)| known.clone().filter(|entry| entry.cluster == *cluster).count() as u64 <= *quantity);
    if hosts.len() as u64 != n_agreed || !are_right {
        return Err(Rule::Sizes.broken(format!("job {job}, {id}: {agreed:?} was agreed, and {hosts:?} changed hands")));
    }
    let is_true = match template.direction() {
        // What it has it may have lost or given back in the same instant.
        Direction::Grow => true,
        Direction::Shrink => {
            let leaving = entry.leaving();
            hosts.iter().all(|node| !leaving.contains(node))
        }
    };
    if is_true { Ok(()) } else { Err(Rule::Sizes.broken(format!("job {job}, {id}: it is still on some of {hosts:?}"))) }
}
