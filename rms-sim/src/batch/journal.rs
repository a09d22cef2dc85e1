//! The jobs that a server has run, as a workload, to find out how other settings would have run them.

mod loans;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rms_api::call::{Nodes, Shape, Submission};
use rms_core::State;
use rms_core::state::node::Node;
use rms_core::state::part_of_cores;
use rms_model::job::{Constraint, TaskCount};
use rms_model::{
    Allocation, CpuLoans, Devices, Evolution, Identity, JobId, JobRecord, JobSpec, Outcome, ResourceRequest, Role, Run,
    RuntimeModel, Span, Time, Work,
};
use serde::Serialize;

use self::loans::Lenders;
use super::trace::submission;
use super::{ClusterNodes, Finished, Summary, Workload};

/// Jobs in the order in which they last became eligible. Each keeps the size it ran with, its owner, its priority,
/// its requirements for nodes and what it takes of them; it runs for as long as it did.
#[derive(Debug)]
pub struct JournalJobs {
    jobs: Vec<JournalJob>,
    pub census: Census,
}

/// The jobs of the past that a replay leaves out, and those that it can repeat only in part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Census {
    /// Cancelled before they started: their run times are unknown.
    pub cancelled_before_start: usize,
    /// The others that ended without having started.
    pub never_started: usize,
    /// Not yet in the history.
    pub still_waiting: usize,
    pub still_running: usize,
    /// They run again for as long as they did until they were cancelled.
    pub cancelled_while_running: usize,
    /// Negotiated, or evolving: they keep their average number of nodes.
    pub resized: usize,
    /// Their real wait is the time from their first request to their last start.
    pub restarted: usize,
    /// A snapshot of the journal has replaced their submissions: what they asked for beside nodes, tasks and CPUs is
    /// unknown.
    pub without_submission: usize,
    /// They lent CPUs or began on those of others.
    pub shared: usize,
}

#[derive(Debug)]
struct JournalJob {
    owner: String,
    nodes: BTreeMap<String, u32>,
    wall: Span,
    run: Span,
    n_tasks: u32,
    cpus_per_task: u32,
    priority: i32,
    constraint: Constraint,
    resources: ResourceRequest,
    /// Its real result.
    past: Finished,
}

impl JournalJobs {
    /// Reads the jobs from the history of a server and from what is left of the submissions; names are looked up in
    /// `state`.
    pub fn new(records: &[JobRecord], specs: &BTreeMap<JobId, Arc<JobSpec>>, state: &State) -> JournalJobs {
        let lenders = Lenders::new(records, state);
        let mut jobs: Vec<JournalJob> =
            records.iter().filter_map(|record| job(record, specs.get(&record.job), &lenders, state)).collect();
        jobs.sort_by_key(|job| job.past.submitted);
        JournalJobs { jobs, census: Census::new(records, specs, state) }
    }

    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Summarizes the real results of the jobs that `replayed` has run, on `n_nodes` nodes.
    pub fn past(&self, replayed: &Summary, n_nodes: u32) -> Summary {
        let past = |(job, again): (&JournalJob, &Option<Finished>)| again.map(|_| job.past);
        let finished = self.jobs.iter().zip(&replayed.finished).map(past).collect();
        Summary::new(finished, n_nodes, replayed.figures.refused, Span::ZERO)
    }
}

impl Census {
    fn new(records: &[JobRecord], specs: &BTreeMap<JobId, Arc<JobSpec>>, state: &State) -> Census {
        let mut census = Census::default();
        for record in records {
            let is_cancelled = matches!(record.outcome, Outcome::Cancelled { .. });
            match (record.started, is_cancelled) {
                (None, true) => census.cancelled_before_start += 1,
                (None, false) => census.never_started += 1,
                (Some(_), true) => census.cancelled_while_running += 1,
                (Some(_), false) => {}
            }
            if record.started.is_some() {
                census.resized += usize::from(record.evolution.as_ref().is_some_and(is_resized));
                census.restarted += usize::from(record.run > Run(1));
                census.shared += usize::from(record.loans.is_some_and(|loans| loans != CpuLoans::default()));
                census.without_submission += usize::from(!specs.contains_key(&record.job));
            }
        }
        // The job of a ghost is in the history.
        census.still_waiting = state.jobs().values().filter(|job| job.is_before_its_start()).count();
        census.still_running = state.jobs().values().filter(|job| job.started().is_some()).count();
        census
    }
}

