//! Makes steps durable, and keeps those that cannot be until the disk takes them.

use std::thread;
use std::time::{Duration, Instant};

use rms_core::{Config, Effect, Fact, Journal, Rms, Step, Uncommitted};
use rms_model::{Span, Time};

use crate::history::{HistoryWriter, Retention};
use crate::inbox::{Failing, Inbound, Inbox};
use crate::journal::{AppendError, Compaction, FactLog, SnapshotError, SnapshotMade};
use rms_model::error::chain;

/// The journal, with what still has to go there.
#[derive(Debug)]
pub struct Storage {
    log: FactLog,
    /// Everything since the last commit. While the disk fails it grows by what agents report only, which their
    /// jobs bound: calls are refused and nothing is started.
    pending: Step,
    trouble: Option<Trouble>,
    /// Set while the disk is full but for a reserve: what callers with new work are told, and when to look again.
    shortage: Option<(Failing, Instant)>,
    /// Set while all that is pending can wait.
    waiting_until: Option<Instant>,
    is_compacting: bool,
    /// No snapshot is made before.
    compact_at: Instant,
    prune_at: Instant,
}

#[derive(Debug)]
struct Trouble {
    failing: Failing,
    backoff: Duration,
    retry_at: Instant,
}

const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);

/// How often a full disk is looked at.
const FULL_BACKOFF: Duration = Duration::from_millis(500);

/// Between two tries to make a snapshot.
const SNAPSHOT_BACKOFF: Duration = Duration::from_secs(30);

/// Between two looks whether there is something to forget.
const PRUNE_INTERVAL: Duration = Duration::from_secs(10);

/// How long a step that can wait does wait for another one to share its sync with.
const PATIENCE: Duration = Duration::from_millis(50);

impl Storage {
    pub fn new(log: FactLog) -> Storage {
        Storage {
            log,
            pending: Step::default(),
            trouble: None,
            shortage: None,
            waiting_until: None,
            is_compacting: false,
            compact_at: Instant::now(),
            prune_at: Instant::now(),
        }
    }

    pub fn add(&mut self, step: Step) {
        self.pending.merge(step);
    }

    /// Why nothing can be made durable now, in words for callers.
    pub fn failure(&self) -> Option<&Failing> {
        self.trouble.as_ref().map(|trouble| &trouble.failing)
    }

    /// Why no new work can be taken in now. Reports of agents, questions and orders about what is there may still be: there
    /// is a reserve for them.
    pub fn shortage(&self) -> Option<&Failing> {
        self.failure().or(self.shortage.as_ref().map(|(failing, _)| failing))
    }

    /// When the disk should be tried again, if it is failing or full.
    pub fn until_retry(&self) -> Option<Span> {
        let retry_at = self.trouble.as_ref().map(|trouble| trouble.retry_at);
        retry_at.or(self.shortage.as_ref().map(|(_, at)| *at)).map(until)
    }

    /// When what is pending has waited long enough.
    pub fn until_sync(&self) -> Option<Span> {
        self.waiting_until.map(until)
    }

    /// Everything that was added becomes durable, and its effects are free. While the disk fails, this tries
    /// again only when it is time to.
    ///
    /// # Errors
    /// What to tell the callers who wait.
    pub fn commit(&mut self) -> Result<Vec<Effect>, Failing> {
        if let Some(trouble) = &self.trouble
            && Instant::now() < trouble.retry_at
        {
            return Ok(Vec::new());
        }
        if self.pending.is_empty() {
            self.recovered();
            self.look_for_space();
            return Ok(Vec::new());
        }
        // One sync less for each job: that it runs becomes durable with what comes next, if that comes soon.
        if self.pending.can_wait() {
            let waiting_until = *self.waiting_until.get_or_insert_with(|| Instant::now() + PATIENCE);
            if Instant::now() < waiting_until {
                return Ok(Vec::new());
            }
        }
        self.waiting_until = None;
        let step = std::mem::take(&mut self.pending);
        match step.commit(&mut Traced(&mut self.log)) {
            Ok(effects) => {
                self.recovered();
                self.look_for_space();
                Ok(effects)
            }
            Err(Uncommitted { step, error }) => {
                self.pending = step;
                Err(self.failed(&error))
            }
        }
    }

