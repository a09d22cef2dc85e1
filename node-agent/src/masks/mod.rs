//! Tells the server on which CPUs the processes of jobs may run, and sets the mask of one, outside the agent's task.

mod client;
mod set;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::unistd::Pid;
use rms_api::masks::{MaskOrder, MaskedJob, ProcessMask, SeenMasks, ThreadMask};
use rms_malleable::{Answer, Flags, Request, Status};
use rms_model::{Grant, Indices};
use rms_wire::{Channel, MasksAsked, MasksSeen};
use tokio::sync::Semaphore;

use crate::setup::Setup;
use crate::share::{Share, Shares};
use crate::slow_teams;
use crate::spool;
use crate::supervisor::tree;
use crate::topology::cpulist::CpuSet;
use crate::topology::{cpus_of, own_cpus};
use client::SupervisorClient;

/// The context of inspections; clones share it.
#[derive(Clone, Debug)]
pub struct Masks {
    shares: Shares,
    setup: Arc<Setup>,
    permits: Arc<Semaphore>,
}

/// The most inspections at a time: reading a file of a process that hangs in the kernel may hang, too.
const MAX_INSPECTIONS: usize = 4;
/// How long to wait for a permit: the server does not wait much longer for the whole answer.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The most threads of a process whose masks are read; further ones are skipped.
const MOST_THREADS: usize = 4096;
/// The most different masks of the threads of a process that are listed.
const MOST_MASKS: usize = 64;

impl Masks {
    pub fn new(shares: Shares, setup: Arc<Setup>) -> Masks {
        Masks { shares, setup, permits: Arc::new(Semaphore::new(MAX_INSPECTIONS)) }
    }

    /// Answers a request, if that is possible in time: the server has a time-out of its own.
    pub async fn serve(self, asked: MasksAsked, mut channel: Channel) {
        let waited = tokio::time::timeout(TIMEOUT, Arc::clone(&self.permits).acquire_owned()).await;
        let Ok(Ok(permit)) = waited else {
            return tracing::warn!("too many requests for the CPUs of processes at a time");
        };
        let looked = tokio::task::spawn_blocking(move || {
            let seen = self.inspect(&asked);
            drop(permit);
            seen
        });
        if let Ok(seen) = looked.await
            && let Err(error) = channel.send(&seen).await
        {
            tracing::debug!(%error, "cannot send the CPUs of processes");
        }
        channel.finish();
    }

    fn inspect(&self, asked: &MasksAsked) -> MasksSeen {
        let mut left = asked.most as usize;
        let mut seen = MasksSeen::default();
        for job in &asked.jobs {
            let share = self.shares.get(job.job, job.run).filter(|share| !share.has_ended());
            let Some((share, supervisor)) = share.and_then(|share| Some((share.clone(), share.supervisor()?))) else {
                continue;
            };
            let inspection = Inspection {
                share: &share,
                setup: &self.setup,
                processes: tree::living(Pid::from_raw(supervisor), &mut BTreeSet::new()),
            };
            if let Some(order) = &asked.order
                && let Err(refused) = inspection.set(order)
            {
                return MasksSeen { refused: Some(refused), ..MasksSeen::default() };
            }
            seen.jobs.push((job.job, job.run, inspection.seen(job, asked.order.as_ref(), &mut left)));
        }
        if seen.jobs.is_empty() && asked.order.is_some() {
            seen.refused = Some(set::unknown_job(&self.setup.name));
        }
        seen
    }
}

/// The inspection of one job.
struct Inspection<'a> {
    share: &'a Share,
    setup: &'a Setup,
    /// Those that live, parents before children.
    processes: Vec<Pid>,
}

