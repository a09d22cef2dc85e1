//! The jobs of a trace as a workload.

use rms_api::call::{Nodes, Shape, Submission};
use rms_model::{Identity, Role, Span, Time, Work};

use super::Workload;
use crate::workload::swf::TraceJob;

/// Jobs as [`Trace::clean`](crate::workload::swf::Trace::clean) gives them: each wants its nodes for its wall time.
#[derive(Debug)]
pub struct TraceJobs {
    jobs: Vec<TraceJob>,
}

impl TraceJobs {
    /// `jobs` are in the order of their submits.
    pub fn new(jobs: Vec<TraceJob>) -> TraceJobs {
        TraceJobs { jobs }
    }

    /// The jobs as they were given.
    pub fn jobs(&self) -> &[TraceJob] {
        &self.jobs
    }
}

impl Workload for TraceJobs {
    fn n_jobs(&self) -> usize {
        self.jobs.len()
    }

    fn submit(&self, job_idx: usize) -> Time {
        self.jobs[job_idx].submit
    }

    fn submission(&self, job_idx: usize) -> (Identity, Submission) {
        let job = &self.jobs[job_idx];
        let who = Identity { role: Role::User, name: format!("u{}", job.user) };
        let shape = Shape { nodes: Nodes::Count(job.n_nodes), wall: Some(job.wall) };
        (who, submission(vec![shape]))
    }

    fn run(&self, job_idx: usize) -> Span {
        self.jobs[job_idx].run
    }
}

/// A job of these sizes, whose program does not matter.
pub fn submission(shapes: Vec<Shape>) -> Submission {
    Submission::of(Work::Tasks { argv: vec!["job".to_owned()] }, shapes)
}
