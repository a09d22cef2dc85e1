//! Makes snapshots aside: a second reader replays the journal while the writer goes on in a new segment.
//!
//! What is written is what a restart would have restored, by the same code. Once the snapshot has its name, a restart
//! begins there.

use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rms_core::Fact;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::batch::Kind;
use super::error::SnapshotError;
use super::replay::{Files, replay};
use super::segment::{self, Segment};
use super::{FactLog, snapshot};
use crate::history::HistoryWriter;

/// An order to make a snapshot of the state after one fact; runs on any thread.
#[derive(Debug)]
pub struct Compaction {
    dir: PathBuf,
    until: u64,
    history: HistoryWriter,
}

/// A snapshot at which a restart now begins.
#[derive(Debug)]
pub struct SnapshotMade {
    pub seq: u64,
    pub n_bytes: u64,
}

impl FactLog {
    /// Whether a snapshot is worth it now; asked after each append. One order is given at a time: the next
    /// becomes due after as much growth again.
    pub fn due_compaction(&mut self) -> Option<Compaction> {
        let enough_facts = self.grown.facts >= self.policy.facts;
        let enough_bytes = self.grown.bytes >= self.policy.bytes.max(self.snapshot_bytes);
        // Many small facts still are a quick restart as long as they are fewer bytes than the snapshot.
        let outgrown = self.grown.bytes >= self.snapshot_bytes / 2;
        // A snapshot holds whole segments, and what is not durable must not end one.
        let is_due = (enough_bytes || (enough_facts && outgrown)) && self.durable == self.tail;
        if !is_due {
            return None;
        }
        self.ordered = std::mem::take(&mut self.grown);
        if let Err(error) = self.begin_segment() {
            tracing::warn!(%error, "no new snapshot: the journal cannot begin a new file");
            return None;
        }
        // What comes after this snapshot must not lean on what comes before it.
        self.environments.forget();
        Some(Compaction { dir: self.dir.clone(), until: self.tail.seq, history: self.history.clone() })
    }

    /// The new file comes before the old one says that there is one.
    fn begin_segment(&mut self) -> io::Result<()> {
        let next = Segment::create(&self.dir, self.tail.seq + 1, self.tail.digest)?;
        if !next.has_reserve() {
            // This one has its own still.
            fs::remove_file(next.path())?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        let (seal, _) = self.batch(Kind::Seal, 0, &[]);
        let mut ended = std::mem::replace(&mut self.segment, next);
        self.durable_end = self.segment.end();
        ended.append(&seal).and_then(|()| ended.sync())?;
        // A reserve is for the file that is written.
        if let Err(error) = ended.end_here() {
            tracing::warn!(path = %ended.path().display(), %error, "a file of the journal keeps space that it does not need");
        }
        Ok(())
    }

    /// The snapshot that was ordered was not made: what has grown until then still waits for one.
    pub fn still_needs_snapshot(&mut self) {
        self.grown.facts += self.ordered.facts;
        self.grown.bytes += self.ordered.bytes;
    }

    /// Remembers the size of the snapshot: it decides when the next one is worth it.
    pub fn adopt(&mut self, made: &SnapshotMade) {
        self.snapshot_bytes = made.n_bytes;
    }
}

impl Compaction {
    /// Replays and writes. `restore` is what a restart does; `state` is what of it is kept.
    ///
    /// # Errors
    /// The journal cannot be read or the snapshot not be written; nothing has changed then.
    pub fn run<S, T, E>(
        self,
        restore: impl FnOnce(Option<S>, &mut dyn Iterator<Item = Fact>) -> Result<T, E>,
        state: impl FnOnce(&T) -> &S,
    ) -> Result<SnapshotMade, SnapshotError>
    where
        S: Serialize + DeserializeOwned,
        E: Error + Send + Sync + 'static,
    {
        let files = Files::find(&self.dir)?.up_to(self.until);
        let replayed = replay(&files, &mut |_, _| {}, restore)?;
        let restored = replayed.restored.map_err(|error| SnapshotError::Restore(Box::new(error)))?;
        // The facts of jobs that ended are about to go.
        self.history.sync(self.until).map_err(SnapshotError::History)?;
        let n_bytes = snapshot::write(&self.dir, self.until, replayed.tail.digest, state(&restored))?;
        remove_replaced(&self.dir, &Files::find(&self.dir)?);
        Ok(SnapshotMade { seq: self.until, n_bytes })
    }
}

/// Clears away what a crash left half written. Nobody else may be writing.
pub(super) fn remove_partial(dir: &Path) {
    for name in ["snapshot.partial", "log.partial"] {
        let path = dir.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %path.display(), %error, "a file of the journal that is half written stays");
            }
            Ok(()) | Err(_) => {}
        }
    }
}

/// Clears away what the snapshot replaces.
pub(super) fn remove_replaced(dir: &Path, files: &Files) {
    let first_kept = files.segments.first().copied().unwrap_or(1);
    let numbers = |listed: io::Result<Vec<u64>>| listed.unwrap_or_default().into_iter();
    let segments = numbers(segment::list(dir)).filter(|begin| *begin < first_kept);
    let snapshots = numbers(snapshot::list(dir)).filter(|seq| *seq < files.snapshot_seq);
    let stray =
        segments.map(|begin| segment::path_of(dir, begin)).chain(snapshots.map(|seq| snapshot::path_of(dir, seq)));
    for path in stray {
        if let Err(error) = fs::remove_file(&path) {
            tracing::warn!(path = %path.display(), %error, "a file of the journal that is not needed any more stays");
        }
    }
}
