//! OpenMP programs whose job gives cores back and has them again: how long an iteration takes, with the library that has
//! teams follow and without it.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rms_tests::openmp::{OpenMp, build_or_skip};

use crate::cluster::Cluster;
use crate::table::{Table, quantile};

/// Iterations that count, and those before them that do not.
const COUNTED: usize = 12;
const SKIPPED: usize = 3;
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
    Ok(table)
}

/// With all of its cores, with one, and with all.
fn measure(cluster: &Cluster, command: &str, flags: &[&str]) -> Result<[f64; 3]> {
    let dir = tempfile::tempdir().context("no temporary directory")?;
    let told = dir.path().join("told");
    let script = dir.path().join("job.sh");
    // Both have as many threads at the beginning.
    fs::write(&script, format!("#!/bin/sh\nexport OMP_NUM_THREADS=2\n{command} > {}\n", told.display()))?;
    let script = script.display().to_string();
    let answer = cluster.rms(&[&["submit", "--json", "-t", "10m", "-o", "/dev/null"], flags, &[&script]].concat())?;
    let answer: serde_json::Value = serde_json::from_slice(&answer.stdout).context("no JSON")?;
    let job = answer["job"].as_u64().context("no job")?.to_string();
    let whole = median(&told)?;
    cluster.rms(&["negotiate", &job, "--shrink-cores", "7"])?;
    let one = median(&told)?;
    cluster.rms(&["negotiate", &job, "--grow-cores", "7"])?;
    let again = median(&told)?;
    cluster.rms(&["cancel", &job])?;
    cluster.rms(&["wait", &job]).map(drop).or_else(|_| anyhow::Ok(()))?;
    Ok([whole, one, again])
}

/// Of the iterations that begin from now on.
fn median(told: &Path) -> Result<f64> {
    let lines = || -> Vec<f64> {
        let text = fs::read_to_string(told).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    };
    let (start, n_before) = (Instant::now(), lines().len());
    loop {
        let lines = lines();
        if lines.len() >= n_before + SKIPPED + COUNTED {
            let mut counted = lines[n_before + SKIPPED..][..COUNTED].to_vec();
            return Ok(quantile(&mut counted, 0.5));
        }
        if start.elapsed() > PATIENCE {
            bail!("the program has made {} iterations in {PATIENCE:?}", lines.len() - n_before);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
