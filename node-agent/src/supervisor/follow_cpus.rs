//! The supervisor's part of processes that follow the CPUs of their job: it opens the way to them, and tells the agent.

use std::time::Instant;

use super::Supervisor;
use super::complaint::complain;
use super::job::Job;
use super::malleable::Malleable;
use super::start::Unstarted;

impl Supervisor {
    /// Before any process of the job is started.
    ///
    /// # Errors
    /// The library is not installed here, or the socket cannot be made.
    pub(super) fn open_malleable(&mut self, job: &mut Job) -> Result<(), Unstarted> {
        if !job.order.launch.execution.malleable_threads {
            return Ok(());
        }
        if job.order.malleable_library.is_none() {
            let reason = format!(
                "--malleable-threads needs {} on this node, beside node-agent or in ../lib",
                rms_malleable::LIBRARY
            );
            return Err(Unstarted { reason, is_fault: false });
        }
        let owner = &job.order.launch.owner.0;
        let account =
            self.known.resolve(owner).map_err(|error| Unstarted { reason: error.to_string(), is_fault: false })?;
        let opened = Malleable::open(self.folder.dir(), account.uid, job.cpus.held().clone());
        let reason = |error| format!("cannot make the socket for processes that follow their CPUs: {error}");
        job.cpus.malleable = Some(opened.map_err(|error| Unstarted { reason: reason(error), is_fault: true })?);
        Ok(())
    }

    pub(super) fn malleable_ready(&mut self, caller: Option<u64>) {
        let cgroup = &self.seat.cgroup;
        let Some(job) = &mut self.job else { return };
        let before = job.cpus.in_force();
        let outcome = job.cpus.hear(caller, job.order.shrink_patience(), cgroup);
        if let Some(complaint) = outcome.complaint {
            complain(job, &complaint);
        }
        job.cpus.go_on(Instant::now(), cgroup);
        let is_news = job.cpus.in_force() != before;
        self.tell_in_force(is_news);
    }

    /// Whoever has not given its CPUs back in time loses them.
    pub(super) fn cpus_on_time(&mut self, now: Instant) {
        let Some(job) = &mut self.job else { return };
        let before = job.cpus.in_force();
        job.cpus.go_on(now, &self.seat.cgroup);
        let is_news = job.cpus.in_force() != before;
        self.tell_in_force(is_news);
    }

    fn tell_in_force(&mut self, is_news: bool) {
        let report = self.job.as_mut().filter(|_| is_news).map(Job::tell);
        report.into_iter().for_each(|report| self.tell(&crate::order::FromSupervisor::Job(report)));
    }
}
