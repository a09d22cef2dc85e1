//! Goes on without the damaged part of a journal, when an admin who has no backup wants that: everything before it is kept.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rms_core::{Config, Fact, Misfit, Rms, State};
use thiserror::Error;

use super::replay::{Files, read};
use super::segment::{self, Segment};
use crate::dir::{copy_durably, sync_dir};
use crate::history::{self, HistoryWriter};
use crate::open_error::OpenError;
use rms_model::error::chain;

/// What going on costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The last fact that is whole.
    pub last_seq: u64,
    /// What is wrong; nothing with a whole journal.
    pub problems: Vec<String>,
    /// The ends of jobs that the history does not have and the log cannot make up for: facts from the first to the second.
    pub history: Option<(u64, u64)>,
}

/// Why a journal cannot be recovered.
#[derive(Debug, Error)]
pub enum RecoverError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the facts before the damage contradict each other: only a backup helps")]
    Misfit(#[from] Misfit),
    #[error("cannot write {path}", path = path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// Finds out what would be lost, and, if it `is_wanted`, goes on without: what is damaged is kept beside the journal under
/// names that begin with `damaged.`, and of a damaged history every record that can be read is taken over. The server must
/// not run.
///
/// # Errors
/// Nothing whole is left to go on from (a damaged snapshot, a first file that is missing), or the directory cannot be
/// written.
pub fn recover(dir: &Path, is_wanted: bool) -> Result<Loss, RecoverError> {
    let files = Files::find(dir)?;
    let restore = |snapshot: Option<State>, facts: &mut dyn Iterator<Item = Fact>| {
        Rms::restore(Config::default(), snapshot, facts).map(drop)
    };
    let read = read(&files, &mut |_, _| {}, restore)?;
    read.restored?;
    let (history, history_problem) = match history::check(dir).and_then(|()| HistoryWriter::start(dir)) {
        Ok(writer) => (Some(writer), None),
        // An empty file is nobody's.
        Err(error @ (OpenError::Damaged { .. } | OpenError::Foreign { .. })) => (None, Some(chain(&error))),
        Err(error) => return Err(error.into()),
    };
    let written_seq = history.as_ref().map_or(0, HistoryWriter::last_seq);
    let lost = (written_seq < files.snapshot_seq).then_some((written_seq + 1, files.snapshot_seq));
    let log_problem = read.failed.as_ref().map(|error| chain(error));
    let problems = log_problem.iter().chain(&history_problem).cloned().collect();
    let loss = Loss { last_seq: read.tail.seq, problems, history: lost };
    if !is_wanted {
        return Ok(loss);
    }
    if log_problem.is_some() {
        cut(dir, &files, &read.segment, read.end, read.tail.seq)?;
    }
    let history = match history {
        Some(history) => history,
        None => {
            set_history_aside(dir)?;
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

/// Ends the log after fact `seq`.
fn cut(dir: &Path, files: &Files, segment: &Path, end: u64, seq: u64) -> Result<(), RecoverError> {
    let of_io = |path: &Path| {
        let path = path.to_owned();
        |source| RecoverError::Write { path, source }
    };
    let paths: Vec<PathBuf> = files.segments.iter().map(|begin| segment::path_of(dir, *begin)).collect();
    for later in paths.iter().skip_while(|path| *path != segment).skip(1) {
        fs::rename(later, aside(later)).map_err(of_io(later))?;
    }
    // What is cut off is safe first.
    copy_durably(segment, &aside(segment)).and_then(|()| sync_dir(segment)).map_err(of_io(segment))?;
    Segment::open(segment, end, seq).map_err(of_io(segment))?;
    Ok(())
}

fn set_history_aside(dir: &Path) -> Result<(), RecoverError> {
    for entry in fs::read_dir(dir).map_err(|source| RecoverError::Write { path: dir.to_owned(), source })?.flatten() {
        if entry.file_name().to_string_lossy().starts_with("history.db") {
            let path = entry.path();
            fs::rename(&path, aside(&path)).map_err(|source| RecoverError::Write { path, source })?;
        }
    }
    Ok(())
}

/// `damaged.NAME` beside it.
fn aside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("damaged.{name}"))
}
