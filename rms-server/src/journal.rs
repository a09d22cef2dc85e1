//! The durable log of facts: append-only files of checksummed batches, one writer, one sync for each append.
//!
//! A fact that ends a job becomes, a moment later, a row of the history, a database beside the log; a restart adds rows
//! that a crash has lost. Now and then a snapshot of the state replaces the files before it.

mod backup;
pub mod batch;
mod compact;
mod environments;
mod error;
mod past;
mod recover;
mod replay;
mod segment;
pub mod snapshot;

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rms_core::Fact;
use serde::de::DeserializeOwned;

use self::batch::{Digest, HEADER_LEN, Header, Kind};
use self::replay::{Files, replay};
use self::segment::{Segment, Synced};
use crate::history::{Cause, HistoryWriter, Row};
use crate::open_error::OpenError;

pub use self::backup::backup;
pub use self::compact::{Compaction, SnapshotMade};
pub use self::error::{AppendError, SnapshotError};
pub use self::past::Past;
pub use self::recover::{RecoverError, RecoveryReport, recover};

/// When a snapshot is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotPolicy {
    /// After this many facts since the last one ...
    pub facts: u64,
    /// ... or this many bytes of them; but never before the journal is larger than the last snapshot, so that the work
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
    dir: PathBuf,
    policy: SnapshotPolicy,
    segment: Segment,
    tail: Tail,
    durable: Tail,
    /// The end of the last durable batch in the segment, and the batches noted after it: if a sync fails, they are
    /// written again with the next append, because it is unknown how much of them the disk has.
    durable_end: u64,
    noted: Vec<u8>,
    snapshot_bytes: u64,
    /// Facts and bytes appended since the last snapshot was made or ordered.
    grown: Volume,
    /// The value of `grown` when the last snapshot was ordered.
    ordered: Volume,
    environments: environments::Writer,
    history: HistoryWriter,
}

/// The end of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tail {
    seq: u64,
    digest: Digest,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Volume {
    facts: u64,
    bytes: u64,
}

/// Whether an append waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sync {
    /// Waits until the disk has it, and everything written before.
    Full,
    /// Waits until the operating system has it: a crash of the process loses nothing, a power failure loses what no
    /// later append has synced.
    Later,
}

impl FactLog {
    /// Creates an empty journal in a new directory.
    ///
    /// # Errors
    /// There is a journal already, or the directory cannot be written.
    pub fn create(dir: &Path, policy: SnapshotPolicy) -> Result<FactLog, OpenError> {
        if dir.exists() {
            return Err(OpenError::Exists { path: dir.to_owned() });
        }
        let of_io = |source| OpenError::Create { path: dir.to_owned(), source };
        // The journal holds users' environments and scripts.
        DirBuilder::new().mode(0o700).create(dir).map_err(of_io)?;
        HistoryWriter::create(dir)?;
        // The log comes last: where it is, everything else is.
        drop(Segment::create(dir, 1, Digest::NONE).map_err(of_io)?);
        let (log, ()) = FactLog::open(dir, policy, |_: Option<()>, _| ())?;
        Ok(log)
    }

    /// Opens a journal: passes the snapshot and the facts after it to `restore`. No fact is skipped: if one is missing
    /// or unreadable, the whole replay fails, and the result of `restore` is dropped.
    ///
    /// # Errors
    /// The journal is missing, not ours, of another format, or damaged; see [`recover()`].
    pub fn open<S: DeserializeOwned, T>(
        dir: &Path,
        policy: SnapshotPolicy,
        restore: impl FnOnce(Option<S>, &mut dyn Iterator<Item = Fact>) -> T,
    ) -> Result<(FactLog, T), OpenError> {
        let files = Files::find(dir)?;
        // Partial files may be what fills the disk.
        compact::remove_partial(dir);
        let history = HistoryWriter::start(dir)?;
        let written_seq = history.last_seq();
        if written_seq < files.snapshot_seq {
            let problem =
                format!("it lacks the jobs that ended with facts {} to {}", written_seq + 1, files.snapshot_seq);
            return Err(OpenError::Damaged { path: history.path().to_owned(), problem });
        }
        let mut observe = |seq, fact: &Fact| {
            if seq > written_seq {
                history.put(Row::of(fact), seq);
            }
        };
        let replayed = replay(&files, &mut observe, restore)?;
        let (tail, end) = (replayed.tail, replayed.end);
        let of_io = |source| OpenError::Write { path: replayed.segment.clone(), source };
        let segment = Segment::open(&replayed.segment, end, tail.seq).map_err(of_io)?;
        if written_seq > tail.seq {
            // The log was restored from a backup: the history has no rows for the facts that will come from here on.
            let of_history = |source| OpenError::Write { path: history.path().to_owned(), source };
            history.sync(tail.seq).map_err(|error| of_history(std::io::Error::other(error)))?;
        }
        compact::remove_replaced(dir, &files);
        let log = FactLog {
            dir: dir.to_owned(),
            policy,
            segment,
            tail,
            durable: tail,
            durable_end: end,
            noted: Vec::new(),
            snapshot_bytes: replayed.snapshot_bytes,
            grown: replayed.volume,
            ordered: Volume::default(),
            environments: environments::Writer::default(),
            history,
        };
        Ok((log, replayed.restored))
    }

