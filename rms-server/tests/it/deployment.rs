//! A real server process, and its peers in this process: an admin, users, and fake agents.

use rms_api::Answer;
use rms_api::call::HistoryQuery;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rms_api::call::{Call, Query, Submission, TokenOrder};
use rms_api::desired::AgentHello;
use rms_api::desired::{Desired, JobReport, JobStatus, NodeReport};
use rms_model::token::TokenIdentity;
use rms_model::{Environment, Execution, Generation, Identity, Inventory, JobId, Labels, Role, Run, Span, Work};
use rms_wire::link::{Receiver, Sender};
use rms_wire::parts::{DesiredParts, report_parts};
use rms_wire::tls::Credentials;
use rms_wire::{CallError, ClientRequest, Endpoint, Expect, Link, LinkError, ToAgent, ToServer, TokenText, join};
use test_kit::{Builder, Deployment, submission};

/// A deployment without agents.
pub struct Server {
    deployment: Deployment,
    pub address: SocketAddr,
}

impl Server {
    /// Creates a new deployment and starts it.
    pub fn start() -> Server {
        Server::of(Deployment::builder())
    }

    /// Starts one whose server writes into this directory.
    pub fn start_in(dir: &Path) -> Server {
        Server::of(Deployment::builder().server_dir(dir))
    }

    fn of(builder: Builder) -> Server {
        let deployment = builder.start();
        Server { address: deployment.address(), deployment }
    }

    pub fn path(&self) -> PathBuf {
        self.deployment.server_dir().to_owned()
    }

    /// Restarts the server at the same address.
    pub fn restart(&mut self) {
        self.deployment.start_server();
    }

    /// Kills the server with SIGKILL.
    pub fn kill(&mut self) {
        self.deployment.kill_server();
    }

    pub fn pid(&self) -> nix::unistd::Pid {
        nix::unistd::Pid::from_raw(self.deployment.server_pid())
    }

    /// Waits for a server that was told to stop.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        self.deployment.wait_for_server()
    }

    pub async fn admin(&self) -> Client {
        self.try_admin().await.expect("a welcome")
    }

    pub async fn try_admin(&self) -> Result<Client, LinkError> {
        let credentials = Credentials::load(&self.path().join("admin")).expect("the admin");
        Client::try_connect(&credentials, self.address).await
    }

    /// Connects a user with a token of her own.
    pub async fn user(&self, name: &str) -> Client {
        let identity = Identity { role: Role::User, name: name.to_owned() };
        let credentials = self.join(TokenIdentity::Named(identity), None).await;
        Client::connect(&credentials, self.address).await
    }

    pub async fn agent_credentials(&self, name: &str) -> Credentials {
        let identity = Identity { role: Role::Agent, name: name.to_owned() };
        self.join(TokenIdentity::Named(identity), Some("a")).await
    }

    async fn join(&self, identity: TokenIdentity, cluster: Option<&str>) -> Credentials {
        let token = self.admin().await.token(identity, cluster, self.address).await;
        join(self.address, &token, None).await.expect("a valid token").credentials
    }
}

pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rms-server"));
    command.args(arguments).env("RUST_LOG", "warn");
    command
}

/// A user's or the admin's end of a link.
pub struct Client {
    pub link: Link,
    fingerprint: String,
    // Keeps the socket open.
    _endpoint: Endpoint,
}

impl Client {
    pub async fn connect(credentials: &Credentials, address: SocketAddr) -> Client {
        Client::try_connect(credentials, address).await.expect("a welcome")
    }

    /// Connects a client that may be rejected: the server can close a link before or after its welcome has arrived.
    pub async fn try_connect(credentials: &Credentials, address: SocketAddr) -> Result<Client, LinkError> {
        let endpoint = Endpoint::dial(credentials).expect("a socket");
        let link = endpoint.connect(address, server()).await?;
        Ok(Client { link, fingerprint: credentials.ca_fingerprint(), _endpoint: endpoint })
    }

    pub async fn call(&self, call: &Call) -> Result<Answer, CallError> {
        self.link.call(&ClientRequest::Call(call.clone())).await
    }

    pub async fn token(&self, identity: TokenIdentity, cluster: Option<&str>, address: SocketAddr) -> TokenText {
        let token = TokenText::draw(&self.fingerprint, &address.to_string()).expect("a token");
        let cluster = cluster.map(str::to_owned);
        let ttl = Span::from_hours(1);
        let order = TokenOrder { id: token.id().to_owned(), digest: token.digest(), identity, cluster, ttl, ca: None };
        self.call(&Call::CreateToken(order)).await.expect("an admin may");
        token
    }

    pub async fn submit(&self, name: &str) -> JobId {
        match self.call(&Call::Submit(Box::new(job(name)))).await.expect("a possible job") {
            Answer::Submitted { job } => job,
            other => panic!("{other:?}"),
        }
    }

    /// Makes a call that every user may make.
    pub async fn speak(&self) {
        self.call(&Call::Query(Query::Status)).await.expect("a status");
    }

