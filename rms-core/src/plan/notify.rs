//! The sizes of notifications and requests, as 001, B.1 counts them.

use rms_model::{Profile, Request, Time};

/// Returns what one cluster of `m` steps that has changed adds to a notification: 1 + 8·m bytes (R8).
pub fn cluster_bytes(occupied: &Profile, now: Time) -> u64 {
    1 + 8 * occupied.pairs_from(now).len() as u64
}

/// Returns the size of a request. 001, B.1: one that names n clusters takes 4 + 5·n bytes (R8).
pub fn request_bytes(request: &Request) -> u64 {
    4 + 5 * request.nodes.values().filter(|nodes| **nodes > 0).count() as u64
}
