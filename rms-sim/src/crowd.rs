//! Users and admins from a seed: they submit, cancel, hold, drain and change settings at random times.

mod negotiating;

use std::collections::BTreeSet;

use launcher_schedule::moldable::Sizes;
use rms_api::Call;
use rms_api::call::Select;
use rms_api::call::update::{Changes, WallChange};
use rms_api::desired::NodeExit;
use rms_core::state::job::Job;
use rms_model::{Evolution, ExpandLimit, JobId, Mebibytes, Packing, Slice, Span, Stage, Time};

use crate::dice::Dice;
use crate::launcher::{Manner, Then};
use crate::people::{admin, user};
use crate::program::Program;
use crate::work::{ModelJob, evolving, moldable, rigid, script, spanning};
use crate::world::World;

#[derive(Debug)]
pub struct Crowd {
    dice: Dice,
    /// Decides how jobs react to the loss of nodes.
    losses: Dice,
    /// Decides what jobs take of their nodes.
    shares: Dice,
    /// Decides where the nodes of jobs lie.
    places: Dice,
    /// Decides what applications that negotiate have of their nodes.
    parts: Dice,
    n_jobs_left: u32,
    /// The number of nodes of the largest cluster.
    n_nodes: u32,
    longest_gap: Span,
    /// The percentage of actions that are about negotiation.
    negotiates: u32,
}

impl Crowd {
    /// Creates users that submit `n_jobs` jobs of at most `n_nodes` nodes to the clusters `a` and `b`.
    pub fn new(seed: u64, n_jobs: u32, n_nodes: u32) -> Crowd {
        let mut dice = Dice::new(seed, STREAM);
        let longest_gap = dice.span(Span::from_secs(1), Span::from_secs(25));
        let losses = Dice::new(seed, STREAM_OF_LOSSES);
        let (shares, places) = (Dice::new(seed, STREAM_OF_SHARES), Dice::new(seed, STREAM_OF_PLACES));
        let parts = Dice::new(seed, STREAM_OF_PARTS);
        Crowd { dice, losses, shares, places, parts, n_jobs_left: n_jobs, n_nodes, longest_gap, negotiates: 0 }
    }

    /// Creates users most of whose actions are about applications whose nodes change while they run.
    pub fn negotiating(seed: u64, n_jobs: u32, n_nodes: u32) -> Crowd {
        Crowd { negotiates: 75, ..Crowd::new(seed, n_jobs, n_nodes) }
    }

    /// Returns when the next action takes place.
    pub fn next(&mut self, now: Time) -> Time {
        now + self.dice.span(Span::from_millis(1), self.longest_gap)
    }

    /// Performs an action. Nobody waits for the answer, as the server may be down.
    pub fn act(&mut self, world: &mut World) {
        let may_submit = self.n_jobs_left > 0;
        if may_submit && self.dice.chance(65) {
            self.n_jobs_left -= 1;
            if self.negotiates > 0 && self.dice.chance(self.negotiates) {
                let job = negotiating::job(&mut self.dice, self.n_nodes);
                let job = negotiating::with_losses(&mut self.losses, job);
                let job = negotiating::with_parts(&mut self.parts, job);
                let job = job.by(self.dice.pick(&USERS).expect("there are three"));
                let job = if self.dice.chance(30) { job.requeue() } else { job };
                let mut job = if self.dice.chance(10) { job.ignores_term() } else { job };
                job.submission.resources.share = self.shares.chance(60);
                self.submits(world, job);
                return;
            }
            if self.dice.chance(35) {
                let (manner, program) = self.launcher();
                world.launcher(manner, program);
                return;
            }
            let job = self.job(world.now());
            let job = self.with_share(job);
            let job = self.with_place(job, world);
            self.submits(world, job);
            return;
        }
        if self.negotiates > 0 && self.dice.chance(self.negotiates) {
            if !(self.parts.chance(40) && negotiating::change_parts(&mut self.parts, world)) {
                negotiating::act(&mut self.dice, world, self.n_nodes);
            }
            return;
        }
        let call = self.call(world);
        world.call(&admin(), call);
    }

