//! Turns the stages of an evolving application into possible requests, or says which stage is impossible.

use rms_api::refusal::Refusal;
use rms_model::job::{Constraint, TaskCount};
use rms_model::{ClusterId, Evolving, Inventory, JobSpec, Request, Span};

use super::describe;
use super::needs::Asked;
use crate::state::State;

/// Checks stages independently of the clusters.
///
/// # Errors
/// A stage without nodes, or stages that together last too long.
pub(crate) fn check_stages(state: &State, evolving: &Evolving) -> Result<(), Refusal> {
    let stages = evolving.stages.stages();
    // The script runs on the first node until the job ends, so one node is always needed.
    let is_empty = stages.is_empty() || stages.iter().any(|stage| stage.nodes == 0);
    if is_empty {
        return Err(Refusal::EmptyStage);
    }
    let (wall, max) = (evolving.stages.span(), state.settings().max_wall);
    if wall > max { Err(Refusal::WallTooLong { wall, max }) } else { Ok(()) }
}

/// Converts the number of tasks to a number on each node, because it changes with the nodes.
///
/// # Errors
/// A number of tasks that is not a multiple of the nodes of the first stage.
pub(super) fn tasks_of_stages(evolving: &Evolving, tasks: TaskCount) -> Result<TaskCount, Refusal> {
    let first = evolving.stages.stages().first().map_or(0, |first| first.nodes);
    match tasks {
        TaskCount::PerNode(n_tasks) => Ok(TaskCount::PerNode(n_tasks)),
        TaskCount::Total(n_tasks) if first > 0 && n_tasks.is_multiple_of(first) => {
            Ok(TaskCount::PerNode(n_tasks / first))
        }
        TaskCount::Total(n_tasks) => Err(Refusal::TasksOfStages { n_tasks, first }),
    }
}

/// Returns the options of a waiting application that announces other stages, on its possible clusters.
///
/// # Errors
/// As for a submission.
pub(crate) fn evolving_options(state: &State, spec: &JobSpec, evolving: &Evolving) -> Result<Vec<Request>, Refusal> {
    let clusters: Vec<ClusterId> = spec.options.iter().flat_map(|request| request.nodes.keys().copied()).collect();
    options(state, &clusters, &Asked::of(spec), evolving)
}

/// Returns a request for the peak for the whole time, on each cluster with enough nodes where a job may have as many.
///
/// # Errors
/// The first stage for which no cluster has enough nodes, or more CPUs than a job may have.
pub(super) fn options(
    state: &State,
    clusters: &[ClusterId],
    asked: &Asked<'_>,
    evolving: &Evolving,
) -> Result<Vec<Request>, Refusal> {
    check_stages(state, evolving)?;
    // The tasks are counted on each node.
    let needs = asked.on_each_of(1);
    let n_eligible = |cluster: &ClusterId| -> u32 {
        let is_eligible = |(inventory, _): &(&Inventory, u32)| needs.are_met_by(inventory);
        let kinds = state.kinds_allowed(*cluster, asked.constraint).into_iter();
        kinds.filter(is_eligible).map(|(_, n_alike)| n_alike).sum()
    };
    let (peak, wall): (u32, Span) = (evolving.stages.peak(), evolving.stages.span());
    let large_enough: Vec<&ClusterId> = clusters.iter().filter(|cluster| n_eligible(cluster) >= peak).collect();
    let check = |cluster: &ClusterId| asked.check_limit(state, *cluster, (peak, peak));
    let is_allowed = |cluster: &&&ClusterId| check(cluster).is_ok();
    let allowed = large_enough.iter().filter(is_allowed);
    let options: Vec<Request> = allowed.map(|cluster| Request::on_one(**cluster, peak, wall)).collect();
    if !options.is_empty() {
        return Ok(options);
    }
    large_enough.iter().try_for_each(|cluster| check(cluster))?;
    let largest = clusters.iter().map(n_eligible).max().unwrap_or(0);
    let idx = evolving.stages.stages().iter().position(|stage| stage.nodes > largest).unwrap_or(0);
    let counts: Vec<String> = clusters
        .iter()
        .map(|cluster| format!("{} in cluster {}", n_eligible(cluster), state.clusters()[cluster]))
        .collect();
    Err(Refusal::StageTooLarge {
        stage: idx + 1,
        wanted: evolving.stages.stages()[idx].nodes,
        possible: format!(
            "{}{}",
            counts.join(", "),
            describe(&Constraint { cpus: needs.cpus, memory: needs.memory, ..asked.constraint.clone() })
        ),
    })
}
