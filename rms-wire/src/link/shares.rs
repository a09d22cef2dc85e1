//! Limits what one identity may use of an endpoint, over all of its links.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rms_model::{Identity, Role};
use tokio::sync::Semaphore;

use super::channel::Budget;
use super::tuning::{Allowance, Tuning};

/// The number of links of each identity, and what they share. Clones share the table.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares(Arc<Mutex<HashMap<Identity, Share>>>);

#[derive(Debug)]
struct Share {
    n_links: usize,
    large_frames: Budget,
}

/// One link's entry in the table; it is removed on drop.
#[derive(Debug)]
pub(super) struct Sharing {
    shares: Shares,
    tuning: Tuning,
    who: Identity,
    /// The number of links of the identity, including this one.
    n_links: usize,
    /// The memory for large frames, which all links of the identity share.
    pub large_frames: Budget,
}

impl Shares {
    pub fn take(&self, who: &Identity, tuning: &Tuning) -> Sharing {
        let mut table = self.table();
        let new = || Share { n_links: 0, large_frames: large_frames(who.role) };
        let share = table.entry(who.clone()).or_insert_with(new);
        share.n_links += 1;
        let (n_links, large_frames) = (share.n_links, share.large_frames.clone());
        Sharing { shares: self.clone(), tuning: tuning.clone(), who: who.clone(), n_links, large_frames }
    }

    pub fn n_links(&self) -> usize {
        self.table().values().map(|share| share.n_links).sum()
    }

    fn table(&self) -> MutexGuard<'_, HashMap<Identity, Share>> {
        // No change of the table can panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sharing {
    /// Counts the link for another identity.
    pub fn count_for(&mut self, who: &Identity) {
        *self = self.shares.take(who, &self.tuning);
    }

    pub fn allowance(&self) -> Allowance {
        self.tuning.allowance(&self.who, self.n_links)
    }
}

impl Drop for Sharing {
    fn drop(&mut self) {
        let mut table = self.shares.table();
        if let Some(share) = table.get_mut(&self.who) {
            share.n_links -= 1;
            if share.n_links == 0 {
                table.remove(&self.who);
            }
        }
    }
}

/// Returns the memory for large frames of a peer with this role.
pub(super) fn large_frames(role: Role) -> Budget {
    let most = Tuning::large_frames_kib(role);
    Budget { kib: Arc::new(Semaphore::new(most as usize)), most, patience: None }
}
