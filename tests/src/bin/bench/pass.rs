//! Times one scheduling pass of the real core, in this process, when a job ends before a long queue.

use std::convert::Infallible;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rms_api::Call;
use rms_api::call::{Nodes, Shape, Submission};
use rms_api::desired::AgentHello;
use rms_api::desired::{JobReport, JobStatus, NodeExit, NodeReport};
use rms_core::{Config, Event, Fact, Journal, Rms, Step, Ticket};
use rms_model::settings::Depth;
use rms_model::{Generation, Identity, Inventory, Labels, Role, Settings, Span, Time, Usage, Work};

use crate::table::{Table, Target, quantile};

const N_NODES: u32 = 128;
const N_PASSES: usize = 15;
const SEED: u64 = 7;

pub fn table() -> Result<Table> {
    let mut table =
        Table::new("One scheduling pass when a job ends (128 nodes, sizes 1 to 64, 10 min to 24 h, no depth limit)");
    for n_waiting in [200, 2_000, 20_000] {
        let mut world = World::full(n_waiting)?;
        let mut starts: Vec<f64> = (0..N_PASSES).map(|_| world.end_a_job()).collect::<Result<_>>()?;
        let target = if n_waiting == 20_000 { Target::AtMost(50.0) } else { Target::Reference };
        let bound = "while a node stays free, every waiting job is placed, in a profile that grows with the queue";
        for (word, share) in [("median", 0.5), ("slowest", 1.0)] {
            let what = format!("{n_waiting} waiting, {word} of {N_PASSES} passes");
            table.measure(what, quantile(&mut starts, share), "ms", target, bound);
        }
        let begun = Instant::now();
        let n_estimates = world.rms.estimates(world.now).placements.len();
        table.note(format!("{n_waiting} waiting, {n_estimates} estimates for a view"), millis_since(begun), "ms");
    }
    Ok(table)
}

/// The core alone, at a time that stands.
pub struct World {
    pub rms: Rms,
    pub now: Time,
}

/// The pass is timed, not the disk.
pub struct Forgetful;

impl Journal for Forgetful {
    type Error = Infallible;

    fn append(&mut self, _facts: &[Fact]) -> Result<(), Infallible> {
        Ok(())
    }
}

impl World {
    pub fn of(settings: Settings, n_nodes: u32) -> World {
        let rms = Rms::new(Config { settings, ..Config::default() });
        let mut world = World { rms, now: Time::from_secs(1_000_000) };
        (0..n_nodes).for_each(|node_idx| world.handle(connected(node_idx)));
        world
    }

    /// All nodes are taken, and the queue is long.
    fn full(n_waiting: u32) -> Result<World> {
        let settings = Settings { queue_depth: Depth::All, ..Settings::default() };
        let mut world = World::of(settings, N_NODES);
        let mut random = ChaCha8Rng::seed_from_u64(SEED);
        // Single nodes fill the machine, so that each end frees one and the queue's head waits for more.
        for _ in 0..N_NODES {
            world.submit(1, Span::from_mins(random.random_range(10..1440)))?;
        }
        world.handle(Event::Tick);
        for _ in 0..n_waiting {
            let nodes = random.random_range(1..=64);
            world.submit(nodes, Span::from_mins(random.random_range(10..1440)))?;
        }
        world.handle(Event::Tick);
        let n_started = world.rms.state().nodes().len();
        if n_started != N_NODES as usize {
            bail!("only {n_started} nodes joined");
        }
        Ok(world)
    }

    fn submit(&mut self, n_nodes: u32, wall: Span) -> Result<()> {
        self.handle(submitted(n_nodes, wall)?);
        Ok(())
    }

    /// Reports the end of the oldest job that runs; the milliseconds of the pass that follows.
    fn end_a_job(&mut self) -> Result<f64> {
        self.now += Span::from_secs(1);
        let state = self.rms.state();
        let started = state.jobs().iter().find_map(|(id, job)| Some((*id, job.run, job.started()?)));
        let (job, run, started) = started.context("no job runs")?;
        let names: Vec<String> = started.nodes.iter().map(|node| state.nodes()[node].name.clone()).collect();
        for name in names {
            let exit = NodeExit::Exited { code: 0 };
            let status = JobStatus::Ended { at: self.now, exit, usage: Usage::default() };
            let report = NodeReport { seen: Generation(u64::MAX), jobs: vec![JobReport { job, run, status }] };
            self.handle(Event::AgentReported { name, report });
        }
        let begun = Instant::now();
        self.handle(Event::Tick);
        Ok(millis_since(begun))
    }

    pub fn handle(&mut self, event: Event) {
        let step: Step = self.rms.handle(self.now, event);
        match step.commit(&mut Forgetful) {
            Ok(_effects) => {}
            Err(uncommitted) => match uncommitted.error {},
        }
    }
}

/// An agent of cluster `a` that has just connected.
pub fn connected(node_idx: u32) -> Event {
    connected_with(node_idx, Inventory { cores: 8, cpus: 8, ..Inventory::default() })
}

/// The same of a node that has this.
pub fn connected_with(node_idx: u32, inventory: Inventory) -> Event {
    let address = format!("127.0.0.1:{}", 1000 + node_idx);
    let hello = AgentHello { cluster: "a".to_owned(), address, inventory, trouble: None };
    Event::AgentConnected { name: format!("a{node_idx}"), hello, report: NodeReport::default() }
}

/// A job that some user has just submitted.
pub fn submitted(n_nodes: u32, wall: Span) -> Result<Event> {
    submitted_as(submission(n_nodes, wall))
}

pub fn submitted_as(submission: Submission) -> Result<Event> {
    let who = Identity::new(Role::User, "bench").context("a valid name")?;
    Ok(Event::Called { ticket: Ticket(0), who, call: Call::Submit(Box::new(submission)) })
}

pub fn submission(n_nodes: u32, wall: Span) -> Submission {
    let shapes = vec![Shape { nodes: Nodes::Count(n_nodes), wall: Some(wall) }];
    Submission {
        labels: Labels::named("bench"),
        cpus_per_task: 1,
        ..Submission::of(Work::Tasks { argv: vec!["true".to_owned()] }, shapes)
    }
}

pub fn millis_since(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64() * 1000.0
}
