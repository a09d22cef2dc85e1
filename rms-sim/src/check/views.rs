//! Views converge: once the system is idle, each launcher's view is that of the plan (001, §4.1 and §5.3.2).

use rms_api::subscription::LauncherView;
use rms_core::plan::Scope;
use rms_core::state::job::{Job, Started};
use rms_core::{State, plan};
use rms_model::profile::{Block, Step};
use rms_model::{ClusterId, JobId, Profile, Time, View};

use super::{Rule, Violation};

/// Compares the views that launchers have assembled from changes with those of a plan made from scratch. Returns how
/// many were compared.
pub(crate) fn held_as_planned<'v>(
    state: &State,
    now: Time,
    held: impl Iterator<Item = (JobId, &'v LauncherView)>,
) -> Result<usize, Violation> {
    // A job that is ended for its wall time is shown until a little after now, whenever that is; so are nodes that an
    // evolving application is leaving, and a late stage is shown from now on.
    let is_overdue = |started: &Started| {
        let evolved = started.evolved.as_ref();
        let is_between = evolved.is_some_and(|it| !it.leaving.is_empty() || it.course.next_change() <= now);
        is_between || started.at + started.request.wall <= now
    };
    if state.jobs().values().filter_map(Job::started).any(is_overdue) {
        return Ok(0);
    }
    let mut n_held = 0;
    let plan = plan(state, now, Scope::Views);
    for (job, held) in held {
        if !state.jobs().get(&job).is_some_and(|entry| entry.is_before_its_start()) {
            continue;
        }
        let planned = plan.placement(job).and_then(|placement| placement.view.as_ref()).unwrap_or(&plan.last_view);
        for cluster in state.clusters().keys() {
            same_cluster(state, now, job, *cluster, held, planned)?;
        }
        n_held += 1;
    }
    Ok(n_held)
}

/// Returns the occupation of the shown nodes if `n_hidden` other nodes take as much of it as they can.
fn beyond(busy: &Profile, n_hidden: i64) -> Profile {
    let steps: Vec<_> = busy.steps().collect();
    let ends = steps.iter().skip(1).map(|step| step.from).chain([Time::NEVER]);
    let block = |(step, until): (&Step, Time)| Block { from: step.from, until, nodes: step.nodes - n_hidden };
    Profile::from_blocks(steps.iter().zip(ends).map(block).filter(|block| block.nodes > 0).collect::<Vec<_>>())
}

fn same_cluster(
    state: &State,
    now: Time,
    job: JobId,
    cluster: ClusterId,
    held: &LauncherView,
    planned: &View,
) -> Result<(), Violation> {
    let free = Profile::new();
    let is_known = held.capacity.contains_key(&cluster);
    let exists = state.nodes().values().any(|node| node.cluster == cluster);
    if is_known != exists {
        let what = format!("job {job} is shown cluster {cluster}: {is_known}; it has nodes: {exists}");
        return Err(Rule::Views.broken(what));
    }
    let seen = held.occupied.get(&cluster).map_or(&free, |occupied| &**occupied).cut_before(now);
    let expected = planned.get(&cluster).unwrap_or(&free).cut_before(now);
    let there = state.nodes().values().filter(|node| node.cluster == cluster && node.is_usable()).count() as u32;
    // A launcher is shown a share of the nodes; what fits on the others does not block it (001, §8).
    let usable = state.settings().choosable_in(&state.clusters()[&cluster], there);
    let expected = beyond(&expected, i64::from(there - usable));
    let capacity = held.capacity.get(&cluster).copied().unwrap_or(0);
    if seen != expected || capacity != usable {
        return Err(Rule::Views.broken(format!(
            "job {job} sees {capacity} nodes of cluster {cluster}, busy {:?}, where the plan has {usable} and {:?}",
            seen.pairs_from(now),
            expected.pairs_from(now)
        )));
    }
    Ok(())
}