    /// Returns the path of the journal's directory.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Returns the number of the last fact.
    pub fn last_seq(&self) -> u64 {
        self.tail.seq
    }

    /// Returns the writer of the records of jobs that end; readers of the history wait for it.
    pub fn history(&self) -> &HistoryWriter {
        &self.history
    }

    /// Returns why no new work is accepted, if so. Either the disk is full except for a reserve, which is enough for
    /// ends of jobs and orders of admins: this call tries to refill it. Or very many records wait for a history that
    /// cannot be written.
    pub fn shortage(&mut self) -> Option<String> {
        let path = self.dir.display();
        let failure = self.history.failure();
        let is_full = failure.as_ref().is_some_and(|failure| failure.cause == Cause::Full);
        if !self.segment.keep_reserve() || is_full {
            return Some(format!(
                "no space is left for the journal {path}: no new work is accepted until some is freed"
            ));
        }
        let reason = failure.filter(|_| self.history.is_backlogged())?.reason;
        Some(format!("the history in {path} cannot be written: no new work is accepted until it can ({reason})"))
    }

    /// Makes the facts durable, all or none of them.
    ///
    /// # Errors
    /// A full or failing disk; the log is unchanged, and the append may be retried.
    pub fn append(&mut self, facts: &[Fact]) -> Result<(), AppendError> {
        self.write(facts, Sync::Full)
    }

    /// Writes facts that become durable with the next append.
    ///
    /// # Errors
    /// As [`FactLog::append`].
    pub fn note(&mut self, facts: &[Fact]) -> Result<(), AppendError> {
        self.write(facts, Sync::Later)
    }

    fn write(&mut self, facts: &[Fact], sync: Sync) -> Result<(), AppendError> {
        let written = self.write_batch(facts, sync);
        match written {
            Ok(()) => self.environments.commit(),
            Err(_) => self.environments.rollback(),
        }
        written?;
        for (seq, fact) in (self.tail.seq + 1 - facts.len() as u64..).zip(facts) {
            self.history.put(Row::of(fact), seq);
        }
        Ok(())
    }

    fn write_batch(&mut self, facts: &[Fact], sync: Sync) -> Result<(), AppendError> {
        let mut body = Vec::new();
        for (seq, fact) in (self.tail.seq + 1..).zip(facts) {
            match self.environments.deduplicate(fact, seq) {
                Some((short, holder)) => batch::push_fact(&mut body, Some(holder), &short)?,
                None => batch::push_fact(&mut body, None, fact)?,
            }
        }
        let (bytes, digest) = self.batch(Kind::Facts, facts.len(), &body);
        let tail = Tail { seq: self.tail.seq + facts.len() as u64, digest };
        let path = self.segment.path().to_owned();
        let of_io = |source| AppendError::from_io(&path, source);
        let end = self.segment.end();
        let follows_failed_sync = end == self.durable_end && !self.noted.is_empty();
        let written = if follows_failed_sync {
            self.segment.append(&self.noted).and_then(|()| self.segment.append(&bytes))
        } else {
            self.segment.append(&bytes)
        };
        let synced = written.and_then(|()| match sync {
            Sync::Full => self.segment.sync().map(Some),
            Sync::Later => Ok(None),
        });
        let synced = match synced {
            Ok(synced) => synced,
            Err(error) => {
                self.segment.rewind(self.durable_end);
                return Err(of_io(error));
            }
        };
        self.grown.facts += facts.len() as u64;
        self.grown.bytes += body.len() as u64;
        self.tail = tail;
        match synced {
            None => self.noted.extend_from_slice(&bytes),
            Some(synced) => self.became_durable(&synced),
        }
        Ok(())
    }

    fn became_durable(&mut self, synced: &Synced) {
        self.durable = self.tail;
        self.durable_end = self.segment.end();
        self.noted.clear();
        // The facts are durable without the mark; less damage would be detected, until the next mark.
        if let Err(error) = self.segment.mark(synced, self.tail.seq) {
            tracing::warn!(path = %self.segment.path().display(), %error, "the journal cannot be marked");
        }
    }

    fn batch(&self, kind: Kind, n_facts: usize, body: &[u8]) -> (Vec<u8>, Digest) {
        let header = Header {
            kind,
            n_bytes: u32::try_from(body.len()).expect("a batch is bounded by what the inbox holds"),
            n_facts: u32::try_from(n_facts).expect("a batch is bounded by what the inbox holds"),
            first_seq: self.tail.seq + 1,
            durable_seq: self.durable.seq,
            previous: self.tail.digest,
        };
        let (header, digest) = header.encode(body);
        let mut bytes = Vec::with_capacity(HEADER_LEN + body.len());
        bytes.extend_from_slice(&header);
        bytes.extend_from_slice(body);
        (bytes, digest)
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
