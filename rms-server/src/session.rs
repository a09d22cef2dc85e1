//! Serves one link from its start to its end.

mod agent;
mod ask;
mod call;
mod client;
mod follow;
mod job;
mod join;
mod launcher;
mod masks;
mod negotiator;
mod pull;
mod watch;

use std::sync::Arc;

use rms_api::Refused;
use rms_model::{Identity, Role};
use rms_wire::codec::DecodeError;
use rms_wire::{Link, LinkError};
use serde::Deserialize;
use thiserror::Error;
use tracing::Instrument;

pub use self::join::join;
use crate::inbox::{Inbound, Stopping};
use crate::shared::Shared;

/// Why a session or one of its channels has ended early.
#[derive(Debug, Error)]
enum SessionError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Stopping(#[from] Stopping),
    /// The peer sent something well-formed at the wrong time.
    #[error("protocol violation by the peer: {0}")]
    Violation(&'static str),
}

/// Returns whose quota a link uses: its peer's; but all jobs of one owner share one quota, which is separate from that
/// of the owner's commands, so that jobs take nothing from commands. Jobs that are over share a quota, too.
async fn quota_owner(who: &Identity, shared: &Shared) -> Identity {
    let Some((job, _)) = who.as_job() else { return who.clone() };
    let found = shared.inbox.watch(vec![job]).await;
    let owner = found.ok().and_then(|(found, _)| found.into_iter().next()).map(|found| found.owner.0);
    Identity { role: Role::Job, name: owner.unwrap_or_default() }
}

/// The number of a call that cannot be parsed otherwise.
#[derive(Deserialize)]
struct CallNumber {
    seq: u64,
}

/// Returns the answer to a call that cannot be parsed: more often a mistake or a newer program than an attack.
fn unparsed_call(error: &DecodeError) -> Refused {
    let version = env!("CARGO_PKG_VERSION");
    let why = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    Refused::new("malformed", format_args!("the server (version {version}) cannot parse this call: {why}"))
}

/// Serves a peer until its link ends.
pub async fn serve(link: Link, shared: Arc<Shared>) {
    let span = tracing::info_span!("link", peer = %link.identity(), remote = %link.remote());
    async {
        let quota_owner = quota_owner(link.identity(), &shared).await;
        link.count_for(&quota_owner);
        let place = match shared.registry.admit(&link, &quota_owner) {
            Ok(place) => place,
            Err(refused) => {
                tracing::warn!("{refused}");
                return link.close(&refused.to_string());
            }
        };
        tracing::debug!("up");
        if shared.registry.note_use(link.serial()) {
            // If the server is stopping, the next use is reported.
            let _ = shared.inbox.put(Inbound::CertificateUsed { serial: link.serial().to_owned() }).await;
        }
        let served = match link.identity().role {
            Role::Agent => agent::serve(&link, place.link(), &shared).await,
            Role::User | Role::Admin => client::serve(&link, place.quota(), &shared).await,
            Role::Job => job::serve(&link, place.quota(), &shared).await,
            // A deployment has one server, which is this one.
            Role::Server => Err(SessionError::Violation("a server does not connect to a server")),
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
