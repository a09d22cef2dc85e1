//! Finds and signals every process below a supervisor, which is the sub-reaper of all of them.

use std::collections::BTreeMap;
use std::fs;

use nix::unistd::Pid;

/// All descendants of a process, parents before children.
///
/// A process that is forked while we look may be missed; whoever wants all of them gone repeats until none
/// is left. Nobody escapes: orphans become children of the sub-reaper, which is where the walk starts.
pub fn descendants(root: Pid) -> Vec<Pid> {
    let mut found = Vec::new();
    let mut parents = vec![root];
    let mut by_parent: Option<BTreeMap<i32, Vec<Pid>>> = None;
    while let Some(parent) = parents.pop() {
        let children = match listed_children(parent) {
            Some(children) => children,
            // A kernel without the lists of children: one look at every process instead.
            None => by_parent.get_or_insert_with(all_by_parent).get(&parent.as_raw()).cloned().unwrap_or_default(),
        };
        found.extend(&children);
        parents.extend(&children);
    }
    found
}

/// Sends a signal to every descendant.
pub fn signal_descendants(root: Pid, signal: i32) {
    for pid in descendants(root) {
        let _gone_already = crate::sys::kill(pid.as_raw(), signal);
    }
}

/// Stops them all, so that none forks any more, until no new ones are found or it has taken long enough.
pub fn stop_descendants(root: Pid) {
    let mut n_before = 0;
    for _ in 0..MOST_WALKS {
        let found = descendants(root);
        if found.len() == n_before {
            return;
        }
        n_before = found.len();
        for pid in found {
            let _gone_already = crate::sys::kill(pid.as_raw(), nix::libc::SIGSTOP);
        }
    }
}

const MOST_WALKS: u32 = 32;

/// Is it gone, or a zombie that somebody keeps?
pub fn is_dead(pid: Pid) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
    matches!(state, Some("Z" | "X"))
}

/// `None` if the kernel keeps no such lists; a process that is gone has no children.
fn listed_children(parent: Pid) -> Option<Vec<Pid>> {
    let tasks = format!("/proc/{parent}/task");
    let Ok(entries) = fs::read_dir(&tasks) else { return Some(Vec::new()) };
    let mut children = Vec::new();
    for entry in entries.filter_map(Result::ok) {
        let path = entry.path().join("children");
        match fs::read_to_string(&path) {
            Ok(text) => children.extend(text.split_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw)),
            Err(_) if entry.path().exists() => return None,
            Err(_thread_gone) => {}
        }
    }
    Some(children)
}

fn all_by_parent() -> BTreeMap<i32, Vec<Pid>> {
    let mut by_parent: BTreeMap<i32, Vec<Pid>> = BTreeMap::new();
    for pid in all() {
        if let Some(parent) = parent_of(pid) {
            by_parent.entry(parent.as_raw()).or_default().push(pid);
        }
    }
    by_parent
}

/// Every process on the machine that we may see.
pub fn all() -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let names = entries.filter_map(Result::ok).filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).map(Pid::from_raw).collect()
}

/// All threads of a process; none if it is gone.
pub fn threads(process: Pid) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    let names = entries.filter_map(Result::ok).filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).map(Pid::from_raw).collect()
}

/// The parent of a process that lives.
pub fn parent_of(pid: Pid) -> Option<Pid> {
    stat(pid, 1)
}

/// The session of a process that lives.
pub fn session_of(pid: Pid) -> Option<Pid> {
    stat(pid, 3)
}

/// A process id of those that the kernel lists after a process's name.
fn stat(pid: Pid, nth: usize) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may itself hold brackets and spaces.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(nth)?.parse().ok().map(Pid::from_raw)
}

/// Processes that carry a mark in the environment they were started with, and all below them. This finds what
/// a killed supervisor has left behind where there is no cgroup.
pub fn marked(mark: &str) -> Vec<Pid> {
    let wanted = format!("RMS_MARK={mark}");
    let carries = |pid: &Pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    let mut found: Vec<Pid> = all().into_iter().filter(carries).collect();
    let below: Vec<Pid> = found.iter().flat_map(|pid| descendants(*pid)).collect();
    found.extend(below);
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn children_and_their_children_are_found() {
        let mut child = Command::new("sh").args(["-c", "sleep 60 & sleep 60 & wait"]).spawn().expect("sh");
        let shell = Pid::from_raw(child.id() as i32);
        let mut below = descendants(shell);
        while below.len() < 2 {
            std::thread::yield_now();
            below = descendants(shell);
        }
        assert_eq!(below.iter().map(|pid| parent_of(*pid)).collect::<Vec<_>>(), [Some(shell), Some(shell)]);
        assert_eq!(all_by_parent().get(&shell.as_raw()).map(Vec::len), Some(2));
        signal_descendants(shell, 9);
        child.wait().expect("the shell ends with its children");
    }
}