impl Inspection<'_> {
    fn seen(&self, job: &MaskedJob, order: Option<&MaskOrder>, left: &mut usize) -> SeenMasks {
        let joined = self.joined();
        let listed = &self.processes[..self.processes.len().min(*left)];
        *left -= listed.len();
        let target = order.and_then(|order| self.target(order).ok());
        let processes: Vec<ProcessMask> = listed
            .iter()
            .filter_map(|pid| self.process(*pid, joined.get(&pid.as_raw()), target == Some(*pid)))
            .collect();
        let mut actual = Indices::default();
        processes.iter().for_each(|process| actual.insert_all(&process.cpus));
        let intended = self.intended(job).into_iter().collect();
        SeenMasks { intended, actual, processes, n_processes: self.processes.len() as u32 }
    }

    /// Returns the CPUs that the server intends for the job, by the kernel's numbers.
    fn intended(&self, job: &MaskedJob) -> CpuSet {
        let order = self.share.order();
        let place = order.place().map(|place| rms_api::desired::LaunchNode {
            cpus: job.n_cpus,
            grant: job.cores.clone().map(|cores| Grant { cores, ..Grant::default() }),
            ..place.clone()
        });
        let of_cores = place.and_then(|place| self.setup.cores.of(&place, job.one_thread_a_core));
        of_cores.unwrap_or_else(|| self.of_node())
    }

    fn of_node(&self) -> CpuSet {
        self.setup.mask.clone().or_else(own_cpus).unwrap_or_default()
    }

    /// Returns the processes that follow the CPUs of the job, with the CPUs that they were told.
    fn joined(&self) -> BTreeMap<i32, Answer> {
        let Some(client) = self.client() else { return BTreeMap::new() };
        let pids = client.ask(&Request::List).map(|answer| answer.pids).unwrap_or_default();
        let told = |pid: i32| {
            let answer = client.ask(&Request::Get { pid, flags: Flags::default() }).ok()?;
            (answer.status == Status::Done).then_some((pid, answer))
        };
        // If the supervisor fails to answer once, it is not asked about the other processes.
        pids.into_iter().map_while(told).collect()
    }

    /// Returns a client of the supervisor; `None` if no process of the job follows its CPUs.
    fn client(&self) -> Option<SupervisorClient> {
        SupervisorClient::to(&spool::malleable_socket_path(self.share.entry_dir())).ok()
    }

    /// Returns the mask of a process; `None` if it has ended.
    fn process(&self, pid: Pid, told: Option<&Answer>, is_target: bool) -> Option<ProcessMask> {
        let path = Path::new("/proc").join(pid.to_string());
        let program = fs::read_to_string(path.join("comm")).ok()?.trim_end().to_owned();
        let threads = tree::threads(pid);
        let masks = threads.iter().take(MOST_THREADS).filter_map(|thread| cpus_of(*thread).ok());
        let mut by_mask: BTreeMap<CpuSet, u32> = BTreeMap::new();
        masks.for_each(|mask| *by_mask.entry(mask).or_default() += 1);
        let cpus: CpuSet = by_mask.keys().flatten().copied().collect();
        let variables = Variables::of(&path);
        // The generation of the job's CPUs with which the process started.
        let began: Option<u32> = variables.number("RMS_GENERATION");
        let has_changed = is_target || began.is_some_and(|began| began < self.share.order().launch.generation);
        let is_slow_team = has_changed && slow_teams::slow_team(&path, threads.len(), cpus.len()).is_some();
        (!cpus.is_empty()).then(|| ProcessMask {
            pid: pid.as_raw(),
            task: variables.task(),
            program,
            n_threads: threads.len() as u32,
            cpus: cpus.iter().copied().collect(),
            of_threads: of_threads(by_mask),
            told: told.map(|answer| answer.cpus.iter().copied().collect()),
            is_behind: told.is_some_and(|answer| !answer.is_acknowledged),
            is_slow_team,
        })
    }
}

/// Returns which threads may run where, if not all may run on the same CPUs.
fn of_threads(by_mask: BTreeMap<CpuSet, u32>) -> Vec<ThreadMask> {
    if by_mask.len() < 2 {
        return Vec::new();
    }
    let mask = |(cpus, n_threads): (CpuSet, u32)| ThreadMask { n_threads, cpus: cpus.into_iter().collect() };
    let mut masks: Vec<ThreadMask> = by_mask.into_iter().map(mask).collect();
    masks.sort_by_key(|mask| std::cmp::Reverse(mask.n_threads));
    masks.truncate(MOST_MASKS);
    masks
}

/// The environment with which a process was executed.
struct Variables(Vec<u8>);

impl Variables {
    fn of(process: &Path) -> Variables {
        Variables(fs::read(process.join("environ")).unwrap_or_default())
    }

    fn number(&self, name: &str) -> Option<u32> {
        let value = self.0.split(|byte| *byte == 0).find_map(|variable| {
            let rest = variable.strip_prefix(name.as_bytes())?;
            rest.strip_prefix(b"=")
        });
        std::str::from_utf8(value?).ok()?.parse().ok()
    }

    /// Returns the task of the job; tasks of a step have numbers of their own.
    fn task(&self) -> Option<u32> {
        if self.number("RMS_STEP_ID").is_some() { None } else { self.number("RMS_TASK_ID") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_of_a_task_of_the_job_unless_it_is_of_a_step() {
        let check = |environ: &[u8], expected| {
            assert_eq!(Variables(environ.to_vec()).task(), expected, "{}", String::from_utf8_lossy(environ));
        };
        check(b"A=1\0RMS_TASK_ID=12\0B=\0", Some(12));
        check(b"RMS_TASK_ID=12\0RMS_STEP_ID=0\0", None);
        check(b"XRMS_TASK_ID=12\0RMS_TASK_IDS=3\0RMS_TASK_ID=x\0", None);
        check(b"", None);
    }

    #[test]
    fn threads_are_told_apart_where_they_differ() {
        let masks = |threads: &[(&[u32], u32)]| {
            of_threads(threads.iter().map(|(cpus, n_threads)| (cpus.iter().copied().collect(), *n_threads)).collect())
        };
        assert_eq!(masks(&[(&[0, 1], 8)]), []);
        let of = |n_threads, cpus: &str| ThreadMask { n_threads, cpus: cpus.parse().expect("a list") };
        assert_eq!(masks(&[(&[0], 1), (&[0, 1, 2, 3], 7)]), [of(7, "0-3"), of(1, "0")]);
    }
}
