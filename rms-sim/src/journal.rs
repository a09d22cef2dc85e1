//! The model disk: facts that survive the server's death, or only that of its process, a snapshot, and days on which
//! nothing can be written.

use rms_core::{Fact, Journal, State};
use rms_model::Settings;
use thiserror::Error;

#[derive(Debug)]
pub(crate) struct ModelJournal {
    settings: Settings,
    facts: Vec<Fact>,
    /// So many of them survive a loss of power.
    n_synced: usize,
    /// What the facts say, applied one by one.
    shadow: State,
    /// A state, and how many facts are in it.
    snapshot: Option<(State, usize)>,
    pub(crate) is_failing: bool,
}

/// The model disk is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the disk is full")]
pub struct DiskFull;

impl ModelJournal {
    pub(crate) fn new(settings: Settings) -> ModelJournal {
        let shadow = State::new(settings.clone());
        ModelJournal { settings, facts: Vec::new(), n_synced: 0, shadow, snapshot: None, is_failing: false }
    }

    /// Every fact that is written, from the beginning.
    pub(crate) fn facts(&self) -> &[Fact] {
        &self.facts
    }

    /// Those that a loss of power leaves.
    pub(crate) fn synced(&self) -> &[Fact] {
        &self.facts[..self.n_synced]
    }

    /// What was written and not synced is gone.
    pub(crate) fn lose_power(&mut self) {
        self.facts.truncate(self.n_synced);
        self.shadow = State::new(self.settings.clone());
        for fact in &self.facts {
            self.shadow.apply(fact).expect("what is left fits as it did");
        }
    }

    /// The state that the written facts make.
    pub(crate) fn shadow(&self) -> &State {
        &self.shadow
    }

    pub(crate) fn keep_snapshot(&mut self, state: State) {
        self.snapshot = Some((state, self.facts.len()));
        self.n_synced = self.facts.len();
    }

    /// What a restart reads: the snapshot and the facts after it.
    pub(crate) fn contents(&self) -> (Option<State>, &[Fact]) {
        match &self.snapshot {
            Some((state, n_facts)) => (Some(state.clone()), &self.facts[*n_facts..]),
            None => (None, &self.facts),
        }
    }
}

impl Journal for ModelJournal {
    type Error = DiskFull;

    fn append(&mut self, facts: &[Fact]) -> Result<(), DiskFull> {
        self.note(facts)?;
        self.n_synced = self.facts.len();
        Ok(())
    }

    fn note(&mut self, facts: &[Fact]) -> Result<(), DiskFull> {
        if self.is_failing {
            return Err(DiskFull);
        }
        for fact in facts {
            self.shadow.apply(fact).expect("the core records what fits");
        }
        self.facts.extend_from_slice(facts);
        Ok(())
    }
}
