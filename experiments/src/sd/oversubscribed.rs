//! The baseline without a policy: a job that finds too few idle nodes starts on busy ones, two jobs to a core, each at
//! half its speed there.
//!
//! A job takes the nodes with the fewest other jobs. The first job for which there are too few nodes with fewer than
//! two jobs gets a reservation, as in EASY; a later job starts only where it does not delay that. A job may take twice
//! its limit, and is planned with that.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use rms_model::{RuntimeModel, Span, Time};
use rms_sim::batch::{Finished, Summary};
use rms_sim::workload::swf::TraceJob;

use super::Study;

/// A cluster in virtual time. Jobs are named by their index in the trace.
pub(super) struct Cluster<'a> {
    study: &'a Study,
    trace: &'a [TraceJob],
    model: RuntimeModel,
    /// The jobs of each node, at most two.
    residents: Vec<Vec<usize>>,
    /// Nodes without a job, and those with one.
    idle: BTreeSet<usize>,
    half: BTreeSet<usize>,
    running: BTreeMap<usize, Running>,
    /// When jobs end, or would have ended before their neighbours changed.
    ends: BinaryHeap<Reverse<(Time, usize)>>,
    /// In the order of submits.
    waiting: Vec<usize>,
    now: Time,
    last_pass: Option<Time>,
    next_pass: Option<Time>,
    finished: Vec<Option<Finished>>,
}

/// A running job. Work and time are counted in half nodes times milliseconds.
struct Running {
    nodes: Vec<usize>,
    /// How many of its nodes have another job, too.
    n_shared: usize,
    left: i64,
    used: i64,
    since: Time,
    started: Time,
    /// The time by which it has ended, whichever jobs come.
    latest: Time,
    was_guest: bool,
    was_mate: bool,
}

/// The reservation of the first job that has to wait.
#[derive(Clone, Copy)]
struct Kept {
    from: Time,
    /// Nodes that it leaves to others then.
    spare: usize,
}

impl Running {
    /// Returns how many node halves it has.
    fn n_halves(&self) -> i64 {
        (2 * self.nodes.len() - self.n_shared) as i64
    }

    fn rate(&self, model: RuntimeModel) -> i64 {
        let slowest = if self.n_shared > 0 { 1 } else { 2 };
        match model {
            RuntimeModel::Ideal => self.n_halves(),
            RuntimeModel::Worst => slowest * self.nodes.len() as i64,
        }
    }

    /// Accounts for the time until now with its current nodes.
    fn settle(&mut self, model: RuntimeModel, now: Time) {
        let took = now.since(self.since).as_millis();
        self.left -= self.rate(model) * took;
        self.used += self.n_halves() * took;
        self.since = now;
    }

    /// Returns when it will be done, if no job comes or goes.
    fn end(&self, model: RuntimeModel) -> Time {
        let rate = self.rate(model);
        self.since + Span::from_millis((self.left.max(0) + rate - 1) / rate)
    }
}

