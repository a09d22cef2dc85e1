//! The durable log of facts: one SQLite file, one writer, one transaction for each batch.
//!
//! A job's history row is written in the transaction of the fact that ends it, so history and state never differ.
//! Now and then a snapshot of the state is written beside the journal and the facts before it are deleted.

mod chain;
mod compact;
mod environments;
mod error;
mod past;
mod replay;
mod schema;
mod snapshot;

use std::path::{Path, PathBuf};

use rms_core::Fact;
use rms_core::negotiate::contract::NegotiationRecord;
use rms_model::{JobId, JobRecord};
use rusqlite::{Connection, params};

pub use self::chain::Chain;
pub use self::compact::{Compaction, SnapshotMade};
pub use self::error::{AppendError, OpenError, SnapshotError};
pub use self::past::Past;
pub use self::schema::{FORMAT, open_reader};

/// When it is worth to write a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotPolicy {
    /// After this many facts since the last one ...
    pub facts: u64,
    /// ... or this many bytes of them; but never before the journal outgrew the last snapshot, so that the work
    /// stays in proportion.
    pub bytes: u64,
}

impl Default for SnapshotPolicy {
    fn default() -> SnapshotPolicy {
        SnapshotPolicy { facts: 100_000, bytes: 64 * 1024 * 1024 }
    }
}

/// The journal, open for writing. Only one process may hold it: see [`crate::dir::DirLock`].
#[derive(Debug)]
pub struct FactLog {
    conn: Connection,
    path: PathBuf,
    policy: SnapshotPolicy,
    tail: Tail,
    /// The lowest fact that is still stored, or the next one to be.
    first_seq: u64,
    /// The snapshot that a restart begins from; 0 = none.
    snapshot_seq: u64,
    snapshot_chain: Chain,
    snapshot_bytes: u64,
    /// Facts and bytes appended since the last snapshot was made or ordered.
    grown: Volume,
    environments: environments::Written,
    buffer: Vec<u8>,
    sync: Sync,
}

/// What a commit waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sync {
    /// Until the disk has it, and all that was written before.
    Full,
    /// Until the operating system has it: a process that dies loses nothing, a loss of power what no later commit has
    /// synced.
    Later,
}

/// Where the log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tail {
    seq: u64,
    chain: Chain,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Volume {
    facts: u64,
    bytes: u64,
}

impl FactLog {
    /// Makes a new, empty journal.
    ///
    /// # Errors
    /// There is one already, or the file cannot be written.
    pub fn create(path: &Path, policy: SnapshotPolicy) -> Result<FactLog, OpenError> {
        schema::create(path)?;
        FactLog::open(path, policy)
    }

