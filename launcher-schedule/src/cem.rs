//! Applications that run on several clusters at once and select their nodes themselves (001, §5.2.3 and appendix A.3).

use std::collections::{BTreeMap, BTreeSet};

use rms_model::{ClusterId, Request, Span, Time};

use super::{Proposal, Sight, wall_of};

/// Nodes by cluster; clusters without nodes may be left out.
pub type NodeCounts = BTreeMap<ClusterId, u32>;

/// What an application selects of the available nodes, and how long it runs on them (001: f′).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// At most as many on each cluster as are available.
    pub nodes: NodeCounts,
    /// How long the application runs on them.
    pub wall: Span,
}

/// Returns the selection that completes first (001, Algorithm 2). `select` gets the nodes available on each cluster;
/// `None` from it means that it cannot use those. It may be slow: it is called a few times for each change-point of the
/// view, and never for change-points that cannot be better.
///
/// At each change-point the available nodes of *all* clusters are read again. As printed, only those of the cluster
/// that changes are read, so values that a failed attempt has lowered stay low, and better requests are missed.
pub fn propose(
    sight: &Sight<'_>,
    now: Time,
    mut select: impl FnMut(&NodeCounts) -> Option<Selection>,
) -> Option<Proposal> {
    let mut best: Option<Proposal> = None;
    let mut visited = None;
    for (start, _) in sight.change_points(now) {
        if best.as_ref().is_some_and(|best| best.completion() < start) {
            break;
        }
        // All clusters were read, so another cluster that changes at this time gives nothing new.
        if visited.replace(start) == Some(start) {
            continue;
        }
        let mut available: NodeCounts =
            sight.clusters.iter().map(|(cluster, seen)| (*cluster, seen.free_at(start))).collect();
        while available.values().any(|n_nodes| *n_nodes > 0) {
            let Some(Selection { nodes, wall }) = select(&available) else { break };
            let nodes: NodeCounts = nodes.into_iter().filter(|(_, n_nodes)| *n_nodes > 0).collect();
            let missing = missing(sight, &nodes, start, wall);
            if missing.is_empty() && !nodes.is_empty() {
                if best.as_ref().is_none_or(|best| start + wall < best.completion()) {
                    best = Some(Proposal::of_nodes(Request { nodes, wall }, start));
                }
                break;
            }
            // A selection beyond the available nodes would lead to an endless loop.
            let lowers = missing.iter().any(|(cluster, n_free)| available.get(cluster).is_some_and(|n| n_free < n));
            if !lowers {
                break;
            }
            available.extend(missing.into_iter().filter(|(cluster, _)| sight.clusters.contains_key(cluster)));
        }
    }
    best
}

/// Returns the clusters on which the selected nodes are not free for `wall`, with the number of nodes that are.
fn missing(sight: &Sight<'_>, nodes: &NodeCounts, start: Time, wall: Span) -> NodeCounts {
    let n_free = |(cluster, n_nodes): (&ClusterId, &u32)| {
        let n_free = sight.free(*cluster, start, wall);
        (n_free < *n_nodes).then_some((*cluster, n_free))
    };
    nodes.iter().filter_map(n_free).collect()
}

/// An iterative application that divides its work among clusters by their speed and loses some time for each further
/// cluster: a selection function for [`propose`].
#[derive(Clone, Debug)]
pub struct FastestFirst {
    /// The time that one node of speed 1 takes.
    pub work: Span,
    /// Thousandths of speed 1. Clusters that are not listed are not used.
    pub speed_milli: BTreeMap<ClusterId, u32>,
    /// The cost of each cluster after the first.
    pub latency: Span,
}

