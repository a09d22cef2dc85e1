//! The jobs that a pass must consider when nothing was freed since the last one that may let any job start earlier.
//!
//! Under conservative backfilling: jobs without a promise, and jobs whose promised time has come. For all others, the
//! last pass has found nothing earlier.
//!
//! Under EASY, if nothing at all was freed: jobs that no pass has considered. The first waiting job has its reservation
//! at the end of a job that still runs, so the reservation stays. A job behind it was rejected because too few nodes
//! are free, or because it would have held some that the reservation needs. No job has left since, and started ones
//! take more: as many nodes are busy as then, until the first job ends, and the reservation has only come closer. So
//! the result is the same.

use rms_model::{JobId, Time};

use crate::state::{Demand, State};

/// Returns the first waiting job, then those that no pass has considered, in queue order; `None` if others must be
/// considered as well.
pub(super) fn of_easy(state: &State, now: Time) -> Option<Vec<(JobId, &Demand)>> {
    // Jobs beyond the depth were not rejected. No job has left, so at no time did more wait than wait or hold nodes
    // now.
    let all_were_seen = state.depth().is_none_or(|depth| state.n_queued() + state.n_holding() <= depth as usize);
    // Where nodes are held for some jobs, a job is overdue, or the clock has changed, what is busy depends on more than
    // on the jobs that left.
    let is_plain = state.wants_are_plain() && state.evolved().next().is_none() && state.malleable().next().is_none();
    if !all_were_seen || !is_plain || !state.occupation().is_regular(now) {
        return None;
    }
    let n_seen = state.n_queued() - state.unseen().len();
    // A new job may be ahead of them because of its priority.
    let is_new = |(job, _): &(JobId, &Demand)| state.unseen().contains(job);
    let mut arrivals: Vec<(JobId, &Demand)> = state.demands().rev().take_while(is_new).collect();
    if arrivals.len() < state.unseen().len() {
        return None;
    }
    let is_possible = |(_, demand): &(JobId, &Demand)| {
        demand.plain.is_some_and(|plain| demand.least_nodes <= state.n_usable(plain.cluster))
    };
    let first = state.demands().take(n_seen).find(is_possible);
    // It could start, but its launcher is away: the reservation is that of a job behind it.
    if first.is_some_and(|(job, _)| state.jobs()[&job].launcher_away_since().is_some()) {
        return None;
    }
    arrivals.extend(first);
    arrivals.reverse();
    Some(arrivals)
}

/// Returns jobs without a promise and jobs whose promised time has come, in queue order; `None` if others must be
/// considered as well.
pub(super) fn of_conservative(state: &State, now: Time) -> Option<Vec<(JobId, &Demand)>> {
    let all_are_considered = state.depth().is_none_or(|depth| state.n_queued() <= depth as usize);
    let demands = |jobs: &mut dyn Iterator<Item = JobId>| jobs.filter_map(|job| state.demand(job)).collect::<Vec<_>>();
    let mut keyed = demands(&mut state.unseen().iter().copied());
    keyed.retain(|(_, demand)| demand.promised.is_none());
    // A pass may have considered some jobs that fit nowhere.
    let n_without = state.n_queued() - state.n_promised();
    if !all_are_considered || keyed.len() != n_without {
        return None;
    }
    keyed.extend(demands(&mut state.promises().take_while(|(at, _)| *at <= now).map(|(_, job)| job)));
    keyed.sort_unstable_by_key(|(key, _)| *key);
    Some(keyed.into_iter().map(|(key, demand)| (key.job, demand)).collect())
}
