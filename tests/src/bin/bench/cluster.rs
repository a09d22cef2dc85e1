//! A whole cluster for the bench, as `rms up` makes it, and what its processes have used.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::process::{self, Process};
use crate::server::{Client, sibling, spawn_at};

/// Ends with this value.
pub struct Cluster {
    home: TempDir,
    rms: PathBuf,
    /// In the place of the one that `rms up` has started.
    server: Option<Child>,
}

/// CPU time of the parts of a cluster.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    pub server: Duration,
    /// Agents and their spawners.
    pub agents: Duration,
    /// Supervisors that live; they serve one job after the other.
    pub supervisors: Duration,
    /// Whatever any of them has waited for: tasks.
    pub ended: Duration,
}

impl Cluster {
    pub fn up(n_nodes: u32) -> Result<Cluster> {
        Cluster::of(n_nodes, "pack:1 core:8 pu:1")
    }

    /// Nodes that count so much, as hwloc writes it. Each has the CPUs of this machine, as far as there are so many.
    pub fn of(n_nodes: u32, topology: &str) -> Result<Cluster> {
        let home = tempfile::Builder::new().prefix("limber-bench-").tempdir().context("no temporary directory")?;
        let cluster = Cluster { home, rms: sibling("rms")?, server: None };
        cluster.rms(&["up", "--nodes", &n_nodes.to_string(), "--topology", topology])?;
        Ok(cluster)
    }

    pub fn rms(&self, args: &[&str]) -> Result<Output> {
        let mut command = Command::new(&self.rms);
        command.arg("--dir").arg(self.dir()).args(args).stdin(Stdio::null());
        let output = command.output().context("cannot run rms")?;
        if !output.status.success() {
            let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
            bail!("`rms {}` ended with {}: {}", args.join(" "), output.status, complaint.trim());
        }
        Ok(output)
    }

    /// Kills the server as a power cut would, and starts it again on the same port; says when.
    pub fn restart_server(&mut self) -> Result<Instant> {
        let address = self.address()?;
        match self.server.take() {
            Some(mut server) => {
                server.kill().context("cannot kill the server")?;
                server.wait().context("cannot wait for the server")?;
            }
            None => {
                let server = self.server()?;
                let killed = Command::new("kill").args(["-9", &server.to_string()]).status();
                anyhow::ensure!(killed.context("cannot run kill")?.success(), "cannot kill the server");
                while process::read(server).is_some_and(|process| process.name == "rms-server") {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
        let begun = Instant::now();
        self.server = Some(spawn_at(&self.dir().join("server"), address)?);
        Ok(begun)
    }

    /// The server's process.
    pub fn server(&self) -> Result<i32> {
        let roots = self.roots();
        let server = roots.iter().find(|root| root.name == "rms-server").context("there is no server")?;
        Ok(server.pid)
    }

    /// Where it listens.
    pub fn address(&self) -> Result<SocketAddr> {
        let address = self.dir().join("server").join("address");
        let address = std::fs::read_to_string(address).context("the server says where it listens")?;
        Ok(address.trim().parse()?)
    }

    pub async fn client(&self) -> Result<Client> {
        Client::connect(&self.dir().join("server").join("admin"), self.address()?).await
    }

    pub fn spent(&self) -> Spent {
        let mut spent = Spent::default();
        for process in self.processes() {
            let part = match process.name.as_str() {
                "rms-server" => &mut spent.server,
                "rms-supervisor" => &mut spent.supervisors,
                _agent_or_spawner => &mut spent.agents,
            };
            *part += process.cpu();
            spent.ended += process.cpu_with_children() - process.cpu();
        }
        spent
    }

    /// Resident memory of the agents' main processes.
    pub fn agents_mib(&self) -> Vec<f64> {
        let roots = self.roots();
        roots
            .iter()
            .filter(|root| root.name.starts_with("node-agent"))
            .filter_map(|root| process::resident_mib(root.pid))
            .collect()
    }

    fn processes(&self) -> Vec<Process> {
        let roots: Vec<i32> = self.roots().iter().map(|process| process.pid).collect();
        process::trees(&roots)
    }

    /// The programs that were started with our directory, without those that they started.
    fn roots(&self) -> Vec<Process> {
        let ours = process::with_argument(&self.dir().display().to_string());
        ours.iter().filter(|process| !ours.iter().any(|other| other.pid == process.parent)).cloned().collect()
    }

    fn dir(&self) -> PathBuf {
        self.home.path().join("up")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            // It may have ended by itself; there is nothing else to do about either.
            let _ = server.kill();
            let _ = server.wait();
        }
        if let Err(error) = self.rms(&["down"]) {
            eprintln!("bench: {error:#}");
        }
    }
}
