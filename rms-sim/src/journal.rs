//! The model disk: facts that survive the server's death, or only that of its process, a snapshot, and days on which
//! nothing can be written, or hardly, or slowly.

use rms_core::{Fact, Journal, Replay, State};
use rms_model::{Settings, Span};
use thiserror::Error;

use crate::dice::Dice;

#[derive(Debug)]
pub(crate) struct ModelJournal {
    settings: Settings,
    facts: Vec<Fact>,
    /// So many of them survive a loss of power.
    n_synced: usize,
    /// Where the batches end that were written since, and may survive it or not, each with all before it.
    ends: Vec<usize>,
    /// What could not be written, the last time, as far as anybody can tell: it may be on the disk.
    torn: Vec<Fact>,
    /// What the facts say, applied one by one.
    shadow: Replay,
    /// A state, and how many facts are in it.
    snapshot: Option<(State, usize)>,
    pub(crate) weather: DiskState,
}

/// The state of the model disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskState {
    Fine,
    Failing,
    /// It has a reserve left.
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

    /// Every fact that is written, from the beginning.
    pub(crate) fn facts(&self) -> &[Fact] {
        &self.facts
    }

    /// Those that a loss of power leaves.
    pub(crate) fn synced(&self) -> &[Fact] {
        &self.facts[..self.n_synced]
    }

    /// Why there is to be no new work.
    pub(crate) fn shortage(&self) -> Option<String> {
        (self.weather == DiskState::Full).then(|| "the disk is full".to_owned())
    }

    /// How long until it is known how a write went.
    pub(crate) fn takes(&self) -> Span {
        match self.weather {
            DiskState::Slow(span) => span,
            DiskState::Fine | DiskState::Failing | DiskState::Full => Span::ZERO,
        }
    }

    /// Of what was written and not synced, some of the last batches are gone.
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

    /// What a restart finds; `finds_torn` whether what could not be written is there after all.
    pub(crate) fn settle(&mut self, finds_torn: bool) {
        let torn = std::mem::take(&mut self.torn);
        if finds_torn {
            self.keep(&torn);
        }
    }

    /// The state that the written facts make.
    pub(crate) fn shadow(&self) -> &State {
        self.shadow.state()
    }

    pub(crate) fn keep_snapshot(&mut self, state: State) {
        self.snapshot = Some((state, self.facts.len()));
        self.synced_all();
    }

    /// What a restart reads: the snapshot and the facts after it.
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
