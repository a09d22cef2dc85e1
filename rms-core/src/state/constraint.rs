//! What the nodes of a job must have.

use rms_model::job::Constraint;
use rms_model::{JobSpec, Request};

/// Will any nodes do, whatever size the job starts with?
pub(crate) fn takes_any_nodes(spec: &JobSpec) -> bool {
    // Every node has one CPU.
    let is_one_cpu = |request: &Request| spec.tasks.most_on_a_node(request.n_nodes()) * spec.cpus_per_task <= 1;
    spec.constraint == Constraint::default() && (spec.cpus_per_task == 0 || spec.options.iter().all(is_one_cpu))
}

/// What every node must have if the job starts with this size: CPUs for its share of the tasks, if it asked.
pub(crate) fn constraint_of(spec: &JobSpec, request: &Request) -> Constraint {
    let tasks_here = spec.tasks.most_on_a_node(request.n_nodes());
    let cpus = tasks_here.saturating_mul(spec.cpus_per_task).max(spec.constraint.cpus);
    Constraint { cpus, ..spec.constraint.clone() }
}
