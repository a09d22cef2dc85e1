//! The tables of the history, and how records are written to them and read.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ring::digest::{Context, SHA256};
use rms_api::negotiate::NegotiationRecord;
use rms_core::Fact;
use rms_model::{ClusterId, JobId, JobRecord, Labels};
use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use serde::Deserialize;

use super::HistoryError;
use crate::open_error::OpenError;

/// Raised when an older server could no longer read what this one writes.
const FORMAT: i32 = 2;

/// `LMBH`: tells our file from any other SQLite database.
const APPLICATION: i32 = 0x4c4d_4248;

/// Returns the path of a journal's history.
pub fn path_of(journal: &Path) -> PathBuf {
    journal.join("history.db")
}

/// Makes the file and its tables.
pub fn create(path: &Path) -> Result<(), OpenError> {
    create_file(path)?;
    let make = || {
        let conn = Connection::open_with_flags(path, writer_flags())?;
        // Set before anything is written, as it decides the page layout: free pages can then be returned.
        conn.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        prepare_writer(&conn)?;
        conn.execute_batch(TABLES)?;
        conn.pragma_update(None, "application_id", APPLICATION)?;
        conn.pragma_update(None, "user_version", FORMAT)
    };
    make().map_err(|source| OpenError::from_sqlite(path, source))
}

/// Creates the file, which holds users' names and jobs. SQLite gives the files beside it the same mode.
fn create_file(path: &Path) -> Result<(), OpenError> {
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    made.map(drop).map_err(|source| OpenError::Create { path: path.to_owned(), source })
}

/// Opens the one connection that writes.
pub fn open_writer(path: &Path) -> Result<Connection, OpenError> {
    open_checked(path, writer_flags(), prepare_writer)
}

/// Opens a read-only connection that sees committed rows.
pub fn open_reader(path: &Path) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    open_checked(path, flags, |conn| {
        conn.busy_timeout(BUSY)?;
        let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
        conn.create_scalar_function("account_of", 1, flags, |call| {
            Ok(call.get_raw(0).as_blob().ok().and_then(account_of))
        })
    })
}

/// Returns the account in an encoded record; `None` if it is unreadable. Accounts have no column of their own: records
/// that older servers have written would lack it.
fn account_of(record: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Labelled {
        #[serde(default)]
        labels: Labels,
    }
    rmp_serde::from_slice(record).ok().map(|Labelled { labels }| labels.account)
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
    // The versions are checked first: setting the WAL mode would already change the file.
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
    // Commits do not wait for the disk: what a power failure loses, the log still has.
    conn.pragma_update(None, "synchronous", "NORMAL")?;
    // A burst may grow the WAL; it shrinks at the next checkpoint.
    conn.pragma_update_and_check(None, "journal_size_limit", 16 * 1024 * 1024, |_| Ok(()))
}

/// Only readers that checkpoint or recover can hold a lock, and only for a short time.
const BUSY: Duration = Duration::from_secs(5);

/// Returns the last fact of the log whose row, if any, is in the history.
pub fn last_seq(conn: &Connection) -> rusqlite::Result<u64> {
    conn.query_row("SELECT last_seq FROM head WHERE one = 1", [], |row| row.get(0))
}

pub fn set_last_seq(conn: &Connection, seq: u64) -> rusqlite::Result<()> {
    conn.prepare_cached("UPDATE head SET last_seq = ?1 WHERE one = 1")?.execute([seq]).map(|_| ())
}

/// The history's row for one job.
#[derive(Clone, Debug)]
pub struct Row {
    pub record: JobRecord,
    pub negotiations: Vec<NegotiationRecord>,
}

impl Row {
    /// Returns the row for a fact, if it ends a job.
    pub fn of(fact: &Fact) -> Option<Row> {
        let Fact::JobDone { record, negotiations, .. } = fact else { return None };
        Some(Row { record: (**record).clone(), negotiations: negotiations.clone() })
    }
}

pub fn insert(conn: &Connection, row: &Row) -> Result<(), HistoryError> {
    let Row { record, negotiations } = row;
    let body = rmp_serde::to_vec_named(record)?;
    // A job ends once. If a restored backup has it already, the newer record is the right one.
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
        record.total_usage().cpu.as_millis(),
        // The column is for selecting; the record keeps the value that the agent reported.
        i64::try_from(record.total_usage().peak_memory_kib).unwrap_or(i64::MAX),
        record.request.nodes.keys().map(|cluster| cluster_pattern(*cluster)).collect::<String>(),
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

/// Returns the text for a cluster in the column `clusters`.
pub fn cluster_pattern(cluster: ClusterId) -> String {
    format!(",{},", cluster.0)
}

/// Parses the record in a row that begins with job, record and digest.
pub fn record(row: &rusqlite::Row<'_>) -> Result<JobRecord, HistoryError> {
    let job = JobId(row.get(0)?);
    let bytes = checked(job, row)?;
    rmp_serde::from_slice(bytes).map_err(|source| HistoryError::Record { job, source })
}

/// Returns the negotiations of a job that is done.
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

/// Returns the checksum of a record: SQLite itself has none for its pages.
fn digest(job: JobId, body: &[u8]) -> [u8; DIGEST_LEN] {
    let mut context = Context::new(&SHA256);
    context.update(&job.0.to_le_bytes());
    context.update(body);
    let mut digest = [0; DIGEST_LEN];
    digest.copy_from_slice(&context.finish().as_ref()[..DIGEST_LEN]);
    digest
}

const DIGEST_LEN: usize = 8;

/// Calls `look` with every record, one by one; used to replay old workloads, and to check the records.
///
/// # Errors
/// There is no history, or it is another program's file or damaged.
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

/// Checks the file and every record in it.
///
/// # Errors
/// There is no history, or it is another program's file or damaged.
pub fn check(journal: &Path) -> Result<(), OpenError> {
    let path = path_of(journal);
    let found = quick_check(&open_reader(&path)?).map_err(|source| OpenError::from_sqlite(&path, source))?;
    match found {
        Some(problem) => Err(OpenError::Damaged { path, problem }),
        None => for_each(journal, drop),
    }
}

/// Copies every readable record from a damaged file.
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
        // Rows after an unreadable page cannot be found.
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

/// Copies a consistent snapshot of a journal's history to another directory.
///
/// # Errors
/// There is no history, it is damaged, or the directory cannot be written.
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

/// Runs SQLite's quick check, and returns what it finds wrong.
pub fn quick_check(conn: &Connection) -> rusqlite::Result<Option<String>> {
    let found: Option<String> = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).optional()?;
    Ok(found.filter(|found| found != "ok"))
}

/// `head` has one row: the last fact of the log whose row, if any, is in the history. `history` has a row for each job
/// that is done: columns to select by, the whole record, and a digest over job and record. `negotiations` has a row for
/// each job that has negotiated.
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
