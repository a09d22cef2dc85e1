//! A node inside the core.

use rms_model::{ClusterId, Generation, Inventory, JobId, NodeAdmin, NodeLink, Run};
use serde::{Deserialize, Serialize};

use crate::state::Holders;

/// A host and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub name: String,
    pub cluster: ClusterId,
    pub inventory: Inventory,
    /// `ip:port` where other agents reach its agent.
    pub address: String,
    pub admin: NodeAdmin,
    pub link: NodeLink,
    /// Counts the changes of its desired state; it never goes back, over restarts too.
    pub generation: Generation,
    /// Started jobs and ghosts that hold it.
    pub holders: Holders,
    /// Executions that run here though nothing wants them any more.
    pub stale: Vec<(JobId, Run)>,
}

impl Node {
    /// May something be planned here? Whether it is free is another question.
    pub fn is_usable(&self) -> bool {
        let is_connected = match self.link {
            NodeLink::Connected { .. } => true,
            NodeLink::Away { .. } | NodeLink::Lost { .. } => false,
        };
        self.admin == NodeAdmin::Enabled && is_connected && self.stale.is_empty()
    }

    pub fn is_connected(&self) -> bool {
        match self.link {
            NodeLink::Connected { .. } => true,
            NodeLink::Away { .. } | NodeLink::Lost { .. } => false,
        }
    }

    /// Is it usable, and does nobody hold it?
    pub fn is_free(&self) -> bool {
        self.is_usable() && self.holders.is_empty()
    }
}
