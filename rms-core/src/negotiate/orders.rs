//! An owner or an admin takes a hand in a negotiation, and an application says that it has adapted itself.

use negotiation::{Action, Direction, NegotiationId, Reason};
use rms_api::answer::Answer;
use rms_api::negotiate::Order;
use rms_api::refusal::Refusal;
use rms_model::{Identity, JobId, NodeId, Role, Time};

use super::Negotiations;
use crate::rights::{self, admins_only, wrong_state};
use crate::step::Step;

impl Negotiations<'_> {
    pub(crate) fn order_negotiation(
        &mut self,
        now: Time,
        step: &mut Step,
        who: &Identity,
        job: JobId,
        id: NegotiationId,
        order: Order,
    ) -> Result<Answer, Refusal> {
        rights::may_touch(self.context.state(), who, job)?;
        let case = self.case(job, id).filter(|case| !case.phase().is_over());
        let direction = case.ok_or(Refusal::NoSuchNegotiation { job, id })?.direction();
        match order {
            Order::Withdraw => {
                let reason = match who.role {
                    Role::Admin => Reason::Administrator,
                    Role::User | Role::Job | Role::Agent | Role::Server => Reason::Declined,
                };
                if self.act(now, step, job, id, Action::Withdraw(reason)).is_err() {
                    return Err(wrong_state(
                        job,
                        "started",
                        "the negotiation is agreed already: it cannot be withdrawn",
                    ));
                }
            }
            Order::Force => {
                admins_only(who, "force a negotiation")?;
                match direction {
                    Direction::Shrink => self.force(now, step, job, id),
                    Direction::Grow => {
                        return Err(wrong_state(job, "started", "only a shrink can be forced"));
                    }
                }
            }
        }
        self.schedule(job);
        Ok(Answer::Done)
    }

    fn force(&mut self, now: Time, step: &mut Step, job: JobId, id: NegotiationId) {
        let Some(case) = self.case(job, id) else { return };
        match case.dialogue.hosts().cloned() {
            // It has said which hosts it leaves, and has no more time for it.
            Some(hosts) if !case.is_handed_over => self.free(now, step, job, hosts.into_iter().collect()),
            // They are leaving as fast as they can.
            Some(_) => {}
            // So are cores.
            None if case.is_handed_over => {}
            None => self.take_back(now, step, job, id, Reason::Administrator),
        }
    }

    pub(crate) fn resize_done(
        &mut self,
        now: Time,
        step: &mut Step,
        who: &Identity,
        job: JobId,
        generation: u32,
    ) -> Result<Answer, Refusal> {
        rights::may_touch(self.context.state(), who, job)?;
        let started = self.negotiable(job)?;
        let Some(evolved) = started.evolved.as_ref() else { return Ok(Answer::Done) };
        // It has not heard of the latest change: that one is still to be confirmed.
        if generation < evolved.generation {
            return Ok(Answer::Done);
        }
        let departing: Vec<NodeId> = evolved.departing.keys().copied().collect();
        self.free(now, step, job, departing.clone());
        self.let_exit(step, job, departing);
        Ok(Answer::Done)
    }
}
