//! Free nodes that a running application may use.

use std::collections::BTreeSet;

use rms_model::{ClusterId, JobId, NodeId};

use super::ledger::meets;
use super::row;
use crate::state::node::Node;
use crate::state::{State, constraint_of};

/// Free nodes of a cluster that an application may use, plain ones first.
pub(crate) fn free_for(state: &State, job: JobId, cluster: ClusterId, wanted: usize) -> Vec<NodeId> {
    let entry = &state.jobs()[&job];
    let Some(started) = entry.started() else { return Vec::new() };
    let constraint = constraint_of(&entry.spec, &started.request);
    let is_right = |node: &NodeId| meets(&state.nodes()[node].inventory, &constraint);
    let reserved: BTreeSet<NodeId> = row::reserved(state, job, started).collect();
    state.free(cluster).filter(is_right).filter(|node| !reserved.contains(node)).take(wanted).collect()
}

/// Is this node of the cluster free, and may the application use it?
pub(crate) fn is_free_for(state: &State, job: JobId, cluster: ClusterId, node: NodeId) -> bool {
    let entry = &state.jobs()[&job];
    let Some(started) = entry.started() else { return false };
    let constraint = constraint_of(&entry.spec, &started.request);
    let is_right = |node: &Node| node.cluster == cluster && node.is_free() && meets(&node.inventory, &constraint);
    state.nodes().get(&node).is_some_and(is_right)
        && row::reserved(state, job, started).all(|reserved| reserved != node)
}
