//! Keeps the dialogues of each job and their durable copies in step, and sends their messages.

use negotiation::{
    ActError, Action, Dialogue, Dialogues, Direction, Ending, Message, NegotiationId, Output, Phase, Rules, Side,
    Statement,
};
use rms_api::negotiate::NegotiatorNotice;
use rms_api::terms::{self, Allowed};
use rms_model::{JobId, OnResize, Span, Time};

use super::Negotiations;
use crate::effect::Effect;
use crate::state::fact::Fact;
use crate::state::job::Job;
use crate::state::negotiations::{Asking, JobNegotiations, Negotiation};
use crate::step::Step;

impl Negotiations<'_> {
    pub(super) fn negotiations(&self, job: JobId) -> Option<&JobNegotiations> {
        self.context.state().jobs().get(&job)?.negotiations.as_deref()
    }

    pub(super) fn negotiation(&self, job: JobId, id: NegotiationId) -> Option<&Negotiation> {
        self.negotiations(job)?.get(id)
    }

    /// Returns the ids of the open negotiations, oldest first.
    pub(super) fn open_negotiations(&self, job: JobId) -> Vec<NegotiationId> {
        self.negotiations(job)
            .map(|negotiations| negotiations.open().map(Negotiation::id).collect())
            .unwrap_or_default()
    }

    /// Returns the server's end of all negotiations with a running job.
    pub(super) fn dialogues(&mut self, job: JobId) -> &mut Dialogues {
        let state = &self.context.state();
        self.negotiators.dialogues.entry(job).or_insert_with(|| {
            let entry = &state.jobs()[&job];
            let none = JobNegotiations::default();
            let negotiations = entry.negotiations.as_deref().unwrap_or(&none);
            let dialogues = negotiations.all.iter().map(|negotiation| negotiation.dialogue.clone()).collect();
            let numbers = (negotiations.n_opened, negotiations.heard_up_to);
            Dialogues::restore(Side::Rms, (job, entry.run), Rules::default(), numbers, dialogues)
        })
    }

    /// Returns whether the server acts as proxy for the application in a negotiation: where a caller has asked, and
    /// where the application is told of its size instead of being asked.
    pub(super) fn is_proxied(&self, job: JobId, id: NegotiationId) -> bool {
        let Some(entry) = self.context.state().jobs().get(&job) else { return false };
        let is_asked = self.negotiation(job, id).is_some_and(|negotiation| negotiation.asking.is_some());
        is_asked || (id.initiator == Side::Rms && !negotiates_itself(entry))
    }

    /// Performs an action of the server in a negotiation.
    ///
    /// # Errors
    /// The reason why that is not possible; nothing has changed then.
    pub(super) fn act(
        &mut self,
        now: Time,
        step: &mut Step,
        job: JobId,
        id: NegotiationId,
        action: Action,
    ) -> Result<(), ActError> {
        let output = self.dialogues(job).act(now, id, action)?;
        self.record_dialogue(now, step, job, id, None);
        self.send(step, job, output);
        Ok(())
    }

    /// Records the state of a dialogue.
    pub(super) fn record_dialogue(
        &mut self,
        now: Time,
        step: &mut Step,
        job: JobId,
        id: NegotiationId,
        asking: Option<Asking>,
    ) {
        let Some(dialogue) = self.dialogues(job).get(id).map(Dialogue::durable) else { return };
        let before = self.negotiation(job, id).map(|negotiation| &negotiation.dialogue);
        let is_nothing = dialogue.phase() == Phase::Idle;
        if is_nothing || before == Some(&dialogue) {
            return;
        }
        let was_over = before.is_some_and(|before| before.phase().is_over());
        let is_over = dialogue.phase().is_over();
        let (dialogue, asking) = (Box::new(dialogue), asking.map(Box::new));
        self.context.record(step, Fact::DialogueChanged { job, at: now, dialogue, asking });
        if is_over && !was_over {
            self.close(now, step, job, id);
        }
    }

    /// Sends messages to the application's negotiator; where the server is the proxy, it acknowledges them itself.
    pub(super) fn send(&mut self, step: &mut Step, job: JobId, output: Output) {
        for mut message in output.messages {
            if self.is_proxied(job, message.id) {
                self.confirm(job, message.id);
            } else if self.negotiators.attached.contains_key(&job) {
                message.why = self.why_rejected(job, &message);
                message.release_within = self.release_within(job, &message);
                let notice = NegotiatorNotice::Said(Box::new(message));
                step.order(Effect::TellNegotiator { job, notice });
            }
        }
    }

    /// Returns which term of the last proposal was the cause, if this message rejects it.
    fn why_rejected(&self, job: JobId, message: &Message) -> Option<String> {
        let Some(Statement::End { ending: Ending::Rejected, reason }) = message.statement else { return None };
        let dialogue = &self.negotiation(job, message.id)?.dialogue;
        // The application knows why it has rejected a proposal of the server.
        let template = dialogue.theirs().filter(|theirs| dialogue.proposal() == Some(theirs))?;
        let state = self.context.state();
        let allowed = Allowed { settings: Some(state.settings().clone()), clusters: state.clusters().clone() };
        terms::broken_by(template, reason, &state.jobs()[&job].spec.owner.0, &allowed)
    }

    /// Returns how long the application may keep the nodes of a shrink, if this message accepts it.
    fn release_within(&self, job: JobId, message: &Message) -> Option<Span> {
        let Some(Statement::Accept { .. }) = message.statement else { return None };
        let is_shrink = self.negotiation(job, message.id)?.direction() == Direction::Shrink;
        is_shrink.then(|| self.promise_span() + self.promise_span())
    }

    /// Acknowledges everything for an application whose proxy the server is.
    fn confirm(&mut self, job: JobId, id: NegotiationId) {
        let dialogues = self.dialogues(job);
        let Some((number, seen)) = dialogues.get(id).map(|dialogue| (dialogue.heard(), dialogue.said())) else {
            return;
        };
        // A mere acknowledgement: it changes no phase, and is not answered.
        let _ = dialogues.receive(Time::EPOCH, &Message::new(id, number, seen, None));
    }
}

/// Returns whether a process of the job answers the negotiations that the server opens.
pub(super) fn negotiates_itself(entry: &Job) -> bool {
    match entry.spec.malleable.as_ref().map(|malleable| &malleable.on_resize) {
        Some(OnResize::Negotiates) => true,
        Some(OnResize::Signal(_) | OnResize::Hook(_) | OnResize::Workers) | None => false,
    }
}
