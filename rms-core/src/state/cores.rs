//! How the state changes as running applications get cores on their nodes and give some back.

use negotiation::NegotiationId;
use rms_model::{JobId, NodeId};

use super::{Bumped, Misfit, State};
use crate::state::course::Cores;
use crate::state::job::Share;

impl State {
    /// All nodes hear of it, for what a job finds in its hostfile is the same on each.
    pub(super) fn set_cores(
        &mut self,
        job: JobId,
        by: NegotiationId,
        cores: &[(NodeId, u32)],
        bumped: &mut Bumped<'_>,
    ) -> Result<(), Misfit> {
        let whole: Vec<u32> = cores.iter().map(|(node, _)| self.nodes[node].inventory.cpus).collect();
        self.edit_evolved(job, |shares, evolved| {
            evolved.generation += 1;
            for ((node, n_cores), all) in cores.iter().zip(whole) {
                let Some(place) = evolved.places.get_mut(node) else { continue };
                let was = place.cores.map_or(all, |cores| cores.n_cores);
                let (n_cores, generation) = (*n_cores, evolved.generation);
                // Where no process is left, nobody has to say so.
                let is_in_force = shares.get(node) == Some(&Share::Ended);
                place.cores = Some(Cores { n_cores, was, generation, by, is_in_force });
            }
        })?;
        let negotiation = self.jobs.get_mut(&job).and_then(|entry| entry.negotiations.as_mut()?.get_mut(by));
        if let Some(negotiation) = negotiation {
            negotiation.is_handed_over = true;
        }
        let alive: Vec<NodeId> = self.started_mut(job)?.alive().collect();
        alive.into_iter().for_each(|node| self.bump(node, bumped));
        Ok(())
    }

    /// Its agent has seen to everything up to this generation.
    pub(super) fn cores_in_force(&mut self, job: JobId, node: NodeId, generation: u32) -> Result<(), Misfit> {
        self.edit_evolved(job, |_, evolved| {
            let cores = evolved.places.get_mut(&node).and_then(|place| place.cores.as_mut());
            if let Some(cores) = cores.filter(|cores| cores.generation <= generation) {
                cores.is_in_force = true;
            }
        })
    }
}
