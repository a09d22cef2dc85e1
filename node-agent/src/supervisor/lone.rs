//! Notices programs of Open MPI whose ranks do not find each other, each being rank 0 of 1: it speaks PMIx, we speak PMI-1.

use std::fs;
use std::time::{Duration, Instant};

use nix::unistd::Pid;
use rms_model::Work;

use super::job::Job;
use super::mpi::Desk;
use super::order::Order;
use super::{complaint, tree};

/// Looks at the processes of a job's first node, ever more seldom.
#[derive(Debug)]
pub struct Lone {
    next: Instant,
    interval: Duration,
    until: Instant,
}

/// Most jobs that end sooner are none of MPI: Open MPI alone takes longer to begin.
const FIRST: Duration = Duration::from_millis(20);
/// A program that has loaded Open MPI may be over soon after it has begun.
const NEAR: Duration = Duration::from_millis(5);
/// What has not begun to be a program of MPI by then is interactive, or none.
const LAST: Duration = Duration::from_secs(60);

const MOST_TASKS: usize = 4;
const MOST_PROCESSES: usize = 64;

impl Lone {
    pub fn begin() -> Lone {
        let now = Instant::now();
        Lone { next: now + FIRST, interval: FIRST, until: now + LAST }
    }

    /// Nothing to look for, if no task could miss another one, or on other nodes.
    pub fn of_job(order: &Order) -> Option<Lone> {
        let has_tasks = matches!(order.work, Work::Tasks { .. });
        (has_tasks && order.n_tasks > 1 && order.host_idx == 0).then(Lone::begin)
    }

    /// When there is something to look for.
    pub fn wakes_at(&self) -> Instant {
        self.next
    }
}

/// Looks at tasks that run, if that is due: a process whose rank is alone. There is nothing more to look for then, nor
/// once a rank has spoken or all tasks have ended.
pub fn find(lone: &mut Option<Lone>, now: Instant, has_spoken: bool, tasks: impl Iterator<Item = Pid>) -> Option<Pid> {
    let due = lone.as_mut().filter(|due| due.next <= now)?;
    if has_spoken || due.until <= now {
        *lone = None;
        return None;
    }
    // Ranks are alike, so a few are enough.
    let processes = tasks.take(MOST_TASKS).flat_map(|task| std::iter::once(task).chain(tree::descendants(task)));
    let seen = processes.take(MOST_PROCESSES).map(|pid| (look(pid), pid)).max_by_key(|(seen, _)| *seen);
    due.interval = if matches!(seen, Some((Seen::Loaded, _))) { NEAR } else { due.interval * 2 };
    due.next = now + due.interval;
    match seen {
        Some((Seen::Nothing | Seen::Loaded, _)) => None,
        Some((Seen::Alone, pid)) => {
            *lone = None;
            Some(pid)
        }
        None => {
            *lone = None;
            None
        }
    }
}

/// Looks at a job's own tasks, and tells its owner what was seen.
pub fn on_time(job: &mut Job, now: Instant) {
    let has_spoken = job.desk.as_ref().is_some_and(Desk::is_used);
    let tasks = job.tasks.iter().filter(|task| task.end.is_none()).map(|task| task.pid);
    if let Some(pid) = find(&mut job.lone, now, has_spoken, tasks) {
        let (n_tasks, n_hosts) = (job.order.n_tasks, job.order.hosts.len());
        let advice = format!("rms submit -N {n_hosts} -n {n_tasks} --wrap 'mpirun {}'", program(pid));
        complaint::complain(job, &format!("{}: {advice}", said(n_tasks)));
    }
}

/// What is wrong with a program of so many tasks, up to what to type.
pub fn said(n_tasks: u32) -> String {
    format!(
        "the ranks of this program do not find each other: it uses Open MPI, so each of the {n_tasks} tasks is rank 0 of 1. \
         Start it by mpirun"
    )
}

/// What a process executes. Not what the job was started with: that may be a shell around it.
pub fn program(pid: Pid) -> String {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = words.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    words.join(" ").trim_end().chars().filter(|c| !c.is_control()).take(100).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    Nothing,
    /// It may call MPI, and may not.
    Loaded,
    /// It has begun to, without anybody who started its ranks together.
    Alone,
}

fn look(pid: Pid) -> Seen {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let has_begun = has_begun(&maps);
    if has_begun != Seen::Alone {
        return has_begun;
    }
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let has = |name: &[u8]| environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(name));
    if has(b"OMPI_COMM_WORLD_SIZE=") || has(b"PMIX_RANK=") { Seen::Nothing } else { Seen::Alone }
}

/// By the files that a process has mapped: the libraries, and then what MPI_Init loads to send messages.
fn has_begun(maps: &str) -> Seen {
    let files = || maps.lines().filter_map(|line| line.rsplit('/').next());
    let has = |part: &str| files().any(|file| file.starts_with(part));
    match has("libmpi.so.") && has("libopen-pal.so.") {
        // Open MPI 5 has all in these libraries.
        true if has("mca_pml_") || has("libopen-pal.so.80") => Seen::Alone,
        true => Seen::Loaded,
        false => Seen::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_mpi_is_told_from_its_launcher_and_from_others() {
        let check = |files: &[&str], expected: Seen| {
            let line = |file: &&str| format!("7f0000000000-7f0000001000 r-xp 00000000 08:01 42   /usr/lib/{file}\n");
            assert_eq!(has_begun(&files.iter().map(line).collect::<String>()), expected, "{files:?}");
        };
        check(&["libmpi.so.40.30.4", "libopen-pal.so.40.30.2", "openmpi/mca_pml_ob1.so"], Seen::Alone);
        check(&["libmpi.so.40.40.7", "libopen-pal.so.80.0.5"], Seen::Alone);
        check(&["libmpi.so.40.30.4", "libopen-pal.so.40.30.2"], Seen::Loaded);
        check(&["libopen-rte.so.40", "libopen-pal.so.40.30.2", "openmpi/mca_plm_rsh.so"], Seen::Nothing);
        check(&["libmpi.so.12.5.2", "libfabric.so.1"], Seen::Nothing);
        check(&["libmpich.so.12"], Seen::Nothing);
        check(&["libc.so.6"], Seen::Nothing);
    }
}
