//! The errors of connecting to the server and of calls.

use rms_api::Refused;
use std::time::Duration;

use rms_model::JobId;
use rms_wire::LinkError;
use rms_wire::link::EndpointError;
use thiserror::Error;

use crate::dir::DirError;

/// Why there is no link to the server.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The client directory cannot be used.
    #[error(transparent)]
    Dir(#[from] DirError),
    /// No UDP port, or TLS cannot be set up.
    #[error("the network cannot be used")]
    Endpoint(#[from] EndpointError),
    /// The server denies access.
    #[error("access denied by the server at {server}: {reason}")]
    Denied {
        /// `host:port`.
        server: String,
        /// What the server said.
        reason: String,
    },
    /// The peer is not the server of this deployment, or its CA has changed and this client has missed the change.
    #[error("the server at {server} cannot be trusted: {reason}; if its CA was changed, join again with a new token")]
    Untrusted {
        /// `host:port`.
        server: String,
        /// What is wrong with its certificate.
        reason: String,
    },
    /// The server has not answered in time.
    #[error("no server answers at {server}")]
    Unreachable {
        /// `host:port`.
        server: String,
        /// How long the client tried.
        waited: Duration,
        /// How the last attempt ended.
        source: LinkError,
    },
}

/// Why a call has no answer.
#[derive(Debug, Error)]
pub enum CallError {
    /// The server refuses the call; nothing was done.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// There is no link; nothing was sent.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The link broke between an order and its answer: the order may or may not have been carried out.
    #[error(
        "the link to the server broke before its answer came; look with 'rms queue' and 'rms history' whether it was done"
    )]
    Interrupted(#[source] LinkError),
    /// The server was restored from a backup and does not know the job; a later one has its number now.
    #[error("the server was restored from a backup: it has lost this job {0}, and another job has its number")]
    OtherJob(JobId),
    /// The server's answer does not belong to this call.
    #[error("the server answered something else than was asked")]
    Unexpected,
}

impl From<LinkError> for CallError {
    fn from(error: LinkError) -> CallError {
        match error {
            // Nothing was sent, and trying again would not help.
            LinkError::Encode(error) => {
                CallError::Refused(Refused::new("too_large", format!("the call is too large: {error}")))
            }
            error => CallError::Interrupted(error),
        }
    }
}
