//! Why an application cannot negotiate, or not now.

use rms_api::Refused;
use std::path::PathBuf;
use std::time::Duration;

use negotiation::dialogues::OpenError;
use negotiation::{ActError, NegotiationId, TemplateError};
use rms_model::{JobId, Outcome};
use rms_wire::LinkError;
use rms_wire::tls::CredentialsError;
use thiserror::Error;

/// Why there is no negotiator.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The process is not one of a job, or its job does not negotiate.
    #[error(
        "{variable} is not set: this is no process of a job that negotiates; submit one with 'rms submit --malleable \
         LEAST-MOST --negotiable', or with --profile"
    )]
    NotInJob {
        /// The variable that is missing.
        variable: &'static str,
    },
    /// A variable was changed on the way.
    #[error("{variable} is '{value}', which no agent has set")]
    Variable {
        /// Its name.
        variable: &'static str,
        /// What it says.
        value: String,
    },
    /// The node's agent has placed nothing in time: it, or the server, is away.
    #[error(
        "no credentials have come to {} in {} s: the node's agent, or the server, is away; try again later, or look with \
         'rms nodes'",
        dir.display(),
        waited.as_secs()
    )]
    NoCredentials {
        /// Where they are expected.
        dir: PathBuf,
        /// How long it was waited.
        waited: Duration,
    },
    /// There are credentials, and they are of no use to this process.
    #[error("the credentials in {} cannot be used: only the job's own user may", dir.display())]
    Credentials {
        /// Where they are.
        dir: PathBuf,
        /// What is wrong.
        source: CredentialsError,
    },
    /// Nobody who is the server has answered for so long.
    #[error("no server answers at {server} since {} s", waited.as_secs())]
    Unreachable {
        /// `host:port`.
        server: String,
        /// How long it was tried.
        waited: Duration,
        /// How the last attempt ended.
        source: LinkError,
    },
    /// The server is well and does not want us.
    #[error("access denied by the server at {server}: {reason}")]
    Denied {
        /// `host:port`.
        server: String,
        /// What the server said.
        reason: String,
    },
    /// The server refuses to negotiate with this job: it has ended, or was not submitted as negotiating.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// No thread, no UDP port, no TLS.
    #[error("the system does not give what a connection needs: {0}")]
    System(String),
}

/// Why something that was wanted of a negotiator was not done. Nothing has changed then.
#[derive(Debug, Error)]
pub enum NegotiatorError {
    /// What was asked for cannot be negotiated at all.
    #[error("this cannot be negotiated: {0}")]
    Template(TemplateError),
    /// Not in this phase, not any more, or not by these rules.
    #[error(transparent)]
    Act(#[from] ActError),
    /// Other nodes than were agreed, or more, or fewer.
    #[error(
        "these are not the nodes of negotiation {id}: name {agreed} of the job's nodes{}, or leave the choice to release_last \
         (in C: NULL and 0)",
        among(named)
    )]
    OtherNodes {
        /// Which negotiation.
        id: NegotiationId,
        /// How many were agreed.
        agreed: u64,
        /// Those of them that were named.
        named: Vec<String>,
    },
    /// No node of the job has this name.
    #[error("the job has no node '{0}'")]
    NoSuchNode(String),
    /// The server has told of no such cluster.
    #[error("there is no cluster '{name}'; the clusters are {}", known.join(", "))]
    NoSuchCluster {
        /// Its name.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// The application has announced its stages, and asks for nothing outside them.
    #[error("job {0} has announced its stages, and nothing else is negotiated: 'rms evolve {0}' announces others")]
    HasProfile(JobId),
    /// The server refuses it.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The application has ended.
    #[error("job {job} has ended: {outcome}")]
    JobEnded {
        /// The job.
        job: JobId,
        /// How.
        outcome: Outcome,
    },
    /// Another process of the job negotiates for it.
    #[error("another process of the job negotiates for it now")]
    Replaced,
    /// The connection broke, and the server does not take us any more.
    #[error("the server does not negotiate with this job any more: {0}")]
    Lost(Refused),
    /// The file cannot be written.
    #[error("cannot write {}", path.display())]
    Hostfile {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The negotiator's thread is gone, which only a bug of it can bring about.
    #[error("the negotiator has stopped")]
    Stopped,
}

// Not a source: what cannot be is the reason itself, and is told with it.
impl From<TemplateError> for NegotiatorError {
    fn from(error: TemplateError) -> NegotiatorError {
        NegotiatorError::Template(error)
    }
}

impl From<OpenError> for NegotiatorError {
    fn from(error: OpenError) -> NegotiatorError {
        match error {
            OpenError::Template(error) => NegotiatorError::Template(error),
            OpenError::Act(error) => NegotiatorError::Act(error),
        }
    }
}

fn among(named: &[String]) -> String {
    if named.is_empty() { String::new() } else { format!(", with {} among them", named.join(" and ")) }
}
