//! When something is due in a negotiation: repetitions, lapses, promises, departures, loans.

use negotiation::{Direction, NegotiationId, Phase, Side};
use rms_model::{JobId, Time};

use super::{Negotiations, Negotiators};
use crate::state::talks::Case;
use crate::step::Step;

impl Negotiators {
    /// When the next negotiation has something to do.
    pub(crate) fn next_wake(&self) -> Option<Time> {
        self.wakes.first().map(|(at, _)| *at)
    }

    /// When what was declined may be offered again.
    pub(crate) fn next_offer(&self) -> Option<Time> {
        self.refusals.next_due()
    }
}

impl Negotiations<'_> {
    /// Time has passed.
    pub(crate) fn tick_negotiations(&mut self, now: Time, step: &mut Step) {
        while let Some((at, job)) = self.negotiators.wakes.first().copied()
            && at <= now
        {
            self.end_silence(now, step, job);
            self.review(now, step, job);
            // A job whose look is due still has been looked at: it must not be looked at for ever.
            if self.negotiators.wake_of.get(&job) == Some(&at) {
                self.wake(job, Some(now + rms_model::Span::from_millis(1)));
            }
        }
    }

    /// A pass has run: hosts may have become free for those who wait for them, the most urgent first, then in the order in
    /// which they asked.
    pub(crate) fn serve_waiting(&mut self, now: Time, step: &mut Step) {
        for (_, job, id) in self.waiting_growth() {
            if self.case(job, id).is_some() {
                self.progress(now, step, job, id);
                self.schedule(job);
            }
        }
    }

    /// The dialogues' own timers: what has lapsed has lapsed, what was not heard is said again.
    pub(super) fn tick_dialogues(&mut self, now: Time, step: &mut Step, job: JobId) {
        for id in self.open_cases(job) {
            let is_in_vain = self.case(job, id).is_some_and(|case| {
                let waits =
                    matches!(case.phase(), Phase::Offered(Side::Application) | Phase::Countered(Side::Application));
                let is_growth = case.direction() == Direction::Grow;
                waits && is_growth && Negotiations::last_moment(case).is_some_and(|at| at <= now)
            });
            if is_in_vain {
                // What there is now, or that there is nothing; too late even for that, it lapses.
                self.answer_growth(now, step, job, id);
            }
        }
        let output = self.dialogues(job).tick(now);
        let ids: Vec<NegotiationId> = output.changes.iter().map(|change| change.id).collect();
        for id in ids {
            self.note_talk(now, step, job, id, None);
        }
        self.say(step, job, output);
    }

    /// Sets when to look at a job again.
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
        let talks = entry.talks.as_deref()?;
        let dialogues = self.negotiators.dialogues.get(&job).and_then(negotiation::Dialogues::next_deadline);
        let cases = talks.open().filter_map(|case| self.due_of(case));
        let departing = started.evolved.iter().flat_map(|evolved| evolved.departing.values());
        let departures = departing.map(|since| *since + self.promise_span());
        let loans = self.next_loan(job);
        let silence = self.silent_until(job);
        dialogues.into_iter().chain(cases).chain(departures).chain(loans).chain(silence).min()
    }

    fn due_of(&self, case: &Case) -> Option<Time> {
        match (case.phase(), case.direction()) {
            (Phase::Offered(Side::Application) | Phase::Countered(Side::Application), Direction::Grow) => {
                Negotiations::last_moment(case)
            }
            // The agents have to speak next.
            (Phase::Accepted, Direction::Shrink) if case.is_handed_over => None,
            (Phase::Accepted, Direction::Shrink) if !case.is_warned => Some(case.since() + self.promise_span()),
            (Phase::Accepted, Direction::Shrink) => Some(case.since() + self.promise_span() + self.promise_span()),
            (Phase::Offered(_) | Phase::Countered(_), _) => None,
            (Phase::Accepted, Direction::Grow) | (Phase::Committing | Phase::Failing, _) => None,
            (Phase::Idle | Phase::Pledged | Phase::Leaving | Phase::Applied | Phase::Ended(_), _) => None,
        }
    }
}
