//! The serials of certificates that are not accepted any more, shared by all who check.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

/// A shared set of serials in lower-case hexadecimal. Handshakes consult it; links that are already up
/// are closed by whoever revokes.
#[derive(Clone, Debug, Default)]
pub struct Revoked(Arc<RwLock<BTreeSet<String>>>);

impl Revoked {
    pub fn new() -> Revoked {
        Revoked::default()
    }

    pub fn contains(&self, serial: &str) -> bool {
        // The set is whole even if a holder of the lock panicked: every change is one call.
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(serial)
    }

    pub fn insert(&self, serial: &str) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(serial.to_owned());
    }

    /// Forgets what was there before.
    pub fn replace(&self, serials: impl IntoIterator<Item = String>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = serials.into_iter().collect();
    }
}
