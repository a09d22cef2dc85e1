//! A node in the core's state.

use rms_model::job::Constraint;
use rms_model::{ClusterId, Generation, Inventory, JobId, NodeAdmin, NodeLink, Run, Time};
use serde::{Deserialize, Serialize};

use crate::state::Holders;

/// A node and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub name: String,
    pub cluster: ClusterId,
    pub inventory: Inventory,
    /// `ip:port` where other agents reach its agent.
    pub address: String,
    pub admin: NodeAdmin,
    pub link: NodeLink,
    /// Counts the changes of its desired state; never decreases, even over restarts.
    pub generation: Generation,
    /// Started jobs and ghosts that hold it.
    pub holders: Holders,
    /// Executions that still run here although they are no longer wanted.
    pub stale: Vec<(JobId, Run)>,
    /// Set while a node that a running application has given back stays visible as occupied (001, §5.3.1). Absent in
    /// older journals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ghost: Option<NodeGhost>,
}

/// What is left of an application on a node that it has given back while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeGhost {
    pub job: JobId,
    pub from: Time,
    pub until: Time,
}

impl Node {
    /// Returns whether jobs may be planned on the node, whether or not it is free.
    pub fn is_usable(&self) -> bool {
        let is_there = match self.link {
            NodeLink::Connected { .. } | NodeLink::Expected { .. } => true,
            NodeLink::Away { .. } | NodeLink::Lost { .. } => false,
        };
        self.admin == NodeAdmin::Enabled && is_there && self.stale.is_empty()
    }

    /// Returns whether a job with this constraint may use the node.
    pub(crate) fn meets(&self, constraint: &Constraint) -> bool {
        constraint.is_met_by(&self.inventory) && constraint.allows(&self.name)
    }

    pub fn is_connected(&self) -> bool {
        match self.link {
            NodeLink::Connected { .. } => true,
            NodeLink::Away { .. } | NodeLink::Lost { .. } | NodeLink::Expected { .. } => false,
        }
    }

    /// Returns whether a job may start here now: the node is usable, its agent is connected, and neither a job nor a
    /// ghost holds it.
    pub fn is_free(&self) -> bool {
        self.is_open() && self.holders.is_empty()
    }

    /// Returns whether the node would be free if no job held it.
    pub(crate) fn is_open(&self) -> bool {
        self.is_connected() && self.ghost.is_none() && self.is_usable()
    }

    /// Returns since when its agent is away, if it is and the node is not lost.
    pub(crate) fn away_since(&self) -> Option<Time> {
        match self.link {
            NodeLink::Away { since } | NodeLink::Expected { since } => Some(since),
            NodeLink::Connected { .. } | NodeLink::Lost { .. } => None,
        }
    }

    /// Returns since when its agent is away, if it is expected back and the node planned with meanwhile.
    pub(crate) fn expected_since(&self) -> Option<Time> {
        match self.link {
            NodeLink::Expected { since } => Some(since),
            NodeLink::Connected { .. } | NodeLink::Away { .. } | NodeLink::Lost { .. } => None,
        }
    }
}
