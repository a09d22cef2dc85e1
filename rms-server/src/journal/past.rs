//! Reads a journal without changing it, even while a server writes it: the records of all jobs, and the last state.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use rms_core::{ApplyError, Config, Fact, Rms, State};
use rms_model::{JobId, JobRecord, JobSpec};

use super::replay::{Files, replay};
use crate::history;
use crate::open_error::OpenError;

/// The content of a journal.
#[derive(Debug)]
pub struct Past {
    /// The state after the last fact.
    pub state: State,
    /// Every job that is done, by id.
    pub records: Vec<JobRecord>,
    /// The specifications of jobs whose facts no snapshot has replaced yet.
    pub specs: BTreeMap<JobId, Arc<JobSpec>>,
    /// Those of them that had an external launcher.
    pub launchers: BTreeSet<JobId>,
}

impl Past {
    /// Reads the journal and its history.
    ///
    /// # Errors
    /// There is no journal, or it is not ours or damaged.
    pub fn read(dir: &Path) -> Result<Past, OpenError> {
        retry(|| read_once(dir))
    }

    /// Reads only the state, which needs no memory for jobs that are done.
    ///
    /// # Errors
    /// As [`Past::read`]; the history is not read.
    pub fn state(dir: &Path) -> Result<State, OpenError> {
        retry(|| {
            replay_state(dir, &Files::find(dir)?, |snapshot, facts| Rms::restore(Config::default(), snapshot, facts))
        })
    }
}

/// Retries a read: a running server may have replaced files meanwhile, or be in the middle of a write.
fn retry<T>(read: impl Fn() -> Result<T, OpenError>) -> Result<T, OpenError> {
    let mut attempt = read();
    for _ in 1..ATTEMPTS {
        match attempt {
            Err(OpenError::Read { .. } | OpenError::Damaged { .. }) => attempt = read(),
            Ok(_) | Err(_) => break,
        }
    }
    attempt
}

const ATTEMPTS: usize = 3;

fn replay_state(
    dir: &Path,
    files: &Files,
    restore: impl FnOnce(Option<State>, &mut dyn Iterator<Item = Fact>) -> Result<Rms, ApplyError>,
) -> Result<State, OpenError> {
    let restored = replay(files, &mut |_, _| {}, restore)?.restored;
    let damaged = |problem: String| OpenError::Damaged { path: dir.to_owned(), problem };
    restored.map(|rms| rms.state().clone()).map_err(|misfit| damaged(misfit.to_string()))
}

fn read_once(dir: &Path) -> Result<Past, OpenError> {
    let files = Files::find(dir)?;
    // The history first: the log then has the jobs that have ended since.
    let mut records = BTreeMap::new();
    history::for_each(dir, |record| drop(records.insert(record.job, record)))?;
    let mut specs: BTreeMap<JobId, Arc<JobSpec>> = BTreeMap::new();
    let mut launchers: BTreeSet<JobId> = BTreeSet::new();
    let restore = |snapshot: Option<State>, facts: &mut dyn Iterator<Item = Fact>| {
        for (job, entry) in snapshot.iter().flat_map(|state| state.jobs()) {
            specs.insert(*job, Arc::clone(&entry.spec));
            launchers.extend(entry.launcher.is_some().then_some(*job));
        }
        let noted = facts.inspect(|fact| match fact {
            Fact::JobSubmitted { job, spec, .. } => drop(specs.insert(*job, Arc::clone(spec))),
            Fact::LauncherSubscribed { job, spec, .. } => {
                specs.insert(*job, Arc::new((**spec).clone()));
                launchers.insert(*job);
            }
            Fact::JobDone { record, .. } => drop(records.insert(record.job, (**record).clone())),
            _ => {}
        });
        Rms::restore(Config::default(), snapshot, noted)
    };
    let state = replay_state(dir, &files, restore)?;
    Ok(Past { state, records: records.into_values().collect(), specs, launchers })
}
