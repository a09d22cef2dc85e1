//! Whole runs of 004's malleable backfill through the production core and the simulator's loop. RULES D.

use std::collections::BTreeMap;

use rms_api::call::{Nodes, Shape, Submission};
use rms_core::State;
use rms_model::settings::Depth;
use rms_model::{Identity, JobId, MaxSlowdown, NodeId, Policy, Ratio, Role, RuntimeModel, Settings, Span, Time, Work};
use rms_sim::batch::{Batch, Summary, Workload, uniform_nodes};
use serde::Deserialize;

#[derive(Deserialize)]
struct Vector {
    nodes: u32,
    cpus: u32,
    policy: PolicyText,
    jobs: Vec<Job>,
    result: Expected,
    #[serde(rename = "static")]
    alone: ExpectedStatic,
}

#[derive(Deserialize)]
struct PolicyText {
    max_slowdown: Option<CutOff>,
    sharing_factor: (u32, u32),
    max_mates: u32,
    depth: u32,
    estimate: RuntimeModel,
    run: RuntimeModel,
}

#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum CutOff {
    Below(u32, u32),
    Named(String),
}

#[derive(Clone, Deserialize)]
struct Job {
    id: u64,
    submit: i64,
    nodes: u32,
    ranks: u32,
    requested: i64,
    run: i64,
    malleable: bool,
}

#[derive(Deserialize)]
struct Expected {
    jobs: Vec<Ran>,
    #[serde(flatten)]
    means: Means,
}

#[derive(Deserialize)]
struct ExpectedStatic {
    start: Vec<i64>,
    #[serde(flatten)]
    means: Means,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct Means {
    makespan: i64,
    mean_response: (i64, i64),
    /// A fraction whose parts no integer may hold. It follows from the ends, which are compared exactly.
    mean_slowdown: (f64, f64),
}

impl PartialEq for Means {
    fn eq(&self, other: &Means) -> bool {
        let slowdown = |means: &Means| means.mean_slowdown.0 / means.mean_slowdown.1;
        let is_alike = (slowdown(self) / slowdown(other) - 1.0).abs() < 1e-9;
        (self.makespan, self.mean_response) == (other.makespan, other.mean_response) && is_alike
    }
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
struct Ran {
    id: u64,
    start: i64,
    end: i64,
    nodes: Vec<usize>,
    mates: Vec<u64>,
    cpus: Vec<(i64, Vec<u32>)>,
}

/// In the order of ids. The core breaks ties by its own ids, which follow the order of submission, so all jobs are
/// submitted at the beginning, and begin to wait when the vector submits them.
struct Load(Vec<Job>);

impl Workload for Load {
    fn n_jobs(&self) -> usize {
        self.0.len()
    }

    fn submit(&self, _job_idx: usize) -> Time {
        Time::EPOCH
    }

    fn submission(&self, job_idx: usize) -> (Identity, Submission) {
        let job = &self.0[job_idx];
        let shape = Shape { nodes: Nodes::Count(job.nodes), wall: Some(Span::from_secs(job.requested)) };
        let mut submission = Submission::of(Work::Tasks { argv: vec!["job".to_owned()] }, vec![shape]);
        submission.n_tasks = Some(job.ranks.max(1) * job.nodes);
        submission.resources.share = job.malleable;
        submission.begin = Some(Time::from_secs(job.submit));
        (Identity { role: Role::User, name: "u".to_owned() }, submission)
    }

