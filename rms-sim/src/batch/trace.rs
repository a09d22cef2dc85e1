//! The jobs of a trace as a workload.

use rms_api::call::{Nodes, Shape, Submission};
use rms_model::{Allocation, Identity, Role, Span, Time, Work};

use super::Workload;
use crate::workload::swf::TraceJob;

/// Jobs as [`Trace::clean`](crate::workload::swf::Trace::clean) returns them: each wants its nodes for its wall time,
/// or cores of as many nodes.
#[derive(Debug)]
pub struct TraceJobs {
    jobs: Vec<TraceJob>,
    allocation: Allocation,
}

impl TraceJobs {
    /// Creates a workload; `jobs` are in the order of their submits.
    pub fn new(jobs: Vec<TraceJob>) -> TraceJobs {
        TraceJobs { jobs, allocation: Allocation::Nodes }
    }

    /// Makes each job request its processors as tasks of one CPU, equally many on each of as few nodes as have room for
    /// them.
    #[must_use]
    pub fn allocated_by(self, allocation: Allocation) -> TraceJobs {
        TraceJobs { allocation, ..self }
    }

    /// Returns the jobs as given.
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
        let mut submission = submission(vec![shape]);
        if self.allocation == Allocation::Cores {
            submission.n_tasks = Some(job.n_procs.div_ceil(job.n_nodes.max(1)).saturating_mul(job.n_nodes));
            submission.cpus_per_task = 1;
        }
        (who, submission)
    }

    fn run(&self, job_idx: usize) -> Span {
        self.jobs[job_idx].run
    }
}

/// Returns the submission of a job of these sizes, whose program does not matter.
pub fn submission(shapes: Vec<Shape>) -> Submission {
    Submission::of(Work::Tasks { argv: vec!["job".to_owned()] }, shapes)
}
