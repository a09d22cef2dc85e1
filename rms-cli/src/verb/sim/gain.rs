//! `rms sim gain`: compares malleable jobs with the same jobs without malleability, in one command.

use std::path::{Path, PathBuf};

use experiments::gain::{Measured, Metric, Nature, Row, Spread, Study, nbody};
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
use crate::screen;
use crate::table::Table;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Without a trace: jobs like the N-body applications of paper 002 on 16 nodes. A
malleable job can run on a quarter of the nodes that it asked for and can use
four times as many; its speed follows Amdahl's law (95.0 to 99.9 % parallel),
its wall time allows for its minimum size, and it pauses at each change. All
else is up to the server: it starts malleable jobs with the nodes that are free,
offers them idle nodes, and asks them for those that the first waiting job
lacks. Each seed makes other jobs malleable (and, without a trace, draws other
jobs); the runs that are compared differ in nothing else.

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
    /// Runs for each percentage of malleable jobs
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Random seed; the same seed gives the same numbers
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Percentages of malleable jobs; the others are compared with the first
    #[arg(long, value_name = "LIST", default_value = "0,20,50,100", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(0..=100))]
    parts: Vec<u32>,
    /// How long a job pauses at each change of its nodes, as 10s
    #[arg(long, value_name = "SPAN", default_value = "10s")]
    pause: Span,
    /// Let malleable jobs choose only the size to start with, to show how much of the gain comes from that
    #[arg(long)]
    only_at_start: bool,
    /// Scheduling policy
    #[arg(long, value_name = "POLICY", default_value = "easy")]
    policy: Policy,
    /// Number of waiting jobs that a pass considers; 0 means all
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    depth: u32,
    /// Draw the gain to this SVG file
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
        (Some(_), None) | (None, _) => {
            args.cleaning.check_unused(true)?;
            None
        }
    };
    let workload = |seed: u64| -> Vec<TraceJob> {
        match &trace {
            Some(jobs) => jobs.clone(),
            None => nbody(args.n_jobs(), seed),
        }
    };
    let seeds: Vec<u64> = (0..args.seeds).map(|idx| args.seed.wrapping_add(idx)).collect();
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
            subtitle: match self.n_seeds {
                1 => "One run.".to_owned(),
                n_seeds => format!("Lines: mean of {n_seeds} runs; bands: from the least to the greatest."),
            },
            legend: vec![self.title.clone()],
            panels: Metric::ALL.map(panel).into(),
        }
    }

    /// Returns the mean of the values, with its unit.
    fn mean(row: &Row, metric: Metric) -> String {
        let mean = row.spread(metric).mean;
        match metric {
            Metric::Response | Metric::Wait | Metric::Makespan => format!("{mean:.0} s"),
            Metric::Slowdown => format!("{mean:.2}"),
            Metric::Utilisation => format!("{:.1} %", 100.0 * mean),
        }
    }

    /// Returns the changes against the first row, in percent: mean, least and greatest.
    fn changes(&self, row: &Row, metric: Metric) -> [String; 3] {
        let Spread { least, mean, most } = row.against(&self.rows[0], metric);
        [mean, least, most].map(|ratio| format!("{:+.1}", 100.0 * (ratio - 1.0)))
    }

    /// Returns the mean of the values, and their changes against the first row.
    fn cell(&self, row: &Row, metric: Metric) -> String {
        let [mean, least, most] = self.changes(row, metric);
        format!("{} ({mean}: {least} to {most} %)", GainAnswer::mean(row, metric))
    }

    /// Returns a table with a row for each figure and part of malleable jobs, which fits a terminal.
    fn by_figure(&self) -> Table {
        let mut table = Table::new(&["figure", ">malleable", ">mean", ">change", ">least", ">greatest"]);
        let percent = |change: String| format!("{change} %");
        for metric in Metric::ALL {
            for (idx, row) in self.rows.iter().enumerate() {
                let name = if idx == 0 { metric.name() } else { "" };
                let first = [name.to_owned(), format!("{} %", row.malleable_pct), GainAnswer::mean(row, metric)];
                let changes = match idx {
                    0 => [(); 3].map(|()| String::new()),
                    _ => self.changes(row, metric).map(percent),
                };
                table.row(first.into_iter().chain(changes).collect());
            }
        }
        for (name, of) in COSTS {
            for (idx, row) in self.rows.iter().enumerate() {
                let name = if idx == 0 { name } else { "" };
                let cells = [name.to_owned(), format!("{} %", row.malleable_pct), of(row)];
                table.row(cells.into_iter().chain([(); 3].map(|()| String::new())).collect());
            }
        }
        table
    }
}

/// The name of a figure, and its value for a part of malleable jobs.
type Cost = (&'static str, fn(&Row) -> String);

/// The costs of changing the jobs: node-time relative to that without changes, changes per malleable job, killed jobs.
const COSTS: [Cost; 3] = [
    ("node-time", |row| format!("{:.2}", mean_of(row, |run| run.node_time))),
    ("changes", |row| format!("{:.1}", mean_of(row, |run| run.mean_changes))),
    ("killed", |row| row.runs.iter().map(|run| run.killed).sum::<usize>().to_string()),
];

fn mean_of(row: &Row, value: impl Fn(&Measured) -> f64) -> f64 {
    row.runs.iter().map(value).sum::<f64>() / row.runs.len().max(1) as f64
}

impl Show for GainAnswer {
    fn text(&self) -> String {
        let (n_seeds, seeds) = (self.n_seeds, if self.n_seeds == 1 { "seed" } else { "seeds" });
        let head = format!(
            "{}\n{n_seeds} {seeds}; changes are against the first row of a figure: mean, least and greatest\n\n",
            self.title
        );
        screen::folded(&head, 0) + &self.by_figure().text("")
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
        let names: Vec<&str> =
            ["malleable"].into_iter().chain(Metric::ALL.map(Metric::name)).chain(COSTS.map(|(name, _)| name)).collect();
        let mut table = Table::new(&names);
        for row in &self.rows {
            let mut cells = vec![format!("{} %", row.malleable_pct)];
            cells.extend(Metric::ALL.map(|metric| self.cell(row, metric)));
            cells.extend(COSTS.map(|(_, of)| of(row)));
            table.row(cells);
        }
        Some(table)
    }
}

/// The jobs of a run without a trace.
const JOBS: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::tests::fits;

    #[test]
    fn every_change_can_be_read_on_a_terminal() {
        let rows = Study::default().run(&[1], |seed| nbody(40, seed), || {}).expect("all end");
        let answer = GainAnswer { title: "40 jobs".to_owned(), n_seeds: 1, rows };
        let text = fits(80, || answer.text());
        assert!(text.contains("\n1 seed;") && !text.contains('…'), "{text}");
        // Mean, least and greatest of one seed are the same.
        let change = 100.0 * (answer.rows[3].against(&answer.rows[0], Metric::Response).mean - 1.0);
        assert!(text.contains(&format!("{change:+.1} %")), "{text}");
        for name in ["bounded slowdown", "100 %", "node-time", "killed"] {
            assert!(text.contains(name), "{name}: {text}");
        }
    }
}
