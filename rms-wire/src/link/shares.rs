//! What one identity may take of an endpoint, over all of its links.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rms_model::Identity;
use tokio::sync::Semaphore;

use super::tuning::Tuning;

/// Who has how many links, and what they share. Clones are the same table.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares(Arc<Mutex<HashMap<Identity, Share>>>);

#[derive(Debug)]
struct Share {
    n_links: usize,
    large_frames: Arc<Semaphore>,
}

/// One link in the table; it is taken out on drop.
#[derive(Debug)]
pub(super) struct Sharing {
    shares: Shares,
    who: Identity,
    /// How many links the identity has with this one.
    pub n_links: usize,
    /// The right to hold frames over the small ones, in KiB, that all links of the identity share.
    pub large_frames: Arc<Semaphore>,
}

impl Shares {
    pub fn take(&self, who: &Identity) -> Sharing {
        let mut table = self.table();
        let share = table.entry(who.clone()).or_insert_with(|| Share { n_links: 0, large_frames: large_frames() });
        share.n_links += 1;
        let (n_links, large_frames) = (share.n_links, Arc::clone(&share.large_frames));
        Sharing { shares: self.clone(), who: who.clone(), n_links, large_frames }
    }

    pub fn n_links(&self) -> usize {
        self.table().values().map(|share| share.n_links).sum()
    }

    fn table(&self) -> MutexGuard<'_, HashMap<Identity, Share>> {
        // No change of it can panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

pub(super) fn large_frames() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(Tuning::LARGE_FRAMES_KIB as usize))
}
