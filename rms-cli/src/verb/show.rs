//! `rms show`: shows all that is known of jobs, in the system or in the history.

use std::collections::BTreeMap;

use launcher_sdk::Client;
use rms_api::answer::{CoresLine, JobDetail, JobState, LimitedNodes, LoanLine};
use rms_api::call::Select;
use rms_api::masks::MasksOf;
use rms_api::negotiate::NegotiationLine;
use rms_model::job::Constraint;
use rms_model::plain::plain;
use rms_model::{
    ClusterId, Devices, FormerRun, Grant, JobId, JobRecord, JobSpec, Labels, Mebibytes, Packing, ResourceRequest, Span,
    Time, Work, hostlist,
};
use serde_json::{Value, json};

use super::masks;
use crate::context::Context;
use crate::explain;
use crate::failure::{Exit, Failure};
use crate::job_json;
use crate::listing::JobFlags;
use crate::look_up::{self, Found};
use crate::names::ClusterNames;
use crate::negotiations;
use crate::output::Show;
use crate::screen;
use crate::select;
use crate::sizes;
use crate::stages;
use crate::stamp;
use crate::table::Table;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  rms show 7                     one job, running or ended
  rms show last --script         with its script
  rms show 3,5-9 --json
  rms show --me -t waiting       your waiting jobs
Jobs that have ended are shown only if they are named by their ids.")]
pub struct Args {
    /// Which jobs: 7, 3,5-9, last, all, user:NAME
    ///
    /// Without any, and without flags that select jobs, your last one
    #[arg(value_name = "JOBS", allow_negative_numbers = true, conflicts_with = "JobFlags")]
    jobs: Vec<String>,
    #[command(flatten)]
    filter: JobFlags,
    /// Print the script too
    #[arg(long)]
    script: bool,
}

pub async fn run(args: Args, context: &Context) -> Result<Exit, Failure> {
    let named = if args.jobs.is_empty() { Select::Last } else { select::parse(&args.jobs)? };
    let client = context.client().await?;
    let is_one = !args.filter.is_given()
        && (matches!(&named, Select::Last) || matches!(&named, Select::Ids(ids) if ids.len() == 1));
    let found = if args.filter.is_given() {
        look_up::listed(&client, args.filter.filter(&client).await?).await?
    } else {
        look_up::jobs(&client, named).await?
    };
    let clusters = context.cluster_names(&client).await?;
    let warnings = warnings(&client, &found).await;
    let negotiations = if found.live.is_empty() { Vec::new() } else { client.negotiations(None).await?.1 };
    context.output.show(&ShowAnswer { found, clusters, negotiations, warnings, with_script: args.script, is_one })?;
    Ok(Exit::OK)
}

/// Returns warnings about programs that are slow because their job has fewer CPUs than before; asks the agents of the
/// first such jobs.
async fn warnings(client: &Client, found: &Found) -> BTreeMap<JobId, Vec<String>> {
    let lends = |detail: &JobDetail| detail.sharing.as_ref().is_some_and(|sharing| !sharing.lent.is_empty());
    let has_fewer = |detail: &&JobDetail| lends(detail) || detail.cores.iter().any(|line| line.n_cores < line.all);
    let mut warnings = BTreeMap::new();
    for detail in found.live.iter().filter(has_fewer).take(MOST_ASKED) {
        // The job may have ended meanwhile, and an older server does not know this query.
        let Ok((_, nodes)) = client.masks(MasksOf::Job(detail.line.job)).await else { continue };
        let of_job = nodes.iter().flat_map(|node| &node.jobs).flat_map(masks::slow_teams).collect();
        warnings.insert(detail.line.job, of_job);
    }
    warnings
}

/// The maximum number of jobs to ask about: an unresponsive agent costs time.
const MOST_ASKED: usize = 4;

pub(super) struct ShowAnswer {
    pub(super) found: Found,
    pub(super) clusters: ClusterNames,
    pub(super) negotiations: Vec<NegotiationLine>,
    pub(super) warnings: BTreeMap<JobId, Vec<String>>,
    pub(super) with_script: bool,
    pub(super) is_one: bool,
}

impl Show for ShowAnswer {
    fn text(&self) -> String {
        let now = self.found.now;
        let live = self.found.live.iter().map(|detail| self.detail(detail, now));
        let ended = self.found.ended.iter().map(|record| self.record(record));
        let jobs: Vec<String> = live.chain(ended).collect();
        if jobs.is_empty() { "no such job waits or runs\n".to_owned() } else { jobs.join("\n") }
    }

