//! Compares the core's policies with simple ones that are independent of it, on small random workloads.
//!
//! `LIMBER_SEED=n cargo nextest run -p rms-sim batch` replays one seed.

mod sharing;

use std::collections::BTreeMap;

use rms_core::plan;
use rms_core::plan::Scope;
use rms_model::settings::Depth;
use rms_model::{Policy, Settings};
use test_kit::seeds;

use super::*;
use crate::Dice;
use crate::workload::swf::TraceJob;

/// The times, in seconds, and the nodes of one job.
#[derive(Clone, Copy, Debug)]
struct Small {
    submit: i64,
    n_nodes: u32,
    wall: i64,
    run: i64,
}

/// A machine and its jobs.
#[derive(Clone, Debug)]
struct Load {
    n_nodes: u32,
    jobs: Vec<Small>,
}

fn load(seed: u64, is_exact: bool) -> Load {
    let mut dice = Dice::new(seed, 7);
    let n_nodes = dice.number(1, 9);
    let n_jobs = dice.number(1, 30);
    let gap = dice.number(0, 12);
    let mut submit = 0;
    let jobs = (0..n_jobs).map(|_| {
        submit += i64::from(dice.number(0, gap));
        let wall = i64::from(dice.number(1, 20));
        let run = if is_exact || dice.chance(30) { wall } else { i64::from(dice.number(1, wall as u32)) };
        Small { submit, n_nodes: dice.number(1, n_nodes), wall, run }
    });
    Load { n_nodes, jobs: jobs.collect() }
}

/// Returns a load with many waiting jobs, several of some sizes: passes skip most of them.
fn deep_queue(seed: u64) -> Load {
    let mut dice = Dice::new(seed, 9);
    let n_nodes = dice.number(4, 24);
    let walls: Vec<i64> = (0..dice.number(2, 8)).map(|_| i64::from(dice.number(1, 90))).collect();
    let mut submit = 0;
    let jobs = (0..dice.number(90, 130)).map(|_| {
        submit += i64::from(dice.number(0, 3));
        let wall = walls[dice.number(1, walls.len() as u32) as usize - 1];
        let run = if dice.chance(40) { wall } else { i64::from(dice.number(1, wall as u32)) };
        Small { submit, n_nodes: dice.number(1, n_nodes).min(dice.number(1, n_nodes)), wall, run }
    });
    Load { n_nodes, jobs: jobs.collect() }
}

fn trace_jobs(load: &Load) -> TraceJobs {
    let job = |(number, job): (usize, &Small)| TraceJob {
        number: number as i64,
        submit: Time::from_secs(job.submit),
        n_nodes: job.n_nodes,
        n_procs: job.n_nodes,
        wall: Span::from_secs(job.wall),
        run: Span::from_secs(job.run),
        user: 1,
    };
    TraceJobs::new(load.jobs.iter().enumerate().map(job).collect())
}

fn batch<'a>(policy: Policy, load: &Load, jobs: &'a TraceJobs) -> Batch<'a, TraceJobs> {
    let settings = Settings { policy, queue_depth: Depth::All, ..Settings::default() };
    Batch::new(settings, &[uniform_nodes(load.n_nodes, 1)], jobs).expect("the nodes join")
}

/// Returns when the core starts each job.
fn core(policy: Policy, load: &Load) -> Vec<i64> {
    let jobs = trace_jobs(load);
    let summary = batch(policy, load, &jobs).run(|_| {}).expect("every job ends");
    summary.finished.iter().map(|job| job.expect("it ran").started.as_secs()).collect()
}

/// A simple scheduler with steps of a second: what runs, what waits, and what starts.
struct BareScheduler {
    load: Load,
    now: i64,
    /// The index of the job, and its start.
    running: Vec<(usize, i64)>,
    waiting: Vec<usize>,
    starts: Vec<Option<i64>>,
    /// For conservative backfilling.
    reserved: Vec<Option<i64>>,
}

impl BareScheduler {
    fn run(load: Load, step: fn(&mut BareScheduler)) -> Vec<i64> {
        let n_jobs = load.jobs.len();
        let (starts, reserved) = (vec![None; n_jobs], vec![None; n_jobs]);
        let mut bare = BareScheduler { load, now: 0, running: Vec::new(), waiting: Vec::new(), starts, reserved };
        while bare.starts.contains(&None) {
            let now = bare.now;
            let jobs = &bare.load.jobs;
            bare.running.retain(|(job, start)| start + jobs[*job].run > now);
            bare.waiting.extend((0..n_jobs).filter(|job| jobs[*job].submit == now));
            step(&mut bare);
            let starts = &bare.starts;
            bare.waiting.retain(|job| starts[*job].is_none());
            bare.now += 1;
        }
        bare.starts.into_iter().flatten().collect()
    }

    fn start(&mut self, job: usize) {
        self.starts[job] = Some(self.now);
        self.reserved[job] = None;
        self.running.push((job, self.now));
    }

    fn n_free(&self) -> u32 {
        self.load.n_nodes - self.running.iter().map(|(job, _)| self.load.jobs[*job].n_nodes).sum::<u32>()
    }

