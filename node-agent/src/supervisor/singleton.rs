//! Detects programs of Open MPI whose ranks do not find each other, each being rank 0 of 1: Open MPI uses PMIx, and the
//! agent PMI-1.

use std::fs;
use std::time::{Duration, Instant};

use nix::unistd::Pid;
use rms_model::Work;

use super::job::Job;
use super::mpi::PmiServer;
use super::{job_errors, tree};
use crate::order::Order;
use crate::sys::{self, End, Memory, Reaped, SingleThreaded};

/// Checks the processes of a job's first node, at growing intervals.
#[derive(Debug)]
pub struct SingletonCheck {
    next: Instant,
    interval: Duration,
    until: Instant,
    /// The process that runs the check. Reading /proc of a process may block, indefinitely if a file system hangs,
    /// which the supervisor must not.
    checker: Option<Pid>,
}

/// Most jobs that end sooner do not use MPI: Open MPI alone takes longer to start.
const FIRST_CHECK: Duration = Duration::from_millis(20);
/// A program that has loaded Open MPI may end soon after MPI_Init.
const LOADED_INTERVAL: Duration = Duration::from_millis(5);
/// A program that has not called MPI_Init by then is interactive, or does not use MPI.
const CHECK_FOR: Duration = Duration::from_secs(60);

const MOST_TASKS: usize = 4;
const MOST_PROCESSES: usize = 64;

impl SingletonCheck {
    pub fn begin() -> SingletonCheck {
        let now = Instant::now();
        SingletonCheck { next: now + FIRST_CHECK, interval: FIRST_CHECK, until: now + CHECK_FOR, checker: None }
    }

    /// Returns `None` for jobs of one task, and on nodes other than the first.
    pub fn of_job(order: &Order) -> Option<SingletonCheck> {
        let has_tasks = matches!(order.launch.execution.work, Work::Tasks { .. });
        (has_tasks && order.launch.n_tasks > 1 && order.node_idx == 0).then(SingletonCheck::begin)
    }

    /// Returns when the next check is due.
    pub fn wakes_at(&self) -> Option<Instant> {
        self.checker.is_none().then_some(self.next)
    }
}

/// Starts a check of the running tasks, if one is due. Checks end once a rank has used PMI or all tasks have ended.
pub fn check_if_due(
    singleton: &mut Option<SingletonCheck>,
    now: Instant,
    has_used_pmi: bool,
    tasks: impl Iterator<Item = Pid>,
    single: &SingleThreaded,
) {
    let Some(check) = singleton.as_mut().filter(|check| check.wakes_at().is_some_and(|at| at <= now)) else { return };
    // Ranks are alike, so a few are enough.
    let tasks: Vec<Pid> = tasks.take(MOST_TASKS).collect();
    let checker = match has_used_pmi || check.until <= now || tasks.is_empty() {
        true => None,
        false => single.fork_to_execute(Memory::Copied, || check_tasks(&tasks)).ok(),
    };
    match checker {
        Some(pid) => check.checker = Some(pid),
        None => *singleton = None,
    }
}

/// Handles the end of a process; returns true if it was the checker and it found a singleton.
pub fn found_singleton(singleton: &mut Option<SingletonCheck>, reaped: &Reaped) -> bool {
    let Some(check) = singleton.as_mut().filter(|check| check.checker == Some(reaped.pid)) else { return false };
    check.checker = None;
    let is_over = match reaped.end {
        End::Exited(code) if code == MpiState::NotMpi as i32 => {
            check.interval *= 2;
            false
        }
        End::Exited(code) if code == MpiState::Loaded as i32 => {
            check.interval = LOADED_INTERVAL;
            false
        }
        End::Exited(_) | End::Signaled(_) => true,
    };
    check.next = Instant::now() + check.interval;
    if is_over {
        *singleton = None;
    }
    reaped.end == End::Exited(MpiState::Singleton as i32)
}

