//! A job's parts on its nodes.

use std::collections::BTreeMap;

use rms_model::NodeId;
use serde::{Deserialize, Serialize, Serializer};

use super::Share;

/// A map in a sorted vector: most jobs get all of their nodes at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "BTreeMap<NodeId, Share>")]
pub struct Shares(Vec<(NodeId, Share)>);

impl Shares {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, node: &NodeId) -> Option<&Share> {
        self.place(*node).ok().map(|idx| &self.0[idx].1)
    }

    /// Iterates in the order of the nodes' ids.
    pub fn iter(&self) -> impl Iterator<Item = (&NodeId, &Share)> {
        self.0.iter().map(|(node, share)| (node, share))
    }

    pub fn values(&self) -> impl Iterator<Item = &Share> {
        self.0.iter().map(|(_, share)| share)
    }

    pub(crate) fn insert(&mut self, node: NodeId, share: Share) {
        match self.place(node) {
            Ok(idx) => self.0[idx].1 = share,
            Err(idx) => self.0.insert(idx, (node, share)),
        }
    }

    pub(crate) fn remove(&mut self, node: &NodeId) {
        if let Ok(idx) = self.place(*node) {
            self.0.remove(idx);
        }
    }

    fn place(&self, node: NodeId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&node, |(known, _)| *known)
    }
}

/// Keeps only the last part of each node.
impl FromIterator<(NodeId, Share)> for Shares {
    fn from_iter<I: IntoIterator<Item = (NodeId, Share)>>(shares: I) -> Shares {
        let mut shares = Shares(shares.into_iter().collect());
        let is_in_order = shares.0.windows(2).all(|two| two[0].0 < two[1].0);
        if !is_in_order {
            shares = shares.0.into_iter().collect::<BTreeMap<_, _>>().into();
        }
        shares
    }
}

impl From<BTreeMap<NodeId, Share>> for Shares {
    fn from(shares: BTreeMap<NodeId, Share>) -> Shares {
        Shares(shares.into_iter().collect())
    }
}

impl Serialize for Shares {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use rms_model::Time;

    use super::*;

    #[test]
    fn shares_are_in_the_order_of_ids_however_they_came() {
        let running = Share::Running { since: Time::EPOCH };
        let told = [(7, Share::Ordered), (2, Share::Ordered), (7, running)];
        let mut shares: Shares = told.into_iter().map(|(node, share)| (NodeId(node), share)).collect();
        shares.insert(NodeId(4), Share::Ended);
        shares.remove(&NodeId(2));
        shares.remove(&NodeId(3));
        let listed: Vec<_> = shares.iter().map(|(node, share)| (node.0, *share)).collect();
        assert_eq!(listed, [(4, Share::Ended), (7, running)]);
        assert_eq!((shares.get(&NodeId(2)), shares.get(&NodeId(7))), (None, Some(&running)));
    }
}