fn job(record: &JobRecord, spec: Option<&Arc<JobSpec>>, lenders: &Lenders<'_>, state: &State) -> Option<JournalJob> {
    let started = record.started?;
    let past_run = record.ended.since(started);
    let held = record.evolution.as_ref().filter(|held| held.span() > Span::ZERO);
    let mut nodes: BTreeMap<String, u32> = BTreeMap::new();
    for (cluster, count) in record.request.nodes.iter().filter(|(_, count)| **count > 0) {
        nodes.insert(state.clusters().get(cluster)?.clone(), *count);
    }
    // For an application whose nodes change, only the most that it requested is recorded; how many nodes it had of
    // which of several clusters is not.
    let n_asked = nodes.values().sum::<u32>().max(1);
    if let (Some(held), 1) = (held, nodes.len()) {
        nodes.values_mut().for_each(|count| *count = mean_nodes(held));
    }
    let n_nodes: u32 = nodes.values().sum();
    let n_tasks = u64::from(record.n_tasks) * u64::from(n_nodes);
    let n_tasks = u32::try_from(n_tasks.div_ceil(n_asked.into())).unwrap_or(u32::MAX);
    let node_millis = match held {
        Some(held) => held.area(),
        None => i128::from(past_run.as_millis()) * i128::from(n_nodes),
    } as f64;
    let parts = parts(record, spec, n_asked, state);
    let mean = |of: &dyn Fn(&Part<'_>) -> f64| parts.iter().map(of).sum::<f64>() / parts.len().max(1) as f64;
    let share = if parts.is_empty() { 1.0 } else { mean(&|part| part.share) };
    let asked: Vec<(&str, f64)> = parts.iter().map(|part| (part.node, part.cores())).collect();
    let part_had = lenders.part_had(record, &asked, node_millis * mean(&|part| part.cores()));
    let part_used = used(record, node_millis * mean(&|part| part.cores_of_node.into()));
    let node_s = node_millis * part_used.unwrap_or(share * part_had) / 1000.0;
    // With all its CPUs it would have taken less time, in proportion to those that it had (004, eq. 5).
    let alone = Span::from_millis((past_run.as_millis() as f64 * part_had).round() as i64);
    // A job that was ended at its limit took another grace period, which is not the job's; others may have got more
    // time.
    let asked = record.request.wall;
    let is_overrun = record.outcome == Outcome::WallTime;
    let (wall, run) = if is_overrun { (asked, alone.min(asked)) } else { (asked.max(alone), alone) };
    Some(JournalJob {
        owner: record.owner.0.clone(),
        nodes,
        wall,
        run: run.max(Span::from_millis(1)),
        n_tasks,
        cpus_per_task: record.cpus_per_task,
        priority: spec.map_or(0, |spec| spec.priority),
        constraint: spec.map(|spec| spec.constraint.clone()).unwrap_or_default(),
        resources: spec.map(|spec| requested(spec, n_asked)).unwrap_or_default(),
        past: Finished {
            submitted: record.eligible,
            started,
            ended: record.ended,
            alone,
            n_nodes,
            node_s,
            n_changes: held.map_or(0, |held| held.stages().len() as u32 - 1),
            was_guest: record.loans.is_some_and(|loans| loans.borrowed > 0),
            was_mate: record.loans.is_some_and(|loans| loans.lent > 0),
        },
    })
}

/// Returns what the job asked for beside nodes, tasks and CPUs. Its number of nodes may be another one now, over which
/// devices in all could not be spread evenly: it has as many on each node as it had.
fn requested(spec: &JobSpec, n_nodes: u32) -> ResourceRequest {
    ResourceRequest {
        devices: spec.resources.devices_on_each(n_nodes),
        devices_in_all: Devices::default(),
        ..spec.resources.clone()
    }
}

/// Returns which part of `core_millis`, the time of all cores of its nodes, the job had. `None`: it is not known, or
/// its nodes changed, and those that it left may have had other numbers of cores.
fn used(record: &JobRecord, core_millis: f64) -> Option<f64> {
    let is_resized = record.evolution.as_ref().is_some_and(is_resized);
    let had =
        record.granted.as_ref().map(|granted| granted.core_time as f64).filter(|had| *had > 0.0 && !is_resized)?;
    (core_millis > 0.0).then(|| (had / core_millis).min(1.0))
}

fn is_resized(held: &Evolution) -> bool {
    held.stages().iter().any(|stage| stage.nodes != held.peak())
}

/// What a job asked for of one of its nodes.
struct Part<'a> {
    node: &'a str,
    /// The part of its cores: all of nodes that are not shared.
    share: f64,
    cores_of_node: u32,
}