impl<'a> Cluster<'a> {
    pub(super) fn new(study: &'a Study, trace: &'a [TraceJob], model: RuntimeModel) -> Cluster<'a> {
        let n_nodes = study.n_nodes as usize;
        Cluster {
            study,
            trace,
            model,
            residents: vec![Vec::new(); n_nodes],
            idle: (0..n_nodes).collect(),
            half: BTreeSet::new(),
            running: BTreeMap::new(),
            ends: BinaryHeap::new(),
            waiting: Vec::new(),
            now: Time::EPOCH,
            last_pass: None,
            next_pass: None,
            finished: vec![None; trace.len()],
        }
    }

    pub(super) fn run(mut self) -> Summary {
        let (mut next_idx, mut n_refused) = (0, 0);
        loop {
            self.forget_old_ends();
            let submit = self.trace.get(next_idx).map(|job| job.submit);
            let end = self.ends.peek().map(|Reverse((end, _))| *end);
            let Some(now) = [submit, end, self.next_pass].into_iter().flatten().min() else { break };
            self.now = now;
            while let Some(Reverse((end, job))) = self.ends.peek().copied()
                && end <= now
            {
                self.end(job);
                self.forget_old_ends();
            }
            while let Some(job) = self.trace.get(next_idx).filter(|job| job.submit <= now) {
                let is_possible = job.n_nodes <= self.study.n_nodes;
                self.waiting.extend(is_possible.then_some(next_idx));
                n_refused += usize::from(!is_possible);
                next_idx += 1;
                self.want_pass();
            }
            if self.next_pass.is_some_and(|due| due <= now) {
                self.pass();
            }
        }
        Summary::new(self.finished, self.study.n_nodes, n_refused, Span::ZERO)
    }

    /// Drops ends that have moved to another time.
    fn forget_old_ends(&mut self) {
        while let Some(Reverse((end, job))) = self.ends.peek() {
            if self.running.get(job).is_some_and(|running| running.end(self.model) == *end) {
                return;
            }
            self.ends.pop();
        }
    }

    fn want_pass(&mut self) {
        let due = self.last_pass.map_or(self.now, |last| self.now.max(last + self.study.interval));
        self.next_pass = Some(due);
    }

    fn pass(&mut self) {
        (self.last_pass, self.next_pass) = (Some(self.now), None);
        let depth = if self.study.queue_depth == 0 { usize::MAX } else { self.study.queue_depth as usize };
        let tested: Vec<usize> = self.waiting.iter().take(depth).copied().collect();
        let mut kept: Option<Kept> = None;
        let mut started = BTreeSet::new();
        for job in tested {
            let n_nodes = self.trace[job].n_nodes as usize;
            if n_nodes > self.idle.len() + self.half.len() {
                kept = kept.or_else(|| Some(self.keep(n_nodes)));
                continue;
            }
            // It leaves the other half of idle nodes free.
            let filled = n_nodes.saturating_sub(self.idle.len());
            if let Some(Kept { from, spare }) = &mut kept
                && self.latest(job) > *from
            {
                if filled > *spare {
                    continue;
                }
                *spare -= filled;
            }
            self.start(job);
            started.insert(job);
        }
        self.waiting.retain(|job| !started.contains(job));
    }

    /// Returns when a job that starts now has ended, whichever jobs come.
    fn latest(&self, job: usize) -> Time {
        let wall = self.trace[job].wall;
        self.now + wall + wall
    }

    /// Returns the reservation: the time from which on there are certainly `n_nodes` nodes with fewer than two jobs.
    /// Now there are too few.
    fn keep(&self, n_nodes: usize) -> Kept {
        let full = self.residents.iter().filter(|jobs| jobs.len() == 2);
        let first = |jobs: &Vec<usize>| jobs.iter().map(|job| self.running[job].latest).min();
        let mut times: Vec<Time> = full.filter_map(first).collect();
        times.sort_unstable();
        let n_free = self.idle.len() + self.half.len();
        let from = times[n_nodes - n_free - 1];
        let n_then = n_free + times.partition_point(|time| *time <= from);
        Kept { from, spare: n_then - n_nodes }
    }

    fn start(&mut self, job: usize) {
        let TraceJob { n_nodes, run, .. } = self.trace[job];
        let nodes: Vec<usize> = self.idle.iter().chain(&self.half).take(n_nodes as usize).copied().collect();
        let mut neighbours = Vec::new();
        for node in &nodes {
            neighbours.extend(self.residents[*node].iter().copied());
            self.residents[*node].push(job);
            if self.idle.remove(node) {
                self.half.insert(*node);
            } else {
                self.half.remove(node);
            }
        }
        let n_shared = neighbours.len();
        let running = Running {
            n_shared,
            left: 2 * nodes.len() as i64 * run.as_millis(),
            nodes,
            used: 0,
            since: self.now,
            started: self.now,
            latest: self.latest(job),
            was_guest: n_shared > 0,
            was_mate: false,
        };
        self.ends.push(Reverse((running.end(self.model), job)));
        self.running.insert(job, running);
        self.change(&neighbours, |neighbour| {
            neighbour.n_shared += 1;
            neighbour.was_mate = true;
        });
    }

    fn end(&mut self, job: usize) {
        let Some(mut running) = self.running.remove(&job) else { return };
        running.settle(self.model, self.now);
        let mut neighbours = Vec::new();
        for node in &running.nodes {
            self.residents[*node].retain(|resident| *resident != job);
            neighbours.extend(self.residents[*node].iter().copied());
            if self.half.remove(node) {
                self.idle.insert(*node);
            } else {
                self.half.insert(*node);
            }
        }
        self.change(&neighbours, |neighbour| neighbour.n_shared -= 1);
        let TraceJob { submit, n_nodes, run, .. } = self.trace[job];
        self.finished[job] = Some(Finished {
            submitted: submit,
            started: running.started,
            ended: self.now,
            alone: run,
            n_nodes,
            node_s: Span::from_millis(running.used / 2).as_secs_f64(),
            n_changes: 0,
            was_guest: running.was_guest,
            was_mate: running.was_mate,
        });
        if !self.waiting.is_empty() {
            self.want_pass();
        }
    }

    /// Changes the other job on each node on which a job has come or gone.
    fn change(&mut self, neighbours: &[usize], change: impl Fn(&mut Running)) {
        for job in neighbours {
            if let Some(running) = self.running.get_mut(job) {
                running.settle(self.model, self.now);
                change(running);
            }
        }
        let changed: BTreeSet<usize> = neighbours.iter().copied().collect();
        let model = self.model;
        let ends = changed.iter().filter_map(|job| Some(Reverse((self.running.get(job)?.end(model), *job))));
        self.ends.extend(ends);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(submit: i64, n_nodes: u32, wall: i64, run: i64) -> TraceJob {
        let (wall, run) = (Span::from_secs(wall), Span::from_secs(run));
        TraceJob { number: 0, submit: Time::from_secs(submit), n_nodes, n_procs: n_nodes * 4, wall, run, user: 1 }
    }

    fn study(n_nodes: u32) -> Study {
        let estimate = RuntimeModel::Worst;
        Study { n_nodes, cores_per_node: 4, queue_depth: 0, interval: Span::ZERO, estimate, seed: 1 }
    }

    /// Returns the start and end of each job on two nodes.
    fn secs(jobs: &[TraceJob], model: RuntimeModel) -> Vec<(i64, i64)> {
        let times = |job: &Finished| (job.started.as_millis() / 1000, job.ended.as_millis() / 1000);
        study(2).oversubscribe(jobs, model).finished.iter().flatten().map(times).collect()
    }

    #[test]
    fn two_run_at_half_the_speed_and_a_third_waits() {
        let jobs = [job(0, 2, 1000, 1000), job(10, 2, 100, 100), job(20, 2, 50, 50)];
        assert_eq!(secs(&jobs, RuntimeModel::Ideal), [(0, 1150), (10, 210), (210, 310)]);
    }

    #[test]
    fn idle_nodes_are_taken_first() {
        let alone = [job(0, 1, 100, 100), job(0, 1, 100, 100)];
        assert_eq!(secs(&alone, RuntimeModel::Ideal), [(0, 100), (0, 100)]);
    }

    #[test]
    fn the_slowest_node_sets_the_pace_by_the_worst_model_only() {
        let jobs = [job(0, 1, 100, 100), job(0, 2, 100, 100)];
        // With one node alone and half of the other, the second does three quarters of its work per second.
        assert_eq!(secs(&jobs, RuntimeModel::Ideal), [(0, 166), (0, 133)]);
        assert_eq!(secs(&jobs, RuntimeModel::Worst), [(0, 200), (0, 200)]);
    }

    #[test]
    fn who_waits_first_is_passed_only_by_those_who_are_gone_in_time() {
        let narrow = |wall| job(0, 1, wall, wall);
        let jobs = [narrow(100), narrow(100), narrow(50), job(0, 2, 10, 10), narrow(1000), narrow(10)];
        let starts: Vec<i64> = secs(&jobs, RuntimeModel::Ideal).into_iter().map(|(start, _)| start).collect();
        assert_eq!(starts[..4], [0, 0, 0, 100]);
        assert_eq!((starts[4] > 100, starts[5]), (true, 0));
    }

    #[test]
    fn no_node_has_three_jobs_and_no_work_is_lost() {
        test_kit::for_seeds("no_node_has_three_jobs_and_no_work_is_lost", 60, |dice| {
            let n_nodes = dice.number(1, 12);
            let mut jobs: Vec<TraceJob> = Vec::new();
            for _ in 0..80 {
                let run = i64::from(dice.number(1, 300));
                let wall = run + i64::from(dice.number(0, 300));
                jobs.push(job(dice.number(0, 2000).into(), dice.number(1, n_nodes), wall, run));
            }
            jobs.sort_by_key(|job| job.submit);
            let interval = Span::from_secs(dice.number(0, 30).into());
            let study = Study { queue_depth: dice.number(0, 5), interval, ..study(n_nodes) };
            let model = dice.one_of(&RuntimeModel::ALL);
            let summary = study.oversubscribe(&jobs, model);
            let mut changes = Vec::new();
            for (job, ran) in jobs.iter().zip(&summary.finished) {
                let ran = ran.expect("it ran");
                let (alone, took) = (job.run.as_millis(), ran.run().as_millis());
                assert!(ran.started >= job.submit && (alone..=2 * alone).contains(&took), "{job:?} {ran:?}");
                let (work, held) = (alone * i64::from(job.n_nodes), (ran.node_s * 1000.0).round() as i64);
                assert!(held >= work, "{job:?} {ran:?}");
                // Ends are whole milliseconds.
                assert!(model == RuntimeModel::Worst || held <= work + i64::from(job.n_nodes), "{job:?} {ran:?}");
                changes.extend([(ran.ended, 0, job.n_nodes), (ran.started, 1, job.n_nodes)]);
            }
            changes.sort_unstable();
            let mut n_held = 0;
            for (_, is_start, n_nodes_of_job) in changes {
                n_held = if is_start == 1 { n_held + n_nodes_of_job } else { n_held - n_nodes_of_job };
                assert!(n_held <= 2 * n_nodes, "{n_held} of twice {n_nodes}");
            }
        });
    }
}
