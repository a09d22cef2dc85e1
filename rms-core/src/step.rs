//! Facts and the effects that wait for them.

use crate::effect::Effect;
use crate::fact::Fact;

/// Where facts become durable.
pub trait Journal {
    type Error;

    /// # Errors
    /// When it returns an error, none of the facts may be taken for durable. When it returns `Ok`, all of them
    /// survive the death of the process and of the machine.
    fn append(&mut self, facts: &[Fact]) -> Result<(), Self::Error>;
}

/// What one event, or a batch of them, made true, and what is to be done about it.
///
/// Both fields are private: [`Step::commit`] is the only door to the effects.
#[must_use = "a step that is dropped loses facts that the state already holds"]
#[derive(Debug, Default)]
pub struct Step {
    facts: Vec<Fact>,
    effects: Vec<Effect>,
}

/// A step that could not be made durable; it can be committed again.
#[derive(Debug)]
pub struct Uncommitted<E> {
    pub step: Step,
    pub error: E,
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

    pub fn is_empty(&self) -> bool {
        self.facts.is_empty() && self.effects.is_empty()
    }

    /// Makes the facts durable, then lets the effects go.
    ///
    /// # Errors
    /// The journal's; the step comes back whole.
    pub fn commit<J: Journal>(self, journal: &mut J) -> Result<Vec<Effect>, Uncommitted<J::Error>> {
        if !self.facts.is_empty()
            && let Err(error) = journal.append(&self.facts)
        {
            return Err(Uncommitted { step: self, error });
        }
        Ok(self.effects)
    }
}
