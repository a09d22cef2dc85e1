//! Carries out an agreed growth: the nodes come, for good or for a time, and are ready once the agents say so; or none
//! of them come.

use std::collections::{BTreeMap, BTreeSet};

use negotiation::{Action, Direction, NegotiationId, Quantity, Reason, Resource, Template};
use rms_api::refusal::Refusal;
use rms_model::{ExpandLimit, JobId, NodeId, Span, Time};

use super::Negotiations;
use super::open::ShrinkRequest;
use crate::state::course::{Course, Leg};
use crate::state::fact::Fact;
use crate::state::job::{Job, Share, Started};
use crate::state::negotiations::{JobNegotiations, Loan, Negotiation};
use crate::step::Step;

impl Negotiations<'_> {
    /// Gives the held nodes to the application once the growth is agreed. Accepted is not ready.
    pub(super) fn hand_over(&mut self, now: Time, step: &mut Step, job: JobId, id: NegotiationId) {
        let Some(negotiation) = self.negotiation(job, id) else { return };
        let Some(agreed) = negotiation.dialogue.proposal().cloned() else { return };
        let nodes: Vec<NodeId> = negotiation.held.iter().copied().collect();
        let n_agreed = agreed.n_nodes();
        let more = time_of(agreed.items());
        if !negotiation.is_handed_over
            && let Err(reason) = self.can_be_told(now, job, more)
        {
            let _ = self.act(now, step, job, id, Action::Fail(reason));
            return;
        }
        if n_agreed == 0 {
            return self.carry_out(now, step, job, id, (more, &agreed));
        }
        if nodes.len() as u64 != n_agreed {
            let _ = self.act(now, step, job, id, Action::Fail(Reason::Lost));
            return;
        }
        let Ok(parts) = self.parts_after(now, job, &agreed) else {
            let _ = self.act(now, step, job, id, Action::Fail(Reason::Changed));
            return;
        };
        let course = self.course_of(now, job, self.n_nodes(job) + nodes.len() as u32, more);
        self.change_nodes(now, step, job, nodes.clone(), Vec::new(), course);
        if !parts.is_empty() {
            self.order_parts(now, step, job, id, parts);
        }
        let _ = self.act(now, step, job, id, Action::Commit(nodes.into_iter().collect()));
    }

    /// Checks that the supervisors do not end the job before they are told of what was agreed.
    fn can_be_told(&self, now: Time, job: JobId, more: Span) -> Result<(), Reason> {
        let state = self.context.state();
        let started = state.jobs()[&job].started().ok_or(Reason::Stopping)?;
        if started.is_overdue(now) {
            return Err(Reason::Stopping);
        }
        let is_deaf = !more.is_zero() && state.out_of_reach(started).is_some();
        if is_deaf { Err(Reason::Lost) } else { Ok(()) }
    }

    pub(super) fn is_overdue(&self, now: Time, job: JobId) -> bool {
        self.context.state().jobs()[&job].started().is_some_and(|started| started.is_overdue(now))
    }

    /// Reports the growth as ready once each of the new nodes runs its share.
    pub(super) fn await_arrival(&mut self, now: Time, step: &mut Step, job: JobId, id: NegotiationId) {
        let Some(negotiation) = self.negotiation(job, id) else { return };
        let Some(started) = self.context.state().jobs()[&job].started() else { return };
        if has_arrived(started, negotiation) {
            // The negotiator must know which nodes are ready before it hears that the growth is.
            self.send_holdings(now, step);
            let _ = self.act(now, step, job, id, Action::Ready);
        }
    }

    /// The nodes of growths of which something is not there yet. None of them can be used: if the rest does not come, all
    /// leave again.
    pub(super) fn coming_nodes(&self, job: JobId, started: &Started) -> BTreeSet<NodeId> {
        let open = self.negotiations(job).into_iter().flat_map(JobNegotiations::open);
        let coming = open
            .filter(|negotiation| negotiation.direction() == Direction::Grow && negotiation.is_handed_over)
            .filter(|negotiation| !has_arrived(started, negotiation));
        coming.filter_map(|negotiation| negotiation.dialogue.nodes()).flatten().copied().collect()
    }

    /// Fails the growth to which this node belongs, because the node could not be made ready: all nodes that came with
    /// it leave again.
    pub(crate) fn arrival_failed(&mut self, now: Time, step: &mut Step, job: JobId, node: NodeId) {
        if let Some(id) = self.context.state().jobs()[&job].awaited_in(node) {
            let _ = self.act(now, step, job, id, Action::Fail(Reason::Lost));
        }
    }

    /// Removes the nodes of a failed growth.
    pub(super) fn roll_back(&mut self, now: Time, step: &mut Step, job: JobId, id: NegotiationId) {
        let Some(negotiation) = self.negotiation(job, id) else { return };
        let Some(started) = self.context.state().jobs()[&job].started().filter(|started| started.ending.is_none())
        else {
            return;
        };
        let came = negotiation.dialogue.nodes().into_iter().flatten().copied();
        let freed: Vec<NodeId> = came.filter(|node| started.nodes.contains(node)).collect();
        let more = negotiation.dialogue.proposal().map_or(Span::ZERO, |agreed| time_of(agreed.items()));
        let less = Span::from_millis(-more.as_millis());
        let course = self.course_of(now, job, self.n_nodes(job) - freed.len() as u32, less);
        if !freed.is_empty() {
            self.change_nodes(now, step, job, Vec::new(), freed, course);
        }
    }

    pub(super) fn n_nodes(&self, job: JobId) -> u32 {
        self.context.state().jobs()[&job].started().map_or(0, |started| started.nodes.len() as u32)
    }

    /// Returns the course of the job from now on: `n_nodes` until its end, which is `more` later.
    pub(super) fn course_of(&self, now: Time, job: JobId, n_nodes: u32, more: Span) -> Course {
        let entry = &self.context.state().jobs()[&job];
        let started = entry.started().expect("only a job that runs negotiates");
        let end = started.at + started.request.wall + more;
        let since = started.evolved.as_ref().map_or(started.at, |evolved| evolved.course.current().start);
        let is_same = n_nodes as usize == started.nodes.len();
        let start = if is_same { since } else { now };
        let leg = Leg { nodes: n_nodes, span: end.since(start), start };
        Course { number: 1, legs: vec![leg], limit: ExpandLimit::NONE, open: false, row: Vec::new() }
    }

    pub(super) fn set_course(&mut self, now: Time, step: &mut Step, job: JobId, course: Course) {
        self.context.record(step, Fact::CourseSet { job, at: now, course: Box::new(course) });
        // The negotiator must know the new end before it hears that this is ready.
        self.send_holdings(now, step);
        self.context.launches.remove(&job);
        self.context.passes.wanted = true;
    }

    /// Adds and frees nodes. From the first change on, the job has a course.
    pub(super) fn change_nodes(
        &mut self,
        now: Time,
        step: &mut Step,
        job: JobId,
        gained: Vec<NodeId>,
        freed: Vec<NodeId>,
        course: Course,
    ) {
        let is_first = self.context.state().jobs()[&job].started().is_some_and(|started| started.evolved.is_none());
        if is_first {
            let before = self.course_of(now, job, self.n_nodes(job), Span::ZERO);
            self.context.record(step, Fact::CourseSet { job, at: now, course: Box::new(before) });
        }
        let left = freed.clone();
        // The parts of the new nodes were held for it.
        let (course, grants) = (Box::new(course), BTreeMap::new());
        self.context.record(step, Fact::StageEntered { job, at: now, gained, freed, course, grants });
        self.context.leave_ghosts(now, step, job, &left);
        self.context.launches.remove(&job);
        self.context.passes.wanted = true;
        self.context.announce(step, job);
    }

    /// Calls loans that are due, and takes back what was called without success.
    pub(super) fn call_loans(&mut self, now: Time, step: &mut Step, job: JobId) {
        let loans = self.negotiations(job).map(|negotiations| negotiations.loans.clone()).unwrap_or_default();
        for loan in loans.into_iter().filter(|loan| loan.until <= now) {
            match loan.called {
                Some(by) => self.collect(now, step, job, &loan, by),
                None => self.call(now, step, job, &loan),
            }
        }
    }

    fn call(&mut self, now: Time, step: &mut Step, job: JobId, loan: &Loan) {
        let n_nodes = self.n_lent(job, loan);
        let opened = match n_nodes {
            0 => Err(Refusal::NotNegotiable(job)),
            _ => self.open_shrink(now, step, (job, loan.cluster), &ShrinkRequest::Count(n_nodes, n_nodes), None),
        };
        match opened {
            Ok(by) => {
                let cluster = Some(loan.cluster);
                self.context.record(step, Fact::LoanCalled { job, negotiation: loan.id, cluster, by });
            }
            // The job is giving nodes back already: what is left of the loan is called after that.
            Err(Refusal::AlreadyNegotiating { .. }) => return,
            Err(_) => self.take_loan(now, step, job, loan),
        }
        // The shrink may have been declined at once.
        if let Ok(by) = opened {
            self.collect(now, step, job, loan, by);
        }
    }

    /// Takes what was not given back once the shrink that called the loan is over.
    fn collect(&mut self, now: Time, step: &mut Step, job: JobId, loan: &Loan, by: NegotiationId) {
        let is_open = self.negotiation(job, by).is_some_and(|negotiation| !negotiation.phase().is_over());
        let is_owed = self
            .negotiations(job)
            .is_some_and(|negotiations| negotiations.loans.iter().any(|owed| owed.is_of(loan.id, Some(loan.cluster))));
        if !is_open && is_owed {
            self.take_loan(now, step, job, loan);
        }
    }

    fn take_loan(&mut self, now: Time, step: &mut Step, job: JobId, loan: &Loan) {
        let n_nodes = self.n_lent(job, loan) as usize;
        self.context.record(step, Fact::LoanEnded { job, negotiation: loan.id, cluster: Some(loan.cluster) });
        let others = self.others_on(job, loan.cluster).rev();
        let nodes: Vec<NodeId> = others.filter(|node| self.can_be_taken(job, *node)).take(n_nodes).collect();
        self.free(now, step, job, nodes);
    }

    /// Returns how many of the lent nodes the job can still have.
    fn n_lent(&self, job: JobId, loan: &Loan) -> u32 {
        let mut loans = self.negotiations(job).into_iter().flat_map(|negotiations| &negotiations.loans);
        let owed = loans.find(|owed| owed.is_of(loan.id, Some(loan.cluster))).map_or(0, |owed| owed.nodes);
        let n_others = self.others_on(job, loan.cluster).count() as u32;
        u32::try_from(owed).unwrap_or(u32::MAX).min(n_others)
    }

    /// Returns when the next loan is due that is not called yet and that no other shrink delays.
    pub(super) fn next_loan(&self, job: JobId) -> Option<Time> {
        let is_shrinking = self.open_for(job, Direction::Shrink).is_some();
        let uncalled = self.negotiations(job)?.loans.iter().filter(|loan| loan.called.is_none() && !is_shrinking);
        uncalled.map(|loan| loan.until).min()
    }
}

