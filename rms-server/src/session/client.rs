//! Serves a user's or an admin's link: one call per channel, and a limited number of calls at once.

use std::sync::Arc;

use rms_wire::Link;
use tokio::sync::Semaphore;
use tracing::Instrument;

use super::{SessionError, call};
use crate::registry::Quota;
use crate::shared::Shared;

/// Serves the link until it ends.
pub async fn serve(link: &Link, quota: &Arc<Quota>, shared: &Arc<Shared>) -> Result<(), SessionError> {
    // When all places are taken, further calls wait in the transport, which limits the client's open channels.
    let places = Arc::new(Semaphore::new(shared.limits.calls_per_link));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return Ok(()) };
        let Ok(channel) = link.accept().await else { return Ok(()) };
        let (link, quota, shared) = (link.clone(), Arc::clone(quota), Arc::clone(shared));
        let serve = async move {
            if let Err(error) = call::serve(channel, (link.identity(), link.serial()), &quota, &shared).await {
                tracing::debug!(%error, "a call ended early");
            }
            drop(place);
        };
        tokio::spawn(serve.in_current_span());
    }
}
