//! Accepts new links, and starts a session for each.

use std::sync::Arc;

use rms_wire::{Accepted, Endpoint};

use crate::session;
use crate::shared::Shared;

/// Runs until the endpoint is closed. Handshakes are bounded by the endpoint, live links by the registry.
pub async fn listen(endpoint: Endpoint, shared: Arc<Shared>) {
    while let Some(accepted) = endpoint.accept().await {
        let shared = Arc::clone(&shared);
        match accepted {
            Accepted::Link(link) => drop(tokio::spawn(session::serve(link, shared))),
            Accepted::Join(joining) => drop(tokio::spawn(session::join(*joining, shared))),
        }
    }
}
