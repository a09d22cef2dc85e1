//! Assembles an agent and runs it until it is told to stop.

use std::collections::BTreeSet;
use std::fs::{File, Permissions};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use rms_model::resources::MEMORY_FEATURE;
use rms_model::{Identity, Role};
use rms_wire::link::resolve;
use rms_wire::{Credentials, Endpoint, Joiner, Revoked, Serve, TokenText, Tuning};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use crate::address::Advertised;
use crate::cgroup::{Claim, EnforcedResources, Parent};
use crate::config::{Config, FILE, Written, any_port};
use crate::devices::DeviceFiles;
use crate::driver::{Node, look};
use crate::keys::{KeyDirs, Keys};
use crate::masks::Masks;
use crate::peer::Peers;
use crate::setup::{self, Setup};
use crate::share::Shares;
use crate::spool::Spool;
use crate::supervisor::now;
use crate::uplink::Uplink;
use crate::watch::Watches;
use crate::{cgroup, leftovers, local, topology};

/// The capacity of the queue of events for the node's task. If it is full, senders wait.
const MAX_EVENTS: usize = 256;
/// The most threads in addition to the agent's main one; each exists only while it has work, and a few seconds longer.
const MAX_THREADS: usize = 64;
/// How long to wait at most for peers to be notified of the end, and for queued work.
const FAREWELL: Duration = Duration::from_millis(500);

