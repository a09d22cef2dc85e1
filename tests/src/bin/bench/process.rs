//! What processes have used, from /proc: CPU time with and without their children, resident memory.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// A process at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    /// The command's name, at most 15 bytes.
    pub name: String,
    /// Ticks of its own, and of the children it has waited for.
    own_ticks: u64,
    children_ticks: u64,
}

impl Process {
    pub fn cpu(&self) -> Duration {
        ticks(self.own_ticks)
    }

    pub fn cpu_with_children(&self) -> Duration {
        ticks(self.own_ticks + self.children_ticks)
    }
}

/// All processes now; those that end while we look are left out.
fn all() -> BTreeMap<i32, Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return BTreeMap::new();
    };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| Some((pid, read(pid)?))).collect()
}

pub fn read(pid: i32) -> Option<Process> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Every process below `roots`, and the roots.
pub fn trees(roots: &[i32]) -> Vec<Process> {
    let processes = all();
    let mut members: Vec<i32> = roots.to_vec();
    let mut next = 0;
    while next < members.len() {
        let parent = members[next];
        members.extend(processes.values().filter(|process| process.parent == parent).map(|process| process.pid));
        next += 1;
    }
    members.iter().filter_map(|pid| processes.get(pid).cloned()).collect()
}

/// Processes whose command line has `part` in it.
pub fn with_argument(part: &str) -> Vec<Process> {
    let command = |pid: i32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    all().into_values().filter(|process| command(process.pid).contains(part)).collect()
}

/// Resident memory in MiB; pages shared with other processes count in each.
pub fn resident_mib(pid: i32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024.0)
}

/// CPU time that all programs of this machine have used since it was started.
pub fn busy() -> Result<Duration> {
    let stat = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    busy_of(&stat).map(ticks).context("/proc/stat has no line of all CPUs")
}

/// User time, at low priority as well, and system time.
fn busy_of(stat: &str) -> Option<u64> {
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    all.split_whitespace().take(3).map(|field| field.parse::<u64>().ok()).sum()
}

fn parse(stat: &str) -> Option<Process> {
    // The name stands in parentheses and may contain any byte, parentheses as well.
    let (head, tail) = stat.rsplit_once(')')?;
    let (pid, name) = head.split_once('(')?;
    let fields: Vec<&str> = tail.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(Process {
        pid: pid.trim().parse().ok()?,
        parent: fields.get(1)?.parse().ok()?,
        name: name.to_owned(),
        own_ticks: field(14)? + field(15)?,
        children_ticks: field(16)? + field(17)?,
    })
}

/// Linux counts in hundredths of a second for every program, whatever its kernel ticks at.
fn ticks(n_ticks: u64) -> Duration {
    Duration::from_millis(n_ticks * 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "42 (a) b (c) S 7 42 42 0 -1 0 1 2 3 4 10 20 30 40 20 0 1 0 5 6 7";
        let process = parse(stat).unwrap();
        assert_eq!((process.pid, process.parent, process.name.as_str()), (42, 7, "a) b (c"));
        assert_eq!(process.cpu(), Duration::from_millis(300));
        assert_eq!(process.cpu_with_children(), Duration::from_millis(1000));
    }

    #[test]
    fn a_busy_machine_is_told_from_an_idle_one() {
        assert_eq!(busy_of("cpu  10 20 30 4000 50 0 0 0 0 0\ncpu0 5 10 15 2000 25 0 0 0 0 0\n"), Some(60));
        assert_eq!(busy_of("cpu0 5 10 15 2000 25\n"), None);
        assert!(busy().expect("this is Linux") > Duration::ZERO);
    }

    #[test]
    fn this_process_is_in_its_own_tree() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(trees(&[own]).iter().any(|process| process.pid == own));
        assert!(resident_mib(own).is_some_and(|mib| mib > 0.5));
    }
}
