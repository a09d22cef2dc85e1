//! `rms sim check`: says whether a schedule, as `--schedule` wrote it, could have run.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::{Path, PathBuf};

use rms_model::indices::MAX_INDEX;
use rms_model::{Indices, Mebibytes, Time};
use rms_sim::batch::{Capacity, Part, Stretch, Unsound, check_schedule};
use serde::Deserialize;
use serde_json::{Number, Value, json};

use super::trace_file::open;
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::memory::Memory;
use crate::output::Show;
use crate::table::Table;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
No core may be allocated twice at one instant, nor more memory than a node has;
no job may start before its submission, end before its start, or run twice at
one time. Exit status 1: the first error is printed with its lines.

Examples:
  rms sim swf trace.swf --nodes 64 --cores-per-node 16 --allocation cores \\
      --schedule ran.jsonl
  rms sim check ran.jsonl --nodes 64 --cores-per-node 16
  rms sim check ran.jsonl --memory-per-node 64G --json")]
pub struct Args {
    /// File with one JSON object per line, as written by rms sim swf --schedule, plain or compressed
    /// with gzip
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Nodes of the cluster; unlimited if absent
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    nodes: Option<u32>,
    /// Cores of a node; unlimited if absent
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_INDEX) + 1))]
    cores_per_node: Option<u32>,
    /// Memory of a node, as 64G; not checked if absent
    #[arg(long, value_name = "SIZE")]
    memory_per_node: Option<Memory>,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<Exit, Failure> {
    let schedule = Schedule::read(&args.file)?;
    let capacity = Capacity {
        nodes: args.nodes.map(|nodes| nodes as usize),
        cores: args.cores_per_node,
        memory: args.memory_per_node.map(|memory| memory.0),
    };
    check_schedule(&schedule.stretches, capacity)
        .map_err(|unsound| Failure::new("schedule", format!("{}: {}", args.file.display(), schedule.told(&unsound))))?;
    let mut nodes: Vec<usize> =
        schedule.stretches.iter().flat_map(|stretch| stretch.nodes.iter().map(|part| part.node)).collect();
    nodes.sort_unstable();
    nodes.dedup();
    context.output.show(&CheckAnswer {
        n_lines: schedule.stretches.len(),
        n_jobs: schedule.jobs.len(),
        n_nodes: nodes.len(),
        knows_memory: capacity.memory.is_some(),
    })?;
    Ok(Exit::OK)
}

/// One line, as schedules are written.
#[derive(Deserialize)]
struct Line {
    job: i64,
    submit: Number,
    start: Number,
    end: Number,
    nodes: Vec<NodeOfLine>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object with node, cores and memory_mib")]
struct NodeOfLine {
    node: u32,
    cores: Vec<u32>,
    memory_mib: u64,
}

/// The contents of a file, by its lines.
struct Schedule {
    /// The numbers of jobs, by their index in stretches.
    jobs: Vec<i64>,
    stretches: Vec<Stretch>,
}

impl Schedule {
    /// # Errors
    /// The file cannot be read, or a line is not one of a schedule.
    fn read(path: &Path) -> Result<Schedule, Failure> {
        let unreadable = |error| Failure::io(format!("{} cannot be read", path.display()), error);
        let file = open(path).map_err(unreadable)?;
        let mut schedule = Schedule { jobs: Vec::new(), stretches: Vec::new() };
        let mut places: BTreeMap<i64, usize> = BTreeMap::new();
        for (idx, text) in file.lines().enumerate() {
            let stretch = parse(&text.map_err(unreadable)?).map_err(|wrong| {
                let failure = Failure::new("schedule", format!("{}, line {}: {wrong}", path.display(), idx + 1));
                failure.hint("a schedule has one JSON object a line, as rms sim swf --schedule writes it")
            })?;
            let (job, mut stretch) = stretch;
            stretch.job_idx = *places.entry(job).or_insert_with(|| {
                schedule.jobs.push(job);
                schedule.jobs.len() - 1
            });
            schedule.stretches.push(stretch);
        }
        if schedule.stretches.is_empty() {
            let failure = Failure::new("schedule", format!("{} is empty: no job has run", path.display()));
            return Err(failure.hint("check that rms sim swf --schedule has written it to its end"));
        }
        Ok(schedule)
    }

    /// Describes the error with its lines, jobs and instants.
    fn told(&self, unsound: &Unsound) -> String {
        let at = match unsound {
            Unsound::StartsBeforeSubmit { stretch }
            | Unsound::EndsBeforeStart { stretch }
            | Unsound::NoNode { stretch }
            | Unsound::NoCore { stretch, .. }
            | Unsound::NodeTwice { stretch, .. }
            | Unsound::NoSuchNode { stretch, .. }
            | Unsound::NoSuchCore { stretch, .. } => self.line(*stretch),
            Unsound::TwoSubmits { stretches: (one, other) } => self.lines(&[*one, *other]),
            Unsound::RunsTwice { stretches: (one, other), from, until }
            | Unsound::CoreTwice { stretches: (one, other), from, until, .. } => {
                format!("from {} s to {} s: {}", seconds(*from), seconds(*until), self.lines(&[*one, *other]))
            }
            Unsound::MemoryTwice { stretches, from, until, .. } => {
                format!("from {} s to {} s: {}", seconds(*from), seconds(*until), self.lines(stretches))
            }
        };
        format!("{unsound}, {at}")
    }

