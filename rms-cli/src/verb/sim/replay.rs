//! `rms sim replay`: runs the jobs of a server's past again under other settings.

use std::path::PathBuf;
use std::time::Instant;

use rms_model::error::chain;
use rms_sim::batch::{Batch, ClusterNodes, Workload};

use super::against_past::ReplayAnswer;
use super::answer::{RunAnswer, is_heat_json, write_heat};
use super::cost::Cost;
use super::journal_file;
use super::progress::Progress;
use crate::context::Context;
use crate::failure::{Exit, Failure};

#[derive(clap::Args, Debug)]
#[command(after_help = "\
The journal is only read; the server may be running. Each job arrives when it
last became eligible (after holds and returns to the queue), keeps the size that
it ran with, its owner, priority, constraints, memory, devices and licences, and
runs for as long as it did. Nodes and settings are those of the server, but for
what --set changes. A key without a name (allocation=nodes) applies to all
clusters and users, also to those that have their own value;
allocation@a=nodes applies to cluster a.

Each figure is shown with the one from the history of the same jobs, and the
difference. Without --set, the difference is the error of the replay: nodes that
were away or drained and settings that have changed since are not replayed, nor
are jobs that no replay can run; those are counted below.

Examples:
  rms sim replay /var/lib/limber/server --set fair_start=10s
  rms sim replay /var/lib/limber/server --set policy=easy \\
      --set queue_depth=0 --json")]
pub struct Args {
    /// Journal of a server, or its data directory
    #[arg(value_name = "JOURNAL")]
    journal: PathBuf,
    /// Setting to try instead of the server's own; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Write a heat map of the waits by size and submit time to this file, as .svg or .json
    #[arg(long, value_name = "FILE")]
    heat: Option<PathBuf>,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<Exit, Failure> {
    args.heat.as_deref().map(is_heat_json).transpose()?;
    let begun = Instant::now();
    let cost = Cost::now();
    let mut journal = journal_file::read(&args.journal)?;
    journal_file::apply(&mut journal.settings, &args.set, &journal.nodes)?;
    let failed = |error: &dyn std::error::Error| Failure::new("simulation", chain(error));
    let mut progress = Progress::new(journal.jobs.n_jobs());
    let batch = Batch::new(journal.settings, &journal.nodes, &journal.jobs).map_err(|error| failed(&error))?;
    let summary = batch.run(|n_done| progress.at(n_done)).map_err(|error| failed(&error))?;
    drop(progress);
    let n_nodes = journal.nodes.iter().map(|nodes: &ClusterNodes| nodes.names.len() as u32).sum();
    let past = journal.jobs.past(&summary, n_nodes);
    let census = journal.jobs.census;
    let run = RunAnswer {
        n_dropped: census.cancelled_before_start + census.never_started + summary.figures.refused,
        wall_s: begun.elapsed().as_secs_f64(),
        cost: cost.until_now(),
        title: args.journal.display().to_string(),
        has_ghosts: true,
        allocated: None,
        summary,
    };
    if let Some(file) = &args.heat {
        write_heat(&run, file, context)?;
    }
    context.output.show(&ReplayAnswer { run, past, census })?;
    Ok(Exit::OK)
}
