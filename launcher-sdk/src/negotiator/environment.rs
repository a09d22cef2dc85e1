//! Reads a process's environment: its job, the server, and where its credentials are.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rms_api::negotiate::Keeps;
use rms_model::{JobId, Run};
use rms_wire::tls::{CredentialsError, FileError};
use rms_wire::{Backoff, Credentials};

use super::error::ConnectError;
use super::mpirun;

/// Where a process of a job finds the server, and how it proves to which job it belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobEnvironment {
    /// `RMS_JOB_CREDENTIALS`: a directory with `key.pem`, `cert.pem` and `ca.pem`, placed by the node's agent.
    pub credentials: PathBuf,
    /// `RMS_SERVER`: `host:port`.
    pub server: String,
    /// `RMS_JOB_ID`.
    pub job: JobId,
    /// `RMS_RUN`: which execution of the job this is.
    pub run: Run,
    /// How long [`Negotiator::connect_with`](super::Negotiator::connect_with) waits for the credentials, and then for
    /// the server.
    pub patience: Duration,
    /// The nodes on which `mpirun` started ranks together with this process: these ranks cannot leave before all of
    /// them end, so the server does not ask for these nodes.
    pub keeps: Keeps,
    /// The application goes on when nodes are lost, as long as it has its minimum number of nodes:
    /// [`Event::NodesLost`](super::Event::NodesLost) says which were lost. Otherwise it is ended as soon as one node is
    /// lost, unless it was submitted with `--on-node-loss shrink`.
    pub survives_loss: bool,
}

impl JobEnvironment {
    /// Reads the environment of this process.
    ///
    /// # Errors
    /// [`ConnectError::NotInJob`], [`ConnectError::Variable`].
    pub fn read() -> Result<JobEnvironment, ConnectError> {
        JobEnvironment::from_variables(|name| std::env::var(name).ok())
    }

    /// Declares that the application goes on when nodes are lost.
    #[must_use]
    pub fn surviving_loss(self) -> JobEnvironment {
        JobEnvironment { survives_loss: true, ..self }
    }

    fn from_variables(variable: impl Fn(&'static str) -> Option<String>) -> Result<JobEnvironment, ConnectError> {
        let value = |name: &'static str| {
            variable(name).filter(|value| !value.is_empty()).ok_or(ConnectError::NotInJob { variable: name })
        };
        let job = value("RMS_JOB_ID")?;
        let run = value("RMS_RUN")?;
        Ok(JobEnvironment {
            credentials: PathBuf::from(value("RMS_JOB_CREDENTIALS")?),
            server: value("RMS_SERVER")?,
            job: number(&job).map(JobId).ok_or(ConnectError::Variable { variable: "RMS_JOB_ID", value: job })?,
            run: number(&run).map(Run).ok_or(ConnectError::Variable { variable: "RMS_RUN", value: run })?,
            patience: PATIENCE,
            keeps: mpirun::keeps(variable),
            survives_loss: false,
        })
    }

    /// Waits until the agent has placed the key and certificates, which it does while the job starts.
    ///
    /// # Errors
    /// [`ConnectError::NoCredentials`], [`ConnectError::Credentials`].
    pub(super) async fn await_credentials(&self) -> Result<Credentials, ConnectError> {
        let begun = Instant::now();
        // Growing delays between attempts bridge the first moments of a job.
        let mut backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(250));
        loop {
            match self.load_credentials() {
                Ok(found) => return Ok(found),
                Err(error) if is_missing(&error) && begun.elapsed() < self.patience => {}
                Err(error) if is_missing(&error) => {
                    return Err(ConnectError::NoCredentials { dir: self.credentials.clone(), waited: begun.elapsed() });
                }
                Err(source) => return Err(ConnectError::Credentials { dir: self.credentials.clone(), source }),
            }
            tokio::time::sleep(backoff.delay()).await;
        }
    }

    pub(super) fn load_credentials(&self) -> Result<Credentials, CredentialsError> {
        Credentials::load(&self.credentials)
    }
}

/// Parses a number as the variables have it: digits only.
fn number<N: std::str::FromStr>(text: &str) -> Option<N> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn is_missing(error: &CredentialsError) -> bool {
    match error {
        CredentialsError::File(FileError::Read { source, .. }) => source.kind() == std::io::ErrorKind::NotFound,
        CredentialsError::File(FileError::Write { .. })
        | CredentialsError::Key(_)
        | CredentialsError::Chain(_)
        | CredentialsError::Ca(_)
        | CredentialsError::Peer(_)
        | CredentialsError::OtherDeployment { .. }
        | CredentialsError::Mismatch(_) => false,
    }
}

/// An agent that has a server places credentials within a second.
const PATIENCE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(name: &'static str) -> Option<String> {
        let value = match name {
            "RMS_JOB_ID" => "7",
            "RMS_RUN" => "2",
            "RMS_SERVER" => "head:7117",
            "RMS_JOB_CREDENTIALS" => "/run/job7",
            _ => return None,
        };
        Some(value.to_owned())
    }

    #[test]
    fn the_environment_of_a_job_says_where_and_who() {
        let found = JobEnvironment::from_variables(variables).expect("complete");
        assert_eq!((found.job, found.run, found.server.as_str()), (JobId(7), Run(2), "head:7117"));
        assert_eq!(found.credentials, PathBuf::from("/run/job7"));
    }

    #[test]
    fn who_is_in_no_job_is_told_how_to_get_into_one() {
        let none = JobEnvironment::from_variables(|_| None).expect_err("nothing is set");
        assert!(none.to_string().contains("rms submit --malleable"), "{none}");
        let without = |name| if name == "RMS_JOB_CREDENTIALS" { None } else { variables(name) };
        let rigid = JobEnvironment::from_variables(without).expect_err("a job that does not negotiate");
        assert!(rigid.to_string().starts_with("RMS_JOB_CREDENTIALS is not set"), "{rigid}");
        for wrong in ["-1", "+1", " 1", "x", "99999999999999999999"] {
            let with = |name| if name == "RMS_RUN" { Some(wrong.to_owned()) } else { variables(name) };
            assert!(matches!(JobEnvironment::from_variables(with), Err(ConnectError::Variable { .. })), "{wrong}");
        }
    }

    #[tokio::test]
    async fn credentials_that_never_come_are_waited_for_so_long_and_no_longer() {
        let dir = tempfile::tempdir().expect("a directory");
        let environment = JobEnvironment {
            credentials: dir.path().join("none"),
            server: "head:1".to_owned(),
            job: JobId(1),
            run: Run(1),
            patience: Duration::from_millis(1),
            keeps: Keeps::Nothing,
            survives_loss: false,
        };
        let error = environment.await_credentials().await.expect_err("nobody places any");
        assert!(matches!(error, ConnectError::NoCredentials { .. }), "{error}");
    }
}