/// Runs an agent. Its jobs continue when it ends.
///
/// # Errors
/// The agent cannot start; each error says what to do.
pub fn run(config: Config) -> anyhow::Result<()> {
    crate::sys::protect_from_oom("-900");
    // Jobs run in directories of their own.
    let dir = std::path::absolute(&config.dir).context("cannot find the working directory: name --dir from '/' on")?;
    let config = Config { dir, ..config };
    let credentials = load_credentials(&config)?;
    let name = own_name(&config, credentials.identity())?;
    let spool =
        Spool::create(&config.dir).with_context(|| format!("cannot use the directory {}", config.dir.display()))?;
    let _lock = lock(&config.dir)?;
    let topology = topology::describe(Path::new("/sys"), &config.overrides)?;
    let instance = setup::instance(&name, &config.dir);
    let devices = &config.devices;
    let enforced = EnforcedResources { cpus: Some(&topology.cpus), devices: devices.has_files() };
    let (cgroups, _claim) = claim_cgroups(&config, &instance, enforced)?;
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut inventory = topology.inventory;
    if cgroups.limits_memory() {
        inventory.features.insert(MEMORY_FEATURE.to_owned());
    }
    inventory.unenforced = unenforced(&cgroups, devices);
    let missing_enforcement = config.must_enforce.intersection(&inventory.unenforced).cloned().collect();
    tracing::info!(node = name, cgroup = ?cgroups.kind(), cpus = inventory.cpus, "starting");
    let agent_socket = config.dir.join("agent.sock");
    let key_dirs = KeyDirs::create(&spool.keys_dir()).context("cannot make a directory for keys of jobs")?;
    let aliases =
        setup::make_aliases(&program, &config.dir.join("aliases")).context("cannot make a directory for srun")?;
    let setup = Setup {
        aliases,
        name,
        instance,
        spool,
        mask: (topology.is_masked || cgroups.has_cpuset()).then_some(topology.cpus),
        cgroups,
        cores: topology.cores,
        announced: watch::Sender::new(inventory.clone()),
        inventory,
        devices: devices.clone(),
        rsh: setup::rsh_beside(&program),
        malleable_library: setup::library_near(&program),
        shrink_patience: config.shrink_patience,
        program,
        agent_socket,
        server: config.server.clone(),
        keys: Keys::new(key_dirs),
        n_warm: config.n_warm,
        spool_quota: config.spool_quota_mib.map(|mib| mib << 20),
        missing_enforcement,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // For server names, which are resolved in a thread, and for queued work: an item that hangs blocks its thread.
        .max_blocking_threads(MAX_THREADS)
        .build()
        .context("cannot start the runtime")?;
    let served = runtime.block_on(serve(config, Arc::new(setup), credentials));
    runtime.shutdown_timeout(FAREWELL);
    served
}

/// Keeps announcing the former resources until the jobs that started when the node had more have ended.
fn remember(file: &Path, setup: &Setup, shares: &Shares) -> anyhow::Result<()> {
    if look::job_exceeding_node(setup, shares).is_some()
        && let Ok(text) = std::fs::read(file)
        && let Ok(before) = serde_json::from_slice(&text)
    {
        setup.announced.send_replace(before);
        return Ok(());
    }
    let text = serde_json::to_vec(&setup.inventory).context("cannot write down what the node has")?;
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Returns the resources that the kernel does not enforce here, by the names of `rms_model::resources::ENFORCEABLE`,
/// and logs them once.
fn unenforced(cgroups: &Parent, devices: &DeviceFiles) -> BTreeSet<String> {
    let devices = match cgroups.closes_devices() {
        _ if devices.0.is_empty() => Ok(()),
        _ if devices.lacks_files() => Err("the files of some devices are not declared"),
        closes => closes,
    };
    let unless = |is_enforced: bool, why: &'static str| if is_enforced { Ok(()) } else { Err(why) };
    let cpus = unless(cgroups.has_cpuset(), "no cpuset can be made");
    let memory = unless(cgroups.limits_memory(), "no memory cgroup can be made");
    let all = [
        ("cpus", cpus, "a program can leave the CPUs of its job"),
        ("memory", memory, "a job can take more than it was given"),
        ("devices", devices, "a program can open the devices of other jobs"),
    ];
    let lax = all.into_iter().filter_map(|(what, enforced, then)| Some((what, enforced.err()?, then)));
    let said = lax.inspect(|(what, why, then)| {
        tracing::warn!(what, why = format!("{why}: {then}"), "the kernel does not keep jobs to what they have");
    });
    said.map(|(what, ..)| what.to_owned()).collect()
}

/// Creates this agent's cgroups, and removes those of dead agents.
fn claim_cgroups(
    config: &Config,
    instance: &str,
    enforced: EnforcedResources<'_>,
) -> anyhow::Result<(Parent, Option<Claim>)> {
    let name = format!("{}/{instance}", config.cgroup_parent);
    loop {
        let cgroups = cgroup::probe(config.cgroup, &name, enforced)?;
        match cgroups.claim() {
            Ok(Some(claim)) => {
                cgroups.remove_stale();
                return Ok((cgroups, Some(claim)));
            }
            // Another agent that is starting has removed them before they were claimed.
            Ok(None) => {}
            Err(error) => {
                // If this agent's cgroups cannot be locked, neither can those of other agents here, so none of them may
                // be removed.
                tracing::warn!(%error, "cannot lock the cgroups; those of dead agents stay");
                return Ok((cgroups, None));
            }
        }
    }
}

async fn serve(config: Config, setup: Arc<Setup>, credentials: Credentials) -> anyhow::Result<()> {
    let revoked = Revoked::new();
    let roles = vec![Role::Agent];
    let serve = Serve::Peers { roles, join: false, revoked: revoked.clone() };
    let listen = match config.listen {
        Some(listen) => listen,
        None => default_listen(&config.server).await,
    };
    let endpoint = bind(listen, &config.dir, &credentials, &serve)?;
    let advertised = Advertised { ip: config.advertise, bound: endpoint.local_addr()? };
    let shares = Shares::default();
    let peers = Peers::new(endpoint.clone(), shares.clone());
    let (seat_events, seat_queue) = mpsc::channel(MAX_EVENTS);
    let (events, queue) = mpsc::channel(MAX_EVENTS);
    let transport = Arc::new(peers.clone());
    let mut node = Node::new(Arc::clone(&setup), shares.clone(), transport, seat_events, events.clone());
    let listener = listen_locally(&setup.agent_socket)?;
    node.open().await.context("cannot take over what is in the spool")?;
    remember(&config.dir.join("inventory.json"), &setup, &shares)?;
    let uplink = Uplink {
        server: config.server,
        endpoint: endpoint.clone(),
        cluster: config.cluster,
        inventory: setup.announced.subscribe(),
        advertised,
        credentials_dir: credentials_dir(&config.dir),
        warned_of: Mutex::default(),
        revoked,
        shares: shares.clone(),
        watches: Watches::default(),
        masks: Masks::new(shares.clone(), Arc::clone(&setup)),
        keys: setup.keys.clone(),
        events,
    };
    tracing::info!(bound = %advertised.bound, "ready");
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut working = tokio::spawn(node.run(seat_queue, queue));
    tokio::spawn(peers.clone().serve());
    tokio::spawn(local::serve(listener, shares, peers, setup.keys.clone(), setup.server.clone()));
    tokio::spawn(uplink.run());
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        ended = &mut working => bail!("the node's task has ended: {ended:?}"),
    }
    tracing::info!("stopping; jobs go on");
    endpoint.close("the agent is stopping");
    working.abort();
    let has_jobs = setup.spool.is_any_going_on().unwrap_or(true);
    leftovers::clear_idle(&setup.cgroups, has_jobs).await;
    let _peers_that_do_not_answer = tokio::time::timeout(FAREWELL, endpoint.wait_idle()).await;
    Ok(())
}

fn listen_locally(path: &Path) -> anyhow::Result<tokio::net::UnixListener> {
    match local::listen(path) {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
            bail!("cannot listen at {}: a directory is there, and not the agent's socket: remove it", path.display())
        }
        listener => listener.with_context(|| format!("cannot listen at {}", path.display())),
    }
}

