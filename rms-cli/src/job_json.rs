//! The JSON forms of jobs, both in the system and ended; their fields are an interface and are only extended.

use rms_api::answer::{CoresLine, JobDetail, JobLine, JobState, LimitedNodes, LoanLine, SharingDetail};
use rms_model::labels::Label;
use rms_model::{FormerRun, Granted, JobRecord, Work};
use serde_json::{Value, json};

use crate::json;
use crate::names::ClusterNames;
use crate::sizes;
use crate::stages;

pub fn job_line(line: &JobLine, clusters: &ClusterNames) -> Value {
    let mut value = json!({
        "job": json::job_id(line.job),
        "run": line.run.0,
        "user": line.owner.0,
        "state": line.state.word(),
        "priority": line.priority,
        "tasks": line.n_tasks,
        "cpus_per_task": line.cpus_per_task,
        "resources": json::resources(&line.resources),
        "request": json::request(&line.request, clusters),
        "nodes": line.nodes,
        "submitted": json::time(Some(line.submitted)),
        "requested": json::time(line.requested),
        "started": json::time(line.started),
        "estimate": json::time(line.estimate),
        "until": json::time(line.until),
        "reason": json::reason_of(line),
        "outcome": json::outcome(line.outcome.as_ref()),
        "stages": stages::to_json(line.stages.as_ref().filter(|_| line.malleable.is_none())),
        "malleable": sizes::to_json(line),
    });
    add_labels(&mut value, line.labels.all().into_iter().filter(|label| label.is_public));
    value
}

fn add_labels<'a>(value: &mut Value, labels: impl IntoIterator<Item = Label<'a>>) {
    for label in labels {
        value[label.key] = label.text.into();
    }
}

fn cores_line(line: &CoresLine) -> Value {
    json!({"node": line.node, "cores": line.n_cores, "of": line.all, "in_force": line.is_in_force})
}

pub fn job_detail(detail: &JobDetail, clusters: &ClusterNames) -> Value {
    let spec = &detail.spec;
    let mut value = job_line(&detail.line, clusters);
    let work = match &spec.execution.work {
        // No job has an empty script: that of another user is hidden.
        Work::Script { script, args } => match script.is_empty() {
            true => json!({"kind": "script", "script": null, "args": null}),
            false => json!({"kind": "script", "script": script, "args": args}),
        },
        Work::Tasks { argv } => json!({"kind": "tasks", "argv": argv}),
        Work::Nodes => json!({"kind": "nodes"}),
    };
    let options: Vec<Value> = spec.options.iter().map(|option| json::request(option, clusters)).collect();
    let more = json!({
        "work": work,
        "directory": spec.execution.cwd,
        "options": options,
        "constraint": {
            "features": spec.constraint.features,
            "nodelist": spec.constraint.nodelist,
            "exclude": spec.constraint.exclude,
            "memory_mib": spec.constraint.memory.0,
            "cpus": spec.constraint.cpus,
            "sockets": spec.constraint.sockets,
            "speed": f64::from(spec.constraint.speed_milli) / 1000.0,
            "scratch_mib": spec.constraint.scratch.0,
        },
        "input_file": spec.execution.stdio.input,
        "output_file": spec.execution.stdio.output,
        "error_file": spec.execution.stdio.error,
        "streamed": spec.execution.stdio.stream,
        "requeue": spec.requeue,
        "ended_before": json::outcome(detail.ended_before.as_ref()),
        "former_runs": former_runs(&detail.former_runs),
        "limited": detail.limited.iter().map(limited).collect::<Vec<_>>(),
        "begin": json::time(spec.begin),
        "cores": detail.cores.iter().map(cores_line).collect::<Vec<_>>(),
        "grants": detail.grants.iter().map(|(node, grant)| (node.clone(), json::grant(grant))).collect::<serde_json::Map<_, _>>(),
        "licences": json::licences(&detail.licences, clusters),
        "sharing": detail.sharing.as_ref().map(sharing),
        "on_resize": sizes::on_resize_json(spec.malleable.as_ref()),
    });
    if let (Value::Object(line), Value::Object(more)) = (&mut value, more) {
        line.extend(more);
    }
    add_labels(&mut value, spec.labels.all());
    value
}

