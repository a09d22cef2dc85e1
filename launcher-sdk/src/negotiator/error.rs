//! The errors of connecting a negotiator, and of negotiating.

use rms_api::Refused;
use std::path::PathBuf;
use std::time::Duration;

use negotiation::dialogues::OpenError;
use negotiation::{ActError, NegotiationId, TemplateError};
use rms_model::{JobId, Outcome, Span};
use rms_wire::LinkError;
use rms_wire::tls::CredentialsError;
use thiserror::Error;

/// Why there is no negotiator.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The process does not belong to a job, or its job does not negotiate.
    #[error(
        "{variable} is not set: this is no process of a job that negotiates; submit one with 'rms submit --malleable \
         LEAST-MOST --negotiable', or with --profile"
    )]
    NotInJob {
        /// The variable that is missing.
        variable: &'static str,
    },
    /// A variable has a value that the agent cannot have set.
    #[error("{variable} is '{value}', which no agent has set")]
    Variable {
        /// Its name.
        variable: &'static str,
        /// What it says.
        value: String,
    },
    /// The node's agent has not placed the credentials in time: the agent or the server is unreachable.
    #[error(
        "no credentials have come to {} in {} s: the node's agent, or the server, is away; try again later, or look with \
         'rms nodes'",
        dir.display(),
        waited.as_secs()
    )]
    NoCredentials {
        /// Where they are expected.
        dir: PathBuf,
        /// How long the process waited.
        waited: Duration,
    },
    /// There are credentials, but this process cannot use them.
    #[error("the credentials in {} cannot be used: only the job's own user may", dir.display())]
    Credentials {
        /// Where they are.
        dir: PathBuf,
        /// What is wrong.
        source: CredentialsError,
    },
    /// The server has not answered in time.
    #[error("no server answers at {server} since {} s", waited.as_secs())]
    Unreachable {
        /// `host:port`.
        server: String,
        /// How long the process tried.
        waited: Duration,
        /// How the last attempt ended.
        source: LinkError,
    },
    /// The server denies access.
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
    /// A thread, a UDP port or TLS cannot be set up.
    #[error("the system does not give what a connection needs: {0}")]
    System(String),
}

/// Why a call of a negotiator failed. A failed call changes nothing.
#[derive(Debug, Error)]
pub enum NegotiatorError {
    /// The request cannot be negotiated at all.
    #[error("this cannot be negotiated: {0}")]
    Template(TemplateError),
    /// The deadline of a proposal was so long ago, by the [negotiator's clock](super::Negotiator::now).
    #[error("the deadline is over: it was {0} ago")]
    DeadlineOver(Span),
    /// The phase or the rules of the negotiation do not allow it, or the negotiation is over.
    #[error(transparent)]
    Act(#[from] ActError),
    /// The nodes are not those that were agreed, or their number differs.
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
    /// The job's first node, where its script runs, is among the nodes to release.
    #[error("{0} is the first node of the job, which stays: name others")]
    FirstNode(String),
    /// The shrink is about nodes of other clusters.
    #[error("{node} is a node of cluster {cluster}, of which nothing was agreed to be given back")]
    OtherCluster {
        /// The node that was named.
        node: String,
        /// Its cluster.
        cluster: String,
    },
    /// No node of the job has this name.
    #[error("the job has no node '{0}'")]
    NoSuchNode(String),
    /// The server has not listed a cluster of this name.
    #[error("there is no cluster '{name}'; the clusters are {}", known.join(", "))]
    NoSuchCluster {
        /// Its name.
        name: String,
        /// The clusters that exist.
        known: Vec<String>,
    },
    /// The application has announced its stages, so it cannot request anything else.
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
    /// The connection broke, and the server refuses to attach this process again.
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
    /// The negotiator's thread has ended, which only a bug in it can cause.
    #[error("the negotiator has stopped")]
    Stopped,
}

// Not `#[from]`: the variant's message already contains the source.
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
