//! Model agents: thousands of real links in one process, each with the real logic of a node and no processes to start.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use rms_api::desired::AgentHello;
use rms_api::desired::{JobReport, JobStatus, NodeExit, NodeReport};
use rms_core::agent::{Agent, AgentEffect, AgentEvent};
use rms_model::{Identity, Inventory, Role, Span, Time, Usage};
use rms_wire::parts::{DesiredParts, report_parts};
use rms_wire::tls::draw_serial;
use rms_wire::{Authority, Endpoint, Expect, NewKey, Receiver, Sender, ToAgent, ToServer};
use tokio::io::AsyncReadExt;
use tokio::task::JoinSet;

/// What model agents do with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// It ends with success as soon as it has started.
    Answer,
    /// It runs for ever.
    Hold,
}

/// A process full of model agents; it ends with this value.
pub struct Fleet {
    process: Child,
}

impl Fleet {
    /// Starts a process with `n_agents` agents and waits until all of them are connected.
    pub fn start(server: SocketAddr, authority: &Path, first: u32, n_agents: u32, manner: Manner) -> Result<Fleet> {
        Fleet::start_in("m", server, authority, first, n_agents, manner)
    }

    /// In a cluster of this name.
    pub fn start_in(
        cluster: &str,
        server: SocketAddr,
        authority: &Path,
        first: u32,
        n_agents: u32,
        manner: Manner,
    ) -> Result<Fleet> {
        let manner = match manner {
            Manner::Answer => "answer",
            Manner::Hold => "hold",
        };
        let own = std::env::current_exe().context("where am I?")?;
        let mut process = Command::new(own)
            .args([WORD, &server.to_string(), cluster, &first.to_string(), &n_agents.to_string(), manner])
            .arg(authority)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start model agents")?;
        let mut stdout = process.stdout.take().context("it has an output")?;
        let mut ready = [0_u8; 1];
        let told = std::io::Read::read_exact(&mut stdout, &mut ready);
        let fleet = Fleet { process };
        told.context("the model agents could not connect")?;
        Ok(fleet)
    }

    pub fn pid(&self) -> i32 {
        self.process.id().cast_signed()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The first argument that makes this program a fleet.
pub const WORD: &str = "model-agents";

/// The life of such a process: `SERVER CLUSTER FIRST COUNT answer|hold AUTHORITY`.
pub fn live(args: &[String]) -> Result<()> {
    let [server, cluster, first, count, manner, authority] = args else {
        bail!("usage: bench {WORD} SERVER CLUSTER FIRST COUNT answer|hold AUTHORITY");
    };
    let manner = match manner.as_str() {
        "answer" => Manner::Answer,
        "hold" => Manner::Hold,
        other => bail!("'{other}' is neither answer nor hold"),
    };
    let (server, first, count) = (server.parse()?, first.parse::<u32>()?, count.parse::<u32>()?);
    let authority = Authority::load(Path::new(authority))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut agents = JoinSet::new();
        let mut endpoint: Option<Endpoint> = None;
        for number in first..first + count {
            // One port for many: that is what makes ten thousand possible.
            let credentials = certify(&authority, number)?;
            let endpoint = match &endpoint {
                Some(endpoint) if number % PER_PORT != 0 => endpoint,
                Some(_) | None => endpoint.insert(Endpoint::dial(&credentials)?),
            };
            endpoint.rotate(&credentials)?;
            let link = endpoint.connect(server, Expect::server()).await?;
            let (mut sender, receiver) = link.open().await?.split();
            let hello = hello(number, cluster);
            sender.send(&ToServer::Hello(hello)).await?;
            let agent = Agent::new();
            send_report(&mut sender, &agent.full_report()).await?;
            agents.spawn(async move {
                let ended = serve(agent, sender, receiver, manner).await;
                // A link that nobody holds is closed.
                drop(link);
                ended
            });
        }
        print!("r");
        std::io::Write::flush(&mut std::io::stdout())?;
        // Whoever started us holds the other end.
        let (mut end, mut stdin) = ([0_u8; 1], tokio::io::stdin());
        tokio::select! {
            _ = stdin.read(&mut end) => Ok(()),
            Some(ended) = agents.join_next() => ended?,
        }
    })
}

/// Connections on one UDP port.
const PER_PORT: u32 = 512;

async fn serve(mut agent: Agent, mut sender: Sender, mut receiver: Receiver, manner: Manner) -> Result<()> {
    let mut parts = DesiredParts::new();
    while let Some(message) = receiver.recv::<ToAgent>().await? {
        let ToAgent::Desire(part) = message else { continue };
        let Some(desired) = parts.push(part)? else { continue };
        for effect in agent.handle(AgentEvent::Desired(desired)) {
            perform(&mut agent, &mut sender, effect, manner).await?;
        }
    }
    Ok(())
}

async fn perform(agent: &mut Agent, sender: &mut Sender, effect: AgentEffect, manner: Manner) -> Result<()> {
    let mut changes = Vec::new();
    match effect {
        AgentEffect::Start(started) => {
            let (job, run, since) = (started.job, started.run, now());
            changes.push(JobReport { job, run, status: JobStatus::running(since) });
            if manner == Manner::Answer {
                let exit = NodeExit::Exited { code: 0 };
                changes.push(JobReport {
                    job,
                    run,
                    status: JobStatus::Ended { at: now(), exit, usage: Usage::default() },
                });
            }
        }
        AgentEffect::Stop { job, run, patience: _, grace: _ } | AgentEffect::Kill { job, run } => {
            let exit = NodeExit::Ordered;
            changes.push(JobReport { job, run, status: JobStatus::Ended { at: now(), exit, usage: Usage::default() } });
        }
        AgentEffect::Forget { .. } | AgentEffect::Update(_) => {}
        AgentEffect::Report(report) => send_report(sender, &report).await?,
    }
    for change in changes {
        for effect in agent.handle(AgentEvent::Changed(change)) {
            if let AgentEffect::Report(report) = effect {
                send_report(sender, &report).await?;
            }
        }
    }
    Ok(())
}

async fn send_report(sender: &mut Sender, report: &NodeReport) -> Result<()> {
    for part in report_parts(report) {
        sender.send(&part).await?;
    }
    Ok(())
}

fn certify(authority: &Authority, number: u32) -> Result<rms_wire::Credentials> {
    let key = NewKey::generate()?;
    let identity = Identity::new(Role::Agent, &format!("m{number}"))?;
    let (before, after) = (now(), now() + Span::from_hours(24));
    let chain = authority.sign(key.csr_der(), &identity, &draw_serial(), before, after)?;
    Ok(key.into_credentials(&chain, authority.ca_pem())?)
}

fn hello(number: u32, cluster: &str) -> AgentHello {
    let inventory = Inventory { cores: 8, cpus: 8, ..Inventory::default() };
    // Nobody calls it: jobs here have one node.
    let address = format!("127.0.0.1:{}", 1 + number % 60_000);
    AgentHello { cluster: cluster.to_owned(), address, inventory, trouble: None }
}

fn now() -> Time {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}
