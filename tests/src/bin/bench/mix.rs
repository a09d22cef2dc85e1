//! Programs in the mix of 004, Table 2, on a node of this machine's CPUs: under static backfill, two to a CPU, and with SD-Policy
//! (004, §4.4 and Figure 9, in small).

mod energy;
mod outcome;
mod workload;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rms_tests::apps::{self, Mpi};
use rms_tests::openmp::{self, OpenMp};
use serde_json::Value;
use tempfile::TempDir;

use crate::cluster::Cluster;
use crate::process;
use crate::table::Table;
use energy::{Energy, POWERCAP};
use outcome::{Better, Metrics, Ran};
use workload::{Job, Kind, N_JOBS, draw};

/// How jobs may meet each other.
struct Regime {
    name: &'static str,
    /// All of them are the same CPUs of this machine, so that two have two jobs to a CPU.
    n_nodes: u32,
    /// 0: nobody lends (static backfill, as in the simulations of 004).
    max_slowdown: &'static str,
    /// Factor on wall times.
    patience: u64,
}

const FIXED: Regime = Regime { name: "static backfill", n_nodes: 1, max_slowdown: "0", patience: 1 };
/// Nobody is ended for having had a neighbour.
const OVERSUBSCRIBED: Regime = Regime { name: "oversubscription", n_nodes: 2, max_slowdown: "0", patience: 10 };
const SHARED: Regime = Regime { name: "SD-Policy", n_nodes: 1, max_slowdown: "infinite", patience: 1 };

const SEED: u64 = 4;
/// Pieces of work by which speeds are measured, and how often: another program may have had a CPU meanwhile.
const N_PROBED: u64 = 300;
const N_PROBES: u32 = 3;
/// In which all jobs of a run have ended.
const LONGEST_RUN: Duration = Duration::from_secs(1800);

/// The jobs with the programs that they run.
struct Mix {
    home: TempDir,
    programs: Programs,
    /// Each with how many pieces it does.
    jobs: Vec<(Job, u64)>,
    n_cpus: u32,
}

struct Programs {
    openmp: PathBuf,
    /// With its `mpirun`. Without MPI the jobs with ranks have threads.
    mpi: Option<(PathBuf, PathBuf)>,
}

/// What one regime came to.
struct Outcome {
    /// In the order of the jobs.
    jobs: Vec<Ran>,
    /// Of them, those that did not complete.
    n_failed: usize,
    /// In joules.
    energy: Option<f64>,
    /// CPU seconds of all programs of this machine.
    busy: f64,
}

pub fn table() -> Result<Table> {
    let mut table = Table::new(
        "Live mix (004, Figure 9, in small): 40 OpenMP and MPI jobs of 2 to 20 s, Table 2's kinds, on one node of this machine's CPUs",
    );
    let n_cpus = u32::try_from(std::thread::available_parallelism()?.get())?;
    table.note("CPUs of the node", n_cpus.into(), "");
    ensure!(n_cpus > 1, "this machine has one CPU, and none of it can be lent");
    let Some(mix) = Mix::prepare(n_cpus, &mut table)? else { bail!("there is no OpenMP program to run") };
    let fixed = mix.run(&FIXED)?;
    let fixed_metrics = Metrics::new(&fixed.jobs, &fixed.jobs);
    note(&mut table, &FIXED, &fixed, &fixed_metrics);
    for regime in [OVERSUBSCRIBED, SHARED] {
        let outcome = mix.run(&regime)?;
        let metrics = Metrics::new(&outcome.jobs, &fixed.jobs);
        note(&mut table, &regime, &outcome, &metrics);
        note_beside(&mut table, regime.name, (&metrics, outcome.energy), (&fixed_metrics, fixed.energy));
        if regime.n_nodes == 1 {
            note_better(&mut table, &outcome.jobs, &fixed.jobs);
        }
    }
    Ok(table)
}

