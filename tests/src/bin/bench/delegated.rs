//! 001's Figure 12: the same workload on a live server, with launchers as processes over QUIC, and in simulation.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use experiments::delegated::CLUSTER_NODES;
use experiments::views::{self, Experiment, FAIR_START, Heard, RESCHED_TIMER, System};
use rms_model::{ClusterId, Span};

use crate::fleet::{Fleet, Manner};
use crate::model_launcher::{self, PLATFORM};
use crate::process;
use crate::server::Server;
use crate::table::{Table, Target};

/// So many seconds of the applications pass in one.
const SCALE: i64 = 10;
const P_CEM: [f64; 5] = [0.0, 0.2, 0.5, 0.8, 1.0];

pub fn table() -> Result<Table> {
    let mut table = Table::new(
        "001, Fig. 12: 200 launchers as processes over QUIC, 8 clusters of 128 nodes, beside their simulation",
    );
    for p_cem in P_CEM {
        let simulated = simulated(p_cem)?;
        let live = live(p_cem)?;
        let name = |what: &str| format!("{:.0} % complex: {what}", 100.0 * p_cem);
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        table.note(name("simulated, by 001's count"), megabytes(simulated.bytes), "MB");
        table.note(name("live, by 001's count"), megabytes(live.counted), "MB");
        table.note(name("live, frames sent and received"), megabytes(live.framed), "MB");
        table.note(name("ended at their wall time, for live delays"), f64::from(live.n_late), "");
        let bytes_ratio = live.framed as f64 / simulated.bytes as f64;
        let bound = "what live timing changes, and the frames of calls that 001 does not count";
        table.measure(
            name("live bytes beside simulated (001: at most 1.5)"),
            bytes_ratio,
            "×",
            Target::AtMost(1.5),
            bound,
        );
        table.note(name("simulated, server and launchers"), simulated.cpu.as_secs_f64(), "CPU s");
        table.note(name("live, server"), live.server.as_secs_f64(), "CPU s");
        table.note(name("live, launchers"), live.launchers.as_secs_f64(), "CPU s");
        table.note(name("live, their start, apart"), live.start.as_secs_f64(), "CPU s");
        let cpu_ratio = (live.server + live.launchers).as_secs_f64() / simulated.cpu.as_secs_f64();
        let bound = "encryption, processes that are woken, and the journal, which a simulation does not have";
        table.measure(name("live CPU beside simulated (001: at most 3.3)"), cpu_ratio, "×", Target::Reference, bound);
    }
    Ok(table)
}

struct Simulated {
    bytes: u64,
    cpu: Duration,
}

fn simulated(p_cem: f64) -> Result<Simulated> {
    let applications = model_launcher::applications(p_cem);
    let clusters: Vec<(ClusterId, u32)> = PLATFORM.clusters().map(|cluster| (cluster, CLUSTER_NODES)).collect();
    let (system, heard, fair_start, resched_timer) = (System::Views, Heard::ByAll, FAIR_START, RESCHED_TIMER);
    let experiment = Experiment {
        system,
        heard,
        clusters: &clusters,
        applications: &applications,
        fair_start,
        resched_timer,
        assumption: None,
    };
    let begun = Instant::now();
    let outcome = views::run(&experiment, &mut || begun.elapsed())?;
    Ok(Simulated { bytes: outcome.bytes(), cpu: outcome.server.cpu + outcome.launchers.cpu })
}

struct Live {
    /// Views and requests by 001, B.1, as the server counts them.
    counted: u64,
    /// All frames of the launchers' channels.
    framed: u64,
    /// From the moment on at which all launchers were connected.
    server: Duration,
    launchers: Duration,
    /// What the launchers spent until then.
    start: Duration,
    n_late: u32,
}

fn live(p_cem: f64) -> Result<Live> {
    let scaled = |span: Span| format!("{}ms", span.as_millis() / SCALE);
    let settings = format!("fair_start = \"{}\"\nresched_timer = \"{}\"", scaled(FAIR_START), scaled(RESCHED_TIMER));
    let server = Server::start_with(&settings)?;
    let address = server.address()?;
    let authority = server.dir().join("ca");
    // One after the other, so that the clusters have the ids of the simulated ones.
    let fleets = PLATFORM.clusters().enumerate().map(|(idx, cluster)| {
        let first = idx as u32 * CLUSTER_NODES;
        Fleet::start_in(&format!("c{}", cluster.0), address, &authority, first, CLUSTER_NODES, Manner::Hold)
    });
    let _fleets: Vec<Fleet> = fleets.collect::<Result<_>>()?;
    let dir = server.dir().join("admin");
    let client_file = dir.join(launcher_sdk::CONFIG_FILE);
    std::fs::write(client_file, format!("server = \"{address}\"\n")).context("cannot write the client's file")?;
    let n_applications = model_launcher::applications(p_cem).len();
    let mut launchers =
        (0..n_applications).map(|number| Launcher::start(&dir, p_cem, number)).collect::<Result<Vec<Launcher>>>()?;
    for launcher in &mut launchers {
        launcher.is_ready()?;
    }
    let cpu = || process::read(server.pid()).map(|process| process.cpu()).context("the server is gone");
    let before = cpu()?;
    for launcher in &mut launchers {
        launcher.go()?;
    }
    let (mut framed, mut start, mut spent, mut n_late) = (0, Duration::ZERO, Duration::ZERO, 0);
    for (number, launcher) in launchers.into_iter().enumerate() {
        let (bytes, [until, after], is_late) = launcher.ended().with_context(|| format!("launcher {number}"))?;
        framed += bytes;
        start += until;
        spent += after;
        n_late += u32::from(is_late);
    }
    let server_cpu = cpu()? - before;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report =
        runtime.block_on(async { anyhow::Ok(launcher_sdk::Client::connect(&dir).await?.launchers().await?) })?;
    let counted = report.status.notice_bytes + report.status.request_bytes;
    Ok(Live { counted, framed, server: server_cpu, launchers: spent, start, n_late })
}

/// A process that ends with this value.
struct Launcher {
    process: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
}

impl Launcher {
    fn start(dir: &std::path::Path, p_cem: f64, number: usize) -> Result<Launcher> {
        let own = std::env::current_exe().context("where am I?")?;
        let mut process = Command::new(own)
            .arg(model_launcher::WORD)
            .arg(dir)
            .args([p_cem.to_string(), number.to_string(), SCALE.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a launcher")?;
        let stdin = process.stdin.take().context("it has an input")?;
        let stdout = process.stdout.take().context("it has an output")?;
        Ok(Launcher { process, stdin, stdout })
    }

    fn is_ready(&mut self) -> Result<()> {
        self.stdout.read_exact(&mut [0]).context("a launcher could not connect")
    }

    fn go(&mut self) -> Result<()> {
        self.stdin.write_all(b"\n").context("a launcher is gone")
    }

    /// Its bytes, its CPU time until the experiment began and from there on, and whether its application was ended at its
    /// wall time.
    fn ended(mut self) -> Result<(u64, [Duration; 2], bool)> {
        let mut text = String::new();
        self.stdout.read_to_string(&mut text).context("its output")?;
        let numbers: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [sent, received, until, after, is_late] = numbers.as_slice() else { bail!("it said '{}'", text.trim()) };
        Ok((sent + received, [until, after].map(|micros| Duration::from_micros(*micros)), *is_late == 1))
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