    /// Makes most jobs ask for a part of each node, where jobs share nodes.
    fn with_share(&mut self, job: ModelJob) -> ModelJob {
        let cpus = *self.shares.pick(&[0, 1, 1, 2, 3, 4]).expect("there are six");
        let memory = *self.shares.pick(&[0, 0, 1024, 3000]).expect("there are four");
        let mut job = job.cpus_per_task(cpus).memory(Mebibytes(memory));
        let resources = &mut job.submission.resources;
        (resources.exclusive, resources.packing) =
            (self.shares.chance(10), if self.shares.chance(20) { Packing::Spread } else { Packing::Pack });
        resources.share = !resources.exclusive && self.shares.chance(60);
        job
    }

    /// Makes some jobs ask for contiguous nodes, and some name nodes.
    fn with_place(&mut self, mut job: ModelJob, world: &World) -> ModelJob {
        let is_contiguous = self.places.chance(30);
        job.submission.resources.contiguous = is_contiguous && job.submission.evolving.is_none();
        let names = |dice: &mut Dice, percent| {
            world.nodes.iter().map(|node| node.name.clone()).filter(|_| dice.chance(percent)).collect()
        };
        let constraint = &mut job.submission.constraint;
        match self.places.number(0, 9) {
            0 | 1 => constraint.nodelist = names(&mut self.places, 60),
            2 => constraint.exclude = names(&mut self.places, 20),
            _ => {}
        }
        job
    }

    fn submits(&self, world: &mut World, job: ModelJob) {
        let who = user(&job.user);
        let call = world.submission(job);
        world.call(&who, call);
    }

    fn some_job(&mut self, world: &World) -> JobId {
        let known: Vec<JobId> = world.checks.acknowledged.iter().copied().collect();
        self.dice.pick(&known).copied().unwrap_or(JobId(1))
    }

    fn launcher(&mut self) -> (Manner, Program) {
        let secs = |dice: &mut Dice, least: u32, most: u32| {
            Span::from_millis(i64::from(dice.number(least * 1000, most * 1000)))
        };
        let code = *self.dice.pick(&[0, 0, 0, 4]).expect("there are four");
        let then = match self.dice.number(0, 9) {
            0..=3 => Then::Accepts { runs: secs(&mut self.dice, 0, 100), code },
            4..=6 => Then::Launches,
            7 => Then::FallsSilent,
            8 => Then::Vanishes,
            _ => Then::NeverRequests,
        };
        let manner = Manner {
            user: (*self.dice.pick(&USERS).expect("there are three")).to_owned(),
            sizes: Sizes { least: 1, most: self.dice.number(1, self.n_nodes) },
            on_one: secs(&mut self.dice, 5, 120),
            adapts_in: if self.dice.chance(50) { Span::ZERO } else { secs(&mut self.dice, 0, 8) },
            slice: self.slice(),
            then,
        };
        let runs = Some(secs(&mut self.dice, 0, 60));
        (manner, Program { runs, exit: NodeExit::Exited { code }, ..Program::default() })
    }

    /// Draws what a launcher's application takes of each node.
    fn slice(&mut self) -> Slice {
        let cores = *self.shares.pick(&[0, 1, 1, 2]).expect("there are four");
        let memory = *self.shares.pick(&[0, 1024]).expect("there are two");
        Slice { cores, memory: Mebibytes(memory), ..Slice::default() }
    }

