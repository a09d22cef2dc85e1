//! Compares each policy on nodes that jobs share with simple rules, on small random workloads.

use std::collections::BTreeMap;

use rms_model::settings::Depth;
use rms_model::{Allocation, Mebibytes};

use super::*;

/// What a job asks of each of its nodes.
#[derive(Clone, Copy, Debug)]
struct Ask {
    small: Small,
    cores: u32,
    memory: u64,
    exclusive: bool,
}

/// Equal nodes, and their jobs.
#[derive(Debug)]
struct UniformCluster {
    n_nodes: u32,
    cores: u32,
    memory: u64,
    asks: Vec<Ask>,
}

impl UniformCluster {
    fn new(seed: u64) -> UniformCluster {
        let mut dice = Dice::new(seed, 11);
        let (n_nodes, cores) = (dice.number(1, 4), dice.number(1, 6));
        let (memory, gap) = (8, dice.number(0, 8));
        let mut submit = 0;
        let asks = (0..dice.number(2, 25)).map(|_| {
            submit += i64::from(dice.number(0, gap));
            let wall = i64::from(dice.number(1, 20));
            let run = if dice.chance(40) { wall } else { i64::from(dice.number(1, wall as u32)) };
            let small = Small { submit, n_nodes: dice.number(1, n_nodes), wall, run };
            let memory = if dice.chance(50) { 0 } else { dice.number(1, 8).into() };
            Ask { small, cores: dice.number(1, cores), memory, exclusive: dice.chance(15) }
        });
        UniformCluster { n_nodes, cores, memory, asks: asks.collect() }
    }

    fn batch(&self, policy: Policy) -> Batch<'_, UniformCluster> {
        let settings =
            Settings { policy, queue_depth: Depth::All, allocation: Allocation::Cores, ..Settings::default() };
        let mut nodes = uniform_nodes(self.n_nodes, self.cores);
        nodes.inventory.memory = Mebibytes(self.memory);
        Batch::new(settings, &[nodes], self).expect("the nodes join")
    }

    /// Returns whether a node has room for it in addition to these others.
    fn has_room(&self, node: usize, ask: &Ask, others: &[&Runs]) -> bool {
        let here: Vec<&Ask> =
            others.iter().filter(|other| other.nodes.contains(&node)).map(|other| &self.asks[other.job_idx]).collect();
        if ask.exclusive || here.iter().any(|other| other.exclusive) {
            return here.is_empty();
        }
        let cores = here.iter().map(|other| other.cores).sum::<u32>() + ask.cores;
        let memory = here.iter().map(|other| other.memory).sum::<u64>() + ask.memory;
        cores <= self.cores && memory <= self.memory
    }

    fn n_fitting(&self, ask: &Ask, others: &[&Runs]) -> usize {
        (0..self.n_nodes as usize).filter(|node| self.has_room(*node, ask, others)).count()
    }

    /// Returns when there is room for it if all running jobs stay for their wall times, and no other job comes.
    fn shadow(&self, ask: &Ask, running: &[Runs], now: i64) -> i64 {
        let end = |run: &Runs| run.start + self.asks[run.job_idx].small.wall;
        let mut ends: Vec<i64> = running.iter().map(end).chain([now]).filter(|end| *end >= now).collect();
        ends.sort_unstable();
        let has_room = |at: &i64| {
            let stay: Vec<&Runs> = running.iter().filter(|run| end(run) > *at).collect();
            self.n_fitting(ask, &stay) >= ask.small.n_nodes as usize
        };
        ends.into_iter().find(has_room).expect("it fits once all have gone")
    }
}

/// A running job.
#[derive(Clone, Debug)]
struct Runs {
    job_idx: usize,
    start: i64,
    nodes: Vec<usize>,
}

impl Workload for UniformCluster {
    fn n_jobs(&self) -> usize {
        self.asks.len()
    }

    fn submit(&self, job_idx: usize) -> Time {
        Time::from_secs(self.asks[job_idx].small.submit)
    }

    fn submission(&self, job_idx: usize) -> (Identity, Submission) {
        let ask = &self.asks[job_idx];
        let nodes = rms_api::call::Nodes::Count(ask.small.n_nodes);
        let shape = rms_api::call::Shape { nodes, wall: Some(Span::from_secs(ask.small.wall)) };
        let mut submission = submission(vec![shape]);
        submission.n_tasks = Some(ask.small.n_nodes * ask.cores);
        submission.cpus_per_task = 1;
        submission.constraint.memory = Mebibytes(ask.memory);
        submission.resources.exclusive = ask.exclusive;
        (Identity { role: rms_model::Role::User, name: "u1".to_owned() }, submission)
    }

