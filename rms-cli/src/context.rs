//! The context of every verb: where to write, and how to reach the server.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use launcher_sdk::Client;
use rms_model::JobId;

use crate::agent;
use crate::failure::Failure;
use crate::inside::{self, variable};
use crate::names::ClusterNames;
use crate::output::Output;
use crate::place::Places;
use crate::srun::StepCheck;

/// The context of one command.
#[derive(Debug)]
pub struct Context {
    pub output: Output,
    /// `--dir`.
    pub dir: Option<PathBuf>,
    pub places: Places,
    /// Checks the arguments of an `rms` that starts a step.
    pub check_step: StepCheck,
    /// The definition of the whole command line, from which help pages and completions are generated.
    pub command: fn() -> clap::Command,
    /// Clients whose connections must be closed at the end.
    pub clients: RefCell<Vec<Client>>,
}

impl Context {
    /// Returns the client directory that this command uses.
    ///
    /// # Errors
    /// There is no client directory.
    pub fn client_dir(&self) -> Result<PathBuf, Failure> {
        self.places.client(self.dir.as_deref())
    }

    /// Returns a connected client.
    ///
    /// # Errors
    /// There is no client directory, or the server does not answer.
    pub async fn client(&self) -> Result<Client, Failure> {
        let dir = match self.client_dir() {
            Ok(dir) => dir,
            // A job has its own credentials, and its RMS_DIR may lead nowhere on this node. Other places might lead to
            // another server, which knows other jobs by the same ids.
            Err(none) if self.dir.is_none() => return self.client_of_job().await?.ok_or(none),
            Err(none) => return Err(none),
        };
        let client = Client::connect_briefly(&dir).await?;
        self.clients.borrow_mut().push(client.clone());
        Ok(client)
    }

    /// Returns a client with the credentials of the surrounding job, unless `--dir` or another job is named; outside a
    /// job, the usual client.
    ///
    /// # Errors
    /// Those of [`Context::client`].
    pub async fn client_inside(&self, named: Option<JobId>) -> Result<Client, Failure> {
        // RMS_DIR names none: a job has that of its submitter.
        let is_about_it = named.is_none_or(|named| inside::job(None).is_ok_and(|own| own == named));
        let is_its_own = self.dir.is_none() && is_about_it;
        let Some(dir) = variable("RMS_JOB_CREDENTIALS").map(PathBuf::from).filter(|_| is_its_own) else {
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

    /// Returns a client with the credentials of the surrounding job, if its owner has none on this node; `None` outside
    /// a job.
    async fn client_of_job(&self) -> Result<Option<Client>, Failure> {
        let Some(socket) = agent::socket() else { return Ok(None) };
        let (dir, server) = agent::credentials(&socket).await?;
        self.connect(&dir, &server).await.map(Some)
    }

    async fn connect(&self, dir: &Path, server: &str) -> Result<Client, Failure> {
        await_credentials(dir, |text| self.output.note(text)).await;
        let client = Client::connect_as(dir, server).await?;
        self.clients.borrow_mut().push(client.clone());
        Ok(client)
    }

    /// Adds to the refusal of what a process of a job may not do who may.
    pub fn advised(&self, failure: Failure) -> Failure {
        let is_of_job = self.clients.borrow().iter().any(|client| client.identity().as_job().is_some());
        if is_of_job && failure.kind == "not_allowed" { failure.hint(OWN_CREDENTIALS) } else { failure }
    }

    /// Closes the connections of this command, because the server limits those of each user.
    pub async fn farewell(&self) {
        let clients = self.clients.take();
        for client in clients {
            client.close().await;
        }
    }

    /// Waits for `ended`, and says meanwhile if the server does not answer, and if it does again.
    pub async fn tell_absence<T>(&self, client: &Client, ended: impl Future<Output = T>) -> T {
        let mut unanswered = client.unanswered();
        let told = async {
            // The client, which this function borrows, keeps the other end.
            while unanswered.wait_for(|is_unanswered| *is_unanswered).await.is_ok() {
                self.output.note("rms: the server does not answer: jobs go on, and it is tried for ten minutes");
                if unanswered.wait_for(|is_unanswered| !is_unanswered).await.is_ok() {
                    self.output.note("rms: the server answers again");
                }
            }
            std::future::pending().await
        };
        tokio::select! {
            biased;
            ended = ended => ended,
            ended = told => ended,
        }
    }

    /// Returns the names of the clusters, for answers that contain only their numbers.
    ///
    /// # Errors
    /// See [`CallError`](launcher_sdk::CallError).
    pub async fn cluster_names(&self, client: &Client) -> Result<ClusterNames, Failure> {
        Ok(ClusterNames::new(client.clusters().await?))
    }
}

/// Waits for the credentials. The agent requests them while the job starts, so the first command of a script may run
/// before they exist; the directory in which they are placed exists before the job.
async fn await_credentials(dir: &Path, note: impl Fn(&str)) {
    let begun = Instant::now();
    let mut has_told = false;
    let may_come = || dir.parent().is_some_and(Path::is_dir);
    while !dir.join("cert.pem").exists() && begun.elapsed() < PATIENCE && may_come() {
        if !has_told && begun.elapsed() >= SILENT_FOR {
            note(&format!("waiting for the credentials of the job in {}", dir.display()));
            has_told = true;
        }
        // The directory may be on any file system, so there is no event to wait for.
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

const OWN_CREDENTIALS: &str =
    "its owner may, by --dir DIR, RMS_DIR or ~/.config/limber: a client directory that is on this node";
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait without a note.
const SILENT_FOR: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Waits for credentials and returns how many notes there were.
    async fn wait(dir: &Path) -> u32 {
        let n_notes = Cell::new(0);
        await_credentials(dir, |_| n_notes.set(n_notes.get() + 1)).await;
        n_notes.get()
    }

    #[tokio::test]
    async fn credentials_are_awaited_only_where_they_may_come() {
        let keys = tempfile::tempdir().expect("a folder");
        let begun = Instant::now();
        assert_eq!(wait(&keys.path().join("gone/7.1")).await, 0);
        assert!(begun.elapsed() < SILENT_FOR, "nobody will place them");

        let dir = keys.path().join("7.1");
        let place = async {
            tokio::time::sleep(SILENT_FOR + Duration::from_millis(300)).await;
            std::fs::create_dir(&dir).expect("ours");
            std::fs::write(dir.join("cert.pem"), "").expect("ours");
        };
        assert_eq!(tokio::join!(wait(&dir), place).0, 1);
        assert!(begun.elapsed() < PATIENCE);
        assert_eq!(wait(&dir).await, 0, "they are there");
    }
}
