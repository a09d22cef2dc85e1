//! `rms sim views`: the evaluation of paper 001 in one command, its figures, and its claims about them.

use std::path::{Path, PathBuf};

use experiments::delegated;
use experiments::views::{Assumption, Case, Claim, Effort, Figure, Logs, Report, Values};
use rms_model::error::chain;
use rms_sim::workload::swf::Trace;
use serde_json::{Value, json};

use super::figures;
use super::shares::{self, Shares};
use super::side_by_side;
use super::trace_file;
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::output::Show;
use crate::screen;
use crate::table::Table;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Model launchers select resources from the views that the server sends them, with
the scheduling functions of the SDK; for comparison, a server is given every
size of each application at once, as with OAR. The server is the real one, in
virtual time. Each point of a figure is the mean over the seeds, with minimum
and maximum.

Examples:
  rms sim views --quick                    every figure with few points and few
                                           jobs, as a quick check
  rms sim views --figure 9 --seeds 5 --out figures
  rms sim views --out figures --trace LLNL-Atlas-2006-2.1-cln.swf.gz --json
  rms sim views --figure 10 --assume order=subscription
  rms sim views --view-shares 100,50,25    what it costs if an application may
                                           choose from a share of each cluster")]
pub struct Args {
    /// Figure to compute: 7 to 11, or all
    #[arg(long, value_name = "NUMBER", default_value = "all")]
    figure: Which,
    /// Runs of each point, each with a seed of its own
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: u32,
    /// Random seed; the same seed gives the same numbers
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Write the figures (SVG), the numbers (figures.json) and the computing times (timing.json) to this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Log to use instead of the first 200 jobs of LLNL Atlas; Figure 10 takes its jobs from anywhere in it
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Change one of the assumptions: complex=0.1 (size of the complex application), order=subscription (of the queue),
    /// operations=search (count no views), jobs=uncut (leave out larger ones), view-share=50 (of each cluster)
    #[arg(long, value_name = "WHAT")]
    assume: Option<Assumption>,
    /// Print a table instead of figures: by the share of each cluster that an application may choose from, in percent
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', conflicts_with_all = ["figure", "out", "trace", "assume"],
        value_parser = clap::value_parser!(u32).range(1..=100))]
    view_shares: Vec<u32>,
    /// Use few points and few jobs, too few to judge the claims by
    #[arg(long)]
    quick: bool,
    /// Parallel runs; one per CPU if absent
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
}

#[derive(Clone, Copy, Debug)]
enum Which {
    One(Figure),
    All,
}

impl std::str::FromStr for Which {
    type Err = experiments::views::UnknownFigure;

    fn from_str(text: &str) -> Result<Which, Self::Err> {
        if text == "all" { Ok(Which::All) } else { text.parse().map(Which::One) }
    }
}

pub(super) fn run(args: &Args, context: &Context) -> Result<Exit, Failure> {
    let n_threads = args.threads.map(usize::from).or_else(|| std::thread::available_parallelism().ok().map(Into::into));
    let n_threads = n_threads.unwrap_or(1);
    if !args.view_shares.is_empty() {
        let (percents, n_seeds, first_seed, quick) = (&args.view_shares, args.seeds, args.seed, args.quick);
        return shares::run(&Shares { percents, n_seeds, first_seed, quick, n_threads }, context);
    }
    let logs = match &args.trace {
        Some(path) => read(path, args.assume)?,
        None => Logs::of(&delegated::first_log(), args.assume),
    };
    let effort = Effort { n_seeds: args.seeds, first_seed: args.seed, quick: args.quick };
    let chosen: Vec<Figure> = match args.figure {
        Which::One(figure) => vec![figure],
        Which::All => Figure::ALL.into(),
    };
    if let Some(dir) = &args.out {
        let failed = |error| Failure::io(format!("{} cannot be made", dir.display()), error);
        std::fs::create_dir_all(dir).map_err(failed)?;
    }
    let mut reports = Vec::new();
    for figure in chosen {
        let cases = figure.cases(effort, args.assume);
        let run = |case: &Case| case.run(&logs, &mut side_by_side::thread_cpu).map(|values| (*case, values));
        let ran = side_by_side::map(&cases, n_threads, run);
        let ran: Vec<(Case, Values)> =
            ran.into_iter().collect::<Result<_, _>>().map_err(|error| Failure::new("experiment", chain(&error)))?;
        reports.push(Report::new(figure, effort, &ran));
    }
    let answer = ViewsAnswer { effort, n_cut: logs.first.n_cut, n_jobs: logs.first.jobs.len(), reports };
    if let Some(dir) = &args.out {
        answer.write(dir)?;
        context.output.note(&format!("written to {}", dir.display()));
    }
    context.output.show(&answer)?;
    Ok(Exit::OK)
}

