//! Rebuilds a state from facts that were recorded elsewhere, one after the other.

use super::apply::BumpedNodes;
use super::fact::Fact;
use super::{ApplyError, State};

/// Applies recorded facts to a state. A restart reads its journal with it, and a checker follows a server with it. A
/// server that decides changes its own state by what it records, and in no other way.
#[derive(Clone, Debug)]
pub struct Replay(State);

impl Replay {
    /// Starts from this state.
    pub fn of(state: State) -> Replay {
        Replay(state)
    }

    /// Applies a fact. Facts were validated when they were recorded, and are not validated again.
    ///
    /// # Errors
    /// The fact does not fit: the journal is damaged or belongs to another system. The state must not be used
    /// afterwards.
    pub fn follow(&mut self, fact: &Fact) -> Result<(), ApplyError> {
        self.0.apply(fact, &mut BumpedNodes::Ignored)
    }

    /// Returns the state after the facts applied so far.
    pub fn state(&self) -> &State {
        &self.0
    }

    pub fn into_state(self) -> State {
        self.0
    }
}
