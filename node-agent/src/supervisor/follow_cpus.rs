//! The supervisor's part in processes that follow the CPUs of their job: opens the socket for them, and reports to the
//! agent.

use std::time::Instant;

use super::Supervisor;
use super::cpus::most_cpus;
use super::job::Job;
use super::job_errors::write_error;
use super::malleable::Malleable;
use super::start::StartFailure;

impl Supervisor {
    /// Opens the socket before any process of the job is started.
    ///
    /// # Errors
    /// The library is not installed here, or the socket cannot be created.
    pub(super) fn open_malleable(&mut self, job: &mut Job) -> Result<(), StartFailure> {
        if !job.order.launch.execution.malleable_threads {
            return Ok(());
        }
        if job.order.malleable_library.is_none() {
            let reason = format!(
                "--malleable-threads needs {} on this node, beside node-agent or in ../lib",
                rms_malleable::LIBRARY
            );
            return Err(StartFailure { reason, is_fault: false });
        }
        let owner = &job.order.launch.owner.0;
        let account = self
            .accounts
            .resolve(owner)
            .map_err(|error| StartFailure { reason: error.to_string(), is_fault: false })?;
        let opened = Malleable::open(self.folder.dir(), account.uid, job.cpus.held().clone(), most_cpus(&job.order));
        let reason = |error| format!("cannot make the socket for processes that follow their CPUs: {error}");
        job.cpus.malleable = Some(opened.map_err(|error| StartFailure { reason: reason(error), is_fault: true })?);
        Ok(())
    }

    pub(super) fn malleable_ready(&mut self, client: Option<u64>) {
        let cgroup = &self.args.cgroup;
        let Some(job) = &mut self.job else { return };
        let before = job.cpus.applied();
        let outcome = job.cpus.receive(client, job.order.shrink_patience(), cgroup);
        if let Some(complaint) = outcome.warning {
            write_error(job, &complaint);
        }
        job.cpus.finish_change(Instant::now(), cgroup);
        let is_news = job.cpus.applied() != before;
        self.report_applied(is_news);
    }

    /// Ends a change whose deadline has passed: processes that have not given their CPUs back in time lose them. Looks for
    /// threads that were being created meanwhile.
    pub(super) fn cpus_on_time(&mut self, now: Instant) {
        let Some(job) = &mut self.job else { return };
        let before = job.cpus.applied();
        job.cpus.on_time(now, &self.args.cgroup);
        let is_news = job.cpus.applied() != before;
        self.report_applied(is_news);
    }

    fn report_applied(&mut self, is_news: bool) {
        let report = self.job.as_mut().filter(|_| is_news).map(Job::take_report);
        report.into_iter().for_each(|report| self.send(&crate::order::FromSupervisor::Job(report)));
    }
}
