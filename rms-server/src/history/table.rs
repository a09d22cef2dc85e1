//! The tables of the history, and what goes in and out of them.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ring::digest::{Context, SHA256};
use rms_api::negotiate::NegotiationRecord;
use rms_core::Fact;
use rms_model::{ClusterId, JobId, JobRecord};
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};

use super::HistoryError;
use crate::open_error::OpenError;

/// Raised when an older server could no longer read what this one writes.
const FORMAT: i32 = 2;

/// `LMBH`: tells our file from any other SQLite database.
const APPLICATION: i32 = 0x4c4d_4248;

/// Where the history of a journal lies.
pub fn path_of(journal: &Path) -> PathBuf {
    journal.join("history.db")
}

/// Makes the file and its tables.
pub fn create(path: &Path) -> Result<(), OpenError> {
    create_file(path)?;
    let make = || {
        let conn = Connection::open_with_flags(path, writer_flags())?;
        // Before anything is in it, as it says how pages are laid out: those that become free can be given back.
        conn.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        prepare_writer(&conn)?;
        conn.execute_batch(TABLES)?;
        conn.pragma_update(None, "application_id", APPLICATION)?;
        conn.pragma_update(None, "user_version", FORMAT)
    };
    make().map_err(|source| OpenError::from_sqlite(path, source))
}

/// Users' names and jobs are in it. SQLite gives the files beside it the same mode.
fn create_file(path: &Path) -> Result<(), OpenError> {
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    made.map(drop).map_err(|source| OpenError::Create { path: path.to_owned(), source })
}

/// The one connection that writes.
pub fn open_writer(path: &Path) -> Result<Connection, OpenError> {
    open_checked(path, writer_flags(), prepare_writer)
}

/// A connection that sees what is committed and can change nothing.
pub fn open_reader(path: &Path) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    open_checked(path, flags, |conn| conn.busy_timeout(BUSY))
}

fn open_checked(
    path: &Path,
    flags: OpenFlags,
    prepare: impl FnOnce(&Connection) -> rusqlite::Result<()>,
) -> Result<Connection, OpenError> {
    match path.try_exists() {
        Ok(true) => {}
        Ok(false) => {
            let problem = "it is missing".to_owned();
            return Err(OpenError::Damaged { path: path.to_owned(), problem });
        }
        Err(source) => return Err(OpenError::Read { path: path.to_owned(), source }),
    }
    let of_sqlite = |source| OpenError::from_sqlite(path, source);
    let conn = Connection::open_with_flags(path, flags).map_err(of_sqlite)?;
    // The versions are read before anything is set: setting the WAL mode would already change the file.
    let application: i32 = conn.pragma_query_value(None, "application_id", |row| row.get(0)).map_err(of_sqlite)?;
    let found: i32 = conn.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(of_sqlite)?;
    if application != APPLICATION {
        return Err(OpenError::Foreign { path: path.to_owned() });
    }
    if found != FORMAT {
        return Err(OpenError::Version {
            path: path.to_owned(),
            found: found.to_string(),
            expected: FORMAT.to_string(),
        });
    }
    prepare(&conn).map_err(of_sqlite)?;
    Ok(conn)
}

fn writer_flags() -> OpenFlags {
    OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX
}

fn prepare_writer(conn: &Connection) -> rusqlite::Result<()> {
    conn.busy_timeout(BUSY)?;
    conn.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    // Commits wait for nothing: what a loss of power takes back, the log still has.
    conn.pragma_update(None, "synchronous", "NORMAL")?;
    // A burst may grow the WAL; it shrinks again at the next checkpoint.
    conn.pragma_update_and_check(None, "journal_size_limit", 16 * 1024 * 1024, |_| Ok(()))
}

/// Only readers that checkpoint or recover can be in the way, and they are short.
const BUSY: Duration = Duration::from_secs(5);

/// The last fact of the log that is accounted for.
pub fn last_seq(conn: &Connection) -> rusqlite::Result<u64> {
    conn.query_row("SELECT last_seq FROM head WHERE one = 1", [], |row| row.get(0))
}

pub fn set_last_seq(conn: &Connection, seq: u64) -> rusqlite::Result<()> {
    conn.prepare_cached("UPDATE head SET last_seq = ?1 WHERE one = 1")?.execute([seq]).map(|_| ())
}

