//! Facts and the effects that wait for them.

use crate::effect::Effect;
use crate::state::fact::Fact;

/// The log that makes facts durable.
pub trait Journal {
    type Error;

    /// Appends facts and makes them durable.
    ///
    /// # Errors
    /// If it returns an error, none of the facts may be considered durable. If it returns `Ok`, all of them survive a
    /// crash of the process and of the machine.
    fn append(&mut self, facts: &[Fact]) -> Result<(), Self::Error>;

    /// Writes facts that a power failure may lose. They precede all that is appended later, and are durable with the
    /// first of that.
    ///
    /// # Errors
    /// As [`Journal::append`]: none of the facts were written.
    fn note(&mut self, facts: &[Fact]) -> Result<(), Self::Error> {
        self.append(facts)
    }
}

/// The facts of one event, or of a batch of events, and the effects that follow from them.
///
/// Both fields are private: the effects are available only after the facts were written.
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
    /// The effects may be sent before the facts are durable.
    is_noted: bool,
}

impl Write<'_> {
    /// Writes the facts to the journal.
    ///
    /// # Errors
    /// The journal's error: nothing was written.
    pub fn to<J: Journal>(self, journal: &mut J) -> Result<(), J::Error> {
        if self.is_noted { journal.note(self.facts) } else { journal.append(self.facts) }
    }
}

impl Step {
    pub(crate) fn record(&mut self, fact: Fact) {
        if self.facts.is_empty() {
            // Most steps have one or two facts. `Vec` would take room for four, which the allocator finds only slowly.
            self.facts.reserve_exact(2);
        }
        self.facts.push(fact);
    }

    pub(crate) fn order(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Adds a later step, for group commit.
    pub fn merge(&mut self, later: Step) {
        self.facts.extend(later.facts);
        self.effects.extend(later.effects);
    }

    pub fn has_facts(&self) -> bool {
        !self.facts.is_empty()
    }

    /// Returns whether the step may become durable together with a later one: no caller waits for it, and a crash that
    /// lost it would lose nothing, because an agent's next whole report, or the next pass, records the same facts
    /// again.
    pub fn can_wait(&self) -> bool {
        self.effects.is_empty() && self.facts.iter().all(Fact::comes_again)
    }

    /// Returns whether the step consists only of negotiation messages. It is sent before it is durable: a round of a
    /// negotiation costs no sync, and both ends detect the loss of what it contained.
    pub fn is_of_negotiation(&self) -> bool {
        let is_said =
            |effect: &Effect| matches!(effect, Effect::TellNegotiator { .. } | Effect::NegotiatorAnswer { .. });
        self.facts.iter().all(Fact::is_of_negotiation) && self.effects.iter().all(is_said)
    }

    pub fn is_empty(&self) -> bool {
        self.facts.is_empty() && self.effects.is_empty()
    }

    /// Makes the facts durable, then returns the effects.
    ///
    /// # Errors
    /// The journal's error, with the whole step.
    pub fn commit<J: Journal>(self, journal: &mut J) -> Result<Vec<Effect>, CommitError<J::Error>> {
        let written = self.write().map_or(Ok(()), |write| write.to(journal));
        match written {
            Ok(()) => Ok(self.effects),
            Err(error) => Err(CommitError { step: self, error }),
        }
    }

    /// Returns what is to be written; `None` if there are no facts.
    pub(crate) fn write(&self) -> Option<Write<'_>> {
        let is_noted = self.is_of_negotiation() && !self.can_wait();
        (!self.facts.is_empty()).then_some(Write { facts: &self.facts, is_noted })
    }

    /// Returns the effects, once [`Step::write`] is durable.
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
