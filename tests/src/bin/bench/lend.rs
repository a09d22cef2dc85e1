//! Jobs that begin on CPUs which others lend (004): how long a pass looks for mates, and how long it takes from the order to
//! shrink to the first instruction of the guest.

use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use rms_api::filter::JobFilter;
use rms_api::{Answer, Call, Query};
use rms_core::Event;
use rms_model::{JobId, Policy, Settings, Span};

use crate::cluster::Cluster;
use crate::pass::{World, millis_since, submission, submitted_as};
use crate::resize::born;
use crate::server::Client;
use crate::table::{Table, quantile};

const N_CANDIDATES: u32 = 1000;
const N_PASSES: usize = 15;
const N_GUESTS: usize = 60;

pub fn table() -> Result<Table> {
    let mut table =
        Table::new("A guest on CPUs that running jobs lend: the search for mates, and its start on a real agent");
    for max_mates in [2, 3] {
        let mut passes = searches(max_mates)?;
        let what = format!("a pass that looks for {max_mates} mates among {N_CANDIDATES}");
        table.note(format!("{what}, median of {N_PASSES}"), quantile(&mut passes, 0.5), "ms");
        table.note(format!("{what}, slowest"), quantile(&mut passes, 1.0), "ms");
    }
    for (word, lends) in [("free CPUs", false), ("CPUs that are lent", true)] {
        let mut starts = starts(lends)?;
        let what = format!("started to the first instruction, on {word}");
        table.note(format!("{what}, p50"), quantile(&mut starts, 0.5), "ms");
        table.note(format!("{what}, p99"), quantile(&mut starts, 0.99), "ms");
    }
    Ok(table)
}

/// Each pass is for one more guest, of as many nodes as it may have mates, each of which has one.
fn searches(max_mates: u32) -> Result<Vec<f64>> {
    let mut settings = Settings { policy: Policy::Slowdown, ..Settings::default() };
    settings.sharing.max_mates = max_mates;
    let mut world = World::of(settings, N_CANDIDATES);
    let shares = |world: &mut World, n_nodes: u32, wall: Span| -> Result<f64> {
        let mut submission = submission(n_nodes, wall);
        submission.resources.share = true;
        world.handle(submitted_as(submission)?);
        let begun = Instant::now();
        world.handle(Event::Tick);
        Ok(millis_since(begun))
    };
    for number in 0..N_CANDIDATES {
        shares(&mut world, 1, Span::from_mins(600 + i64::from(number)))?;
    }
    let passes = (0..N_PASSES).map(|_| {
        world.now += Span::from_secs(1);
        shares(&mut world, max_mates, Span::from_mins(10))
    });
    let passes = passes.collect::<Result<Vec<f64>>>()?;
    let n_running = world.rms.state().jobs().values().filter(|entry| entry.started().is_some()).count();
    if n_running != N_CANDIDATES as usize + N_PASSES {
        bail!("only {n_running} jobs run: somebody found no mates");
    }
    Ok(passes)
}

/// From what the server says was the start of a job to its first instruction, one job after the other.
fn starts(lends: bool) -> Result<Vec<f64>> {
    let cluster = Cluster::up(1)?;
    cluster.rms(&["admin", "set", "policy", "slowdown"])?;
    cluster.rms(&["admin", "set", "max_slowdown", "infinite"])?;
    let dir = tempfile::Builder::new().prefix("limber-bench-").tempdir().context("no temporary directory")?;
    let births = dir.path().join("births");
    let script = dir.path().join("job.sh");
    std::fs::write(&script, format!("#!/bin/sh\ndate +%s%N >> {}\nexec sleep 3600\n", births.display()))?;
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755))?;
    let script = script.display().to_string();
    let submit = |wall: &str| -> Result<JobId> {
        let told =
            cluster.rms(&["submit", "-q", "--share", "-N", "1", "-n", "1", "-t", wall, "-o", "/dev/null", &script])?;
        Ok(JobId(String::from_utf8_lossy(&told.stdout).trim().parse().context("the id of the job")?))
    };
    let mut n_born = 0;
    if lends {
        submit("100h")?;
        n_born += 1;
        born(&births, n_born)?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = runtime.block_on(cluster.client())?;
    let mut starts = Vec::with_capacity(N_GUESTS);
    for _ in 0..N_GUESTS {
        let job = submit("10m")?;
        n_born += 1;
        let first = born(&births, n_born)?;
        starts.push(first - runtime.block_on(started_at(&client, job))?);
        cluster.rms(&["cancel", &job.to_string()])?;
        // It was cancelled, which is what is meant.
        cluster.rms(&["wait", &job.to_string()]).map(drop).or_else(|_| anyhow::Ok(()))?;
    }
    Ok(starts)
}

/// In milliseconds since 1970.
async fn started_at(client: &Client, job: JobId) -> Result<f64> {
    let Answer::Queue { jobs, .. } = client.call(&Call::Query(Query::Queue(JobFilter::default()))).await? else {
        bail!("the server answers with no queue");
    };
    let started = jobs.iter().find(|line| line.job == job).and_then(|line| line.started);
    Ok(started.context("it has started")?.as_millis() as f64)
}