impl Part<'_> {
    fn cores(&self) -> f64 {
        self.share * f64::from(self.cores_of_node)
    }
}

/// Returns what the job asked for of each of its nodes that is still known: by what it was granted, else, for an older
/// record, by the allocation that is set now.
fn parts<'a>(record: &'a JobRecord, spec: Option<&Arc<JobSpec>>, n_asked: u32, state: &State) -> Vec<Part<'a>> {
    let asked = JobSpec {
        tasks: TaskCount::PerNode(record.n_tasks.div_ceil(n_asked)),
        cpus_per_task: record.cpus_per_task,
        resources: spec.map(|spec| requested(spec, n_asked)).unwrap_or_default(),
        ..JobSpec::of(record.owner.clone(), Work::Nodes, Vec::new())
    };
    let known = record.nodes.iter().filter_map(|name| Some((name, state.nodes().get(&state.node_named(name)?)?)));
    let nodes: Vec<(&'a String, &Node)> = known.collect();
    // A guest was granted the cores that it borrowed, which are fewer than it asked for.
    let is_guest = record.loans.is_some_and(|loans| loans.borrowed > 0);
    let granted = share_granted(record, nodes.iter().map(|(_, node)| node.inventory.cores)).filter(|_| !is_guest);
    let part = |(name, node): (&'a String, &Node)| {
        let by_allocation = || match state.settings().allocation_of(&state.clusters()[&node.cluster]) {
            Allocation::Nodes => 1.0,
            Allocation::Cores => part_of_cores(&asked, &record.request, &node.inventory),
        };
        let share = granted.unwrap_or_else(by_allocation);
        Part { node: name, share, cores_of_node: node.inventory.cores }
    };
    nodes.into_iter().map(part).collect()
}

/// Returns which part of the cores of its nodes the job was granted; `None` if the record does not say. `cores` are
/// those of its nodes that are still known: the others are taken to have had as many on average.
fn share_granted(record: &JobRecord, cores: impl ExactSizeIterator<Item = u32>) -> Option<f64> {
    let granted = record.granted.as_ref()?;
    let n_nodes = record.nodes.len();
    if granted.whole_nodes as usize >= n_nodes {
        return Some(1.0);
    }
    let n_known = cores.len();
    let of_known = cores.map(f64::from).sum::<f64>();
    let of_all = of_known * n_nodes as f64 / n_known.max(1) as f64;
    (of_all > 0.0).then(|| (f64::from(granted.cores) / of_all).min(1.0))
}

/// Returns the mean, rounded to a whole number; at least one, even for an application that has paused for most of the
/// time.
fn mean_nodes(held: &Evolution) -> u32 {
    let millis = i128::from(held.span().as_millis());
    u32::try_from((held.area() + millis / 2) / millis).unwrap_or(u32::MAX).max(1)
}

impl Workload for JournalJobs {
    fn n_jobs(&self) -> usize {
        self.jobs.len()
    }

    fn submit(&self, job_idx: usize) -> Time {
        self.jobs[job_idx].past.submitted
    }

    fn submission(&self, job_idx: usize) -> (Identity, Submission) {
        let job = &self.jobs[job_idx];
        // A job that was accepted once is not checked again.
        let who = Identity { role: Role::Admin, name: job.owner.clone() };
        let shape = Shape { nodes: Nodes::PerCluster(job.nodes.clone()), wall: Some(job.wall) };
        let submission = Submission {
            n_tasks: Some(job.n_tasks.max(1)),
            cpus_per_task: job.cpus_per_task,
            constraint: job.constraint.clone(),
            resources: job.resources.clone(),
            priority: job.priority,
            ..submission(vec![shape])
        };
        (who, submission)
    }

    fn run(&self, job_idx: usize) -> Span {
        self.jobs[job_idx].run
    }

    /// The model by which its run time with all CPUs was computed.
    fn paced_by(&self) -> RuntimeModel {
        RuntimeModel::Ideal
    }
}

