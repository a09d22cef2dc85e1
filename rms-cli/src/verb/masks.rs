//! `rms masks`: which CPUs jobs are to use on their nodes, which their processes may use, and which are lent to whom.

use rms_api::answer::LoanLine;
use rms_api::masks::{JobMasks, MaskOrder, MasksOf, NodeMasks, ProcessMask, ProcessOf, ThreadMask};
use rms_model::{Indices, JobId, Time};
use serde_json::{Value, json};

use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::job_json;
use crate::json;
use crate::look_up;
use crate::output::Show;
use crate::screen;
use crate::select;
use crate::stamp;
use crate::table::Table;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
CPUs are numbered as on their machine. 'Intended' CPUs are those that the server
assigns to a job or process, 'actual' ones those that the kernel lets it run on.
A process 'follows' if it adapts to changes by itself (--malleable-threads);
others are only moved.

Examples:
  rms masks 7                          job 7 on all of its nodes
  rms masks a1                         all jobs of node a1
  rms masks 7 --set 2-3 --pid 4242     process 4242 of job 7 uses CPUs 2 and 3
  rms masks 7 --set 0 --task 3 --node a2
  rms masks 7 --set all --pid 4242     all CPUs of the job, as before
A mask that is set holds until the process ends; of CPUs that its job has lent
meanwhile, it has what is left.")]
pub struct Args {
    /// Which job (7, last), or which node
    #[arg(value_name = "JOB|NODE")]
    of: String,
    /// Restrict one process of the job to these CPUs: 0-3,6, or 'all' CPUs of the job
    #[arg(long, value_name = "CPUS", requires = "process", value_parser = cpus)]
    set: Option<Indices>,
    /// Process with this pid
    #[arg(long, value_name = "PID", requires = "set", group = "process", value_parser = clap::value_parser!(i32).range(1..))]
    pid: Option<i32>,
    /// First process of the task with this number
    #[arg(long, value_name = "TASK", requires = "set", group = "process")]
    task: Option<u32>,
    /// Node on which it runs, for jobs with several nodes
    #[arg(long, value_name = "NODE", requires = "set")]
    node: Option<String>,
}

/// Parses CPUs; an empty set stands for all that the job has.
fn cpus(text: &str) -> Result<Indices, String> {
    if text == "all" { Ok(Indices::default()) } else { text.parse().map_err(|error| format!("{error}, or all")) }
}

pub async fn run(args: Args, context: &Context) -> Result<Exit, Failure> {
    let process = args.pid.map(ProcessOf::Pid).or(args.task.map(ProcessOf::Task));
    let client = context.client_inside(select::parse_one(&args.of).ok()).await?;
    let job = match args.of.as_str() {
        "last" => Ok(look_up::last(&client).await?),
        number => select::parse_one(number),
    };
    let (now, nodes) = match args.set.zip(process) {
        Some((cpus, process)) => client.set_mask(job?, MaskOrder { node: args.node, process, cpus }).await?,
        None => client.masks(job.map_or(MasksOf::Node(args.of), MasksOf::Job)).await?,
    };
    context.output.show(&Masks { now, nodes })?;
    Ok(Exit::OK)
}

pub(super) struct Masks {
    pub(super) now: Time,
    pub(super) nodes: Vec<NodeMasks>,
}

impl Masks {
    pub(super) fn rows(&self) -> Table {
        let columns = ["node", ">job", ">pid", "?>task", "~program", ">threads", "!intended", "!actual", "?follows"];
        let mut table = Table::new(&columns);
        for node in &self.nodes {
            for job in &node.jobs {
                let row = |rest: [String; 7]| [vec![node.node.clone(), job.of.job.to_string()], rest.to_vec()].concat();
                let none = || "-".to_owned();
                let seen = |cpus: fn(&rms_api::masks::SeenMasks) -> &Indices| job.seen.as_ref().map(cpus).map(list);
                let intended = seen(|seen| &seen.intended).unwrap_or_else(|| cores(&job.of.cores));
                let actual = seen(|seen| &seen.actual).unwrap_or_else(none);
                table.row(row([none(), none(), job.name.clone(), none(), intended.clone(), actual, none()]));
                for process in job.seen.iter().flat_map(|seen| &seen.processes) {
                    let told = process.told.as_ref().map_or_else(|| intended.clone(), list);
                    let follows = match (&process.told, process.is_behind) {
                        (None, _) => "no",
                        (Some(_), false) => "yes",
                        (Some(_), true) => "not yet",
                    };
                    table.row(row([
                        process.pid.to_string(),
                        process.task.map_or_else(none, |task| task.to_string()),
                        process.program.clone(),
                        process.n_threads.to_string(),
                        told,
                        list(&process.cpus),
                        follows.to_owned(),
                    ]));
                }
            }
        }
        table
    }

