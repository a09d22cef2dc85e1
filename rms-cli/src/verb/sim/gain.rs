//! `rms sim gain`: what malleable jobs gain over the same jobs without them, in one command.

use std::path::{Path, PathBuf};

use experiments::gain::{Metric, Nature, Row, Spread, Study, nbody};
use rms_model::error::chain;
use rms_model::{Policy, Span};
use rms_sim::batch::BatchError;
use rms_sim::workload::swf::TraceJob;
use serde_json::{Value, json};

use super::side_by_side;
use super::trace_file::{CleaningArgs, read_trace};
use crate::chart::{self, Chart, Panel};
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::output::Show;
use crate::table::Table;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Without a trace: jobs like the N-body applications of paper 002 on 16 nodes. A
malleable job can do with a quarter of the nodes that it asked for and has a use
for four times as many; its speed follows Amdahl's law (95.0 to 99.9 %
parallel), its wall time allows for its least size, and at each change it
pauses. All else is the server's: it starts malleable jobs with what is free,
offers them what is idle and asks them for what the first waiting job lacks.
Each seed makes other jobs malleable (and, without a trace, other jobs); what is
compared differs in nothing else.

Examples:
  rms sim gain --seeds 10 --svg gain.svg
  rms sim gain --trace SDSC-SP2-1998-4.2-cln.swf.gz --nodes 128 --jobs 2000 \\
      --seeds 5 --pause 60s")]
