//! Notices programs of Open MPI whose ranks do not find each other, each being rank 0 of 1: it speaks PMIx, we speak PMI-1.

use std::fs;
use std::time::{Duration, Instant};

use nix::unistd::Pid;
use rms_model::Work;

use super::job::Job;
use super::mpi::PmiServer;
use super::{complaint, tree};
use crate::order::Order;
use crate::sys::{self, End, Memory, Reaped, SingleThreaded};

/// Has the processes of a job's first node looked at, ever more seldom.
#[derive(Debug)]
pub struct Lone {
    next: Instant,
    interval: Duration,
    until: Instant,
    /// The process that looks. Whoever looks at a process may have to wait for it, for ever if a file system does not
    /// answer: the supervisor must not.
    looker: Option<Pid>,
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
        Lone { next: now + FIRST, interval: FIRST, until: now + LAST, looker: None }
    }

    /// Nothing to look for, if no task could miss another one, or on other nodes.
    pub fn of_job(order: &Order) -> Option<Lone> {
        let has_tasks = matches!(order.launch.execution.work, Work::Tasks { .. });
        (has_tasks && order.launch.n_tasks > 1 && order.node_idx == 0).then(Lone::begin)
    }

    /// When there is something to look for.
    pub fn wakes_at(&self) -> Option<Instant> {
        self.looker.is_none().then_some(self.next)
    }
}

/// Begins to look at tasks that run, if that is due. There is nothing more to look for once a rank has spoken or all tasks
/// have ended.
pub fn look_if_due(
    lone: &mut Option<Lone>,
    now: Instant,
    has_spoken: bool,
    tasks: impl Iterator<Item = Pid>,
    single: &SingleThreaded,
) {
    let Some(due) = lone.as_mut().filter(|due| due.wakes_at().is_some_and(|at| at <= now)) else { return };
    // Ranks are alike, so a few are enough.
    let tasks: Vec<Pid> = tasks.take(MOST_TASKS).collect();
    let looker = match has_spoken || due.until <= now || tasks.is_empty() {
        true => None,
        false => single.fork_to_execute(Memory::Copied, || look_at(&tasks)).ok(),
    };
    match looker {
        Some(pid) => due.looker = Some(pid),
        None => *lone = None,
    }
}

/// A process has ended: if it was the one that looked, whether it saw a rank that is alone.
pub fn has_seen_one(lone: &mut Option<Lone>, reaped: &Reaped) -> bool {
    let Some(due) = lone.as_mut().filter(|due| due.looker == Some(reaped.pid)) else { return false };
    due.looker = None;
    let is_over = match reaped.end {
        End::Exited(code) if code == Seen::Nothing as i32 => {
            due.interval *= 2;
            false
        }
        End::Exited(code) if code == Seen::Loaded as i32 => {
            due.interval = NEAR;
            false
        }
        End::Exited(_) | End::Signaled(_) => true,
    };
    due.next = Instant::now() + due.interval;
    if is_over {
        *lone = None;
    }
    reaped.end == End::Exited(Seen::Alone as i32)
}

/// In a process of its own, which ends with the answer.
fn look_at(tasks: &[Pid]) -> u8 {
    sys::close_all();
    let processes = tasks.iter().flat_map(|task| std::iter::once(*task).chain(tree::descendants(*task)));
    processes.take(MOST_PROCESSES).map(look).max().map_or(0, |seen| seen as u8)
}

/// Has a job's own tasks looked at.
pub fn on_time(job: &mut Job, now: Instant, single: &SingleThreaded) {
    let has_spoken = job.pmi.as_ref().is_some_and(PmiServer::is_used);
    let tasks = job.tasks.iter().filter(|task| task.end.is_none()).map(|task| task.pid);
    look_if_due(&mut job.lone, now, has_spoken, tasks, single);
}

/// Tells a job's owner what was seen.
pub fn tell(job: &Job) {
    let (n_tasks, n_nodes) = (job.order.launch.n_tasks, job.order.launch.nodes.len());
    let Work::Tasks { argv } = &job.order.launch.execution.work else { return };
    let advice = format!("rms submit -N {n_nodes} -n {n_tasks} --wrap 'mpirun {}'", command(argv));
    complaint::complain(job, &format!("{}: {advice}", said(n_tasks)));
}

/// What is wrong with a program of so many tasks, up to what to type.
pub fn said(n_tasks: u32) -> String {
    format!(
        "the ranks of this program do not find each other: it uses Open MPI, so each of the {n_tasks} tasks is rank 0 of 1. \
         Start it by mpirun"
    )
}

/// What was to be started, as somebody would type it.
pub fn command(argv: &[String]) -> String {
    argv.join(" ").chars().filter(|c| !c.is_control()).take(100).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    Nothing = 0,
    /// It may call MPI, and may not.
    Loaded = 1,
    /// It has begun to, without anybody who started its ranks together.
    Alone = 2,
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
