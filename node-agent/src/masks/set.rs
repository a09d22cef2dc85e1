//! Sets the mask of one process: through its supervisor if the process follows the CPUs of its job, else through the
//! kernel.

use std::fmt::Display;
use std::io::ErrorKind;

use nix::errno::Errno;
use nix::unistd::Pid;
use rms_api::Refused;
use rms_api::masks::{MaskOrder, ProcessOf};
use rms_malleable::{Flags, Request, Status};
use rms_model::Indices;

use super::{Inspection, Variables};
use crate::supervisor::tree;
use crate::topology::cpulist::{CpuSet, print};
use crate::topology::{own_cpus, set_cpus_of};

impl Inspection<'_> {
    /// # Errors
    /// There is no such process, the CPUs are not the job's, or they are set aside for other processes.
    pub(super) fn set(&self, order: &MaskOrder) -> Result<(), Refused> {
        let pid = self.target(order)?;
        let own = self.own();
        let cpus: CpuSet = if order.cpus.is_empty() { own.clone() } else { order.cpus.iter().collect() };
        self.check(&cpus, &own)?;
        match self.joined().contains_key(&pid.as_raw()) {
            true => self.set_aside(pid, &order.cpus),
            false => self.set_threads(pid, &cpus),
        }
    }

    /// Returns the process that the order names.
    pub(super) fn target(&self, order: &MaskOrder) -> Result<Pid, Refused> {
        let is_of = |pid: &Pid, task| Variables::of(format!("/proc/{pid}").as_ref()).task() == Some(task);
        let found = self.processes.iter().copied().find(|pid| match order.process {
            ProcessOf::Pid(wanted) => pid.as_raw() == wanted,
            ProcessOf::Task(task) => is_of(pid, task),
        });
        found.filter(|pid| !tree::is_dead(*pid)).ok_or_else(|| match order.process {
            ProcessOf::Pid(pid) => self.no_process(pid),
            ProcessOf::Task(task) => self.no_process(format_args!("of task {task}")),
        })
    }

    fn no_process(&self, which: impl Display) -> Refused {
        let (job, node) = (self.share.job(), &self.setup.name);
        let message = format_args!(
            "job {job} has no process {which} on node {node} (it may have ended): 'rms masks {job}' lists those that it has"
        );
        Refused::new("no_such_process", message)
    }

    /// Returns the CPUs that the job's processes were last told to use.
    fn own(&self) -> CpuSet {
        self.share.order().mask.clone().or_else(own_cpus).unwrap_or_default()
    }

    fn check(&self, cpus: &CpuSet, own: &CpuSet) -> Result<(), Refused> {
        let (job, node, of_node) = (self.share.job(), &self.setup.name, self.of_node());
        let beyond: CpuSet = cpus.difference(&of_node).copied().collect();
        if !beyond.is_empty() {
            let (beyond, all, own) = (print(&beyond), print(&of_node), print(own));
            let message = format_args!(
                "node {node} has no CPUs {beyond} for jobs, but {all}: name some of those of job {job}, {own}"
            );
            return Err(Refused::new("no_such_cpus", message));
        }
        let others: CpuSet = cpus.difference(own).copied().collect();
        if others.is_empty() {
            return Ok(());
        }
        let (others, own) = (print(&others), print(own));
        let message = format_args!("CPUs {others} are not those of job {job} on node {node}: name some of {own}");
        Err(Refused::new("not_its_cpus", message))
    }

    /// Sets CPUs aside for the process, as DROM does. An empty set releases them.
    fn set_aside(&self, pid: Pid, cpus: &Indices) -> Result<(), Refused> {
        let pid = pid.as_raw();
        let flags = Flags { steals: false, returns: false, waits: true };
        let request = match cpus.is_empty() {
            true => Request::PostFinalize { pid, flags },
            false => Request::Set { pid, cpus: cpus.iter().collect(), flags },
        };
        let answered = match self.client().map(|client| client.ask(&request)) {
            Some(Ok(answer)) => answer.status,
            // The change is made, but the process has yet to follow: the answer shows it as behind.
            Some(Err(error)) if error.kind() == ErrorKind::WouldBlock => Status::Done,
            Some(Err(_)) | None => Status::Failed,
        };
        let job = self.share.job();
        match answered {
            Status::Done | Status::Timeout => Ok(()),
            // The process was to be reset, but has nothing set aside.
            Status::NoProcess if cpus.is_empty() => Ok(()),
            Status::NoProcess => Err(self.no_process(pid)),
            Status::Pending => {
                let message = format_args!("process {pid} of job {job} has yet to take up its last change: try again");
                Err(Refused::new("busy", message))
            }
            Status::NotAllowed => {
                let message = format_args!(
                    "CPUs {cpus} are set aside for other processes of job {job} ('rms masks {job}'): set theirs first"
                );
                Err(Refused::new("set_aside", message))
            }
            Status::Failed | Status::Already | Status::TooMany => {
                Err(Refused::new("failed", format_args!("the supervisor of job {job} did not answer: try again")))
            }
        }
    }

    fn set_threads(&self, pid: Pid, cpus: &CpuSet) -> Result<(), Refused> {
        move_threads(pid, cpus).map_err(|errno| match errno {
            Errno::ESRCH => self.no_process(pid),
            _other => Refused::new("failed", format_args!("cannot set the CPUs of process {pid}: {}", errno.desc())),
        })?;
        // This must not give the process CPUs that the job has lent meanwhile.
        let own = self.own();
        if cpus.is_subset(&own) {
            return Ok(());
        }
        let _as_far_as_possible = move_threads(pid, &own);
        let message =
            format_args!("the CPUs of job {} have just changed to {}: try again", self.share.job(), print(&own));
        Err(Refused::new("busy", message))
    }
}

/// Moves all threads of a process, repeatedly until no new thread has appeared.
fn move_threads(pid: Pid, cpus: &CpuSet) -> Result<(), Errno> {
    let mut n_moved = 0;
    for _ in 0..MOST_WALKS {
        let threads = tree::threads(pid);
        if threads.is_empty() {
            return Err(Errno::ESRCH);
        }
        for thread in &threads {
            match set_cpus_of(*thread, cpus) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(errno) => return Err(errno),
            }
        }
        if threads.len() == n_moved {
            return Ok(());
        }
        n_moved = threads.len();
    }
    Ok(())
}

/// The most rounds, for programs that keep creating threads: new threads inherit the mask of their creators.
const MOST_WALKS: u32 = 32;

/// Returns the refusal for a job without processes here.
pub(super) fn unknown_job(node: &str) -> Refused {
    Refused::new("no_such_process", format_args!("the job has no processes on node {node} now: try again once it has"))
}
