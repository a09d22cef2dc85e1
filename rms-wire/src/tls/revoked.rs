//! The serials of revoked certificates, shared by all checks.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::watch;

/// A shared set of serials in lower-case hexadecimal. Handshakes consult it, and existing links end when the serial of
/// their peer is added.
#[derive(Clone, Debug, Default)]
pub struct Revoked(Arc<watch::Sender<BTreeSet<String>>>);

impl Revoked {
    pub fn new() -> Revoked {
        Revoked::default()
    }

    pub fn contains(&self, serial: &str) -> bool {
        self.0.borrow().contains(serial)
    }

    pub fn insert(&self, serial: &str) {
        self.0.send_if_modified(|serials| serials.insert(serial.to_owned()));
    }

    /// Replaces the whole set.
    pub fn replace(&self, serials: impl IntoIterator<Item = String>) {
        self.0.send_replace(serials.into_iter().collect());
    }

    /// Waits until the set contains this serial; returns at once if it does, and never if nobody is left to add it.
    pub async fn until_it_has(self, serial: &str) {
        let mut changes = self.0.subscribe();
        // Waiting must not keep the set alive.
        drop(self);
        let found = changes.wait_for(|serials| serials.contains(serial)).await.is_ok();
        if !found {
            std::future::pending::<()>().await;
        }
    }
}
