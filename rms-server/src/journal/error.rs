//! What can go wrong with the journal, and what to do about it.

use std::path::PathBuf;

use thiserror::Error;

/// Why a journal cannot be created or opened. Nothing was changed.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error("there is no journal at {path}: make the data directory with 'rms-server init'", path = path.display())]
    Missing { path: PathBuf },
    #[error("there is already a journal at {path}", path = path.display())]
    Exists { path: PathBuf },
    #[error("cannot make the journal {path}", path = path.display())]
    Create { path: PathBuf, source: std::io::Error },
    #[error("{path} is not a journal of this program", path = path.display())]
    Foreign { path: PathBuf },
    #[error(
        "{path} has journal format {found}, and this server reads format {expected}: start the server version that wrote it",
        path = path.display()
    )]
    Version { path: PathBuf, found: i32, expected: i32 },
    #[error(
        "{path} is damaged: {problem}. Nothing was changed. Keep a copy of the data directory and restore it from a backup; 'sqlite3 {path} .recover' shows what is still readable",
        path = path.display()
    )]
    Damaged { path: PathBuf, problem: String },
    #[error("cannot use the journal {path}", path = path.display())]
    Sqlite { path: PathBuf, source: rusqlite::Error },
    #[error("cannot read {path}", path = path.display())]
    Read { path: PathBuf, source: std::io::Error },
}

impl OpenError {
    /// SQLite's own findings of damage become ours, so that the hint is printed with them.
    pub(super) fn from_sqlite(path: &std::path::Path, source: rusqlite::Error) -> OpenError {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        let path = path.to_owned();
        match source.sqlite_error_code() {
            Some(NotADatabase) => OpenError::Foreign { path },
            Some(DatabaseCorrupt) => OpenError::Damaged { path, problem: source.to_string() },
            Some(_) | None => OpenError::Sqlite { path, source },
        }
    }
}

/// Why facts could not be made durable. They are not in the journal, and the same append may be tried again.
#[derive(Debug, Error)]
pub enum AppendError {
    #[error(
        "no space is left for the journal {path}: nothing new is accepted until some is freed",
        path = path.display()
    )]
    Full { path: PathBuf },
    #[error("the journal {path} cannot be written: nothing new is accepted until it can", path = path.display())]
    Sqlite { path: PathBuf, source: rusqlite::Error },
    #[error("a fact cannot be encoded")]
    Encode(#[from] rmp_serde::encode::Error),
}

impl AppendError {
    pub(super) fn from_sqlite(path: &std::path::Path, source: rusqlite::Error) -> AppendError {
        let path = path.to_owned();
        match source.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DiskFull) => AppendError::Full { path },
            Some(_) | None => AppendError::Sqlite { path, source },
        }
    }
}

/// Why no snapshot was made. The journal is whole without it; it only stays longer.
#[derive(Debug, Error)]
pub enum SnapshotError {
    #[error(transparent)]
    Replay(#[from] OpenError),
    #[error("the journal does not replay")]
    Restore(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("cannot write the snapshot {path}", path = path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("the state cannot be encoded")]
    Encode(#[from] rmp_serde::encode::Error),
    #[error(transparent)]
    Adopt(#[from] AppendError),
}
