//! Which nodes an application leaves when some of them are drained.

use std::collections::BTreeSet;

use rms_api::negotiate::Declared;
use rms_model::NodeId;

/// Returns the nodes of a cluster that an application with `held` nodes is asked to leave, so that it leaves as many of
/// the `named` ones as possible; none if its limits do not allow it. `others` are all its nodes there except node 0,
/// which always stays because it runs the script. Where its sizes do not allow exactly these, the last of its other
/// nodes go with them.
pub fn nodes_to_leave(held: u32, others: &[NodeId], named: &BTreeSet<NodeId>, declared: &Declared) -> Vec<NodeId> {
    let held = held as usize;
    let mut leaving: Vec<NodeId> = others.iter().copied().filter(|node| named.contains(node)).collect();
    if leaving.is_empty() {
        return leaving;
    }
    let floor = u64::from(declared.least.max(1));
    let wanted_total = held.saturating_sub(leaving.len()) as u64;
    // All of them, and no more others than its sizes require; else as many of them as it can spare.
    let greatest = declared.sizes.greatest(wanted_total).filter(|total| *total >= floor);
    let total = greatest.or_else(|| declared.sizes.least(floor.max(wanted_total)));
    let Some(n_leaving) = total.and_then(|total| held.checked_sub(usize::try_from(total).ok()?)) else {
        return Vec::new();
    };
    let last_others = others.iter().rev().copied().filter(|node| !named.contains(node));
    let n_more = n_leaving.saturating_sub(leaving.len());
    leaving.truncate(n_leaving);
    leaving.extend(last_others.take(n_more));
    // There may be too few other nodes here for a usable size.
    if leaving.len() == n_leaving { leaving } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use rms_model::{Sizes, Speedup};

    use super::*;

    fn check(n_nodes: u32, named: &[u32], (least, sizes): (u32, Sizes), expected: &[u32]) {
        let nodes: Vec<NodeId> = (0..n_nodes).map(NodeId).collect();
        let named = named.iter().copied().map(NodeId).collect();
        let declared = Declared { least, most: n_nodes, sizes, speedup: Speedup::default() };
        let expected: Vec<NodeId> = expected.iter().copied().map(NodeId).collect();
        let others = nodes.get(1..).unwrap_or_default();
        assert_eq!(nodes_to_leave(n_nodes, others, &named, &declared), expected);
    }

    #[test]
    fn the_named_nodes_go_and_only_these() {
        check(4, &[2], (1, Sizes::Any), &[2]);
        check(4, &[1, 3, 9], (1, Sizes::Any), &[1, 3]);
    }

    #[test]
    fn node_0_stays() {
        check(4, &[0], (1, Sizes::Any), &[]);
        check(2, &[0, 1], (1, Sizes::Any), &[1]);
        check(0, &[0], (1, Sizes::Any), &[]);
    }

    #[test]
    fn where_sizes_ask_for_it_the_last_others_go_with_them() {
        check(8, &[2], (1, Sizes::PowerOfTwo), &[2, 7, 6, 5]);
    }

    #[test]
    fn below_its_least_it_does_not_go_and_gives_what_it_can() {
        check(4, &[2], (4, Sizes::Any), &[]);
        check(4, &[1, 2, 3], (2, Sizes::Any), &[1, 2]);
        check(8, &[2], (5, Sizes::PowerOfTwo), &[]);
        check(8, &[1, 2, 3, 4, 5], (4, Sizes::PowerOfTwo), &[1, 2, 3, 4]);
    }
}
