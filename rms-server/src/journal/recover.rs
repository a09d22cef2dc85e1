//! Cuts off the damaged part of a journal, for an admin without a backup: everything before it is kept.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rms_core::{ApplyError, Config, Fact, Rms, State};
use thiserror::Error;

use super::replay::{Files, read};
use super::segment::{self, Segment};
use crate::dir::{copy_durably, sync_dir};
use crate::history::{self, HistoryWriter};
use crate::open_error::OpenError;
use rms_model::error::chain;

/// What a recovery keeps and loses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The last fact that is intact.
    pub last_seq: u64,
    /// The damage; empty if the journal is intact.
    pub problems: Vec<String>,
    /// The range of facts whose jobs are in neither the history nor the log, from the first to the second.
    pub history: Option<(u64, u64)>,
}

/// Why a journal cannot be recovered.
#[derive(Debug, Error)]
pub enum RecoverError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the facts before the damage contradict each other: only a backup helps")]
    ApplyError(#[from] ApplyError),
    #[error("cannot write {path}", path = path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// Finds what would be lost and, if it `is_confirmed`, recovers: damaged files are kept beside the journal under names
/// that begin with `damaged.`, and every readable record of a damaged history is copied. The server must not run.
///
/// # Errors
/// There is nothing intact to start from (a damaged snapshot, or a first file that is missing), or the directory cannot
/// be written.
pub fn recover(dir: &Path, is_confirmed: bool) -> Result<RecoveryReport, RecoverError> {
    let files = Files::find(dir)?;
    let restore = |snapshot: Option<State>, facts: &mut dyn Iterator<Item = Fact>| {
        Rms::restore(Config::default(), snapshot, facts).map(drop)
    };
    let read = read(&files, &mut |_, _| {}, restore)?;
    read.restored?;
    let (history, history_problem) = match history::check(dir).and_then(|()| HistoryWriter::start(dir)) {
        Ok(writer) => (Some(writer), None),
        // An empty file is reported as foreign, too.
        Err(error @ (OpenError::Damaged { .. } | OpenError::Foreign { .. })) => (None, Some(chain(&error))),
        Err(error) => return Err(error.into()),
    };
    let written_seq = history.as_ref().map_or(0, HistoryWriter::last_seq);
    let lost = (written_seq < files.snapshot_seq).then_some((written_seq + 1, files.snapshot_seq));
    let log_problem = read.failed.as_ref().map(|error| chain(error));
    let problems = log_problem.iter().chain(&history_problem).cloned().collect();
    let loss = RecoveryReport { last_seq: read.tail.seq, problems, history: lost };
    if !is_confirmed {
        return Ok(loss);
    }
    if log_problem.is_some() {
        truncate_log(dir, &files, &read.segment, read.end, read.tail.seq)?;
    }
    let history = match history {
        Some(history) => history,
        None => {
            move_history_aside(dir)?;
            HistoryWriter::create(dir)?;
            history::salvage(&dir.join("damaged.history.db"), dir)?;
            HistoryWriter::start(dir)?
        }
    };
    if lost.is_some() {
        let of_history =
            |error| RecoverError::Write { path: history.path().to_owned(), source: io::Error::other(error) };
        history.sync(files.snapshot_seq).map_err(of_history)?;
    }
    Ok(loss)
}

/// Truncates the log after fact `seq`.
fn truncate_log(dir: &Path, files: &Files, segment: &Path, end: u64, seq: u64) -> Result<(), RecoverError> {
    let of_io = |path: &Path| {
        let path = path.to_owned();
        |source| RecoverError::Write { path, source }
    };
    let paths: Vec<PathBuf> = files.segments.iter().map(|begin| segment::path_of(dir, *begin)).collect();
    for later in paths.iter().skip_while(|path| *path != segment).skip(1) {
        fs::rename(later, damaged_path(later)).map_err(of_io(later))?;
    }
    // The copy of what is cut off must be durable first.
    copy_durably(segment, &damaged_path(segment)).and_then(|()| sync_dir(segment)).map_err(of_io(segment))?;
    Segment::open(segment, end, seq).map_err(of_io(segment))?;
    Ok(())
}

fn move_history_aside(dir: &Path) -> Result<(), RecoverError> {
    for entry in fs::read_dir(dir).map_err(|source| RecoverError::Write { path: dir.to_owned(), source })?.flatten() {
        if entry.file_name().to_string_lossy().starts_with("history.db") {
            let path = entry.path();
            fs::rename(&path, damaged_path(&path)).map_err(|source| RecoverError::Write { path, source })?;
        }
    }
    Ok(())
}

/// Returns the path `damaged.NAME` beside a file.
fn damaged_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("damaged.{name}"))
}
