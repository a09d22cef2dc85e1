//! Finds and signals every process below a supervisor, which is the sub-reaper of all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use nix::unistd::Pid;

/// Returns all descendants of a process, parents before children.
///
/// A process that is forked during the walk may be missed; to end all of them, repeat until none is left. No process
/// escapes: orphans become children of the sub-reaper, where the walk starts.
pub fn descendants(root: Pid) -> Vec<Pid> {
    descendants_that(root, |_| true)
}

/// Returns the descendants that are not dead. `dead` are those that were before; dead ones are added. A program may
/// leave thousands of them unreaped.
pub fn living(root: Pid, dead: &mut BTreeSet<Pid>) -> Vec<Pid> {
    // The children of a dead process are the sub-reaper's.
    descendants_that(root, |pid| is_alive(pid, dead))
}

/// Returns whether a process is not dead, with the same `dead`.
pub fn is_alive(pid: Pid, dead: &mut BTreeSet<Pid>) -> bool {
    let is_alive = !dead.contains(&pid) && !is_dead(pid);
    if !is_alive {
        dead.insert(pid);
    }
    is_alive
}

fn descendants_that(root: Pid, mut is_meant: impl FnMut(Pid) -> bool) -> Vec<Pid> {
    let mut found = Vec::new();
    let mut parents = vec![root];
    let mut by_parent: Option<BTreeMap<i32, Vec<Pid>>> = None;
    while let Some(parent) = parents.pop() {
        let mut children = match listed_children(parent) {
            Some(children) => children,
            // The kernel has no lists of children: look at every process instead.
            None => by_parent.get_or_insert_with(all_by_parent).get(&parent.as_raw()).cloned().unwrap_or_default(),
        };
        children.retain(|child| is_meant(*child));
        found.extend(&children);
        parents.extend(&children);
    }
    found
}

/// Sends signals to every descendant that lives, one after the other to each.
pub fn signal_descendants(root: Pid, signals: &[i32]) {
    signal_others(root, signals, &BTreeSet::new());
}

/// Sends signals to every descendant that lives, except to these.
pub fn signal_others(root: Pid, signals: &[i32], except: &BTreeSet<Pid>) {
    for pid in living(root, &mut BTreeSet::new()).into_iter().filter(|pid| !except.contains(pid)) {
        for signal in signals {
            let _gone_already = crate::sys::kill(pid.as_raw(), *signal);
        }
    }
}

/// Stops all descendants, so that none forks any more, until no new ones are found or the walks are used up.
pub fn stop_descendants(root: Pid) {
    let mut dead = BTreeSet::new();
    let mut n_before = 0;
    for _ in 0..MOST_WALKS {
        let found = living(root, &mut dead);
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

/// Returns whether a process has ended, or is a zombie that has not been reaped.
pub fn is_dead(pid: Pid) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let is_over = matches!(fields.next(), Some("Z" | "X"));
    // The main thread may have ended before others.
    is_over && fields.nth(N_THREADS - 1).and_then(|count| count.parse().ok()).is_none_or(|count: u32| count <= 1)
}

/// Returns whether the process is the daemon that an `mpirun` has on a node: of Open MPI, PRRTE, or the MPICH family.
pub fn is_mpi_daemon(pid: Pid) -> bool {
    // The kernel keeps 15 bytes of the name.
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    ["orted", "prted", "hydra_pmi_proxy"].contains(&name.trim_end())
}

/// Returns whether the process is a supervisor that was stopped by a signal, as a job of the same user can do.
pub fn is_stopped_supervisor(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.split_once(' ').is_some_and(|(_, rest)| rest.starts_with("(rms-supervisor) T"))
}

/// The position of the number of threads after that of the state.
const N_THREADS: usize = 17;

/// Returns the children of a process; `None` if the kernel has no such lists. A process that has ended has no children.
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

/// Returns every visible process on the machine.
pub fn all() -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let names = entries.filter_map(Result::ok).filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).map(Pid::from_raw).collect()
}

/// Returns all threads of a process; empty if it has ended.
pub fn threads(process: Pid) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    let names = entries.filter_map(Result::ok).filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).map(Pid::from_raw).collect()
}

/// Returns the parent of a live process.
pub fn parent_of(pid: Pid) -> Option<Pid> {
    stat(pid, 1)
}

/// Returns a process and its ancestors, except the first process of the system. Deeper ones are left out: a user who made
/// a chain of thousands would keep whoever walks along it busy.
pub fn ancestry(pid: Option<Pid>) -> impl Iterator<Item = Pid> {
    let is_below_init = |pid: &Pid| pid.as_raw() > 1;
    std::iter::successors(pid.filter(is_below_init), move |pid| parent_of(*pid).filter(is_below_init)).take(MAX_DEPTH)
}

