//! A node without a server: real spawner, supervisors and processes; the test acts as the server.

#![allow(dead_code, reason = "each test file uses its part")]

pub mod cluster;
pub mod mpich;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use node_agent::cgroup::{CgroupMode, EnforcedResources, probe};
use node_agent::devices::DeviceFiles;
use node_agent::driver::{Node, NodeEvent, PeerTransport, Reporter};
use node_agent::keys::{KeyDirs, Keys};
use node_agent::pmi::JobNode;
use node_agent::pmi::frames::HubFrame;
use node_agent::setup::{self, Setup};
use node_agent::share::{Share, Shares};
use node_agent::spool::Spool;
use node_agent::topology::cores::Cores;
use rms_api::desired::{Aim, Desired, DesiredJob, JobReport, JobStatus, Launch, LaunchNode, NodeExit, NodeReport};
use rms_core::node_loop::{Inbound, Question};
use rms_model::{Environment, Execution, Generation, JobId, Labels, Owner, Run, Span, Usage, Work};
pub use test_kit::is_alive;
use test_kit::{Cgroups, Reaper, place};
use tokio::sync::mpsc;

/// Longer than anything here takes on the slowest machine; reached only by a failing test.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub struct World {
    pub agent: Option<Running>,
    guard: Guard,
    pub dir: Arc<tempfile::TempDir>,
    pub wanted: CgroupMode,
    pub mask: Option<node_agent::topology::cpulist::CpuSet>,
    pub reports: mpsc::UnboundedReceiver<NodeReport>,
    reports_in: mpsc::UnboundedSender<NodeReport>,
    pub desired: Desired,
    pub spool_quota: Option<u64>,
    pub shares: Shares,
}

/// When dropped, ends every process that names a test's directory, and then removes the cgroups that they were in; so
/// even a failing test leaves nothing behind.
#[derive(Debug)]
pub struct Guard {
    _reaper: Reaper,
    cgroups: Cgroups,
}

impl Guard {
    pub fn new(dir: &Path) -> Guard {
        let name = dir.file_name().expect("it has a name").to_string_lossy();
        let cgroups = Cgroups::new(&format!("limber{name}"));
        Guard { _reaper: Reaper::new(dir), cgroups }
    }

    /// Returns the parent of all cgroups of this test.
    pub fn cgroup_parent(&self) -> &str {
        self.cgroups.name()
    }
}

/// The agent's tasks on a runtime of their own; shutting it down closes all their sockets, as a kill does.
pub struct Running {
    runtime: Option<tokio::runtime::Runtime>,
    pub events: mpsc::Sender<NodeEvent>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Not dropped, because that blocks and must not be done within another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[derive(Debug)]
struct Listener(mpsc::UnboundedSender<NodeReport>);

impl Reporter for Listener {
    fn hello(&self, report: &NodeReport, _trouble: Option<&str>) {
        let _test_is_over = self.0.send(report.clone());
    }

    fn report(&self, report: &NodeReport) {
        let _test_is_over = self.0.send(report.clone());
    }

    fn trouble(&self, _reason: Option<&str>) {}

    fn ask(&self, _seq: u64, _question: &Question) {}
}

#[derive(Debug)]
struct NoPeers;

impl PeerTransport for NoPeers {
    fn send_frame(&self, _share: &Share, _node: &JobNode, _frame: HubFrame) {}

    fn resume(&self, _share: &Share) {}
}

impl World {
    pub async fn new(wanted: CgroupMode) -> World {
        let (reports_in, reports) = mpsc::unbounded_channel();
        let dir = Arc::new(tempfile::tempdir().expect("a directory"));
        let mut world = World {
            agent: None,
            guard: Guard::new(dir.path()),
            dir,
            wanted,
            mask: None,
            reports,
            reports_in,
            desired: Desired::default(),
            spool_quota: None,
            shares: Shares::default(),
        };
        world.start_agent().await;
        world
    }