    fn recovered(&mut self) {
        if self.trouble.take().is_some() {
            tracing::info!("the journal can be written again");
        }
    }

    fn look_for_space(&mut self) {
        let is_early = self.shortage.as_ref().is_some_and(|(_, retry_at)| Instant::now() < *retry_at);
        if is_early {
            return;
        }
        let Some(message) = self.log.shortage() else {
            if self.shortage.take().is_some() {
                tracing::info!("there is space for the journal again");
            }
            return;
        };
        if self.shortage.is_none() {
            tracing::error!("{message}; reading, cancelling and draining go on");
        }
        self.shortage = Some((Failing { message }, Instant::now() + FULL_BACKOFF));
    }

    fn failed(&mut self, error: &AppendError) -> Failing {
        let message = chain(error);
        let backoff = match &self.trouble {
            Some(trouble) => (trouble.backoff * 2).min(LONGEST_BACKOFF),
            None => FIRST_BACKOFF,
        };
        tracing::error!(retry_in = ?backoff, "{message}");
        let failing = Failing { message };
        self.trouble = Some(Trouble { failing: failing.clone(), backoff, retry_at: Instant::now() + backoff });
        failing
    }

    /// When the history is to be looked through for what need not be kept.
    pub fn until_prune(&self) -> Span {
        until(self.prune_at)
    }

    /// Has what need not be kept forgotten, if it is time to look.
    pub fn prune_if_due(&mut self, retention: Retention, now: Time) {
        if Instant::now() < self.prune_at {
            return;
        }
        self.log.history().keep(retention, now);
        self.prune_at = Instant::now() + PRUNE_INTERVAL;
    }

    /// A snapshot to be made aside, one at a time, and none while the disk fails.
    pub fn due_compaction(&mut self) -> Option<Compaction> {
        if self.is_compacting || self.shortage().is_some() || Instant::now() < self.compact_at {
            return None;
        }
        let order = self.log.due_compaction();
        self.is_compacting = order.is_some();
        order
    }

    /// The journal is whole without a snapshot, only longer.
    pub fn snapshot_made(&mut self, made: Result<SnapshotMade, SnapshotError>) {
        self.is_compacting = false;
        match made {
            Ok(made) => {
                tracing::info!(seq = made.seq, bytes = made.n_bytes, "the journal begins at a new snapshot");
                self.log.adopt(&made);
            }
            Err(error) => {
                tracing::warn!(retry_in = ?SNAPSHOT_BACKOFF, "no new snapshot: {}", chain(&error));
                self.log.still_needs_snapshot();
                self.compact_at = Instant::now() + SNAPSHOT_BACKOFF;
            }
        }
    }

    pub fn history(&self) -> &HistoryWriter {
        self.log.history()
    }
}

/// Replays on a thread of its own and reports to the inbox.
pub fn compact_aside(order: Compaction, config: Config, reports: Inbox) {
    let work = move || {
        let made = order.run(|snapshot, facts| Rms::restore(config, snapshot, facts), Rms::state);
        // A server that is stopping leaves the file, and the next start clears it away.
        let _ = reports.put_blocking(Inbound::Snapshot(made));
    };
    if let Err(error) = thread::Builder::new().name("snapshot".to_owned()).spawn(work) {
        tracing::warn!(%error, "no thread for a snapshot: none will be made until the restart");
    }
}

/// Facts are the log: each that has become durable is traced.
struct Traced<'a>(&'a mut FactLog);

impl Journal for Traced<'_> {
    type Error = AppendError;

    fn append(&mut self, facts: &[Fact]) -> Result<(), AppendError> {
        self.0.append(facts)?;
        self.trace(facts);
        Ok(())
    }

    fn note(&mut self, facts: &[Fact]) -> Result<(), AppendError> {
        self.0.note(facts)?;
        self.trace(facts);
        Ok(())
    }
}

impl Traced<'_> {
    fn trace(&self, facts: &[Fact]) {
        if tracing::enabled!(target: "facts", tracing::Level::INFO) {
            facts.iter().for_each(crate::trace::fact);
        }
    }
}

/// From now, rounded up: a timer that rings too early would ring again at once.
fn until(instant: Instant) -> Span {
    let wait = instant.saturating_duration_since(Instant::now());
    Span::from_millis(wait.as_millis() as i64 + 1)
}
