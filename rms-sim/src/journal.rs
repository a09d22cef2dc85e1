//! The model disk: facts that survive the server's death, or only that of its process, a snapshot, and states in which
//! writes fail, nearly fail, or are slow.

use rms_core::{Fact, Journal, Replay, State};
use rms_model::{Settings, Span};
use thiserror::Error;

use crate::dice::Dice;

#[derive(Debug)]
pub(crate) struct ModelJournal {
    settings: Settings,
    facts: Vec<Fact>,
    /// How many of them survive a loss of power.
    n_synced: usize,
    /// The ends of the batches that were written since, each of which may survive a loss of power together with all
    /// before it.
    ends: Vec<usize>,
    /// The facts whose last write failed; they may be on the disk nevertheless.
    torn: Vec<Fact>,
    /// The state that follows from the facts, applied one by one.
    shadow: Replay,
    /// A state, and the number of facts that it contains.
    snapshot: Option<(State, usize)>,
    pub(crate) weather: DiskState,
}

/// The state of the model disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskState {
    Fine,
    Failing,
    /// It has only a reserve left.
    Full,
    /// The result of a write is known only after this time.
    Slow(Span),
}

/// The model disk rejects all writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the disk fails")]
pub struct DiskFails;

impl ModelJournal {
    pub(crate) fn new(settings: Settings) -> ModelJournal {
        let shadow = Replay::of(State::new(settings.clone()));
        ModelJournal {
            settings,
            facts: Vec::new(),
            n_synced: 0,
            ends: Vec::new(),
            torn: Vec::new(),
            shadow,
            snapshot: None,
            weather: DiskState::Fine,
        }
    }

    /// Returns every fact that was written, from the beginning.
    pub(crate) fn facts(&self) -> &[Fact] {
        &self.facts
    }

    /// Returns the facts that survive a loss of power.
    pub(crate) fn synced(&self) -> &[Fact] {
        &self.facts[..self.n_synced]
    }

    /// Returns why the server should take no new work.
    pub(crate) fn shortage(&self) -> Option<String> {
        (self.weather == DiskState::Full).then(|| "the disk is full".to_owned())
    }

    /// Returns how long it takes until the result of a write is known.
    pub(crate) fn takes(&self) -> Span {
        match self.weather {
            DiskState::Slow(span) => span,
            DiskState::Fine | DiskState::Failing | DiskState::Full => Span::ZERO,
        }
    }

    /// Simulates a loss of power: of what was written and not synced, some of the last batches are lost.
    pub(crate) fn lose_power(&mut self, dice: &mut Dice) {
        let ends: Vec<usize> = std::iter::once(self.n_synced).chain(self.ends.iter().copied()).collect();
        let n_left = *dice.pick(&ends).expect("there is what is synced");
        if n_left < self.facts.len() {
            self.torn.clear();
        }
        self.facts.truncate(n_left);
        self.shadow = Replay::of(State::new(self.settings.clone()));
        for fact in &self.facts {
            self.shadow.follow(fact).expect("what is left fits as it did");
        }
    }

    /// Makes the contents what a restart finds; `finds_torn` says whether facts whose write failed are on the disk
    /// after all.
    pub(crate) fn settle(&mut self, finds_torn: bool) {
        let torn = std::mem::take(&mut self.torn);
        if finds_torn {
            self.keep(&torn);
        }
    }

    /// Returns the state that follows from the written facts.
    pub(crate) fn shadow(&self) -> &State {
        self.shadow.state()
    }

    pub(crate) fn keep_snapshot(&mut self, state: State) {
        self.snapshot = Some((state, self.facts.len()));
        self.synced_all();
    }

    /// Returns what a restart reads: the snapshot and the facts after it.
    pub(crate) fn contents(&self) -> (Option<State>, &[Fact]) {
        match &self.snapshot {
            Some((state, n_facts)) => (Some(state.clone()), &self.facts[*n_facts..]),
            None => (None, &self.facts),
        }
    }

    fn keep(&mut self, facts: &[Fact]) {
        for fact in facts {
            self.shadow.follow(fact).expect("the core records what fits");
        }
        self.facts.extend_from_slice(facts);
        self.ends.push(self.facts.len());
    }

    fn synced_all(&mut self) {
        self.n_synced = self.facts.len();
        self.ends.clear();
    }
}

impl Journal for ModelJournal {
    type Error = DiskFails;

    fn append(&mut self, facts: &[Fact]) -> Result<(), DiskFails> {
        self.note(facts)?;
        self.synced_all();
        Ok(())
    }

    fn note(&mut self, facts: &[Fact]) -> Result<(), DiskFails> {
        self.torn.clear();
        if self.weather == DiskState::Failing {
            self.torn.extend_from_slice(facts);
            return Err(DiskFails);
        }
        self.keep(facts);
        Ok(())
    }
}