/// What the history keeps of one job.
#[derive(Clone, Debug)]
pub struct Row {
    pub record: JobRecord,
    pub negotiations: Vec<NegotiationRecord>,
}

impl Row {
    /// The row that a fact becomes, if it ends a job.
    pub fn of(fact: &Fact) -> Option<Row> {
        let Fact::JobDone { record, negotiations, .. } = fact else { return None };
        Some(Row { record: (**record).clone(), negotiations: negotiations.clone() })
    }
}

pub fn insert(conn: &Connection, row: &Row) -> Result<(), HistoryError> {
    let Row { record, negotiations } = row;
    let body = rmp_serde::to_vec_named(record)?;
    // A job is done once. Should a restored backup know it already, the newer record is the true one.
    let mut insert = conn.prepare_cached(
        "INSERT OR REPLACE INTO history
         (job, owner, name, outcome, submitted, started, ended, cpu_ms, peak_kib, clusters, record, digest)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?;
    insert.execute(params![
        record.job.0,
        record.owner.0,
        record.labels.name,
        record.outcome.word(),
        record.submitted.as_millis(),
        record.started.map(|time| time.as_millis()),
        record.ended.as_millis(),
        record.usage.cpu.as_millis(),
        // The column is for selecting; the record keeps what an agent said, however wild it is.
        i64::try_from(record.usage.peak_memory_kib).unwrap_or(i64::MAX),
        record.request.nodes.keys().map(|cluster| within(*cluster)).collect::<String>(),
        &body[..],
        &digest(record.job, &body)[..],
    ])?;
    if !negotiations.is_empty() {
        let body = rmp_serde::to_vec_named(negotiations)?;
        let sql = "INSERT OR REPLACE INTO negotiations (job, records, digest) VALUES (?1, ?2, ?3)";
        conn.prepare_cached(sql)?.execute(params![record.job.0, &body[..], &digest(record.job, &body)[..]])?;
    }
    Ok(())
}

/// A cluster in the text of those of a record.
pub fn within(cluster: ClusterId) -> String {
    format!(",{},", cluster.0)
}

/// The record in a row that begins with job, record and digest.
pub fn record(row: &rusqlite::Row<'_>) -> Result<JobRecord, HistoryError> {
    let job = JobId(row.get(0)?);
    let bytes = checked(job, row)?;
    rmp_serde::from_slice(bytes).map_err(|source| HistoryError::Record { job, source })
}

/// What a job that is done has negotiated.
pub fn negotiations(conn: &Connection, job: JobId) -> Result<Vec<NegotiationRecord>, HistoryError> {
    let mut statement = conn.prepare_cached("SELECT job, records, digest FROM negotiations WHERE job = ?1")?;
    let mut rows = statement.query([i64::try_from(job.0).unwrap_or(-1)])?;
    let Some(row) = rows.next()? else { return Ok(Vec::new()) };
    rmp_serde::from_slice(checked(job, row)?).map_err(|source| HistoryError::Record { job, source })
}

fn checked<'a>(job: JobId, row: &'a rusqlite::Row<'_>) -> Result<&'a [u8], HistoryError> {
    let bytes = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
    let stored = row.get_ref(2)?.as_blob().map_err(rusqlite::Error::from)?;
    if stored == digest(job, bytes) { Ok(bytes) } else { Err(HistoryError::Damaged { job }) }
}

/// SQLite has no checksums of its own for pages that were once written.
fn digest(job: JobId, body: &[u8]) -> [u8; DIGEST_LEN] {
    let mut context = Context::new(&SHA256);
    context.update(&job.0.to_le_bytes());
    context.update(body);
    let mut digest = [0; DIGEST_LEN];
    digest.copy_from_slice(&context.finish().as_ref()[..DIGEST_LEN]);
    digest
}

const DIGEST_LEN: usize = 8;

/// Looks at every record, one by one; for those who run a past again, or want to know that all are whole.
///
/// # Errors
/// No history there, a foreign one or a damaged one.
pub fn for_each(journal: &Path, mut look: impl FnMut(JobRecord)) -> Result<(), OpenError> {
    let path = path_of(journal);
    let conn = open_reader(&path)?;
    let mut read = || {
        let mut statement = conn.prepare("SELECT job, record, digest FROM history")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            look(record(row)?);
        }
        Ok(())
    };
    read().map_err(|error: HistoryError| match error {
        HistoryError::Sqlite(source) => OpenError::from_sqlite(&path, source),
        other => OpenError::Damaged { path: path.clone(), problem: rms_model::error::chain(&other) },
    })
}

