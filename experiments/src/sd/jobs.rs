//! The jobs of a trace as a workload in which some of the jobs share their cores.

use rms_api::call::{Nodes, Shape, Submission};
use rms_model::{Identity, Role, Span, Time};
use rms_sim::Dice;
use rms_sim::batch::{Workload, submission};
use rms_sim::workload::swf::TraceJob;

/// The jobs. Each asks for whole nodes, as in 004.
#[derive(Debug)]
pub struct SharedJobs<'a> {
    jobs: &'a [TraceJob],
    shares: Vec<bool>,
}

impl<'a> SharedJobs<'a> {
    /// Creates the workload; `jobs` are in the order of their submits. The same seed makes the same jobs malleable, and
    /// those of a smaller percentage are among those of a larger one.
    pub fn new(jobs: &'a [TraceJob], malleable_pct: u32, seed: u64) -> SharedJobs<'a> {
        let mut dice = Dice::new(seed, DRAWS);
        let shares = jobs.iter().map(|_| dice.number(1, 100) <= malleable_pct).collect();
        SharedJobs { jobs, shares }
    }

    /// Returns whether this job may lend and borrow.
    pub fn shares(&self, job_idx: usize) -> bool {
        self.shares[job_idx]
    }
}

impl Workload for SharedJobs<'_> {
    fn n_jobs(&self) -> usize {
        self.jobs.len()
    }

    fn submit(&self, job_idx: usize) -> Time {
        self.jobs[job_idx].submit
    }

    fn submission(&self, job_idx: usize) -> (Identity, Submission) {
        let job = &self.jobs[job_idx];
        let who = Identity { role: Role::User, name: format!("u{}", job.user) };
        let mut submission = submission(vec![Shape { nodes: Nodes::Count(job.n_nodes), wall: Some(job.wall) }]);
        submission.resources.share = self.shares[job_idx];
        (who, submission)
    }

    fn run(&self, job_idx: usize) -> Span {
        self.jobs[job_idx].run
    }
}

/// The random stream.
const DRAWS: u64 = 41;