/// Returns any IPv6 port if the server has such an address, else any IPv4 port.
async fn default_listen(server: &str) -> SocketAddr {
    match resolve(server).await {
        Ok(server) => any_port(&server),
        // The name may be resolvable later; if it is then an IPv6 name, the error of connecting says what to set.
        Err(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
    }
}

/// Binds the endpoint. If any port will do, the previous one is preferred: running jobs know the agent by it.
fn bind(listen: SocketAddr, dir: &Path, credentials: &Credentials, serve: &Serve) -> anyhow::Result<Endpoint> {
    let path = dir.join("port");
    let last = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
    let again = last.filter(|_| listen.port() == 0).map(|port| SocketAddr::new(listen.ip(), port));
    let bind = |address| Endpoint::bind_lasting(address, credentials, serve.clone(), dir, Tuning::of_agent());
    let endpoint = match again.map(bind) {
        Some(Ok(endpoint)) => endpoint,
        Some(Err(_)) | None => bind(listen)?,
    };
    let port = endpoint.local_addr()?.port();
    std::fs::write(&path, format!("{port}\n")).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(endpoint)
}

fn credentials_dir(dir: &Path) -> PathBuf {
    dir.join("credentials")
}

fn load_credentials(config: &Config) -> anyhow::Result<Credentials> {
    let dir = credentials_dir(&config.dir);
    let join = format!(
        "get a token with 'rms token create --role agent' and run 'node-agent join TOKEN --dir {}'",
        config.dir.display()
    );
    let is_there = dir.try_exists().with_context(|| format!("cannot look for the credentials in {}", dir.display()))?;
    ensure!(is_there, "there are no credentials in {}: {join}", dir.display());
    let credentials = Credentials::load(&dir)
        .with_context(|| format!("the credentials in {} cannot be used: {join}", dir.display()))?;
    ensure!(credentials.expires() > now(), "the certificate in {} has expired: {join}", dir.display());
    Ok(credentials)
}

fn own_name(config: &Config, identity: &Identity) -> anyhow::Result<String> {
    ensure!(identity.role == Role::Agent, "the credentials are those of {identity}, not of an agent");
    if let Some(name) = &config.name {
        let is_own = *name == identity.name;
        ensure!(
            is_own,
            "the name is {name}, but the certificate is that of {}: leave the name out, or join again",
            identity.name
        );
    }
    Ok(identity.name.clone())
}

/// Locks the agent's directory: two agents in it would both take over the same jobs.
fn lock(dir: &Path) -> anyhow::Result<Flock<File>> {
    let path = dir.join("lock");
    // Users can reach the file: the mode keeps them from opening and locking it.
    let file = File::options().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = file
        .and_then(|file| file.set_permissions(Permissions::from_mode(0o600)).map(|()| file))
        .with_context(|| format!("cannot make {}", path.display()))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(lock),
        Err((_, Errno::EWOULDBLOCK)) => bail!("another agent uses {}: stop it, or choose another --dir", dir.display()),
        Err((_, error)) => Err(io::Error::from(error)).with_context(|| format!("cannot lock {}", path.display())),
    }
}

