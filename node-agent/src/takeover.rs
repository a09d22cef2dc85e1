//! Looks at what an earlier agent has left in the spool: jobs that run, have ended, or have vanished.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rms_api::desired::{JobReport, JobStatus};
use rms_core::agent::{self, Told};
use rms_model::{JobId, Run, Span};

use crate::order::Order;
use crate::spool::{self, Entry, Spool};

/// Why a job has ended whose supervisor is gone, though the node is not.
pub const KILLED: &str =
    "the process that watched over it (rms-supervisor) was killed there, so what was left of the job was ended";

/// One execution as it was found.
#[derive(Debug)]
pub enum Found {
    /// Its supervisor lives and listens here.
    Alive {
        entry: Box<Entry>,
        socket: PathBuf,
    },
    Ended {
        entry: Option<Box<Entry>>,
        report: JobReport,
    },
    /// The server has the result; only the streams are kept.
    Forgotten {
        entry: Box<Entry>,
    },
    /// Nobody saw its end.
    Vanished {
        entry: Option<Box<Entry>>,
        reason: &'static str,
    },
    /// No supervisor has taken it up.
    Nothing,
}

/// # Errors
/// The spool cannot be read.
pub fn examine(spool: &Spool, job: JobId, run: Run, boot: &str) -> io::Result<Found> {
    let dir = spool.entry_dir(job, run);
    // What a power failure has left may be that of the job which the supervisor served before.
    let is_its_own = |entry: &Entry| (entry.order.job, entry.order.run) == (job, run);
    let entry = spool::read_entry(&dir).ok().filter(is_its_own).map(Box::new);
    if let Some(entry) = &entry
        && spool::forgotten_path(&dir).exists()
    {
        return Ok(Found::Forgotten { entry: entry.clone() });
    }
    if let Ok(report) = spool::read_result(&dir, job, run) {
        return Ok(Found::Ended { entry, report });
    }
    let Some(entry) = entry else {
        // A folder comes here with all that belongs in it, so one that is bare was on its way out.
        if fs::remove_dir(&dir).is_ok() || !dir.exists() {
            return Ok(Found::Nothing);
        }
        return Ok(Found::Vanished { entry: None, reason: "its spool entry is damaged" });
    };
    if entry.boot != boot {
        return Ok(Found::Vanished { entry: Some(entry), reason: "the node was restarted" });
    }
    let socket = spool::socket_path(&dir);
    match spool::connect_socket(&socket) {
        Ok(_) => Ok(Found::Alive { entry, socket }),
        // It may have ended between the two looks.
        Err(_) => match spool::read_result(&dir, job, run) {
            Ok(report) => Ok(Found::Ended { entry: Some(entry), report }),
            Err(_) => Ok(Found::Vanished { entry: Some(entry), reason: KILLED }),
        },
    }
}

/// A report for a job of which nothing is known but that it was started, until its supervisor speaks.
pub fn unknown(job: JobId, run: Run) -> JobReport {
    JobReport { job, run, status: JobStatus::Starting }
}

/// What the node's logic needs to know of it.
pub fn known(report: JobReport, order: Option<&Order>) -> agent::Found {
    let joined = order.map_or(1, Order::joined);
    let told = order.map_or(Told { generation: 1, wall: Span::ZERO }, |order| Told {
        generation: order.launch.generation,
        wall: order.launch.wall,
    });
    agent::Found { report, joined, told }
}

/// Removes the folders of supervisors that have ended. One that is alive and has no job ends by this.
pub fn clear_seats(seats_dir: &Path) {
    let Ok(entries) = fs::read_dir(seats_dir) else { return };
    for entry in entries.filter_map(Result::ok) {
        if spool::connect_socket(&spool::socket_path(&entry.path())).is_err() {
            let _gone_already = fs::remove_dir_all(entry.path());
        }
    }
}
