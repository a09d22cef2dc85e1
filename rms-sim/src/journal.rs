//! The model disk: facts that survive the server's death, or only that of its process, a snapshot, and states in which
//! writes fail, nearly fail, or are slow.

use rms_core::{Fact, Journal, Replay, State};
use rms_model::{Settings, Span};
use thiserror::Error;

use crate::dice::Dice;

/// How probably a batch that was not synced survives a loss of power, in percent.
const SURVIVES: u32 = 70;

#[derive(Debug)]
pub(crate) struct ModelJournal {
    settings: Settings,
    facts: Vec<Fact>,
    /// How many of them survive a loss of power.
    n_synced: usize,
    /// The ends of the batches that were written since, each of which may survive a loss of power or not.
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

    /// Simulates a loss of power on a disk that lies about order: any of the batches that were not synced are lost.
    pub(crate) fn lose_power(&mut self, dice: &mut Dice) {
        let survives: Vec<bool> = self.ends.iter().map(|_| dice.chance(SURVIVES)).collect();
        self.recover(&survives);
    }

    /// Keeps what a restart finds if these of the batches that were not synced survive. In the real journal each batch
    /// holds the digest of the one before: the first gap ends it, whatever follows.
    fn recover(&mut self, survives: &[bool]) {
        let intact = self.ends.iter().zip(survives).take_while(|(_, survives)| **survives);
        let n_left = intact.last().map_or(self.n_synced, |(end, _)| *end);
        if n_left < self.facts.len() {
            self.torn.clear();
        }
        self.facts.truncate(n_left);
        self.shadow = Replay::of(State::new(self.settings.clone()));
        for fact in &self.facts {
            self.shadow.follow(fact).expect("what is left fits as it did");
        }
        // A restart waits for the disk before it goes on.
        self.synced_all();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(depth: u32) -> Vec<Fact> {
        vec![Fact::DepthChosen { depth }]
    }

    #[test]
    fn a_loss_of_power_keeps_what_was_synced_and_nothing_behind_a_gap() {
        let check = |survives: &[bool], expected: u32| {
            let mut journal = ModelJournal::new(Settings::default());
            journal.append(&batch(1)).expect("the disk is fine");
            (2..=4).for_each(|depth| journal.note(&batch(depth)).expect("the disk is fine"));
            journal.recover(survives);
            let expected: Vec<Fact> = (1..=expected).flat_map(batch).collect();
            assert_eq!(journal.facts(), expected, "{survives:?}");
            // The next loss finds no batches of the time before.
            journal.note(&batch(9)).expect("the disk is fine");
            journal.recover(&[true]);
            assert_eq!(journal.facts().len(), expected.len() + 1, "{survives:?}");
        };
        check(&[true, true, true], 4);
        check(&[true, false, true], 2);
        check(&[false, true, true], 1);
        check(&[false, false, false], 1);
    }
}
