//! A state that comes back: facts that were recorded elsewhere become true in it, one after the other.

use super::apply::BumpedNodes;
use super::fact::Fact;
use super::{Misfit, State};

/// What recorded facts make of a state: a restart reads its journal by it, and who checks a server follows it by it. A
/// server that decides changes its own state by what it records, and in no other way.
#[derive(Clone, Debug)]
pub struct Replay(State);

impl Replay {
    /// Goes on from this state.
    pub fn of(state: State) -> Replay {
        Replay(state)
    }

    /// Makes a fact true. Facts were judged when they were recorded and are not judged again.
    ///
    /// # Errors
    /// The fact does not fit: the journal is damaged or belongs to another system. The state is of no use then.
    pub fn follow(&mut self, fact: &Fact) -> Result<(), Misfit> {
        self.0.apply(fact, &mut BumpedNodes::Ignored)
    }

    /// As far as the facts have been followed.
    pub fn state(&self) -> &State {
        &self.0
    }

    pub fn into_state(self) -> State {
        self.0
    }
}