    fn json(&self) -> Value {
        let live = self.found.live.iter().map(|detail| {
            let mut job = job_json::job_detail(detail, &self.clusters);
            job["warnings"] = json!(self.warnings.get(&detail.line.job).cloned().unwrap_or_default());
            job
        });
        let ended = self.found.ended.iter().map(|record| job_json::record(record, &self.clusters));
        let mut jobs: Vec<Value> = live.chain(ended).collect();
        match jobs.pop() {
            Some(job) if self.is_one && jobs.is_empty() => job,
            last => {
                jobs.extend(last);
                json!({"jobs": jobs})
            }
        }
    }

    fn ids(&self) -> Vec<String> {
        self.found.ids().map(|job| job.to_string()).collect()
    }

    fn table(&self) -> Option<Table> {
        None
    }
}

impl ShowAnswer {
    fn detail(&self, detail: &JobDetail, now: Time) -> String {
        let (line, spec) = (&detail.line, &detail.spec);
        let time = |time: Option<Time>| time.map_or_else(|| "-".to_owned(), stamp::iso_secs);
        let mut fields = Fields::new(&format!("job {}", line.job));
        fields.labels(&spec.labels);
        fields.add("user", line.owner.0.clone());
        fields.add("state", line.state.word());
        if let Some(outcome) = &line.outcome {
            fields.add("outcome", outcome.to_string());
        }
        match (&line.reason, line.state) {
            (Some(reason), JobState::Started) => fields.add("launcher", explain::awaited(reason, now)),
            (Some(reason), _) => fields.add("waits because", explain::reason(reason, &[], now)),
            (None, _) => {}
        }
        fields.add("nodes", self.size(&line.request, &line.nodes));
        if !detail.grants.is_empty() {
            fields.add("has", detail.grants.iter().map(granted).collect::<Vec<_>>().join("; "));
        }
        if !detail.licences.is_empty() {
            fields.add("licences", self.licences(&detail.licences));
        }
        if !detail.cores.is_empty() {
            fields.add("cores", cores(&detail.cores));
        }
        if let Some(sharing) = &detail.sharing {
            let both = [("lends", "to", &sharing.lent), ("borrows", "of", &sharing.borrowed)];
            for (name, of, lines) in both.into_iter().filter(|(_, _, lines)| !lines.is_empty()) {
                fields.add(name, loans(lines, of));
            }
            fields.add("asked for", sharing.asked_wall.to_string());
            fields.add("CPUs lent", core_time(sharing.loans.lent));
            fields.add("CPUs had", core_time(sharing.loans.borrowed));
        }
        for warning in self.warnings.get(&line.job).into_iter().flatten() {
            fields.add("warning", warning.clone());
        }
        let changes = match (&spec.malleable, &line.stages) {
            (Some(malleable), _) => sizes::lines(malleable, line),
            (None, Some(stages)) => stages::lines(stages, now),
            (None, None) => Vec::new(),
        };
        for (name, value) in changes {
            fields.add(name, value);
        }
        if !detail.limited.is_empty() {
            let until = |part: &LimitedNodes| {
                let LimitedNodes { cluster, nodes, until } = part;
                format!("{nodes} of {cluster} until {}", stamp::short(*until, now))
            };
            fields.add("gives back", detail.limited.iter().map(until).collect::<Vec<_>>().join(", "));
        }
        let open = negotiations::open_by_job(&self.negotiations).remove(&line.job).unwrap_or_default();
        for text in sizes::brief(None, &open, now) {
            fields.add("negotiates", text);
        }
        if !uses_nodes_only(spec) {
            fields.add("tasks", tasks(line.n_tasks, line.cpus_per_task));
        }
        let asked = asked_of_nodes(spec);
        if !asked.is_empty() {
            fields.add("of its nodes", asked);
        }
        if !spec.clusters.is_empty() {
            fields.add("clusters", spec.clusters.join(", "));
        }
        fields.add("wall time", line.request.wall.to_string());
        if spec.options.len() > 1 {
            let option = |request: &rms_model::Request| format!("{} x {}", self.clusters.nodes(request), request.wall);
            fields.add("sizes", spec.options.iter().map(option).collect::<Vec<_>>().join(", "));
        }
        fields.add("priority", line.priority.to_string());
        fields.add("submitted", time(Some(line.submitted)));
        if spec.begin.is_some() {
            fields.add("not before", time(spec.begin));
        }
        if let Some(requeue) = spec.requeue {
            fields.add("requeue", if requeue { "yes" } else { "no" });
        }
        match line.started {
            Some(_) => fields.add("started", time(line.started)),
            None => fields.add("starts about", time(line.estimate)),
        }
        if line.until.is_some() {
            let until = stages::end(line);
            let is_over = line.state == JobState::Started && until.is_some_and(|until| until <= now);
            let over = if is_over { " (over: its nodes end it)" } else { "" };
            fields.add("until", time(until) + over);
        }
        let is_waiting = line.started.is_none();
        let before = detail.ended_before.as_ref().map(|outcome| match is_waiting {
            true => format!(" (ended: {outcome})"),
            false => format!(" (the one before ended: {outcome})"),
        });
        fields.add("run", line.run.to_string() + &before.unwrap_or_default());
        fields.former_runs(&detail.former_runs);
        fields.add("directory", plain(&spec.execution.cwd));
        match &spec.execution.work {
            Work::Script { script, args } => {
                fields.add("script", script_in_short(script, args));
            }
            Work::Tasks { argv } => fields.add("command", plain(&argv.join(" "))),
            Work::Nodes => fields.add("command", "nodes only, used by its launcher".to_owned()),
        }
        if let Some(input) = &spec.execution.stdio.input {
            fields.add("input", plain(input));
        }
        let output = spec
            .execution
            .stdio
            .output
            .clone()
            .unwrap_or_else(|| if spec.execution.stdio.stream { "streamed" } else { "-" }.into());
        fields.add("output", plain(&output));
        if let Some(error) = &spec.execution.stdio.error {
            fields.add("error", plain(error));
        }
        let mut text = fields.text();
        if let Work::Script { script, args: _ } = &spec.execution.work
            && self.with_script
            && !script.is_empty()
        {
            text += &format!("\n{}\n", script.trim_end());
        }
        text
    }

