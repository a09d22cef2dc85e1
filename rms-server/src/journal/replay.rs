//! Reads a journal back: the snapshot, then every fact after it, checked one by one.

use std::path::{Path, PathBuf};

use rms_core::Fact;
use rusqlite::{Connection, Rows};
use serde::de::DeserializeOwned;

use super::error::OpenError;
use super::{Chain, FactLog, Tail, Volume, environments, snapshot};

impl FactLog {
    /// Hands the snapshot and the facts after it to `restore`. No fact is left out: where one is missing or
    /// unreadable the whole replay fails, and what `restore` made of the rest is dropped.
    ///
    /// # Errors
    /// A damaged journal or snapshot.
    pub fn replay<S: DeserializeOwned, T>(
        &mut self,
        restore: impl FnOnce(Option<S>, &mut dyn Iterator<Item = Fact>) -> T,
    ) -> Result<T, OpenError> {
        let head = Head::read(&self.conn, &self.path)?;
        let replayed = replay(&self.conn, &self.path, &head, head.last_seq, restore)?;
        let first_seq: Option<u64> = self
            .conn
            .query_row("SELECT min(seq) FROM facts", [], |row| row.get(0))
            .map_err(|source| OpenError::from_sqlite(&self.path, source))?;
        self.tail = replayed.tail;
        self.first_seq = first_seq.unwrap_or(replayed.tail.seq + 1);
        self.snapshot_bytes = replayed.snapshot_bytes;
        self.grown = replayed.volume;
        snapshot::remove_all_but(&self.path, head.snapshot_seq);
        Ok(replayed.restored)
    }
}

/// The one row that says where the journal begins and ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub last_seq: u64,
    pub snapshot_seq: u64,
    pub snapshot_chain: Chain,
}

impl Head {
    pub fn read(conn: &Connection, path: &Path) -> Result<Head, OpenError> {
        let sql = "SELECT last_seq, snapshot_seq, snapshot_chain FROM head WHERE one = 1";
        let row: (u64, u64, Vec<u8>) = conn
            .query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .map_err(|source| OpenError::from_sqlite(path, source))?;
        let damaged = |problem: &str| OpenError::Damaged { path: path.to_owned(), problem: problem.to_owned() };
        let snapshot_chain = Chain::from_stored(&row.2).ok_or_else(|| damaged("its head is malformed"))?;
        if row.1 > row.0 {
            return Err(damaged("its snapshot is newer than its last fact"));
        }
        Ok(Head { last_seq: row.0, snapshot_seq: row.1, snapshot_chain })
    }
}

/// What came of a replay.
pub(super) struct Replayed<T> {
    pub restored: T,
    pub tail: Tail,
    pub volume: Volume,
    pub snapshot_bytes: u64,
}

/// Replays up to and with fact `until`.
pub(super) fn replay<S: DeserializeOwned, T>(
    conn: &Connection,
    path: &Path,
    head: &Head,
    until: u64,
    restore: impl FnOnce(Option<S>, &mut dyn Iterator<Item = Fact>) -> T,
) -> Result<Replayed<T>, OpenError> {
    let (snapshot, snapshot_bytes) = match head.snapshot_seq {
        0 => (None, 0),
        seq => {
            let (state, n_bytes) = snapshot::read(&snapshot::path_of(path, seq), seq, head.snapshot_chain)?;
            (Some(state), n_bytes)
        }
    };
    let of_sqlite = |source| OpenError::from_sqlite(path, source);
    let mut statement = conn
        .prepare("SELECT seq, chain, body, environment_of FROM facts WHERE seq > ?1 AND seq <= ?2 ORDER BY seq")
        .map_err(of_sqlite)?;
    let rows = statement.query([head.snapshot_seq, until]).map_err(of_sqlite)?;
    let tail = Tail { seq: head.snapshot_seq, chain: head.snapshot_chain };
    let mut facts = Facts {
        rows,
        path: path.to_owned(),
        tail,
        volume: Volume::default(),
        environments: environments::Read::default(),
        failed: None,
    };
    let restored = restore(snapshot, &mut facts);
    // `restore` may not have looked at the end: what is missing there must be found all the same.
    facts.by_ref().for_each(drop);
    if let Some(error) = facts.failed {
        return Err(error);
    }
    if facts.tail.seq != until {
        let problem = format!("facts {} to {until} are missing", facts.tail.seq + 1);
        return Err(OpenError::Damaged { path: path.to_owned(), problem });
    }
    Ok(Replayed { restored, tail: facts.tail, volume: facts.volume, snapshot_bytes })
}

/// The facts in their order; it ends early when one is unreadable and keeps why.
struct Facts<'a> {
    rows: Rows<'a>,
    path: PathBuf,
    tail: Tail,
    volume: Volume,
    environments: environments::Read,
    failed: Option<OpenError>,
}

impl Facts<'_> {
    fn read_next(&mut self) -> Result<Option<Fact>, OpenError> {
        let of_sqlite = |source| OpenError::from_sqlite(&self.path, source);
        let Some(row) = self.rows.next().map_err(of_sqlite)? else { return Ok(None) };
        let damaged = |problem: String| OpenError::Damaged { path: self.path.clone(), problem };
        let seq: u64 = row.get(0).map_err(of_sqlite)?;
        let expected = self.tail.seq + 1;
        if seq != expected {
            return Err(damaged(format!("facts {expected} to {} are missing", seq - 1)));
        }
        let stored = row.get_ref(1).map_err(of_sqlite)?.as_blob().ok().and_then(Chain::from_stored);
        let body = row.get_ref(2).map_err(of_sqlite)?;
        let body = body.as_blob().map_err(|_| damaged(format!("fact {seq} has no content")))?;
        let environment_of: Option<u64> = row.get(3).map_err(of_sqlite)?;
        let chain = self.tail.chain.then(environment_of, body);
        if stored != Some(chain) {
            return Err(damaged(format!("fact {seq} does not match its checksum")));
        }
        let fact = rmp_serde::from_slice(body).map_err(|error| {
            damaged(format!("fact {seq} is unreadable ({error}); was it written by a newer server?"))
        })?;
        let fact = self.environments.complete(fact, seq, environment_of);
        let fact = fact.ok_or_else(|| damaged(format!("fact {seq} names an environment that is nowhere")))?;
        self.tail = Tail { seq, chain };
        self.volume.facts += 1;
        self.volume.bytes += body.len() as u64;
        Ok(Some(fact))
    }
}

impl Iterator for Facts<'_> {
    type Item = Fact;

    fn next(&mut self) -> Option<Fact> {
        if self.failed.is_some() {
            return None;
        }
        match self.read_next() {
            Ok(fact) => fact,
            Err(error) => {
                self.failed = Some(error);
                None
            }
        }
    }
}
