//! Reads a journal without touching it, also while a server writes it: what became of all jobs, and the state at the end.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rms_core::{Config, Fact, Rms, State};
use rms_model::{JobId, JobRecord, JobSpec};

use super::error::OpenError;
use super::open_reader;
use super::replay::{Head, replay};

/// What a journal tells.
#[derive(Debug)]
pub struct Past {
    /// As of its last fact.
    pub state: State,
    /// Every job that is done, by id.
    pub records: Vec<JobRecord>,
    /// What was asked for, of the jobs whose facts no snapshot has replaced yet.
    pub specs: BTreeMap<JobId, Arc<JobSpec>>,
}

impl Past {
    /// # Errors
    /// No journal, a foreign one or a damaged one.
    pub fn read(path: &Path) -> Result<Past, OpenError> {
        // A running server may replace the snapshot between two looks; the next look finds the new one.
        let mut attempt = read_once(path);
        for _ in 1..ATTEMPTS {
            match attempt {
                Err(OpenError::Read { .. }) => attempt = read_once(path),
                Ok(_) | Err(_) => break,
            }
        }
        attempt
    }
}

const ATTEMPTS: usize = 3;

fn read_once(path: &Path) -> Result<Past, OpenError> {
    let of_sqlite = |source| OpenError::from_sqlite(path, source);
    let damaged = |problem: String| OpenError::Damaged { path: path.to_owned(), problem };
    let mut conn = open_reader(path)?;
    // One transaction sees one instant, whatever is written meanwhile.
    let conn = conn.transaction().map_err(of_sqlite)?;
    let head = Head::read(&conn, path)?;
    let mut specs: BTreeMap<JobId, Arc<JobSpec>> = BTreeMap::new();
    let restore = |snapshot: Option<State>, facts: &mut dyn Iterator<Item = Fact>| {
        let waiting = snapshot.iter().flat_map(|state| state.jobs());
        specs.extend(waiting.map(|(job, entry)| (*job, Arc::clone(&entry.spec))));
        let noted = facts.inspect(|fact| {
            if let Fact::JobSubmitted { job, spec, .. } = fact {
                specs.insert(*job, Arc::clone(spec));
            }
        });
        Rms::restore(Config::default(), snapshot, noted).map(|rms| rms.state().clone())
    };
    let replayed = replay(&conn, path, &head, head.last_seq, restore)?;
    let state = replayed.restored.map_err(|misfit| damaged(misfit.to_string()))?;
    let mut statement = conn.prepare("SELECT job, record FROM history ORDER BY job").map_err(of_sqlite)?;
    let mut rows = statement.query([]).map_err(of_sqlite)?;
    let mut records = Vec::new();
    while let Some(row) = rows.next().map_err(of_sqlite)? {
        let job: u64 = row.get(0).map_err(of_sqlite)?;
        let body: Vec<u8> = row.get(1).map_err(of_sqlite)?;
        let record = rmp_serde::from_slice(&body);
        records.push(record.map_err(|error| damaged(format!("the record of job {job} is unreadable: {error}")))?);
    }
    Ok(Past { state, records, specs })
}
