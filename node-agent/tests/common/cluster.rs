//! A minimal server, and real agents that connect to it: enough to run jobs on several nodes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio as Pipe};
use std::sync::Arc;

use rms_api::desired::AgentHello;
use rms_api::desired::{Aim, Desired, DesiredJob, JobReport, JobStatus, Launch, LaunchNode, NodeExit};
use rms_model::{Generation, Identity, JobId, NodeId, Role, Run, Span, Time, Usage, Work};
use rms_wire::parts::{ReportParts, desire_parts};
use rms_wire::tls::draw_serial;
use rms_wire::{
    Accepted, Authority, Channel, Credentials, Endpoint, FollowOrder, Input, Link, NewKey, Receiver, Revoked, Sender,
    Serve, Spooled, ToAgent, ToServer,
};

use test_kit::place;

use super::{Guard, PATIENCE, launch};

pub struct Cluster {
    guard: Guard,
    pub dir: tempfile::TempDir,
    authority: Authority,
    endpoint: Endpoint,
    pub agents: BTreeMap<String, Agent>,
    pub cgroup: &'static str,
    /// The lifetime of the agents' certificates.
    pub life: Span,
}

/// One connected agent.
pub struct Agent {
    pub process: Child,
    pub hello: AgentHello,
    pub link: Link,
    sender: Sender,
    receiver: Receiver,
    pub desired: Desired,
    ended: BTreeMap<u64, (NodeExit, Usage)>,
}

fn now() -> Time {
    node_agent::supervisor::now()
}

impl Cluster {
    pub async fn new(nodes: &[&str]) -> Cluster {
        let dir = tempfile::tempdir().expect("a directory");
        let authority = Authority::create(&dir.path().join("ca"), "test", now()).expect("a CA");
        let credentials = issue(&authority, Role::Server, "head", Span::from_hours(1));
        let serve = Serve::Peers { roles: vec![Role::Agent], join: false, revoked: Revoked::new() };
        let endpoint = Endpoint::bind("127.0.0.1:0".parse().expect("an address"), &credentials, serve).expect("bound");
        let mut cluster = Cluster {
            guard: Guard::new(dir.path()),
            dir,
            authority,
            endpoint,
            agents: BTreeMap::new(),
            cgroup: "auto",
            life: Span::from_hours(1),
        };
        for name in nodes {
            cluster.start(name).await;
        }
        cluster
    }

