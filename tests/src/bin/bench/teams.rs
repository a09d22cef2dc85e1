//! OpenMP programs whose job gives cores back and has them again: how long an iteration takes, with the library that has
//! teams follow and without it.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rms_tests::openmp::{OpenMp, build_or_skip};
use tempfile::TempDir;

use crate::cluster::Cluster;
use crate::table::{Table, quantile};

/// Iterations that count, and those before them that do not.
const COUNTED: usize = 12;
const SKIPPED: usize = 3;
/// Iterations that count where one by one they differ by more than what is looked for.
const UNSHAKEN: usize = 200;
/// Runs without the library, each followed by one with it, where nothing resizes.
const PAIRS: usize = 8;
/// What it writes them to.
const TOLD: &str = "told";
const PATIENCE: Duration = Duration::from_secs(120);

pub fn table() -> Result<Table> {
    let mut table = Table::new("OpenMP teams on 2 CPUs, on 1, and on 2 again: one iteration, the median of 12");
    let cluster = Cluster::up(1)?;
    for (runtime, grain) in [(OpenMp::Gnu, "coarse"), (OpenMp::Gnu, "fine"), (OpenMp::Llvm, "coarse")] {
        let Some(program) = build_or_skip(runtime, "team_speed") else { continue };
        for (flags, word) in [(&[][..], "only moved"), (&["--malleable-threads"][..], "followed")] {
            let command = format!("exec {} {grain}", program.display());
            let measured = measure(&cluster, &command, flags)?;
            for (when, ms) in ["on 2", "on 1", "on 2 again"].into_iter().zip(measured) {
                table.note(format!("{}, {grain} regions, {word}: {when}", runtime.compiler()), ms, "ms");
            }
        }
    }
    for (runtime, grain) in [(OpenMp::Gnu, "coarse"), (OpenMp::Gnu, "fine"), (OpenMp::Llvm, "coarse")] {
        let Some(program) = build_or_skip(runtime, "team_speed") else { continue };
        let command = format!("exec {} {grain}", program.display());
        let name = format!("{}, {grain} regions, never resized", runtime.compiler());
        table.note(format!("{name}: the library costs"), overhead(&cluster, &command)?, "%");
    }
    Ok(table)
}

/// By how much an iteration takes longer with the library, in percent: the median over pairs of runs.
fn overhead(cluster: &Cluster, command: &str) -> Result<f64> {
    let mut percents = Vec::with_capacity(PAIRS);
    for _ in 0..PAIRS {
        let job = Job::submit(cluster, command, &[])?;
        let without = job.median(UNSHAKEN)?;
        job.end(cluster)?;
        let job = Job::submit(cluster, command, &["--malleable-threads"])?;
        percents.push((job.median(UNSHAKEN)? / without - 1.0) * 100.0);
        job.end(cluster)?;
    }
    Ok(quantile(&mut percents, 0.5))
}

/// With all of its cores, with one, and with all.
fn measure(cluster: &Cluster, command: &str, flags: &[&str]) -> Result<[f64; 3]> {
    let job = Job::submit(cluster, command, flags)?;
    let whole = job.median(COUNTED)?;
    cluster.rms(&["negotiate", &job.id, "--shrink-cores", "7"])?;
    let one = job.median(COUNTED)?;
    cluster.rms(&["negotiate", &job.id, "--grow-cores", "7"])?;
    let again = job.median(COUNTED)?;
    job.end(cluster)?;
    Ok([whole, one, again])
}

/// A program that runs until it is ended, and writes down how long each iteration takes.
struct Job {
    id: String,
    dir: TempDir,
}

impl Job {
    /// All have as many threads at the beginning.
    fn submit(cluster: &Cluster, command: &str, flags: &[&str]) -> Result<Job> {
        let dir = tempfile::tempdir().context("no temporary directory")?;
        let script = dir.path().join("job.sh");
        let told = dir.path().join(TOLD);
        fs::write(&script, format!("#!/bin/sh\nexport OMP_NUM_THREADS=2\n{command} > {}\n", told.display()))?;
        let script = script.display().to_string();
        let answer =
            cluster.rms(&[&["submit", "--json", "-t", "10m", "-o", "/dev/null"], flags, &[&script]].concat())?;
        let answer: serde_json::Value = serde_json::from_slice(&answer.stdout).context("no JSON")?;
        let id = answer["job"].as_u64().context("no job")?.to_string();
        Ok(Job { id, dir })
    }

    /// Of the iterations that begin from now on, in milliseconds.
    fn median(&self, n_iterations: usize) -> Result<f64> {
        let lines = || -> Vec<f64> {
            let text = fs::read_to_string(self.dir.path().join(TOLD)).unwrap_or_default();
            text.lines().filter_map(|line| line.parse().ok()).collect()
        };
        let (start, n_before) = (Instant::now(), lines().len());
        loop {
            let lines = lines();
            if lines.len() >= n_before + SKIPPED + n_iterations {
                let mut counted = lines[n_before + SKIPPED..][..n_iterations].to_vec();
                return Ok(quantile(&mut counted, 0.5));
            }
            if start.elapsed() > PATIENCE {
                bail!("the program has made {} iterations in {PATIENCE:?}", lines.len() - n_before);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn end(self, cluster: &Cluster) -> Result<()> {
        cluster.rms(&["cancel", &self.id])?;
        // A cancelled job is not what `wait` calls well.
        cluster.rms(&["wait", &self.id]).map(drop).or_else(|_| anyhow::Ok(()))
    }
}