    fn record(&self, record: &JobRecord) -> String {
        let mut fields = Fields::new(&format!("job {}", record.job));
        let (code, signal) = record.outcome.code_signal();
        fields.labels(&record.labels);
        fields.add("user", record.owner.0.clone());
        fields.add("state", "finished");
        fields.add("outcome", format!("{} ({code}:{signal})", record.outcome));
        // A job that has changed its size began with other nodes.
        let is_resized = !record.nodes.is_empty() && record.nodes.len() != record.request.n_nodes() as usize;
        match is_resized {
            true => {
                fields.add("nodes", self.clusters.nodes(&record.request));
                fields.add("at its end", hostlist::fold(&record.nodes));
            }
            false => fields.add("nodes", self.size(&record.request, &record.nodes)),
        }
        fields.add("tasks", tasks(record.n_tasks, record.cpus_per_task));
        fields.add("wall time", record.request.wall.to_string());
        if let Some(evolution) = &record.evolution {
            fields.add("held", evolution.to_string());
        }
        fields.add("submitted", stamp::iso_secs(record.submitted));
        fields.add("eligible", stamp::iso_secs(record.eligible));
        if let Some(started) = record.started {
            fields.add("started", stamp::iso_secs(started));
        }
        fields.add("ended", stamp::iso_secs(record.ended));
        if !record.former_runs.is_empty() {
            fields.add("run", record.run.to_string());
            fields.former_runs(&record.former_runs);
        }
        if let Some(loans) = record.total_loans() {
            fields.add("CPUs lent", core_time(loans.lent));
            fields.add("CPUs had", core_time(loans.borrowed));
        }
        if let Some(granted) = &record.granted {
            fields.add("cores", granted.cores.to_string());
            if granted.memory != Mebibytes(0) {
                fields.add("memory", granted.memory.to_string());
            }
            if !granted.devices.is_empty() {
                fields.add("devices", granted.devices.to_string());
            }
            if !granted.licences.is_empty() {
                fields.add("licences", self.licences(&granted.licences));
            }
        }
        if let Some(total) = record.total_core_time() {
            fields.add("core time", core_time(total));
        }
        let usage = record.total_usage();
        fields.add("CPU time", stamp::brief(usage.cpu));
        fields.add("peak memory", format!("{} KiB", usage.peak_memory_kib));
        if self.with_script {
            fields.add("script", "not kept once a job has ended".to_owned());
        }
        fields.text()
    }

