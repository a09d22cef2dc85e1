//! The nodes by their ids, with lookups that need no search, because nodes are accessed often.

use std::collections::BTreeMap;
use std::iter::Map;
use std::ops::Index;
use std::slice;

use rms_model::NodeId;
use serde::{Deserialize, Serialize, Serializer};

use crate::state::node::Node;

/// A map in a sorted vector. Ids are assigned in sequence and nodes are seldom removed, so the offset of a node from
/// the first one is mostly the difference of their ids, and never more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "BTreeMap<NodeId, Node>")]
pub struct Nodes {
    entries: Vec<(NodeId, Node)>,
}

/// Nodes with their ids, in the order of ids.
pub type Entries<'a> = Map<slice::Iter<'a, (NodeId, Node)>, fn(&'a (NodeId, Node)) -> (&'a NodeId, &'a Node)>;

impl Nodes {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn contains_key(&self, node: &NodeId) -> bool {
        self.place(*node).is_ok()
    }

    pub fn get(&self, node: &NodeId) -> Option<&Node> {
        self.place(*node).ok().map(|idx| &self.entries[idx].1)
    }

    /// Iterates in the order of ids.
    pub fn iter(&self) -> Entries<'_> {
        self.entries.iter().map(|(node, entry)| (node, entry))
    }

    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &NodeId> + Clone {
        self.entries.iter().map(|(node, _)| node)
    }

    pub fn values(&self) -> impl DoubleEndedIterator<Item = &Node> + Clone {
        self.entries.iter().map(|(_, entry)| entry)
    }

    pub(super) fn get_mut(&mut self, node: &NodeId) -> Option<&mut Node> {
        self.place(*node).ok().map(|idx| &mut self.entries[idx].1)
    }

    pub(super) fn insert(&mut self, node: NodeId, entry: Node) {
        match self.place(node) {
            Ok(idx) => self.entries[idx].1 = entry,
            Err(idx) => self.entries.insert(idx, (node, entry)),
        }
    }

    pub(super) fn remove(&mut self, node: &NodeId) -> Option<Node> {
        self.place(*node).ok().map(|idx| self.entries.remove(idx).1)
    }

    /// Returns the index of a node, or where it would be.
    fn place(&self, node: NodeId) -> Result<usize, usize> {
        let Some((first, _)) = self.entries.first() else { return Err(0) };
        let farthest = node.0.saturating_sub(first.0) as usize;
        match self.entries.get(farthest) {
            Some((found, _)) if *found == node => Ok(farthest),
            Some(_) | None => self.entries.binary_search_by_key(&node, |(known, _)| *known),
        }
    }
}

impl Index<&NodeId> for Nodes {
    type Output = Node;

    fn index(&self, node: &NodeId) -> &Node {
        self.get(node).expect("the caller knows that the node is there")
    }
}

impl<'a> IntoIterator for &'a Nodes {
    type Item = (&'a NodeId, &'a Node);
    type IntoIter = Entries<'a>;

    fn into_iter(self) -> Entries<'a> {
        self.iter()
    }
}

impl From<BTreeMap<NodeId, Node>> for Nodes {
    fn from(entries: BTreeMap<NodeId, Node>) -> Nodes {
        Nodes { entries: entries.into_iter().collect() }
    }
}

impl Serialize for Nodes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self)
    }
}

#[cfg(test)]
mod tests {
    use rms_model::{ClusterId, Generation, Inventory, NodeAdmin, NodeLink, Time};

    use super::*;

    fn node(name: &str) -> Node {
        Node {
            name: name.to_owned(),
            cluster: ClusterId(1),
            inventory: Inventory::default(),
            address: String::new(),
            admin: NodeAdmin::Enabled,
            link: NodeLink::Away { since: Time::EPOCH },
            generation: Generation(1),
            holders: Default::default(),
            stale: Vec::new(),
            ghost: None,
        }
    }

    #[test]
    fn nodes_are_found_though_others_were_removed() {
        let mut nodes = Nodes::default();
        (3..=9).for_each(|id| nodes.insert(NodeId(id), node(&id.to_string())));
        let removed = [3, 6, 7];
        removed.iter().for_each(|id| assert!(nodes.remove(&NodeId(*id)).is_some()));
        for id in 0..12 {
            let is_there = (3..=9).contains(&id) && !removed.contains(&id);
            assert_eq!(nodes.get(&NodeId(id)).map(|node| node.name.clone()), is_there.then(|| id.to_string()));
        }
        nodes.insert(NodeId(6), node("again"));
        assert_eq!(nodes.keys().map(|node| node.0).collect::<Vec<_>>(), [4, 5, 6, 8, 9]);
    }
}
