//! A job that requested contiguous nodes starts on such nodes (004, §3.2.4).

use rms_core::{Fact, State};

use super::{Rule, Violation};

/// Checks a durable fact; `then` is the state with it.
pub(super) fn durable(fact: &Fact, then: &State) -> Result<(), Violation> {
    let Fact::JobStarted { job, nodes, .. } = fact else { return Ok(()) };
    let is_contiguous = then.jobs().get(job).is_some_and(|entry| entry.spec.resources.contiguous);
    if !is_contiguous {
        return Ok(());
    }
    for cluster in then.clusters().keys() {
        let in_order = then.neighbours(*cluster);
        let places: Vec<usize> = (0..in_order.len()).filter(|place| nodes.contains(&in_order[*place])).collect();
        if let Some(gap) = places.windows(2).find(|pair| pair[1] != pair[0] + 1) {
            let names = gap.iter().map(|place| then.nodes()[&in_order[*place]].name.as_str()).collect::<Vec<_>>();
            let what = format!("job {job} has {}, and others between them", names.join(" and "));
            return Err(Rule::Together.broken(what));
        }
    }
    Ok(())
}