impl Mix {
    /// Nothing, and a word about it, if there is no compiler for it.
    fn prepare(n_cpus: u32, table: &mut Table) -> Result<Option<Mix>> {
        let Some(openmp) = openmp::build_or_skip(OpenMp::Gnu, "mix") else { return Ok(None) };
        let mpi = apps::build_hybrid_or_skip(Mpi::OpenMpi, "mix_mpi").zip(Mpi::OpenMpi.mpirun());
        let programs = Programs { openmp, mpi };
        let mut speeds = BTreeMap::new();
        let mut jobs = Vec::with_capacity(N_JOBS);
        for job in draw(SEED, n_cpus) {
            let key = (job.kind.word(), job.is_mpi, job.n_cpus);
            let speed = match speeds.get(&key) {
                Some(speed) => *speed,
                None => *speeds.entry(key).or_insert(programs.speed(&job)?),
            };
            let n_pieces = (speed * job.alone.as_secs_f64()).ceil().max(1.0) as u64;
            jobs.push((job, n_pieces));
        }
        for kind in Kind::ALL {
            let speed = |n_cpus: u32| speeds.get(&(kind.word(), false, n_cpus));
            if let (Some(half), Some(all)) = (speed((n_cpus / 2).max(1)), speed(n_cpus)) {
                table.note(format!("{} on all CPUs, beside half of them: speed", kind.word()), all / half, "×");
            }
        }
        let home = tempfile::Builder::new().prefix("limber-mix-").tempdir().context("no temporary directory")?;
        Ok(Some(Mix { home, programs, jobs, n_cpus }))
    }

    /// All jobs on a cluster of their own.
    fn run(&self, regime: &Regime) -> Result<Outcome> {
        let folder = self.home.path().join(regime.name);
        fs::create_dir(&folder).context("cannot make a directory")?;
        let cluster = Cluster::of(regime.n_nodes, &format!("pack:1 core:{} pu:1", self.n_cpus))?;
        for (key, value) in [("allocation", "cores"), ("policy", "slowdown"), ("max_slowdown", regime.max_slowdown)] {
            cluster.rms(&["admin", "set", key, value])?;
        }
        let energy = Energy::now(Path::new(POWERCAP));
        let busy = process::busy()?;
        let begun = Instant::now();
        let mut ids = Vec::with_capacity(self.jobs.len());
        for (idx, (job, n_pieces)) in self.jobs.iter().enumerate() {
            std::thread::sleep(job.arrival.saturating_sub(begun.elapsed()));
            let command = self.programs.command(job, *n_pieces);
            let script = folder.join(format!("{idx}.sh"));
            let text = format!("#!/bin/sh\n{command} > '{}'\n", told(&folder, idx).display());
            fs::write(&script, text).context("cannot write a script")?;
            ids.push(submit(&cluster, job, regime, &script)?);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async { cluster.client().await?.drained(LONGEST_RUN).await })?;
        let busy = process::busy()?.saturating_sub(busy).as_secs_f64();
        let energy = energy.and_then(|energy| energy.since());
        if let Err(reason) = &energy {
            eprintln!("SKIPPED: energy under {}: {reason:#}", regime.name);
        }
        let history = cluster.rms(&["history", "--json", "--limit", "0"])?;
        let history: Value = serde_json::from_slice(&history.stdout).context("no JSON")?;
        let records = history["jobs"].as_array().context("no history")?;
        let mut outcome = Outcome { jobs: Vec::with_capacity(ids.len()), n_failed: 0, energy: energy.ok(), busy };
        for (idx, id) in ids.into_iter().enumerate() {
            let record = records.iter().find(|record| record["job"] == id);
            let record = record.with_context(|| format!("job {id} is not in the history"))?;
            outcome.n_failed += usize::from(record["outcome"]["word"] != "completed");
            outcome.jobs.push(ran(record, &told(&folder, idx)).with_context(|| format!("job {id}: {record}"))?);
        }
        Ok(outcome)
    }
}

impl Programs {
    /// What a shell executes for it.
    fn command(&self, job: &Job, n_pieces: u64) -> String {
        let ((n_tasks, n_threads), kind) = (job.tasks(), job.kind.word());
        // So many threads, also if it begins with fewer CPUs, once it has them all.
        let threads = format!("export OMP_NUM_THREADS={n_threads}\n");
        match &self.mpi {
            Some((program, mpirun)) if job.is_mpi => format!(
                "{threads}export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n\
                 exec '{}' --host localhost:{n_tasks} -n {n_tasks} --bind-to none '{}' {kind} {n_pieces}",
                mpirun.display(),
                program.display()
            ),
            Some(_) | None => format!("{threads}exec '{}' {kind} {n_pieces}", self.openmp.display()),
        }
    }

    /// How many pieces of such a job's work are done in a second, beside nobody: the most of some times.
    fn speed(&self, job: &Job) -> Result<f64> {
        let mut most = 0.0_f64;
        for _ in 0..N_PROBES {
            let mut command = Command::new("sh");
            command.args(["-c", &self.command(job, N_PROBED)]).stdin(Stdio::null());
            let output = command.output().context("cannot run a shell")?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
            let ran = word_after(&text, "ran").with_context(|| format!("a program says '{text}': {complaint}"))?;
            most = most.max(N_PROBED as f64 / ran.max(0.001));
        }
        Ok(most)
    }
}