    pub fn cwd(&self) -> PathBuf {
        self.dir.path().to_owned()
    }

    pub fn spool(&self) -> Spool {
        Spool::create(&self.dir.path().join("agent")).expect("a spool")
    }

    pub fn instance(&self) -> String {
        setup::instance("t1", self.dir.path())
    }

    fn cgroup_name(&self) -> String {
        format!("{}/{}", self.guard.cgroup_parent(), self.instance())
    }

    fn enforced(&self) -> EnforcedResources<'_> {
        EnforcedResources { cpus: self.mask.as_ref(), devices: false }
    }

    pub fn setup(&self) -> Setup {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_node-agent"));
        let cgroups = probe(self.wanted, &self.cgroup_name(), self.enforced());
        let cgroups = cgroups.expect("this kind of cgroup");
        let cpus = self.mask.clone().or_else(node_agent::topology::own_cpus).expect("an affinity");
        Setup {
            name: "t1".to_owned(),
            instance: self.instance(),
            spool: self.spool(),
            cgroups,
            mask: self.mask.clone(),
            devices: DeviceFiles::default(),
            announced: tokio::sync::watch::Sender::default(),
            inventory: rms_model::Inventory::default(),
            missing_enforcement: Vec::new(),
            cores: Cores::new(cpus.into_iter().map(|cpu| vec![cpu]).collect(), 1, 2),
            rsh: setup::rsh_beside(&program),
            malleable_library: setup::library_near(&program),
            program,
            aliases: None,
            shrink_patience: node_agent::order::SHRINK_PATIENCE,
            agent_socket: self.dir.path().join("agent/agent.sock"),
            server: "127.0.0.1:7117".to_owned(),
            keys: Keys::new(KeyDirs::create(&self.spool().keys_dir()).expect("made")),
            n_warm: 1,
            spool_quota: self.spool_quota,
        }
    }

    pub async fn start_agent(&mut self) {
        let setup = Arc::new(self.setup());
        let (seat_events, seat_queue) = mpsc::channel(64);
        let (events, queue) = mpsc::channel(64);
        self.shares = Shares::default();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let mut node = Node::new(setup, self.shares.clone(), Arc::new(NoPeers), seat_events, events.clone());
        runtime.spawn(async move {
            node.open().await.expect("the node opens");
            node.run(seat_queue, queue).await;
        });
        events.send(NodeEvent::LinkUp(Box::new(Listener(self.reports_in.clone())))).await.expect("it runs");
        self.agent = Some(Running { runtime: Some(runtime), events });
    }

    /// Ends the agent as SIGKILL would: no goodbye, all sockets closed.
    pub async fn kill_agent(&mut self) {
        let events = self.agent.take().expect("it runs").events.clone();
        events.closed().await;
        // Earlier reports are those of the previous agent.
        while self.reports.try_recv().is_ok() {}
    }

    pub async fn desire(&mut self) {
        self.desired.generation = self.desired.generation.next();
        let event = NodeEvent::Inbound(Inbound::Desired(self.desired.clone()));
        self.agent.as_ref().expect("it runs").events.send(event).await.expect("it runs");
    }

    pub async fn submit(&mut self, job: u64, launch: Launch) {
        let launch = Arc::new(launch);
        self.desired.jobs.push(DesiredJob { job: JobId(job), run: Run(1), aim: Aim::Run, launch, node_idx: 0 });
        self.desire().await;
    }

    pub async fn end(&mut self, job: u64, grace: Span) {
        self.end_after(Span::ZERO, job, grace).await;
    }

    /// Ends the job on this node, which it has left: its processes have `patience` before they get TERM.
    pub async fn end_after(&mut self, patience: Span, job: u64, grace: Span) {
        let wanted = self.desired.jobs.iter_mut().find(|wanted| wanted.job == JobId(job)).expect("it was submitted");
        wanted.aim = Aim::End { patience, grace };
        self.desire().await;
    }

