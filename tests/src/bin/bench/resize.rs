//! How long a change of nodes takes on real agents: from the agreement to the first instruction on a new node, and from
//! the order to shrink to the node being free.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use negotiation::{Direction, NegotiationId, Phase, Price};
use rms_api::Answer;
use rms_api::negotiate::{Ask, AskOutcome, Asked, Said};
use rms_api::{Call, Query};
use rms_model::{JobId, Sizes, Span};

use crate::cluster::Cluster;
use crate::server::Client;
use crate::table::{Table, quantile};

const CHANGES: usize = 60;

pub fn table() -> Result<Table> {
    let mut table = Table::new("A job of workers grows by a node and gives it back, on four agents");
    let cluster = Cluster::up(4)?;
    cluster.rms(&["admin", "set", "offer_idle", "never"])?;
    let dir = tempfile::Builder::new().prefix("limber-bench-").tempdir().context("no temporary directory")?;
    let (worker, births) = (dir.path().join("worker"), dir.path().join("births"));
    let script = format!("#!/bin/sh\ndate +%s%N >> {}\nexec sleep 3600\n", births.display());
    std::fs::write(&worker, script).context("cannot write the worker")?;
    std::fs::set_permissions(&worker, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let worker = worker.display().to_string();
    let submit = ["submit", "-q", "-N", "1", "--malleable", "1-4", "--workers", "-o", "/dev/null", "-t", "1h", &worker];
    let submitted = cluster.rms(&submit)?;
    let job = JobId(String::from_utf8_lossy(&submitted.stdout).trim().parse().context("the id of the job")?);
    born(&births, 1)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = cluster.client().await?;
        let (mut instructed, mut ready, mut freed) = (Vec::new(), Vec::new(), Vec::new());
        for change in 0..CHANGES {
            let begun = Instant::now();
            let id = ask(&client, job, Direction::Grow).await?;
            ready.push(millis(begun.elapsed()));
            let accepted = accepted_at(&client, job, id).await?;
            instructed.push(born(&births, change + 2)? - accepted);
            let begun = Instant::now();
            ask(&client, job, Direction::Shrink).await?;
            freed.push(millis(begun.elapsed()));
        }
        let note = "accepted to the first instruction of the new worker, p50";
        table.note(note, quantile(&mut instructed, 0.5), "ms");
        table.note("… p99", quantile(&mut instructed, 0.99), "ms");
        table.note("asked to ready, p50", quantile(&mut ready, 0.5), "ms");
        table.note("… p99", quantile(&mut ready, 0.99), "ms");
        table.note("order to shrink to the node being free, p50", quantile(&mut freed, 0.5), "ms");
        table.note("… p99", quantile(&mut freed, 0.99), "ms");
        anyhow::Ok(())
    })?;
    Ok(table)
}

async fn ask(client: &Client, job: JobId, direction: Direction) -> Result<NegotiationId> {
    let ask = Ask {
        direction,
        what: Asked::Nodes { cluster: None },
        quantity: 1,
        least: 1,
        sizes: Sizes::Any,
        price: Price(0),
        duration: None,
        nodes: Vec::new(),
        wait: Span::from_secs(10),
    };
    match client.call(&Call::Negotiate { job, ask }).await? {
        Answer::Negotiated(AskOutcome::Ready { negotiation, .. }) => Ok(negotiation),
        other => bail!("the server answered {other:?}"),
    }
}

/// When the server agreed, in milliseconds since 1970.
async fn accepted_at(client: &Client, job: JobId, id: NegotiationId) -> Result<f64> {
    let reply = client.call(&Call::Query(Query::Negotiations { job: Some(job) })).await?;
    let Answer::Negotiations { lines, .. } = reply else { bail!("the server answered {reply:?}") };
    let line = lines.into_iter().find(|line| line.record.id == id).context("the negotiation is remembered")?;
    let is_accepted = |said: &Said| matches!(said, Said::Phase { phase: Phase::Accepted, .. });
    let accepted = line.record.rounds.iter().find(|round| is_accepted(&round.said)).context("it was accepted")?;
    Ok(accepted.at.as_millis() as f64)
}

/// When so many workers had begun, the last of them; in milliseconds since 1970.
pub fn born(births: &Path, n_workers: usize) -> Result<f64> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(30) {
        let text = std::fs::read_to_string(births).unwrap_or_default();
        let whole = text.lines().filter(|line| line.len() == NANOS_DIGITS);
        if let Some(last) = whole.skip(n_workers - 1).last() {
            return Ok(last.parse::<f64>().context("a time")? / 1e6);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    bail!("worker {n_workers} does not begin")
}

/// Of nanoseconds since 1970, from 2001 to 2286.
const NANOS_DIGITS: usize = 19;

fn millis(span: Duration) -> f64 {
    1000.0 * span.as_secs_f64()
}
