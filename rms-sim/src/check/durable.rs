//! What others were told is durable: acknowledged jobs and results are kept, and `restore(journal)` equals the state.

use std::collections::BTreeSet;

use rms_core::state::job::Share;
use rms_core::{Fact, State};
use rms_model::{JobId, Run};

use super::{Rule, Violation};

/// Checks that a restart would change nothing.
pub(crate) fn restored_is_equal(restored: &State, state: &State, how: &str) -> Result<(), Violation> {
    if restored == state {
        return Ok(());
    }
    let jobs: Vec<&JobId> = state
        .jobs()
        .keys()
        .chain(restored.jobs().keys())
        .filter(|job| state.jobs().get(job) != restored.jobs().get(job))
        .collect();
    let nodes: Vec<_> =
        state.nodes().keys().filter(|node| state.nodes().get(node) != restored.nodes().get(node)).collect();
    Err(Rule::Durable.broken(format!("{how}, the state differs in jobs {jobs:?} and nodes {nodes:?}")))
}

/// Checks that a job whose submit was answered is in the journal.
pub(crate) fn acknowledged_jobs_are_kept(acknowledged: &BTreeSet<JobId>, facts: &[Fact]) -> Result<(), Violation> {
    let submitted = |fact: &Fact| match fact {
        Fact::JobSubmitted { job, .. } | Fact::LauncherSubscribed { job, .. } => Some(*job),
        _ => None,
    };
    let kept: BTreeSet<JobId> = facts.iter().filter_map(submitted).collect();
    match acknowledged.difference(&kept).next() {
        Some(job) => Err(Rule::Durable.broken(format!("job {job} was acknowledged and is not in the journal"))),
        None => Ok(()),
    }
}

/// Checks that a result that a node has removed is in the journal, or is no longer awaited.
pub(crate) fn results_are_kept(forgotten: &[(String, JobId, Run, u32)], durable: &State) -> Result<(), Violation> {
    for (node, job, run, joined) in forgotten {
        let Some(entry) = durable.jobs().get(job).filter(|entry| entry.run == *run) else { continue };
        let id = durable.nodes().iter().find(|(_, entry)| entry.name == *node).map(|(id, _)| *id);
        let share = entry.started().and_then(|started| started.shares.get(&id?).copied());
        let evolved = entry.started().and_then(|started| started.evolved.as_ref());
        let place = evolved.and_then(|evolved| evolved.places.get(&id?));
        // An evolving application that has the node again has a later entry there.
        if place.is_some_and(|place| place.joined > *joined) {
            continue;
        }
        match share {
            Some(Share::Ordered | Share::Running { .. }) => {
                return Err(
                    Rule::Durable.broken(format!("{node} forgot how job {job}, run {run}, ended, before it was known"))
                );
            }
            Some(Share::Ended) | None => {}
        }
    }
    Ok(())
}
