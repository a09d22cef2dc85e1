//! What a node is made of and whether it may be used.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::devices::Devices;
use crate::time::Time;

/// Memory in MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Mebibytes(pub u64);

impl Mebibytes {
    pub fn is_none(&self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Mebibytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} MiB", self.0)
    }
}

/// The feature of a node that keeps jobs to the memory that they ask for; its agent finds out by itself.
pub const MEMORY_FEATURE: &str = "memory-limit";

/// What the kernel of a node may be unable to keep jobs to: names in [`Inventory::unenforced`].
pub const ENFORCEABLE: [&str; 3] = ["cpus", "devices", "memory"];

/// What a node says of itself when it joins (001: the node part of CINFO).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Inventory {
    pub sockets: u32,
    pub numa_nodes: u32,
    /// Physical cores over all sockets.
    pub cores: u32,
    /// Logical CPUs over all cores; what `-c` counts.
    pub cpus: u32,
    pub memory: Mebibytes,
    /// Speed relative to the deployment's reference node, in thousandths.
    pub speed_milli: u32,
    #[serde(deserialize_with = "crate::checked::names")]
    pub features: BTreeSet<String>,
    /// What the agent found, or was told of.
    #[serde(default, skip_serializing_if = "Devices::is_empty")]
    pub devices: Devices,
    /// Space for scratch files, as its administrator declared it.
    #[serde(default, skip_serializing_if = "Mebibytes::is_none")]
    pub scratch: Mebibytes,
    /// Of [`ENFORCEABLE`], what its kernel does not keep jobs to; newer agents may name more.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty", deserialize_with = "crate::checked::names")]
    pub unenforced: BTreeSet<String>,
}

impl Default for Inventory {
    fn default() -> Inventory {
        Inventory {
            sockets: 1,
            numa_nodes: 1,
            cores: 1,
            cpus: 1,
            memory: Mebibytes(1024),
            speed_milli: 1000,
            features: BTreeSet::new(),
            devices: Devices::default(),
            scratch: Mebibytes(0),
            unenforced: BTreeSet::new(),
        }
    }
}

impl Inventory {
    /// Hardware threads of a core.
    pub fn threads_per_core(&self) -> u32 {
        (self.cpus / self.cores.max(1)).max(1)
    }

    /// Those of one package follow one another, and all packages have as many, but for the last.
    pub fn cores_per_package(&self) -> u32 {
        self.cores.div_ceil(self.sockets.max(1)).max(1)
    }
}

/// What the admin wants of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeAdmin {
    Enabled,
    /// Nothing new starts here; what runs may end. *Draining* while something runs, *drained* after.
    Drain {
        reason: String,
        by: String,
        since: Time,
    },
    /// Out of use: what runs here is ended as if the node were lost.
    Down {
        reason: String,
        by: String,
        since: Time,
    },
}

/// What the server knows of the agent's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeLink {
    Connected {
        since: Time,
    },
    /// The link is gone; what ran there may still run.
    Away {
        since: Time,
    },
    /// Away for longer than `node_lost_after`; its jobs were ended.
    Lost {
        since: Time,
    },
    /// The server was restarted then, and the agent has not come back yet. It is planned with, for a while.
    Expected {
        since: Time,
    },
}
