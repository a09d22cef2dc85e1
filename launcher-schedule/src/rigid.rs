//! Applications that run on one number of nodes (001, §5.2.2).

use std::collections::BTreeMap;

use rms_model::{ClusterId, Request, Span, Time};

use super::{Proposal, Sight};

/// Returns the cluster on which `n_nodes` nodes complete first. `walls` has the wall time for each cluster that can be
/// used. `None` if all of them are too small.
pub fn propose(sight: &Sight<'_>, now: Time, n_nodes: u32, walls: &BTreeMap<ClusterId, Span>) -> Option<Proposal> {
    let on_cluster = |(cluster, wall): (&ClusterId, &Span)| {
        let start = sight.first_hole(*cluster, n_nodes, *wall, now)?;
        Some(Proposal::of_nodes(Request::on_one(*cluster, n_nodes, *wall), start))
    };
    let proposals = walls.iter().filter_map(on_cluster);
    // The first of equals is kept, and clusters come in ascending order.
    proposals.min_by_key(|proposal| (proposal.completion(), proposal.start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rms_model::Profile;

    #[test]
    fn the_cluster_that_completes_first_is_taken() {
        let (fast, slow) = (ClusterId(2), ClusterId(1));
        let secs = Span::from_secs;
        let now = Time::from_secs(100);
        let nodes = BTreeMap::from([(slow, 8), (fast, 4)]);
        let walls = BTreeMap::from([(slow, secs(20)), (fast, secs(10))]);
        let check = |busy: i64, expected: (ClusterId, i64)| {
            let view = BTreeMap::from([(fast, Profile::from_pairs(now, [(secs(busy), 3)]))]);
            let sight = Sight::new(&nodes, &view);
            let proposal = propose(&sight, now, 2, &walls).expect("it fits");
            assert_eq!((*proposal.request.nodes.keys().next().expect("one"), proposal.start.as_secs()), expected);
        };
        check(0, (fast, 100));
        check(9, (fast, 109));
        check(10, (slow, 100));
        assert_eq!(propose(&Sight::new(&nodes, &BTreeMap::new()), now, 9, &walls), None);
    }
}