    /// Forgets the job, as the server does once it has the result.
    pub async fn forget(&mut self, job: u64) {
        self.desired.jobs.retain(|wanted| wanted.job != JobId(job));
        self.desire().await;
    }

    pub async fn signal(&self, job: u64, signal: i32) {
        let event = NodeEvent::Inbound(Inbound::Signal { job: JobId(job), run: Run(1), signal });
        self.agent.as_ref().expect("it runs").events.send(event).await.expect("it runs");
    }

    pub async fn next(&mut self, job: u64) -> JobReport {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let report = tokio::time::timeout_at(deadline, self.reports.recv()).await;
            let report = report.unwrap_or_else(|_| panic!("nothing was heard of job {job} in {PATIENCE:?}"));
            let jobs = report.expect("the sender is ours").jobs;
            if let Some(report) = jobs.into_iter().find(|report| report.job == JobId(job)) {
                return report;
            }
        }
    }

    pub async fn running(&mut self, job: u64) {
        loop {
            match self.next(job).await.status {
                JobStatus::Starting => {}
                JobStatus::Running { .. } => return,
                JobStatus::Ended { exit, .. } => panic!("it has ended: {exit:?}"),
            }
        }
    }

    pub async fn ended(&mut self, job: u64) -> (NodeExit, Usage) {
        loop {
            match self.next(job).await.status {
                JobStatus::Starting | JobStatus::Running { .. } => {}
                JobStatus::Ended { exit, usage, .. } => return (exit, usage),
            }
        }
    }

    pub fn read(&self, name: &str) -> String {
        let path = self.cwd().join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Waits until a file has a complete line, and returns its content.
    pub async fn line_in(&self, name: &str) -> String {
        let path = self.cwd().join(name);
        let has_line = || std::fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n'));
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(text) = has_line() {
                return text.trim_end().to_owned();
            }
            assert!(Instant::now() < deadline, "{} stays empty", path.display());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Ends everything in order; for a failing test, the guard does it.
    pub async fn close(mut self) {
        self.desired.jobs.clear();
        if self.agent.is_some() {
            self.desire().await;
            let is_served = |share: &Share| share.to_supervisor().is_some();
            let deadline = Instant::now() + PATIENCE;
            while self.shares.all().iter().any(is_served) && Instant::now() < deadline {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            self.kill_agent().await;
        }
        let parent = probe(self.wanted, &self.cgroup_name(), self.enforced()).expect("this kind of cgroup");
        node_agent::leftovers::clear_all(&parent, &[]);
        parent.remove();
    }
}

pub fn me() -> String {
    nix::unistd::User::from_uid(nix::unistd::geteuid()).expect("a lookup").expect("a name").name
}

/// Returns a launch on one node with `n_tasks` tasks.
pub fn launch(cwd: &Path, work: Work, n_tasks: u32) -> Launch {
    let node = LaunchNode { n_tasks, cpus: 2, ..place("t1") };
    Launch {
        labels: Labels::named("story"),
        n_tasks,
        cpus_per_task: 1,
        wall: Span::from_mins(5),
        grace: Span::from_secs(5),
        nodes: vec![node],
        ..Launch::of(
            Owner(me()),
            Execution {
                cwd: cwd.display().to_string(),
                environment: Arc::new(Environment(vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())])),
                ..Execution::from(work)
            },
        )
    }
}

pub fn script(world: &World, text: &str) -> Launch {
    launch(&world.cwd(), Work::Script { script: text.to_owned(), args: Vec::new() }, 1)
}

pub fn tasks(world: &World, n: u32, argv: &[&str]) -> Launch {
    let argv = argv.iter().map(|word| (*word).to_owned()).collect();
    launch(&world.cwd(), Work::Tasks { argv }, n)
}

pub async fn gone(pid: i32) {
    let deadline = Instant::now() + PATIENCE;
    while is_alive(pid) {
        assert!(Instant::now() < deadline, "process {pid} lives on");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub fn generation(world: &World) -> Generation {
    world.desired.generation
}
