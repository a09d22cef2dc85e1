//! Whether a growth would delay waiting jobs, and by how much growth has: small delays add up, and their sum is tolerated.

use std::collections::{BTreeMap, BTreeSet};

use negotiation::NegotiationId;
use rms_model::{ClusterId, JobId, NodeId, Span, Time};

use super::Negotiations;
use crate::plan::{self, Plan};
use crate::state::State;
use crate::state::job::Job;

/// When waiting jobs would have started that a growth has delayed. A server that is started again begins anew.
#[derive(Debug, Default)]
pub(super) struct Undelayed(BTreeMap<JobId, Time>);

impl Undelayed {
    /// Would anybody start later, by this growth, than all growth together may make it?
    pub(super) fn would_exceed(&self, before: &Plan, after: &Plan, tolerance: Span) -> bool {
        plan::delayed(before, after).any(|(job, before, after)| {
            let latest = self.best(job, before) + tolerance;
            after.is_none_or(|after| after > latest)
        })
    }

    /// A growth is allowed: from now on, what it delays is held against what would be without it.
    pub(super) fn note(&mut self, state: &State, before: &Plan, after: &Plan) {
        self.0.retain(|job, _| state.jobs().get(job).is_some_and(Job::is_queued));
        for (job, before, _) in plan::delayed(before, after) {
            let best = self.best(job, before);
            self.0.insert(job, best);
        }
    }

    /// What it could hope for at best. Where others have ended early since, that is earlier than at its first delay.
    fn best(&self, job: JobId, estimate: Time) -> Time {
        self.0.get(&job).map_or(estimate, |undelayed| estimate.min(*undelayed))
    }
}

impl Negotiations<'_> {
    /// How many of these hosts of a cluster can be kept for a negotiation, beside those that are and those that it is
    /// `given` of other clusters, without delaying anybody who waits beyond the tolerance. They are taken in their order.
    pub(super) fn n_undelaying(
        &mut self,
        now: Time,
        (job, id): (JobId, NegotiationId),
        cluster: ClusterId,
        given: &[NodeId],
        hosts: &[NodeId],
    ) -> usize {
        let n_held = self.held_on(job, id, cluster).len();
        if self.context.state().n_queued() == 0 || hosts.len() <= n_held {
            return hosts.len();
        }
        let before = self.context.estimates(now);
        let most = self.longest_delay();
        // What is kept on other clusters goes on being kept.
        let mut beside: BTreeSet<NodeId> = given.iter().copied().collect();
        let held = self.case(job, id).into_iter().flat_map(|case| case.held.iter().copied());
        beside.extend(held.filter(|node| self.cluster_of(*node) != Some(cluster)));
        // More hosts delay no less: the greatest number that delays nobody is found by halving.
        let (mut fits, mut delays) = (n_held, hosts.len() + 1);
        let mut with_them = None;
        while delays - fits > 1 {
            let middle = if delays == hosts.len() + 1 { hosts.len() } else { fits.midpoint(delays) };
            let kept: Vec<NodeId> = beside.iter().chain(&hosts[..middle]).copied().collect();
            let after = plan::plan_if_kept(self.context.state(), now, job, id, &kept);
            match self.negotiators.undelayed.would_exceed(&before, &after, most) {
                false => (fits, with_them) = (middle, Some(after)),
                true => delays = middle,
            }
        }
        if let Some(after) = with_them {
            self.negotiators.undelayed.note(self.context.state(), &before, &after);
        }
        fits
    }

    /// Could an application keep its hosts for so much longer without delaying anybody who waits beyond the tolerance?
    pub(super) fn may_stay(&mut self, now: Time, job: JobId, more: Span) -> bool {
        if self.context.state().n_queued() == 0 {
            return true;
        }
        let before = self.context.estimates(now);
        let after = plan::plan_if_longer(self.context.state(), now, job, more);
        !self.negotiators.undelayed.would_exceed(&before, &after, self.longest_delay())
    }

    /// It will: whom that delays has waited for it from now on.
    pub(super) fn note_stay(&mut self, now: Time, job: JobId, more: Span) {
        if self.context.state().n_queued() > 0 {
            let before = self.context.estimates(now);
            let after = plan::plan_if_longer(self.context.state(), now, job, more);
            self.negotiators.undelayed.note(self.context.state(), &before, &after);
        }
    }
}
