//! Looks at what an earlier agent has left in the spool: jobs that run, have ended, or have vanished.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rms_core::agent::{self, Told};
use rms_core::desired::{JobReport, JobStatus};
use rms_model::{JobId, Run, Span};

use crate::spool::{self, Entry, Spool};
use crate::supervisor::order::Order;
use crate::supervisor::seat_socket;

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
    /// It was about to be started, and now never will be by that supervisor.
    Nothing,
}

/// # Errors
/// The spool cannot be read.
pub fn examine(spool: &Spool, job: JobId, run: Run, boot: &str) -> io::Result<Found> {
    let dir = spool.entry_dir(job, run);
    // An empty directory was claimed and not used; taking it away keeps its supervisor from using it now.
    if fs::remove_dir(&dir).is_ok() {
        return Ok(Found::Nothing);
    }
    let entry = spool::read_entry(&dir).map(Box::new).ok();
    if let Some(entry) = &entry
        && spool::forgotten_path(&dir).exists()
    {
        return Ok(Found::Forgotten { entry: entry.clone() });
    }
    if let Ok(report) = spool::read_result(&dir) {
        return Ok(Found::Ended { entry, report });
    }
    let Some(entry) = entry else {
        let may_be_unfinished = !dir.join("entry").exists();
        if may_be_unfinished && set_aside(spool, &dir)? {
            return Ok(Found::Nothing);
        }
        return Ok(Found::Vanished { entry: None, reason: "its spool entry is damaged" });
    };
    if entry.boot != boot {
        return Ok(Found::Vanished { entry: Some(entry), reason: "the node was restarted" });
    }
    let sockets = [spool::socket_path(&dir), seat_socket(&spool.seats_dir(), &entry.seat)];
    let alive = sockets.into_iter().find(|socket| spool::connect_socket(socket).is_ok());
    match alive {
        Some(socket) => Ok(Found::Alive { entry, socket }),
        // It may have ended between the two looks.
        None => match spool::read_result(&dir) {
            Ok(report) => Ok(Found::Ended { entry: Some(entry), report }),
            Err(_) => Ok(Found::Vanished { entry: Some(entry), reason: "its supervisor was killed" }),
        },
    }
}

/// Takes away a directory whose supervisor has not written its entry yet. That one finds its path gone and starts
/// nothing; if it was faster after all, the directory goes back. Says whether it is gone.
fn set_aside(spool: &Spool, dir: &Path) -> io::Result<bool> {
    let aside = spool.jobs_dir().join(format!(".aside-{}", std::process::id()));
    fs::rename(dir, &aside)?;
    let was_faster = aside.join("entry").exists();
    if was_faster {
        fs::rename(&aside, dir)?;
    } else {
        fs::remove_dir_all(&aside)?;
    }
    Ok(!was_faster)
}

/// A report for a job of which nothing is known but that it was started, until its supervisor speaks.
pub fn unknown(job: JobId, run: Run) -> JobReport {
    JobReport { job, run, status: JobStatus::Starting }
}

/// What the node's logic needs to know of it.
pub fn known(report: JobReport, order: Option<&Order>) -> agent::Found {
    let joined = order.map_or(1, Order::joined);
    let told = order.map_or(Told { generation: 1, wall: Span::ZERO }, |order| Told {
        generation: order.generation,
        wall: order.wall,
    });
    agent::Found { report, joined, told }
}

/// Removes the sockets of supervisors that have ended. One that is alive and has no job ends by this.
pub fn clear_seats(seats_dir: &Path) {
    let Ok(entries) = fs::read_dir(seats_dir) else { return };
    for entry in entries.filter_map(Result::ok) {
        if spool::connect_socket(&entry.path()).is_err() {
            let _gone_already = fs::remove_file(entry.path());
        }
    }
}