    fn job(&mut self, now: Time) -> ModelJob {
        let secs = |dice: &mut Dice, least: u32, most: u32| {
            Span::from_millis(i64::from(dice.number(least * 1000, most * 1000)))
        };
        let wall = secs(&mut self.dice, 5, 90);
        let n_nodes = self.dice.number(1, self.n_nodes);
        let job = match self.dice.number(0, 9) {
            0 | 1 => rigid(n_nodes, wall),
            2 | 3 => self.evolving(),
            4..=6 => script(n_nodes, wall),
            7 | 8 => moldable(&[(n_nodes, wall), (1, wall + wall)]),
            _ => spanning(&[("a", self.dice.number(1, self.n_nodes)), ("b", 1)], wall),
        };
        let runs = secs(&mut self.dice, 0, 100);
        // Some programs are loaded from a slow file system.
        let slowest_start = if self.dice.chance(30) { 90 } else { 2 };
        let mut job = job.runs(runs).starts_after(secs(&mut self.dice, 0, slowest_start));
        let codes = [0, 0, 0, 1, 7];
        job = job.exits(*self.dice.pick(&codes).expect("there are five"));
        if self.dice.chance(10) {
            let node_idx = self.dice.number(0, n_nodes - 1);
            let exits = [
                NodeExit::Signaled { signal: 11 },
                NodeExit::Aborted { code: 3 },
                NodeExit::not_started("no such program"),
            ];
            let exit = self.dice.pick(&exits).expect("there are three").clone();
            job = job.on_node(node_idx, secs(&mut self.dice, 0, 60), exit);
        }
        if self.dice.chance(10) {
            job = job.ignores_term();
        }
        if self.dice.chance(40) {
            job = job.requeue();
        }
        if self.dice.chance(10) {
            job = job.held();
        }
        if self.dice.chance(10) {
            job = job.begin(now + secs(&mut self.dice, 1, 60));
        }
        job.by(self.dice.pick(&USERS).expect("there are three"))
    }

    /// Draws a job with some stages of some seconds.
    fn evolving(&mut self) -> ModelJob {
        let n_stages = self.dice.number(1, 5);
        let stages: Vec<(u32, Span)> = (0..n_stages).map(|_| self.stage()).collect();
        let limits = [ExpandLimit::NONE, ExpandLimit::Milli(1500), ExpandLimit::TWICE, ExpandLimit::Infinite];
        let job = evolving(&stages, *self.dice.pick(&limits).expect("there are four"));
        let job = if self.dice.chance(30) { job.compacting() } else { job };
        if self.dice.chance(50) { job.as_script() } else { job }
    }

    fn stage(&mut self) -> (u32, Span) {
        (self.dice.number(1, self.n_nodes), self.dice.span(Span::from_secs(1), Span::from_secs(30)))
    }