    /// Returns the second from which on `n_nodes` nodes are free, and how many are free then; only running jobs are
    /// considered.
    fn shadow(&self, n_nodes: u32) -> (i64, u32) {
        let mut ends: Vec<(i64, u32)> = self
            .running
            .iter()
            .map(|(job, start)| (start + self.load.jobs[*job].wall, self.load.jobs[*job].n_nodes))
            .collect();
        ends.sort_unstable();
        let mut n_free = self.n_free();
        let mut at = self.now;
        let mut ends = ends.into_iter().peekable();
        while let Some((end, nodes)) = ends.next() {
            n_free += nodes;
            at = end;
            let is_last_of_instant = ends.peek().is_none_or(|(next, _)| *next > end);
            if is_last_of_instant && n_free >= n_nodes {
                break;
            }
        }
        (at, n_free)
    }

    /// Returns the first second at which a job fits in addition to the running jobs and the reservations of others.
    fn first_fit(&self, wanted: usize) -> i64 {
        let Small { n_nodes, wall, .. } = self.load.jobs[wanted];
        let reserved = self.reserved.iter().enumerate().filter(|(job, _)| *job != wanted);
        let reserved = reserved.filter_map(|(job, start)| start.map(|start| (job, start)));
        let holds: Vec<(i64, i64, u32)> = (self.running.iter().copied().chain(reserved))
            .map(|(job, start)| (start, start + self.load.jobs[job].wall, self.load.jobs[job].n_nodes))
            .collect();
        let busy = |at: i64| -> u32 {
            holds.iter().filter(|(from, until, _)| *from <= at && at < *until).map(|(.., nodes)| nodes).sum()
        };
        let mut n_fits = 0;
        for at in self.now.. {
            n_fits = if busy(at) + n_nodes <= self.load.n_nodes { n_fits + 1 } else { 0 };
            if n_fits == wall {
                return at + 1 - wall;
            }
        }
        unreachable!("it is free in the end")
    }

    fn fcfs(&mut self) {
        for job in self.waiting.clone() {
            if self.load.jobs[job].n_nodes > self.n_free() {
                break;
            }
            self.start(job);
        }
    }

    /// Runs EASY as it is defined: with the head's shadow time, and the nodes that it leaves over then.
    fn easy(&mut self) {
        self.fcfs();
        let waiting: Vec<usize> = self.waiting.iter().copied().filter(|job| self.starts[*job].is_none()).collect();
        let Some((head, others)) = waiting.split_first() else { return };
        let (shadow, n_free_then) = self.shadow(self.load.jobs[*head].n_nodes);
        let mut n_extra = n_free_then - self.load.jobs[*head].n_nodes;
        for job in others {
            let Small { n_nodes, wall, .. } = self.load.jobs[*job];
            let ends_before = self.now + wall <= shadow;
            if n_nodes <= self.n_free() && (ends_before || n_nodes <= n_extra) {
                n_extra -= if ends_before { 0 } else { n_nodes };
                self.start(*job);
            }
        }
    }

    /// Lets each job in order exchange its reservation for an earlier one, until none can.
    fn conservative(&mut self) {
        loop {
            let mut has_moved = false;
            for job in self.waiting.clone() {
                if self.starts[job].is_some() {
                    continue;
                }
                let first = self.first_fit(job);
                has_moved |= self.reserved[job].is_some_and(|reserved| first < reserved);
                self.reserved[job] = Some(first);
                if first == self.now {
                    self.start(job);
                }
            }
            if !has_moved {
                break;
            }
        }
    }
}

fn check(policy: Policy, is_exact: bool, step: fn(&mut BareScheduler)) {
    for seed in seeds(200) {
        let load = load(seed, is_exact);
        let expected = BareScheduler::run(load.clone(), step);
        assert_eq!(core(policy, &load), expected, "{policy}, LIMBER_SEED={seed}: {load:?}");
    }
}

#[test]
fn fcfs_is_a_bare_fcfs() {
    check(Policy::Fcfs, false, BareScheduler::fcfs);
}

#[test]
fn easy_is_a_bare_easy() {
    check(Policy::Easy, false, BareScheduler::easy);
    check(Policy::Easy, true, BareScheduler::easy);
}

#[test]
fn conservative_is_a_bare_conservative() {
    check(Policy::Conservative, false, BareScheduler::conservative);
    check(Policy::Conservative, true, BareScheduler::conservative);
}

#[test]
fn fcfs_never_overtakes() {
    for seed in seeds(200) {
        let load = load(seed, false);
        let starts = core(Policy::Fcfs, &load);
        assert!(starts.is_sorted(), "LIMBER_SEED={seed}: {starts:?}");
    }
}

