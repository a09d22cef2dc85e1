//! Reads a journal without touching it, also while a server writes it: what became of all jobs, and the state at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use rms_core::{Config, Fact, Misfit, Rms, State};
use rms_model::{JobId, JobRecord, JobSpec};

use super::replay::{Files, replay};
use crate::history;
use crate::open_error::OpenError;

/// What a journal tells.
#[derive(Debug)]
pub struct Past {
    /// As of its last fact.
    pub state: State,
    /// Every job that is done, by id.
    pub records: Vec<JobRecord>,
    /// What was asked for, of the jobs whose facts no snapshot has replaced yet.
    pub specs: BTreeMap<JobId, Arc<JobSpec>>,
    /// Those of them for which an external launcher spoke.
    pub launchers: BTreeSet<JobId>,
}

impl Past {
    /// # Errors
    /// No journal, a foreign one or a damaged one.
    pub fn read(dir: &Path) -> Result<Past, OpenError> {
        again(|| read_once(dir))
    }

    /// The state alone, which needs no memory for jobs that are done.
    ///
    /// # Errors
    /// As [`Past::read`]; the history is not looked at.
    pub fn state(dir: &Path) -> Result<State, OpenError> {
        again(|| {
            replay_state(dir, &Files::find(dir)?, |snapshot, facts| Rms::restore(Config::default(), snapshot, facts))
        })
    }
}

/// A running server may replace files between two looks, and be in the middle of a write; the next look finds the new ones.
fn again<T>(read: impl Fn() -> Result<T, OpenError>) -> Result<T, OpenError> {
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
    restore: impl FnOnce(Option<State>, &mut dyn Iterator<Item = Fact>) -> Result<Rms, Misfit>,
) -> Result<State, OpenError> {
    let restored = replay(files, &mut |_, _| {}, restore)?.restored;
    let damaged = |problem: String| OpenError::Damaged { path: dir.to_owned(), problem };
    restored.map(|rms| rms.state().clone()).map_err(|misfit| damaged(misfit.to_string()))
}

fn read_once(dir: &Path) -> Result<Past, OpenError> {
    let files = Files::find(dir)?;
    // The history first: the log then tells also of the jobs that have ended since.
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
