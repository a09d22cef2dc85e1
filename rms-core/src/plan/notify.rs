//! Finds which clusters of a view have changed since it was last sent, and what sending them costs (001, §5.3.1 and
//! B.1).

use rms_model::{ClusterId, Profile, Request, Time, View};

/// Returns the clusters whose profiles differ on `[now, ∞)` (R7): the passing of time alone is no change.
pub fn dirty_clusters(sent: &View, current: &View, now: Time) -> Vec<ClusterId> {
    let empty = Profile::new();
    let clusters: std::collections::BTreeSet<ClusterId> = sent.keys().chain(current.keys()).copied().collect();
    let differs = |cluster: &ClusterId| {
        let before = sent.get(cluster).unwrap_or(&empty).cut_before(now);
        let after = current.get(cluster).unwrap_or(&empty).cut_before(now);
        before != after
    };
    clusters.into_iter().filter(differs).collect()
}

/// Returns the size of a notification. 001, B.1: a changeNotify with n dirty clusters of m_i steps each takes n + 8·Σ
/// m_i bytes (R8).
pub fn change_notify_bytes(view: &View, dirty: &[ClusterId], now: Time) -> u64 {
    let empty = Profile::new();
    dirty.iter().map(|cluster| cluster_bytes(view.get(cluster).unwrap_or(&empty), now)).sum()
}

/// Returns what one dirty cluster adds to that.
pub fn cluster_bytes(occupied: &Profile, now: Time) -> u64 {
    1 + 8 * occupied.pairs_from(now).len() as u64
}

/// Returns the size of a request. 001, B.1: one that names n clusters takes 4 + 5·n bytes (R8).
pub fn request_bytes(request: &Request) -> u64 {
    4 + 5 * request.nodes.values().filter(|nodes| **nodes > 0).count() as u64
}
