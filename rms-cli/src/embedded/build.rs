//! Brings an embedded cluster up: creates what is missing, starts what is not running.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;

use launcher_sdk::Client;
use rms_api::call::TokenOrder;
use rms_model::token::TokenIdentity;
use rms_model::{Identity, Role, Span};

use super::cgroups;
use super::layout::{Layout, node_address};
use super::ledger::{Ledger, NodeRecord, UpDir, VERSION};
use super::process::ProcessRecord;
use super::spawn::{self, Daemon, Starting};
use super::stop::{StopOptions, stop};
use crate::failure::Failure;
use crate::place;
use crate::stamp;

/// The wanted cluster; absent values keep what exists, or the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub layout: Option<Layout>,
    pub topology: Option<String>,
    pub listen: Option<IpAddr>,
}

/// The result of `build`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    pub ledger: Ledger,
    pub server: String,
    /// Whether the cluster existed before, running or not.
    pub is_old: bool,
    pub server_started: bool,
    /// The names of the nodes whose agents were started.
    pub started: Vec<String>,
}

/// The programs that make up the cluster.
struct Programs {
    server: PathBuf,
    agent: PathBuf,
}

/// Brings the cluster up and waits until every node can be used.
///
/// # Errors
/// The wanted cluster contradicts the existing one, programs are missing, or processes do not become ready.
pub async fn build(dir: &UpDir, changes: &Changes) -> Result<Built, Failure> {
    let programs = Programs { server: spawn::program("rms-server")?, agent: spawn::program("node-agent")? };
    dir.make()?;
    let lock = dir.lock()?;
    let (ledger, is_old) = match dir.load()? {
        Some(ledger) => (agreed(ledger, changes, dir)?, true),
        None => (new_ledger(changes, dir)?, false),
    };
    let built = bring_up(dir, ledger, is_old, &programs).await;
    if built.is_err() && !is_old {
        drop(lock);
        // The incomplete cluster is useless, and the next attempt may request a different one.
        let _what_failed_is_told = stop(dir, StopOptions { keep: false, now: true }).await;
    }
    built
}

async fn bring_up(dir: &UpDir, mut ledger: Ledger, is_old: bool, programs: &Programs) -> Result<Built, Failure> {
    if !ledger.is_made {
        make_server(dir, &mut ledger, programs).await?;
    }
    let server_started = start_server(dir, &mut ledger, programs).await?;
    let client = Client::connect(&dir.client()).await?;
    let started = start_all(dir, &mut ledger, programs, &client).await;
    client.close().await;
    let started = started?;
    Ok(Built { server: client.server().to_owned(), ledger, is_old, server_started, started })
}

/// Returns the existing cluster, if it matches the requested one.
fn agreed(ledger: Ledger, changes: &Changes, dir: &UpDir) -> Result<Ledger, Failure> {
    let differs = |what: &str, there: &str| {
        Failure::new("other_cluster", format!("{} holds a cluster with {what} {there}", dir.root.display()))
            .hint("'rms up' alone starts that one again; 'rms down' ends it for ever; --dir names another place")
    };
    if changes.layout.as_ref().is_some_and(|layout| *layout != ledger.layout) {
        return Err(differs("nodes", &ledger.layout.text()));
    }
    if changes.topology.is_some() && changes.topology != ledger.topology {
        return Err(differs("topology", ledger.topology.as_deref().unwrap_or("of this machine")));
    }
    if changes.listen.is_some_and(|listen| listen != ledger.listen) {
        return Err(differs("the address", &ledger.listen.to_string()));
    }
    Ok(ledger)
}

fn new_ledger(changes: &Changes, dir: &UpDir) -> Result<Ledger, Failure> {
    let layout = match &changes.layout {
        Some(layout) => layout.clone(),
        None => Layout::of_nodes(DEFAULT_NODES).map_err(Failure::usage)?,
    };
    let listen = changes.listen.unwrap_or(IpAddr::from([127, 0, 0, 1]));
    // `rms down` would remove files here that `rms up` has not created.
    for path in [dir.server(), dir.agents(), dir.logs(), dir.root.join(launcher_sdk::CONFIG_FILE)] {
        if place::is_there(&path)? {
            let failure = Failure::new("not_ours", format!("{} is there, but no cluster of 'rms up'", path.display()));
            return Err(failure.hint("name another directory with --dir"));
        }
    }
    let address = |idx| if is_plain_loopback(listen) { node_address(idx) } else { listen };
    let nodes = layout.nodes().enumerate();
    let nodes = nodes.map(|(idx, (name, cluster))| NodeRecord { name, cluster, address: address(idx), process: None });
    let nodes = nodes.collect();
    let topology = changes.topology.clone();
    let to_resume = Vec::new();
    let cgroup = cgroups::name(&dir.root, stamp::now());
    let ledger =
        Ledger { version: VERSION, layout, topology, listen, cgroup, is_made: false, server: None, nodes, to_resume };
    dir.save(&ledger)?;
    Ok(ledger)
}

/// Returns whether this is the only loopback address of its family: only IPv4 has many.
fn is_plain_loopback(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback(),
        IpAddr::V6(_) => false,
    }
}