/// Redeems a token, and writes its information on the server and the cluster to the configuration file.
///
/// # Errors
/// The token is not valid, or the directory cannot be written.
pub fn join(token: &TokenText, dir: &Path, name: Option<&str>) -> anyhow::Result<()> {
    let machine = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    let machine = machine.as_deref().and_then(|name| name.split('.').next());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Checked before the token is used up.
    Spool::create(dir).with_context(|| format!("cannot use the directory {}", dir.display()))?;
    let credentials = credentials_dir(dir);
    // Who has the node's certificate may join in its place while it is connected. An expired one has the name, too.
    let old = Credentials::load(&credentials).ok();
    let old_name = old.as_ref().map(|old| old.identity().name.clone());
    if let (Some(name), Some(old)) = (name, &old_name) {
        ensure!(
            name == old,
            "{} has the certificate of node {old}, whose jobs would be lost under another name: join without --name, or choose another --dir",
            dir.display()
        );
    }
    let machine = old_name.as_deref().or(machine);
    let joiner = Joiner { is_agent: Some(true), name, machine, replaces: old.as_ref().map(Credentials::serial) };
    let (address, joined) = runtime.block_on(async {
        let address = rms_wire::link::resolve(token.address()).await?;
        anyhow::Ok((address, rms_wire::join_in(&credentials, address, token, joiner).await?))
    })?;
    let identity = joined.credentials.identity();
    ensure!(
        identity.role == Role::Agent,
        "the token is for {identity}, not for an agent: ask for one with --role agent"
    );
    if let Some(old) = old_name.filter(|old| *old != identity.name) {
        let (name, dir) = (&identity.name, dir.display());
        eprintln!(
            "warning: {dir} was that of node {old}; the token makes it node {name}, which does not know the jobs of {old}"
        );
    }
    joined.credentials.save(&credentials)?;
    let file = dir.join(FILE);
    // A second join renews the credentials; the configuration stays.
    let is_there = file.try_exists().with_context(|| format!("cannot look for {}", file.display()))?;
    let mut written = if is_there { Written::read(&file)? } else { Written::default() };
    written.server = Some(token.address().to_owned());
    written.cluster = joined.cluster.or(written.cluster);
    let text = toml::to_string(&written).context("cannot serialize the configuration")?;
    std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    rms_wire::end_join(&credentials)?;
    // A running agent with an older certificate is cut off now, and adopts this one.
    runtime.block_on(rms_wire::come_with(address, &joined.credentials));
    println!("joined as {}; start it with: node-agent run --dir {}", identity.name, dir.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_agent_listens_by_default_where_it_can_reach_its_server() {
        for (server, expected) in [("127.0.0.1:7117", "0.0.0.0:0"), ("[::1]:7117", "[::]:0")] {
            assert_eq!(default_listen(server).await.to_string(), expected);
        }
    }
}
