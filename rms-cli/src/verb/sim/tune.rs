//! `rms sim tune`: the waste-against-unfairness curve of 001 for one's own jobs, and what to set.

use std::path::PathBuf;

use rms_model::{Policy, Settings, Span};
use rms_sim::batch::tune::{Sweep, Tuned, tune};
use rms_sim::batch::{TraceJobs, Workload, uniform_hosts};
use serde_json::{Value, json};

use super::curve;
use super::journal_file;
use super::progress::Progress;
use super::trace_file::{CleaningArgs, read_trace};
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::output::Show;
use crate::problem::chain;
use crate::table::Table;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Runs the workload once for each pair of a fair-start delay and a re-scheduling
timer. Waste is what ghosts keep idle, as simulated. Unfairness is estimated:
the share of launchers that need longer to adapt than freed hosts are kept for
them.

Examples:
  rms sim tune /var/lib/limber/server --svg curve.svg
  rms sim tune trace.swf.gz --nodes 128 --fair-start 0s,5s,10s,30s \\
      --timer 0s,1s --adaptation 20s --json")]
pub struct Args {
    /// The journal of a server, its data directory, or a trace (then --nodes is needed)
    #[arg(value_name = "JOURNAL|TRACE")]
    workload: PathBuf,
    /// Nodes of the cluster that runs the trace
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    nodes: Option<u32>,
    #[command(flatten)]
    cleaning: CleaningArgs,
    /// Fair-start delays to try, as 0s,10s
    #[arg(long, value_name = "SPANS", value_delimiter = ',')]
    fair_start: Vec<Span>,
    /// Re-scheduling timers to try
    #[arg(long, value_name = "SPANS", value_delimiter = ',')]
    timer: Vec<Span>,
    /// How long the slowest launcher takes to adapt to a new view
    #[arg(long, value_name = "SPAN", default_value = "10s")]
    adaptation: Span,
    /// The most of all host-time that ghosts may waste, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    most_waste: f64,
    /// Other settings than those of the server, or of a new one; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Write the curve to this file as a picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<Exit, Failure> {
    let default = Sweep::default();
    let or = |given: &Vec<Span>, default: Vec<Span>| if given.is_empty() { default } else { given.clone() };
    let sweep = Sweep {
        fair_starts: or(&args.fair_start, default.fair_starts),
        resched_timers: or(&args.timer, default.resched_timers),
        longest_adaptation: args.adaptation,
        most_waste: args.most_waste / 100.0,
    };
    let tuned = match args.nodes {
        Some(nodes) => {
            let jobs = TraceJobs::new(read_trace(&args.workload, nodes, &args.cleaning)?.jobs);
            let base = Settings {
                policy: Policy::Views,
                queue_depth: 0,
                max_wall: Span::MAX_WALL,
                max_jobs: u32::MAX,
                ..Settings::default()
            };
            sweep_over(args, &sweep, base, &[uniform_hosts(nodes, args.cleaning.cores_per_node)], &jobs)?
        }
        None => {
            let journal = journal_file::read(&args.workload)
                .map_err(|failure| failure.hint("a trace needs --nodes: how large the cluster is that runs it"))?;
            sweep_over(args, &sweep, journal.settings, &journal.hosts, &journal.jobs)?
        }
    };
    if let Some(file) = &args.svg {
        let written = std::fs::write(file, curve::svg(&tuned));
        written.map_err(|error| Failure::io(format!("{} cannot be written", file.display()), error))?;
        context.output.note(&format!("written to {}", file.display()));
    }
    context.output.show(&TuneAnswer(tuned))?;
    Ok(Exit::OK)
}

fn sweep_over<W: Workload>(
    args: &Args,
    sweep: &Sweep,
    mut settings: Settings,
    hosts: &[rms_sim::batch::Hosts],
    workload: &W,
) -> Result<Tuned, Failure> {
    journal_file::apply(&mut settings, &args.set)?;
    let n_runs = sweep.fair_starts.len() * sweep.resched_timers.len();
    let mut progress = Progress::new(n_runs * workload.n_jobs());
    tune(sweep, &settings, hosts, workload, |n_done| progress.at(n_done))
        .map_err(|error| Failure::new("simulation", chain(&error)))
}

struct TuneAnswer(Tuned);

impl TuneAnswer {
    fn rows(&self) -> Table {
        let mut table = Table::new(&[
            ">fair_start_s",
            ">resched_timer_s",
            ">waste_pct",
            ">ghost_host_s",
            ">unfairness_pct",
            ">mean_wait_s",
            ">mean_bounded_slowdown",
        ]);
        for point in &self.0.points {
            table.row(vec![
                point.fair_start_s.to_string(),
                point.resched_timer_s.to_string(),
                format!("{:.3}", 100.0 * point.waste),
                format!("{:.0}", point.ghost_host_s),
                format!("{:.0}", 100.0 * point.unfairness),
                format!("{:.1}", point.mean_wait_s),
                format!("{:.2}", point.mean_bounded_slowdown),
            ]);
        }
        table
    }
}

impl Show for TuneAnswer {
    fn text(&self) -> String {
        let Tuned { points: _, recommended, reason } = &self.0;
        format!(
            "{}\nrecommended: fair_start={}s resched_timer={}s\nbecause {reason}\n",
            self.rows().text("nothing was tried"),
            recommended.fair_start_s,
            recommended.resched_timer_s
        )
    }

    fn json(&self) -> Value {
        json!(self.0)
    }

    fn ids(&self) -> Vec<String> {
        let Tuned { recommended, .. } = &self.0;
        vec![
            format!("fair_start={}s", recommended.fair_start_s),
            format!("resched_timer={}s", recommended.resched_timer_s),
        ]
    }

    fn table(&self) -> Option<Table> {
        Some(self.rows())
    }
}
