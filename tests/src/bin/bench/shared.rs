//! Clusters whose nodes jobs share: how long a pass takes, and what the state takes of memory.

use std::time::Instant;

use anyhow::{Context, Result};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rms_api::Call;
use rms_api::call::{Nodes, Shape, Submission};
use rms_core::{Config, Event, Rms, Ticket};
use rms_model::{Identity, Inventory, Labels, Mebibytes, Outcome, Role, Settings, Span, Time, Work};

use crate::pass::{Forgetful, connected_with, millis_since};
use crate::process;
use crate::table::{Table, Target, quantile};

const N_NODES: u32 = 1_000;
const CORES: u32 = 64;
const N_PASSES: usize = 5;
const SEED: u64 = 7;

/// What a job wants of each of its nodes.
struct Ask {
    nodes: u32,
    cores: u32,
    wall: Span,
}

pub fn table() -> Result<Table> {
    let mut table = Table::new("Jobs that share nodes: 1,000 nodes of 64 cores, one job ends");
    // The others lay down everybody whom they consider, at each pass.
    for (policy, depth) in [("easy", 0), ("views", 1_000), ("conservative", 1_000)] {
        for (n_running, n_waiting) in [(1_000, 20_000), (20_000, 2_000)] {
            let mut world = World::full((policy, depth), n_running, n_waiting)?;
            let mut passes: Vec<f64> = (0..N_PASSES).map(|_| world.end_a_job()).collect::<Result<_>>()?;
            let depth = if depth == 0 { "any".to_owned() } else { depth.to_string() };
            let what =
                format!("{policy}, {n_running} running, {n_waiting} waiting, depth {depth}, median of {N_PASSES}");
            let bound = "who waits for as many cores as are free is looked at";
            table.measure(what, quantile(&mut passes, 0.5), "ms", Target::AtMost(50.0), bound);
        }
    }
    let before = resident()?;
    let n_jobs = N_NODES * CORES;
    let world = World::full(("easy", 0), n_jobs, 0)?;
    let what = format!("{n_jobs} single-core jobs running: memory of the state");
    table.note(what, resident()? - before, "MiB");
    drop(world);
    Ok(table)
}

fn resident() -> Result<f64> {
    let own = i32::try_from(std::process::id())?;
    process::resident_mib(own).context("the kernel does not say how much memory this process has")
}

/// A system whose cores are all taken, by so many jobs.
struct World {
    rms: Rms,
    now: Time,
}

impl World {
    fn full((policy, queue_depth): (&str, u32), n_running: u32, n_waiting: u32) -> Result<World> {
        let mut settings = Settings { queue_depth: queue_depth.into(), ..Settings::default() };
        for (key, value) in [("policy", policy), ("allocation", "cores"), ("max_jobs", "1000000")] {
            settings.set(key, value).with_context(|| format!("{key} = {value}"))?;
        }
        for limit in ["submit_limit", "job_limit", "script_limit"] {
            settings.set(limit, "none")?;
        }
        let rms = Rms::new(Config { settings, ..Config::default() });
        let mut world = World { rms, now: Time::from_secs(1_000_000) };
        let inventory = Inventory { cores: CORES, cpus: CORES, memory: Mebibytes(256 * 1024), ..Inventory::default() };
        (0..N_NODES).for_each(|node_idx| world.handle(connected_with(node_idx, inventory.clone())));
        let mut random = ChaCha8Rng::seed_from_u64(SEED);
        let mut wall = || Span::from_mins(random.random_range(10..1440));
        let cores = N_NODES * CORES / n_running;
        for _ in 0..n_running {
            world.submit(&Ask { nodes: 1, cores, wall: wall() })?;
        }
        // What is left of nodes that the jobs do not divide.
        for _ in 0..(CORES % cores) * N_NODES {
            world.submit(&Ask { nodes: 1, cores: 1, wall: wall() })?;
        }
        world.handle(Event::Tick);
        let mut random = ChaCha8Rng::seed_from_u64(SEED + 1);
        for _ in 0..n_waiting {
            let (nodes, cores) = (random.random_range(1..=16), random.random_range(1..=CORES));
            world.submit(&Ask { nodes, cores, wall: wall() })?;
        }
        world.handle(Event::Tick);
        Ok(world)
    }

    fn submit(&mut self, ask: &Ask) -> Result<()> {
        let shapes = vec![Shape { nodes: Nodes::Count(ask.nodes), wall: Some(ask.wall) }];
        let submission = Submission {
            labels: Labels::named("bench"),
            n_tasks: Some(ask.nodes),
            cpus_per_task: ask.cores,
            ..Submission::of(Work::Tasks { argv: vec!["true".to_owned()] }, shapes)
        };
        let who = Identity::new(Role::User, "bench").context("a valid name")?;
        self.handle(Event::Called { ticket: Ticket(0), who, call: Call::Submit(Box::new(submission)) });
        Ok(())
    }

    /// The oldest job that runs ends; the milliseconds of the pass that follows.
    fn end_a_job(&mut self) -> Result<f64> {
        self.now += Span::from_secs(1);
        let mut jobs = self.rms.state().jobs().iter();
        let (job, run) =
            jobs.find_map(|(job, entry)| entry.started().map(|_| (*job, entry.run))).context("no job runs")?;
        self.handle(Event::ApplicationDone { job, run, outcome: Outcome::Completed });
        let begun = Instant::now();
        self.handle(Event::Tick);
        Ok(millis_since(begun))
    }

    fn handle(&mut self, event: Event) {
        let step = self.rms.handle(self.now, event);
        match step.commit(&mut Forgetful) {
            Ok(_effects) => {}
            Err(uncommitted) => match uncommitted.error {},
        }
    }
}