/// Whether the file and every record in it are whole.
///
/// # Errors
/// No history there, a foreign one or a damaged one.
pub fn check(journal: &Path) -> Result<(), OpenError> {
    let path = path_of(journal);
    let found = quick_check(&open_reader(&path)?).map_err(|source| OpenError::from_sqlite(&path, source))?;
    match found {
        Some(problem) => Err(OpenError::Damaged { path, problem }),
        None => for_each(journal, drop),
    }
}

/// Takes over from a damaged file what can be read of it.
///
/// # Errors
/// The history of the journal cannot be written.
pub fn salvage(damaged: &Path, journal: &Path) -> Result<(), OpenError> {
    let path = path_of(journal);
    let Ok(old) = open_reader(damaged) else { return Ok(()) };
    let mut new = open_writer(&path)?;
    let mut take = || {
        let transaction = new.transaction()?;
        let mut statement = old.prepare("SELECT job, record, digest FROM history")?;
        let mut rows = statement.query([])?;
        // Behind a page that cannot be read nothing can be found.
        while let Ok(Some(row)) = rows.next() {
            if let Ok(record) = record(row) {
                let negotiations = negotiations(&old, record.job).unwrap_or_default();
                insert(&transaction, &Row { record, negotiations })?;
            }
        }
        Ok(transaction.commit()?)
    };
    take().map_err(|error: HistoryError| match error {
        HistoryError::Sqlite(source) => OpenError::from_sqlite(&path, source),
        other => OpenError::Damaged { path: path.clone(), problem: rms_model::error::chain(&other) },
    })
}

/// Copies the history of a journal to another directory, as it is at one instant.
///
/// # Errors
/// No history there, a damaged one, or a directory that cannot be written.
pub fn copy(journal: &Path, to: &Path) -> Result<(), OpenError> {
    let (path, to) = (path_of(journal), path_of(to));
    create_file(&to)?;
    let conn = open_reader(&path)?;
    let copied = conn.execute("VACUUM INTO ?1", [to.to_string_lossy()]);
    copied.map_err(|source| OpenError::from_sqlite(&to, source))?;
    // SQLite does not wait for the disk here.
    let synced = File::open(&to).and_then(|file| file.sync_all());
    synced.map_err(|source| OpenError::Write { path: to, source })
}

/// What SQLite finds wrong with the file, if anything.
pub fn quick_check(conn: &Connection) -> rusqlite::Result<Option<String>> {
    let found: Option<String> = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).optional()?;
    Ok(found.filter(|found| found != "ok"))
}

/// `head` has one row: the last fact of the log that is accounted for. `history` has one for each job that is done: columns
/// to select by, the whole record, and a digest over job and record. `negotiations` has one for each job that has
/// negotiated.
const TABLES: &str = "
    BEGIN;
    CREATE TABLE head (one INTEGER PRIMARY KEY CHECK (one = 1), last_seq INTEGER NOT NULL) STRICT;
    INSERT INTO head VALUES (1, 0);
    CREATE TABLE history (
        job INTEGER PRIMARY KEY,
        owner TEXT NOT NULL,
        name TEXT NOT NULL,
        outcome TEXT NOT NULL,
        submitted INTEGER NOT NULL,
        started INTEGER,
        ended INTEGER NOT NULL,
        cpu_ms INTEGER NOT NULL,
        peak_kib INTEGER NOT NULL,
        clusters TEXT NOT NULL,
        record BLOB NOT NULL,
        digest BLOB NOT NULL
    ) STRICT;
    CREATE INDEX history_by_end ON history (ended);
    CREATE INDEX history_by_owner ON history (owner, ended);
    CREATE TABLE negotiations (job INTEGER PRIMARY KEY, records BLOB NOT NULL, digest BLOB NOT NULL) STRICT;
    COMMIT;
";
