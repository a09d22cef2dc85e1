//! `rms sim sd`: compares static backfill with slowdown-driven sharing of nodes (004) on a trace or on jobs of Cirne's
//! model.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{ArgGroup, ValueEnum};
use experiments::sd::{Category, Day, Measured, Paper, Printed, RUN_TIMES, SIZES, Study, Variant, categories, days};
use rms_model::error::chain;
use rms_model::{MaxSlowdown, Policy, Ratio, RuntimeModel, Span};
use rms_sim::batch::{RunTimes, Summary};
use rms_sim::workload::cirne::Cirne;
use rms_sim::workload::swf::TraceJob;
use serde_json::{Value, json};

use super::check_once;
use super::cost::Cost;
use super::sd_figures::{self, Bar, Heat};
use super::side_by_side;
use super::trace_file::{CleaningArgs, of_model, read_trace};
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::output::Show;
use crate::table::Table;

#[derive(clap::Args, Debug)]
#[command(group = ArgGroup::new("workload").args(["trace", "cirne"]).required(true), after_help = "\
A job that would have to wait starts at once on cores that running jobs lend, if
it then ends earlier, before they do, and their slowdown stays below the
cut-off. Each combination of the lists is a run on the same jobs. Makespan,
response and slowdowns are relative to static backfill, in whose row they are
absolute. With --oversubscribe, a job that would have to wait starts beside
others without a policy; guests are then the jobs that did, and mates those that
were there. 'later' is the share of jobs that are longer in the system than
under static backfill; 1 % of jobs are there for more than 'worst 1 %' times as
long.

With --paper, the numbers that 004 prints of its workload are shown, too.

Examples:
  rms sim sd --cirne w1 --wall-unit 60s
  rms sim sd --cirne w5 --wall-unit 60s --paper w5
  rms sim sd --trace RICC-2010-2.sept10k.swf.gz --nodes 1024 \\
      --cores-per-node 8 --field requested --wall-unit 60s --paper w3
  rms sim sd --trace CEA-Curie-2011-2.1-cln.p10.swf.gz --nodes 5040 \\
      --cores-per-node 16 --wall-unit 60s --cut-offs 10 --paper w4 \\
      --heat --daily")]
