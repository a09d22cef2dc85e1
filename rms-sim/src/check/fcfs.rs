//! Under FCFS a later request never changes an earlier application's view or estimate (001, §5.3.2: changes
//! flow from high to low priority only, therefore views converge).

use rms_core::plan::{Placed, Placement, Scope};
use rms_core::{Fact, Replay, State, plan};
use rms_model::{Outcome, Policy, Time};

use super::{Rule, Violation};

/// Plans with and without the last application, and compares the results of all others.
pub(crate) fn later_requests_change_nothing(state: &State, now: Time) -> Result<(), Violation> {
    let with = plan(state, now, Scope::Views);
    starts_agree(state, now, &with.placements)?;
    match state.settings().policy {
        Policy::Views | Policy::Fcfs | Policy::Slowdown => {}
        // Jobs that start behind the first of the queue, and promises to others, change views.
        Policy::Easy | Policy::Conservative => return Ok(()),
    }
    let Some(last) = with.placements.last() else { return Ok(()) };
    let mut fewer = Replay::of(state.clone());
    let record = state.jobs()[&last.job].record(last.job, now, Outcome::Completed, Vec::new(), (None, None));
    fewer
        .follow(&Fact::JobDone { record: Box::new(record), ghost_until: now, negotiations: Vec::new(), told: None })
        .expect("the job is there");
    let without = plan(fewer.state(), now, Scope::Views);
    others_are_as_without(&with.placements, &without.placements)
}

/// Compares the others' placements. Jobs that move into the queue depth behind them are ignored.
pub(super) fn others_are_as_without(with: &[Placement], without: &[Placement]) -> Result<(), Violation> {
    let Some((last, before)) = with.split_last() else { return Ok(()) };
    let after = without.get(..before.len()).unwrap_or_default();
    if before != after {
        return Err(Rule::Fcfs.broken(format!("with job {}: {before:?}, without: {after:?}", last.job)));
    }
    Ok(())
}

/// Checks that the short pass that starts jobs and the long one that estimates start the same jobs.
fn starts_agree(state: &State, now: Time, estimated: &[Placement]) -> Result<(), Violation> {
    same_starts(&plan(state, now, Scope::Starts).placements, estimated)
}

pub(super) fn same_starts(short: &[Placement], long: &[Placement]) -> Result<(), Violation> {
    let starts = |placements: &[Placement]| -> Vec<Placement> {
        let is_start = |placement: &&Placement| matches!(placement.outcome, Placed::Now { .. });
        placements.iter().filter(is_start).map(|placement| Placement { view: None, ..placement.clone() }).collect()
    };
    let (short, long) = (starts(short), starts(long));
    if short == long {
        return Ok(());
    }
    Err(Rule::Fcfs.broken(format!("the pass starts {short:?}, the estimates say {long:?}")))
}