    fn run(&self, job_idx: usize) -> Span {
        Span::from_secs(self.asks[job_idx].small.run)
    }
}

/// Returns the running jobs, and the waiting ones in the order of submits. All jobs are accepted, so ids are
/// consecutive.
fn moment(batch: &Batch<'_, UniformCluster>) -> (Vec<Runs>, Vec<usize>) {
    let (mut running, mut waiting) = (Vec::new(), Vec::new());
    let state = batch.state();
    for (job, entry) in state.jobs() {
        let job_idx = job.0 as usize - 1;
        match entry.started() {
            None => waiting.push(job_idx),
            Some(started) => {
                let place = |node| state.nodes().keys().position(|other| other == node).expect("a node");
                let nodes = entry.nodes().iter().map(place).collect();
                running.push(Runs { job_idx, start: started.at.as_secs(), nodes });
            }
        }
    }
    (running, waiting)
}

/// Nothing is given twice, and a job that may not be overtaken does not wait where there is room.
#[test]
fn long_shared_nodes_are_never_full_beyond_what_they_have_and_the_head_never_waits_beside_room() {
    for (seed, policy) in seeds(200).flat_map(|seed| Policy::ALL.map(|policy| (seed, policy))) {
        let lot = UniformCluster::new(seed);
        let mut batch = lot.batch(policy);
        let mut promised: BTreeMap<usize, i64> = BTreeMap::new();
        let mut starts: BTreeMap<usize, i64> = BTreeMap::new();
        while batch.turn().expect("every job ends") {
            let now = batch.now().as_secs();
            let replay = || format!("LIMBER_SEED={seed}, {policy}, at {now}: {lot:?}");
            let (running, waiting) = moment(&batch);
            for run in &running {
                let others: Vec<&Runs> = running.iter().filter(|other| other.job_idx != run.job_idx).collect();
                let ask = &lot.asks[run.job_idx];
                let is_here = |node: &usize| lot.has_room(*node, ask, &others);
                assert!(run.nodes.iter().all(is_here), "{run:?} has no room: {}", replay());
                assert_eq!(run.nodes.len(), ask.small.n_nodes as usize, "{}", replay());
                starts.insert(run.job_idx, run.start);
                let promise = promised.get(&run.job_idx).copied().unwrap_or(i64::MAX);
                assert!(run.start <= promise, "{run:?} was promised {promise}: {}", replay());
            }
            let all: Vec<&Runs> = running.iter().collect();
            if let Some(head) = waiting.first()
                && policy != Policy::Conservative
            {
                let ask = &lot.asks[*head];
                assert!(lot.n_fitting(ask, &all) < ask.small.n_nodes as usize, "{head} has room: {}", replay());
                if policy == Policy::Easy {
                    let shadow = lot.shadow(ask, &running, now);
                    let promise = *promised.entry(*head).or_insert(shadow);
                    assert!(shadow <= promise, "{head}: {promise} becomes {shadow}: {}", replay());
                }
            }
            for job_idx in &waiting {
                let entry = &batch.state().jobs()[&JobId(*job_idx as u64 + 1)];
                if policy == Policy::Conservative {
                    let at = entry.promised.as_ref().expect("all that wait have a promise").at.as_secs();
                    let before = promised.insert(*job_idx, at).unwrap_or(at);
                    assert!(at <= before, "{job_idx}: {before} becomes {at}: {}", replay());
                }
            }
        }
        if policy == Policy::Fcfs {
            assert!(starts.values().is_sorted(), "LIMBER_SEED={seed}: {starts:?}: {lot:?}");
        }
    }
}

/// The reservation of the first waiting job leaves a free core to a job that does not need any of its nodes.
#[test]
fn a_reservation_keeps_nodes_without_free_cores_if_it_can() {
    let ask = |submit, n_nodes, cores, wall, run| {
        let small = Small { submit, n_nodes, wall, run };
        Ask { small, cores, memory: 0, exclusive: false }
    };
    // From second 21 on, a core of one node is free; all nodes are free at second 44.
    let asks = vec![
        ask(0, 1, 2, 53, 21),
        ask(6, 1, 1, 38, 20),
        ask(11, 3, 2, 23, 8),
        ask(11, 1, 2, 57, 47),
        ask(15, 1, 1, 41, 41),
    ];
    let lot = UniformCluster { n_nodes: 4, cores: 2, memory: 8, asks };
    let mut batch = lot.batch(Policy::Easy);
    let mut started = None;
    while batch.turn().expect("every job ends") && started.is_none() {
        started = moment(&batch).0.into_iter().find(|run| run.job_idx == 4).map(|run| run.start);
    }
    assert_eq!(started, Some(21));
}
