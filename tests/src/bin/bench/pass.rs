//! Times one scheduling pass of the real core, in this process, when a job ends before a long queue.

use std::time::Instant;

use anyhow::{Result, bail};
use rms_api::desired::{JobReport, JobStatus, NodeExit, NodeReport};
use rms_core::Event;
use rms_model::settings::Depth;
use rms_model::{Generation, Settings, Span, Usage};
use test_kit::Dice;

use crate::table::{Table, Target, quantile};
use crate::world::{World, inventory, submission};

const N_NODES: u32 = 128;
const N_PASSES: usize = 15;
const SEED: u64 = 7;

pub fn table() -> Result<Table> {
    let mut table =
        Table::new("One scheduling pass when a job ends (128 nodes, sizes 1 to 64, 10 min to 24 h, no depth limit)");
    for n_waiting in [200, 2_000, 20_000] {
        let mut world = full(n_waiting)?;
        let mut starts: Vec<f64> = (0..N_PASSES).map(|_| end_a_job(&mut world)).collect::<Result<_>>()?;
        let target = if n_waiting == 20_000 { Target::AtMost(50.0) } else { Target::Reference };
        let bound = "while a node stays free, every waiting job is placed, in a profile that grows with the queue";
        for (word, share) in [("median", 0.5), ("slowest", 1.0)] {
            let what = format!("{n_waiting} waiting, {word} of {N_PASSES} passes");
            table.measure(what, quantile(&mut starts, share), "ms", target, bound);
        }
        let begun = Instant::now();
        let n_estimates = world.rms.estimates(world.now).placements.len();
        let millis = begun.elapsed().as_secs_f64() * 1000.0;
        table.note(format!("{n_waiting} waiting, {n_estimates} estimates for a view"), millis, "ms");
    }
    Ok(table)
}

/// All nodes are taken, and the queue is long.
fn full(n_waiting: u32) -> Result<World> {
    let settings = Settings { queue_depth: Depth::All, ..Settings::default() };
    let mut world = World::of(settings, N_NODES, &inventory(8));
    let mut dice = Dice::new(SEED);
    // Single nodes fill the machine, so that each end frees one and the queue's head waits for more.
    for _ in 0..N_NODES {
        world.submit(submission(1, Span::from_mins(dice.number(10, 1439).into())))?;
    }
    world.pass();
    for _ in 0..n_waiting {
        let nodes = dice.number(1, 64);
        world.submit(submission(nodes, Span::from_mins(dice.number(10, 1439).into())))?;
    }
    world.pass();
    let n_started = world.rms.state().nodes().len();
    if n_started != N_NODES as usize {
        bail!("only {n_started} nodes joined");
    }
    Ok(world)
}

/// Reports the end of the oldest job that runs. Returns the milliseconds of the pass that follows.
fn end_a_job(world: &mut World) -> Result<f64> {
    world.now += Span::from_secs(1);
    let (job, run) = world.first_running()?;
    let state = world.rms.state();
    let names: Vec<String> = state.jobs()[&job].nodes().iter().map(|node| state.nodes()[node].name.clone()).collect();
    for name in names {
        let exit = NodeExit::Exited { code: 0 };
        let status = JobStatus::Ended { at: world.now, exit, usage: Usage::default() };
        let report = NodeReport { seen: Generation(u64::MAX), jobs: vec![JobReport { job, run, status }] };
        world.handle(Event::AgentReported { name, report });
    }
    Ok(world.pass())
}
