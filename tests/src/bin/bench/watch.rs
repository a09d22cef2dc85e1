//! A hundred who watch a long queue: what that costs the jobs, and how long each of them waits for his list.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rms_api::filter::JobFilter;
use rms_api::{Answer, Call, Query};
use rms_model::Span;
use tokio::task::JoinSet;

use crate::fleet::{Fleet, Manner};
use crate::process;
use crate::server::{Client, Server, sibling};
use crate::table::{Table, Target, quantile};

/// So many wait at least, while everything is measured.
const WAITING: u32 = 100_000;
/// What is run off meanwhile.
const SURPLUS: u32 = 200_000;
const WATCHERS: u32 = 100;
const N_AGENTS: u32 = 4;
const WINDOW: Duration = Duration::from_secs(2);
/// With and without watchers in turn, so that a busy minute of the machine is in both.
const WINDOWS: usize = 3;

/// What was done in the windows of one kind.
#[derive(Default)]
struct Rate {
    n_jobs: f64,
    took: Duration,
    cpu: Duration,
}

pub fn table() -> Result<Table> {
    let mut table = Table::new("100,000 jobs wait, others end, and 100 clients ask for the first 50 each second");
    let server = Server::start()?;
    let (address, authority) = (server.address()?, server.dir().join("ca"));
    let _holds = Fleet::start(address, &authority, 0, 1, Manner::Hold)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let client = runtime.block_on(server.client())?;
    // As a server has it that nobody has set up otherwise.
    runtime.block_on(client.call(&Call::Set { key: "queue_depth".to_owned(), value: "1000".to_owned() }))?;
    runtime.block_on(client.submit(WAITING + SURPLUS, &["true"], Span::from_hours(1)))?;
    let _answers = Fleet::start(address, &authority, 1, N_AGENTS, Manner::Answer)?;
    let asks = Arc::new(AtomicBool::new(false));
    let (told, lasted) = std::sync::mpsc::channel();
    let watchers = runtime.block_on(watch(&server, &asks, &told))?;
    let (mut alone, mut watched) = (Rate::default(), Rate::default());
    for _ in 0..WINDOWS {
        for (rate, is_watched) in [(&mut alone, false), (&mut watched, true)] {
            asks.store(is_watched, Ordering::Relaxed);
            // The last answers of the window before are on their way.
            std::thread::sleep(Duration::from_millis(200));
            runtime.block_on(rate.measure(&client, &server))?;
        }
    }
    let mut lists = times(&server, &["queue", "--limit", "50"], 30)?;
    asks.store(false, Ordering::Relaxed);
    let mut whole = times(&server, &["queue", "--json"], 3)?;
    let n_waiting = runtime.block_on(client.status())?.n_waiting;
    if n_waiting < WAITING {
        bail!("only {n_waiting} jobs waited at the end");
    }
    drop(told);
    let mut latencies: Vec<f64> = lasted.try_iter().collect();
    drop(watchers);
    let per_second = |rate: &Rate| rate.n_jobs / rate.took.as_secs_f64();
    let cpu = |rate: &Rate| rate.cpu.as_secs_f64() * 1e6 / rate.n_jobs;
    table.note("jobs, nobody asks", per_second(&alone), "/s");
    table.note("jobs, 100 ask", per_second(&watched), "/s");
    let lost = 100.0 * (1.0 - per_second(&watched) / per_second(&alone));
    table.measure(
        "of the rate lost",
        lost,
        "%",
        Target::AtMost(5.0),
        "100 clients decode their lists on the same two cores",
    );
    table.note("CPU of the server for a job, nobody asks", cpu(&alone), "µs");
    table.note("CPU of the server for a job, 100 ask", cpu(&watched), "µs");
    table.note("a list of 50, median", quantile(&mut latencies, 0.5), "ms");
    table.note("a list of 50, 99 %", quantile(&mut latencies, 0.99), "ms");
    let bound = "starting `rms`, its handshake, and what the server has to do meanwhile";
    table.measure("rms queue --limit 50, median", quantile(&mut lists, 0.5), "ms", Target::AtMost(20.0), bound);
    table.note("rms queue --json of all that wait, median", quantile(&mut whole, 0.5), "ms");
    Ok(table)
}

impl Rate {
    async fn measure(&mut self, client: &Client, server: &Server) -> Result<()> {
        let of_server = || process::read(server.pid()).map(|process| process.cpu()).unwrap_or_default();
        let (before, cpu, begun) = (client.status().await?, of_server(), Instant::now());
        tokio::time::sleep(WINDOW).await;
        let after = client.status().await?;
        self.took += begun.elapsed();
        self.cpu += of_server().saturating_sub(cpu);
        self.n_jobs += f64::from(before.n_waiting - after.n_waiting);
        Ok(())
    }
}

/// Clients with a link each that ask once a second, while they are to; each tells how many milliseconds an answer took.
async fn watch(
    server: &Server,
    asks: &Arc<AtomicBool>,
    told: &std::sync::mpsc::Sender<f64>,
) -> Result<JoinSet<Result<()>>> {
    let mut watchers = JoinSet::new();
    for number in 0..WATCHERS {
        let (client, asks, told) = (server.client().await?, Arc::clone(asks), told.clone());
        watchers.spawn(async move {
            tokio::time::sleep(Duration::from_secs(1) * number / WATCHERS).await;
            let mut each_second = tokio::time::interval(Duration::from_secs(1));
            loop {
                each_second.tick().await;
                if !asks.load(Ordering::Relaxed) {
                    continue;
                }
                let begun = Instant::now();
                let filter = JobFilter { limit: 50, ..JobFilter::default() };
                match client.call(&Call::Query(Query::Queue(filter))).await? {
                    Answer::Queue { jobs, .. } if jobs.len() == 50 => {}
                    other => bail!("the server answered {other:?}"),
                }
                // Who counts them may be done.
                let _ = told.send(begun.elapsed().as_secs_f64() * 1000.0);
            }
        });
    }
    Ok(watchers)
}

/// How many milliseconds a command takes, again and again.
fn times(server: &Server, args: &[&str], n_times: usize) -> Result<Vec<f64>> {
    let dir = server.dir().join("admin");
    std::fs::write(dir.join("client.toml"), format!("server = \"{}\"\n", server.address()?))?;
    let one = |_| {
        let begun = Instant::now();
        let command = Command::new(sibling("rms")?).arg("--dir").arg(&dir).args(args).stdin(Stdio::null()).output();
        let output = command.context("cannot run rms")?;
        if !output.status.success() {
            bail!("rms: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(begun.elapsed().as_secs_f64() * 1000.0)
    };
    (0..n_times).map(one).collect()
}
