//! Takes each negotiation on as far as it goes by itself.

use negotiation::{Direction, Ending, NegotiationId, Phase, Reason, Resource, Side};
use rms_api::answer::Answer;
use rms_api::negotiate::AskOutcome;
use rms_model::{JobId, Time};

use super::Negotiations;
use crate::effect::Effect;
use crate::state::talks::Case;
use crate::step::Step;

impl Negotiations<'_> {
    /// Whatever has changed: every negotiation of a job goes on as far as it can, and the next look is set.
    pub(super) fn review(&mut self, now: Time, step: &mut Step, job: JobId) {
        let is_running = self.talks(job).is_some()
            && self.context.state().jobs()[&job].started().is_some_and(|started| started.ending.is_none());
        if is_running {
            self.tick_dialogues(now, step, job);
            self.replace_lost_holds(now, step, job);
            for id in self.open_cases(job) {
                self.progress(now, step, job, id);
            }
            self.end_departures(now, step, job);
            self.call_loans(now, step, job);
        }
        self.schedule(job);
    }

    /// One negotiation goes on until somebody else has to speak or to act.
    pub(super) fn progress(&mut self, now: Time, step: &mut Step, job: JobId, id: NegotiationId) {
        let place = |case: &Case| (case.phase(), case.dialogue.round(), case.is_handed_over);
        while let Some(case) = self.case(job, id) {
            let (before, direction) = (place(case), case.direction());
            match (case.phase(), direction) {
                (Phase::Offered(Side::Application) | Phase::Countered(Side::Application), Direction::Grow) => {
                    self.answer_growth(now, step, job, id);
                }
                (Phase::Offered(Side::Application) | Phase::Countered(Side::Application), Direction::Shrink) => {
                    self.answer_shrink(now, step, job, id);
                }
                (Phase::Offered(Side::Rms) | Phase::Countered(Side::Rms), _) => {
                    self.answer_in_house(now, step, job, id);
                }
                (Phase::Accepted, Direction::Grow) => self.hand_over(now, step, job, id),
                (Phase::Accepted, Direction::Shrink) => self.await_release(now, step, job, id),
                (Phase::Committing, Direction::Grow) => self.await_arrival(now, step, job, id),
                (Phase::Committing, Direction::Shrink) => self.await_departure(now, step, job, id),
                // The application's own phases are none of this end.
                (Phase::Idle | Phase::Pledged | Phase::Leaving | Phase::Failing, _) => {}
                (Phase::Applied | Phase::Ended(_), _) => {}
            }
            if self.case(job, id).is_none_or(|case| place(case) == before) {
                return;
            }
        }
    }

    /// It has just ended, with a result or without: nothing of it is left behind.
    pub(super) fn close(&mut self, now: Time, step: &mut Step, job: JobId, id: NegotiationId) {
        let Some(case) = self.case(job, id) else { return };
        let (phase, direction, opened) = (case.phase(), case.direction(), case.opened);
        let is_handed_over = case.is_handed_over;
        self.note_answer(now, job, id);
        self.negotiators.waiting.remove(&(opened, job, id));
        self.keep(step, job, id, Vec::new());
        match (phase, direction) {
            (Phase::Ended(Ending::Failed), Direction::Grow) if is_handed_over => self.roll_back(now, step, job, id),
            (Phase::Ended(Ending::Failed), Direction::Shrink) if !is_handed_over => self.stay(step, job),
            (_, Direction::Grow | Direction::Shrink) => {}
        }
        if phase == Phase::Ended(Ending::Failed) && is_handed_over {
            self.roll_back_cores(now, step, job, id);
            self.roll_back_time(now, step, job, id);
        }
        self.answer_ask(step, job, id);
        // What waited for its end, as a loan that was called by it, is looked at.
        self.context.note_job(job);
        self.context.passes.wanted = true;
    }

    /// Who asked hears what came of it.
    fn answer_ask(&mut self, step: &mut Step, job: JobId, id: NegotiationId) {
        let Some(ticket) = self.negotiators.tickets.remove(&(job, id)) else { return };
        let Some(case) = self.case(job, id) else { return };
        let outcome = match case.phase() {
            Phase::Applied => {
                let evolved = self.context.state().jobs()[&job].started().and_then(|started| started.evolved.as_ref());
                AskOutcome::Ready {
                    negotiation: id,
                    quantity: super::records::quantity(case),
                    hosts: case.hosts.clone(),
                    generation: evolved.map_or(1, |evolved| evolved.generation),
                    n_rounds: case.dialogue.round(),
                }
            }
            Phase::Idle
            | Phase::Offered(_)
            | Phase::Countered(_)
            | Phase::Pledged
            | Phase::Leaving
            | Phase::Accepted
            | Phase::Committing
            | Phase::Failing
            | Phase::Ended(_) => {
                let reason = case.dialogue.reason().unwrap_or(Reason::Stopping);
                AskOutcome::Failed { negotiation: id, reason, free: self.too_few(job, case, reason) }
            }
        };
        step.order(Effect::Answer { ticket, answer: Ok(Answer::Negotiated(outcome)) });
    }

    /// How many hosts are free for an ask for which nothing has come, if that are fewer than it could use.
    fn too_few(&self, job: JobId, case: &Case, reason: Reason) -> Option<u32> {
        let [item] = case.dialogue.proposal()?.items() else { return None };
        let Resource::Hosts(cluster) = item.resource else { return None };
        let is_short = reason == Reason::NoResources && case.direction() == Direction::Grow;
        let n_free = self.givable(job, case.id(), cluster, usize::MAX).len() as u64;
        (is_short && n_free < item.terms.least.0).then_some(n_free as u32)
    }

    /// At the end of an event: what it has changed is looked at, and who speaks for an application is told.
    pub(crate) fn turn_negotiations(&mut self, now: Time, step: &mut Step) {
        // Each look can only finish something, so this comes to an end.
        while let Some(job) = self.context.noted.pop_first() {
            if self.context.state().jobs().contains_key(&job) {
                self.review(now, step, job);
            }
        }
        self.tell_moves(now, step);
    }
}
