//! `rms sim swf`: a trace through the server's own scheduler, in virtual time.

use std::path::PathBuf;
use std::time::Instant;

use rms_model::{Policy, Settings, Span};
use rms_sim::batch::{Batch, TraceJobs, uniform_hosts};

use super::answer::{RunAnswer, write_heat};
use super::cost::Cost;
use super::progress::Progress;
use super::trace_file::TraceArgs;
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::problem::chain;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Policies: views (FCFS, each pass places the queue anew), fcfs (nothing passes a
waiting job), easy (nothing delays the first job that waits), conservative
(every job keeps the start it was promised). The same input gives the same
output, but for the times that it took.

Examples:
  rms sim swf SDSC-SP2-1998-4.2-cln.swf.gz --nodes 128 --policy easy
  rms sim swf RICC-2010-2.sept10k.swf.gz --nodes 1024 --cores-per-node 8 \\
      --field requested --policy conservative \\
      --depth 50 --interval 30s --json
  rms sim swf trace.swf --nodes 64 --heat waits.svg")]
pub struct Args {
    #[command(flatten)]
    trace: TraceArgs,
    /// Who may start before whom
    #[arg(long, value_name = "POLICY", default_value = "views")]
    policy: Policy,
    /// How many waiting jobs a pass considers; 0 means all
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    depth: u32,
    /// The least time between two passes, as 30s
    #[arg(long, value_name = "SPAN", default_value = "0s")]
    interval: Span,
    /// Write how jobs fared by size and time to this file, as a picture (.svg) or as .json
    #[arg(long, value_name = "FILE")]
    heat: Option<PathBuf>,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<Exit, Failure> {
    let begun = Instant::now();
    let cost = Cost::now();
    let cleaned = args.trace.read()?;
    let n_dropped = cleaned.n_dropped;
    let jobs = TraceJobs::new(cleaned.jobs);
    let settings = Settings {
        policy: args.policy,
        queue_depth: args.depth,
        resched_timer: args.interval,
        max_wall: Span::MAX_WALL,
        max_jobs: u32::MAX,
        ..Settings::default()
    };
    let hosts = uniform_hosts(args.trace.nodes, args.trace.cleaning.cores_per_node);
    let failed = |error: &dyn std::error::Error| Failure::new("simulation", chain(error));
    let batch = Batch::new(settings, &[hosts], &jobs).map_err(|error| failed(&error))?;
    let mut progress = Progress::new(jobs.jobs().len());
    let summary = batch.run(|n_done| progress.at(n_done)).map_err(|error| failed(&error))?;
    drop(progress);
    let answer = RunAnswer {
        n_dropped: n_dropped + summary.figures.refused,
        wall_s: begun.elapsed().as_secs_f64(),
        cost: cost.until_now(),
        title: format!("{}, {} nodes, {}", args.trace.trace.display(), args.trace.nodes, args.policy),
        has_ghosts: false,
        summary,
    };
    if let Some(file) = &args.heat {
        write_heat(&answer, file, context)?;
    }
    context.output.show(&answer)?;
    Ok(Exit::OK)
}
