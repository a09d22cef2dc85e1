//! One deployment under test: starts it, injects faults, and queries it.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use super::binaries::{Binaries, binaries, example};
use super::cgroups::Cgroups;
use super::command::{Output, wait_until};
use super::disk::SmallDisk;
use super::processes::Reaper;

/// How long any operation may take before a test gives up; generous, because machines are shared.
const PATIENCE: Duration = Duration::from_secs(60);

/// The configuration of a deployment.
#[derive(Debug)]
pub struct Builder {
    nodes: Vec<NodeOptions>,
    config: String,
    wrapper: Vec<String>,
    ip: IpAddr,
    server_dir: Option<PathBuf>,
}

/// One node and how its agent is started.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    pub name: String,
    pub cluster: String,
    /// Arguments of `node-agent run` in addition to directory, server, name and cluster.
    pub arguments: Vec<String>,
    /// A command that runs the agent's own, such as one that enters a namespace. It must not fork.
    pub wrapper: Vec<String>,
    /// The address at which it reaches the server, if not the server's own.
    pub server: Option<SocketAddr>,
}

impl NodeOptions {
    pub fn new(cluster: &str, name: &str) -> NodeOptions {
        let (name, cluster) = (name.to_owned(), cluster.to_owned());
        NodeOptions { name, cluster, arguments: Vec::new(), wrapper: Vec::new(), server: None }
    }

    #[must_use]
    pub fn with(mut self, arguments: &[&str]) -> NodeOptions {
        self.arguments.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }

    #[must_use]
    pub fn through(self, server: SocketAddr) -> NodeOptions {
        NodeOptions { server: Some(server), ..self }
    }

    #[must_use]
    pub fn wrapped(mut self, wrapper: &[&str]) -> NodeOptions {
        self.wrapper.extend(wrapper.iter().map(|word| (*word).to_owned()));
        self
    }
}

impl Default for Builder {
    fn default() -> Builder {
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Builder { nodes: Vec::new(), config: String::new(), wrapper: Vec::new(), ip, server_dir: None }
    }
}

impl Builder {
    /// Adds `n_nodes` nodes of a cluster, named after it and counted from 1.
    #[must_use]
    pub fn cluster(mut self, cluster: &str, n_nodes: u32) -> Builder {
        self.nodes.extend((1..=n_nodes).map(|idx| NodeOptions::new(cluster, &format!("{cluster}{idx}"))));
        self
    }

    #[must_use]
    pub fn node(mut self, options: NodeOptions) -> Builder {
        self.nodes.push(options);
        self
    }

    /// Sets lines of the server's configuration, which replace the defaults.
    #[must_use]
    pub fn config(mut self, lines: &str) -> Builder {
        self.config.push_str(lines);
        self.config.push('\n');
        self
    }

    /// Sets a wrapper for the server and the command `rms`, and the address at which the server listens.
    #[must_use]
    pub fn server_at(mut self, ip: IpAddr, wrapper: &[&str]) -> Builder {
        self.ip = ip;
        self.wrapper.extend(wrapper.iter().map(|word| (*word).to_owned()));
        self
    }

    /// Sets the server's data directory, in place of one in the deployment's own directory.
    #[must_use]
    pub fn server_dir(mut self, dir: &Path) -> Builder {
        self.server_dir = Some(dir.to_path_buf());
        self
    }

    /// Sets up and starts everything, and waits until every node is connected.
    pub fn start(self) -> Deployment {
        let dir = tempfile::Builder::new().prefix("limber-test-").tempdir().expect("a temporary directory");
        // Jobs of other users write here, too.
        fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("it is ours");
        let reaper = Reaper::new(dir.path());
        let cgroups = Cgroups::new(&dir.path().file_name().expect("it has a name").to_string_lossy());
        let server_dir = self.server_dir.unwrap_or_else(|| dir.path().join("server"));
        let mut deployment = Deployment {
            wrapper: self.wrapper,
            ip: self.ip,
            reaper,
            cgroups,
            binaries: binaries(),
            server: None,
            address: None,
            agents: BTreeMap::new(),
            client: server_dir.join("admin"),
            server_dir,
            dir,
        };
        deployment.init(&self.config);
        deployment.start_server();
        for options in self.nodes {
            deployment.join_node(&options);
            deployment.start_agent(&options);
        }
        deployment.wait_for_nodes();
        deployment
    }
}

