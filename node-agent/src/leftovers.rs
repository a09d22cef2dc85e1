//! Ends what a killed supervisor or a dead agent has left behind; these functions block until it is done.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use rms_api::desired::{JobReport, JobStatus};
use rms_core::node_loop::LostReason;
use rms_model::{JobId, Run, Usage};

use crate::cgroup::{Cgroup, Kind, Parent};
use crate::spool;
use crate::supervisor::{now, tree};

/// Kills until no process is left, with growing pauses for the kernel to remove them. Returns how many are left.
fn kill_until_gone(cgroup: &Cgroup, mark: Option<&str>) -> usize {
    // No process can leave a cgroup, and reading the environment of a process may block.
    let mark = mark.filter(|_| cgroup.kind() == Kind::None);
    let survivors = || {
        let mut pids = cgroup.processes();
        pids.extend(mark.map(tree::marked).unwrap_or_default());
        pids
    };
    let mut pause = Duration::from_millis(1);
    let mut n_left = 0;
    for _ in 0..14 {
        cgroup.kill_all();
        let pids = survivors();
        n_left = pids.len();
        if n_left == 0 {
            return 0;
        }
        for pid in pids {
            let _gone_already = kill(pid, Signal::SIGKILL);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_secs(1));
    }
    n_left
}

/// Ends everything of an execution whose supervisor has vanished, and writes the result that its end was not observed.
pub fn end_leftovers(entry_dir: &Path, job: JobId, run: Run, why: LostReason) -> JobReport {
    let mut n_left = 0;
    if let Ok(entry) = spool::read_entry(entry_dir)
        && (entry.order.job, entry.order.run) == (job, run)
    {
        n_left = kill_until_gone(&entry.cgroup, Some(&entry.order.mark));
        let _still_inside = entry.cgroup.remove();
    }
    let status = JobStatus::Ended { at: now(), exit: why.exit(n_left), usage: Usage::default() };
    let report = JobReport { job, run, status };
    let written = spool::write_result(entry_dir, &report).and_then(|()| spool::sync(&spool::result_path(entry_dir)));
    if let Err(error) = written {
        tracing::warn!(job = %report.job, %error, "cannot write the result of a vanished job");
    }
    report
}

/// Removes a cgroup left by its supervisor; kills processes that are still in it.
pub fn clear(cgroup: &Cgroup) {
    if cgroup.remove().is_ok() {
        return;
    }
    kill_until_gone(cgroup, None);
    if let Err(error) = cgroup.remove() {
        tracing::warn!(%error, ?cgroup, "a cgroup cannot be removed");
    }
}

/// Clears all cgroups except those of live seats.
pub fn clear_all(parent: &Parent, alive: &[String]) {
    for name in parent.names() {
        if !alive.contains(&name) {
            clear(&parent.at(&name));
        }
    }
}

/// Removes the cgroups that the end of an agent leaves empty; those of jobs are busy and stay. Idle supervisors exit
/// shortly after the connection closes: this waits for all of them if no job is running.
pub async fn clear_idle(parent: &Parent, has_jobs: bool) {
    let patience = if has_jobs { Duration::from_millis(100) } else { Duration::from_secs(3) };
    let mut pause = Duration::from_millis(1);
    let begun = Instant::now();
    loop {
        let names = parent.names();
        if names.is_empty() || begun.elapsed() > patience {
            break;
        }
        for name in names {
            let _busy = parent.at(&name).remove();
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(patience / 4);
    }
    parent.remove();
}
