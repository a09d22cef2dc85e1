//! Errors of an open journal, and what to do about them.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::open_error::OpenError;

/// Why facts could not be made durable. They are not in the journal, and the append may be retried.
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

/// Why no snapshot was made. The journal is complete without it, only longer.
#[derive(Debug, Error)]
pub enum SnapshotError {
    #[error(transparent)]
    Replay(#[from] OpenError),
    #[error("the journal cannot be replayed")]
    Restore(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("cannot write the snapshot {path}", path = path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("the state cannot be encoded")]
    Encode(#[from] rmp_serde::encode::Error),
    #[error("the history cannot be made durable")]
    History(#[source] crate::history::HistoryError),
}
