//! Every negotiation ends in its time: once a proposal has lapsed, or what was agreed is overdue, the server has ended
//! it.

use rms_core::State;
use rms_model::Time;

use super::{Rule, Violation};

/// Checks the server after it has done all that was due now. `next` is when it asks to be called again.
pub(crate) fn nothing_is_overdue(state: &State, now: Time, next: Option<Time>) -> Result<(), Violation> {
    for (job, entry) in state.jobs() {
        for negotiation in entry.negotiations.iter().flat_map(|negotiations| negotiations.open()) {
            let ends = negotiation.dialogue.lapses().or(negotiation.dialogue.due());
            let Some(ends) = ends else {
                let (id, phase) = (negotiation.id(), negotiation.phase());
                return Err(Rule::Timely.broken(format!("job {job}, {id} is {phase} and has no end")));
            };
            let wakes_in_time = next.is_some_and(|next| next <= ends);
            if ends <= now || !wakes_in_time {
                let (id, phase) = (negotiation.id(), negotiation.phase());
                return Err(Rule::Timely.broken(format!(
                    "job {job}, {id} is {phase} at {now:?} and should end at {ends:?}; the server wakes at {next:?}"
                )));
            }
        }
    }
    Ok(())
}
