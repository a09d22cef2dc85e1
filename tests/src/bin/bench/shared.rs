//! Clusters whose nodes jobs share: how long a pass takes, and what the state takes of memory.

use anyhow::{Context, Result};
use rms_api::call::Submission;
use rms_core::Event;
use rms_model::{Inventory, Mebibytes, Outcome, Settings, Span};
use test_kit::Dice;

use crate::process;
use crate::table::{Table, Target, quantile};
use crate::world::{World, inventory, submission};

const N_NODES: u32 = 1_000;
const CORES: u32 = 64;
const N_PASSES: usize = 5;
const SEED: u64 = 7;

pub fn table() -> Result<Table> {
    let mut table = Table::new("Jobs that share nodes: 1,000 nodes of 64 cores, one job ends");
    // The others lay down everybody whom they consider, at each pass.
    for (policy, depth) in [("easy", 0), ("views", 1_000), ("conservative", 1_000)] {
        for (n_running, n_waiting) in [(1_000, 20_000), (20_000, 2_000)] {
            let mut world = full((policy, depth), n_running, n_waiting)?;
            let mut passes: Vec<f64> = (0..N_PASSES).map(|_| end_a_job(&mut world)).collect::<Result<_>>()?;
            let depth = if depth == 0 { "any".to_owned() } else { depth.to_string() };
            let what =
                format!("{policy}, {n_running} running, {n_waiting} waiting, depth {depth}, median of {N_PASSES}");
            let bound = "who waits for as many cores as are free is looked at";
            table.measure(what, quantile(&mut passes, 0.5), "ms", Target::AtMost(50.0), bound);
        }
    }
    let before = resident()?;
    let n_jobs = N_NODES * CORES;
    let world = full(("easy", 0), n_jobs, 0)?;
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
fn full((policy, queue_depth): (&str, u32), n_running: u32, n_waiting: u32) -> Result<World> {
    let mut settings = Settings { queue_depth: queue_depth.into(), ..Settings::default() };
    for (key, value) in [("policy", policy), ("allocation", "cores"), ("max_jobs", "1000000")] {
        settings.set(key, value).with_context(|| format!("{key} = {value}"))?;
    }
    for limit in ["submit_limit", "job_limit", "script_limit"] {
        settings.set(limit, "none")?;
    }
    let inventory = Inventory { memory: Mebibytes(256 * 1024), ..inventory(CORES) };
    let mut world = World::of(settings, N_NODES, &inventory);
    let mut dice = Dice::new(SEED);
    let mut wall = || Span::from_mins(dice.number(10, 1439).into());
    let cores = N_NODES * CORES / n_running;
    for _ in 0..n_running {
        world.submit(of_cores(1, cores, wall()))?;
    }
    // What is left of nodes that the jobs do not divide.
    for _ in 0..(CORES % cores) * N_NODES {
        world.submit(of_cores(1, 1, wall()))?;
    }
    world.pass();
    let mut dice = Dice::new(SEED + 1);
    for _ in 0..n_waiting {
        let (nodes, cores) = (dice.number(1, 16), dice.number(1, CORES));
        world.submit(of_cores(nodes, cores, wall()))?;
    }
    world.pass();
    Ok(world)
}

/// A job that wants so many cores of each of its nodes.
fn of_cores(nodes: u32, cores: u32, wall: Span) -> Submission {
    Submission { n_tasks: Some(nodes), cpus_per_task: cores, ..submission(nodes, wall) }
}

/// Ends the oldest job that runs. Returns the milliseconds of the pass that follows.
fn end_a_job(world: &mut World) -> Result<f64> {
    world.now += Span::from_secs(1);
    let (job, run) = world.first_running()?;
    world.handle(Event::ApplicationDone { job, run, outcome: Outcome::Completed });
    Ok(world.pass())
}