fn read(path: &Path, assumption: Option<Assumption>) -> Result<Logs, Failure> {
    let failed = |error: &dyn std::error::Error| Failure::new("trace", format!("{}: {}", path.display(), chain(error)));
    let file = trace_file::open(path).map_err(|error| failed(&error))?;
    let log = Trace::read(file).map_err(|error| failed(&error))?;
    let logs = Logs::of(&log, assumption);
    if logs.whole.is_empty() {
        return Err(Failure::new("trace", format!("{}: no job in it has ever run", path.display())));
    }
    Ok(logs)
}

struct ViewsAnswer {
    effort: Effort,
    n_jobs: usize,
    /// The number of jobs that are larger than a cluster.
    n_cut: usize,
    reports: Vec<Report>,
}

impl ViewsAnswer {
    fn claims(&self) -> Vec<Claim> {
        self.reports.iter().flat_map(Report::claims).collect()
    }

    fn write(&self, dir: &Path) -> Result<(), Failure> {
        let write = |name: String, text: String| {
            let path = dir.join(name);
            let failed = |error| Failure::io(format!("{} cannot be written", path.display()), error);
            std::fs::write(&path, text).map_err(failed)
        };
        for report in &self.reports {
            for (name, picture) in figures::draw(report) {
                write(name, picture)?;
            }
        }
        write("figures.json".to_owned(), format!("{:#}\n", self.json()))?;
        let timing: Vec<Value> = self.reports.iter().map(|report| json!(report.timing())).collect();
        write("timing.json".to_owned(), format!("{:#}\n", json!({ "figures": timing })))
    }
}

impl Show for ViewsAnswer {
    fn text(&self) -> String {
        let Effort { n_seeds, first_seed, quick } = self.effort;
        let runs = if n_seeds == 1 { "run" } else { "runs" };
        let mut text = format!(
            "{n_seeds} {runs} of each point from seed {first_seed}; {} of the first {} jobs are larger than a cluster and cut to it\n",
            self.n_cut, self.n_jobs
        );
        if quick {
            text += "quick: too few jobs to judge the claims by\n";
        }
        let mut table = Table::new(&[">figure", "001 says", "here", "holds"]);
        for claim in self.claims() {
            let holds = if claim.holds { "yes" } else { "no" };
            table.row(vec![claim.figure.to_string(), claim.paper.to_owned(), claim.ours, holds.to_owned()]);
        }
        text += "\n";
        text = screen::folded(&text, 0) + &table.text("no claims");
        let failed: Vec<Claim> = self.claims().into_iter().filter(|claim| !claim.holds).collect();
        for Claim { figure, paper, why, .. } in failed {
            if let Some(why) = why {
                text += &screen::folded(&format!("\nFigure {figure}, \"{paper}\": {why}\n"), 0);
            }
        }
        text
    }

    fn json(&self) -> Value {
        json!({
            "jobs": self.n_jobs,
            "jobs_cut_to_a_cluster": self.n_cut,
            "figures": self.reports,
            "claims": self.claims(),
        })
    }

    fn ids(&self) -> Vec<String> {
        self.reports.iter().map(|report| report.figure.to_string()).collect()
    }

    fn table(&self) -> Option<Table> {
        let mut table = Table::new(&["figure", "paper", "ours", "holds", "why"]);
        for Claim { figure, paper, ours, holds, why } in self.claims() {
            let why = why.unwrap_or_default().to_owned();
            table.row(vec![figure.to_string(), paper.to_owned(), ours, holds.to_string(), why]);
        }
        Some(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::tests::fits;

    #[test]
    fn what_it_says_fits_a_terminal() {
        let logs = Logs::of(&delegated::first_log(), None);
        let effort = Effort { n_seeds: 1, first_seed: 1, quick: true };
        let mut clock = || std::time::Duration::ZERO;
        let ran = Figure::Eight.cases(effort, None).into_iter();
        let ran: Vec<(Case, Values)> = ran.map(|case| (case, case.run(&logs, &mut clock).expect("it ends"))).collect();
        let reports = vec![Report::new(Figure::Eight, effort, &ran)];
        let answer = ViewsAnswer { effort, n_cut: logs.first.n_cut, n_jobs: logs.first.jobs.len(), reports };
        let text = fits(80, || answer.text());
        assert!(text.starts_with("1 run of each point from seed 1;"), "{text}");
    }
}
