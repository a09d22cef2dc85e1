//! A node inside the core.

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
    /// Counts the changes of its desired state; it never goes back, over restarts too.
    pub generation: Generation,
    /// Started jobs and ghosts that hold it.
    pub holders: Holders,
    /// Executions that run here though nothing wants them any more.
    pub stale: Vec<(JobId, Run)>,
    /// A running application has given it back, and it stays visible as occupied (001, §5.3.1). Absent in journals that
    /// are older than it.
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
    /// May something be planned here? Whether it is free is another question.
    pub fn is_usable(&self) -> bool {
        let is_there = match self.link {
            NodeLink::Connected { .. } | NodeLink::Expected { .. } => true,
            NodeLink::Away { .. } | NodeLink::Lost { .. } => false,
        };
        self.admin == NodeAdmin::Enabled && is_there && self.stale.is_empty()
    }

    pub fn is_connected(&self) -> bool {
        match self.link {
            NodeLink::Connected { .. } => true,
            NodeLink::Away { .. } | NodeLink::Lost { .. } | NodeLink::Expected { .. } => false,
        }
    }

    /// May something start here now? So it is if it is usable, its agent is there, and neither a job nor a ghost holds it.
    pub fn is_free(&self) -> bool {
        self.is_open() && self.holders.is_empty()
    }

    /// Would it be free if nobody held it?
    pub(crate) fn is_open(&self) -> bool {
        self.is_connected() && self.ghost.is_none() && self.is_usable()
    }

    /// Since when its agent is away, if it is and the node is not lost.
    pub(crate) fn away_since(&self) -> Option<Time> {
        match self.link {
            NodeLink::Away { since } | NodeLink::Expected { since } => Some(since),
            NodeLink::Connected { .. } | NodeLink::Lost { .. } => None,
        }
    }

    /// Since when the server, which was restarted, expects its agent back and plans with it meanwhile.
    pub(crate) fn expected_since(&self) -> Option<Time> {
        match self.link {
            NodeLink::Expected { since } => Some(since),
            NodeLink::Connected { .. } | NodeLink::Away { .. } | NodeLink::Lost { .. } => None,
        }
    }
}
