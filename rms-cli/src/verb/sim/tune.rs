//! `rms sim tune`: computes the waste-against-unfairness curve of 001 for the user's own jobs, and recommends settings.

use std::path::PathBuf;

use rms_model::error::chain;
use rms_model::settings::Depth;
use rms_model::{Policy, Settings, Span};
use rms_sim::batch::tune::{Advice, Interval, LEAST_RESAMPLES, Launchers, Point, Study, Sweep, Tuned};
use rms_sim::batch::{ClusterNodes, TraceJobs, Workload, uniform_nodes};
use serde_json::{Value, json};

use super::check_once;
use super::curve;
use super::journal_file;
use super::side_by_side;
use super::trace_file::{CleaningArgs, read_trace};
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::output::Show;
use crate::screen;
use crate::table::{Table, wrapped};

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Runs the workload under each pair of a fair-start delay and a re-scheduling
timer. Waste is what ghosts keep idle, as simulated. Unfairness is estimated:
the share of launchers that need longer to adapt than freed nodes are kept for
them; without launchers nobody needs the delay, and it does not count.

Differences may be due to chance, as the past happened only once. So the past is
cut into blocks (weeks if there are ten or more, else days, else less), and as
many of them are drawn repeatedly, with replacement, each with all jobs that
were submitted in it (a block bootstrap). Every pair runs on the same resamples.
The interval behind a ± holds in 95 % of such pasts. The differences to the
setting in force are paired, run by run; their intervals hold for all pairs
together (a studentized maximum), and around the past's own difference as well
as the mean of the resamples. A pair is 'better' or 'worse' only if its interval
excludes 0; 'no difference' is an answer. Blocks should be longer than the waits
of jobs. The same seed gives the same answer.

Examples:
  rms sim tune /var/lib/limber/server --svg curve.svg
  rms sim tune trace.swf.gz --nodes 128 --fair-start 0s,5s,10s,30s \\
      --timer 0s,1s --adaptation 20s --json")]
pub struct Args {
    /// Journal of a server, its data directory, or a trace (which needs --nodes)
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
    /// Maximum share of all node-time that ghosts may waste, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = percent, allow_negative_numbers = true)]
    most_waste: f64,
    /// Number of resamples of the past; more give more accurate intervals
    #[arg(long, value_name = "COUNT", default_value_t = Sweep::default().n_resamples, value_parser = clap::value_parser!(u64).range(LEAST_RESAMPLES..=10_000))]
    resamples: u64,
    /// Length of the blocks to resample; chosen by the length of the past if absent
    #[arg(long, value_name = "SPAN")]
    block: Option<Span>,
    /// Random seed; the same seed gives the same answer
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Setting to change from those of the server, or of a new one; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Write the curve to this SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| format!("'{text}' is no percentage: write a number from 0 to 100"))
}