/// The same of all regimes but for the wall time; its number.
fn submit(cluster: &Cluster, job: &Job, regime: &Regime, script: &Path) -> Result<u64> {
    let wall = format!("{}s", job.wall_secs * regime.patience);
    let (n_tasks, n_cpus) = job.tasks();
    let (n_tasks, n_cpus, script) = (n_tasks.to_string(), n_cpus.to_string(), script.display().to_string());
    let as_usual = ["submit", "--json", "-N", "1", "-t", &wall, "-o", "/dev/null", "-e", "/dev/null"];
    let flags = ["-n", &n_tasks, "-c", &n_cpus, "--share", "--malleable-threads", &script];
    let answer = cluster.rms(&[&as_usual[..], &flags[..]].concat())?;
    let answer: Value = serde_json::from_slice(&answer.stdout).context("no JSON")?;
    answer["job"].as_u64().context("no job")
}

/// What a program says at its end.
fn told(folder: &Path, idx: usize) -> PathBuf {
    folder.join(format!("{idx}.told"))
}

/// The number behind a word.
fn word_after(text: &str, key: &str) -> Option<f64> {
    text.split_whitespace().skip_while(|word| *word != key).nth(1)?.parse().ok()
}

fn ran(record: &Value, told: &Path) -> Result<Ran> {
    let time = |key: &str| -> Result<f64> {
        let text = record[key].as_str().with_context(|| format!("it has no time '{key}'"))?;
        Ok(text.parse::<jiff::Timestamp>()?.as_millisecond() as f64 / 1000.0)
    };
    let told = fs::read_to_string(told).unwrap_or_default();
    Ok(Ran {
        submitted: time("submitted")?,
        started: time("started")?,
        ended: time("ended")?,
        cpu: record["cpu_ms"].as_f64().unwrap_or(0.0) / 1000.0,
        lent: record["cpu_time_lent_s"].as_f64().unwrap_or(0.0),
        borrowed: record["cpu_time_borrowed_s"].as_f64().unwrap_or(0.0),
        held: word_after(&told, "held"),
    })
}

fn note(table: &mut Table, regime: &Regime, outcome: &Outcome, metrics: &Metrics) {
    let name = |what: &str| format!("{}: {what}", regime.name);
    table.note(name("makespan"), metrics.makespan, "s");
    table.note(name("mean response"), metrics.response, "s");
    table.note(name("mean slowdown"), metrics.slowdown, "");
    table.note(name("mean bounded slowdown"), metrics.bounded_slowdown, "");
    table.note(name("CPU time used"), metrics.cpu, "s");
    // Programs that wait for each other are slowed much by whoever else has a CPU: nothing can be said of such a run.
    table.note(name("CPU time of all other programs"), (outcome.busy - metrics.cpu).max(0.0), "s");
    if let Some(joules) = outcome.energy {
        table.note(name("energy of the packages"), joules, "J");
    }
    if outcome.n_failed > 0 {
        table.note(name("jobs that did not complete"), outcome.n_failed as f64, "");
    }
}

/// Changes in percent, as Figure 9 has them.
fn note_beside(
    table: &mut Table,
    name: &str,
    (ours, energy): (&Metrics, Option<f64>),
    (fixed, energy_fixed): (&Metrics, Option<f64>),
) {
    let mut note = |what: &str, ours: f64, fixed: f64| {
        table.note(format!("{name}, beside static: {what}"), 100.0 * (ours / fixed - 1.0), "%");
    };
    note("makespan", ours.makespan, fixed.makespan);
    note("mean response", ours.response, fixed.response);
    note("mean slowdown", ours.slowdown, fixed.slowdown);
    note("mean bounded slowdown", ours.bounded_slowdown, fixed.bounded_slowdown);
    note("CPU time used", ours.cpu, fixed.cpu);
    if let (Some(ours), Some(fixed)) = (energy, energy_fixed) {
        note("energy", ours, fixed);
    }
}

/// Of whom 004 says that 449 of 539 ran better, and of those who lent.
fn note_better(table: &mut Table, jobs: &[Ran], fixed: &[Ran]) {
    let guests = ("guests", Better::of(jobs, fixed, Ran::is_guest));
    let mates = ("mates", Better::of(jobs, fixed, Ran::is_mate));
    for (role, better) in [guests, mates] {
        table.note(format!("SD-Policy: {role}"), better.n_jobs as f64, "");
        table.note("… of them better per CPU second held than static", better.n_better as f64, "");
        if better.n_jobs > 0 {
            let change = 100.0 * (better.held / better.held_fixed - 1.0);
            table.note(format!("… CPU seconds held by all {role}, beside static"), change, "%");
        }
    }
}
