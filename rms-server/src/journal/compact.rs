//! Makes snapshots in the background: a second reader replays the journal while the writer goes on in a new segment.
//!
//! The snapshot is the state that a restart would have restored, made by the same code. Once the file has its final
//! name, a restart begins there.

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

/// An order to make a snapshot of the state after a certain fact; it can run on any thread.
#[derive(Debug)]
pub struct Compaction {
    dir: PathBuf,
    until: u64,
    history: HistoryWriter,
}

/// A finished snapshot, at which a restart begins now.
#[derive(Debug)]
pub struct SnapshotMade {
    pub seq: u64,
    pub n_bytes: u64,
}

impl FactLog {
    /// Returns a snapshot order, if one is due; called after each append. One order is given at a time: the next
    /// becomes due after as much growth again.
    pub fn due_compaction(&mut self) -> Option<Compaction> {
        let enough_facts = self.grown.facts >= self.policy.facts;
        let enough_bytes = self.grown.bytes >= self.policy.bytes.max(self.snapshot_bytes);
        // A restart replays many small facts quickly, as long as they are fewer bytes than the snapshot.
        let outgrown = self.grown.bytes >= self.snapshot_bytes / 2;
        // A snapshot covers whole segments, and a segment must not end with facts that are not durable.
        let is_due = (enough_bytes || (enough_facts && outgrown)) && self.durable == self.tail;
        if !is_due {
            return None;
        }
        self.ordered = std::mem::take(&mut self.grown);
        if let Err(error) = self.begin_segment() {
            tracing::warn!(%error, "no new snapshot: the journal cannot begin a new file");
            self.snapshot_failed();
            return None;
        }
        // Facts after this snapshot must not refer to facts before it.
        self.environments.clear();
        Some(Compaction { dir: self.dir.clone(), until: self.tail.seq, history: self.history.clone() })
    }

    /// Starts a new segment. The new file is created before the old one is sealed.
    fn begin_segment(&mut self) -> io::Result<()> {
        let next = Segment::create(&self.dir, self.tail.seq + 1, self.tail.digest)?;
        if !next.has_reserve() {
            // The current segment still has its reserve.
            fs::remove_file(next.path())?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        let (seal, _) = self.batch(Kind::Seal, 0, &[]);
        let mut ended = std::mem::replace(&mut self.segment, next);
        self.durable_end = self.segment.end();
        ended.append(&seal)?;
        ended.sync()?;
        // Only the current segment needs a reserve.
        if let Err(error) = ended.trim_to_end() {
            tracing::warn!(path = %ended.path().display(), %error, "cannot free the unused space of a journal file");
        }
        Ok(())
    }

    /// Notes that the ordered snapshot was not made: the growth before it counts again.
    pub fn snapshot_failed(&mut self) {
        self.grown.facts += self.ordered.facts;
        self.grown.bytes += self.ordered.bytes;
    }

    /// Stores the size of the snapshot, which decides when the next one is due.
    pub fn set_snapshot(&mut self, made: &SnapshotMade) {
        self.snapshot_bytes = made.n_bytes;
    }
}

impl Compaction {
    /// Replays the journal and writes the snapshot. `restore` is what a restart does; `state` selects what is stored.
    ///
    /// # Errors
    /// The journal cannot be read, or the snapshot cannot be written; nothing has changed then.
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
        // The facts of jobs that ended are about to be removed.
        self.history.sync(self.until).map_err(SnapshotError::History)?;
        let n_bytes = snapshot::write(&self.dir, self.until, replayed.tail.digest, state(&restored))?;
        remove_replaced(&self.dir, &Files::find(&self.dir)?);
        Ok(SnapshotMade { seq: self.until, n_bytes })
    }
}

/// Removes partial files that a crash has left. There must be no other writer.
pub(super) fn remove_partial(dir: &Path) {
    for name in ["snapshot.partial", "log.partial"] {
        let path = dir.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %path.display(), %error, "cannot remove a partial file of the journal");
            }
            Ok(()) | Err(_) => {}
        }
    }
}

/// Removes the files that the snapshot replaces.
pub(super) fn remove_replaced(dir: &Path, files: &Files) {
    let first_kept = files.segments.first().copied().unwrap_or(1);
    let numbers = |listed: io::Result<Vec<u64>>| listed.unwrap_or_default().into_iter();
    let segments = numbers(segment::list(dir)).filter(|begin| *begin < first_kept);
    let snapshots = numbers(snapshot::list(dir)).filter(|seq| *seq < files.snapshot_seq);
    let stray =
        segments.map(|begin| segment::path_of(dir, begin)).chain(snapshots.map(|seq| snapshot::path_of(dir, seq)));
    for path in stray {
        if let Err(error) = fs::remove_file(&path) {
            tracing::warn!(path = %path.display(), %error, "cannot remove a file of the journal that is no longer needed");
        }
    }
}
