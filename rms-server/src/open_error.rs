//! Errors of opening the files of the journal and the history, and what to do about them.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a journal or its history cannot be created or opened. Nothing was changed.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error(
        "there is no journal at {path}: make a new data directory with 'rms-server init', or restore this one from a backup",
        path = path.display()
    )]
    Missing { path: PathBuf },
    #[error(
        "{path} has neither a log nor a snapshot: the files log.* and snapshot.* are missing. Restore them from a backup",
        path = path.display()
    )]
    Emptied { path: PathBuf },
    #[error("there is already a journal at {path}", path = path.display())]
    Exists { path: PathBuf },
    #[error("cannot make the journal {path}", path = path.display())]
    Create { path: PathBuf, source: io::Error },
    #[error(
        "{path} is not a journal of this program: a journal is a folder with files log.* and snapshot.*. If it was one, \
         restore it from a backup, or let 'rms-server recover' say what can be kept",
        path = path.display()
    )]
    Foreign { path: PathBuf },
    #[error(
        "{path} has journal format {found}, and this server reads format {expected}: start the server version that wrote it",
        path = path.display()
    )]
    Version { path: PathBuf, found: String, expected: String },
    #[error(
        "{path} is damaged: {problem}. Nothing was changed. Keep a copy of the data directory, then restore it from a backup, \
         or let 'rms-server recover' say what would be lost by going on without the damaged part",
        path = path.display()
    )]
    Damaged { path: PathBuf, problem: String },
    #[error("cannot use {path}", path = path.display())]
    Sqlite { path: PathBuf, source: rusqlite::Error },
    #[error("cannot read {path}", path = path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {path}", path = path.display())]
    Write { path: PathBuf, source: io::Error },
}

impl OpenError {
    /// Converts SQLite's errors; its reports of damage become ours, so that the hint is printed with them.
    pub(crate) fn from_sqlite(path: &Path, source: rusqlite::Error) -> OpenError {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        let path = path.to_owned();
        match source.sqlite_error_code() {
            Some(NotADatabase | DatabaseCorrupt) => OpenError::Damaged { path, problem: source.to_string() },
            Some(_) | None => OpenError::Sqlite { path, source },
        }
    }
}
