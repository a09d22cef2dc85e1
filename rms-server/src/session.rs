//! One link from its beginning to its end.

mod agent;
mod ask;
mod call;
mod client;
mod follow;
mod job;
mod join;
mod launcher;
mod negotiator;
mod pull;
mod watch;

use std::sync::Arc;

use rms_model::Role;
use rms_wire::{Link, LinkError};
use thiserror::Error;
use tracing::Instrument;

pub use self::join::join;
use crate::inbox::Stopping;
use crate::shared::Shared;

/// Why a session or one of its channels has ended early.
#[derive(Debug, Error)]
enum SessionError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Stopping(#[from] Stopping),
    /// The peer sent something well-formed at the wrong time.
    #[error("the peer broke the rules: {0}")]
    Violation(&'static str),
}

/// Serves a peer until its link ends.
pub async fn serve(link: Link, shared: Arc<Shared>) {
    let span = tracing::info_span!("link", peer = %link.identity(), remote = %link.remote());
    async {
        let place = match shared.registry.admit(&link) {
            Ok(place) => place,
            Err(refused) => {
                tracing::warn!("{refused}");
                return link.close(&refused.to_string());
            }
        };
        tracing::debug!("up");
        let served = match link.identity().role {
            Role::Agent => agent::serve(&link, place.link(), &shared).await,
            Role::User | Role::Admin => client::serve(&link, place.allotment(), &shared).await,
            Role::Job => job::serve(&link, place.allotment(), &shared).await,
            // There is one server, and it is here.
            Role::Server => Err(SessionError::Violation("a server has nothing to say here")),
        };
        match served {
            Ok(()) => tracing::debug!("down"),
            Err(error) => {
                tracing::info!(%error, "down");
                link.close(&error.to_string());
            }
        }
    }
    .instrument(span)
    .await;
}