/// Returns the nodes that a server knows, as they described themselves.
pub fn known_nodes(state: &State) -> Vec<ClusterNodes> {
    let node = |node: &Node| ClusterNodes {
        cluster: state.clusters()[&node.cluster].clone(),
        names: vec![node.name.clone()],
        inventory: node.inventory.clone(),
    };
    // Clusters get their ids in the order in which their first nodes join.
    let clusters: BTreeSet<_> = state.clusters().keys().copied().collect();
    let of = |cluster| state.nodes().values().filter(move |node| node.cluster == cluster).map(node);
    clusters.into_iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use rms_model::evolution::Stage;
    use rms_model::{Granted, Inventory, Labels, Mebibytes, Owner, Policy, Request, Settings};

    use super::*;
    use crate::batch::{Batch, TraceJobs, uniform_nodes};

    fn secs(secs: i64) -> Time {
        Time::from_secs(secs)
    }

    /// Returns the record of a job of `n_nodes` nodes that was to start at 0; the times are its real start and end.
    fn record(state: &State, job: u64, n_nodes: u32, started: Option<i64>, ended: i64) -> JobRecord {
        let cluster = *state.clusters().keys().next().expect("there is one");
        JobRecord {
            labels: Labels::named(format!("j{job}")),
            started: started.map(secs),
            ended: secs(ended),
            n_tasks: n_nodes,
            ..JobRecord::of(
                JobId(job),
                Owner("ann".to_owned()),
                Request::on_one(cluster, n_nodes, Span::from_secs(100)),
                secs(0),
            )
        }
    }

    #[test]
    fn what_really_happened_stands_beside_a_replay_of_the_same_jobs() {
        let (settings, nodes, nobody) = (Settings::default(), [uniform_nodes(4, 1)], TraceJobs::new(Vec::new()));
        let empty = Batch::new(settings.clone(), &nodes, &nobody).expect("nodes join");
        let state = empty.state();
        let cancelled = || Outcome::Cancelled { by: "ann".to_owned() };
        let stage = |nodes, secs| Stage { nodes, span: Span::from_secs(secs) };
        let held = Evolution::new(vec![stage(4, 10), stage(1, 30)]).expect("it is one");
        let records = [
            record(state, 1, 4, Some(2), 12),
            JobRecord { outcome: cancelled(), ..record(state, 2, 4, None, 5) },
            JobRecord { outcome: cancelled(), ..record(state, 3, 1, Some(12), 20) },
            JobRecord { outcome: Outcome::LauncherLost, ..record(state, 4, 1, None, 6) },
            // It had 4 nodes for 10 s and one for 30 s: 1.75 on average.
            JobRecord { evolution: Some(held), ..record(state, 5, 4, Some(20), 60) },
            JobRecord { run: Run(2), ..record(state, 6, 1, Some(60), 70) },
            // It was given more time than it had requested.
            record(state, 7, 1, Some(70), 270),
            JobRecord { outcome: Outcome::WallTime, ..record(state, 8, 1, Some(70), 175) },
            record(state, 9, 400, Some(80), 90),
        ];
        let jobs = JournalJobs::new(&records, &BTreeMap::new(), state);
        let census = Census {
            cancelled_before_start: 1,
            never_started: 1,
            cancelled_while_running: 1,
            resized: 1,
            restarted: 1,
            without_submission: 7,
            ..Census::default()
        };
        assert_eq!(jobs.census, census);
        let replayed = Batch::new(settings, &nodes, &jobs).expect("nodes join").run(|_| {}).expect("all end");
        let again = |idx: usize| replayed.finished[idx].expect("it ran");
        assert_eq!((again(2).n_nodes, again(2).run()), (2, Span::from_secs(40)), "its mean");
        assert_eq!((again(4).run(), again(5).run()), (Span::from_secs(200), Span::from_secs(100)), "no grace period");
        assert_eq!(replayed.finished[6], None, "the cluster is smaller now");
        let past = jobs.past(&replayed, 4);
        assert_eq!(past.figures.jobs, replayed.figures.jobs, "means are over the same jobs");
        // Starts at 2, 12, 20, 60, 70 and 70, all for jobs that came at 0.
        assert_eq!(past.figures.mean_wait_s, (2 + 12 + 20 + 60 + 70 + 70) as f64 / 6.0);
        // Node-seconds: 40, 8, 70, 10, 200 and 105, of 4 nodes for 270 s.
        assert_eq!(past.figures.utilisation, 433.0 / (4.0 * 270.0));
        assert!(replayed.figures.mean_wait_s < past.figures.mean_wait_s, "nobody waits for what is not replayed");
    }

    /// A job of one task of a CPU has a quarter of a node, really and in the replay, if jobs share the node.
    #[test]
    fn both_columns_count_a_jobs_share_of_the_cores() {
        let used = |allocation, exclusive, is_known| {
            let (settings, nodes) = (Settings { allocation, ..Settings::default() }, [uniform_nodes(2, 4)]);
            let nobody = TraceJobs::new(Vec::new());
            let empty = Batch::new(settings.clone(), &nodes, &nobody).expect("nodes join");
            let state = empty.state();
            let ran = |job| JobRecord {
                nodes: vec!["n1".to_owned()],
                cpus_per_task: 1,
                eligible: secs(job as i64),
                ..record(state, job, 1, Some(job as i64), 100)
            };
            let records = [ran(0), ran(1)];
            let spec = |record: &JobRecord| {
                let mut spec = JobSpec::of(record.owner.clone(), Work::Nodes, vec![record.request.clone()]);
                (spec.cpus_per_task, spec.resources.exclusive) = (1, exclusive);
                (record.job, Arc::new(spec))
            };
            let specs = if is_known { records.iter().map(spec).collect() } else { BTreeMap::new() };
            let jobs = JournalJobs::new(&records, &specs, state);
            let replayed = Batch::new(settings, &nodes, &jobs).expect("nodes join").run(|_| {}).expect("all end");
            [jobs.past(&replayed, 2).figures.utilisation, replayed.figures.utilisation]
        };
        // Node-seconds of 100 s and 99 s, of two nodes for 100 s.
        let of_nodes = 199.0 / 200.0;
        for is_known in [false, true] {
            assert_eq!(used(Allocation::Cores, false, is_known), [of_nodes / 4.0; 2]);
            assert_eq!(used(Allocation::Nodes, false, is_known), [of_nodes; 2]);
        }
        assert_eq!(used(Allocation::Cores, true, true), [of_nodes; 2], "it has whole nodes alone");
    }

    /// Returns the real utilisation of two nodes of four cores on which a job with this grant had both for 100 s, where
    /// the allocation is now this one.
    fn used_of_two(allocation: Allocation, granted: Option<Granted>) -> f64 {
        let (settings, nodes) = (Settings { allocation, ..Settings::default() }, [uniform_nodes(2, 4)]);
        let nobody = TraceJobs::new(Vec::new());
        let empty = Batch::new(settings.clone(), &nodes, &nobody).expect("nodes join");
        let nodes_had = ["n1", "n2"].map(str::to_owned).to_vec();
        let ran = record(empty.state(), 0, 2, Some(0), 100);
        let records = [JobRecord { nodes: nodes_had, cpus_per_task: 1, granted, ..ran }];
        let jobs = JournalJobs::new(&records, &BTreeMap::new(), empty.state());
        let replayed = Batch::new(settings, &nodes, &jobs).expect("nodes join").run(|_| {}).expect("all end");
        jobs.past(&replayed, 2).figures.utilisation
    }

    #[test]
    fn what_a_job_had_does_not_depend_on_how_nodes_are_given_out_now() {
        let had = |cores, whole_nodes, core_time| Granted { cores, whole_nodes, core_time, ..Granted::default() };
        for allocation in [Allocation::Nodes, Allocation::Cores] {
            let used = |granted| used_of_two(allocation, Some(granted));
            assert_eq!(used(had(8, 2, 800_000)), 1.0, "whole nodes");
            assert_eq!(used(had(2, 0, 200_000)), 0.25, "a core of each");
            assert_eq!(used(had(2, 0, 500_000)), 0.625, "it gave back cores for its last half");
            assert_eq!(used(had(8, 2, 0)), 1.0, "whole nodes, and no core time");
            assert_eq!(used(had(2, 0, 0)), 0.25, "cores, and no core time");
        }
        assert_eq!(used_of_two(Allocation::Nodes, None), 1.0, "an older record");
        assert_eq!(used_of_two(Allocation::Cores, None), 0.25, "an older record");
    }

    /// Runs three jobs of 10 s again that really ran one after another, each with `resources`, on two nodes of 8 cores,
    /// and returns their starts.
    fn starts_again(set: &[(&str, &str)], resources: ResourceRequest, n_nodes: u32, inventory: Inventory) -> Vec<i64> {
        let mut settings = Settings { allocation: Allocation::Cores, ..Settings::default() };
        set.iter().for_each(|(key, value)| settings.set(key, value).expect("it is a setting"));
        let nodes = [ClusterNodes { inventory, ..uniform_nodes(2, 8) }];
        let nobody = TraceJobs::new(Vec::new());
        let empty = Batch::new(settings.clone(), &nodes, &nobody).expect("nodes join");
        let ran = |job: u64| {
            let begin = 10 * job as i64;
            JobRecord { cpus_per_task: 1, ..record(empty.state(), job, n_nodes, Some(begin), begin + 10) }
        };
        let records = [ran(0), ran(1), ran(2)];
        let spec = |record: &JobRecord| {
            let mut spec = JobSpec::of(record.owner.clone(), Work::Nodes, vec![record.request.clone()]);
            (spec.cpus_per_task, spec.resources) = (1, resources.clone());
            (record.job, Arc::new(spec))
        };
        let specs = records.iter().map(spec).collect();
        let jobs = JournalJobs::new(&records, &specs, empty.state());
        let replayed = Batch::new(settings, &nodes, &jobs).expect("nodes join").run(|_| {}).expect("all end");
        replayed.finished.iter().map(|job| job.map_or(-1, |job| job.started.as_secs())).collect()
    }

    #[test]
    fn jobs_run_again_with_the_devices_licences_and_memory_that_they_asked_for() {
        let of_nodes = Inventory {
            cores: 8,
            cpus: 8,
            memory: Mebibytes(1000),
            devices: "gpu:a100:1".parse().expect("devices"),
            ..Inventory::default()
        };
        let again = |set: &[(&str, &str)], n_nodes, resources| starts_again(set, resources, n_nodes, of_nodes.clone());
        let nothing = ResourceRequest::default;
        let count = |devices: &str| devices.parse::<Devices>().expect("devices");
        assert_eq!(again(&[], 2, nothing()), [0, 0, 0], "cores for all");
        let devices = count("gpu:1");
        assert_eq!(again(&[], 2, ResourceRequest { devices, ..nothing() }), [0, 10, 20], "a device of each node");
        let devices_in_all = count("gpu:2");
        assert_eq!(again(&[], 2, ResourceRequest { devices_in_all, ..nothing() }), [0, 10, 20], "two devices in all");
        let licences = count("matlab:2");
        let set = [("licences", "matlab:4")];
        assert_eq!(again(&set, 1, ResourceRequest { licences, ..nothing() }), [0, 0, 10], "two jobs at a time");
        let memory_per_cpu = Mebibytes(600);
        assert_eq!(again(&[], 2, ResourceRequest { memory_per_cpu, ..nothing() }), [0, 10, 20], "a job on each node");
        let devices = count("gpu:h100:1");
        assert_eq!(again(&[], 1, ResourceRequest { devices, ..nothing() }), [-1; 3], "no node has these any more");
    }

    /// An application of 4 nodes had one of them for half of its time: 2.5 on average.
    #[test]
    fn a_job_whose_nodes_changed_keeps_its_devices_on_each_node() {
        let (settings, nodes) = (Settings::default(), [uniform_nodes(4, 1)]);
        let nodes = nodes.map(|nodes| ClusterNodes {
            inventory: Inventory { devices: "gpu:1".parse().expect("devices"), ..nodes.inventory.clone() },
            ..nodes
        });
        let nobody = TraceJobs::new(Vec::new());
        let empty = Batch::new(settings.clone(), &nodes, &nobody).expect("nodes join");
        let stage = |nodes, secs| Stage { nodes, span: Span::from_secs(secs) };
        let held = Evolution::new(vec![stage(4, 10), stage(1, 10)]).expect("it is one");
        let record = JobRecord { evolution: Some(held), ..record(empty.state(), 1, 4, Some(0), 20) };
        let mut spec = JobSpec::of(record.owner.clone(), Work::Nodes, vec![record.request.clone()]);
        spec.resources.devices_in_all = "gpu:4".parse().expect("devices");
        let specs = BTreeMap::from([(record.job, Arc::new(spec))]);
        let jobs = JournalJobs::new(&[record], &specs, empty.state());
        let replayed = Batch::new(settings, &nodes, &jobs).expect("nodes join").run(|_| {}).expect("all end");
        assert_eq!(replayed.finished[0].map(|job| job.n_nodes), Some(3), "four devices could not be spread over three");
    }

    #[test]
    fn jobs_whose_submission_is_gone_are_counted() {
        let nodes = [uniform_nodes(4, 1)];
        let nobody = TraceJobs::new(Vec::new());
        let empty = Batch::new(Settings::default(), &nodes, &nobody).expect("nodes join");
        let records = [record(empty.state(), 1, 1, Some(0), 10), record(empty.state(), 2, 1, Some(0), 10)];
        let spec = JobSpec::of(Owner("ann".to_owned()), Work::Nodes, vec![records[0].request.clone()]);
        let specs = BTreeMap::from([(JobId(1), Arc::new(spec))]);
        assert_eq!(JournalJobs::new(&records, &specs, empty.state()).census.without_submission, 1);
    }

    /// Jobs of two nodes that the server let share CPUs, and what they do again: the run times of all jobs with all
    /// CPUs, their starts, the real utilisation, and whether they end as they did.
    fn shared_again(times: &[(i64, i64, i64, CpuLoans, u64)]) -> (Vec<i64>, Vec<i64>, f64, bool) {
        let settings = Settings { policy: Policy::Slowdown, ..Settings::default() };
        let (nodes, nobody) = ([uniform_nodes(2, 8)], TraceJobs::new(Vec::new()));
        let empty = Batch::new(settings.clone(), &nodes, &nobody).expect("nodes join");
        let ran = |(job, (started, ended, wall, loans, core_secs)): (usize, &(i64, i64, i64, CpuLoans, u64))| {
            let mut ran = record(empty.state(), job as u64, 2, Some(*started), *ended);
            ran.request.wall = Span::from_secs(*wall);
            ran.eligible = secs(*started);
            ran.nodes = vec!["n1".to_owned(), "n2".to_owned()];
            let (cores, whole_nodes) = if loans.borrowed > 0 { (8, 0) } else { (16, 2) };
            let granted = Granted { cores, whole_nodes, core_time: core_secs * 1000, ..Granted::default() };
            JobRecord { loans: Some(*loans), granted: Some(granted), ..ran }
        };
        let records: Vec<JobRecord> = times.iter().enumerate().map(ran).collect();
        let spec = |record: &JobRecord| {
            let mut spec = JobSpec::of(record.owner.clone(), Work::Nodes, vec![record.request.clone()]);
            spec.resources.share = true;
            (record.job, Arc::new(spec))
        };
        let specs = records.iter().map(spec).collect();
        let jobs = JournalJobs::new(&records, &specs, empty.state());
        assert_eq!(jobs.census.shared, times.len());
        let replayed = Batch::new(settings, &nodes, &jobs).expect("nodes join").run(|_| {}).expect("all end");
        let past = jobs.past(&replayed, 2);
        let all = |of: &dyn Fn(&Finished) -> i64| replayed.finished.iter().flatten().map(of).collect::<Vec<_>>();
        let runs = (0..times.len()).map(|job_idx| jobs.run(job_idx).as_millis() / 1000).collect();
        let is_same = (past.figures.utilisation - replayed.figures.utilisation).abs() < 0.001
            && past.finished.iter().flatten().map(|job| job.ended.as_secs()).eq(all(&|job| job.ended.as_secs()))
            && past.figures.mean_slowdown == replayed.figures.mean_slowdown;
        (runs, all(&|job| job.started.as_secs()), past.figures.utilisation, is_same)
    }

    #[test]
    fn jobs_that_shared_cpus_do_so_again_and_count_once() {
        let lent = |secs: u64| CpuLoans { lent: 8000 * secs, borrowed: 0 };
        let borrowed = |secs: u64| CpuLoans { lent: 0, borrowed: 8000 * secs };
        // Of 16 cores, 8 were lent from 10 to 90. The guest did 40 s of work, and the other one 100 s.
        let again = shared_again(&[(0, 140, 100, lent(80), 1600), (10, 90, 50, borrowed(80), 640)]);
        assert_eq!(again, (vec![100, 40], vec![0, 10], 1.0, true));
        // The guest had all cores once its mate had ended: half of them for 40 s, and all of them for 60 s.
        let again = shared_again(&[(0, 50, 200, lent(40), 480), (10, 110, 80, borrowed(40), 1280)]);
        assert_eq!(again, (vec![30, 80], vec![0, 10], 1.0, true));
    }
}
