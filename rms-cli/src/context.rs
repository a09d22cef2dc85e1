//! What every verb gets: where to write, and the way to the server.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use launcher_sdk::Client;

use crate::agent;
use crate::failure::Failure;
use crate::inside::variable;
use crate::names::ClusterNames;
use crate::output::Output;
use crate::place::Places;
use crate::srun::StepCheck;

/// The surroundings of one command.
#[derive(Debug)]
pub struct Context {
    pub output: Output,
    /// `--dir`.
    pub dir: Option<PathBuf>,
    pub places: Places,
    /// What is wrong with the words of an `rms` that starts a step.
    pub check_step: StepCheck,
    /// The whole command line, for what is generated from it.
    pub command: fn() -> clap::Command,
    /// Clients to say goodbye for at the end.
    pub clients: RefCell<Vec<Client>>,
}

impl Context {
    /// The client directory that this command uses.
    ///
    /// # Errors
    /// There is none.
    pub fn client_dir(&self) -> Result<PathBuf, Failure> {
        self.places.client(self.dir.as_deref())
    }

    /// A connected client.
    ///
    /// # Errors
    /// No client directory, or a server that does not answer.
    pub async fn client(&self) -> Result<Client, Failure> {
        let dir = match self.client_dir() {
            Ok(dir) => dir,
            // Whoever names none may be a job, which has credentials of its own.
            Err(none) if self.dir.is_none() && self.places.rms_dir.is_none() => {
                return self.client_of_job().await?.ok_or(none);
            }
            Err(none) => return Err(none),
        };
        let client = Client::connect_briefly(&dir).await?;
        self.clients.borrow_mut().push(client.clone());
        Ok(client)
    }

    /// A client with the credentials of the job that we are in, unless others were named; outside, the usual one.
    ///
    /// # Errors
    /// As [`Context::client`].
    pub async fn client_inside(&self) -> Result<Client, Failure> {
        let is_named = self.dir.is_some() || self.places.rms_dir.is_some();
        let Some(dir) = variable("RMS_JOB_CREDENTIALS").map(PathBuf::from).filter(|_| !is_named) else {
            return self.client().await;
        };
        let server = variable("RMS_SERVER").ok_or_else(|| {
            Failure::new(
                "not_in_job",
                "RMS_JOB_CREDENTIALS is set, but RMS_SERVER is not: the job's environment was changed",
            )
        })?;
        self.connect(&dir, &server).await
    }

    /// A client with the credentials of the job that we are in, for whose owner there are none on this node; none outside.
    async fn client_of_job(&self) -> Result<Option<Client>, Failure> {
        let Some(socket) = agent::socket() else { return Ok(None) };
        let (dir, server) = agent::credentials(&socket).await?;
        self.connect(&dir, &server).await.map(Some)
    }

    async fn connect(&self, dir: &Path, server: &str) -> Result<Client, Failure> {
        await_credentials(dir).await;
        let client = Client::connect_as(dir, server).await?;
        self.clients.borrow_mut().push(client.clone());
        Ok(client)
    }

    /// Ends the links of this command: the server counts those of each user.
    pub async fn farewell(&self) {
        let clients = self.clients.take();
        for client in clients {
            client.close().await;
        }
    }

    /// The names of the clusters, for commands whose answer names them by number.
    ///
    /// # Errors
    /// As every call.
    pub async fn cluster_names(&self, client: &Client) -> Result<ClusterNames, Failure> {
        Ok(ClusterNames::new(client.clusters().await?))
    }
}

/// The agent asks for them beside the start of the job, so the first command of a script may be too early.
async fn await_credentials(dir: &Path) {
    let begun = Instant::now();
    while !dir.join("cert.pem").exists() && begun.elapsed() < PATIENCE {
        // The directory may be on any file system, so there is nothing to be woken by.
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);