/// Runs in a process of its own, which exits with the result.
fn check_tasks(tasks: &[Pid]) -> u8 {
    sys::close_all();
    let processes = tasks.iter().flat_map(|task| std::iter::once(*task).chain(tree::descendants(*task)));
    processes.take(MOST_PROCESSES).map(inspect).max().map_or(0, |seen| seen as u8)
}

/// Checks a job's own tasks, if that is due.
pub fn on_time(job: &mut Job, now: Instant, single: &SingleThreaded) {
    let has_used_pmi = job.pmi.as_ref().is_some_and(PmiServer::is_used);
    let tasks = job.tasks.iter().filter(|task| task.end.is_none()).map(|task| task.pid);
    check_if_due(&mut job.singleton, now, has_used_pmi, tasks, single);
}

/// Warns the job's owner.
pub fn warn_owner(job: &Job) {
    let (n_tasks, n_nodes) = (job.order.launch.n_tasks, job.order.launch.nodes.len());
    let Work::Tasks { argv } = &job.order.launch.execution.work else { return };
    let advice = format!("rms submit -N {n_nodes} -n {n_tasks} --wrap 'mpirun {}'", command(argv));
    job_errors::write_error(job, &format!("{}: {advice}", diagnosis(n_tasks)));
}

/// Returns the diagnosis for a program of `n_tasks` tasks, without the command to type.
pub fn diagnosis(n_tasks: u32) -> String {
    format!(
        "the ranks of this program do not find each other: it uses Open MPI, so each of the {n_tasks} tasks is rank 0 of 1. \
         Start it by mpirun"
    )
}

/// Returns the command as a user would type it.
pub fn command(argv: &[String]) -> String {
    argv.join(" ").chars().filter(|c| !c.is_control()).take(100).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum MpiState {
    NotMpi = 0,
    /// The process has loaded Open MPI, and has not called MPI_Init.
    Loaded = 1,
    /// The process has called MPI_Init as a singleton, without mpirun.
    Singleton = 2,
}

fn inspect(pid: Pid) -> MpiState {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let mpi_state = mpi_state(&maps);
    if mpi_state != MpiState::Singleton {
        return mpi_state;
    }
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let has = |name: &[u8]| environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(name));
    if has(b"OMPI_COMM_WORLD_SIZE=") || has(b"PMIX_RANK=") { MpiState::NotMpi } else { MpiState::Singleton }
}

/// Determines the state from the files that a process has mapped: the libraries, and then what MPI_Init loads to send
/// messages.
fn mpi_state(maps: &str) -> MpiState {
    let files = || maps.lines().filter_map(|line| line.rsplit('/').next());
    let has = |part: &str| files().any(|file| file.starts_with(part));
    match has("libmpi.so.") && has("libopen-pal.so.") {
        // Open MPI 5 has everything in these libraries.
        true if has("mca_pml_") || has("libopen-pal.so.80") => MpiState::Singleton,
        true => MpiState::Loaded,
        false => MpiState::NotMpi,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_mpi_is_told_from_its_launcher_and_from_others() {
        let check = |files: &[&str], expected: MpiState| {
            let line = |file: &&str| format!("7f0000000000-7f0000001000 r-xp 00000000 08:01 42   /usr/lib/{file}\n");
            assert_eq!(mpi_state(&files.iter().map(line).collect::<String>()), expected, "{files:?}");
        };
        check(&["libmpi.so.40.30.4", "libopen-pal.so.40.30.2", "openmpi/mca_pml_ob1.so"], MpiState::Singleton);
        check(&["libmpi.so.40.40.7", "libopen-pal.so.80.0.5"], MpiState::Singleton);
        check(&["libmpi.so.40.30.4", "libopen-pal.so.40.30.2"], MpiState::Loaded);
        check(&["libopen-rte.so.40", "libopen-pal.so.40.30.2", "openmpi/mca_plm_rsh.so"], MpiState::NotMpi);
        check(&["libmpi.so.12.5.2", "libfabric.so.1"], MpiState::NotMpi);
        check(&["libmpich.so.12"], MpiState::NotMpi);
        check(&["libc.so.6"], MpiState::NotMpi);
    }
}