    /// Returns `matlab:2`, or `a: matlab:2; b: none` for several clusters.
    fn licences(&self, licences: &BTreeMap<ClusterId, Devices>) -> String {
        let counts = |licences: &Devices| if licences.is_empty() { "none".to_owned() } else { licences.to_string() };
        let of_cluster = |(cluster, licences): (&ClusterId, &Devices)| {
            format!("{}: {}", self.clusters.name(*cluster), counts(licences))
        };
        match licences.len() {
            1 => licences.values().map(counts).collect(),
            _ => licences.iter().map(of_cluster).collect::<Vec<_>>().join("; "),
        }
    }

    fn size(&self, request: &rms_model::Request, nodes: &[String]) -> String {
        let size = self.clusters.nodes(request);
        if nodes.is_empty() { size } else { format!("{size} ({})", hostlist::fold(nodes)) }
    }
}

/// Returns the length of a script, and its arguments. No job has an empty script: that of another user is hidden.
fn script_in_short(script: &str, args: &[String]) -> String {
    let length = match script.lines().count() {
        0 => return "hidden: only its owner and admins may read it".to_owned(),
        1 => "1 line".to_owned(),
        n_lines => format!("{n_lines} lines"),
    };
    if args.is_empty() { length } else { format!("{length} {}", plain(&args.join(" "))) }
}

/// Returns the tasks; those that requested no CPUs share those of their node.
fn tasks(n_tasks: u32, cpus_per_task: u32) -> String {
    match cpus_per_task {
        0 => n_tasks.to_string(),
        1 => format!("{n_tasks} x 1 CPU"),
        _ => format!("{n_tasks} x {cpus_per_task} CPUs"),
    }
}

/// Returns whether only the job's launcher knows what runs on its nodes.
fn uses_nodes_only(spec: &JobSpec) -> bool {
    matches!(spec.execution.work, Work::Nodes)
}

fn at_least(count: u32, one: &str) -> Option<String> {
    (count > 0).then(|| format!("at least {count} {one}{}", if count == 1 { "" } else { "s" }))
}

