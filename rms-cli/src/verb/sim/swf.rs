//! `rms sim swf`: a trace through the server's own scheduler, in virtual time.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::ValueEnum;
use rms_model::error::chain;
use rms_model::{Allocation, Policy, Settings, Span};
use rms_sim::batch::{Batch, BatchError, Summary, TraceJobs, Workload, uniform_nodes};

use super::answer::{ComparedAnswer, RunAnswer, is_heat_json, write_heat};
use super::check_once;
use super::cost::Cost;
use super::progress::Progress;
use super::schedule::ScheduleFile;
use super::side_by_side;
use super::trace_file::TraceArgs;
use crate::context::Context;
use crate::failure::{Exit, Failure};

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Policies: views (FCFS, each pass plans the queue anew), fcfs (no job passes a
waiting one), easy (nothing delays the first waiting job), conservative (every
job keeps its reserved start), slowdown (as views, since no job of a trace
shares its cores: see rms sim sd). The same input gives the same output, except
for the computing times.

With several policies, each has a column; with --json, each is an object of a
list, with --parsable, a row. They run in parallel as far as processors and free
memory allow; peak_rss_mib is then that of all together.

Examples:
  rms sim swf SDSC-SP2-1998-4.2-cln.swf.gz --nodes 128 --policy easy
  rms sim swf RICC-2010-2.sept10k.swf.gz --nodes 1024 --cores-per-node 8 \\
      --field requested --policy conservative \\
      --depth 50 --interval 30s --json
  rms sim swf trace.swf --nodes 64 --policy easy,conservative,views
  rms sim swf --lublin 10000 --nodes 256 --policy easy
  rms sim swf trace.swf --nodes 64 --heat waits.svg
  rms sim swf trace.swf --nodes 64 --cores-per-node 16 --allocation cores \\
      --schedule ran.jsonl")]
