//! What an application requests, and the view on which the request is based (001, §4.2 and §5.1).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::ClusterId;
use crate::profile::Profile;
use crate::time::Span;

/// Nodes on each named cluster, all at once, for one wall time (001: REQUEST).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Request {
    /// Nodes per cluster; entries of 0 request nothing there.
    pub nodes: BTreeMap<ClusterId, u32>,
    #[serde(deserialize_with = "crate::checked::span")]
    pub wall: Span,
}

impl Request {
    pub fn on_one(cluster: ClusterId, n_nodes: u32, wall: Span) -> Request {
        Request { nodes: BTreeMap::from([(cluster, n_nodes)]), wall }
    }

    /// Returns the number of nodes over all clusters.
    pub fn n_nodes(&self) -> u32 {
        self.nodes.values().sum()
    }
}

/// One cluster occupation profile per cluster, as seen by one application. A missing cluster is unoccupied.
pub type View = BTreeMap<ClusterId, Profile>;