    /// Returns the remarks that do not fit into the table.
    fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        for node in &self.nodes {
            remarks.extend(node.silent.clone());
            for masks in &node.jobs {
                let job = masks.of.job;
                let loan = |line: &LoanLine, what: &str, of: &str| {
                    let until_left = if line.is_in_force { "" } else { ", which are being left" };
                    let since = stamp::clock(line.since, self.now);
                    format!(
                        "{}: job {job} {what} cores {} {of} job {} since {since}{until_left}",
                        node.node, line.cores, line.job
                    )
                };
                remarks.extend(masks.lent.iter().map(|line| loan(line, "lends", "to")));
                remarks.extend(masks.borrowed.iter().map(|line| loan(line, "borrows", "of")));
                let processes = masks.seen.iter().flat_map(|seen| &seen.processes);
                remarks.extend(processes.filter_map(threads).map(|threads| format!("{}: {threads}", node.node)));
                remarks.extend(slow_teams(masks).map(|team| format!("{}: {team}", node.node)));
                match &masks.seen {
                    Some(seen) if seen.n_processes as usize > seen.processes.len() => {
                        let (n, of) = (seen.processes.len(), seen.n_processes);
                        remarks.push(format!("{}: job {job} has {of} processes, of which {n} are listed", node.node));
                    }
                    None if node.silent.is_none() => {
                        remarks.push(format!("{}: the agent has no processes of job {job}, or not yet", node.node));
                    }
                    Some(_) | None => {}
                }
            }
        }
        remarks
    }
}

impl Show for Masks {
    fn text(&self) -> String {
        let remarks: Vec<String> =
            self.remarks().iter().map(|remark| screen::folded(&format!("{remark}\n"), 2)).collect();
        let gap = if remarks.is_empty() { "" } else { "\n" };
        format!("{}{gap}{}", self.rows().text("no job runs there"), remarks.concat())
    }

    fn json(&self) -> Value {
        let node = |node: &NodeMasks| {
            let jobs: Vec<Value> = node.jobs.iter().map(job_json).collect();
            json!({"node": node.node, "jobs": jobs, "silent": node.silent})
        };
        json!({"nodes": self.nodes.iter().map(node).collect::<Vec<_>>()})
    }

    fn ids(&self) -> Vec<String> {
        let seen = self.nodes.iter().flat_map(|node| &node.jobs).filter_map(|job| job.seen.as_ref());
        seen.flat_map(|seen| &seen.processes).map(|process| process.pid.to_string()).collect()
    }

    fn table(&self) -> Option<Table> {
        Some(self.rows())
    }
}

fn job_json(masks: &JobMasks) -> Value {
    let JobMasks { of, name, owner, lent, borrowed, seen } = masks;
    let loans = |lines: &[LoanLine]| lines.iter().map(job_json::loan).collect::<Vec<_>>();
    let of_threads = |mask: &ThreadMask| json!({"threads": mask.n_threads, "cpus": mask.cpus.to_string()});
    let process = |process: &ProcessMask| {
        json!({
            "pid": process.pid,
            "task": process.task,
            "program": process.program,
            "threads": process.n_threads,
            "actual": process.cpus.to_string(),
            "of_threads": process.of_threads.iter().map(of_threads).collect::<Vec<_>>(),
            "told": process.told.as_ref().map(Indices::to_string),
            "behind": process.is_behind,
            "slow_team": process.is_slow_team,
        })
    };
    json!({
        "job": json::job_id(of.job),
        "run": of.run.0,
        "name": name,
        "user": owner.0,
        "cores": of.cores.as_ref().map(Indices::to_string),
        "lent": loans(lent),
        "borrowed": loans(borrowed),
        "intended": seen.as_ref().map(|seen| seen.intended.to_string()),
        "actual": seen.as_ref().map(|seen| seen.actual.to_string()),
        "processes": seen.as_ref().map(|seen| seen.processes.iter().map(process).collect::<Vec<_>>()),
        "n_processes": seen.as_ref().map(|seen| seen.n_processes),
    })
}

/// Returns warnings about programs that are slower than their CPUs allow, with remedies.
pub(super) fn slow_teams(masks: &JobMasks) -> impl Iterator<Item = String> + '_ {
    let job: JobId = masks.of.job;
    let processes = masks.seen.iter().flat_map(|seen| &seen.processes).filter(|process| process.is_slow_team);
    processes.map(move |process| {
        let (pid, n_threads, cpus) = (process.pid, process.n_threads, &process.cpus);
        format!(
            "process {pid} of job {job} has {n_threads} threads and GCC's OpenMP on CPUs {cpus} and cannot follow: it may be \
             many times slower than its CPUs; submit with --malleable-threads"
        )
    })
}

/// Returns which threads of a process may run where, if not all may run on the same CPUs.
fn threads(process: &ProcessMask) -> Option<String> {
    let (shown, rest) = process.of_threads.split_at(process.of_threads.len().min(MOST_MASKS));
    let mask = |mask: &ThreadMask| format!("{} on CPUs {}", mask.n_threads, mask.cpus);
    let mut masks: Vec<String> = shown.iter().map(mask).collect();
    let n_rest: u32 = rest.iter().map(|mask| mask.n_threads).sum();
    masks.extend((n_rest > 0).then(|| format!("{n_rest} on others")));
    (!masks.is_empty()).then(|| format!("threads of process {}: {}", process.pid, masks.join(", ")))
}

/// The most different masks of the threads of a process that are printed.
const MOST_MASKS: usize = 4;

fn list(cpus: &Indices) -> String {
    if cpus.is_empty() { "none".to_owned() } else { cpus.to_string() }
}

/// Returns the text if only the server's own numbers are known.
fn cores(cores: &Option<Indices>) -> String {
    cores.as_ref().map_or_else(|| "all cores".to_owned(), |cores| format!("cores {cores}"))
}
