//! Ten thousand connections that say nothing, and what another user's `rms run true` takes beside them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rms_tests::hostile;
use rms_wire::tls::ALPN_JOIN;
use tokio::task::JoinSet;

use crate::cluster::Cluster;
use crate::process;
use crate::table::{Table, Target, quantile};

const N_STRANGERS: usize = 10_000;
const N_RUNS: usize = 30;

/// They finish TLS for the join protocol, as fast as the machine can, and hold what they get.
pub fn table() -> Result<Table> {
    let mut table = Table::new("Silent strangers: connections that finish TLS to join, and say nothing");
    let cluster = Cluster::up(2)?;
    let server = cluster.server()?;
    let mut idle = times(&cluster)?;
    let idle = quantile(&mut idle, 0.5);
    table.note("rms run true, idle, median", idle, "ms");
    let before = process::resident_mib(server).context("the server lives")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let address = cluster.address()?;
    let begun = Instant::now();
    let strangers = runtime.spawn(strangers(address));
    let mut during = Vec::new();
    while !strangers.is_finished() {
        let run = Instant::now();
        cluster.rms(&["run", "true"])?;
        during.push(run.elapsed().as_secs_f64() * 1000.0);
    }
    let peak = process::resident_mib(server).context("the server lives")?;
    let held = runtime.block_on(strangers)?;
    table.note(format!("{N_STRANGERS} connections were made, and kept, in"), begun.elapsed().as_secs_f64(), "s");
    table.note("rms run true while they come, worst", quantile(&mut during, 1.0), "ms");
    let mut beside = times(&cluster)?;
    let bound = "the two cores that the strangers use, too";
    table.measure(
        "rms run true beside them, median",
        quantile(&mut beside, 0.5),
        "ms",
        Target::AtMost(2.0 * idle),
        bound,
    );
    let bound = "places for those who have no link yet";
    table.measure("memory of the server for them", peak - before, "MiB", Target::AtMost(64.0), bound);
    table.note("of them connected now", held.iter().filter(|one| one.close_reason().is_none()).count() as f64, "");
    drop(held);
    std::thread::sleep(Duration::from_secs(5));
    let after = process::resident_mib(server).context("the server lives")?;
    table.note("memory of the server when they have left, above before", after - before, "MiB");
    Ok(table)
}

async fn strangers(address: SocketAddr) -> Vec<quinn::Connection> {
    let endpoint = quinn::Endpoint::client(([127, 0, 0, 1], 0).into()).expect("a free port");
    let mut connecting = JoinSet::new();
    let mut held = Vec::new();
    for _ in 0..N_STRANGERS {
        if connecting.len() >= 256 {
            held.extend(connecting.join_next().await.and_then(Result::ok).flatten());
        }
        let attempt = hostile::raw_from(&endpoint, address, ALPN_JOIN, None).expect("sent");
        connecting.spawn(async move { tokio::time::timeout(Duration::from_secs(10), attempt).await.ok()?.ok() });
    }
    held.extend(connecting.join_all().await.into_iter().flatten());
    held
}

fn times(cluster: &Cluster) -> Result<Vec<f64>> {
    let one = |_| {
        let begun = Instant::now();
        cluster.rms(&["run", "true"])?;
        Ok(begun.elapsed().as_secs_f64() * 1000.0)
    };
    (0..N_RUNS).map(one).collect()
}
