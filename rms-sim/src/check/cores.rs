//! Cores of a node that a job's processes use belong to no other job: they count as the job's own until its processes
//! have left them.

use rms_core::State;
use rms_core::state::job::Share;
use rms_model::Indices;

use super::{Rule, Violation};
use crate::node::ModelNode;

pub(crate) fn used_is_kept(state: &State, nodes: &[ModelNode]) -> Result<(), Violation> {
    for node in nodes {
        let Some((id, entry)) = state.nodes().iter().find(|(_, entry)| entry.name == node.name) else { continue };
        let mut of_all = Indices::default();
        for ((job, run), supervisor) in node.supervisors().iter().filter(|(_, supervisor)| supervisor.is_alive()) {
            let used = supervisor.cores();
            if !of_all.is_disjoint(used) {
                let what =
                    format!("job {job}.{run} uses cores {used} of {}, some of which another one uses", node.name);
                return Err(Rule::Cores.broken(what));
            }
            of_all.insert_all(used);
            let Some(job_entry) = state.jobs().get(job).filter(|entry| entry.run == *run) else { continue };
            let Some(started) = job_entry.started() else { continue };
            let mut beyond = used.clone();
            match job_entry.part_of(*id, &entry.inventory) {
                Some(part) => beyond.remove_all(&part.cores),
                None => beyond.remove_all(&Indices::below(started.cores_kept_on(*id, entry.inventory.cpus))),
            }
            // Lending is told at once, and the processes leave the cores gradually; those on a node that was given up
            // count as ended, and stay until they are fenced.
            let is_given_up = started.shares.get(id) == Some(&Share::Ended);
            let lent = started.sharing.as_ref().filter(|sharing| sharing.awaited.contains(id) || is_given_up);
            if let Some(loan) = lent.and_then(|sharing| sharing.lent.get(id)) {
                beyond.remove_all(&loan.cores);
            }
            if !beyond.is_empty() {
                let what = format!("job {job}.{run} uses cores {beyond} of {}, which are not its own", node.name);
                return Err(Rule::Cores.broken(what));
            }
        }
    }
    Ok(())
}
