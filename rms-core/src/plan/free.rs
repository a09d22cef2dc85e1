//! Nodes to which a running application may grow: free ones, or those with room for as much as it has of others.

use std::collections::{BTreeMap, BTreeSet};

use rms_model::{ClusterId, JobId, NodeId, Packing, Request, Slice};

use super::row;
use crate::state::job::{Job, Started};
use crate::state::node::Node;
use crate::state::{Piece, SharedCluster, State, constraint_of, pieces_to_grow, takes_parts};

/// Returns up to `wanted` nodes of a cluster that an application may use: free ones, plain ones first; of nodes that it
/// shares, the fullest with room, or the emptiest.
pub(crate) fn free_for(state: &State, job: JobId, cluster: ClusterId, wanted: usize) -> Vec<NodeId> {
    let entry = &state.jobs()[&job];
    let Some(started) = entry.started() else { return Vec::new() };
    let reserved: BTreeSet<NodeId> = row::reserved(state, job, started).collect();
    if let Some(shared) = shares(state, entry, cluster) {
        let is_allowed = |node: &NodeId| entry.spec.constraint.allows(&state.nodes()[node].name);
        return with_room(entry, shared, &reserved).into_iter().filter(is_allowed).take(wanted).collect();
    }
    let constraint = constraint_of(&entry.spec, &first_request(started));
    let is_right = |node: &NodeId| state.nodes()[node].meets(&constraint);
    state.free(cluster).filter(is_right).filter(|node| !reserved.contains(node)).take(wanted).collect()
}

/// Returns whether the application may get this node of the cluster, or a part of it.
pub(crate) fn is_free_for(state: &State, job: JobId, cluster: ClusterId, node: NodeId) -> bool {
    let entry = &state.jobs()[&job];
    let Some(started) = entry.started() else { return false };
    let is_here = |known: &Node| known.cluster == cluster;
    state.nodes().get(&node).is_some_and(is_here)
        && has_room_to_grow(state, job, node)
        && row::reserved(state, job, started).all(|reserved| reserved != node)
}

/// As [`is_free_for`], without regard to promises to others.
pub(crate) fn has_room_to_grow(state: &State, job: JobId, node: NodeId) -> bool {
    let entry = &state.jobs()[&job];
    let (Some(started), Some(known)) = (entry.started(), state.nodes().get(&node)) else { return false };
    match shares(state, entry, known.cluster) {
        Some(shared) => entry.spec.constraint.allows(&known.name) && piece_to_grow(entry, shared, node).is_some(),
        None => known.is_free() && known.meets(&constraint_of(&entry.spec, &first_request(started))),
    }
}

/// Returns what the application would take of these nodes, if it shares them.
pub(crate) fn slices_to_grow(state: &State, job: JobId, nodes: &[NodeId]) -> BTreeMap<NodeId, Slice> {
    let entry = &state.jobs()[&job];
    let slice = |node: &NodeId| {
        let shared = shares(state, entry, state.nodes().get(node)?.cluster)?;
        let piece = piece_to_grow(entry, shared, *node).filter(|piece| !piece.is_whole)?;
        Some((*node, piece.slice))
    };
    nodes.iter().filter_map(slice).collect()
}

/// Returns a request of the size that it began with, which determines what it takes of each node.
fn first_request(started: &Started) -> Request {
    let cluster = started.request.nodes.keys().next().copied().unwrap_or_default();
    Request::on_one(cluster, started.began_with(), started.request.wall)
}

/// Returns the cluster, if the application takes parts of its nodes.
fn shares<'a>(state: &'a State, entry: &Job, cluster: ClusterId) -> Option<&'a SharedCluster> {
    state.shared().get(cluster).filter(|_| takes_parts(entry))
}

/// Returns what the application would take of this node; `None` if there is no room now, or it already has a part of
/// it.
fn piece_to_grow(entry: &Job, shared: &SharedCluster, node: NodeId) -> Option<Piece> {
    let (_, line) = &shared.lines()[shared.line_idx(node).ok()?];
    let is_open = line.is_open && line.ghost.is_none() && entry.held().all(|held| held != node);
    let mut pieces = pieces_to_grow(entry, &shared.kinds()[line.kind]).into_iter().filter(|_| is_open);
    pieces.find(|piece| line.room.holds(piece))
}

/// Returns the nodes with room, in the order in which a pass takes them.
fn with_room(entry: &Job, shared: &SharedCluster, reserved: &BTreeSet<NodeId>) -> Vec<NodeId> {
    let held: BTreeSet<NodeId> = entry.held().collect();
    let pieces: Vec<Vec<Piece>> = shared.kinds().iter().map(|kind| pieces_to_grow(entry, kind)).collect();
    let sign = if entry.spec.resources.packing == Packing::Pack { 1 } else { -1 };
    let open = shared.lines().iter().filter(|(node, line)| {
        line.is_open && line.ghost.is_none() && !held.contains(node) && !reserved.contains(node)
    });
    let ranked = open.filter_map(|(node, line)| {
        let piece = pieces[line.kind].iter().find(|piece| line.room.holds(piece))?;
        let kind = &shared.kinds()[line.kind];
        let n_spare_devices = kind.devices.iter().count() - piece.slice.devices.iter().count();
        Some((kind.features.len(), n_spare_devices, sign * line.room.cores, *node))
    });
    let mut ranked: Vec<(usize, usize, i64, NodeId)> = ranked.collect();
    ranked.sort_unstable();
    ranked.into_iter().map(|(.., node)| node).collect()
}
