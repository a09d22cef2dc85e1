//! What a job's processes use of a node, nobody else may have: its cores count as its own until they keep off them.

use rms_core::State;

use super::{Rule, Violation};
use crate::node::ModelNode;

pub(crate) fn used_is_kept(state: &State, nodes: &[ModelNode]) -> Result<(), Violation> {
    for node in nodes {
        let Some((id, entry)) = state.nodes().iter().find(|(_, entry)| entry.name == node.name) else { continue };
        let all = entry.inventory.cpus;
        for ((job, run), supervisor) in node.supervisors() {
            let job_entry = state.jobs().get(job).filter(|entry| entry.run == *run && supervisor.is_alive());
            let Some(started) = job_entry.and_then(|entry| entry.started()) else { continue };
            let (used, kept) = (supervisor.cpus(), started.cores_kept_on(*id, all));
            if used > kept {
                let what = format!("job {job}.{run} uses {used} CPUs of {}, and only {kept} are its own", node.name);
                return Err(Rule::Cores.broken(what));
            }
        }
    }
    Ok(())
}
