//! Shows the product at work: two clusters on this machine, a real workload, MPI programs, and a server that is killed.

mod limber;
mod report;
mod screen;
mod story;
mod workload;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use rms_tests::apps::{self, Mpi};

use limber::Limber;
use story::{Programs, Story};

const LAYOUT: &str = "a:4,b:4";
const N_NODES: u32 = 8;

fn main() -> ExitCode {
    let flags: Vec<String> = std::env::args().skip(1).collect();
    let scale = match flags.iter().map(String::as_str).collect::<Vec<&str>>().as_slice() {
        [] => workload::FULL,
        ["--short"] => workload::SHORT,
        _ => {
            eprintln!("usage: demo [--short]");
            return ExitCode::from(2);
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = runtime.context("cannot start").and_then(|runtime| runtime.block_on(demonstrate(scale)));
    match outcome {
        Ok(wrong) if wrong.is_empty() => ExitCode::SUCCESS,
        Ok(wrong) => {
            for complaint in wrong {
                println!("WRONG: {complaint}");
            }
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the whole; what went wrong, if anything did.
async fn demonstrate(scale: workload::Scale) -> Result<Vec<String>> {
    let begun = Instant::now();
    let mut programs = Vec::new();
    for mpi in Mpi::ALL {
        match (apps::build(mpi, "nbody")?, mpi.mpirun()) {
            (Some(nbody), Some(mpirun)) => programs.push(Programs { mpi, nbody, mpirun }),
            (None, _) | (_, None) => println!("{} is not installed: its programs are left out", mpi.name()),
        }
    }
    let mpis: Vec<Mpi> = programs.iter().map(|programs| programs.mpi).collect();
    let jobs = workload::programme(workload::TRACE, scale, &mpis)?;

    let home = tempfile::Builder::new().prefix("limber-demo-").tempdir().context("no temporary directory")?;
    let limber = Limber::new(&home.path().join("up"), LAYOUT)?;
    println!(
        "The first {} jobs of LLNL's Atlas, scaled to {LAYOUT} nodes on this machine ({}).",
        jobs.len(),
        home.path().display()
    );
    limber.up().await.context("the clusters do not come up")?;
    let mut story = Story::new(&limber, home.path(), programs, jobs);
    let told = tokio::select! {
        told = story.tell() => told,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    if told.is_err() {
        story.show_logs();
    }
    let stopped = limber.down().await.context("the clusters do not go down");
    let closed = told?;
    stopped?;
    let (table, wrong) = report::close(&closed, N_NODES);
    println!("\n{table}");
    if wrong.is_empty() {
        println!(
            "Nothing was lost; the server was killed and restarted in the middle. {}",
            report::brief(begun.elapsed())
        );
    }
    Ok(wrong)
}
