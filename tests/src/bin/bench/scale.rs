//! How the server carries many agents and many jobs: memory, idle CPU, dispatch without processes, restart.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rms_model::Span;

use crate::fleet::{Fleet, Manner};
use crate::process;
use crate::server::Server;
use crate::table::{Table, Target};

const QUEUED: u32 = 100_000;

/// Memory and idle CPU with connected model agents.
pub fn agents() -> Result<Table> {
    let mut table = Table::new("Connected model agents (real links and node logic, one process)");
    for n_agents in [0_u32, 1_000, 10_000] {
        let server = Server::start()?;
        let begun = Instant::now();
        let fleet = Fleet::start(server.address()?, &server.dir().join("ca"), 0, n_agents, Manner::Hold)?;
        if n_agents > 0 {
            let millis = begun.elapsed().as_secs_f64() * 1000.0 / f64::from(n_agents);
            table.note(format!("{n_agents} agents: certificate, handshake and welcome, each"), millis, "ms");
        }
        std::thread::sleep(Duration::from_secs(2));
        let (before, watched) = (cpu(server.pid()), Duration::from_secs(10));
        std::thread::sleep(watched);
        let share = 100.0 * (cpu(server.pid()) - before).as_secs_f64() / watched.as_secs_f64();
        let resident = process::resident_mib(server.pid()).context("the server is gone")?;
        let (memory, load) = match n_agents {
            0 => (Target::AtMost(14.0), Target::Reference),
            10_000 => (Target::AtMost(1024.0), Target::AtMost(20.0)),
            _ => (Target::Reference, Target::Reference),
        };
        table.measure(
            format!("{n_agents} agents: resident, server"),
            resident,
            "MiB",
            memory,
            "QUIC's buffers of each connection",
        );
        table.measure(
            format!("{n_agents} agents: idle CPU, server"),
            share,
            "% of a core",
            load,
            "heartbeats of each connection",
        );
        if n_agents > 0 {
            let all = process::resident_mib(fleet.pid()).context("the agents are gone")?;
            table.note(format!("{n_agents} agents: resident, all model agents together"), all, "MiB");
        }
    }
    Ok(table)
}

/// A long queue: how fast it builds, what it weighs, how long a restart takes with it.
pub fn queue() -> Result<Table> {
    let mut table = Table::new("100,000 jobs queued before one node");
    let mut server = Server::start()?;
    let _fleet = Fleet::start(server.address()?, &server.dir().join("ca"), 0, 1, Manner::Hold)?;
    let idle = process::resident_mib(server.pid()).context("the server is gone")?;
    table.note("resident before", idle, "MiB");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let client = server.client().await?;
        let (cpu_before, begun) = (cpu(server.pid()), Instant::now());
        client.submit(QUEUED, &["true"], Span::from_hours(1)).await?;
        let took = begun.elapsed();
        let rate = f64::from(QUEUED) / took.as_secs_f64();
        let each = (cpu(server.pid()) - cpu_before).as_secs_f64() * 1e6 / f64::from(QUEUED);
        table.measure(
            "submits on one connection, each durable",
            rate,
            "/s",
            Target::AtLeast(20_000.0),
            "client and server share two cores",
        );
        table.note("CPU of the server for a submit", each, "µs");
        let resident = process::resident_mib(server.pid()).context("the server is gone")?;
        table.note("resident, server", resident, "MiB");
        let (client, took) = server.restart().await?;
        let bound = "the journal's facts are read and applied one by one";
        table.measure("kill -9 and start until it answers", took.as_secs_f64(), "s", Target::AtMost(1.0), bound);
        let status = client.status().await?;
        let n_known = f64::from(status.n_waiting + status.n_started);
        table.measure(
            "jobs known after it",
            n_known,
            "",
            Target::AtLeast(f64::from(QUEUED)),
            "a lost acknowledged job is a bug",
        );
        let resident = process::resident_mib(server.pid()).context("the server is gone")?;
        table.note("resident after the restart", resident, "MiB");
        Ok(table)
    })
}

/// The whole way of a job but for its processes, over real links, journal and history.
pub fn dispatch() -> Result<Table> {
    const N_JOBS: u32 = 20_000;
    let mut table = Table::new("Dispatch without starting processes: submit, start, end, durable history");
    for n_agents in [1, 16, 64] {
        let server = Server::start()?;
        let fleet = Fleet::start(server.address()?, &server.dir().join("ca"), 0, n_agents, Manner::Answer)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (rate, server_us, agents_us) = runtime.block_on(async {
            let client = server.client().await?;
            let (of_server, of_agents, begun) = (cpu(server.pid()), cpu(fleet.pid()), Instant::now());
            client.submit(N_JOBS, &["true"], Span::from_mins(1)).await?;
            client.drained(Duration::from_secs(120)).await?;
            let took = begun.elapsed();
            let each = |spent: Duration| spent.as_secs_f64() * 1e6 / f64::from(N_JOBS);
            let of_server = each(cpu(server.pid()) - of_server);
            anyhow::Ok((f64::from(N_JOBS) / took.as_secs_f64(), of_server, each(cpu(fleet.pid()) - of_agents)))
        })?;
        let (fast, cheap) = if n_agents == 64 {
            (Target::AtLeast(20_000.0), Target::AtMost(35.0))
        } else {
            (Target::Reference, Target::Reference)
        };
        table.measure(
            format!("{n_agents} agents: jobs"),
            rate,
            "/s",
            fast,
            "client, server and agents share two cores",
        );
        table.measure(
            format!("{n_agents} agents: CPU of the server for a job"),
            server_us,
            "µs",
            cheap,
            "QUIC and the journal",
        );
        table.note(format!("{n_agents} agents: CPU of all model agents for a job"), agents_us, "µs");
    }
    Ok(table)
}

fn cpu(pid: i32) -> Duration {
    process::read(pid).map(|process| process.cpu()).unwrap_or_default()
}
