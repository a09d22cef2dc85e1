//! The order of the nodes of a cluster in which neighbours follow one another: the natural order of their names.

use std::collections::BTreeMap;

use rms_model::{ClusterId, NodeId, natural};

use super::Nodes;
use crate::state::node::Node;

/// All nodes of each cluster, usable or not. It changes only when a node joins or is removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Neighbours {
    by_cluster: BTreeMap<ClusterId, Vec<NodeId>>,
}

impl Neighbours {
    pub(super) fn derived(nodes: &Nodes) -> Neighbours {
        let mut neighbours = Neighbours::default();
        for (node, entry) in nodes {
            neighbours.by_cluster.entry(entry.cluster).or_default().push(*node);
        }
        for in_order in neighbours.by_cluster.values_mut() {
            in_order.sort_by(|one, other| natural::compare(&nodes[one].name, &nodes[other].name));
        }
        neighbours
    }

    /// Inserts a node; the other nodes are known.
    pub(super) fn insert(&mut self, node: NodeId, entry: &Node, others: &Nodes) {
        let at = self.position(entry, others);
        self.by_cluster.entry(entry.cluster).or_default().insert(at, node);
    }

    pub(super) fn remove(&mut self, node: NodeId, entry: &Node) {
        if let Some(in_order) = self.by_cluster.get_mut(&entry.cluster) {
            in_order.retain(|other| *other != node);
            if in_order.is_empty() {
                self.by_cluster.remove(&entry.cluster);
            }
        }
    }

    /// Returns the position of a node among those of its cluster.
    pub(super) fn position(&self, node: &Node, nodes: &Nodes) -> usize {
        let is_before = |other: &NodeId| natural::compare(&nodes[other].name, &node.name).is_lt();
        self.of(node.cluster).partition_point(is_before)
    }

    pub(crate) fn of(&self, cluster: ClusterId) -> &[NodeId] {
        self.by_cluster.get(&cluster).map_or(&[], Vec::as_slice)
    }
}

/// Returns the length of the longest run of neighbours for which `holds` is true.
pub(crate) fn longest_run(in_order: &[NodeId], holds: impl Fn(NodeId) -> bool) -> u32 {
    let (mut run, mut longest) = (0, 0);
    for node in in_order {
        run = if holds(*node) { run + 1 } else { 0 };
        longest = run.max(longest);
    }
    longest
}
