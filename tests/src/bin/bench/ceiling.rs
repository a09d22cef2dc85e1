//! The ceiling for running jobs: fork, exec and wait for `true` as fast as this machine can, in this run.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// What one round of `true` costs, and how many go in a second.
#[derive(Clone, Copy, Debug)]
pub struct Ceiling {
    pub cpu_ms: f64,
    pub per_second: f64,
}

/// Runs `n_rounds` programs on `n_threads` threads at once.
pub fn measure(n_rounds: u32, n_threads: u32) -> Result<Ceiling> {
    let own = i32::try_from(std::process::id()).context("a pid is small")?;
    let cpu = || crate::process::read(own).map(|process| process.cpu_with_children()).unwrap_or_default();
    let (cpu_before, begun) = (cpu(), Instant::now());
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..n_threads).map(|_| scope.spawn(|| run(n_rounds / n_threads))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no thread panics"))
    })?;
    let (took, used): (Duration, Duration) = (begun.elapsed(), cpu() - cpu_before);
    let n_done = f64::from(n_rounds / n_threads * n_threads);
    Ok(Ceiling { cpu_ms: used.as_secs_f64() * 1000.0 / n_done, per_second: n_done / took.as_secs_f64() })
}

fn run(n_rounds: u32) -> Result<()> {
    for _ in 0..n_rounds {
        let mut command = Command::new("/bin/true");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).env_clear();
        command.status().context("cannot run /bin/true")?;
    }
    Ok(())
}
