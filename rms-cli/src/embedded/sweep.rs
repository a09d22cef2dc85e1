//! Finds every process of an embedded cluster, its jobs included, whatever has happened to its agents.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use super::process::{ProcessRecord, parent};

/// The variable that marks the server, the agents and their supervisors. The processes of jobs have their own
/// environments; they are found as descendants of supervisors, which are sub-reapers and so keep all of them.
pub const MARK: &str = "LIMBER_UP_DIR";

/// Returns the processes of the cluster in `root`: the marked ones and all their descendants, descendants first.
pub fn find(root: &Path) -> Vec<ProcessRecord> {
    let pids = pids();
    let parents: BTreeMap<i32, i32> = pids.iter().filter_map(|pid| Some((*pid, parent(*pid)?))).collect();
    let marked: BTreeSet<i32> = pids.iter().copied().filter(|pid| is_marked(*pid, root)).collect();
    let us = std::process::id() as i32;
    let belongs = |pid: i32| {
        let mut at = pid;
        // A chain of parents is at most as long as the number of processes.
        for _ in 0..pids.len() {
            if marked.contains(&at) {
                return true;
            }
            match parents.get(&at) {
                Some(parent) if *parent > 1 => at = *parent,
                Some(_) | None => return false,
            }
        }
        false
    };
    let (mut unmarked, with_mark): (Vec<i32>, Vec<i32>) =
        pids.iter().copied().filter(|pid| *pid != us && belongs(*pid)).partition(|pid| !marked.contains(pid));
    unmarked.extend(with_mark);
    unmarked.into_iter().filter_map(|pid| ProcessRecord::of(pid).ok()).collect()
}

/// Kills all processes, repeatedly until none is left; returns how many there were.
pub async fn kill_all(root: &Path) -> usize {
    let mut killed = BTreeSet::new();
    for _ in 0..MAX_ROUNDS {
        let handles: Vec<_> = find(root).into_iter().filter_map(|record| Some((record.pid, record.open()?))).collect();
        if handles.is_empty() {
            break;
        }
        for (pid, handle) in &handles {
            handle.signal(Signal::KILL);
            killed.insert(*pid);
        }
        for (_, handle) in handles {
            // A process that hangs in the kernel is found again in the next round.
            let _ = handle.ended(Duration::from_secs(2)).await;
        }
    }
    killed.len()
}

/// The maximum number of rounds. A job that forks faster than it is killed loses after a few, as its supervisor is
/// killed with it.
const MAX_ROUNDS: usize = 20;

fn pids() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

fn is_marked(pid: i32, root: &Path) -> bool {
    // An unreadable process belongs to another user, or has ended.
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|variable| {
        let value = variable.strip_prefix(MARK.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
        value.is_some_and(|value| Path::new(OsStr::from_bytes(value)) == root)
    })
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[tokio::test]
    async fn descendants_of_marked_processes_are_found_whatever_their_environment() {
        let root = tempfile::tempdir().expect("a directory");
        let script = "env -i sleep 1000 & wait";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .env(MARK, root.path())
            .stdin(Stdio::null())
            .spawn()
            .expect("sh starts");
        let mut bystander = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().expect("sleep starts");
        // The shell needs a moment to start its child.
        while find(root.path()).len() < 2 {
            tokio::task::yield_now().await;
        }
        let n_killed = kill_all(root.path()).await;
        assert!(n_killed >= 2, "{n_killed}");
        assert!(find(root.path()).iter().all(|record| record.open().is_none()));
        assert!(ProcessRecord::of(bystander.id() as i32).expect("it runs").open().is_some());
        child.wait().expect("it is our child");
        bystander.kill().expect("it is our child");
        bystander.wait().expect("it is our child");
    }
}
