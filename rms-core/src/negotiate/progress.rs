//! Advances each negotiation as far as possible: at each event, at a timer, after a pass, and at its end.

use negotiation::{Action, Direction, Ending, NegotiationId, Phase, Reason, Resource, Side, Statement};
use rms_api::answer::Answer;
use rms_api::negotiate::{AskOutcome, NegotiatorNotice};
use rms_model::{JobId, Outcome, Span, Time};

use super::{Negotiations, Negotiators};
use crate::effect::Effect;
use crate::state::job::Started;
use crate::state::negotiations::Negotiation;
use crate::step::Step;

impl Negotiators {
    /// Returns when the next negotiation is due.
    pub(crate) fn next_wake(&self) -> Option<Time> {
        self.wakes.first().map(|(at, _)| *at)
    }

    /// Returns when a declined change may be offered again.
    pub(crate) fn next_offer(&self) -> Option<Time> {
        self.refusals.next_due()
    }
}

impl Negotiations<'_> {
    /// Advances every negotiation of a job as far as possible, and schedules the next review.
    pub(super) fn review(&mut self, now: Time, step: &mut Step, job: JobId) {
        let is_running = self.negotiations(job).is_some()
            && self.context.state().jobs()[&job].started().is_some_and(|started| started.ending.is_none());
        if is_running {
            self.tick_dialogues(now, step, job);
            self.replace_lost_holds(now, step, job);
            for id in self.open_negotiations(job) {
                self.progress(now, step, job, id);
            }
            self.end_departures(now, step, job);
            self.call_loans(now, step, job);
        }
        self.schedule(job);
    }

    /// Advances one negotiation until another party must speak or act.
    pub(super) fn progress(&mut self, now: Time, step: &mut Step, job: JobId, id: NegotiationId) {
        let place =
            |negotiation: &Negotiation| (negotiation.phase(), negotiation.dialogue.round(), negotiation.is_handed_over);
        while let Some(negotiation) = self.negotiation(job, id) {
            let (before, direction) = (place(negotiation), negotiation.direction());
            match (negotiation.phase(), direction) {
                (Phase::Offered(Side::Application) | Phase::Countered(Side::Application), Direction::Grow) => {
                    self.answer_growth(now, step, job, id);
                }
                (Phase::Offered(Side::Application) | Phase::Countered(Side::Application), Direction::Shrink) => {
                    self.answer_shrink(now, step, job, id);
                }
                (Phase::Offered(Side::Rms) | Phase::Countered(Side::Rms), _) => {
                    self.answer_as_proxy(now, step, job, id);
                }
                (Phase::Accepted, Direction::Grow) => self.hand_over(now, step, job, id),
                (Phase::Accepted, Direction::Shrink) => self.await_release(now, step, job, id),
                (Phase::Committing, Direction::Grow) => self.await_arrival(now, step, job, id),
                (Phase::Committing, Direction::Shrink) => self.await_departure(now, step, job, id),
                // These phases occur only at the application's end.
                (Phase::Idle | Phase::Pledged | Phase::Leaving | Phase::Failing, _) => {}
                (Phase::Applied | Phase::Ended(_), _) => {}
            }
            if self.negotiation(job, id).is_none_or(|negotiation| place(negotiation) == before) {
                return;
            }
        }
    }

    /// Cleans up after a negotiation that has just ended, successfully or not.
    pub(super) fn close(&mut self, now: Time, step: &mut Step, job: JobId, id: NegotiationId) {
        let Some(negotiation) = self.negotiation(job, id) else { return };
        let (phase, direction, opened) = (negotiation.phase(), negotiation.direction(), negotiation.opened);
        let is_handed_over = negotiation.is_handed_over;
        self.note_outcome(now, job, id);
        self.negotiators.waiting.remove(&(opened, job, id));
        self.set_held(step, job, id, Vec::new());
        match (phase, direction) {
            (Phase::Ended(Ending::Failed), Direction::Grow) if is_handed_over => self.roll_back(now, step, job, id),
            (Phase::Ended(Ending::Failed), Direction::Shrink) if !is_handed_over => self.cancel_departure(step, job),
            (Phase::Applied, Direction::Shrink) => self.give_back_time(now, step, job, id),
            (_, Direction::Grow | Direction::Shrink) => {}
        }
        if phase == Phase::Ended(Ending::Failed) && is_handed_over {
            self.roll_back_parts(now, step, job, id);
            self.roll_back_time(now, step, job, id);
        }
        self.answer_ask(now, step, job, id);
        // Review what waited for this end, such as a loan that was called by it.
        self.context.review_later(job);
        self.context.passes.wanted = true;
    }

    /// Answers the caller that asked for this negotiation.
    fn answer_ask(&mut self, now: Time, step: &mut Step, job: JobId, id: NegotiationId) {
        let Some(ticket) = self.negotiators.tickets.remove(&(job, id)) else { return };
        let Some(negotiation) = self.negotiation(job, id) else { return };
        let outcome = match negotiation.phase() {
            Phase::Applied => AskOutcome::Ready {
                negotiation: id,
                quantity: super::records::quantity(negotiation),
                nodes: negotiation.nodes.clone(),
                generation: self.context.state().jobs()[&job].started().map_or(1, Started::generation),
                n_rounds: negotiation.dialogue.round(),
            },
            Phase::Idle
            | Phase::Offered(_)
            | Phase::Countered(_)
            | Phase::Pledged
            | Phase::Leaving
            | Phase::Accepted
            | Phase::Committing
            | Phase::Failing
            | Phase::Ended(_) => {
                let reason = negotiation.dialogue.reason().unwrap_or(Reason::Stopping);
                let free = self.too_few(job, negotiation, reason);
                let short = self.shortage(now, job, negotiation).filter(|_| reason == Reason::Price);
                AskOutcome::Failed { negotiation: id, reason, free, short }
            }
        };
        step.order(Effect::Answer { ticket, answer: Ok(Answer::Negotiated(outcome)) });
    }

    /// Returns how many nodes are free for a failed ask, if they are fewer than its least.
    fn too_few(&self, job: JobId, negotiation: &Negotiation, reason: Reason) -> Option<u32> {
        let [item] = negotiation.dialogue.proposal()?.items() else { return None };
        let Resource::Nodes(cluster) = item.resource else { return None };
        let is_short = reason == Reason::NoResources && negotiation.direction() == Direction::Grow;
        let n_free = self.grantable(job, negotiation.id(), cluster, usize::MAX).len() as u64;
        (is_short && n_free < item.terms.least.0).then_some(n_free as u32)
    }

    /// Reviews the jobs that an event has changed, at its end, and tells their negotiators.
    pub(crate) fn review_changed(&mut self, now: Time, step: &mut Step) {
        // Each review can only finish something, so the loop ends.
        while let Some(job) = self.context.to_review.pop_first() {
            if self.context.state().jobs().contains_key(&job) {
                self.review(now, step, job);
            }
        }
        self.send_holdings(now, step);
    }

    /// Handles the timers that are due.
    pub(crate) fn tick_negotiations(&mut self, now: Time, step: &mut Step) {
        while let Some((at, job)) = self.negotiators.wakes.first().copied()
            && at <= now
        {
            self.end_unattended(now, step, job);
            self.end_overdue(now, step, job);
            self.review(now, step, job);
            // A job that is still due after its review is scheduled later, or this loop would not end.
            if self.negotiators.wake_of.get(&job) == Some(&at) {
                self.wake(job, Some(now + Span::from_millis(1)));
            }
        }
    }

    /// Serves growth that waits for nodes, after a pass: by priority, then in the order of the requests.
    pub(crate) fn serve_waiting(&mut self, now: Time, step: &mut Step) {
        for (_, job, id) in self.waiting_growth() {
            if self.negotiation(job, id).is_some() {
                self.progress(now, step, job, id);
                self.schedule(job);
            }
        }
    }

    /// Runs the timers of the dialogues: proposals lapse, and unacknowledged messages are sent again.
    pub(super) fn tick_dialogues(&mut self, now: Time, step: &mut Step, job: JobId) {
        for id in self.open_negotiations(job) {
            let is_in_vain = self.negotiation(job, id).is_some_and(|negotiation| {
                let waits = matches!(
                    negotiation.phase(),
                    Phase::Offered(Side::Application) | Phase::Countered(Side::Application)
                );
                let is_growth = negotiation.direction() == Direction::Grow;
                waits && is_growth && Negotiations::decision_deadline(negotiation).is_some_and(|at| at <= now)
            });
            if is_in_vain {
                // Offer what there is now, or answer that there is nothing; if it is too late even for that, the
                // proposal lapses.
                self.answer_growth(now, step, job, id);
            }
        }
        let output = self.dialogues(job).tick(now);
        let ids: Vec<NegotiationId> = output.changes.iter().map(|change| change.id).collect();
        for id in ids {
            self.record_dialogue(now, step, job, id, None);
        }
        self.send(step, job, output);
    }

    /// Schedules the next review of a job.
    pub(super) fn schedule(&mut self, job: JobId) {
        let at = self.next_wake(job);
        self.wake(job, at);
    }

    fn wake(&mut self, job: JobId, at: Option<Time>) {
        if let Some(before) = self.negotiators.wake_of.remove(&job) {
            self.negotiators.wakes.remove(&(before, job));
        }
        if let Some(at) = at {
            self.negotiators.wakes.insert((at, job));
            self.negotiators.wake_of.insert(job, at);
        }
    }

    fn next_wake(&self, job: JobId) -> Option<Time> {
        let entry = self.context.state().jobs().get(&job)?;
        let started = entry.started().filter(|started| started.ending.is_none())?;
        let negotiations = entry.negotiations.as_deref().into_iter();
        let dialogues = self.negotiators.dialogues.get(&job).and_then(negotiation::Dialogues::next_deadline);
        let all = negotiations.flat_map(|all| all.open()).filter_map(|negotiation| self.due_of(negotiation));
        let departing = started.evolved.iter().flat_map(|evolved| evolved.departing.values());
        let departures = departing.map(|since| *since + self.promise_span());
        let loans = self.next_loan(job);
        let silence = self.reattach_deadline(job);
        let end = self.ends_by_itself(job).then(|| started.until() + Span::from_millis(1));
        dialogues.into_iter().chain(all).chain(departures).chain(loans).chain(silence).chain(end).min()
    }

    fn due_of(&self, negotiation: &Negotiation) -> Option<Time> {
        match (negotiation.phase(), negotiation.direction()) {
            (Phase::Offered(Side::Application) | Phase::Countered(Side::Application), Direction::Grow) => {
                Negotiations::decision_deadline(negotiation)
            }
            // The agents must report next.
            (Phase::Accepted, Direction::Shrink) if negotiation.is_handed_over => None,
            (Phase::Accepted, Direction::Shrink) if !negotiation.is_warned => {
                Some(negotiation.since() + self.promise_span())
            }
            (Phase::Accepted, Direction::Shrink) => negotiation.taken_at(self.context.state().settings()),
            (Phase::Offered(_) | Phase::Countered(_), _) => None,
            (Phase::Accepted, Direction::Grow) | (Phase::Committing | Phase::Failing, _) => None,
            (Phase::Idle | Phase::Pledged | Phase::Leaving | Phase::Applied | Phase::Ended(_), _) => None,
        }
    }

    /// Proposes changes after a pass has started all that can start: clears drained nodes first, then makes room for
    /// waiting jobs and growth, then offers idle nodes.
    pub(crate) fn propose_changes(&mut self, now: Time, step: &mut Step) {
        if !self.has_resizable() {
            return;
        }
        self.clear_drained(now, step);
        if self.context.state().longest_expected().is_some() {
            // After a restart, nodes may be needed or become free in a moment: ask and offer nothing until then.
            return;
        }
        let mut gathering = self.make_room(now, step);
        self.make_room_for_growth(now, step, &mut gathering);
        self.offer_idle(now, step, &gathering);
    }

    /// Returns when a change that is declined now may be proposed again. Never at once: an application that always
    /// declines would be asked in an endless loop.
    pub(super) fn retry_time(&self, now: Time) -> Time {
        now + self.context.state().settings().offer_again.max(Span::from_secs(1))
    }

    /// Forgets old refusals: the next pass may propose the same again.
    pub(crate) fn forget_refusals(&mut self, now: Time) {
        self.context.passes.wanted |= self.negotiators.refusals.expire(now);
    }

    /// Remembers the outcome of a negotiation. What was declined of a proposal of the server is not proposed again
    /// soon. An application that gives nodes back on its own initiative is not offered as many at once: it does not
    /// want them. One that gave nodes for another job may have them again as soon as no job waits.
    pub(super) fn note_outcome(&mut self, now: Time, job: JobId, id: NegotiationId) {
        let Some(negotiation) = self.negotiation(job, id) else { return };
        let until = self.retry_time(now);
        let (direction, declined, agreed) = (negotiation.direction(), n_declined(negotiation), n_agreed(negotiation));
        let is_drained = names_nodes(negotiation);
        match (id.initiator, direction) {
            (Side::Rms, Direction::Grow) => self.negotiators.refusals.note(job, direction, declined, until),
            (Side::Rms, Direction::Shrink) => {
                self.negotiators.refusals.note(job, direction, declined, until);
                // An application that only leaves drained nodes may have others for them.
                if !is_drained {
                    self.negotiators.refusals.note_given(job, agreed, until);
                }
            }
            // What it has declined before still counts.
            (Side::Application, Direction::Shrink) if agreed > 0 => {
                let declined = self.negotiators.refusals.nodes(job, Direction::Grow).max(agreed);
                self.negotiators.refusals.note(job, Direction::Grow, declined, until);
            }
            (Side::Application, Direction::Shrink) => {}
            (Side::Application, Direction::Grow) => {}
        }
    }

    /// Ends the negotiations of a job that ends: releases what is held for it, and tells its negotiator.
    pub(crate) fn end_negotiations(&mut self, now: Time, step: &mut Step, job: JobId, outcome: &Outcome) {
        for id in self.open_negotiations(job) {
            let withdrawn = self.act(now, step, job, id, Action::Withdraw(Reason::Stopping));
            if withdrawn.is_err() {
                // A proposal that lapses at this moment ends by its timer.
                if self.act(now, step, job, id, Action::Fail(Reason::Stopping)).is_err() {
                    self.tick_dialogues(now, step, job);
                }
            }
        }
        if self.negotiators.attached.remove(&job).is_some() {
            let notice = NegotiatorNotice::Ended { outcome: outcome.clone() };
            step.order(Effect::TellNegotiator { job, notice });
        }
        self.forget_negotiations(job);
    }

    /// Ends the negotiations of a job whose wall time is over: its supervisors end it on their own, and it may use its
    /// grace time.
    fn end_overdue(&mut self, now: Time, step: &mut Step, job: JobId) {
        if self.ends_by_itself(job) && self.is_overdue(now, job) {
            self.end_negotiations(now, step, job, &Outcome::WallTime);
        }
    }

    /// Returns whether a job with a negotiator runs that no order of the server will end.
    fn ends_by_itself(&self, job: JobId) -> bool {
        let Some(entry) = self.context.state().jobs().get(&job) else { return false };
        let is_running = entry.started().is_some_and(|started| started.ending.is_none());
        is_running && entry.spec.evolving.is_none() && self.negotiators.attached.contains_key(&job)
    }

    /// Forgets what is known of a job beside the state.
    pub(crate) fn forget_negotiations(&mut self, job: JobId) {
        self.negotiators.dialogues.remove(&job);
        self.negotiators.attached.remove(&job);
        self.negotiators.call_rates.remove(&job);
        self.negotiators.gone.remove(&job);
        self.context.to_review.remove(&job);
        self.context.holdings_changed.remove(&job);
        self.schedule(job);
    }

    /// Resumes negotiations after a restart: no caller waits for earlier asks, no channel is open, and agreed changes
    /// go on.
    pub(crate) fn boot_negotiations(&mut self, now: Time, step: &mut Step) {
        let is_negotiating = |job: &JobId| self.negotiations(*job).is_some();
        let jobs: Vec<JobId> = self.context.state().jobs().keys().copied().filter(is_negotiating).collect();
        for job in jobs {
            for id in self.open_negotiations(job) {
                let Some(negotiation) = self.negotiation(job, id) else { continue };
                let is_asked = negotiation.asking.is_some();
                let (phase, round) = (negotiation.phase(), negotiation.dialogue.round());
                let is_of_negotiation = match phase {
                    Phase::Offered(_) | Phase::Countered(_) => round > 0,
                    Phase::Idle | Phase::Pledged | Phase::Leaving | Phase::Accepted | Phase::Committing => false,
                    Phase::Failing | Phase::Applied | Phase::Ended(_) => false,
                };
                if is_asked && is_of_negotiation && id.initiator == Side::Application {
                    let statement = Statement::End { ending: Ending::Withdrawn, reason: Reason::Stopping };
                    self.say_as_proxy(now, step, job, id, statement);
                }
            }
            self.negotiators.gone.insert(job, now);
            self.review(now, step, job);
        }
    }
}

