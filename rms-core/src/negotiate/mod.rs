//! The negotiation manager (002, §5): how running applications come to more and to fewer hosts.

pub mod contract;
pub mod policy;

use rms_model::{Identity, JobId, Run, Time};

use crate::effect::{Answer, Effect};
use crate::event::Ticket;
use crate::refusal::Refusal;
use crate::rms::Rms;
use crate::step::Step;
use contract::{Ask, NegotiatorCall, Order};

impl Rms {
    pub(crate) fn handle_negotiator_call(
        &mut self,
        _now: Time,
        step: &mut Step,
        ticket: Ticket,
        who: &Identity,
        _call: NegotiatorCall,
    ) {
        let refusal = Refusal::NotNegotiable(who.as_job().map_or(JobId(0), |(job, _)| job));
        step.order(Effect::NegotiatorAnswer { ticket, answer: Err(refusal) });
    }

    pub(crate) fn negotiator_gone(&mut self, _now: Time, _step: &mut Step, _job: JobId) {}

    /// `by` has asked; the answer comes once something came of it.
    pub(crate) fn ask(
        &mut self,
        _now: Time,
        step: &mut Step,
        ticket: Ticket,
        (job, _run): (JobId, Option<Run>),
        _by: String,
        _ask: &Ask,
    ) {
        step.order(Effect::Answer { ticket, answer: Err(Refusal::NotNegotiable(job)) });
    }

    pub(crate) fn resize_done(
        &mut self,
        _now: Time,
        _step: &mut Step,
        _who: &Identity,
        job: JobId,
        _generation: u32,
    ) -> Result<Answer, Refusal> {
        Err(Refusal::NotNegotiable(job))
    }

    pub(crate) fn order_negotiation(
        &mut self,
        _now: Time,
        _step: &mut Step,
        _who: &Identity,
        job: JobId,
        _id: negotiation::NegotiationId,
        _order: Order,
    ) -> Result<Answer, Refusal> {
        Err(Refusal::NotNegotiable(job))
    }
}