async fn make_server(dir: &UpDir, ledger: &mut Ledger, programs: &Programs) -> Result<(), Failure> {
    // An interrupted attempt has left files that nothing uses.
    if place::is_there(&dir.server())? {
        let removed = std::fs::remove_dir_all(dir.server());
        removed.map_err(|error| Failure::io(format!("{} cannot be removed", dir.server().display()), error))?;
    }
    let address = free_address(ledger.listen)?;
    let args = words(["init", "--dir"], dir.server().into(), ["--name", "up", "--listen", &address.to_string()]);
    spawn::run(&programs.server, &args).await?;
    let config = dir.server().join("rms-server.toml");
    let text = format!("# 'rms-server print-config' prints all that can stand here.\nlisten = \"{address}\"\n");
    std::fs::write(&config, text)
        .map_err(|error| Failure::io(format!("{} cannot be written", config.display()), error))?;
    ledger.is_made = true;
    dir.save(ledger)
}

/// Returns a free UDP port. The cluster keeps it for good, so that agents find the server again.
fn free_address(listen: IpAddr) -> Result<SocketAddr, Failure> {
    let bound = UdpSocket::bind((listen, 0)).and_then(|socket| socket.local_addr());
    bound.map_err(|error| {
        Failure::io(format!("nothing can listen on {listen}"), error).hint("--listen takes an address of this machine")
    })
}

async fn start_server(dir: &UpDir, ledger: &mut Ledger, programs: &Programs) -> Result<bool, Failure> {
    if ProcessRecord::is_any_running(ledger.server.as_ref()).await {
        return Ok(false);
    }
    let args = words(["run", "--dir"], dir.server().into(), []);
    let daemon = Daemon { dir, name: "server", program: &programs.server, args };
    let mut starting = daemon.start()?;
    // Recorded before the server is ready, as otherwise nothing would know of it after a crash of this process.
    ledger.server = Some(starting.record.clone());
    dir.save(ledger)?;
    starting.ready(SERVER_READY).await?;
    Ok(true)
}

async fn start_all(
    dir: &UpDir,
    ledger: &mut Ledger,
    programs: &Programs,
    client: &Client,
) -> Result<Vec<String>, Failure> {
    let started = start_nodes(dir, ledger, programs, client).await?;
    if !ledger.to_resume.is_empty() {
        client.resume(ledger.to_resume.clone()).await?;
        ledger.to_resume.clear();
        dir.save(ledger)?;
    }
    Ok(started)
}

async fn start_nodes(
    dir: &UpDir,
    ledger: &mut Ledger,
    programs: &Programs,
    client: &Client,
) -> Result<Vec<String>, Failure> {
    let mut starting = Vec::new();
    let known: BTreeSet<String> = client.nodes().await?.nodes.into_iter().map(|line| line.name).collect();
    for idx in 0..ledger.nodes.len() {
        let node = &ledger.nodes[idx];
        // The certificate of a node that was removed is revoked; its agent, if it runs, takes the new one.
        if !known.contains(&node.name) || !place::is_there(&dir.agent(&node.name).join(CREDENTIALS))? {
            join(dir, node, programs, client).await?;
        }
        if ProcessRecord::is_any_running(node.process.as_ref()).await {
            continue;
        }
        let agent = start_agent(dir, ledger, node, programs, client)?;
        ledger.nodes[idx].process = Some(agent.record.clone());
        dir.save(ledger)?;
        starting.push(agent);
    }
    // They start in parallel.
    for agent in &mut starting {
        agent.ready(AGENT_READY).await?;
    }
    Ok(starting.into_iter().map(|agent| agent.name).collect())
}

/// Gives a node its certificate the usual way: by a token.
async fn join(dir: &UpDir, node: &NodeRecord, programs: &Programs, client: &Client) -> Result<(), Failure> {
    let token = client.draw_token(None).map_err(|error| Failure::new("token", error))?;
    let identity = Identity::new(Role::Agent, &node.name).map_err(|error| Failure::new("name", error))?;
    let order = TokenOrder {
        id: token.id().to_owned(),
        digest: token.digest(),
        identity: TokenIdentity::Named(identity),
        cluster: Some(node.cluster.clone()),
        ttl: Span::from_mins(5),
        ca: Some(token.fingerprint().to_owned()),
    };
    client.create_token(order).await?;
    let token = token.to_string();
    let args = words(["join", &token, "--dir"], dir.agent(&node.name).into(), ["--name", &node.name]);
    spawn::run(&programs.agent, &args).await
}

fn start_agent(
    dir: &UpDir,
    ledger: &Ledger,
    node: &NodeRecord,
    programs: &Programs,
    client: &Client,
) -> Result<Starting, Failure> {
    let listen = SocketAddr::new(node.address, 0).to_string();
    let mut args = words(
        ["run", "--dir"],
        dir.agent(&node.name).into(),
        ["--server", client.server(), "--name", &node.name, "--cluster", &node.cluster, "--listen", &listen],
    );
    args.extend(["--cgroup-parent".into(), ledger.cgroup.as_str().into()]);
    if let Some(topology) = &ledger.topology {
        args.extend(["--topology".into(), topology.into()]);
    }
    Daemon { dir, name: &node.name, program: &programs.agent, args }.start()
}

fn words<const N: usize, const M: usize>(before: [&str; N], path: OsString, after: [&str; M]) -> Vec<OsString> {
    let before = before.into_iter().map(OsString::from);
    before.chain([path]).chain(after.into_iter().map(OsString::from)).collect()
}

const DEFAULT_NODES: u32 = 4;
/// Prefixes of the lines that report readiness.
const SERVER_READY: &str = "listening on ";
const AGENT_READY: &str = "connected to ";
/// A file in an agent's directory that exists once the agent has joined.
const CREDENTIALS: &str = "credentials/cert.pem";