/// Returns `2048 MiB for each CPU, gpu:2 on each, exclusive`, for example.
fn asked_of_nodes(spec: &JobSpec) -> String {
    let ResourceRequest {
        memory_per_cpu,
        devices,
        devices_in_all,
        licences,
        tasks_per_node,
        exclusive,
        packing,
        one_thread_a_core,
        share,
        min_cpus_per_node,
        min_cpus_per_task,
        cores_per_package,
        contiguous,
    } = &spec.resources;
    let Constraint { features, memory, cpus, devices: _, cores, sockets, speed_milli, scratch, nodelist, exclude } =
        &spec.constraint;
    // One task with that many cores stands for the slice of each node that a launcher has requested.
    let is_slice = *one_thread_a_core && uses_nodes_only(spec);
    let slice = match spec.cpus_per_task {
        1 => "1 core on each".to_owned(),
        n_cores => format!("{n_cores} cores on each"),
    };
    let parts = [
        is_slice.then_some(slice),
        (!features.is_empty()).then(|| features.iter().map(String::as_str).collect::<Vec<_>>().join("&")),
        (!nodelist.is_empty()).then(|| format!("among {}", hostlist::fold_sorted(nodelist))),
        (!exclude.is_empty()).then(|| format!("without {}", hostlist::fold_sorted(exclude))),
        at_least(*sockets, "socket"),
        at_least(*cores, "core"),
        at_least(*cpus, "CPU"),
        (*speed_milli > 0).then(|| format!("at least the speed {}", f64::from(*speed_milli) / 1000.0)),
        (scratch.0 > 0).then(|| format!("{scratch} of scratch space")),
        (memory.0 > 0).then(|| format!("{memory} on each")),
        (memory_per_cpu.0 > 0).then(|| format!("{memory_per_cpu} for each CPU")),
        (!devices.is_empty()).then(|| format!("{devices} on each")),
        (!devices_in_all.is_empty()).then(|| format!("{devices_in_all} in all")),
        (!licences.is_empty()).then(|| format!("licences {licences}")),
        (*tasks_per_node > 0).then(|| match tasks_per_node {
            1 => "at most 1 task on each".to_owned(),
            several => format!("at most {several} tasks on each"),
        }),
        exclusive.then(|| "exclusive".to_owned()),
        (*packing == Packing::Spread).then(|| "spread".to_owned()),
        (*one_thread_a_core && !is_slice).then(|| "one thread of each core".to_owned()),
        share.then(|| "shares CPUs".to_owned()),
        (*min_cpus_per_node > 0).then(|| match min_cpus_per_node {
            1 => "at least 1 CPU on each while it does".to_owned(),
            several => format!("at least {several} CPUs on each while it does"),
        }),
        (!min_cpus_per_task.is_empty()).then(|| {
            let counts: Vec<String> = min_cpus_per_task.iter().map(u32::to_string).collect();
            format!("at least {} CPUs of each task", counts.join(","))
        }),
        (*cores_per_package > 0).then(|| match cores_per_package {
            1 => "at least 1 core of each package".to_owned(),
            several => format!("at least {several} cores of each package"),
        }),
        contiguous.then(|| "contiguous".to_owned()),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Returns `a1: cores 0-3, 4096 MiB, gpu 0`, for example.
fn granted((node, grant): (&String, &Grant)) -> String {
    let memory = (grant.memory.0 > 0).then(|| grant.memory.to_string());
    let devices = grant.devices.iter().map(|(name, indices)| format!("{name} {indices}"));
    let parts: Vec<String> = [format!("cores {}", grant.cores)].into_iter().chain(memory).chain(devices).collect();
    format!("{node}: {}", parts.join(", "))
}

/// Returns `a[2-4]: 3 of 8, a5: 8 of 8`, for example.
fn cores(lines: &[CoresLine]) -> String {
    let alike = |one: &CoresLine, next: &CoresLine| {
        (one.n_cores, one.all, one.is_in_force) == (next.n_cores, next.all, next.is_in_force)
    };
    let group = |lines: &[CoresLine]| {
        let names: Vec<&str> = lines.iter().map(|line| line.node.as_str()).collect();
        let CoresLine { n_cores, all, is_in_force, .. } = &lines[0];
        let until_told = if *is_in_force { "" } else { " (being set)" };
        format!("{}: {n_cores} of {all}{until_told}", hostlist::fold(&names))
    };
    lines.chunk_by(alike).map(group).collect::<Vec<_>>().join(", ")
}

/// Returns `a1: cores 4-7 to job 12 (being left)`, for example.
fn loans(lines: &[LoanLine], of: &str) -> String {
    let loan = |line: &LoanLine| {
        let until_left = if line.is_in_force { "" } else { " (being left)" };
        format!("{}: cores {} {of} job {}{until_left}", line.node, line.cores, line.job)
    };
    lines.iter().map(loan).collect::<Vec<_>>().join("; ")
}

/// Returns `1h30m of a core`, for example.
fn core_time(core_millis: u64) -> String {
    let span = Span::from_millis(i64::try_from(core_millis).unwrap_or(i64::MAX));
    if core_millis == 0 { "none".to_owned() } else { format!("{} of a core", stamp::brief(span)) }
}

/// Names and values, aligned.
struct Fields {
    title: String,
    fields: Vec<(&'static str, String)>,
}

impl Fields {
    fn new(title: &str) -> Fields {
        Fields { title: title.to_owned(), fields: Vec::new() }
    }

    fn add(&mut self, name: &'static str, value: impl Into<String>) {
        self.fields.push((name, value.into()));
    }

    /// Adds the labels that are set.
    fn labels(&mut self, labels: &Labels) {
        for label in labels.all().into_iter().filter(|label| !label.text.is_empty()) {
            self.add(label.key, plain(label.text));
        }
    }

    fn former_runs(&mut self, runs: &[FormerRun]) {
        for FormerRun { run, started, ended, outcome, nodes, usage: _, core_time, loans: _ } in runs {
            let (ran, on) = (stamp::brief(ended.since(*started)), hostlist::fold(nodes));
            let core_time = self::core_time(*core_time);
            self.add("former run", format!("{run} ran for {ran} on {on} ({core_time}): {outcome}"));
        }
    }

    fn text(&self) -> String {
        let width = self.fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let line = |(name, value): &(&'static str, String)| {
            screen::folded(&format!("  {name:<width$}  {}\n", value.trim_end()), width + 4)
        };
        format!("{}\n{}", self.title, self.fields.iter().map(line).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_of_another_user_is_hidden_and_not_empty() {
        assert_eq!(script_in_short("", &[]), "hidden: only its owner and admins may read it");
        assert_eq!(script_in_short("#!/bin/sh\n", &[]), "1 line");
        assert_eq!(script_in_short("#!/bin/sh\ntrue\n", &["--fast".to_owned()]), "2 lines --fast");
    }
}
