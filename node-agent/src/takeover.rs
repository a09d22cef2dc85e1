//! Examines what executions have left in the spool; the node loop decides what follows.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rms_core::agent::Told;
use rms_core::node_loop::{self, SpoolEntry};
use rms_model::{JobId, Run};

use crate::spool::{self, Entry, Spool};

/// What was found of one execution.
#[derive(Debug)]
pub struct Recovered {
    pub remains: SpoolEntry,
    pub entry: Option<Box<Entry>>,
    /// The connection to its supervisor.
    pub stream: Option<UnixStream>,
    /// How many of its steps were requested here.
    pub n_steps: u32,
}

/// Examines one execution, and connects to its supervisor if that may be alive.
pub fn examine(spool: &Spool, job: JobId, run: Run, boot: &str) -> Recovered {
    let dir = spool.entry_dir(job, run);
    // After a power failure, the entry may be that of the supervisor's previous job.
    let is_its_own = |entry: &Entry| (entry.order.job, entry.order.run) == (job, run);
    let entry = spool::read_entry(&dir).ok().filter(is_its_own).map(Box::new);
    let is_forgotten = entry.is_some() && spool::forgotten_path(&dir).exists();
    let mut result = spool::read_result(&dir, job, run).ok();
    let is_of_this_boot = entry.as_ref().is_some_and(|entry| entry.boot == boot);
    let may_live = is_of_this_boot && !is_forgotten && result.is_none();
    let stream = may_live.then(|| spool::connect_socket(&spool::socket_path(&dir)).ok()).flatten();
    if may_live && stream.is_none() {
        // The execution may have ended between the two checks.
        result = spool::read_result(&dir, job, run).ok();
    }
    let is_there = match (&entry, &result) {
        // A folder gets its name with all files in it, so an empty one was being removed.
        (None, None) => fs::remove_dir(&dir).is_err() && dir.exists(),
        (_, _) => true,
    };
    let said = entry.as_ref().map(|entry| node_loop::Entry {
        seat: entry.seat.clone(),
        can_start_over: entry.cgroup.can_start_over(),
        stay: entry.order.stay(),
        told: Told { generation: entry.order.launch.generation, wall: entry.order.launch.wall },
        is_streamed: entry.order.is_streamed(),
        is_of_this_boot,
        is_heard: stream.is_some(),
    });
    let n_steps = if entry.is_some() { spool::read_steps(&dir) } else { 0 };
    Recovered { remains: SpoolEntry { is_there, entry: said, is_forgotten, result }, entry, stream, n_steps }
}

/// Removes the folders of supervisors that have ended. An idle supervisor that is alive exits because of the connection
/// attempt.
pub fn clear_seats(seats_dir: &Path) {
    let Ok(entries) = fs::read_dir(seats_dir) else { return };
    for entry in entries.filter_map(Result::ok) {
        if spool::connect_socket(&spool::socket_path(&entry.path())).is_err() {
            let _gone_already = fs::remove_dir_all(entry.path());
        }
    }
}