    fn run(&self, job_idx: usize) -> Span {
        Span::from_secs(self.0[job_idx].run)
    }
}

/// # Errors
/// The first difference, or why the line is no vector.
pub fn check(line: &str) -> Result<(), String> {
    let vector: Vector = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let mut jobs = vector.jobs.clone();
    jobs.sort_by_key(|job| job.id);
    let load = Load(jobs);
    let max_slowdown = match &vector.policy.max_slowdown {
        None => MaxSlowdown::Infinite,
        Some(CutOff::Below(numerator, denominator)) => MaxSlowdown::At(ratio(*numerator, *denominator)?),
        Some(CutOff::Named(name)) if name == "dynavgsd" => MaxSlowdown::Average,
        Some(CutOff::Named(name)) => return Err(format!("there is no cut-off {name}")),
    };
    let (mut ran, means) = run(&vector, &load, max_slowdown)?;
    for expected in &vector.result.jobs {
        let mut ours = ran.remove(&expected.id).unwrap_or_default();
        ours.id = expected.id;
        if ours != *expected {
            return Err(format!("{ours:?}, expected {expected:?}"));
        }
    }
    if means != vector.result.means {
        return Err(format!("{means:?}, expected {:?}", vector.result.means));
    }
    let (ran, means) = run(&vector, &load, MaxSlowdown::At(ratio(0, 1)?))?;
    for (job, start) in vector.jobs.iter().zip(&vector.alone.start) {
        let ours = ran.get(&job.id).map(|ran| ran.start);
        if ours != Some(*start) {
            return Err(format!("without guests job {} starts at {ours:?}, expected {start}", job.id));
        }
    }
    match means == vector.alone.means {
        true => Ok(()),
        false => Err(format!("without guests {means:?}, expected {:?}", vector.alone.means)),
    }
}

fn ratio(numerator: u32, denominator: u32) -> Result<Ratio, String> {
    Ratio::new(numerator, denominator).ok_or_else(|| format!("{numerator}/{denominator} is no fraction"))
}

fn run(vector: &Vector, load: &Load, max_slowdown: MaxSlowdown) -> Result<(BTreeMap<u64, Ran>, Means), String> {
    let policy = &vector.policy;
    let mut settings = Settings {
        policy: Policy::Slowdown,
        queue_depth: Depth::First(policy.depth),
        max_wall: Span::MAX_WALL,
        ..Settings::default()
    };
    settings.sharing.max_slowdown = max_slowdown;
    settings.sharing.sharing_factor = ratio(policy.sharing_factor.0, policy.sharing_factor.1)?;
    settings.sharing.max_mates = policy.max_mates;
    settings.sharing.runtime_model = policy.estimate;
    let nodes = [uniform_nodes(vector.nodes, vector.cpus)];
    let batch = Batch::new(settings, &nodes, load).map_err(|error| error.to_string())?;
    let mut batch = batch.paced_by(policy.run);
    let mut ran: BTreeMap<u64, Ran> = BTreeMap::new();
    while batch.turn().map_err(|error| error.to_string())? {
        batch.state().check().map_err(|error| error.to_string())?;
        look(batch.state(), load, batch.now(), &mut ran);
    }
    let summary = batch.summary();
    for (job, finished) in load.0.iter().zip(&summary.finished) {
        if let (Some(ran), Some(finished)) = (ran.get_mut(&job.id), finished) {
            ran.end = secs(finished.ended);
        }
    }
    Ok((ran, means(load, &summary)))
}

/// What runs at this instant, and with which CPUs.
fn look(state: &State, load: &Load, now: Time, ran: &mut BTreeMap<u64, Ran>) {
    let places: BTreeMap<NodeId, usize> =
        state.nodes().keys().enumerate().map(|(place, node)| (*node, place)).collect();
    let id = |job: &JobId| load.0[job.0 as usize - 1].id;
    for (job, entry) in state.jobs() {
        let Some(started) = entry.started() else { continue };
        let mut nodes: Vec<(usize, u32)> =
            entry.nodes().iter().zip(state.cores_of(entry)).map(|(node, cores)| (places[node], cores.has)).collect();
        nodes.sort_unstable();
        let ran = ran.entry(id(job)).or_insert_with(|| Ran {
            start: secs(started.at),
            nodes: nodes.iter().map(|(place, _)| *place).collect(),
            mates: {
                let owners = entry.sharing().map(|sharing| sharing.owners()).unwrap_or_default();
                let mut mates: Vec<u64> = owners.iter().map(id).collect();
                mates.sort_unstable();
                mates
            },
            ..Ran::default()
        });
        let cpus: Vec<u32> = nodes.into_iter().map(|(_, cores)| cores).collect();
        if ran.cpus.last().is_none_or(|(_, before)| *before != cpus) {
            ran.cpus.push((secs(now), cpus));
        }
    }
}

fn means(load: &Load, summary: &Summary) -> Means {
    let jobs = || load.0.iter().zip(summary.finished.iter().flatten());
    let responses = || jobs().map(|(job, finished)| (job, secs(finished.ended) - job.submit));
    let n_jobs = jobs().count() as i64;
    let response: i64 = responses().map(|(_, response)| response).sum();
    let slowdown: f64 = responses().map(|(job, response)| response as f64 / job.run as f64).sum();
    let divisor = gcd(response, n_jobs);
    let last = jobs().map(|(_, finished)| secs(finished.ended)).max().unwrap_or(0);
    let first = load.0.iter().map(|job| job.submit).min().unwrap_or(0);
    Means {
        makespan: last - first,
        mean_response: (response / divisor, n_jobs / divisor),
        mean_slowdown: (slowdown, n_jobs as f64),
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.max(1) } else { gcd(b, a % b) }
}

fn secs(time: Time) -> i64 {
    time.as_millis() / 1000
}
