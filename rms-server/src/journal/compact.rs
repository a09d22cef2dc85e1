//! Makes snapshots aside: a second reader replays the journal while the writer goes on.
//!
//! The writer is stopped for nothing but one small transaction in the end. What is written is what a restart
//! would have restored, by the same code.

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use rms_core::Fact;
use rusqlite::params;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::{AppendError, SnapshotError};
use super::replay::{Head, replay};
use super::{Chain, FactLog, Volume, schema, snapshot};

/// An order to make a snapshot of the state after one fact; runs on any thread.
#[derive(Debug)]
pub struct Compaction {
    journal: PathBuf,
    until: u64,
}

/// A snapshot that lies on the disk and is not used yet: [`FactLog::adopt`] does that.
#[derive(Debug)]
pub struct SnapshotMade {
    pub seq: u64,
    pub n_bytes: u64,
    chain: Chain,
}

impl FactLog {
    /// Whether a snapshot is worth it now; asked after each append. One order is given at a time: the next
    /// becomes due after as much growth again.
    pub fn due_compaction(&mut self) -> Option<Compaction> {
        let enough_facts = self.grown.facts >= self.policy.facts;
        let enough_bytes = self.grown.bytes >= self.policy.bytes.max(self.snapshot_bytes);
        // Many small facts still are a quick restart as long as they are fewer bytes than the snapshot.
        let outgrown = self.grown.bytes >= self.snapshot_bytes / 2;
        let is_due = enough_bytes || (enough_facts && outgrown);
        if !is_due {
            return None;
        }
        self.grown = Volume::default();
        // What comes after this snapshot must not lean on what comes before it.
        self.environments.forget();
        Some(Compaction { journal: self.path.clone(), until: self.tail.seq })
    }

    /// From now on a restart begins at this snapshot; what lies before it is deleted bit by bit.
    ///
    /// # Errors
    /// A full or failing disk: the older snapshot and its facts stay in use.
    pub fn adopt(&mut self, made: &SnapshotMade) -> Result<(), AppendError> {
        let sql = "UPDATE head SET snapshot_seq = ?1, snapshot_chain = ?2 WHERE one = 1";
        let params = params![made.seq, &made.chain.0[..]];
        self.conn.execute(sql, params).map_err(|source| AppendError::from_sqlite(&self.path, source))?;
        if self.snapshot_seq != 0 {
            let old = snapshot::path_of(&self.path, self.snapshot_seq);
            if let Err(error) = fs::remove_file(&old) {
                tracing::warn!(path = %old.display(), %error, "an old snapshot stays on the disk");
            }
        }
        self.snapshot_seq = made.seq;
        self.snapshot_chain = made.chain;
        self.snapshot_bytes = made.n_bytes;
        Ok(())
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
        let conn = schema::open_reader(&self.journal)?;
        let head = Head::read(&conn, &self.journal)?;
        let replayed = replay(&conn, &self.journal, &head, self.until, restore)?;
        let restored = replayed.restored.map_err(|error| SnapshotError::Restore(Box::new(error)))?;
        let path = snapshot::path_of(&self.journal, self.until);
        let chain = replayed.tail.chain;
        let n_bytes = snapshot::write(&path, self.until, chain, state(&restored))?;
        Ok(SnapshotMade { seq: self.until, n_bytes, chain })
    }
}