fn names_nodes(negotiation: &Negotiation) -> bool {
    let items = negotiation.dialogue.proposal().into_iter().flat_map(|proposal| proposal.items());
    items.into_iter().any(|item| !item.nodes.is_empty())
}

/// Returns how many of the proposed nodes were not agreed. An application that accepts a part of an offer has declined
/// the rest; one that gives back a part of what was asked has declined the whole.
fn n_declined(negotiation: &Negotiation) -> u32 {
    let agreed = n_agreed(negotiation);
    let opened = negotiation.rounds.iter().find_map(|round| match &round.said {
        rms_api::negotiate::Said::Proposed { round: 1, template, by: _ } => Some(template.n_nodes()),
        rms_api::negotiate::Said::Proposed { .. } | rms_api::negotiate::Said::Phase { .. } => None,
    });
    let opened = u32::try_from(opened.unwrap_or(0)).unwrap_or(u32::MAX);
    match negotiation.direction() {
        Direction::Grow => opened.saturating_sub(agreed),
        Direction::Shrink if agreed < opened => opened,
        Direction::Shrink => 0,
    }
}

/// Returns by how many nodes the job has grown or shrunk.
fn n_agreed(negotiation: &Negotiation) -> u32 {
    let agreed = match negotiation.phase() {
        Phase::Applied => negotiation.dialogue.proposal().map_or(0, |proposal| proposal.n_nodes()),
        Phase::Idle | Phase::Offered(_) | Phase::Countered(_) | Phase::Pledged | Phase::Leaving => 0,
        Phase::Accepted | Phase::Committing | Phase::Failing | Phase::Ended(_) => 0,
    };
    u32::try_from(agreed).unwrap_or(u32::MAX)
}