pub struct Args {
    #[command(flatten)]
    trace: TraceArgs,
    /// Scheduling policy; several, as easy,conservative, run on the same jobs and are shown side by side
    #[arg(long, value_name = "POLICIES", default_value = "views", value_delimiter = ',')]
    policy: Vec<Policy>,
    /// Number of waiting jobs that a pass considers; 0 means all
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    depth: u32,
    /// Minimum time between two passes, as 30s
    #[arg(long, value_name = "SPAN", default_value = "0s", value_parser = super::interval)]
    interval: Span,
    /// Write a heat map of the waits by size and submit time to this file, as .svg or .json; with several policies, each to
    /// a file with the policy's name before the extension
    #[arg(long, value_name = "FILE")]
    heat: Option<PathBuf>,
    /// Allocate whole nodes, or cores: a job of P processors then gets as few nodes as hold them, and equally many
    /// cores of each
    #[arg(long, value_name = "WHAT", default_value = "nodes")]
    allocation: AllocationArg,
    /// Write the schedule to this file, one JSON object per line, in order of end; with several policies, each to a
    /// file with the policy's name before the extension
    #[arg(long, value_name = "FILE")]
    schedule: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum AllocationArg {
    Nodes,
    Cores,
}

impl From<AllocationArg> for Allocation {
    fn from(arg: AllocationArg) -> Allocation {
        match arg {
            AllocationArg::Nodes => Allocation::Nodes,
            AllocationArg::Cores => Allocation::Cores,
        }
    }
}

pub(super) fn run(args: &Args, context: &Context) -> Result<Exit, Failure> {
    check_once("--policy", &args.policy, Policy::to_string)?;
    check_outputs(args)?;
    let begun = Instant::now();
    let cost = Cost::now();
    let cleaned = args.trace.read()?;
    let n_dropped = cleaned.n_dropped;
    let jobs = TraceJobs::new(cleaned.jobs).allocated_by(args.allocation.into());
    let answer = |policy: Policy, summary: Summary, wall_s: f64, cost: Cost| RunAnswer {
        n_dropped: n_dropped + summary.figures.refused,
        wall_s,
        cost,
        title: format!("{}, {} nodes, {policy}", args.trace.title(), args.trace.nodes),
        has_ghosts: false,
        allocated: Some((args.allocation.into(), core_utilisation(args, &jobs, &summary))),
        summary,
    };
    if let [policy] = args.policy[..] {
        let mut progress = Progress::new(jobs.n_jobs());
        let file = args.schedule.as_deref();
        let summary = simulate(args, &jobs, policy, file, |n_done| progress.at(n_done))?;
        drop(progress);
        let answer = answer(policy, summary, begun.elapsed().as_secs_f64(), cost.until_now());
        if let Some(file) = &args.heat {
            write_heat(&answer, file, context)?;
        }
        context.output.show(&answer)?;
        return Ok(Exit::OK);
    }
    let n_threads = side_by_side::n_threads(jobs.n_jobs(), args.trace.nodes as usize);
    let ran = side_by_side::map(&args.policy, n_threads, |policy| {
        let (begun, cpu) = (Instant::now(), side_by_side::thread_cpu());
        let file = args.schedule.as_deref().map(|file| named(file, *policy));
        let summary = simulate(args, &jobs, *policy, file.as_deref(), |_| {})?;
        let cpu_s = (side_by_side::thread_cpu() - cpu).as_secs_f64();
        Ok((*policy, answer(*policy, summary, begun.elapsed().as_secs_f64(), Cost { cpu_s, ..Cost::default() })))
    });
    let mut runs = ran.into_iter().collect::<Result<Vec<_>, Failure>>()?;
    let Cost { peak_rss_mib, cpu_s: _ } = Cost::now();
    for (policy, run) in &mut runs {
        run.cost.peak_rss_mib = peak_rss_mib;
        if let Some(file) = &args.heat {
            write_heat(run, &named(file, *policy), context)?;
        }
    }
    context.output.show(&ComparedAnswer { runs })?;
    Ok(Exit::OK)
}

/// # Errors
/// A file would be written twice, or over the trace.
fn check_outputs(args: &Args) -> Result<(), Failure> {
    args.heat.as_deref().map(is_heat_json).transpose()?;
    // A file may have several names.
    let inode = |path: &Path| std::fs::metadata(path).ok().map(|known| (known.dev(), known.ino()));
    let trace = args.trace.trace.as_deref().and_then(inode);
    let mut outputs = BTreeSet::new();
    for file in args.heat.iter().chain(&args.schedule) {
        let files: Vec<PathBuf> = match &args.policy[..] {
            [_] => vec![file.clone()],
            policies => policies.iter().map(|policy| named(file, *policy)).collect(),
        };
        for file in files {
            if trace.is_some() && inode(&file) == trace {
                return Err(Failure::usage(format!("{} is the trace: write to another file", file.display())));
            }
            let path = canonical(&file).unwrap_or_else(|| file.clone());
            if !outputs.insert(path) {
                let both = format!("--heat and --schedule both write to {}", file.display());
                return Err(Failure::usage(both).hint("name a file for each"));
            }
        }
    }
    Ok(())
}

/// Returns the canonical path of a file, which need not exist. Returns `None` if its directory does not.
fn canonical(file: &Path) -> Option<PathBuf> {
    let new = || {
        let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some(std::fs::canonicalize(dir).ok()?.join(file.file_name()?))
    };
    std::fs::canonicalize(file).ok().or_else(new)
}

fn simulate(
    args: &Args,
    jobs: &TraceJobs,
    policy: Policy,
    schedule: Option<&Path>,
    progress: impl FnMut(usize),
) -> Result<Summary, Failure> {
    let mut schedule = schedule.map(|path| ScheduleFile::create(path, jobs)).transpose()?;
    let settings = Settings {
        policy,
        queue_depth: args.depth.into(),
        resched_timer: args.interval,
        max_wall: Span::MAX_WALL,
        max_jobs: u32::MAX,
        allocation: args.allocation.into(),
        ..Settings::default()
    };
    let nodes = uniform_nodes(args.trace.nodes, args.trace.cleaning.cores_per_node);
    let failed = |error: &dyn std::error::Error| Failure::new("simulation", format!("{policy}: {}", chain(error)));
    let batch = Batch::new(settings, &[nodes], jobs).map_err(|error| failed(&error))?;
    let Some(file) = &mut schedule else { return batch.run(progress).map_err(|error| failed(&error)) };
    let ran = batch.run_recorded(progress, |stretch| file.write(stretch));
    let summary = ran.map_err(|error| match error {
        BatchError::Record(error) => file.failure(&error),
        BatchError::Node { .. } | BatchError::Stuck { .. } => failed(&error),
    })?;
    schedule.map_or(Ok(()), ScheduleFile::close)?;
    Ok(summary)
}

/// Returns which part of all core-seconds until the last end the requested processors ran.
fn core_utilisation(args: &Args, jobs: &TraceJobs, summary: &Summary) -> f64 {
    let ran = std::iter::zip(jobs.jobs(), &summary.finished);
    let busy = ran.filter_map(|(job, ran)| Some(f64::from(job.n_procs) * ran.as_ref()?.run().as_secs_f64()));
    let n_cores = f64::from(args.trace.nodes) * f64::from(args.trace.cleaning.cores_per_node);
    let all = n_cores * summary.figures.makespan_s;
    if all > 0.0 { busy.sum::<f64>() / all } else { 0.0 }
}

/// Returns the file of a policy: `waits-easy.svg` for `waits.svg`.
fn named(file: &Path, policy: Policy) -> PathBuf {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let ending = file.extension().map_or_else(String::new, |ending| format!(".{}", ending.to_string_lossy()));
    file.with_file_name(format!("{stem}-{policy}{ending}"))
}
