//! Every job ends once faults stop, exactly once, and leaves nothing behind (001, Fig. 4: Finished).

use rms_core::State;

use super::{Checks, Rule, Violation};
use crate::node::ModelNode;

pub(crate) fn everything_ended(checks: &Checks, state: &State, nodes: &[ModelNode]) -> Result<(), Violation> {
    if let Some((job, entry)) = state.jobs().first_key_value() {
        let holders: Vec<_> =
            state.nodes().values().map(|node| (&node.name, node.is_usable(), &node.holders)).collect();
        let word = entry.state().word();
        return Err(Rule::Ends.broken(format!("job {job} is still {word}; the nodes are {holders:?}")));
    }
    if let Some(job) = checks.acknowledged.iter().find(|job| checks.n_done(**job) != 1) {
        return Err(Rule::Ends.broken(format!("job {job} was acknowledged and is done {} times", checks.n_done(*job))));
    }
    for node in nodes {
        if let Some(((job, run), _)) = node.supervisors().first_key_value() {
            return Err(Rule::Ends.broken(format!("{} still keeps job {job}, run {run}", node.name)));
        }
    }
    if let Some(entry) = state.nodes().values().find(|entry| !entry.stale.is_empty()) {
        return Err(Rule::Ends.broken(format!("{} is fenced for ever by {:?}", entry.name, entry.stale)));
    }
    Ok(())
}