/// A running deployment. The fields drop in order: the reaper ends the processes before the directory is removed.
#[derive(Debug)]
pub struct Deployment {
    reaper: Reaper,
    cgroups: Cgroups,
    binaries: &'static Binaries,
    server: Option<Child>,
    address: Option<SocketAddr>,
    agents: BTreeMap<String, (NodeOptions, Option<Child>)>,
    wrapper: Vec<String>,
    ip: IpAddr,
    client: PathBuf,
    server_dir: PathBuf,
    dir: TempDir,
}

impl Deployment {
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Starts one cluster `a` of `n_nodes` nodes.
    pub fn of_nodes(n_nodes: u32) -> Deployment {
        Deployment::builder().cluster("a", n_nodes).start()
    }

    fn init(&self, config: &str) {
        let mut init = Command::new(&self.binaries.server);
        let listen = SocketAddr::new(self.ip, 0).to_string();
        init.arg("init").arg("--dir").arg(&self.server_dir).args(["--listen", &listen]);
        self.finish(init).ok();
        if !config.is_empty() {
            fs::write(self.server_dir.join("rms-server.toml"), config).expect("the directory is ours");
        }
    }

    /// Starts the server, the first time at any free port, later at the same one.
    pub fn start_server(&mut self) {
        let mut run = wrapped(&self.wrapper, &self.binaries.server);
        let listen = self.address.unwrap_or_else(|| self.free_address()).to_string();
        run.arg("run").arg("--dir").arg(&self.server_dir).args(["--listen", &listen]);
        let mut child = run.stdout(Stdio::piped()).stderr(self.log("server")).spawn().expect("the server starts");
        let stdout = child.stdout.take().expect("it is piped");
        let ready = BufReader::new(stdout).lines().map_while(Result::ok).find(|line| line.starts_with("listening on "));
        let ready = ready.unwrap_or_else(|| panic!("the server did not start:\n{}", self.log_text("server")));
        let address = ready.trim_start_matches("listening on ").trim();
        self.address = Some(address.parse().expect("the server prints its address"));
        self.server = Some(child);
    }

    /// Returns an address that nobody uses, and that nobody gets who asks for any port: so it is still free when the
    /// server is started again. In a network of its own, any port will do.
    fn free_address(&self) -> SocketAddr {
        if !self.wrapper.is_empty() || !self.ip.is_loopback() {
            return SocketAddr::new(self.ip, 0);
        }
        let drawn = || RandomState::new().hash_one(std::process::id()) % 20_000;
        let address = || SocketAddr::new(self.ip, 10_000 + drawn() as u16);
        std::iter::repeat_with(address).find(|address| UdpSocket::bind(address).is_ok()).expect("one is free")
    }

    /// Kills the server with `kill -9`.
    pub fn kill_server(&mut self) {
        let mut child = self.server.take().expect("the server runs");
        child.kill().expect("it is our child");
        child.wait().expect("it was killed");
    }

    /// Waits for a server that was told to stop.
    pub fn wait_for_server(&mut self) -> ExitStatus {
        self.server.take().expect("the server runs").wait().expect("it is our child")
    }

    pub fn server_pid(&self) -> i32 {
        self.server.as_ref().expect("the server runs").id() as i32
    }

