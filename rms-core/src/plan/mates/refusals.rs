//! Counts why no running job lends cores to a job that waits.

use rms_api::answer::{Lenders, NeverGuest};
use rms_model::{JobId, Policy, Request, Time};

use super::candidate::{Guest, Offer, running_candidates};
use super::{Mates, SharingRound};
use crate::plan::licences::Licences;
use crate::state::State;

/// Returns why no running job lends cores to a job that is planned to start at `at` (004, §3.2). `None` if it has not
/// asked to share cores.
pub(crate) fn lenders(state: &State, now: Time, job: JobId, request: &Request, at: Time) -> Option<Lenders> {
    let entry = state.jobs().get(&job)?;
    let may_borrow = entry.spec.resources.share && entry.launcher.is_none();
    if state.settings().policy != Policy::Slowdown || !may_borrow {
        return None;
    }
    let never = |never| Some(Lenders { never: Some(never), ..Lenders::default() });
    if entry.spec.evolving.is_some() {
        return never(NeverGuest::Profile);
    }
    let mut clusters = request.nodes.keys();
    let (Some(cluster), None) = (clusters.next(), clusters.next()) else { return never(NeverGuest::Clusters) };
    let mut round = SharingRound::new(state, None);
    let mates = Mates::new(state, now, &mut round);
    let guest = Guest { job, spec: &entry.spec, request, static_end: at + request.wall };
    let shortest = mates.shortest_runtime(*cluster, guest);
    let shares_here = |started: &Request| started.nodes.contains_key(cluster);
    let running = state.holding().filter(|(_, entry)| entry.spec.resources.share);
    let n_sharing = running
        .filter(|(_, entry)| entry.started().is_some_and(|started| shares_here(&started.request)))
        .count() as u32;
    let licences = &entry.spec.resources.licences;
    let lacks_licence = Licences::new(state, now).first_fit(licences, request, now) != Ok(now);
    let ends_no_earlier = !mates.ends_earlier(guest, shortest);
    let mut lenders = Lenders { ends_no_earlier, n_sharing, lacks_licence, ..Lenders::default() };
    let candidates = running_candidates(state, now);
    let candidates = candidates.iter().filter(|candidate| candidate.lender.cluster == *cluster);
    let is_earlier = |offer: &Offer<'_>| mates.ends_earlier(guest, mates.least_runtime(guest, offer, shortest));
    let mut n_free = 0;
    for candidate in candidates {
        n_free += 1;
        let is_slowed = mates.cut_off(*cluster).is_some_and(|cut_off| !candidate.all_below(cut_off, guest));
        if is_slowed {
            lenders.n_slowed += 1;
        } else if candidate.lender.n_nodes > request.n_nodes() {
            lenders.n_larger += 1;
        } else if !mates.offer(candidate, guest, shortest).is_some_and(|offer| is_earlier(&offer)) {
            lenders.n_unfit += 1;
        }
    }
    lenders.n_busy = n_sharing.saturating_sub(n_free);
    Some(lenders)
}
