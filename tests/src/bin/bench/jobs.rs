//! Real jobs through the whole system: rate and CPU beside the floor, and the latency of one.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rms_model::Span;

use crate::ceiling::{self, Ceiling};
use crate::cluster::Cluster;
use crate::table::{Table, Target, quantile};

const N_JOBS: u32 = 3_000;

/// Rate and CPU of `true` through submit, start, exit and durable history.
pub fn rate() -> Result<Table> {
    let mut table =
        Table::new("Jobs (`true`): submit, start, exit, durable history; the floor is fork + exec + wait in this run");
    let floor = floor(&mut table)?;
    for n_agents in [1, 4, 8] {
        let share = match n_agents {
            8 => Target::AtLeast(0.75 * floor.per_second),
            4 => Target::AtLeast(0.60 * floor.per_second),
            _ => Target::Reference,
        };
        let what = format!("{n_agents} agents");
        note(
            &mut table,
            &floor,
            &Cluster::up(n_agents)?,
            (&what, share, "one job holds a node from its start to its report"),
        )?;
    }
    Ok(table)
}

/// The same for jobs of one core each on one node of eight declared cores.
pub fn shared_node() -> Result<Table> {
    let mut table =
        Table::new("Jobs of one core (`true`) on one shared node of 8 declared cores, beside the same floor");
    let floor = floor(&mut table)?;
    let cluster = Cluster::up(1)?;
    cluster.rms(&["admin", "set", "allocation", "cores"])?;
    let target = Target::AtLeast(0.65 * floor.per_second);
    note(&mut table, &floor, &cluster, ("shared node", target, "one agent starts all of them"))?;
    Ok(table)
}

fn floor(table: &mut Table) -> Result<Ceiling> {
    let floor = ceiling::measure(4_000, 2)?;
    table.note("floor: CPU", floor.cpu_ms, "ms");
    table.note("floor: rate on two cores", floor.per_second, "/s");
    Ok(floor)
}

/// Runs jobs, and notes their rate, which has a target and a bound, and their CPU.
fn note(table: &mut Table, floor: &Ceiling, cluster: &Cluster, rated: (&str, Target, &'static str)) -> Result<()> {
    let (what, target, bound) = rated;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (before, begun) = (cluster.spent(), Instant::now());
    runtime.block_on(async {
        let client = cluster.client().await?;
        client.submit(N_JOBS, &["/bin/true"], Span::from_mins(10)).await?;
        client.drained(Duration::from_secs(300)).await
    })?;
    let (took, after) = (begun.elapsed(), cluster.spent());
    let each = |spent: Duration| spent.as_secs_f64() * 1000.0 / f64::from(N_JOBS);
    let (server, agents) = (each(after.server - before.server), each(after.agents - before.agents));
    let supervisors = each(after.supervisors.saturating_sub(before.supervisors));
    let ended = each(after.ended.saturating_sub(before.ended));
    table.measure(format!("{what}: jobs"), f64::from(N_JOBS) / took.as_secs_f64(), "/s", target, bound);
    table.note(format!("{what}: CPU of the server for a job"), server, "ms");
    table.note(format!("{what}: CPU of agents and spawners for a job"), agents, "ms");
    // The spawner ignores the ends of its children, and the kernel then forgets what they used: lower bounds.
    table.note(format!("{what}: CPU of supervisors for a job, at least"), supervisors, "ms");
    table.note(format!("{what}: CPU of a task with its fork and exec, at least"), ended, "ms");
    let whole = (server + agents + supervisors + ended) / floor.cpu_ms;
    table.note(format!("{what}: CPU of everything, in floors"), whole, "×");
    let apart = (server + agents + floor.cpu_ms) / floor.cpu_ms;
    let apart_of = format!("{what}: CPU without the supervisor, in floors");
    table.measure(apart_of, apart, "×", Target::AtMost(1.3), "messages, journal and the spool of each job");
    Ok(())
}

/// One job at a time on a warm cluster, from the command line.
pub fn latency() -> Result<Table> {
    let mut table = Table::new("One at a time, from the command line, on a warm cluster");
    let cluster = Cluster::up(16)?;
    let mut agents = cluster.agents_mib();
    table.measure(
        "resident, an idle agent (median)",
        quantile(&mut agents, 0.5),
        "MiB",
        Target::AtMost(8.0),
        "the runtime and TLS",
    );
    let bound = "starting `rms` itself, its handshake, and two commits";
    let mut runs = times(&cluster, 200, &["run", "true"])?;
    table.measure("rms run true, median", quantile(&mut runs, 0.5), "ms", Target::AtMost(10.0), bound);
    table.note("rms run true, 99 %", quantile(&mut runs, 0.99), "ms");
    let mut wide = times(&cluster, 20, &["run", "-O", "-N", "16", "-n", "128", "true"])?;
    let bound = "128 processes on two cores";
    table.measure("rms run -N 16 -n 128 true, median", quantile(&mut wide, 0.5), "ms", Target::AtMost(100.0), bound);
    let mut help = times(&cluster, 100, &["--version"])?;
    table.note("rms --version: what starting the command costs, median", quantile(&mut help, 0.5), "ms");
    let begun = Instant::now();
    times(&cluster, 300, &["submit", "-q", "--wrap", "true", "-o", "/dev/null"])?;
    let rate = 300.0 / begun.elapsed().as_secs_f64();
    table.measure(
        "rms submit, one after the other",
        rate,
        "/s",
        Target::AtLeast(250.0),
        "starting `rms` itself and its handshake",
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { cluster.client().await?.drained(Duration::from_secs(120)).await })?;
    Ok(table)
}

/// Milliseconds of each of `n_times`; the first ten warm up and do not count.
fn times(cluster: &Cluster, n_times: usize, args: &[&str]) -> Result<Vec<f64>> {
    let one = |_| {
        let begun = Instant::now();
        cluster.rms(args).context("a command of the bench")?;
        anyhow::Ok(begun.elapsed().as_secs_f64() * 1000.0)
    };
    let mut all: Vec<f64> = (0..n_times + 10).map(one).collect::<Result<_>>()?;
    Ok(all.split_off(10))
}