/// Converts core-milliseconds to core-seconds.
pub fn secs(core_millis: u64) -> f64 {
    core_millis as f64 / 1000.0
}

/// Returns the job's time in the system since it could have started, as a multiple of the wall time it requested (004,
/// eq. 4); `None` if it never ran.
fn slowdown(record: &JobRecord) -> Option<f64> {
    record.started?;
    let asked = record.request.wall.as_secs_f64();
    (asked > 0.0).then(|| record.ended.since(record.eligible).as_secs_f64() / asked)
}

pub fn loan(line: &LoanLine) -> Value {
    let LoanLine { node, job, cores, since, is_in_force } = line;
    json!({"node": node, "job": json::job_id(*job), "cores": cores.to_string(), "since": json::time(Some(*since)),
        "in_force": is_in_force})
}

fn limited(part: &LimitedNodes) -> Value {
    let LimitedNodes { cluster, nodes, until } = part;
    json!({"cluster": cluster, "nodes": nodes, "until": json::time(Some(*until))})
}

/// Returns what a job has lent and borrowed.
fn sharing(detail: &SharingDetail) -> Value {
    json!({
        "asked_wall_ms": json::span(detail.asked_wall),
        "lent": detail.lent.iter().map(loan).collect::<Vec<_>>(),
        "borrowed": detail.borrowed.iter().map(loan).collect::<Vec<_>>(),
        "cpu_time_lent_s": secs(detail.loans.lent),
        "cpu_time_borrowed_s": secs(detail.loans.borrowed),
    })
}

fn former_runs(runs: &[FormerRun]) -> Value {
    let former = |former: &FormerRun| {
        let FormerRun { run, started, ended, outcome, nodes, usage, core_time, loans } = former;
        json!({
            "run": run.0,
            "started": json::time(Some(*started)),
            "ended": json::time(Some(*ended)),
            "outcome": json::outcome(Some(outcome)),
            "nodes": nodes,
            "cpu_ms": json::span(usage.cpu),
            "peak_memory_kib": usage.peak_memory_kib,
            "core_seconds": secs(*core_time),
            "cpu_time_lent_s": loans.map(|loans| secs(loans.lent)),
            "cpu_time_borrowed_s": loans.map(|loans| secs(loans.borrowed)),
        })
    };
    runs.iter().map(former).collect()
}

/// `core_time` is that of all runs of the job.
fn granted(granted: &Granted, core_time: u64, clusters: &ClusterNames) -> Value {
    let Granted { cores, whole_nodes, memory, devices, licences, core_time: _ } = granted;
    json!({
        "cores": cores,
        "whole_nodes": whole_nodes,
        "memory_mib": memory.0,
        "devices": devices,
        "licences": json::licences(licences, clusters),
        "core_seconds": secs(core_time),
    })
}

pub fn record(record: &JobRecord, clusters: &ClusterNames) -> Value {
    let (usage, loans) = (record.total_usage(), record.total_loans());
    // A job that was not started again has nothing, but it had cores before.
    let granted = record.total_core_time().map(|total| (record.granted.clone().unwrap_or_default(), total));
    let mut value = json!({
        "job": json::job_id(record.job),
        "run": record.run.0,
        "user": record.owner.0,
        "state": JobState::Finished.word(),
        "tasks": record.n_tasks,
        "cpus_per_task": record.cpus_per_task,
        "request": json::request(&record.request, clusters),
        "nodes": record.nodes,
        "submitted": json::time(Some(record.submitted)),
        "eligible": json::time(Some(record.eligible)),
        "started": json::time(record.started),
        "ended": json::time(Some(record.ended)),
        "outcome": json::outcome(Some(&record.outcome)),
        "cpu_ms": json::span(usage.cpu),
        "peak_memory_kib": usage.peak_memory_kib,
        "stages_held": stages::evolution(record.evolution.as_ref()),
        "cpu_time_lent_s": loans.map(|loans| secs(loans.lent)),
        "cpu_time_borrowed_s": loans.map(|loans| secs(loans.borrowed)),
        "slowdown": slowdown(record),
        "granted": granted.map(|(granted, core_time)| self::granted(&granted, core_time, clusters)),
        "former_runs": former_runs(&record.former_runs),
    });
    add_labels(&mut value, record.labels.all());
    value
}