/// The head of the queue is promised the start in its estimate; jobs that start behind it must not delay that.
#[test]
fn easy_never_delays_the_promised_start_of_the_head() {
    for seed in seeds(200) {
        let load = load(seed, true);
        let jobs = trace_jobs(&load);
        let mut batch = batch(Policy::Easy, &load, &jobs);
        let mut promised: BTreeMap<JobId, Time> = BTreeMap::new();
        while batch.turn().expect("every job ends") {
            batch.state().check().expect("the state is sound");
            for (job, entry) in batch.state().jobs() {
                let (Some(started), Some(promise)) = (entry.started(), promised.get(job)) else { continue };
                assert!(started.at <= *promise, "LIMBER_SEED={seed}: job {job} was promised {promise:?}: {load:?}");
            }
            let plan = plan(batch.state(), batch.now(), Scope::Estimates);
            if let Some(head) = plan.placements.first() {
                let estimate = head.outcome.estimate(plan.now).expect("it is small enough");
                let promise = *promised.entry(head.job).or_insert(estimate);
                assert!(estimate <= promise, "LIMBER_SEED={seed}: {promise:?} becomes {estimate:?}: {load:?}");
            }
        }
    }
}

/// The same where jobs end early: promises only ever move forward.
#[test]
fn conservative_never_delays_anyone() {
    for (seed, is_exact) in seeds(200).flat_map(|seed| [(seed, true), (seed, false)]) {
        let load = load(seed, is_exact);
        let jobs = trace_jobs(&load);
        let mut batch = batch(Policy::Conservative, &load, &jobs);
        let mut promised: BTreeMap<JobId, Time> = BTreeMap::new();
        while batch.turn().expect("every job ends") {
            batch.state().check().expect("the state is sound");
            for (job, entry) in batch.state().jobs() {
                let start =
                    entry.started().map(|started| started.at).or(entry.promised.as_ref().map(|promise| promise.at));
                let start = start.expect("everyone who waits has a promise");
                let promise = promised.insert(*job, start).unwrap_or(start);
                assert!(start <= promise, "LIMBER_SEED={seed}: job {job}: {promise:?} becomes {start:?}: {load:?}");
                if is_exact && entry.started().is_none() {
                    assert_eq!(start, promise, "LIMBER_SEED={seed}: nothing frees nodes early: {load:?}");
                }
            }
        }
    }
}

/// Jobs that may overtake others that wait.
struct Ranked {
    jobs: TraceJobs,
    priorities: Vec<i32>,
}

impl Workload for Ranked {
    fn n_jobs(&self) -> usize {
        self.jobs.n_jobs()
    }

    fn submit(&self, job_idx: usize) -> Time {
        self.jobs.submit(job_idx)
    }

    fn submission(&self, job_idx: usize) -> (Identity, Submission) {
        let (who, submission) = self.jobs.submission(job_idx);
        (
            Identity { role: rms_model::Role::Admin, ..who },
            Submission { priority: self.priorities[job_idx], ..submission },
        )
    }

    fn run(&self, job_idx: usize) -> Span {
        self.jobs.run(job_idx)
    }
}

/// Most passes consider some of the queue only, and not from now on: a new pass over all must find nothing earlier.
#[test]
fn long_a_pass_moves_forward_whoever_can_move() {
    for (seed, policy) in seeds(200).take(20).flat_map(|seed| [(seed, Policy::Easy), (seed, Policy::Conservative)]) {
        let load = deep_queue(seed);
        let jobs = trace_jobs(&load);
        let mut batch = batch(policy, &load, &jobs);
        while batch.turn().expect("every job ends") {
            let plan = plan(batch.state(), batch.now(), Scope::Estimates);
            for placement in plan.placements {
                let estimate = placement.outcome.estimate(batch.now()).expect("it is small enough");
                let promised = batch.state().jobs()[&placement.job].promised.as_ref().map(|promise| promise.at);
                let is_right = promised.map_or(estimate > batch.now(), |promised| estimate == promised);
                assert!(is_right, "LIMBER_SEED={seed}, {policy}: {} {estimate:?}, {promised:?}", placement.job);
            }
        }
    }
}

/// Most passes consider some of the queue only: a pass over all would find any other job that could have started.
#[test]
fn a_pass_leaves_nobody_waiting_who_could_start() {
    for (seed, policy) in seeds(200).flat_map(|seed| [(seed, Policy::Easy), (seed, Policy::Conservative)]) {
        let load = load(seed, false);
        let mut dice = Dice::new(seed, 8);
        let priorities = load.jobs.iter().map(|_| if dice.chance(20) { 1 } else { 0 }).collect();
        let jobs = Ranked { jobs: trace_jobs(&load), priorities };
        let settings = Settings { policy, queue_depth: Depth::All, ..Settings::default() };
        let mut batch = Batch::new(settings, &[uniform_nodes(load.n_nodes, 1)], &jobs).expect("nodes join");
        while batch.turn().expect("every job ends") {
            for scope in [Scope::Starts, Scope::Estimates] {
                let plan = plan(batch.state(), batch.now(), scope);
                let starts = |placement: &&plan::Placement| matches!(placement.outcome, plan::Placed::Now { .. });
                let left = plan.placements.iter().find(starts).map(|placement| placement.job);
                assert_eq!(left, None, "LIMBER_SEED={seed}, {policy}, {scope:?}: {load:?}");
            }
        }
    }
}
