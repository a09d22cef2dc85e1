//! A server of its own for the bench: the real program in a temporary directory, and one client's link to it.

use rms_api::Answer;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rms_api::answer::Status;
use rms_api::call::Submission;
use rms_api::{Call, Query};
use rms_model::{Environment, Execution, Span, Stdio as JobStdio, Work};
use rms_wire::{ClientRequest, Credentials, Endpoint, Expect, Link};
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// A server that ends with this value.
pub struct Server {
    home: TempDir,
    process: Child,
}

/// One link of the administrator.
#[derive(Clone)]
pub struct Client {
    link: Link,
    // Its links live as long as it does.
    _endpoint: Endpoint,
}

impl Server {
    pub fn start() -> Result<Server> {
        Server::start_with("")
    }

    /// With more lines of settings.
    pub fn start_with(settings: &str) -> Result<Server> {
        let home = tempfile::Builder::new().prefix("limber-bench-").tempdir().context("no temporary directory")?;
        let dir = home.path().join("server");
        let init = Command::new(sibling("rms-server")?)
            .args(["init", "--name", "bench", "--listen", "127.0.0.1:0", "--admin", "bench", "--dir"])
            .arg(&dir)
            .stdin(Stdio::null())
            .output()
            .context("cannot run rms-server")?;
        if !init.status.success() {
            bail!("rms-server init: {}", String::from_utf8_lossy(&init.stderr).trim());
        }
        // All launchers are of one user; all of the queue counts here, and nodes that a busy machine delays are not lost.
        let config = format!(
            "[limits]\nlinks_per_user = 4096\n[settings]\nqueue_depth = 0\nnode_lost_after = \"1h\"\n{settings}"
        );
        std::fs::write(dir.join("rms-server.toml"), config).context("cannot write the configuration")?;
        let process = spawn(&dir)?;
        let server = Server { home, process };
        server.address()?;
        Ok(server)
    }

    pub fn dir(&self) -> PathBuf {
        self.home.path().join("server")
    }

    pub fn pid(&self) -> i32 {
        self.process.id().cast_signed()
    }

    /// Where it listens, once it says so.
    pub fn address(&self) -> Result<SocketAddr> {
        let path = self.dir().join("address");
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(30) {
            if let Some(address) = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok()) {
                return Ok(address);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        bail!("the server does not come up: {}", self.log())
    }

    /// Kills it as a power cut would, starts it again, and waits until it answers; how long that took.
    pub async fn restart(&mut self) -> Result<(Client, Duration)> {
        self.process.kill().context("cannot kill the server")?;
        self.process.wait().context("cannot wait for the server")?;
        let before = self.address()?;
        std::fs::remove_file(self.dir().join("address")).context("a stale address")?;
        let begun = Instant::now();
        // The same port, so that its agents find it again.
        self.process = spawn_at(&self.dir(), before)?;
        loop {
            self.address()?;
            match self.client().await {
                Ok(client) if client.status().await.is_ok() => return Ok((client, begun.elapsed())),
                Ok(_) | Err(_) if begun.elapsed() < Duration::from_secs(60) => {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                Ok(_) | Err(_) => bail!("the server does not come back: {}", self.log()),
            }
        }
    }

    pub async fn client(&self) -> Result<Client> {
        Client::connect(&self.dir().join("admin"), self.address()?).await
    }

    fn log(&self) -> String {
        let text = std::fs::read_to_string(self.dir().join("bench.log")).unwrap_or_default();
        text.lines().rev().take(5).collect::<Vec<&str>>().join(" | ")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; there is nothing else to do about either.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Client {
    pub async fn connect(dir: &Path, server: SocketAddr) -> Result<Client> {
        let credentials = Credentials::load(dir).context("the client has no credentials")?;
        let endpoint = Endpoint::dial(&credentials)?;
        let server = if server.ip().is_unspecified() { (Ipv4Addr::LOCALHOST, server.port()).into() } else { server };
        let link = endpoint.connect(server, Expect::server()).await.context("the server does not answer")?;
        Ok(Client { link, _endpoint: endpoint })
    }

    pub async fn call(&self, call: &Call) -> Result<Answer> {
        let call = ClientRequest::Call(call.clone());
        Ok(self.link.call(&call).await?)
    }

    pub async fn status(&self) -> Result<Status> {
        match self.call(&Call::Query(Query::Status)).await? {
            Answer::Status(status) => Ok(status),
            other => bail!("the server answered {other:?}"),
        }
    }

    /// Submits `n_jobs` single-node jobs on this one link, many under way at once.
    pub async fn submit(&self, n_jobs: u32, argv: &[&str], wall: Span) -> Result<()> {
        let call = Call::Submit(Box::new(submission(argv, wall)));
        let call = std::sync::Arc::new(ClientRequest::Call(call));
        let window = std::sync::Arc::new(Semaphore::new(IN_FLIGHT));
        let mut tasks = JoinSet::new();
        for _ in 0..n_jobs {
            let permit = std::sync::Arc::clone(&window).acquire_owned().await.context("the window stays open")?;
            let (link, call) = (self.link.clone(), std::sync::Arc::clone(&call));
            tasks.spawn(async move {
                let answer = link.call(&call).await.map(|_| ());
                drop(permit);
                answer
            });
            while let Some(done) = tasks.try_join_next() {
                done.context("no task panics")??;
            }
        }
        while let Some(done) = tasks.join_next().await {
            done.context("no task panics")??;
        }
        Ok(())
    }

    /// Waits until nothing waits or runs.
    pub async fn drained(&self, patience: Duration) -> Result<()> {
        let begun = Instant::now();
        loop {
            let status = self.status().await?;
            if status.n_waiting == 0 && status.n_started == 0 {
                return Ok(());
            }
            if begun.elapsed() > patience {
                bail!("{} jobs wait and {} run after {} s", status.n_waiting, status.n_started, patience.as_secs());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// More would wait in the transport anyway.
const IN_FLIGHT: usize = 128;

pub fn submission(argv: &[&str], wall: Span) -> Submission {
    Submission {
        n_tasks: Some(1),
        cpus_per_task: 1,
        execution: Execution {
            cwd: "/tmp".to_owned(),
            environment: Arc::new(Environment(vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())])),
            stdio: JobStdio { output: Some("/dev/null".to_owned()), ..JobStdio::default() },
            ..Execution::from(Work::Tasks { argv: argv.iter().map(|word| (*word).to_owned()).collect() })
        },
        ..test_kit::submission(1, wall)
    }
}

fn spawn(dir: &Path) -> Result<Child> {
    spawn_at(dir, (Ipv4Addr::LOCALHOST, 0).into())
}

pub fn spawn_at(dir: &Path, listen: SocketAddr) -> Result<Child> {
    let log = std::fs::File::create(dir.join("bench.log")).context("cannot write the log")?;
    Command::new(sibling("rms-server")?)
        .args(["run", "--listen", &listen.to_string(), "--dir"])
        .arg(dir)
        .env("RUST_LOG", "warn")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .context("cannot run rms-server")
}

/// Another program of the same build.
pub fn sibling(name: &str) -> Result<PathBuf> {
    let path = std::env::current_exe().context("where am I?")?.with_file_name(name);
    if !path.exists() {
        bail!("{} is not built: run `cargo xtask bench`", path.display());
    }
    Ok(path)
}