/// Returns whether all that was agreed is there: each of the new nodes runs its share, and agents keep to new parts.
fn has_arrived(started: &Started, negotiation: &Negotiation) -> bool {
    let has_come = |node: &NodeId| started.shares.get(node).is_some_and(|share| *share != Share::Ordered);
    let is_inside = |agreed: &Template| agreed.items().iter().any(|item| item.resource.is_inside_nodes());
    let is_about_parts = negotiation.dialogue.proposal().is_some_and(is_inside);
    let keeps_to_parts = !is_about_parts || !started.awaits_agents();
    negotiation.dialogue.nodes().is_some_and(|nodes| nodes.iter().all(has_come)) && keeps_to_parts
}

/// Returns the sum of the wall time of these items.
/// Returns whether a negotiation is changing the wall time of a job: if it fails, the change is reverted.
pub(crate) fn is_changing_time(job: &Job) -> bool {
    let open = job.negotiations.iter().flat_map(|negotiations| negotiations.open());
    let agreed = open.filter(|negotiation| negotiation.is_handed_over);
    agreed.filter_map(|negotiation| negotiation.dialogue.proposal()).any(|agreed| !time_of(agreed.items()).is_zero())
}

pub(super) fn time_of(items: &[negotiation::Item]) -> Span {
    let live = items.iter().filter(|item| item.is_live() && item.resource == Resource::Time);
    let millis: u64 = live.map(|item| item.quantity).map(|Quantity(millis)| millis).sum();
    Span::from_millis(i64::try_from(millis).unwrap_or(i64::MAX))
}