    fn call(&mut self, world: &mut World) -> Call {
        let some_job = self.some_job(world);
        let select = Select::Ids(vec![some_job]);
        let names: Vec<String> = world.nodes.iter().map(|node| node.name.clone()).collect();
        let nodes = vec![self.dice.pick(&names).expect("a world has nodes").clone()];
        match self.dice.number(0, 13) {
            0..=2 => {
                world.checks.cancel_ordered(some_job);
                Call::Cancel { select }
            }
            3 if self.shares.chance(70) => {
                let wall = self.shares.span(Span::from_millis(1), Span::from_secs(60));
                let changes = [WallChange::To(wall), WallChange::More(wall), WallChange::Less(wall)];
                let wall = self.shares.pick(&changes).copied();
                Call::Update { select, changes: Box::new(Changes { wall, ..Changes::default() }) }
            }
            3 => Call::Hold { select },
            4 => Call::Release { select },
            5 => Call::set_priority(select, self.dice.number(0, 3) as i32),
            6 => Call::Drain { nodes, reason: "maintenance".to_owned() },
            7 => Call::Down { nodes, reason: "broken".to_owned() },
            8 | 9 => Call::Resume { nodes },
            10 => Call::Remove { nodes },
            11 => Call::FreeNodes { job: some_job, nodes },
            12 => {
                let n_stages = self.dice.number(1, 3);
                let stages = (0..n_stages).map(|_| self.stage()).map(|(nodes, span)| Stage { nodes, span });
                let stages = Evolution::new(stages.collect()).expect("stages that can be");
                Call::Evolve { job: some_job, stages, open: self.dice.chance(50) }
            }
            _ => {
                let settings = [
                    ("fair_start", "0s"),
                    ("fair_start", "4s"),
                    ("resched_timer", "0s"),
                    ("resched_timer", "1s"),
                    ("queue_depth", "0"),
                    ("queue_depth", "3"),
                    ("queue_depth", "auto"),
                    ("view_share", "100"),
                    ("view_share", "40"),
                    ("fair_start@a", "7s"),
                    ("fair_start@b", "0s"),
                    ("fair_start@b", "default"),
                    ("launcher_policy", "run"),
                    ("launcher_policy", "end"),
                    ("launcher_grace", "15s"),
                    ("lost_policy", "fail"),
                    ("lost_policy", "requeue"),
                    ("kill_grace", "2s"),
                    ("release_grace", "3s"),
                    ("release_grace", "0s"),
                    ("node_lost_after", "2s"),
                    ("node_lost_after", "30s"),
                    ("policy", "views"),
                    ("policy", "fcfs"),
                    ("policy", "easy"),
                    ("policy", "conservative"),
                    ("policy", "slowdown"),
                    ("policy", "slowdown"),
                    ("policy", "slowdown"),
                    ("max_slowdown", "infinite"),
                    ("max_slowdown", "infinite"),
                    ("max_slowdown", "average"),
                    ("max_slowdown", "10"),
                    ("sharing_factor", "0.3"),
                    ("sharing_factor", "0.5"),
                    ("mix_free_nodes", "yes"),
                    ("mix_free_nodes", "no"),
                    ("weigh_nodes", "yes"),
                    ("weigh_nodes", "no"),
                    ("allocation", "nodes"),
                    ("allocation", "cores"),
                    ("allocation@a", "cores"),
                    ("allocation@a", "default"),
                ];
                let (key, value) = *self.dice.pick(&settings).expect("there are some");
                Call::Set { key: key.to_owned(), value: value.to_owned() }
            }
        }
    }

    /// Returns the last calls of the admins, so that everything can end.
    pub fn last_calls(&self, world: &World) -> Vec<Call> {
        // One by one: a node that has drained itself refuses it.
        let names = world.state().nodes().values().map(|node| node.name.clone());
        let resumes = names.map(|name| Call::Resume { nodes: vec![name] });
        let others = [
            Call::Release { select: Select::All },
            Call::Set { key: "queue_depth".to_owned(), value: "0".to_owned() },
            // Profiles that were admitted before nodes were shared wait for this.
            Call::Set { key: "allocation@a".to_owned(), value: "default".to_owned() },
            Call::Set { key: "allocation".to_owned(), value: "nodes".to_owned() },
        ];
        // A node that a job names may have been removed.
        let is_named = |(job, entry): (&JobId, &Job)| entry.spec.constraint.names_nodes().then_some(*job);
        let any_node = |job| Call::Update {
            select: Select::Ids(vec![job]),
            changes: Box::new(Changes {
                nodelist: Some(BTreeSet::new()),
                exclude: Some(BTreeSet::new()),
                ..Changes::default()
            }),
        };
        let named = world.state().jobs().iter().filter_map(is_named).map(any_node);
        resumes.chain(others).chain(named).collect()
    }
}

/// The users who submit.
const USERS: [&str; 3] = ["ann", "bob", "cid"];
/// The random stream of users.
const STREAM: u64 = 2;
const STREAM_OF_LOSSES: u64 = 11;
const STREAM_OF_SHARES: u64 = 12;
const STREAM_OF_PLACES: u64 = 16;
const STREAM_OF_PARTS: u64 = 17;