    /// Returns the record of one job, once the history has it.
    pub async fn history_of(&self, job: JobId) -> rms_model::JobRecord {
        loop {
            let query = HistoryQuery { jobs: vec![job], ..HistoryQuery::default() };
            match self.link.call(&ClientRequest::History(query)).await.expect("a history") {
                Answer::History(mut records) if !records.is_empty() => return records.remove(0),
                Answer::History(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                other => panic!("{other:?}"),
            }
        }
    }
}

/// An agent that starts nothing, and reports what the test says.
pub struct FakeAgent {
    pub link: Link,
    sender: Sender,
    receiver: Receiver,
    newest: Option<Desired>,
    _endpoint: Endpoint,
}

impl FakeAgent {
    /// Connects, and waits until the server counts the node.
    pub async fn connect(credentials: &Credentials, address: SocketAddr, jobs: Vec<JobReport>) -> FakeAgent {
        let mut agent = FakeAgent::appear(credentials, address, jobs).await;
        agent.newest = Some(agent.next_desired().await);
        agent
    }

    /// Connects without waiting for anything.
    pub async fn appear(credentials: &Credentials, address: SocketAddr, jobs: Vec<JobReport>) -> FakeAgent {
        FakeAgent::appear_in("a", credentials, address, jobs).await
    }

    /// Connects as a node of this cluster.
    pub async fn appear_in(
        cluster: &str,
        credentials: &Credentials,
        address: SocketAddr,
        jobs: Vec<JobReport>,
    ) -> FakeAgent {
        let endpoint = Endpoint::dial(credentials).expect("a socket");
        let link = endpoint.connect(address, server()).await.expect("a welcome");
        let (mut sender, receiver) = link.open().await.expect("a channel").split();
        let inventory = Inventory { cores: 4, cpus: 4, ..Inventory::default() };
        let (cluster, address) = (cluster.to_owned(), "127.0.0.1:1".to_owned());
        let hello = AgentHello { cluster, address, inventory, trouble: None };
        sender.send(&ToServer::Hello(hello)).await.expect("a link");
        let mut agent = FakeAgent { link, sender, receiver, newest: None, _endpoint: endpoint };
        agent.report(jobs).await;
        agent
    }

    /// Sends a message that no agent of this version would send.
    pub async fn say<M: rms_wire::Message>(&mut self, message: &M) {
        self.sender.send(message).await.expect("a link");
    }

    pub async fn report(&mut self, jobs: Vec<JobReport>) {
        for part in report_parts(&NodeReport { seen: Generation(0), jobs }) {
            self.sender.send(&part).await.expect("a link");
        }
    }

    /// Waits for the newest desired state for which `is_it` holds.
    pub async fn desired(&mut self, is_it: impl Fn(&Desired) -> bool) -> Desired {
        loop {
            match self.newest.take() {
                Some(desired) if is_it(&desired) => {
                    self.newest = Some(desired.clone());
                    return desired;
                }
                Some(_) | None => self.newest = Some(self.next_desired().await),
            }
        }
    }

    async fn next_desired(&mut self) -> Desired {
        let mut parts = DesiredParts::new();
        loop {
            match self.receiver.recv_required::<ToAgent>().await.expect("a link") {
                ToAgent::Desire(part) => {
                    if let Some(desired) = parts.push(part).expect("a desired state") {
                        return desired;
                    }
                }
                ToAgent::Signal { .. } | ToAgent::Renewed { .. } | ToAgent::NotRenewed(_) | ToAgent::Revoked { .. } => {
                }
                ToAgent::Asked { .. } | ToAgent::NotAsked { .. } => {}
                ToAgent::Certified { .. } | ToAgent::NotCertified { .. } => {}
            }
        }
    }

    /// Returns the complete list of revoked serials that the agent is sent next.
    pub async fn revoked(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            match self.receiver.recv_required::<ToAgent>().await.expect("a link") {
                ToAgent::Revoked { serials, last } => {
                    all.extend(serials);
                    if last {
                        return all;
                    }
                }
                ToAgent::Desire(_) | ToAgent::Signal { .. } | ToAgent::Renewed { .. } | ToAgent::NotRenewed(_) => {}
                ToAgent::Asked { .. } | ToAgent::NotAsked { .. } => {}
                ToAgent::Certified { .. } | ToAgent::NotCertified { .. } => {}
            }
        }
    }
}

pub fn report(job: JobId, run: Run, status: JobStatus) -> JobReport {
    JobReport { job, run, status }
}

fn server() -> Expect {
    Expect::server()
}

/// Returns a submission of one task on one node for a minute.
pub fn job(name: &str) -> Submission {
    let environment = vec![("SECRET".to_owned(), "of the owner".to_owned())];
    Submission {
        labels: Labels::named(name),
        cpus_per_task: 1,
        execution: Execution {
            environment: Arc::new(Environment(environment)),
            ..Execution::from(Work::Script { script: "#!/bin/sh\ntrue\n".to_owned(), args: Vec::new() })
        },
        ..submission(1, Span::from_mins(1))
    }
}

/// How long anything may take before a test fails; test machines are shared.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a test on a runtime of its own, and fails if it takes too long.
pub fn tell(story: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let told = runtime.expect("a runtime").block_on(async { tokio::time::timeout(PATIENCE, story).await });
    told.expect("the story takes too long");
}
