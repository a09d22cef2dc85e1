//! How many more nodes the applications of one user may get beyond those that they started with.

/// Returns what is left of a user's limit. `jobs` are pairs of the nodes that a job holds and the nodes it started
/// with. What one job gave back below its start does not add to another's limit.
pub fn may_gain(limit: Option<u32>, jobs: impl IntoIterator<Item = (u32, u32)>) -> Option<u32> {
    let limit = u64::from(limit?);
    let gained = |(held, started_with): (u32, u32)| u64::from(held.saturating_sub(started_with));
    let sum = jobs.into_iter().map(gained).fold(0, u64::saturating_add);
    Some(u32::try_from(limit.saturating_sub(sum)).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gains_of_all_jobs_count_together() {
        assert_eq!(may_gain(None, [(100, 1)]), None);
        assert_eq!(may_gain(Some(5), []), Some(5));
        assert_eq!(may_gain(Some(5), [(4, 2), (1, 3), (3, 2)]), Some(2));
        assert_eq!(may_gain(Some(5), [(u32::MAX, 0), (u32::MAX, 0)]), Some(0));
    }
}