pub struct Args {
    /// Take the jobs from a file in the Standard Workload Format
    #[arg(long, value_name = "FILE", requires = "nodes")]
    trace: Option<PathBuf>,
    /// Nodes of the cluster, with a trace
    #[arg(long, value_name = "COUNT", requires = "trace", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    nodes: Option<u32>,
    #[command(flatten)]
    cleaning: CleaningArgs,
    /// Runs of each part
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Where chance begins; the same seed gives the same numbers
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Percents of malleable jobs; the first is what the others are compared with
    #[arg(long, value_name = "LIST", default_value = "0,20,50,100", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(0..=100))]
    parts: Vec<u32>,
    /// How long a job does nothing at each change of its nodes, as 10s
    #[arg(long, value_name = "SPAN", default_value = "10s")]
    pause: Span,
    /// Let malleable jobs choose the size to start with, and leave them at it: a part of the gain is that
    #[arg(long)]
    only_at_start: bool,
    /// Who may start before whom
    #[arg(long, value_name = "POLICY", default_value = "easy")]
    policy: Policy,
    /// How many waiting jobs a pass considers; 0 means all
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    depth: u32,
    /// Draw it
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<Exit, Failure> {
    let nature = Nature { pause: args.pause, ..Nature::default() };
    let parts = args.parts.clone();
    let only_at_start = args.only_at_start;
    let policy = args.policy;
    let mut study = Study { policy, queue_depth: args.depth, parts, nature, only_at_start, ..Study::default() };
    let mut title = format!("{} jobs like those of 002", args.n_jobs());
    let trace = match (&args.trace, args.nodes) {
        (Some(path), Some(nodes)) => {
            study.n_nodes = nodes;
            let cleaned = read_trace(path, nodes, &args.cleaning)?;
            title = format!("{} jobs of {}", cleaned.jobs.len(), name(path));
            Some(cleaned.jobs)
        }
        (Some(_), None) | (None, _) => None,
    };
    let workload = |seed: u64| -> Vec<TraceJob> {
        match &trace {
            Some(jobs) => jobs.clone(),
            None => nbody(args.n_jobs(), seed),
        }
    };
    let seeds: Vec<u64> = (args.seed..args.seed.saturating_add(args.seeds)).collect();
    let n_threads = std::thread::available_parallelism().map_or(1, Into::into);
    let ran = side_by_side::map(&seeds, n_threads, |seed| study.run(&[*seed], workload, || {}));
    let rows = merged(ran).map_err(|error| Failure::new("simulation", chain(&error)))?;
    let refused = rows.iter().flat_map(|row| &row.runs).map(|run| run.refused).max().unwrap_or(0);
    if refused > 0 {
        let problem =
            format!("{refused} jobs ask for more time than a job may have: use a shorter --pause than {}", args.pause);
        return Err(Failure::new("simulation", problem));
    }
    let changes = if only_at_start { "never changed".to_owned() } else { format!("{} a change", args.pause) };
    let title = format!("{title} on {} nodes, {}, {changes}", study.n_nodes, study.policy);
    let answer = GainAnswer { title, n_seeds: seeds.len(), rows };
    if let Some(path) = &args.svg {
        let failed = |error| Failure::io(format!("{} cannot be written", path.display()), error);
        std::fs::write(path, answer.chart().svg()).map_err(failed)?;
        context.output.note(&format!("written to {}", path.display()));
    }
    context.output.show(&answer)?;
    Ok(Exit::OK)
}

/// Returns the rows of all seeds, in the order of the seeds.
fn merged(ran: Vec<Result<Vec<Row>, BatchError>>) -> Result<Vec<Row>, BatchError> {
    let mut merged: Vec<Row> = Vec::new();
    for rows in ran {
        let rows = rows?;
        if merged.is_empty() {
            merged = rows;
        } else {
            merged.iter_mut().zip(rows).for_each(|(row, more)| row.runs.extend(more.runs));
        }
    }
    Ok(merged)
}

fn name(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

impl Args {
    fn n_jobs(&self) -> usize {
        self.cleaning.jobs.unwrap_or(JOBS)
    }
}

struct GainAnswer {
    title: String,
    n_seeds: usize,
    rows: Vec<Row>,
}

impl GainAnswer {
    fn chart(&self) -> Chart {
        let panel = |metric: Metric| {
            let value = |row: &Row| {
                let Spread { least, mean, most } = row.against(&self.rows[0], metric);
                chart::Value { low: 100.0 * least, middle: 100.0 * mean, high: 100.0 * most }
            };
            Panel {
                title: metric.name().to_owned(),
                x_label: "malleable jobs (%)".to_owned(),
                y_label: "% of that without".to_owned(),
                xs: self.rows.iter().map(|row| f64::from(row.malleable_pct)).collect(),
                curves: vec![self.rows.iter().map(value).collect()],
            }
        };
        Chart {
            title: "What malleable jobs gain".to_owned(),
            subtitle: format!("Lines: mean of {} runs; bands: from the least to the greatest.", self.n_seeds),
            legend: vec![self.title.clone()],
            panels: Metric::ALL.map(panel).into(),
        }
    }

    /// Returns the mean of the values, and their mean relative to the first row, with least and greatest.
    fn cell(&self, row: &Row, metric: Metric) -> String {
        let mean = row.spread(metric).mean;
        let value = match metric {
            Metric::Response | Metric::Wait | Metric::Makespan => format!("{mean:.0} s"),
            Metric::Slowdown => format!("{mean:.2}"),
            Metric::Utilisation => format!("{:.1} %", 100.0 * mean),
        };
        let Spread { least, mean, most } = row.against(&self.rows[0], metric);
        let change = |ratio: f64| 100.0 * (ratio - 1.0);
        format!("{value} ({:+.1}: {:+.1} to {:+.1} %)", change(mean), change(least), change(most))
    }
}

impl Show for GainAnswer {
    fn text(&self) -> String {
        let table = self.table().map(|table| table.text("")).unwrap_or_default();
        let n_seeds = self.n_seeds;
        format!(
            "{}\n{n_seeds} seeds; in brackets the change against the first row: mean, least and greatest\n\n{table}",
            self.title
        )
    }

    fn json(&self) -> Value {
        let spread = |spread: Spread| json!({ "least": spread.least, "mean": spread.mean, "most": spread.most });
        let rows = self.rows.iter().map(|row| {
            let of = |metric: Metric| {
                let relative = spread(row.against(&self.rows[0], metric));
                (metric.name().replace(' ', "_"), json!({ "value": spread(row.spread(metric)), "relative": relative }))
            };
            let metrics: serde_json::Map<String, Value> = Metric::ALL.into_iter().map(of).collect();
            json!({ "malleable_pct": row.malleable_pct, "metrics": metrics, "runs": row.runs })
        });
        json!({ "title": self.title, "rows": rows.collect::<Vec<_>>() })
    }

    fn ids(&self) -> Vec<String> {
        self.rows.iter().map(|row| row.malleable_pct.to_string()).collect()
    }

    fn table(&self) -> Option<Table> {
        let names: Vec<&str> = ["malleable"]
            .into_iter()
            .chain(Metric::ALL.map(Metric::name))
            .chain(["node-time", "changes", "killed"])
            .collect();
        let mut table = Table::new(&names);
        for row in &self.rows {
            let n_runs = row.runs.len().max(1) as f64;
            let node_time = row.runs.iter().map(|run| run.node_time).sum::<f64>() / n_runs;
            let changes = row.runs.iter().map(|run| run.mean_changes).sum::<f64>() / n_runs;
            let killed: usize = row.runs.iter().map(|run| run.killed).sum();
            let mut cells = vec![format!("{} %", row.malleable_pct)];
            cells.extend(Metric::ALL.map(|metric| self.cell(row, metric)));
            cells.extend([format!("{node_time:.2}"), format!("{changes:.1}"), killed.to_string()]);
            table.row(cells);
        }
        Some(table)
    }
}

/// Jobs of a run without a trace.
const JOBS: usize = 500;
