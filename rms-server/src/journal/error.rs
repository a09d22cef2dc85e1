//! What can go wrong with the journal, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a journal cannot be created or opened. Nothing was changed.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error("there is no journal at {path}: make the data directory with 'rms-server init'", path = path.display())]
    Missing { path: PathBuf },
    #[error("there is already a journal at {path}", path = path.display())]
    Exists { path: PathBuf },
    #[error("cannot make the journal {path}", path = path.display())]
    Create { path: PathBuf, source: io::Error },
    #[error("{path} is not a journal of this program", path = path.display())]
    Foreign { path: PathBuf },
    #[error(
        "{path} has journal format {found}, and this server reads format {expected}: start the server version that wrote it",
        path = path.display(), expected = char::from(super::segment::FORMAT)
    )]
    Version { path: PathBuf, found: String },
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
    /// SQLite's own findings of damage become ours, so that the hint is printed with them.
    pub(crate) fn from_sqlite(path: &Path, source: rusqlite::Error) -> OpenError {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        let path = path.to_owned();
        match source.sqlite_error_code() {
            Some(NotADatabase | DatabaseCorrupt) => OpenError::Damaged { path, problem: source.to_string() },
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
    Write { path: PathBuf, source: io::Error },
    #[error("a fact cannot be encoded")]
    Encode(#[from] rmp_serde::encode::Error),
}

impl AppendError {
    pub(super) fn from_io(path: &Path, source: io::Error) -> AppendError {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => AppendError::Full { path },
            _ => AppendError::Write { path, source },
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
    Write { path: PathBuf, source: io::Error },
    #[error("the state cannot be encoded")]
    Encode(#[from] rmp_serde::encode::Error),
    #[error("the history is not durable")]
    History(#[source] crate::history::HistoryError),
}