impl FastestFirst {
    /// Returns all available nodes of the fastest clusters, of as many clusters as take the least time; among equals
    /// the fewest clusters.
    pub fn select(&self, available: &NodeCounts) -> Option<Selection> {
        let power = |cluster: &ClusterId, n_nodes: u32| {
            u128::from(self.speed_milli.get(cluster).copied().unwrap_or(0)) * u128::from(n_nodes)
        };
        let usable = available.iter().map(|(cluster, n_nodes)| (power(cluster, *n_nodes), *cluster, *n_nodes));
        let fastest: BTreeSet<_> = usable
            .filter(|(power, _, _)| *power > 0)
            .map(|(power, cluster, n_nodes)| (std::cmp::Reverse(power), cluster, n_nodes))
            .collect();
        let mut best: Option<Selection> = None;
        let mut sum = 0;
        let mut latency = Span::ZERO;
        let mut nodes = NodeCounts::new();
        for (std::cmp::Reverse(power), cluster, n_nodes) in fastest {
            sum += power;
            nodes.insert(cluster, n_nodes);
            let wall = wall_of(self.work.as_millis().max(0) as u128 * 1000, sum) + latency;
            if best.as_ref().is_none_or(|best| wall < best.wall) {
                best = Some(Selection { nodes: nodes.clone(), wall });
            }
            latency = latency + self.latency;
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rms_model::Profile;

    fn secs(secs: i64) -> Span {
        Span::from_secs(secs)
    }

    /// Returns a view of cluster 0 with 5 nodes and cluster 1 with one.
    fn view() -> BTreeMap<ClusterId, Profile> {
        let pairs = |pairs: &[(i64, i64)]| pairs.iter().map(|(span, nodes)| (secs(*span), *nodes)).collect::<Vec<_>>();
        BTreeMap::from([
            (ClusterId(0), Profile::from_pairs(Time::EPOCH, pairs(&[(6, 3), (6, 1), (3, 5)]))),
            (ClusterId(1), Profile::from_pairs(Time::EPOCH, pairs(&[(2, 1)]))),
        ])
    }

    #[test]
    fn values_that_an_attempt_has_lowered_are_read_again() {
        let nodes = NodeCounts::from([(ClusterId(0), 5), (ClusterId(1), 1)]);
        let view = view();
        let sight = Sight::new(&nodes, &view);
        let speed_milli = BTreeMap::from([(ClusterId(0), 1000), (ClusterId(1), 1000)]);
        let application = FastestFirst { work: secs(30), speed_milli, latency: Span::ZERO };
        let proposal = propose(&sight, Time::EPOCH, |nodes| application.select(nodes)).expect("it fits");
        assert_eq!(proposal.request.nodes, NodeCounts::from([(ClusterId(0), 2), (ClusterId(1), 1)]));
        assert_eq!((proposal.start, proposal.completion()), (Time::from_secs(2), Time::from_secs(12)));
    }

    #[test]
    fn a_selection_that_makes_no_sense_ends() {
        let nodes = NodeCounts::from([(ClusterId(0), 5)]);
        let view = view();
        let sight = Sight::new(&nodes, &view);
        let stubborn =
            |_: &NodeCounts| Some(Selection { nodes: NodeCounts::from([(ClusterId(0), 99)]), wall: secs(1) });
        assert_eq!(propose(&sight, Time::EPOCH, stubborn), None);
        let foreign = |_: &NodeCounts| Some(Selection { nodes: NodeCounts::from([(ClusterId(7), 1)]), wall: secs(1) });
        assert_eq!(propose(&sight, Time::EPOCH, foreign), None);
        let nothing = |_: &NodeCounts| Some(Selection { nodes: NodeCounts::new(), wall: secs(1) });
        assert_eq!(propose(&sight, Time::EPOCH, nothing), None);
        assert_eq!(propose(&sight, Time::EPOCH, |_| None), None);
    }

    #[test]
    fn a_further_cluster_must_be_worth_its_latency() {
        let available = NodeCounts::from([(ClusterId(0), 4), (ClusterId(1), 2), (ClusterId(2), 3)]);
        let speed_milli = BTreeMap::from([(ClusterId(0), 1000), (ClusterId(1), 2500)]);
        let select = |latency| {
            let application = FastestFirst { work: secs(90), speed_milli: speed_milli.clone(), latency: secs(latency) };
            application.select(&available).expect("there are nodes")
        };
        let both = NodeCounts::from([(ClusterId(0), 4), (ClusterId(1), 2)]);
        assert_eq!(select(0), Selection { nodes: both.clone(), wall: secs(10) });
        assert_eq!(select(7), Selection { nodes: both, wall: secs(17) });
        assert_eq!(select(8), Selection { nodes: NodeCounts::from([(ClusterId(1), 2)]), wall: secs(18) });
    }
}