const MAX_DEPTH: usize = 256;

/// Returns the session of a live process.
pub fn session_of(pid: Pid) -> Option<Pid> {
    stat(pid, 3)
}

/// Returns the n-th of the process ids that the kernel lists after a process's name.
fn stat(pid: Pid, nth: usize) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may itself contain brackets and spaces.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(nth)?.parse().ok().map(Pid::from_raw)
}

/// Returns whether a process was executed with this value of a variable.
pub fn carries(pid: Pid, name: &str, value: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let is_wanted = |variable: &[u8]| {
        variable.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"=")) == Some(value.as_bytes())
    };
    environment.split(|byte| *byte == 0).any(is_wanted)
}

/// Returns the processes that carry a mark in their initial environment, and all their descendants. This finds what a
/// killed supervisor has left behind if there is no cgroup.
pub fn marked(mark: &str) -> Vec<Pid> {
    let mut found: Vec<Pid> = all().into_iter().filter(|pid| carries(*pid, "RMS_MARK", mark)).collect();
    let below: Vec<Pid> = found.iter().flat_map(|pid| descendants(*pid)).collect();
    found.extend(below);
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::process::{Command, Stdio};

    #[test]
    fn a_child_that_nobody_waits_for_is_dead_and_not_looked_at_again() {
        let mut child = Command::new("sh").args(["-c", "true"]).spawn().expect("sh");
        let pid = Pid::from_raw(child.id() as i32);
        while !is_dead(pid) {
            std::thread::yield_now();
        }
        let mut dead = BTreeSet::new();
        assert!(descendants(Pid::this()).contains(&pid) && !living(Pid::this(), &mut dead).contains(&pid));
        assert!(dead.contains(&pid) && !is_dead(Pid::this()));
        child.wait().expect("our child");
    }

    #[test]
    fn a_process_lives_whose_main_thread_has_ended() {
        let ends = "import ctypes, threading, time\n\
                    threading.Thread(target=time.sleep, args=(60,)).start()\n\
                    ctypes.CDLL(None).pthread_exit(None)\n";
        let Ok(mut child) = Command::new("python3").args(["-c", ends]).stderr(Stdio::null()).spawn() else {
            return eprintln!("SKIPPED: python3 is not installed");
        };
        let pid = Pid::from_raw(child.id() as i32);
        let state = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        while !state().contains(") Z ") {
            std::thread::yield_now();
        }
        let (found_dead, stat) = (is_dead(pid), state());
        child.kill().expect("our child");
        child.wait().expect("our child");
        assert!(!found_dead, "{stat}");
    }

    #[test]
    fn a_process_carries_the_variables_with_which_it_was_executed() {
        let mut cat = Command::new("cat");
        cat.env("STEP", "1").env_remove("STE").env_remove("TEP").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = cat.spawn().expect("cat");
        let pid = Pid::from_raw(child.id() as i32);
        // Once it answers, it has been executed.
        child.stdin.as_mut().expect("piped").write_all(b"\n").expect("it reads");
        child.stdout.as_mut().expect("piped").read_exact(&mut [0]).expect("it writes");
        let carried = ["STEP", "STE", "TEP"].map(|name| ["1", "", "11"].map(|value| carries(pid, name, value)));
        child.kill().expect("our child");
        child.wait().expect("our child");
        assert_eq!(carried, [[true, false, false], [false; 3], [false; 3]]);
    }

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
        signal_descendants(shell, &[9]);
        child.wait().expect("the shell ends with its children");
    }

    #[test]
    fn a_walk_along_a_long_chain_of_processes_ends() {
        let chain = "f() { if [ $1 -gt 0 ]; then (f $(($1 - 1))); true; else echo; read -r _; fi; }; f 300";
        let mut shell = Command::new("sh")
            .args(["-c", chain])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut line = String::new();
        let mut told = BufReader::new(shell.stdout.take().expect("piped"));
        told.read_line(&mut line).expect("it is there");
        let of_shell = Pid::from_raw(shell.id() as i32);
        let below = descendants(of_shell);
        assert!(below.len() >= 300, "{}", below.len());
        let deepest = below.last().copied();
        assert_eq!(ancestry(deepest).count(), MAX_DEPTH);
        drop(shell.stdin.take());
        assert!(shell.wait().expect("it is our child").success());
    }
}