    fn line(&self, idx: usize) -> String {
        let Stretch { job_idx, submit, start, end, .. } = &self.stretches[idx];
        let [submit, start, end] = [submit, start, end].map(|time| seconds(*time));
        format!("line {} (job {}, submit {submit} s, start {start} s, end {end} s)", idx + 1, self.jobs[*job_idx])
    }

    fn lines(&self, stretches: &[usize]) -> String {
        let mut lines: Vec<String> = stretches.iter().take(MOST_TOLD).map(|idx| self.line(*idx)).collect();
        if stretches.len() > MOST_TOLD {
            lines.push(format!("and {} more", stretches.len() - MOST_TOLD));
        }
        lines.join(", ")
    }
}

const MOST_TOLD: usize = 8;

/// # Errors
/// Says what is wrong with the line.
fn parse(text: &str) -> Result<(i64, Stretch), String> {
    // A list of the values would be read like an object.
    if !text.is_empty() && !text.trim_start().starts_with('{') {
        return Err("expected an object with job, submit, start, end and nodes".to_owned());
    }
    let line: Line = serde_json::from_str(text).map_err(|error| {
        let wrong = error.to_string().replace(" at line 1 column", " at column");
        if error.is_eof() && !text.is_empty() { format!("it is cut off: {wrong}") } else { wrong }
    })?;
    let time = |name: &str, number: &Number| time(number).ok_or_else(|| format!("'{name}': {number} is too large"));
    let [submit, start, end] = [time("submit", &line.submit)?, time("start", &line.start)?, time("end", &line.end)?];
    let nodes: Result<Vec<Part>, String> = line.nodes.into_iter().map(part).collect();
    Ok((line.job, Stretch { job_idx: 0, submit, start, end, nodes: nodes? }))
}

fn part(NodeOfLine { node, cores: numbers, memory_mib }: NodeOfLine) -> Result<Part, String> {
    if let Some(core) = numbers.iter().find(|core| **core > MAX_INDEX) {
        return Err(format!("core {core} of node {node}: cores count from 0 to {MAX_INDEX}"));
    }
    let cores: Indices = numbers.iter().copied().collect();
    if cores.len() as usize != numbers.len() {
        return Err(format!("it has a core of node {node} twice"));
    }
    Ok(Part { node: node as usize, cores, memory: Mebibytes(memory_mib) })
}

/// Converts seconds, rounded to milliseconds: sums of decimals are seldom exact. `None` if they are beyond the range of
/// times.
fn time(seconds: &Number) -> Option<Time> {
    if let Some(whole) = seconds.as_i64() {
        let is_near = whole.unsigned_abs() <= MOST_SECONDS;
        return is_near.then(|| Time::from_secs(whole));
    }
    let exact = seconds.as_f64().filter(|exact| exact.abs() <= MOST_SECONDS as f64)?;
    Some(Time::from_millis((exact * 1000.0).round() as i64))
}

/// As in a trace.
const MOST_SECONDS: u64 = 100_000_000_000_000;

/// Formats seconds, whole ones without a decimal point.
fn seconds(time: Time) -> String {
    let millis = time.as_millis();
    if millis % 1000 == 0 { (millis / 1000).to_string() } else { (millis as f64 / 1000.0).to_string() }
}

struct CheckAnswer {
    n_lines: usize,
    n_jobs: usize,
    n_nodes: usize,
    knows_memory: bool,
}

impl Show for CheckAnswer {
    fn text(&self) -> String {
        let CheckAnswer { n_lines, n_jobs, n_nodes, knows_memory } = self;
        let found = format!("{n_lines} lines, {n_jobs} jobs, {n_nodes} nodes: nothing is given twice\n");
        match knows_memory {
            true => found,
            false => format!("{found}memory was not checked: name that of a node with --memory-per-node\n"),
        }
    }

    fn json(&self) -> Value {
        let CheckAnswer { n_lines, n_jobs, n_nodes, knows_memory } = self;
        json!({"lines": n_lines, "jobs": n_jobs, "nodes": n_nodes, "memory_checked": knows_memory})
    }

    fn ids(&self) -> Vec<String> {
        Vec::new()
    }

    fn table(&self) -> Option<Table> {
        let mut table = Table::new(&["lines", "jobs", "nodes", "memory_checked"]);
        let counts = [self.n_lines, self.n_jobs, self.n_nodes].map(|count| count.to_string());
        table.row(counts.into_iter().chain([self.knows_memory.to_string()]).collect());
        Some(table)
    }
}
