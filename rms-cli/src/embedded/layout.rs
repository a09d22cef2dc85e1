//! The clusters and nodes that `rms up` creates, and the names of the nodes.

use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use rms_model::identity;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Clusters by name and size, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Layout(pub Vec<(String, u32)>);

/// Why a text is not a layout.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    #[error("'{0}' names no clusters: write a:4 or a:4,b:8 (name and nodes)")]
    Nonsense(String),
    #[error("cluster '{0}' is named twice")]
    Twice(String),
    #[error("a cluster needs at least one node")]
    Empty,
    #[error("{0} nodes are more than one machine should play: at most {MAX_NODES}")]
    TooMany(u64),
}

/// The maximum, as each node is an agent process and a loopback address.
pub const MAX_NODES: u32 = 1000;

impl Layout {
    /// Returns the layout of one cluster `a`.
    ///
    /// # Errors
    /// There are no nodes, or too many.
    pub fn of_nodes(n_nodes: u32) -> Result<Layout, LayoutError> {
        Layout(vec![("a".to_owned(), n_nodes)]).checked()
    }

    fn checked(self) -> Result<Layout, LayoutError> {
        let n_nodes: u64 = self.0.iter().map(|(_, n_nodes)| u64::from(*n_nodes)).sum();
        if self.0.iter().any(|(_, n_nodes)| *n_nodes == 0) {
            return Err(LayoutError::Empty);
        }
        if n_nodes > u64::from(MAX_NODES) {
            return Err(LayoutError::TooMany(n_nodes));
        }
        Ok(self)
    }

    /// Returns node names with their clusters: `a1`, `a2`, …; a cluster whose name ends in a digit gets a dash, so that
    /// no two clusters can have a node of the same name.
    pub fn nodes(&self) -> impl Iterator<Item = (String, String)> {
        self.0.iter().flat_map(|(cluster, n_nodes)| {
            let between = if cluster.ends_with(|c: char| c.is_ascii_digit()) { "-" } else { "" };
            (1..=*n_nodes).map(move |number| (format!("{cluster}{between}{number}"), cluster.clone()))
        })
    }

    /// Returns the layout as text: `a:4,b:8`.
    pub fn text(&self) -> String {
        self.0.iter().map(|(cluster, n_nodes)| format!("{cluster}:{n_nodes}")).collect::<Vec<_>>().join(",")
    }
}

impl FromStr for Layout {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<Layout, LayoutError> {
        let nonsense = || LayoutError::Nonsense(text.chars().take(80).collect());
        let mut clusters: Vec<(String, u32)> = Vec::new();
        for part in text.split(',') {
            let (name, n_nodes) = part.split_once(':').ok_or_else(nonsense)?;
            identity::check_name(name).map_err(|_| nonsense())?;
            let n_nodes = n_nodes.parse().map_err(|_| nonsense())?;
            if clusters.iter().any(|(known, _)| known == name) {
                return Err(LayoutError::Twice(name.to_owned()));
            }
            clusters.push((name.to_owned(), n_nodes));
        }
        Layout(clusters).checked()
    }
}

/// Returns the address of the node at this index: each has its own loopback address, because MPI libraries distinguish
/// nodes by address. The server has 127.0.0.1.
pub fn node_address(idx: usize) -> IpAddr {
    let (high, low) = (idx / 250, idx % 250);
    IpAddr::V4(Ipv4Addr::new(127, 0, u8::try_from(high).unwrap_or(u8::MAX), low as u8 + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_named_after_their_clusters() {
        let layout: Layout = "a:2,b1:1".parse().unwrap();
        let nodes: Vec<_> = layout.nodes().collect();
        let pair = |name: &str, cluster: &str| (name.to_owned(), cluster.to_owned());
        assert_eq!(nodes, [pair("a1", "a"), pair("a2", "a"), pair("b1-1", "b1")]);
        assert_eq!(layout.text(), "a:2,b1:1");
    }

    #[test]
    fn wrong_layouts_are_refused() {
        for text in ["", "a", "a:0", "a:x", "a:1,a:2", "a:4000000000", "a:600,b:600", "a b:1", ":1"] {
            assert!(text.parse::<Layout>().is_err(), "{text}");
        }
    }

    #[test]
    fn every_node_has_an_address_of_its_own() {
        let mut addresses: Vec<_> = (0..MAX_NODES as usize).map(node_address).collect();
        assert_eq!(addresses[0].to_string(), "127.0.0.2");
        assert_eq!(addresses[250].to_string(), "127.0.1.2");
        addresses.sort();
        addresses.dedup();
        assert_eq!(addresses.len(), MAX_NODES as usize);
    }
}