    /// Opens a journal; [`FactLog::replay`] must follow before anything is appended.
    ///
    /// # Errors
    /// A missing file, a foreign one, one of another format, or a damaged head.
    pub fn open(path: &Path, policy: SnapshotPolicy) -> Result<FactLog, OpenError> {
        let conn = schema::open_writer(path)?;
        let head = replay::Head::read(&conn, path)?;
        Ok(FactLog {
            conn,
            path: path.to_owned(),
            policy,
            // Known once the facts were read and their chain checked.
            tail: Tail { seq: head.last_seq, chain: head.snapshot_chain },
            first_seq: head.snapshot_seq + 1,
            snapshot_seq: head.snapshot_seq,
            snapshot_chain: head.snapshot_chain,
            snapshot_bytes: 0,
            grown: Volume::default(),
            environments: environments::Written::default(),
            buffer: Vec::new(),
            sync: Sync::Full,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The number of the last durable fact.
    pub fn last_seq(&self) -> u64 {
        self.tail.seq
    }

    /// Makes the facts durable, all or none of them.
    ///
    /// # Errors
    /// A full or failing disk; the log is as before, and the same append may be tried again.
    pub fn append(&mut self, facts: &[Fact]) -> Result<(), AppendError> {
        self.write(facts, Sync::Full)
    }

    /// Writes facts that become durable with the next ones that are appended.
    ///
    /// # Errors
    /// As [`FactLog::append`].
    pub fn note(&mut self, facts: &[Fact]) -> Result<(), AppendError> {
        self.write(facts, Sync::Later)
    }

    fn write(&mut self, facts: &[Fact], sync: Sync) -> Result<(), AppendError> {
        self.wait_for(sync)?;
        let truncate_until = self.next_truncation(facts.len() as u64);
        let appended = self.append_in_one_transaction(facts, truncate_until);
        match &appended {
            Ok(_) => self.environments.keep(),
            Err(_) => self.environments.roll_back(),
        }
        let (tail, volume) = appended?;
        self.tail = tail;
        self.grown.facts += volume.facts;
        self.grown.bytes += volume.bytes;
        self.first_seq = truncate_until.map_or(self.first_seq, |until| until + 1);
        Ok(())
    }

    fn wait_for(&mut self, sync: Sync) -> Result<(), AppendError> {
        if self.sync == sync {
            return Ok(());
        }
        let word = match sync {
            Sync::Full => "FULL",
            // In a write-ahead log: commits wait for nothing, checkpoints do.
            Sync::Later => "NORMAL",
        };
        let set = self.conn.pragma_update(None, "synchronous", word);
        set.map_err(|source| AppendError::from_sqlite(&self.path, source))?;
        self.sync = sync;
        Ok(())
    }

    fn append_in_one_transaction(
        &mut self,
        facts: &[Fact],
        truncate_until: Option<u64>,
    ) -> Result<(Tail, Volume), AppendError> {
        let path = &self.path;
        let of_sqlite = |source| AppendError::from_sqlite(path, source);
        let mut tail = self.tail;
        let mut volume = Volume::default();
        // Dropped on any error below, which rolls it back.
        let transaction = self.conn.transaction().map_err(of_sqlite)?;
        {
            let mut insert = transaction
                .prepare_cached("INSERT INTO facts (seq, chain, environment_of, body) VALUES (?1, ?2, ?3, ?4)")
                .map_err(of_sqlite)?;
            for fact in facts {
                self.buffer.clear();
                let seq = tail.seq + 1;
                let short = self.environments.shorten(fact, seq);
                let (written, environment_of) = match &short {
                    Some((short, holder)) => (short, Some(*holder)),
                    None => (fact, None),
                };
                rmp_serde::encode::write_named(&mut self.buffer, written)?;
                tail = Tail { seq, chain: tail.chain.then(environment_of, &self.buffer) };
                insert.execute(params![seq, &tail.chain.0[..], environment_of, &self.buffer[..]]).map_err(of_sqlite)?;
                volume.facts += 1;
                volume.bytes += self.buffer.len() as u64;
                if let Fact::JobDone { record, negotiations, .. } = fact {
                    insert_history(&transaction, record, &mut self.buffer, path)?;
                    insert_negotiations(&transaction, record.job, negotiations, &mut self.buffer, path)?;
                }
            }
            let mut advance =
                transaction.prepare_cached("UPDATE head SET last_seq = ?1 WHERE one = 1").map_err(of_sqlite)?;
            advance.execute([tail.seq]).map_err(of_sqlite)?;
            if let Some(until) = truncate_until {
                let mut delete = transaction.prepare_cached("DELETE FROM facts WHERE seq <= ?1").map_err(of_sqlite)?;
                delete.execute([until]).map_err(of_sqlite)?;
            }
        }
        transaction.commit().map_err(of_sqlite)?;
        Ok((tail, volume))
    }

    /// Facts before the snapshot are deleted in slices that ride on ordinary commits, so that none takes long.
    fn next_truncation(&self, n_facts: u64) -> Option<u64> {
        let is_done = self.first_seq > self.snapshot_seq;
        if is_done {
            return None;
        }
        // Deleting faster than appending, the end is always reached.
        let slice = MIN_TRUNCATION.max(2 * n_facts);
        Some(self.snapshot_seq.min(self.first_seq + slice - 1))
    }
}

impl rms_core::Journal for FactLog {
    type Error = AppendError;

    fn append(&mut self, facts: &[Fact]) -> Result<(), AppendError> {
        FactLog::append(self, facts)
    }

    fn note(&mut self, facts: &[Fact]) -> Result<(), AppendError> {
        FactLog::note(self, facts)
    }
}

fn insert_history(conn: &Connection, record: &JobRecord, buffer: &mut Vec<u8>, path: &Path) -> Result<(), AppendError> {
    buffer.clear();
    rmp_serde::encode::write_named(buffer, record)?;
    let of_sqlite = |source| AppendError::from_sqlite(path, source);
    // A job is done once. Should a restored backup know it already, the newer record is the true one.
    let mut insert = conn
        .prepare_cached(
            "INSERT OR REPLACE INTO history (job, owner, name, outcome, submitted, started, ended, cpu_ms, peak_kib, record)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )
        .map_err(of_sqlite)?;
    insert
        .execute(params![
            record.job.0,
            record.owner.0,
            record.name,
            record.outcome.word(),
            record.submitted.as_millis(),
            record.started.map(|time| time.as_millis()),
            record.ended.as_millis(),
            record.usage.cpu.as_millis(),
            // The column is for selecting; the record keeps what an agent said, however wild it is.
            i64::try_from(record.usage.peak_memory_kib).unwrap_or(i64::MAX),
            &buffer[..],
        ])
        .map_err(of_sqlite)?;
    Ok(())
}

fn insert_negotiations(
    conn: &Connection,
    job: JobId,
    negotiations: &[NegotiationRecord],
    buffer: &mut Vec<u8>,
    path: &Path,
) -> Result<(), AppendError> {
    if negotiations.is_empty() {
        return Ok(());
    }
    buffer.clear();
    rmp_serde::encode::write_named(buffer, negotiations)?;
    let of_sqlite = |source| AppendError::from_sqlite(path, source);
    let sql = "INSERT OR REPLACE INTO negotiations (job, records) VALUES (?1, ?2)";
    let mut insert = conn.prepare_cached(sql).map_err(of_sqlite)?;
    insert.execute(params![job.0, &buffer[..]]).map_err(of_sqlite)?;
    Ok(())
}

/// At least this many facts are deleted at a time.
const MIN_TRUNCATION: u64 = 500;
