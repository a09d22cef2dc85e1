//! The tables of the journal file, its format version, and connections to it.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::error::OpenError;

/// Raised when an older server could no longer read what this one writes.
pub const FORMAT: i32 = 1;

/// `LMBR`: tells our file from any other SQLite database.
const APPLICATION: i32 = 0x4c4d_4252;

/// Creates the file and its tables.
pub fn create(path: &Path) -> Result<Connection, OpenError> {
    if path.exists() {
        return Err(OpenError::Exists { path: path.to_owned() });
    }
    // Users' environments and scripts are in it. SQLite gives the files beside it the same mode.
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|source| OpenError::Create { path: path.to_owned(), source })?;
    let make = || {
        let conn = Connection::open_with_flags(path, writer_flags())?;
        prepare_writer(&conn)?;
        conn.execute_batch(TABLES)?;
        conn.pragma_update(None, "application_id", APPLICATION)?;
        conn.pragma_update(None, "user_version", FORMAT)?;
        Ok(conn)
    };
    make().map_err(|source| OpenError::from_sqlite(path, source))
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
        Ok(false) => return Err(OpenError::Missing { path: path.to_owned() }),
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
        return Err(OpenError::Version { path: path.to_owned(), found, expected: FORMAT });
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
    // FULL syncs the WAL at every commit: what was acknowledged survives a loss of power.
    conn.pragma_update(None, "synchronous", "FULL")?;
    // Not in the journals of the first servers; those that know nothing of it leave it alone.
    conn.execute_batch(NEGOTIATIONS)?;
    // A burst may grow the WAL; it shrinks again at the next checkpoint.
    conn.pragma_update_and_check(None, "journal_size_limit", 16 * 1024 * 1024, |_| Ok(()))
}

/// Only readers that checkpoint or recover can be in the way, and they are short.
const BUSY: Duration = Duration::from_secs(5);

/// One row for each job that is done and has negotiated: what the history keeps of that.
const NEGOTIATIONS: &str =
    "CREATE TABLE IF NOT EXISTS negotiations (job INTEGER PRIMARY KEY, records BLOB NOT NULL) STRICT;";

/// `head` has one row. A fact's `chain` is the digest over all facts up to and with it; `environment_of` is the
/// earlier fact whose environment it shares, if it is not in its own body. `history` holds one row
/// for each job that is done: columns to select by, and the whole record.
const TABLES: &str = "
    BEGIN;
    CREATE TABLE head (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        last_seq INTEGER NOT NULL,
        snapshot_seq INTEGER NOT NULL,
        snapshot_chain BLOB NOT NULL
    ) STRICT;
    INSERT INTO head VALUES (1, 0, 0, zeroblob(16));
    CREATE TABLE facts (
        seq INTEGER PRIMARY KEY,
        chain BLOB NOT NULL,
        environment_of INTEGER,
        body BLOB NOT NULL
    ) STRICT;
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
        record BLOB NOT NULL
    ) STRICT;
    CREATE INDEX history_by_end ON history (ended);
    CREATE INDEX history_by_owner ON history (owner, ended);
    COMMIT;
";
