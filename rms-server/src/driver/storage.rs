//! The driver's disk: appends and traces facts, makes snapshots in the background, prunes the history.

use std::thread;
use std::time::{Duration, Instant};

use rms_core::{Config, Fact, Journal, Rms, Write};
use rms_model::error::chain;
use rms_model::{Span, Time};

use crate::history::{HistoryWriter, Retention};
use crate::inbox::{Inbound, Inbox};
use crate::journal::{AppendError, Compaction, FactLog, SnapshotError, SnapshotMade};

/// The journal, with the times of its next maintenance.
#[derive(Debug)]
pub struct Storage {
    log: FactLog,
    is_compacting: bool,
    /// No snapshot is made before this time.
    compact_at: Instant,
    prune_at: Instant,
}

/// The time between two attempts to make a snapshot.
const SNAPSHOT_BACKOFF: Duration = Duration::from_secs(30);

/// The time between two prunings of the history.
const PRUNE_INTERVAL: Duration = Duration::from_secs(10);

impl Storage {
    pub fn new(log: FactLog) -> Storage {
        Storage { log, is_compacting: false, compact_at: Instant::now(), prune_at: Instant::now() }
    }

    /// Writes facts to the journal.
    ///
    /// # Errors
    /// A full or failing disk, as a message for callers.
    pub fn write(&mut self, write: Write<'_>) -> Result<(), String> {
        write.to(self).map_err(|error| chain(&error))
    }

    /// Returns why no new work is accepted, if the disk is full.
    pub fn shortage(&mut self) -> Option<String> {
        self.log.shortage()
    }

    /// Returns the time until the next pruning, rounded up: a timer that fires too early would fire again at once.
    pub fn until_prune(&self) -> Span {
        let wait = self.prune_at.saturating_duration_since(Instant::now());
        Span::from_millis(wait.as_millis() as i64 + 1)
    }

    /// Starts a pruning of the history, if it is due.
    pub fn prune_if_due(&mut self, retention: Retention, now: Time) {
        if Instant::now() < self.prune_at {
            return;
        }
        self.log.history().prune(retention, now);
        self.prune_at = Instant::now() + PRUNE_INTERVAL;
    }

    /// Returns a snapshot order, if one is due; one runs at a time.
    pub fn due_compaction(&mut self) -> Option<Compaction> {
        if self.is_compacting || Instant::now() < self.compact_at {
            return None;
        }
        let order = self.log.due_compaction();
        self.is_compacting = order.is_some();
        order
    }

    /// Handles the result of a snapshot order. The journal is complete without a snapshot, only longer.
    pub fn snapshot_made(&mut self, made: Result<SnapshotMade, SnapshotError>) {
        self.is_compacting = false;
        match made {
            Ok(made) => {
                tracing::info!(seq = made.seq, bytes = made.n_bytes, "the journal begins at a new snapshot");
                self.log.set_snapshot(&made);
            }
            Err(error) => {
                tracing::warn!(retry_in = ?SNAPSHOT_BACKOFF, "no new snapshot: {}", chain(&error));
                self.log.snapshot_failed();
                self.compact_at = Instant::now() + SNAPSHOT_BACKOFF;
            }
        }
    }

    pub fn history(&self) -> &HistoryWriter {
        self.log.history()
    }
}

/// Facts are the log: each fact that was written is traced.
impl Journal for Storage {
    type Error = AppendError;

    fn append(&mut self, facts: &[Fact]) -> Result<(), AppendError> {
        self.log.append(facts)?;
        trace(facts);
        Ok(())
    }

    fn note(&mut self, facts: &[Fact]) -> Result<(), AppendError> {
        self.log.note(facts)?;
        trace(facts);
        Ok(())
    }
}

fn trace(facts: &[Fact]) {
    if tracing::enabled!(target: "facts", tracing::Level::INFO) {
        facts.iter().for_each(crate::trace::fact);
    }
}

/// Makes a snapshot on a thread of its own, and reports the result to the inbox.
pub fn compact_in_background(order: Compaction, config: Config, reports: Inbox) {
    let work = move || {
        let made = order.run(|snapshot, facts| Rms::restore(config, snapshot, facts), Rms::state);
        // A server that is stopping leaves the file, and the next start removes it.
        let _ = reports.put_blocking(Inbound::Snapshot(made));
    };
    if let Err(error) = thread::Builder::new().name("snapshot".to_owned()).spawn(work) {
        tracing::warn!(%error, "cannot start the snapshot thread: no snapshot is made until the server is restarted");
    }
}
