//! Whom a pass must look at though nothing was freed since the last one that may let anybody start earlier.
//!
//! Under conservative backfilling those that were promised nothing, and those whose time has come: for all others the
//! last pass has found that there is nothing earlier.
//!
//! Under EASY those that no pass has seen, if nothing at all was freed. The first that waits has its reservation at the end of a job that still runs, so it is where it was. Who was refused
//! behind it was refused because too few nodes are free, or because it would have held some that the reservation needs.
//! Nobody has left since, and what has started takes more: as many are busy as then, until the first job ends, and the
//! reservation has only come closer. So the answer is the same.

use rms_model::{JobId, Time};

use crate::state::{Demand, State};

/// The first that waits, then those that no pass has seen, in the order of the queue. `None` where others have to be
/// looked at as well.
pub(super) fn of_easy(state: &State, now: Time) -> Option<Vec<(JobId, &Demand)>> {
    // Who was beyond the depth was not refused. Nobody has left, so no more have waited than wait or hold nodes now.
    let all_were_seen = state.depth().is_none_or(|depth| state.n_queued() + state.n_holding() <= depth as usize);
    // Where nodes are kept for some, or somebody should have left or has come from another time, what is busy depends on
    // more than on who has left.
    let is_plain = state.wants_are_plain() && state.evolved().next().is_none() && state.malleable().next().is_none();
    if !all_were_seen || !is_plain || !state.occupation().is_regular(now) {
        return None;
    }
    let n_seen = state.n_queued() - state.unseen().len();
    // Somebody may have come before them, by his priority.
    let is_new = |(job, _): &(JobId, &Demand)| state.unseen().contains(job);
    let mut arrivals: Vec<(JobId, &Demand)> = state.demands().rev().take_while(is_new).collect();
    if arrivals.len() < state.unseen().len() {
        return None;
    }
    let is_possible = |(_, demand): &(JobId, &Demand)| {
        demand.plain.is_some_and(|plain| demand.least_nodes <= state.n_usable(plain.cluster))
    };
    arrivals.extend(state.demands().take(n_seen).find(is_possible));
    arrivals.reverse();
    Some(arrivals)
}

/// Those without a promise and those whose promised time has come, in the order of the queue. `None` where others have to
/// be looked at as well.
pub(super) fn of_conservative(state: &State, now: Time) -> Option<Vec<(JobId, &Demand)>> {
    let all_are_considered = state.depth().is_none_or(|depth| state.n_queued() <= depth as usize);
    let demands = |jobs: &mut dyn Iterator<Item = JobId>| jobs.filter_map(|job| state.demand(job)).collect::<Vec<_>>();
    let mut keyed = demands(&mut state.unseen().iter().copied());
    keyed.retain(|(_, demand)| demand.promised.is_none());
    // A pass may have seen some that fit nowhere.
    let n_without = state.n_queued() - state.n_promised();
    if !all_are_considered || keyed.len() != n_without {
        return None;
    }
    keyed.extend(demands(&mut state.promises().take_while(|(at, _)| *at <= now).map(|(_, job)| job)));
    keyed.sort_unstable_by_key(|(key, _)| *key);
    Some(keyed.into_iter().map(|(key, demand)| (key.job, demand)).collect())
}
