//! Nodes that were given back become free only when their processes have ended, and they do end: processes that stay
//! are killed.

use rms_core::{Fact, State};
use rms_model::{JobId, NodeId, Span, Time};

use super::{Rule, Violation};
use crate::node::ModelNode;

/// Checks that nodes that the state frees of a job have no processes of it.
pub(super) fn are_clear(fact: &Fact, state: &State, nodes: &[ModelNode]) -> Result<(), Violation> {
    let Fact::NodesFreed { job, nodes: freed } = fact else { return Ok(()) };
    let Some(run) = state.jobs().get(job).map(|entry| entry.run) else { return Ok(()) };
    for node in freed {
        // The processes on an unreachable node are unknown; it is fenced when it comes back.
        let Some(entry) = state.nodes().get(node).filter(|entry| entry.is_connected()) else { continue };
        let model = nodes.iter().find(|model| model.name == entry.name);
        let has_processes = model.is_some_and(|model| model.alive().contains(&(*job, run)));
        let has_them_again = state.jobs().get(job).is_some_and(|entry| entry.nodes().contains(node));
        if has_processes && !has_them_again && !entry.stale.contains(&(*job, run)) {
            return Err(
                Rule::Releases.broken(format!("{} is free of job {job}, whose processes are there", entry.name))
            );
        }
    }
    Ok(())
}

/// Checks, after the last fault, that no job stays on nodes that it was asked to leave, or has left, for longer than
/// the settings allow.
pub(crate) fn nobody_overstays(state: &State, now: Time) -> Result<(), Violation> {
    let settings = state.settings();
    for (job, entry) in state.jobs() {
        let Some(evolved) = entry.started().and_then(|started| started.evolved.as_ref()) else { continue };
        let to_go = settings.release_grace + settings.exit_grace + settings.kill_grace + SLACK;
        let to_be_gone = settings.exit_grace + settings.kill_grace + SLACK;
        let late = |(node, since): (&NodeId, &Time), span: Span| {
            let is_reached = state.nodes().get(node).is_some_and(rms_core::state::node::Node::is_connected);
            is_reached && *since + span < now
        };
        let stays = evolved.departing.iter().find(|entry| late(*entry, to_go));
        let lingers = evolved.leaving.iter().find(|entry| late(*entry, to_be_gone));
        if let Some((node, since)) = stays.or(lingers) {
            return Err(overstays(*job, *node, *since, now));
        }
    }
    Ok(())
}

fn overstays(job: JobId, node: NodeId, since: Time, now: Time) -> Violation {
    Rule::Promises.broken(format!("job {job} was to leave node {node} at {since:?}, and has not at {now:?}"))
}

/// An allowance for what settings do not limit: warnings, and the transit of messages.
const SLACK: Span = Span::from_mins(2);