pub(super) fn run(args: &Args, context: &Context) -> Result<Exit, Failure> {
    if args.block.is_some_and(|block| block <= Span::ZERO) {
        return Err(Failure::usage("--block: a block has some length: write a span like 1d"));
    }
    for (option, spans) in [("--fair-start", &args.fair_start), ("--timer", &args.timer)] {
        check_once(option, spans, Span::to_string)?;
    }
    let default = Sweep::default();
    let or = |given: &Vec<Span>, default: Vec<Span>| if given.is_empty() { default } else { given.clone() };
    let sweep = Sweep {
        fair_starts: or(&args.fair_start, default.fair_starts),
        resched_timers: or(&args.timer, default.resched_timers),
        longest_adaptation: args.adaptation,
        most_waste: args.most_waste / 100.0,
        n_resamples: args.resamples,
        seed: args.seed,
        block: args.block,
    };
    let tuned = match args.nodes {
        Some(nodes) => {
            let jobs = TraceJobs::new(read_trace(&args.workload, nodes, &args.cleaning)?.jobs);
            let base = Settings {
                policy: Policy::Views,
                queue_depth: Depth::All,
                max_wall: Span::MAX_WALL,
                max_jobs: u32::MAX,
                ..Settings::default()
            };
            let nodes = [uniform_nodes(nodes, args.cleaning.cores_per_node)];
            sweep_over(args, sweep, base, &nodes, &jobs, Launchers::default())?
        }
        None => {
            args.cleaning
                .check_unused(false)
                .map_err(|failure| failure.hint("a trace needs --nodes: how large the cluster is that runs it"))?;
            let journal = journal_file::read(&args.workload)
                .map_err(|failure| failure.hint("a trace needs --nodes: how large the cluster is that runs it"))?;
            sweep_over(args, sweep, journal.settings, &journal.nodes, &journal.jobs, journal.launchers)?
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

fn sweep_over<W: Workload + Sync>(
    args: &Args,
    sweep: Sweep,
    mut settings: Settings,
    nodes: &[ClusterNodes],
    workload: &W,
    launchers: Launchers,
) -> Result<Tuned, Failure> {
    journal_file::apply(&mut settings, &args.set, nodes)?;
    let study = Study::new(sweep, &settings, nodes, workload, launchers);
    let n_nodes = nodes.iter().map(|cluster| cluster.names.len()).sum();
    let n_threads = side_by_side::n_threads(workload.n_jobs(), n_nodes);
    let ran = side_by_side::map(&study.trials(), n_threads, |trial| study.run(trial));
    let figures = ran.into_iter().collect::<Result<Vec<_>, _>>();
    Ok(study.conclude(&figures.map_err(|error| Failure::new("simulation", chain(&error)))?))
}

struct TuneAnswer(Tuned);

impl TuneAnswer {
    /// Returns a row for each point, with the interval after each value.
    fn rows(&self) -> Table {
        let has_launchers = self.0.launchers.matter();
        let mut names = vec![">fair_start", ">timer", ">waste %"];
        names.extend(has_launchers.then_some(">unfair %"));
        names.extend([">wait s", ">less that in force", "verdict"]);
        let mut table = Table::new(&names);
        for point in &self.0.points {
            let Point { waste, mean_wait_s, difference_s, .. } = point;
            // A table of eighty columns has no room for all intervals; programs get all of them.
            let waste = match has_launchers {
                true => format!("{:.3}", 100.0 * waste.value),
                false => format!("{:.3} \u{b1}{:.3}", 100.0 * waste.value, 100.0 * waste.half()),
            };
            let mut row = vec![format!("{} s", point.fair_start_s), format!("{} s", point.resched_timer_s), waste];
            row.extend(has_launchers.then(|| format!("{:.0}", 100.0 * point.unfairness)));
            let decimals = usize::from(mean_wait_s.value.max(mean_wait_s.half()) < 100.0);
            row.push(format!("{:.decimals$} \u{b1}{:.decimals$}", mean_wait_s.value, mean_wait_s.half()));
            let decimals = usize::from(difference_s.low.abs().max(difference_s.high) < 100.0);
            let Interval { value, low, high } = difference_s;
            row.push(format!("{value:+.decimals$} ({low:+.decimals$} to {high:+.decimals$})"));
            row.push(point.verdict.words().to_owned());
            table.row(row);
        }
        table
    }

    /// Returns what was done, and for which launchers the settings matter.
    fn notes(&self) -> Vec<String> {
        let Tuned { launchers, resamples, seed, block_s, blocks, ref points, .. } = self.0;
        let last = seed.wrapping_add(resamples - 1);
        let block = Span::from_millis((block_s * 1000.0) as i64);
        let mut notes = vec![format!(
            "{resamples} resamples of the past in blocks of {block} ({blocks} of them have jobs), seeds {seed} to {last}; \
             \u{b1} and (to): 95 % intervals, those of differences for all rows together"
        )];
        match launchers {
            Launchers { known: 0, unknown: 0 } => notes.push(
                "the past had no launchers, for whom alone fair_start matters: without them it only keeps nodes idle"
                    .to_owned(),
            ),
            Launchers { known: 0, unknown } => notes.push(format!(
                "fair_start matters for launchers alone: the past had none as far as is known, but of {unknown} jobs it is \
                 not known any more"
            )),
            Launchers { known, unknown: _ } => notes.push(format!(
                "launchers spoke for {known} jobs of the past; in a replay they answer at once, so what the delay does for \
                 them is estimated"
            )),
        }
        if launchers.unknown > 0 {
            notes.push(format!(
                "of {} jobs a snapshot of the journal has replaced the submission: they run without the devices, licences, \
                 memory, constraints and priority that they may have asked for",
                launchers.unknown
            ));
        }
        let is_enough = self.0.answer != Advice::TooLittle;
        if is_enough && points.iter().any(|point| point.mean_wait_s.value > block_s) {
            notes.push(format!(
                "jobs wait for longer than a block of {block} lasts: the intervals may be too narrow; try a longer --block"
            ));
        }
        notes
    }

    fn words(&self) -> String {
        let Point { fair_start_s, resched_timer_s, .. } = self.0.recommended;
        let pair = format!("fair_start={fair_start_s}s resched_timer={resched_timer_s}s");
        let reason = &self.0.reason;
        match self.0.answer {
            Advice::Change => format!("recommended: {pair}: {reason}"),
            Advice::Keep => format!("keep {pair}: {reason}"),
            Advice::NoDifference => format!("no difference: keep {pair}; {reason}"),
            Advice::TooLittle => format!("too little past: keep {pair}; {reason}"),
        }
    }
}

impl Show for TuneAnswer {
    fn text(&self) -> String {
        let width = screen::table_width().unwrap_or(screen::PLAIN);
        let notes: String = self.notes().iter().map(|note| wrapped(note, width)).collect();
        format!("{}\n{notes}\n{}", self.rows().text("nothing was tried"), wrapped(&self.words(), width))
    }

    fn json(&self) -> Value {
        let Tuned { points, current, recommended, answer, reason, launchers, resamples, seed, block_s, blocks } =
            &self.0;
        json!({
            "points": points.iter().map(point).collect::<Vec<_>>(),
            "current": point(current),
            "recommended": point(recommended),
            "answer": answer,
            "reason": reason,
            "launchers": launchers,
            "notes": self.notes(),
            "method": {
                "resamples": resamples, "first_seed": seed, "block_s": block_s, "blocks": blocks, "confidence": 0.95,
            },
        })
    }

    fn ids(&self) -> Vec<String> {
        let Tuned { recommended, .. } = &self.0;
        vec![
            format!("fair_start={}s", recommended.fair_start_s),
            format!("resched_timer={}s", recommended.resched_timer_s),
        ]
    }

    fn table(&self) -> Option<Table> {
        let first = self.0.points.first().map(point)?;
        let names: Vec<&str> = first.as_object()?.keys().map(String::as_str).collect();
        let mut table = Table::new(&names);
        for value in self.0.points.iter().map(point) {
            let cells =
                value.as_object()?.values().map(|cell| cell.as_str().map_or_else(|| cell.to_string(), str::to_owned));
            table.row(cells.collect());
        }
        Some(table)
    }
}

/// Returns a point for programs; an interval is its lowest and its highest value.
fn point(point: &Point) -> Value {
    let ends = |interval: &Interval| json!([interval.low, interval.high]);
    let Point {
        fair_start_s,
        resched_timer_s,
        waste,
        ghost_node_s,
        unfairness,
        mean_wait_s,
        mean_bounded_slowdown,
        makespan_s,
        difference_s,
        verdict,
    } = point;
    json!({
        "fair_start_s": fair_start_s,
        "resched_timer_s": resched_timer_s,
        "waste": waste.value,
        "waste_95": ends(waste),
        "ghost_node_s": ghost_node_s,
        "unfairness": unfairness,
        "mean_wait_s": mean_wait_s.value,
        "mean_wait_s_95": ends(mean_wait_s),
        "mean_bounded_slowdown": mean_bounded_slowdown,
        "makespan_s": makespan_s,
        "difference_s": difference_s.value,
        "difference_s_95": ends(difference_s),
        "verdict": verdict,
    })
}
