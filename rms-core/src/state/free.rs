//! The free nodes of a cluster, in the order in which they are given out.

use rms_model::NodeId;

use crate::state::node::Node;

/// A set of nodes in which adding or removing a node changes one bit, because that happens often.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreeNodes {
    /// By number of features: plain nodes are taken first, so that special ones stay for jobs that need them.
    by_features: Vec<(usize, IdSet)>,
    n_nodes: usize,
}

impl FreeNodes {
    pub(crate) fn len(&self) -> usize {
        self.n_nodes
    }

    /// Lists plain nodes first, then by id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.by_features.iter().flat_map(|(_, alike)| alike.iter())
    }

    /// Appends up to `n_wanted` of them to `nodes`, starting at index `first_idx`.
    pub(crate) fn take(&self, first_idx: usize, n_wanted: usize, nodes: &mut Vec<NodeId>) {
        let (mut n_before, end) = (first_idx, nodes.len() + n_wanted);
        for (_, alike) in &self.by_features {
            alike.take(&mut n_before, end, nodes);
        }
    }

    pub(super) fn insert(&mut self, node: NodeId, entry: &Node) {
        let n_features = entry.inventory.features.len();
        let place = match self.place(n_features) {
            Ok(place) => place,
            Err(place) => {
                self.by_features.insert(place, (n_features, IdSet::default()));
                place
            }
        };
        self.n_nodes += usize::from(self.by_features[place].1.insert(node));
    }

    pub(super) fn remove(&mut self, node: NodeId, entry: &Node) {
        if let Ok(place) = self.place(entry.inventory.features.len()) {
            self.n_nodes -= usize::from(self.by_features[place].1.remove(node));
        }
    }

    fn place(&self, n_features: usize) -> Result<usize, usize> {
        // Mostly all nodes are alike.
        if self.by_features.first().is_some_and(|(known, _)| *known == n_features) {
            return Ok(0);
        }
        self.by_features.binary_search_by_key(&n_features, |(known, _)| *known)
    }
}

/// Ignores empty sets.
impl PartialEq for FreeNodes {
    fn eq(&self, other: &FreeNodes) -> bool {
        self.n_nodes == other.n_nodes && self.iter().eq(other.iter())
    }
}

impl Eq for FreeNodes {}

/// A set of ids with one bit each: ids are assigned in sequence, so they are dense.
#[derive(Clone, Debug, Default)]
pub struct IdSet {
    words: Vec<u64>,
}

impl IdSet {
    /// Adds a node. Returns whether it was absent.
    pub(crate) fn insert(&mut self, node: NodeId) -> bool {
        let (word_idx, bit) = place(node);
        if word_idx >= self.words.len() {
            self.words.resize(word_idx + 1, 0);
        }
        let is_new = self.words[word_idx] & bit == 0;
        self.words[word_idx] |= bit;
        is_new
    }

    /// Removes a node. Returns whether it was present.
    pub(crate) fn remove(&mut self, node: NodeId) -> bool {
        let (word_idx, bit) = place(node);
        let Some(word) = self.words.get_mut(word_idx) else { return false };
        let was_there = *word & bit != 0;
        *word &= !bit;
        was_there
    }

    pub(crate) fn contains(&self, node: NodeId) -> bool {
        let (word_idx, bit) = place(node);
        self.words.get(word_idx).is_some_and(|word| word & bit != 0)
    }

    /// Returns the first `n_wanted` ids that are not in `others`; fewer if there are no more.
    pub(crate) fn first_without(&self, others: &IdSet, n_wanted: usize) -> Vec<NodeId> {
        let mut nodes = Vec::with_capacity(n_wanted);
        for (word_idx, word) in self.words.iter().enumerate() {
            let mut rest = word & !others.words.get(word_idx).copied().unwrap_or(0);
            while rest != 0 {
                if nodes.len() == n_wanted {
                    return nodes;
                }
                nodes.push(NodeId(word_idx as u32 * u64::BITS + rest.trailing_zeros()));
                rest &= rest - 1;
            }
        }
        nodes
    }

    /// Returns the set of the first `n_wanted` ids; of all, if there are fewer.
    pub(crate) fn first(&self, n_wanted: usize) -> IdSet {
        let mut n_missing = n_wanted;
        let mut first = IdSet::default();
        for word in &self.words {
            if n_missing == 0 {
                break;
            }
            let mut rest = *word;
            while rest.count_ones() as usize > n_missing {
                rest ^= 1 << rest.ilog2();
            }
            n_missing -= rest.count_ones() as usize;
            first.words.push(rest);
        }
        first
    }

    /// Appends nodes after the first `n_before`, which is decremented, until there are `end` nodes.
    fn take(&self, n_before: &mut usize, end: usize, nodes: &mut Vec<NodeId>) {
        for (word_idx, word) in self.words.iter().enumerate() {
            let mut rest = *word;
            if rest.count_ones() as usize <= *n_before {
                *n_before -= rest.count_ones() as usize;
                continue;
            }
            while rest != 0 {
                if nodes.len() == end {
                    return;
                }
                match *n_before {
                    0 => nodes.push(NodeId(word_idx as u32 * u64::BITS + rest.trailing_zeros())),
                    _ => *n_before -= 1,
                }
                rest &= rest - 1;
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = NodeId> + Clone + '_ {
        self.words.iter().enumerate().flat_map(|(word_idx, word)| {
            // Each iteration removes the lowest bit.
            let rests = std::iter::successors(Some(*word), |rest| Some(rest & (rest - 1)));
            let rests = rests.take(word.count_ones() as usize);
            rests.map(move |rest| NodeId(word_idx as u32 * u64::BITS + rest.trailing_zeros()))
        })
    }
}

/// Ignores empty words at the end.
impl PartialEq for IdSet {
    fn eq(&self, other: &IdSet) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for IdSet {}

fn place(node: NodeId) -> (usize, u64) {
    ((node.0 / u64::BITS) as usize, 1 << (node.0 % u64::BITS))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use test_kit::Dice;

    use super::*;

    /// Compares with a set of ids of the standard library.
    #[test]
    fn ids_come_back_in_order_and_each_once() {
        let mut ids = IdSet::default();
        let mut expected = BTreeSet::new();
        let mut dice = Dice::new(1);
        for _ in 0..5000 {
            let state = dice.roll();
            let (node, comes) = (NodeId((state >> 40) as u32 % 300), state >> 63 == 0);
            if comes {
                assert_eq!(ids.insert(node), expected.insert(node));
            } else {
                assert_eq!(ids.remove(node), expected.remove(&node));
            }
            assert!(ids.iter().eq(expected.iter().copied()));
            let (first_idx, n_wanted) = ((state >> 20) as usize % 100, 1 + (state >> 30) as usize % 100);
            let (mut n_before, mut some) = (first_idx, Vec::new());
            ids.take(&mut n_before, n_wanted, &mut some);
            assert!(some.iter().eq(expected.iter().skip(first_idx).take(n_wanted)));
            assert_eq!(n_before, first_idx.saturating_sub(expected.len()));
            let mut others = IdSet::default();
            some.iter().for_each(|node| assert!(ids.contains(*node) && others.insert(*node)));
            let left = expected.iter().copied().filter(|node| !others.contains(*node)).take(n_wanted);
            assert_eq!(ids.first_without(&others, n_wanted), left.collect::<Vec<_>>());
            assert!(ids.first(n_wanted).iter().eq(expected.iter().copied().take(n_wanted)));
        }
        expected.iter().for_each(|node| assert!(ids.remove(*node)));
        assert_eq!(ids.iter().next(), None);
    }
}
