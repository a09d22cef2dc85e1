//! A job has only nodes that it asked for: by name, and contiguous ones (004, §3.2.4).

use rms_core::{Fact, State};
use rms_model::{JobId, NodeId};

use super::{Rule, Violation};

/// Checks a durable fact; `then` is the state with it.
pub(super) fn durable(fact: &Fact, then: &State) -> Result<(), Violation> {
    match fact {
        Fact::JobStarted { job, nodes, .. } => {
            are_allowed(*job, nodes, then)?;
            are_contiguous(*job, nodes, then)
        }
        Fact::StageEntered { job, .. } | Fact::DialogueChanged { job, .. } => {
            let nodes = then.jobs().get(job).map_or(&[][..], |entry| entry.nodes());
            are_allowed(*job, nodes, then)
        }
        _ => Ok(()),
    }
}

fn are_allowed(job: JobId, nodes: &[NodeId], then: &State) -> Result<(), Violation> {
    let Some(entry) = then.jobs().get(&job) else { return Ok(()) };
    let names = nodes.iter().filter_map(|node| Some(&then.nodes().get(node)?.name));
    match names.into_iter().find(|name| !entry.spec.constraint.allows(name)) {
        Some(name) => Err(Rule::Place.broken(format!("job {job} has {name}, but {:?}", entry.spec.constraint))),
        None => Ok(()),
    }
}

fn are_contiguous(job: JobId, nodes: &[NodeId], then: &State) -> Result<(), Violation> {
    let is_contiguous = then.jobs().get(&job).is_some_and(|entry| entry.spec.resources.contiguous);
    if !is_contiguous {
        return Ok(());
    }
    for cluster in then.clusters().keys() {
        let in_order = then.neighbours(*cluster);
        let places: Vec<usize> = (0..in_order.len()).filter(|place| nodes.contains(&in_order[*place])).collect();
        if let Some(gap) = places.windows(2).find(|pair| pair[1] != pair[0] + 1) {
            let names = gap.iter().map(|place| then.nodes()[&in_order[*place]].name.as_str()).collect::<Vec<_>>();
            let what = format!("job {job} has {}, and others between them", names.join(" and "));
            return Err(Rule::Place.broken(what));
        }
    }
    Ok(())
}
