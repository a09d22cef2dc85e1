//! `rms sim swf`: a trace through the server's own scheduler, in virtual time.

use std::path::PathBuf;
use std::time::Instant;

use rms_model::{Policy, Settings, Span};
use rms_sim::batch::heat::HeatMap;
use rms_sim::batch::{Batch, Figures, Summary, TraceJobs, uniform_hosts};
use serde_json::{Value, json};

use super::cost::Cost;
use super::heat;
use super::progress::Progress;
use super::trace_file::TraceArgs;
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::output::Show;
use crate::problem::chain;
use crate::table::Table;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Policies: views (FCFS, each pass places the queue anew), fcfs (nothing passes a waiting job), easy (nothing delays the
first job that waits), conservative (every job keeps the start it was promised). The same input gives the same output,
but for the times that it took.

Examples:
  rms sim swf SDSC-SP2-1998-4.2-cln.swf.gz --nodes 128 --policy easy
  rms sim swf RICC-2010-2.sept10k.swf.gz --nodes 1024 --cores-per-node 8 --field requested --policy conservative \\
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
    /// The least time between two passes, as 30s; a bare number is seconds
    #[arg(long, value_name = "SPAN", default_value = "0s", value_parser = seconds)]
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
    let hosts = uniform_hosts(args.trace.nodes, args.trace.cores_per_node);
    let failed = |error: &dyn std::error::Error| Failure::new("simulation", chain(error));
    let batch = Batch::new(settings, &[hosts], &jobs).map_err(|error| failed(&error))?;
    let mut progress = Progress::new(jobs.jobs().len());
    let summary = batch.run(|n_done| progress.at(n_done)).map_err(|error| failed(&error))?;
    drop(progress);
    let answer = SwfAnswer {
        n_dropped: n_dropped + summary.figures.refused,
        wall_s: begun.elapsed().as_secs_f64(),
        cost: cost.until_now(),
        title: format!("{}, {} nodes, {}", args.trace.trace.display(), args.trace.nodes, args.policy),
        summary,
    };
    if let Some(file) = &args.heat {
        let map = answer.heat(HEAT_COLUMNS);
        let is_json = file.extension().is_some_and(|extension| extension == "json");
        let text = if is_json { format!("{}\n", json!(map)) } else { heat::svg(&map, &answer.title) };
        let written = std::fs::write(file, text);
        written.map_err(|error| Failure::io(format!("{} cannot be written", file.display()), error))?;
        context.output.note(&format!("written to {}", file.display()));
    }
    context.output.show(&answer)?;
    Ok(Exit::OK)
}

/// A span; a bare number is seconds, as traces and papers count.
pub(super) fn seconds(text: &str) -> Result<Span, rms_model::time::ParseSpanError> {
    match text.parse::<u32>() {
        Ok(secs) => Ok(Span::from_secs(i64::from(secs))),
        Err(_) => text.parse(),
    }
}

const HEAT_COLUMNS: usize = 60;

struct SwfAnswer {
    summary: Summary,
    n_dropped: usize,
    wall_s: f64,
    cost: Cost,
    title: String,
}

impl SwfAnswer {
    fn heat(&self, n_columns: usize) -> HeatMap {
        HeatMap::new(self.summary.finished.iter().flatten(), n_columns)
    }

    fn figures(&self) -> [(&'static str, f64); 12] {
        let Figures {
            jobs,
            refused: _,
            makespan_s,
            mean_wait_s,
            mean_response_s,
            mean_slowdown,
            mean_bounded_slowdown,
            utilisation,
            ghost_host_s: _,
        } = self.summary.figures;
        [
            ("jobs", jobs as f64),
            ("dropped", self.n_dropped as f64),
            ("makespan_s", makespan_s),
            ("mean_wait_s", mean_wait_s),
            ("mean_response_s", mean_response_s),
            ("mean_slowdown", mean_slowdown),
            ("mean_bounded_slowdown", mean_bounded_slowdown),
            ("utilisation", utilisation),
            ("wall_s", self.wall_s),
            ("cpu_s", self.cost.cpu_s),
            ("jobs_per_s", jobs as f64 / self.cost.cpu_s.max(1e-6)),
            ("peak_rss_mib", self.cost.peak_rss_mib),
        ]
    }
}

impl Show for SwfAnswer {
    fn text(&self) -> String {
        let mut table = Table::new(&["figure", ">value"]);
        for (name, value) in self.figures() {
            table.row(vec![name.to_owned(), number(value)]);
        }
        format!("{}\n{}", table.text(""), heat::blocks(&self.heat(HEAT_COLUMNS)))
    }

    fn json(&self) -> Value {
        let whole = |name: &str| name == "jobs" || name == "dropped";
        let value = |(name, value): (&str, f64)| {
            (name.to_owned(), if whole(name) { json!(value as u64) } else { json!(value) })
        };
        Value::Object(self.figures().into_iter().map(value).collect())
    }

    fn ids(&self) -> Vec<String> {
        self.figures().iter().map(|(_, value)| number(*value)).collect()
    }

    fn table(&self) -> Option<Table> {
        let figures = self.figures();
        let mut table = Table::new(&figures.map(|(name, _)| name));
        table.row(figures.iter().map(|(_, value)| value.to_string()).collect());
        Some(table)
    }
}

fn number(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}
