//! Facts and the effects that wait for them.

use crate::effect::Effect;
use crate::state::fact::Fact;

/// Where facts become durable.
pub trait Journal {
    type Error;

    /// # Errors
    /// When it returns an error, none of the facts may be taken for durable. When it returns `Ok`, all of them
    /// survive the death of the process and of the machine.
    fn append(&mut self, facts: &[Fact]) -> Result<(), Self::Error>;

    /// Writes facts that a loss of power may take back. They stand before all that is appended later, and are durable
    /// with the first of that.
    ///
    /// # Errors
    /// As [`Journal::append`]: none of the facts were written.
    fn note(&mut self, facts: &[Fact]) -> Result<(), Self::Error> {
        self.append(facts)
    }
}

/// What one event, or a batch of them, made true, and what is to be done about it.
///
/// Both fields are private: the only door to the effects is that the facts were written.
#[must_use = "a step that is dropped loses facts that the state already holds"]
#[derive(Debug, Default)]
pub struct Step {
    facts: Vec<Fact>,
    effects: Vec<Effect>,
}

/// A step that could not be made durable; it can be committed again.
#[derive(Debug)]
pub struct CommitError<E> {
    pub step: Step,
    pub error: E,
}

/// Facts on their way to the journal.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    pub facts: &'a [Fact],
    /// They may leave before they are durable.
    is_noted: bool,
}

impl Write<'_> {
    /// # Errors
    /// The journal's: nothing was written.
    pub fn to<J: Journal>(self, journal: &mut J) -> Result<(), J::Error> {
        if self.is_noted { journal.note(self.facts) } else { journal.append(self.facts) }
    }
}

impl Step {
    pub(crate) fn record(&mut self, fact: Fact) {
        self.facts.push(fact);
    }

    pub(crate) fn order(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Group commit: `later` happened after this.
    pub fn merge(&mut self, later: Step) {
        self.facts.extend(later.facts);
        self.effects.extend(later.effects);
    }

    pub fn has_facts(&self) -> bool {
        !self.facts.is_empty()
    }

    /// Nobody waits for it, and a crash that lost it would lose nothing: an agent's next whole report, or the next
    /// pass, makes the same facts again. Such a step may become durable together with a later one.
    pub fn can_wait(&self) -> bool {
        self.effects.is_empty() && self.facts.iter().all(Fact::comes_again)
    }

    /// Is it mere talk with applications about their sizes? It leaves before it is durable: a round of a negotiation costs
    /// no sync, and what it may have held is found out by both ends should it be lost.
    pub fn is_of_negotiation(&self) -> bool {
        let is_said =
            |effect: &Effect| matches!(effect, Effect::TellNegotiator { .. } | Effect::NegotiatorAnswer { .. });
        self.facts.iter().all(Fact::is_of_negotiation) && self.effects.iter().all(is_said)
    }

    pub fn is_empty(&self) -> bool {
        self.facts.is_empty() && self.effects.is_empty()
    }

    /// Makes the facts durable, then lets the effects go.
    ///
    /// # Errors
    /// The journal's; the step comes back whole.
    pub fn commit<J: Journal>(self, journal: &mut J) -> Result<Vec<Effect>, CommitError<J::Error>> {
        let written = self.write().map_or(Ok(()), |write| write.to(journal));
        match written {
            Ok(()) => Ok(self.effects),
            Err(error) => Err(CommitError { step: self, error }),
        }
    }

    /// What is to be written; `None` if nothing became true.
    pub(crate) fn write(&self) -> Option<Write<'_>> {
        let is_noted = self.is_of_negotiation() && !self.can_wait();
        (!self.facts.is_empty()).then_some(Write { facts: &self.facts, is_noted })
    }

    /// Once [`Step::write`] is durable.
    pub(crate) fn into_effects(self) -> Vec<Effect> {
        self.effects
    }
}

#[cfg(test)]
mod tests {
    use rms_model::{JobId, NodeId, Time};

    use super::*;
    use crate::event::Ticket;
    use rms_api::answer::Answer;

    #[test]
    fn only_what_comes_again_and_nobody_waits_for_can_wait() {
        let mut step = Step::default();
        step.record(Fact::ShareRunning { job: JobId(1), node: NodeId(1), since: Time::EPOCH });
        step.record(Fact::JobsQueued { jobs: vec![JobId(2)] });
        assert!(step.can_wait());
        let mut answered = Step::default();
        answered.order(Effect::Answer { ticket: Ticket(1), answer: Ok(Answer::Done) });
        step.merge(answered);
        assert!(!step.can_wait(), "an answer must not tell of what is not durable");
        let mut step = Step::default();
        step.record(Fact::RequestSent { job: JobId(2), at: Time::EPOCH });
        assert!(!step.can_wait(), "a place in the queue would be lost");
    }
}