pub struct Args {
    /// Take the jobs from a file in the Standard Workload Format
    #[arg(long, value_name = "FILE", requires = "nodes")]
    trace: Option<PathBuf>,
    /// Nodes of the cluster, with a trace
    #[arg(long, value_name = "COUNT", requires = "trace", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    nodes: Option<u32>,
    #[command(flatten)]
    cleaning: CleaningArgs,
    /// Draw the jobs from Cirne's model, like workload 1 of 004, 2 (with exact requests), or 5 (on 49 nodes)
    #[arg(long, value_name = "WORKLOAD")]
    cirne: Option<CirneArg>,
    /// Random seed; the same seed gives the same numbers
    #[arg(long, value_name = "NUMBER", default_value_t = 4)]
    seed: u64,
    /// Number of waiting jobs that a pass considers; 0 means all
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    depth: u32,
    /// Minimum time between two passes
    #[arg(long, value_name = "SPAN", default_value = "30s", value_parser = super::interval)]
    interval: Span,
    /// Slowdowns up to which jobs lend cores: numbers, infinite, average (DynAVGSD of 004), mean, median, p70
    #[arg(long, value_name = "LIST", default_value = "5,10,50,infinite,average", value_delimiter = ',')]
    cut_offs: Vec<MaxSlowdown>,
    /// Models of the actual speed of jobs on a part of their cores: ideal, worst; estimates always use the worst model
    #[arg(long, value_name = "LIST", default_value = "ideal", value_delimiter = ',', value_parser = model)]
    models: Vec<RuntimeModel>,
    /// Fractions of their cores that jobs lend
    #[arg(long, value_name = "LIST", default_value = "0.5", value_delimiter = ',', value_parser = factor)]
    factors: Vec<Ratio>,
    /// Maximum mates of a guest
    #[arg(long, value_name = "LIST", default_value = "2", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=8))]
    mates: Vec<u32>,
    /// Maximum jobs on the same cores: with more than 2, guests lend, too
    #[arg(long, value_name = "LIST", default_value = "2", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(2..=8))]
    sharers: Vec<u32>,
    /// Let guests use free nodes in addition to those of their mates
    #[arg(long)]
    free_nodes: bool,
    /// Count the slowdown of each mate once for each of its nodes, as in the authors' program
    #[arg(long)]
    weigh_nodes: bool,
    /// Percentages of jobs that lend and borrow
    #[arg(long, value_name = "LIST", default_value = "100", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(0..=100))]
    malleable_share: Vec<u32>,
    /// Run times to plan with: requested; last-two, the mean of a user's last two runs; last-five, the longest of the
    /// last five; estimates are raised when exceeded
    #[arg(long, value_name = "LIST", default_value = "requested", value_delimiter = ',', value_parser = run_times)]
    run_times: Vec<RunTimes>,
    /// Other policies to compare with, as easy,conservative
    #[arg(long, value_name = "POLICIES", value_delimiter = ',')]
    against: Vec<Policy>,
    /// Let the policies of --against consider the whole queue at each event, whatever --depth and --interval are
    #[arg(long, requires = "against")]
    whole_queue: bool,
    /// Compare with jobs that share nodes without a policy, two to a core
    #[arg(long)]
    oversubscribe: bool,
    /// Show the numbers that 004 prints of this workload of its Table 1
    #[arg(long, value_name = "WORKLOAD")]
    paper: Option<PaperArg>,
    /// Show the ratios of Figures 4 to 6 by nodes and run time
    #[arg(long)]
    heat: bool,
    /// Show for each day the slowdowns of the jobs submitted on it, and the guests that began on it, as Figure 7
    #[arg(long)]
    daily: bool,
    /// Draw the figures into this directory: ratios.svg, and with --heat and --daily a heat-RUN.svg and days-RUN.svg for
    /// each run
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum CirneArg {
    W1,
    W2,
    W5,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PaperArg {
    W1,
    W2,
    W3,
    W4,
    W5,
}

impl From<PaperArg> for Paper {
    fn from(arg: PaperArg) -> Paper {
        match arg {
            PaperArg::W1 => Paper::W1,
            PaperArg::W2 => Paper::W2,
            PaperArg::W3 => Paper::W3,
            PaperArg::W4 => Paper::W4,
            PaperArg::W5 => Paper::W5,
        }
    }
}

fn run_times(text: &str) -> Result<RunTimes, String> {
    let run_times = RunTimes::ALL.into_iter().find(|run_times| run_times.word() == text);
    run_times.ok_or_else(|| format!("'{text}' is no estimate: write requested, last-two or last-five"))
}

fn model(text: &str) -> Result<RuntimeModel, String> {
    let model = RuntimeModel::ALL.into_iter().find(|model| model.word() == text);
    model.ok_or_else(|| format!("'{text}' is no model: write ideal or worst"))
}

fn factor(text: &str) -> Result<Ratio, String> {
    let factor = text.parse::<Ratio>().map_err(|error| error.to_string())?;
    let is_part = factor.parts().0 < factor.parts().1;
    if is_part { Ok(factor) } else { Err(format!("'{text}' is no part below 1: write it as 0.5 or 2/3")) }
}

pub(super) fn run(args: &Args, context: &Context) -> Result<Exit, Failure> {
    check_once("--against", &args.against, Policy::to_string)?;
    check_once("--cut-offs", &args.cut_offs, MaxSlowdown::to_string)?;
    check_once("--models", &args.models, |model| model.word())?;
    check_once("--factors", &args.factors, Ratio::to_string)?;
    check_once("--mates", &args.mates, u32::to_string)?;
    check_once("--sharers", &args.sharers, u32::to_string)?;
    check_once("--malleable-share", &args.malleable_share, u32::to_string)?;
    check_once("--run-times", &args.run_times, |run_times| run_times.word())?;
    let Jobs { title, n_nodes, cores_per_node, jobs, n_dropped } = args.jobs()?;
    let study = Study {
        n_nodes,
        cores_per_node,
        queue_depth: args.depth,
        interval: args.interval,
        estimate: RuntimeModel::Worst,
        seed: args.seed,
    };
    let failed = |error| Failure::new("simulation", chain(&error));
    let base = study.run(&jobs, Variant::fixed(), |_| {}).map_err(failed)?;
    let candidates = args.candidates();
    let n_threads = side_by_side::n_threads(jobs.len(), n_nodes as usize);
    let ran = side_by_side::map(&candidates, n_threads, |candidate| {
        let begun = side_by_side::thread_cpu();
        let summary = match candidate {
            Candidate::Policy(variant) => study.run(&jobs, *variant, |_| {})?,
            Candidate::Oversubscribed(model) => study.oversubscribe(&jobs, *model),
        };
        let cpu_s = (side_by_side::thread_cpu() - begun).as_secs_f64();
        Ok(Row {
            candidate: *candidate,
            measured: Measured::new(&summary, &base),
            categories: if args.heat { categories(&summary, &base) } else { Vec::new() },
            days: if args.daily { days(&summary, &base) } else { Vec::new() },
            cpu_s,
        })
    });
    let rows = ran.into_iter().collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let paper = args.paper.map(Paper::from);
    let peak_rss_mib = Cost::now().peak_rss_mib;
    let answer = SdAnswer { title, base, n_dropped, rows, paper, peak_rss_mib };
    if let Some(dir) = &args.svg {
        answer.draw(dir).map_err(|error| Failure::new("file", format!("{}: {error}", dir.display())))?;
    }
    context.output.show(&answer)?;
    Ok(Exit::OK)
}

impl Args {
    fn jobs(&self) -> Result<Jobs, Failure> {
        if let (Some(path), Some(nodes)) = (&self.trace, self.nodes) {
            let cleaned = read_trace(path, nodes, &self.cleaning)?;
            let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
            return Ok(Jobs {
                title: name,
                n_nodes: nodes,
                cores_per_node: self.cleaning.cores_per_node,
                n_dropped: cleaned.n_dropped,
                jobs: cleaned.jobs,
            });
        }
        let cirne = match self.cirne {
            Some(CirneArg::W1) | None => Cirne::workload_1(self.seed),
            Some(CirneArg::W2) => Cirne { exact_requests: true, ..Cirne::workload_1(self.seed) },
            Some(CirneArg::W5) => Cirne::workload_5(self.seed),
        };
        let trace = cirne.generate().map_err(|error| Failure::new("workload", chain(&error)))?;
        let cores_per_node = cirne.cores_per_node;
        if ![1, cores_per_node].contains(&self.cleaning.cores_per_node) {
            let problem = format!("the nodes of Cirne's model have {cores_per_node} cores: omit --cores-per-node");
            return Err(Failure::usage(problem));
        }
        let title = format!("Cirne's model, seed {}", self.seed);
        let cleaned = of_model(&title, &trace, cirne.n_nodes, &self.cleaning.of_cores(cores_per_node))?;
        Ok(Jobs {
            title,
            n_nodes: cirne.n_nodes,
            cores_per_node: cirne.cores_per_node,
            n_dropped: cleaned.n_dropped,
            jobs: cleaned.jobs,
        })
    }

    fn candidates(&self) -> Vec<Candidate> {
        let models = self.models.iter().filter(|_| self.oversubscribe);
        let oversubscribed = models.map(|model| Candidate::Oversubscribed(*model));
        oversubscribed.chain(self.variants().into_iter().map(Candidate::Policy)).collect()
    }

    /// Returns every combination of the lists, in their order.
    fn variants(&self) -> Vec<Variant> {
        let mut variants = Vec::new();
        for policy in &self.against {
            let whole_queue = self.whole_queue;
            let of = |run_times: &RunTimes| Variant {
                policy: *policy,
                run_times: *run_times,
                whole_queue,
                ..Variant::fixed()
            };
            variants.extend(self.run_times.iter().map(of));
        }
        let sharing =
            vec![Variant { mix_free_nodes: self.free_nodes, weigh_nodes: self.weigh_nodes, ..Variant::default() }];
        let sharing = each(sharing, &self.cut_offs, |variant, cut_off| variant.cut_off = cut_off);
        let sharing = each(sharing, &self.models, |variant, model| variant.model = model);
        let sharing = each(sharing, &self.factors, |variant, factor| variant.factor = factor);
        let sharing = each(sharing, &self.mates, |variant, most| variant.max_mates = most);
        let sharing = each(sharing, &self.sharers, |variant, most| variant.max_sharers = most);
        let sharing = each(sharing, &self.malleable_share, |variant, percent| variant.malleable_pct = percent);
        variants.extend(each(sharing, &self.run_times, |variant, run_times| variant.run_times = run_times));
        variants
    }
}

/// Returns each variant with each of the values in turn.
fn each<T: Copy>(variants: Vec<Variant>, values: &[T], set: impl Fn(&mut Variant, T)) -> Vec<Variant> {
    let with = |variant: Variant| {
        values
            .iter()
            .map(move |value| (variant, *value))
            .map(|(mut variant, value)| {
                set(&mut variant, value);
                variant
            })
            .collect::<Vec<_>>()
    };
    variants.into_iter().flat_map(with).collect()
}

/// The jobs to run, and their cluster.
struct Jobs {
    title: String,
    n_nodes: u32,
    cores_per_node: u32,
    jobs: Vec<TraceJob>,
    n_dropped: usize,
}

/// A policy that is compared with static backfill.
#[derive(Clone, Copy)]
enum Candidate {
    Policy(Variant),
    Oversubscribed(RuntimeModel),
}

struct Row {
    candidate: Candidate,
    measured: Measured,
    categories: Vec<Vec<Option<Category>>>,
    days: Vec<Day>,
    cpu_s: f64,
}

struct SdAnswer {
    title: String,
    base: Summary,
    n_dropped: usize,
    rows: Vec<Row>,
    paper: Option<Paper>,
    /// The most memory that all runs together had.
    peak_rss_mib: f64,
}

/// A figure of each category.
type Ratios = fn(&Category) -> Option<f64>;

impl Candidate {
    fn printed(&self, paper: Option<Paper>) -> Option<Printed> {
        match self {
            Candidate::Policy(variant) => paper.map(|paper| paper.shared(variant)),
            Candidate::Oversubscribed(_) => None,
        }
    }
}

/// Returns the name of a run.
fn name(candidate: &Candidate) -> String {
    let variant = match candidate {
        Candidate::Policy(variant) => variant,
        Candidate::Oversubscribed(model) => return format!("{OVERSUBSCRIBED} {}", model.word()),
    };
    let learned = match variant.run_times {
        RunTimes::Requested => String::new(),
        learned @ (RunTimes::LastTwo | RunTimes::LastFive) => format!(" {}", learned.word()),
    };
    if variant.policy != Policy::Slowdown {
        let whole_queue = if variant.whole_queue { " whole queue" } else { "" };
        return format!("{}{whole_queue}{learned}", variant.policy);
    }
    let Variant { cut_off, model, factor, max_mates, max_sharers, mix_free_nodes, weigh_nodes, malleable_pct, .. } =
        variant;
    let mut name = format!("{cut_off} {}", model.word());
    let published = Variant::default();
    if *factor != published.factor {
        name += &format!(" SF {factor}");
    }
    if *max_mates != published.max_mates {
        name += &format!(" m {max_mates}");
    }
    if *max_sharers != published.max_sharers {
        name += &format!(" {max_sharers} a node");
    }
    if *mix_free_nodes {
        name += " free nodes";
    }
    if *weigh_nodes {
        name += " weighed";
    }
    if *malleable_pct != published.malleable_pct {
        name += &format!(" {malleable_pct} %");
    }
    name + &learned
}

const OVERSUBSCRIBED: &str = "oversubscribed";

/// The figures of each category of jobs: static backfill over sharing (004, Figures 4 to 6).
const RATIOS: [(&str, Ratios); 3] = [
    ("slowdown", |category| Some(category.slowdown)),
    ("run time", |category| Some(category.run_time)),
    ("wait", |category| category.wait),
];

/// Returns the categories by size, as `≤16`.
fn sizes() -> Vec<String> {
    SIZES.iter().map(|size| format!("≤{size}")).chain(["more".to_owned()]).collect()
}

/// Returns the categories by run time, as `≤4h`.
fn spans() -> Vec<String> {
    let of = |seconds: i64| if seconds < 3600 { format!("{}m", seconds / 60) } else { format!("{}h", seconds / 3600) };
    RUN_TIMES.iter().map(|run| format!("≤{}", of(*run))).chain(["more".to_owned()]).collect()
}

fn ratio(ours: f64, base: f64) -> f64 {
    if base > 0.0 { ours / base } else { 1.0 }
}

impl SdAnswer {
    /// Returns the values relative to static backfill, with the paper's values in brackets.
    fn cells(&self, row: &Row) -> Vec<String> {
        let (ours, base) = (&row.measured, &self.base.figures);
        let printed = row.candidate.printed(self.paper).unwrap_or_default();
        let beside = |text: String, printed: Option<f64>| match printed {
            Some(printed) => format!("{text} ({printed})"),
            None => text,
        };
        let count = |count: usize, printed: Option<usize>| beside(count.to_string(), printed.map(|count| count as f64));
        let figures = &ours.figures;
        vec![
            name(&row.candidate),
            beside(format!("{:.3}", ratio(figures.makespan_s, base.makespan_s)), printed.makespan),
            beside(format!("{:.3}", ratio(figures.mean_response_s, base.mean_response_s)), printed.response),
            beside(format!("{:.3}", ratio(figures.mean_slowdown, base.mean_slowdown)), printed.slowdown),
            format!("{:.3}", ratio(figures.mean_bounded_slowdown, base.mean_bounded_slowdown)),
            format!("{:.1} %", 100.0 * figures.utilisation),
            count(ours.guests, printed.guests),
            count(ours.mates, printed.mates),
            format!("{:.1} %", 100.0 * ours.later),
            format!("{:.2}", ours.worst_ratio),
        ]
    }

    fn base_cells(&self) -> Vec<String> {
        let base = &self.base.figures;
        let printed = self.paper.map_or_else(Printed::default, Paper::fixed);
        let beside = |text: String, printed: Option<f64>| match printed {
            Some(printed) => format!("{text} ({printed})"),
            None => text,
        };
        vec![
            "static".to_owned(),
            beside(format!("{:.0} s", base.makespan_s), printed.makespan),
            beside(format!("{:.0} s", base.mean_response_s), printed.response),
            beside(format!("{:.1}", base.mean_slowdown), printed.slowdown),
            format!("{:.1}", base.mean_bounded_slowdown),
            format!("{:.1} %", 100.0 * base.utilisation),
            "0".to_owned(),
            "0".to_owned(),
            "0.0 %".to_owned(),
            "1.00".to_owned(),
        ]
    }

    /// Writes the figures as pictures.
    fn draw(&self, dir: &Path) -> std::io::Result<()> {
        fs::create_dir_all(dir)?;
        let bar = |row: &Row| {
            let (ours, base) = (&row.measured.figures, &self.base.figures);
            let printed = row.candidate.printed(self.paper).unwrap_or_default();
            let values = vec![
                (ratio(ours.makespan_s, base.makespan_s), printed.makespan),
                (ratio(ours.mean_response_s, base.mean_response_s), printed.response),
                (ratio(ours.mean_slowdown, base.mean_slowdown), printed.slowdown),
            ];
            Bar { name: name(&row.candidate), values }
        };
        let bars: Vec<Bar> = self.rows.iter().map(bar).collect();
        let ratios = sd_figures::bars(&self.title, &["makespan", "response time", "slowdown"], &bars);
        fs::write(dir.join("ratios.svg"), ratios)?;
        for row in &self.rows {
            let run = name(&row.candidate);
            let title = format!("{}: {run}", self.title);
            let file = |what: &str| dir.join(format!("{what}-{}.svg", run.replace([' ', '/'], "-")));
            if !row.categories.is_empty() {
                let map = |(figure, value): (&str, Ratios)| Heat {
                    title: figure.to_owned(),
                    cells: (row.categories.iter())
                        .map(|cells| cells.iter().map(|cell| cell.as_ref().and_then(value)).collect())
                        .collect(),
                };
                let maps = RATIOS.map(map);
                fs::write(file("heat"), sd_figures::heat(&title, &sizes(), &spans(), &maps))?;
            }
            if !row.days.is_empty() {
                let days = row.days.iter().map(|day| (day.static_slowdown, day.slowdown, day.guests));
                fs::write(file("days"), sd_figures::daily(&title, &days.collect::<Vec<_>>()))?;
            }
        }
        Ok(())
    }

    fn heat(row: &Row) -> String {
        let mut text = String::new();
        for (figure, value) in RATIOS {
            let mut names = vec!["nodes".to_owned()];
            names.extend(spans().iter().map(|span| format!(">{span}")));
            let mut table = Table::new(&names);
            for (size, cells) in sizes().into_iter().zip(&row.categories) {
                let cell = |cell: &Option<Category>| match cell {
                    Some(category) => value(category).map_or("no wait".to_owned(), |value| format!("{value:.2}")),
                    None => String::new(),
                };
                table.row([size].into_iter().chain(cells.iter().map(cell)).collect());
            }
            text += &format!(
                "\n{}: {figure} under static backfill over that here\n{}",
                name(&row.candidate),
                table.text("")
            );
        }
        text
    }

    fn daily(row: &Row) -> String {
        let mut table = Table::new(&[">day", ">submitted", ">slowdown, static", ">slowdown", ">guests begun"]);
        for (idx, day) in row.days.iter().enumerate() {
            let slowdowns = [day.static_slowdown, day.slowdown].map(|slowdown| format!("{slowdown:.1}"));
            let [fixed, shared] = slowdowns;
            table.row(vec![(idx + 1).to_string(), day.jobs.to_string(), fixed, shared, day.guests.to_string()]);
        }
        format!("\n{}, day by day\n{}", name(&row.candidate), table.text(""))
    }
}

impl Show for SdAnswer {
    fn text(&self) -> String {
        let mut text = format!("{}, {} jobs", self.title, self.base.figures.jobs);
        if self.n_dropped > 0 {
            text += &format!(", {} dropped", self.n_dropped);
        }
        text += "\n";
        text += &self.table().map(|table| table.text("")).unwrap_or_default();
        if let Some(best) = self.paper.and_then(Paper::best_slowdown) {
            let is_shared = |row: &&Row| matches!(row.candidate, Candidate::Policy(variant) if !variant.is_static());
            let shared = self.rows.iter().filter(is_shared);
            let ours = shared.map(|row| row.measured.figures.mean_slowdown).fold(f64::INFINITY, f64::min);
            let ours = ours / self.base.figures.mean_slowdown;
            text += &format!("\nThe least slowdown over that of static backfill: {ours:.3} ({best})\n");
        }
        for row in &self.rows {
            if !row.categories.is_empty() {
                text += &SdAnswer::heat(row);
            }
            if !row.days.is_empty() {
                text += &SdAnswer::daily(row);
            }
        }
        text
    }

    fn json(&self) -> Value {
        let row = |row: &Row| {
            let mut run = match row.candidate {
                Candidate::Policy(variant) => {
                    let Variant { policy, cut_off, model, factor, max_mates, max_sharers, .. } = variant;
                    let Variant { mix_free_nodes, weigh_nodes, malleable_pct, run_times, whole_queue, .. } = variant;
                    // Under other policies no job lends cores.
                    let cut_off = (policy == Policy::Slowdown).then(|| cut_off.to_string());
                    json!({
                        "policy": policy.to_string(),
                        "cut_off": cut_off,
                        "model": model,
                        "sharing_factor": factor.to_string(),
                        "max_mates": max_mates,
                        "max_sharers": max_sharers,
                        "mix_free_nodes": mix_free_nodes,
                        "weigh_nodes": weigh_nodes,
                        "malleable_pct": malleable_pct,
                        "run_times": run_times,
                        "whole_queue": whole_queue,
                    })
                }
                Candidate::Oversubscribed(model) => json!({ "policy": OVERSUBSCRIBED, "model": model }),
            };
            run["measured"] = json!(row.measured);
            run["paper"] = json!(row.candidate.printed(self.paper));
            run["categories"] = json!(row.categories);
            run["days"] = json!(row.days);
            run["cpu_s"] = json!(row.cpu_s);
            run
        };
        json!({
            "title": self.title,
            "static": { "measured": self.base.figures, "paper": self.paper.map(Paper::fixed) },
            "runs": self.rows.iter().map(row).collect::<Vec<_>>(),
            "peak_rss_mib": self.peak_rss_mib,
        })
    }

    fn ids(&self) -> Vec<String> {
        self.rows.iter().map(|row| name(&row.candidate)).collect()
    }

    fn table(&self) -> Option<Table> {
        let mut table = Table::new(&[
            "run",
            ">makespan",
            ">response",
            ">slowdown",
            ">bounded",
            ">used",
            ">guests",
            ">mates",
            ">later",
            ">worst 1 %",
        ]);
        table.row(self.base_cells());
        self.rows.iter().for_each(|row| table.row(self.cells(row)));
        Some(table)
    }
}
