//! The end of an application is the end of its negotiations; and how a server begins that was stopped amid some.

use negotiation::{Action, Ending, Phase, Reason, Side, Statement};
use rms_api::negotiate::NegotiatorNotice;
use rms_model::{JobId, Outcome, Time};

use super::Negotiations;
use crate::effect::Effect;
use crate::step::Step;

impl Negotiations<'_> {
    /// The job is being ended, or is gone: nothing is kept for it any more, and who speaks for it is told.
    pub(crate) fn end_talks(&mut self, now: Time, step: &mut Step, job: JobId, outcome: &Outcome) {
        for id in self.open_cases(job) {
            let withdrawn = self.act(now, step, job, id, Action::Withdraw(Reason::Stopping));
            if withdrawn.is_err() {
                // What lapses in this moment ends by itself.
                if self.act(now, step, job, id, Action::Fail(Reason::Stopping)).is_err() {
                    self.tick_dialogues(now, step, job);
                }
            }
        }
        if self.negotiators.attached.remove(&job).is_some() {
            let notice = NegotiatorNotice::Ended { outcome: outcome.clone() };
            step.order(Effect::TellNegotiator { job, notice });
        }
        self.forget_talks(job);
    }

    /// What is known of a job beside the state.
    pub(crate) fn forget_talks(&mut self, job: JobId) {
        self.negotiators.dialogues.remove(&job);
        self.negotiators.attached.remove(&job);
        self.negotiators.call_rates.remove(&job);
        self.negotiators.gone.remove(&job);
        self.context.noted.remove(&job);
        self.context.moved.remove(&job);
        self.schedule(job);
    }

    /// A server that was started again: nobody waits for what was asked before, no channel is up, and what was agreed
    /// goes on.
    pub(crate) fn boot_negotiations(&mut self, now: Time, step: &mut Step) {
        let is_talking = |job: &JobId| self.talks(*job).is_some();
        let jobs: Vec<JobId> = self.context.state().jobs().keys().copied().filter(is_talking).collect();
        for job in jobs {
            for id in self.open_cases(job) {
                let Some(case) = self.case(job, id) else { continue };
                let is_asked = case.asking.is_some();
                let (phase, round) = (case.phase(), case.dialogue.round());
                let is_talk = match phase {
                    Phase::Offered(_) | Phase::Countered(_) => round > 0,
                    Phase::Idle | Phase::Pledged | Phase::Leaving | Phase::Accepted | Phase::Committing => false,
                    Phase::Failing | Phase::Applied | Phase::Ended(_) => false,
                };
                if is_asked && is_talk && id.initiator == Side::Application {
                    let statement = Statement::End { ending: Ending::Withdrawn, reason: Reason::Stopping };
                    self.say_for(now, step, job, id, statement);
                }
            }
            self.negotiators.gone.insert(job, now);
            self.review(now, step, job);
        }
    }
}