    /// Returns how much memory the server uses now.
    pub fn server_resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.server_pid())).expect("it lives");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the kernel keeps it");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    pub fn address(&self) -> SocketAddr {
        self.address.expect("the server has been started")
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The first admin's client directory.
    pub fn client_dir(&self) -> &Path {
        &self.client
    }

    pub fn server_dir(&self) -> &Path {
        &self.server_dir
    }

    pub fn agent_dir(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("agent-{name}"))
    }

    /// Creates a token for one node, and lets its agent redeem it.
    pub fn join_node(&self, options: &NodeOptions) {
        let (name, cluster) = (&options.name, &options.cluster);
        let created = self
            .rms(&["token", "create", "--role", "agent", "--name", name, "--cluster", cluster, "--json"])
            .ok()
            .json();
        let token = created["token"].as_str().expect("a token is a text").to_owned();
        let mut join = wrapped(&options.wrapper, &self.binaries.agent);
        join.arg("join").arg(token).arg("--dir").arg(self.agent_dir(name)).args(["--name", name]);
        self.finish(join).ok();
    }

    /// Starts a deployment of one node, whose agent has its directory on this disk.
    pub fn with_node_on(disk: &SmallDisk) -> Deployment {
        let mut deployment = Deployment::builder().start();
        let options = NodeOptions::new("a", "a1");
        std::os::unix::fs::symlink(disk.path().join("agent"), deployment.agent_dir("a1")).expect("the name is free");
        fs::create_dir(disk.path().join("agent")).expect("it is ours");
        deployment.join_node(&options);
        deployment.start_agent(&options);
        deployment.wait_for_nodes();
        deployment
    }

    pub fn start_agent(&mut self, options: &NodeOptions) {
        let (name, cluster) = (&options.name, &options.cluster);
        let mut run = wrapped(&options.wrapper, &self.binaries.agent);
        run.arg("run").arg("--dir").arg(self.agent_dir(name));
        let server = options.server.unwrap_or(self.address()).to_string();
        run.args(["--server", &server, "--name", name, "--cluster", cluster]);
        run.args(["--cgroup-parent", self.cgroups.name()]);
        run.args(&options.arguments).stdin(Stdio::null());
        run.stdout(self.log(name)).stderr(self.log(name));
        let child = run.spawn().expect("the agent starts");
        self.agents.insert(name.clone(), (options.clone(), Some(child)));
    }

    /// Kills the agent alone with `kill -9`; its supervisors live on.
    pub fn kill_agent(&mut self, name: &str) {
        let (_, child) = self.agents.get_mut(name).expect("the node is known");
        let mut child = child.take().expect("its agent runs");
        child.kill().expect("it is our child");
        child.wait().expect("it was killed");
    }

    pub fn restart_agent(&mut self, name: &str) {
        let options = self.agents[name].0.clone();
        self.start_agent(&options);
    }

    pub fn agent_pid(&self, name: &str) -> i32 {
        self.agents[name].1.as_ref().expect("its agent runs").id() as i32
    }

    /// Returns every process of the deployment, including those of jobs.
    pub fn pids(&self) -> Vec<i32> {
        self.reaper.pids()
    }

    /// Returns the cgroups of its jobs and of the supervisors that wait for one.
    pub fn cgroups(&self) -> Vec<PathBuf> {
        self.cgroups.leaves()
    }

    /// Waits until every node is connected and idle.
    pub fn wait_for_nodes(&self) {
        let n_nodes = self.agents.len();
        if n_nodes == 0 {
            return;
        }
        wait_until("all nodes to be idle", PATIENCE, || {
            let nodes = self.rms(&["nodes", "--json"]).ok().json();
            let idle = nodes["nodes"].as_array()?.iter().filter(|node| node["state"] == "idle").count();
            (idle == n_nodes).then_some(())
        });
    }

    /// Runs the command `rms` as the first admin.
    pub fn rms(&self, arguments: &[&str]) -> Output {
        self.finish(self.command(arguments))
    }

    /// Does the same with an input on standard input.
    pub fn rms_with_input(&self, arguments: &[&str], input: &str) -> Output {
        let mut command = self.command(arguments);
        let text = format!("{command:?}");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the command starts");
        let mut stdin = child.stdin.take().expect("it is piped");
        // A command that rejects its flags does not read its input; that is what the test checks.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        Output::of(text, child.wait_with_output().expect("it ends"))
    }

    /// Returns the command itself, for scripts that call it.
    pub fn rms_program(&self) -> &Path {
        &self.binaries.rms
    }

    /// Returns the command without starting it, in the deployment's directory and with a plain environment.
    pub fn command(&self, arguments: &[&str]) -> Command {
        self.command_as(&self.client, arguments)
    }

    /// Returns the command with another client's credentials.
    pub fn command_as(&self, client: &Path, arguments: &[&str]) -> Command {
        let mut command = wrapped(&self.wrapper, &self.binaries.rms);
        command.args(arguments).env("RMS_DIR", client).current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    /// Returns an example of the SDK, without starting it, as the first admin.
    pub fn example(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(example(name));
        command.args(arguments).env("RMS_DIR", &self.client).current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub fn finish(&self, mut command: Command) -> Output {
        let text = format!("{command:?}");
        let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{text}: {error}"));
        Output::of(text, output)
    }

    /// Submits a job and returns its id.
    pub fn submit(&self, arguments: &[&str]) -> u64 {
        let mut all = vec!["submit", "--json"];
        all.extend(arguments);
        self.rms(&all).ok().json()["job"].as_u64().expect("a submit names its job")
    }

    /// Writes an executable script into the deployment's directory.
    pub fn script(&self, name: &str, text: &str) -> String {
        let path = self.dir.path().join(name);
        fs::write(&path, text).expect("the directory is ours");
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("it is ours");
        path.to_string_lossy().into_owned()
    }

    /// Returns the job's line of the queue, or `None` once it has left.
    pub fn queued(&self, job: u64) -> Option<Value> {
        let queue = self.rms(&["queue", "--json"]).ok().json();
        queue["jobs"].as_array()?.iter().find(|line| line["job"] == job).cloned()
    }

    /// Waits until the job is in that state.
    pub fn wait_for_state(&self, job: u64, state: &str) -> Value {
        wait_until(&format!("job {job} to be {state}"), PATIENCE, || {
            self.queued(job).filter(|line| line["state"] == state)
        })
    }

    /// Waits until the job is in the history.
    pub fn wait_for_end(&self, job: u64) -> Value {
        wait_until(&format!("job {job} to end"), PATIENCE, || self.record(job))
    }

    /// Returns the job's record of the history, once it is there.
    pub fn record(&self, job: u64) -> Option<Value> {
        let history = self.rms(&["history", &job.to_string(), "--json"]);
        if history.code != 0 {
            return None;
        }
        history.json()["jobs"].as_array()?.iter().find(|record| record["job"] == job).cloned()
    }

    /// Creates credentials for another person: a token, redeemed into its own directory.
    pub fn join_person(&self, role: &str, name: &str) -> PathBuf {
        let token = self.rms(&["token", "create", "--role", role, "--name", name, "--json"]).ok().json();
        let dir = self.dir.path().join(format!("{role}-{name}"));
        let mut join = self.command(&["join", token["token"].as_str().expect("a text")]);
        join.arg("--dir").arg(&dir);
        self.finish(join).ok();
        dir
    }

    fn log(&self, name: &str) -> fs::File {
        let path = self.dir.path().join(format!("{name}.log"));
        fs::OpenOptions::new().create(true).append(true).open(path).expect("the directory is ours")
    }

    /// Returns what a process has logged, for the message of a failed test.
    pub fn log_text(&self, name: &str) -> String {
        fs::read_to_string(self.dir.path().join(format!("{name}.log"))).unwrap_or_default()
    }
}

/// Returns the command for a program, run by the wrapper if there is one.
fn wrapped(wrapper: &[String], program: &Path) -> Command {
    match wrapper {
        [] => Command::new(program),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
    }
}

impl Drop for Deployment {
    fn drop(&mut self) {
        // The reaper ends the other processes; these are our children and must not stay as zombies.
        let agents = self.agents.values_mut().filter_map(|(_, child)| child.as_mut());
        for child in agents.chain(self.server.as_mut()) {
            let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
            let _ = child.wait();
        }
        if std::thread::panicking() {
            for name in std::iter::once("server").chain(self.agents.keys().map(String::as_str)) {
                eprintln!("--- log of {name}\n{}", self.log_text(name));
            }
        }
    }
}
