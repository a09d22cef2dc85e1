//! Copies a journal while a server writes it, and verifies the copy by reading it back.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use super::past::Past;
use super::replay::Files;
use super::{segment, snapshot};
use crate::dir::{copy_durably, sync_dir};
use crate::history;
use crate::open_error::OpenError;

/// Copies the journal in `dir` to the new directory `to`.
///
/// # Errors
/// `to` exists already or cannot be written, or the journal is damaged; nothing is left at `to` then.
pub fn backup(dir: &Path, to: &Path) -> Result<(), OpenError> {
    if to.exists() {
        return Err(OpenError::Exists { path: to.to_owned() });
    }
    let mut copied = copy(dir, to);
    // A running server may begin a new file, or remove one that a snapshot has replaced, during the copy.
    for _ in 1..ATTEMPTS {
        match copied {
            Err(OpenError::Read { .. } | OpenError::Damaged { .. }) => {
                remove(to)?;
                copied = copy(dir, to);
            }
            Ok(()) | Err(_) => break,
        }
    }
    if copied.is_err() {
        remove(to)?;
    }
    copied
}

const ATTEMPTS: usize = 3;

fn copy(dir: &Path, to: &Path) -> Result<(), OpenError> {
    let files = Files::find(dir)?;
    DirBuilder::new().mode(0o700).create(to).map_err(|source| OpenError::Create { path: to.to_owned(), source })?;
    // The history first: the log has the jobs that end meanwhile.
    history::copy(dir, to)?;
    let log = files.segments.iter().map(|begin| segment::path_of(dir, *begin));
    let snapshot = (files.snapshot_seq > 0).then(|| snapshot::path_of(dir, files.snapshot_seq));
    for from in log.chain(snapshot) {
        let name = from.file_name().expect("it was listed");
        copy_durably(&from, &to.join(name)).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => OpenError::Read { path: from.clone(), source },
            _ => OpenError::Write { path: to.join(name), source },
        })?;
    }
    // Syncs the names of the files, and the directory itself.
    let of_io = |source| OpenError::Write { path: to.to_owned(), source };
    sync_dir(&to.join("log")).and_then(|()| sync_dir(to)).map_err(of_io)?;
    history::for_each(to, drop)?;
    Past::state(to).map(drop)
}

fn remove(to: &Path) -> Result<(), OpenError> {
    match fs::remove_dir_all(to) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(OpenError::Write { path: to.to_owned(), source })
        }
        Ok(()) | Err(_) => Ok(()),
    }
}
