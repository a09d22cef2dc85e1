//! Cuts off the damaged part of a journal, for an admin without a backup: everything before it is kept.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rms_core::{ApplyError, Config, Fact, Rms, State};
use thiserror::Error;

use super::replay::{Files, check_begin, read};
use super::segment::{self, Segment};
use super::snapshot;
use crate::dir::{copy_durably, sync_dir};
use crate::history::{self, HistoryWriter};
use crate::open_error::OpenError;
use rms_model::error::chain;

/// What a recovery keeps and loses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    #[error("{path} is damaged: {problem}. Nothing intact is left to go on from: only a backup helps", path = path.display())]
    NothingIntact { path: PathBuf, problem: String },
    #[error("cannot write {path}", path = path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// Finds what would be lost and, if it `is_confirmed`, recovers: damaged files are kept beside the journal under names
/// that begin with `damaged.`, and every readable record of a damaged history is copied. The server must not run.
///
/// # Errors
/// There is nothing intact to start from (a damaged snapshot, or no snapshot and a damaged first log), or the directory
/// cannot be written.
pub fn recover(dir: &Path, is_confirmed: bool) -> Result<RecoveryReport, RecoverError> {
    if let Some((last_seq, problem)) = lost_log(dir)? {
        let rest = match is_confirmed {
            true => begin_log_anew(dir, last_seq).and_then(|()| recover(dir, true))?,
            false => RecoveryReport { last_seq, ..RecoveryReport::default() },
        };
        let problems = std::iter::once(problem).chain(rest.problems).collect();
        return Ok(RecoveryReport { problems, ..rest });
    }
    let files = Files::find(dir)?;
    let restore = |snapshot: Option<State>, facts: &mut dyn Iterator<Item = Fact>| {
        Rms::restore(Config::default(), snapshot, facts).map(drop)
    };
    let read = read(&files, &mut |_, _| {}, restore).map_err(nothing_intact)?;
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

/// Returns why no log continues the newest snapshot, and that snapshot's fact, if there is one from which to go on.
fn lost_log(dir: &Path) -> Result<Option<(u64, String)>, RecoverError> {
    let error = match check_begin(dir) {
        Ok(()) => return Ok(None),
        Err(error @ (OpenError::Damaged { .. } | OpenError::Foreign { .. })) => error,
        Err(error) => return Err(error.into()),
    };
    let snapshots = snapshot::list(dir).map_err(|source| OpenError::Read { path: dir.to_owned(), source })?;
    let Some(seq) = snapshots.last().copied() else { return Err(nothing_intact(error)) };
    let intact = snapshot::previous(dir, seq).and_then(|previous| snapshot::read::<State>(dir, seq, previous));
    intact.map_err(nothing_intact)?;
    let problem = match error {
        OpenError::Damaged { path, problem } => format!("{} is damaged: {problem}", path.display()),
        error => chain(&error),
    };
    Ok(Some((seq, problem)))
}

/// Moves the logs after a snapshot aside, and begins an empty one.
fn begin_log_anew(dir: &Path, snapshot_seq: u64) -> Result<(), RecoverError> {
    let of_io = |source| RecoverError::Write { path: dir.to_owned(), source };
    let later = segment::list(dir).map_err(of_io)?.into_iter().filter(|begin| *begin > snapshot_seq);
    for path in later.map(|begin| segment::path_of(dir, begin)) {
        fs::rename(&path, damaged_path(&path)).map_err(of_io)?;
    }
    let previous = snapshot::previous(dir, snapshot_seq)?;
    Segment::create(dir, snapshot_seq + 1, previous).map_err(of_io)?;
    Ok(())
}

/// Converts errors before which nothing of the journal is intact, so that nobody is sent to a recovery again.
fn nothing_intact(error: OpenError) -> RecoverError {
    match error {
        OpenError::Damaged { path, problem } => RecoverError::NothingIntact { path, problem },
        OpenError::Foreign { path } => {
            RecoverError::NothingIntact { path, problem: "it is not a journal of this program".to_owned() }
        }
        error => error.into(),
    }
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