    pub fn agent_dir(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts an agent as a process and waits until it has said hello.
    pub async fn start(&mut self, name: &str) {
        let dir = self.agent_dir(name);
        let credentials = dir.join("credentials");
        if !credentials.exists() {
            issue(&self.authority, Role::Agent, name, self.life).save(&credentials).expect("credentials");
        }
        let server = self.endpoint.local_addr().expect("bound").to_string();
        let process = Command::new(env!("CARGO_BIN_EXE_node-agent"))
            .args(["run", "--server", &server, "--cluster", "c", "--listen", "127.0.0.1:0", "--cgroup", self.cgroup])
            .args(["--cgroup-parent", self.guard.cgroup_parent(), "--topology", "core:4", "--dir"])
            .arg(&dir)
            .stderr(Pipe::inherit())
            .spawn()
            .expect("the agent");
        let desired = self.agents.remove(name).map(|agent| agent.desired).unwrap_or_default();
        self.accept(name, process, desired).await;
    }

    /// Accepts a new connection of an agent.
    pub async fn accept(&mut self, name: &str, process: Child, desired: Desired) {
        let accepted = tokio::time::timeout(PATIENCE, self.endpoint.accept()).await.expect("it connects");
        let Some(Accepted::Link(link)) = accepted else { panic!("no link") };
        assert_eq!(link.identity().name, name);
        let channel = link.accept().await.expect("a control channel");
        let (sender, mut receiver) = channel.split();
        let hello = match receiver.recv().await.expect("a frame") {
            Some(ToServer::Hello(hello)) => hello,
            other => panic!("no hello: {other:?}"),
        };
        let agent = Agent { process, hello, link, sender, receiver, desired, ended: BTreeMap::new() };
        self.agents.insert(name.to_owned(), agent);
        let agent = self.agents.get_mut(name).expect("just inserted");
        let first = agent.report().await;
        for report in first {
            if let JobStatus::Ended { exit, usage, .. } = report.status {
                agent.ended.insert(report.job.0, (exit, usage));
            }
        }
        agent.wish().await;
    }

    pub async fn kill(&mut self, name: &str) {
        let agent = self.agents.get_mut(name).expect("it is there");
        agent.process.kill().expect("it runs");
        agent.process.wait().expect("it is our child");
    }

    /// Returns the cgroup of an agent in which v1 counts the CPU time.
    pub fn cgroup_of(&self, name: &str) -> PathBuf {
        let instance = node_agent::setup::instance(name, &self.agent_dir(name));
        Path::new("/sys/fs/cgroup/cpuacct").join(self.guard.cgroup_parent()).join(instance)
    }

    /// Starts a job on these nodes with `n_each` tasks on each.
    pub async fn submit(&mut self, job: u64, nodes: &[&str], n_each: u32, edit: impl FnOnce(&mut Launch), work: Work) {
        let mut launch = launch(self.dir.path(), work, n_each * nodes.len() as u32);
        launch.nodes = (0_u32..)
            .zip(nodes)
            .map(|(idx, name)| LaunchNode {
                node: NodeId(idx),
                address: self.agents[*name].hello.address.clone(),
                first_task: idx * n_each,
                n_tasks: n_each,
                cpus: 4,
                ..place(name)
            })
            .collect();
        edit(&mut launch);
        let launch = Arc::new(launch);
        for (node_idx, name) in (0..).zip(nodes) {
            let agent = self.agents.get_mut(*name).expect("it is there");
            let (job, launch) = (JobId(job), Arc::clone(&launch));
            agent.desired.jobs.push(DesiredJob { job, run: Run(1), aim: Aim::Run, launch, node_idx });
            agent.wish().await;
        }
    }

    /// Gives a job nodes without tasks, as the server does when an application grows.
    pub async fn join(&mut self, job: u64, nodes: &[&str]) {
        let mut launch = self.launch_of(job);
        launch.generation += 1;
        for name in nodes {
            launch.nodes.push(LaunchNode {
                node: NodeId(launch.nodes.len() as u32),
                address: self.agents[*name].hello.address.clone(),
                first_task: launch.n_tasks,
                n_tasks: 0,
                cpus: 4,
                joined: launch.generation,
                ..place(name)
            });
        }
        self.relaunch(job, launch).await;
    }

    /// Takes a node from a job.
    pub async fn free(&mut self, job: u64, node: &str) -> NodeExit {
        let mut launch = self.launch_of(job);
        launch.generation += 1;
        launch.nodes.retain(|held| held.name != node);
        self.relaunch(job, launch).await;
        let agent = self.agents.get_mut(node).expect("it is there");
        let wanted = agent.desired.jobs.iter_mut().find(|wanted| wanted.job == JobId(job)).expect("it has the job");
        wanted.aim = Aim::End { patience: Span::ZERO, grace: Span::from_secs(2) };
        agent.wish().await;
        let exit = agent.ended(job).await.0;
        agent.forget(job).await;
        exit
    }

    fn launch_of(&self, job: u64) -> Launch {
        let mut wanted = self.agents.values().flat_map(|agent| &agent.desired.jobs);
        let wanted = wanted.find(|wanted| wanted.job == JobId(job) && wanted.node_idx == 0).expect("it was submitted");
        (*wanted.launch).clone()
    }

    /// Sends the changed launch to every node of a job.
    async fn relaunch(&mut self, job: u64, launch: Launch) {
        let launch = Arc::new(launch);
        for (node_idx, node) in (0..).zip(&launch.nodes) {
            let agent = self.agents.get_mut(&node.name).expect("it is there");
            agent.desired.jobs.retain(|wanted| wanted.job != JobId(job));
            let (job, launch) = (JobId(job), Arc::clone(&launch));
            agent.desired.jobs.push(DesiredJob { job, run: Run(1), aim: Aim::Run, launch, node_idx });
            agent.wish().await;
        }
    }

    /// Ends the job on all its nodes and then forgets it, as the server does when a job has ended.
    pub async fn end(&mut self, job: u64) -> BTreeMap<String, (NodeExit, Usage)> {
        let mut exits = BTreeMap::new();
        for (name, agent) in &mut self.agents {
            let Some(wanted) = agent.desired.jobs.iter_mut().find(|wanted| wanted.job == JobId(job)) else { continue };
            wanted.aim = Aim::End { patience: Span::ZERO, grace: Span::from_secs(2) };
            agent.wish().await;
            exits.insert(name.clone(), agent.ended(job).await);
            agent.desired.jobs.retain(|wanted| wanted.job != JobId(job));
            agent.wish().await;
        }
        exits
    }

    /// Returns an agent of the same deployment that only connects to others.
    pub fn peer(&self, name: &str) -> (Endpoint, String) {
        let credentials = issue(&self.authority, Role::Agent, name, self.life);
        let serial = credentials.serial().to_owned();
        (Endpoint::dial(&credentials).expect("a port"), serial)
    }

    /// Waits until an agent requests a new certificate, and grants it.
    pub async fn renew(&mut self, name: &str) {
        let agent = self.agents.get_mut(name).expect("it is there");
        let csr = loop {
            let message = tokio::time::timeout(PATIENCE, agent.receiver.recv()).await.expect("it asks in time");
            match message.expect("a frame") {
                Some(ToServer::Renew { csr }) => break csr,
                Some(ToServer::Trouble { reason: None } | ToServer::Serves { .. }) => {}
                other => panic!("no renewal: {other:?}"),
            }
        };
        let chain = sign(&self.authority, &csr, Role::Agent, name, Span::from_hours(1));
        let ca = self.authority.ca_pem().to_owned();
        agent.sender.send(&ToAgent::Renewed { chain, ca }).await.expect("the agent listens");
    }

    pub fn agent(&mut self, name: &str) -> &mut Agent {
        self.agents.get_mut(name).expect("it is there")
    }

    pub fn read(&self, name: &str) -> String {
        let path = self.dir.path().join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Waits until a file has this text.
    pub async fn says(&self, name: &str, text: &str) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let found = std::fs::read_to_string(self.path().join(name)).unwrap_or_default();
            if found.contains(text) {
                return;
            }
            assert!(tokio::time::Instant::now() < deadline, "'{text}' is not in {name}: {found}");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Ends all agents, after their jobs; the guard ends what is left then.
    pub async fn close(mut self) {
        let jobs: Vec<u64> =
            self.agents.values().flat_map(|agent| agent.desired.jobs.iter().map(|wanted| wanted.job.0)).collect();
        for job in jobs {
            self.end(job).await;
        }
        let names: Vec<String> = self.agents.keys().cloned().collect();
        for name in names {
            self.kill(&name).await;
        }
    }
}

impl Agent {
    /// Sends the whole desired state.
    pub async fn wish(&mut self) {
        self.desired.generation = Generation(self.desired.generation.0 + 1);
        for part in desire_parts(&self.desired) {
            self.sender.send(&part).await.expect("the agent listens");
        }
    }

    /// Sends all revoked serials, one per frame.
    pub async fn revoked(&mut self, serials: &[&str]) {
        for (idx, serial) in serials.iter().enumerate() {
            let part = ToAgent::Revoked { serials: vec![(*serial).to_owned()], last: idx + 1 == serials.len() };
            self.sender.send(&part).await.expect("the agent listens");
        }
    }

    /// Forgets the job, as the server does once it has the result.
    async fn forget(&mut self, job: u64) {
        self.desired.jobs.retain(|wanted| wanted.job != JobId(job));
        self.ended.remove(&job);
        self.wish().await;
    }

    /// Returns the agent's next request for a job's ranks, with its number.
    pub async fn asked(&mut self) -> (u64, rms_api::negotiate::Ask) {
        loop {
            let message = tokio::time::timeout(PATIENCE, self.receiver.recv()).await.expect("a question in time");
            match message.expect("a frame") {
                Some(ToServer::Ask { seq, ask, .. }) => return (seq, ask),
                // Reports that the job runs, and the state of the node.
                Some(ToServer::Report(_) | ToServer::Trouble { .. } | ToServer::Serves { .. }) => {}
                other => panic!("no question: {other:?}"),
            }
        }
    }

    /// Sends a message that a server of this version would not send.
    pub async fn say<M: rms_wire::Message>(&mut self, message: &M) {
        self.sender.send(message).await.expect("the agent listens");
    }

    pub async fn answer(&mut self, answer: ToAgent) {
        self.sender.send(&answer).await.expect("the agent listens");
    }

    pub async fn report(&mut self) -> Vec<JobReport> {
        let mut parts = ReportParts::new();
        loop {
            let message = tokio::time::timeout(PATIENCE, self.receiver.recv()).await.expect("a report in time");
            match message.expect("a frame") {
                Some(ToServer::Report(part)) => {
                    if let Some(report) = parts.push(part).expect("a good report") {
                        return report.jobs;
                    }
                }
                Some(ToServer::Trouble { reason: None } | ToServer::Serves { .. }) => {}
                other => panic!("no report: {other:?}"),
            }
        }
    }

    pub async fn running(&mut self, job: u64) {
        loop {
            let reports = self.report().await;
            let Some(report) = reports.iter().find(|report| report.job == JobId(job)) else { continue };
            match &report.status {
                JobStatus::Starting => {}
                JobStatus::Running { .. } => return,
                JobStatus::Ended { exit, .. } => panic!("it has ended: {exit:?}"),
            }
        }
    }

    pub async fn ended(&mut self, job: u64) -> (NodeExit, Usage) {
        while !self.ended.contains_key(&job) {
            for report in self.report().await {
                if let JobStatus::Ended { exit, usage, .. } = report.status {
                    self.ended.insert(report.job.0, (exit, usage));
                }
            }
        }
        self.ended[&job].clone()
    }

    /// Begins to follow a job from the start.
    pub async fn begin_to_follow(&mut self, job: u64) -> Channel {
        let opened = tokio::time::timeout(PATIENCE, self.link.open()).await.expect("a channel in time");
        let mut channel = opened.expect("a link");
        channel
            .send(&FollowOrder {
                job: JobId(job),
                run: Run(1),
                from: Vec::new(),
                is_over: false,
                submitted: None,
                input_from: None,
            })
            .await
            .expect("sent");
        channel
    }

    /// Follows a job from the start, sends `input`, and returns the output of its tasks: (task, is_error, bytes).
    pub async fn follow(&mut self, job: u64, input: &[u8]) -> BTreeMap<(u32, bool), Vec<u8>> {
        let (mut sender, mut receiver) = self.begin_to_follow(job).await.split();
        let typed = input.to_vec();
        let typing = tokio::spawn(async move {
            for piece in typed.chunks(16 << 10) {
                sender.send(&Input { bytes: piece.to_vec(), eof: false }).await.expect("sent");
            }
            sender.send(&Input::END).await.expect("sent");
            sender
        });
        let mut written: BTreeMap<(u32, bool), Vec<u8>> = BTreeMap::new();
        loop {
            let frame = tokio::time::timeout(PATIENCE, receiver.recv::<Spooled>()).await.expect("a frame in time");
            match frame.expect("a frame").expect("not the end") {
                Spooled::Chunk(chunk) => {
                    let stream = written.entry((chunk.task, chunk.stream == rms_wire::Stream::Err)).or_default();
                    assert_eq!(chunk.offset, stream.len() as u64, "nothing is lost or repeated");
                    stream.extend(chunk.bytes);
                }
                Spooled::End => {
                    typing.await.expect("all was typed");
                    return written;
                }
                Spooled::Taken { .. } => {}
                Spooled::Failed { reason } | Spooled::Missing { reason, .. } => panic!("{reason}"),
            }
        }
    }
}

fn issue(authority: &Authority, role: Role, name: &str, life: Span) -> Credentials {
    let key = NewKey::generate().expect("a key");
    let chain = sign(authority, key.csr_der(), role, name, life);
    key.into_credentials(&chain, authority.ca_pem()).expect("credentials")
}

fn sign(authority: &Authority, csr: &[u8], role: Role, name: &str, life: Span) -> String {
    let identity = Identity::new(role, name).expect("a name");
    let from = now() - Span::from_secs(1);
    authority.sign(csr, &identity, &draw_serial(), from, now() + life).expect("signed")
}
