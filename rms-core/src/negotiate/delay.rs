//! Whether a growth would delay waiting jobs, and by how much growth has delayed them: small delays add up, and their
//! sum is tolerated up to a limit.

use std::collections::{BTreeMap, BTreeSet};

use negotiation::NegotiationId;
use rms_model::{ClusterId, JobId, NodeId, Span, Time};

use super::Negotiations;
use super::answer::Granted;
use crate::plan::{self, Plan};
use crate::state::State;
use crate::state::job::Job;

/// The starts that waiting jobs would have had without growth. Lost when the server restarts.
#[derive(Debug, Default)]
pub(super) struct UndelayedStarts(BTreeMap<JobId, Time>);

impl UndelayedStarts {
    /// Returns whether this growth would delay any job by more than all growth together may.
    pub(super) fn would_exceed(&self, before: &Plan, after: &Plan, tolerance: Span) -> bool {
        plan::delayed(before, after).any(|(job, before, after)| {
            let latest = self.undelayed_start(job, before) + tolerance;
            after.is_none_or(|after| after > latest)
        })
    }

    /// Notes that a growth is allowed: from now on, the jobs that it delays are compared with their starts without it.
    pub(super) fn note(&mut self, state: &State, before: &Plan, after: &Plan) {
        self.0.retain(|job, _| state.jobs().get(job).is_some_and(Job::is_queued));
        for (job, before, _) in plan::delayed(before, after) {
            let best = self.undelayed_start(job, before);
            self.0.insert(job, best);
        }
    }

    /// Returns the job's start without any growth. Where other jobs have ended early since its first delay, that is the
    /// present estimate.
    fn undelayed_start(&self, job: JobId, estimate: Time) -> Time {
        self.0.get(&job).map_or(estimate, |undelayed| estimate.min(*undelayed))
    }
}

impl Negotiations<'_> {
    /// Returns how many of these nodes of a cluster can be held for a negotiation, beside those held already and what
    /// else it is `given`, without delaying any waiting job beyond the tolerance, nor any stage that was promised. Nodes are
    /// taken in their order.
    pub(super) fn n_without_delay(
        &mut self,
        now: Time,
        (job, id): (JobId, NegotiationId),
        cluster: ClusterId,
        given: &Granted,
        nodes: &[NodeId],
    ) -> usize {
        let n_held = self.held_on(job, id, cluster).len();
        let n_nodes = plan::n_beside_stages(self.context.state(), now, (job, id), (cluster, nodes), given.longer);
        let nodes = &nodes[..n_nodes];
        if self.context.state().n_queued() == 0 || (nodes.len() <= n_held && given.longer.is_zero()) {
            return nodes.len();
        }
        let before = self.context.estimates(now);
        let state = self.context.state();
        // The present plan ignores the time that the job gets with them, and counts only nodes of which no job has a
        // part.
        let is_counted = given.longer.is_zero() && !state.is_shared(cluster);
        let is_sure = is_counted && state.wants_are_plain();
        // Nodes held on other clusters stay held.
        let mut beside: BTreeSet<NodeId> = given.nodes.iter().copied().collect();
        let held = self.negotiation(job, id).into_iter().flat_map(|negotiation| negotiation.held.iter().copied());
        beside.extend(held.filter(|node| self.cluster_of(*node) != Some(cluster)));
        let n_free = plan::room_beside(self.context.state(), &before, (job, id), cluster) as usize;
        let n_surely = if is_counted { n_held + n_free } else { n_held };
        let n_surely = n_surely.min(nodes.len()) as u64;
        let mut found = None;
        let bounds = (n_held as u64, n_surely, nodes.len() as u64);
        let n_granted = self.most_without_delay(bounds, is_sure, |manager, n_nodes| {
            let kept: Vec<NodeId> = beside.iter().chain(&nodes[..n_nodes as usize]).copied().collect();
            let after = plan::plan_if_kept(manager.context.state(), now, (job, id), &kept, given.longer);
            let fits = !manager.negotiators.undelayed.would_exceed(&before, &after, manager.delay_tolerance());
            if fits {
                found = Some((n_nodes, after));
            }
            fits
        });
        if let Some((n_nodes, after)) = found
            && n_nodes == n_granted
        {
            self.negotiators.undelayed.note(self.context.state(), &before, &after);
        }
        n_granted as usize
    }

    /// Returns the most that delays no waiting job beyond the tolerance: between what the job has already and what it
    /// asks for. For `surely` there is room beside all jobs in the present plan.
    ///
    /// Where all jobs can use any nodes, `surely` is all that delays no job. Otherwise it may be more or less, so plans
    /// are made to find out: one with all, one with `surely`. Only a tolerance is searched by bisection.
    fn most_without_delay(
        &mut self,
        (had, surely, all): (u64, u64, u64),
        is_sure: bool,
        mut fits: impl FnMut(&mut Self, u64) -> bool,
    ) -> u64 {
        let is_exact = is_sure && self.delay_tolerance().is_zero();
        if is_exact || (is_sure && surely == all) {
            return surely;
        }
        if fits(self, all) {
            return all;
        }
        let is_between = had < surely && surely < all;
        let mut most = if is_sure || (is_between && fits(self, surely)) { surely } else { had };
        if self.delay_tolerance().is_zero() {
            return most;
        }
        // A larger growth never delays less.
        let mut too_much = all;
        for _ in 0..MAX_HALVINGS {
            let middle = most.midpoint(too_much);
            match middle > most && fits(self, middle) {
                true => most = middle,
                false => too_much = middle,
            }
        }
        most
    }

    /// Returns for how many of the asked milliseconds an application can keep its nodes longer without delaying any
    /// waiting job beyond the tolerance, nor any stage that was promised.
    pub(super) fn longest_extension(&mut self, now: Time, job: JobId, asked: u64) -> u64 {
        let asked = self.in_time_for_stages(now, job, asked);
        if self.context.state().n_queued() == 0 {
            return asked;
        }
        let before = self.context.estimates(now);
        let room = plan::room_after(self.context.state(), &before, job).as_millis().unsigned_abs();
        let is_sure = self.context.state().wants_are_plain();
        self.most_without_delay((0, room.min(asked), asked), is_sure, |manager, more| {
            let after = plan::plan_if_longer(manager.context.state(), now, job, Span::from_millis(more as i64));
            !manager.negotiators.undelayed.would_exceed(&before, &after, manager.delay_tolerance())
        })
    }

    fn in_time_for_stages(&self, now: Time, job: JobId, asked: u64) -> u64 {
        let state = self.context.state();
        let Some(started) = state.jobs()[&job].started() else { return asked };
        let end = started.at + started.request.wall;
        let longest = end + Span::from_millis(i64::try_from(asked).unwrap_or(i64::MAX)).min(Span::MAX_WALL);
        let late = plan::first_late_stage(state, now, started, longest);
        late.map_or(asked, |(at, _)| at.since(end).as_millis().unsigned_abs().min(asked))
    }

    /// Records which jobs the agreed extension delays.
    pub(super) fn note_extension(&mut self, now: Time, job: JobId, more: Span) {
        let is_felt = !self.context.state().wants_are_plain() || !self.delay_tolerance().is_zero();
        if self.context.state().n_queued() > 0 && is_felt {
            let before = self.context.estimates(now);
            let after = plan::plan_if_longer(self.context.state(), now, job, more);
            self.negotiators.undelayed.note(self.context.state(), &before, &after);
        }
    }
}

/// Ten bisections find all but a thousandth of what a tolerance allows.
const MAX_HALVINGS: u32 = 10;
