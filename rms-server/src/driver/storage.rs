//! The disk as the loop around the core sees it: facts are appended and traced, snapshots are made aside, what need not be kept
//! of the history is forgotten.

use std::thread;
use std::time::{Duration, Instant};

use rms_core::{Config, Fact, Journal, Rms, Write};
use rms_model::error::chain;
use rms_model::{Span, Time};

use crate::history::{HistoryWriter, Retention};
use crate::inbox::{Inbound, Inbox};
use crate::journal::{AppendError, Compaction, FactLog, SnapshotError, SnapshotMade};

/// The journal, and when it is looked after.
#[derive(Debug)]
pub struct Storage {
    log: FactLog,
    is_compacting: bool,
    /// No snapshot is made before.
    compact_at: Instant,
    prune_at: Instant,
}

/// Between two tries to make a snapshot.
const SNAPSHOT_BACKOFF: Duration = Duration::from_secs(30);

/// Between two looks whether there is something to forget.
const PRUNE_INTERVAL: Duration = Duration::from_secs(10);

impl Storage {
    pub fn new(log: FactLog) -> Storage {
        Storage { log, is_compacting: false, compact_at: Instant::now(), prune_at: Instant::now() }
    }

    /// # Errors
    /// A full or failing disk, in words for callers.
    pub fn write(&mut self, write: Write<'_>) -> Result<(), String> {
        write.to(self).map_err(|error| chain(&error))
    }

    /// Why there is to be no new work, if the disk is full.
    pub fn shortage(&mut self) -> Option<String> {
        self.log.shortage()
    }

    /// When the history is to be looked through for what need not be kept; a timer that rings too early would ring again at
    /// once.
    pub fn until_prune(&self) -> Span {
        let wait = self.prune_at.saturating_duration_since(Instant::now());
        Span::from_millis(wait.as_millis() as i64 + 1)
    }

    /// Has what need not be kept forgotten, if it is time to look.
    pub fn prune_if_due(&mut self, retention: Retention, now: Time) {
        if Instant::now() < self.prune_at {
            return;
        }
        self.log.history().keep(retention, now);
        self.prune_at = Instant::now() + PRUNE_INTERVAL;
    }

    /// A snapshot to be made aside, one at a time.
    pub fn due_compaction(&mut self) -> Option<Compaction> {
        if self.is_compacting || Instant::now() < self.compact_at {
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

/// Facts are the log: each that was written is traced.
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
