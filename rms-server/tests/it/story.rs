//! Helpers of the journal's tests: numbered facts, and what a replay finds.

use std::fs;
use std::path::Path;

use rms_core::Fact;
use rms_model::{JobId, Time};
use rms_server::journal::{FactLog, SnapshotPolicy};
use rms_server::open_error::OpenError;

/// Returns the fact with this number; no two are equal.
pub fn fact(number: u64) -> Fact {
    Fact::JobHeld { job: JobId(number), by: format!("user{number}"), at: Time::from_secs(number as i64) }
}

pub fn facts(numbers: std::ops::Range<u64>) -> Vec<Fact> {
    numbers.map(fact).collect()
}

/// Stands in for the state of the core: all facts that were applied.
pub fn restore(snapshot: Option<Vec<Fact>>, facts: &mut dyn Iterator<Item = Fact>) -> Vec<Fact> {
    let mut applied = snapshot.unwrap_or_default();
    applied.extend(facts);
    applied
}

/// As [`restore`], for callers where restoring can fail; this one never does.
pub fn restored(
    snapshot: Option<Vec<Fact>>,
    facts: &mut dyn Iterator<Item = Fact>,
) -> Result<Vec<Fact>, std::convert::Infallible> {
    Ok(restore(snapshot, facts))
}

/// Returns the facts that a restart finds.
pub fn replayed(path: &Path) -> Result<Vec<Fact>, OpenError> {
    FactLog::open(path, SnapshotPolicy::default(), restore).map(|(_, facts)| facts)
}

/// Opens a journal for appending, as a restart does.
pub fn reopened(path: &Path, policy: SnapshotPolicy) -> FactLog {
    FactLog::open(path, policy, restore).expect("a whole journal").0
}

/// Copies the files of a journal.
pub fn copy_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory").flatten() {
        fs::copy(entry.path(), to.join(entry.file_name())).expect("a copy");
    }
}
