//! The jobs that a server has run, as a workload: what would other settings have made of them?

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rms_core::State;
use rms_core::event::{Nodes, Shape, Submission};
use rms_model::job::Constraint;
use rms_model::{Identity, JobId, JobRecord, JobSpec, Role, Span, Time};

use super::trace::submission;
use super::{Hosts, Workload};

/// Jobs in the order in which they could first have started. Each keeps the size it ran with, its owner, its priority
/// and what its hosts must have; it runs for as long as it did.
#[derive(Debug)]
pub struct JournalJobs {
    jobs: Vec<JournalJob>,
    /// Jobs that never ran: nobody knows for how long they would have.
    pub n_without_run: usize,
}

#[derive(Debug)]
struct JournalJob {
    eligible: Time,
    owner: String,
    hosts: BTreeMap<String, u32>,
    wall: Span,
    run: Span,
    n_tasks: u32,
    cpus_per_task: u32,
    priority: i32,
    constraint: Constraint,
}

impl JournalJobs {
    /// From the history of a server and what is left of the submissions themselves; names are looked up in `state`.
    pub fn new(records: &[JobRecord], specs: &BTreeMap<JobId, Arc<JobSpec>>, state: &State) -> JournalJobs {
        let mut jobs: Vec<JournalJob> =
            records.iter().filter_map(|record| job(record, specs.get(&record.job), state)).collect();
        let n_without_run = records.len() - jobs.len();
        jobs.sort_by_key(|job| job.eligible);
        JournalJobs { jobs, n_without_run }
    }

    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }
}

fn job(record: &JobRecord, spec: Option<&Arc<JobSpec>>, state: &State) -> Option<JournalJob> {
    let run = record.ended.since(record.started?);
    let name = |(cluster, hosts): (&rms_model::ClusterId, &u32)| Some((state.clusters().get(cluster)?.clone(), *hosts));
    let wall = record.request.wall;
    Some(JournalJob {
        eligible: record.eligible,
        owner: record.owner.0.clone(),
        hosts: record.request.hosts.iter().filter(|(_, hosts)| **hosts > 0).map(name).collect::<Option<_>>()?,
        wall,
        // What was ended at its limit took a grace period more, which is not the job's.
        run: run.min(wall).max(Span::from_millis(1)),
        n_tasks: record.n_tasks,
        cpus_per_task: record.cpus_per_task,
        priority: spec.map_or(0, |spec| spec.priority),
        constraint: spec.map(|spec| spec.constraint.clone()).unwrap_or_default(),
    })
}

impl Workload for JournalJobs {
    fn n_jobs(&self) -> usize {
        self.jobs.len()
    }

    fn submit(&self, job_idx: usize) -> Time {
        self.jobs[job_idx].eligible
    }

    fn submission(&self, job_idx: usize) -> (Identity, Submission) {
        let job = &self.jobs[job_idx];
        // What was accepted once is not judged again.
        let who = Identity { role: Role::Admin, name: job.owner.clone() };
        let shape = Shape { nodes: Nodes::PerCluster(job.hosts.clone()), wall: Some(job.wall) };
        let submission = Submission {
            n_tasks: Some(job.n_tasks.max(1)),
            cpus_per_task: job.cpus_per_task,
            constraint: job.constraint.clone(),
            priority: job.priority,
            ..submission(vec![shape])
        };
        (who, submission)
    }

    fn run(&self, job_idx: usize) -> Span {
        self.jobs[job_idx].run
    }
}

/// The nodes that a server knows, as they described themselves.
pub fn known_hosts(state: &State) -> Vec<Hosts> {
    let host = |node: &rms_core::node::Node| Hosts {
        cluster: state.clusters()[&node.cluster].clone(),
        names: vec![node.name.clone()],
        inventory: node.inventory.clone(),
    };
    // Clusters get their ids in the order in which their first nodes join.
    let clusters: BTreeSet<_> = state.clusters().keys().copied().collect();
    let of = |cluster| state.nodes().values().filter(move |node| node.cluster == cluster).map(host);
    clusters.into_iter().flat_map(of).collect()
}
