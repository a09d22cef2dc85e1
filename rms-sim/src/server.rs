//! The model driver: what the production server's driver does, with moments at which it may die.

use rms_core::{Config, Effect, Event, Rms, State, Step, Uncommitted};
use rms_model::Time;

use crate::check::{Rule, Violation};
use crate::journal::ModelJournal;

/// Where kill -9 hits the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashPoint {
    /// Facts and effects are lost.
    BeforeCommit,
    /// Facts are durable, effects are lost.
    AfterCommit,
    /// So many effects got out.
    AmidEffects(usize),
}

#[derive(Debug)]
pub(crate) struct ModelServer {
    rms: Rms,
    /// Handled, not durable yet.
    pending: Step,
    inbox: Vec<Event>,
    /// The journal has refused the pending step.
    is_stuck: bool,
    /// The pending step has come about before this turn: the journal has refused it.
    is_behind: bool,
}

/// What came of a turn.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Facts are durable; perform these.
    Effects(Vec<Effect>),
    /// The step is kept, to be tried again.
    NotDurable,
    /// The server is dead; these effects got out before.
    Crashed(Vec<Effect>),
}

impl ModelServer {
    pub(crate) fn new(config: Config) -> ModelServer {
        ModelServer {
            rms: Rms::new(config),
            pending: Step::default(),
            inbox: Vec::new(),
            is_stuck: false,
            is_behind: false,
        }
    }

    pub(crate) fn restore(config: Config, now: Time, journal: &ModelJournal) -> ModelServer {
        let (snapshot, facts) = journal.contents();
        let mut rms = Rms::restore(config, snapshot, facts.iter().cloned()).expect("the facts are of one journal");
        let pending = rms.boot(now);
        ModelServer { rms, pending, inbox: Vec::new(), is_stuck: false, is_behind: false }
    }

    pub(crate) fn take(&mut self, event: Event) {
        self.inbox.push(event);
    }

    pub(crate) fn state(&self) -> &State {
        self.rms.state()
    }

    pub(crate) fn next_timer(&self) -> Option<Time> {
        self.rms.next_timer()
    }

    /// Is there anything to do at `now`?
    pub(crate) fn is_due(&self, now: Time) -> bool {
        let is_time = self.rms.next_timer().is_some_and(|at| at <= now);
        !self.inbox.is_empty() || !self.pending.is_empty() || is_time
    }

    /// Has it heard of what it has not told the consequences of?
    pub(crate) fn is_busy(&self) -> bool {
        !self.inbox.is_empty() || !self.pending.is_empty()
    }

    pub(crate) fn is_stuck(&self) -> bool {
        self.is_stuck
    }

    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// The journal is tried again with the next turn.
    pub(crate) fn unstick(&mut self) {
        self.is_stuck = false;
    }

    /// One batch: every event of this instant, a tick if one is due, one commit.
    pub(crate) fn turn(
        &mut self,
        now: Time,
        journal: &mut ModelJournal,
        crash: Option<CrashPoint>,
    ) -> Result<Turn, Violation> {
        for event in std::mem::take(&mut self.inbox) {
            let step = self.rms.handle(now, event);
            self.pending.merge(step);
            self.check()?;
        }
        if self.rms.next_timer().is_some_and(|at| at <= now) {
            let step = self.rms.handle(now, Event::Tick);
            self.pending.merge(step);
            self.check()?;
        }
        let step = std::mem::take(&mut self.pending);
        let crash = crash.filter(|_| !step.is_empty());
        if crash == Some(CrashPoint::BeforeCommit) {
            // The process is dead: what it had in memory is gone.
            drop(step);
            return Ok(Turn::Crashed(Vec::new()));
        }
        let mut effects = match step.commit(journal) {
            Ok(effects) => effects,
            Err(Uncommitted { step, error: _ }) => {
                self.pending = step;
                (self.is_stuck, self.is_behind) = (true, true);
                return Ok(Turn::NotDurable);
            }
        };
        (self.is_stuck, self.is_behind) = (false, false);
        match crash {
            Some(CrashPoint::AfterCommit) => Ok(Turn::Crashed(Vec::new())),
            Some(CrashPoint::AmidEffects(n_out)) => {
                effects.truncate(n_out);
                Ok(Turn::Crashed(effects))
            }
            Some(CrashPoint::BeforeCommit) | None => Ok(Turn::Effects(effects)),
        }
    }

    fn check(&self) -> Result<(), Violation> {
        self.rms.state().check().map_err(|violation| Rule::State.broken(violation.to_string()))
    }
}
