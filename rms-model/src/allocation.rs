//! What a job takes of a node that it shares: cores, memory and devices.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::devices::Devices;
use crate::indices::Indices;
use crate::resources::{Inventory, Mebibytes};

/// How the nodes of a cluster are given to jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Allocation {
    /// A node belongs to one job at a time.
    #[default]
    Nodes,
    /// Jobs share nodes: each has whole cores of its own, and of memory and devices what it asked for.
    Cores,
}

impl Allocation {
    pub const ALL: [Allocation; 2] = [Allocation::Nodes, Allocation::Cores];

    /// As it is set and printed.
    pub fn word(self) -> &'static str {
        match self {
            Allocation::Nodes => "nodes",
            Allocation::Cores => "cores",
        }
    }
}

/// On which of the nodes that have room a job goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Packing {
    /// On the fullest: whole nodes stay whole for those who need them.
    #[default]
    Pack,
    /// On the emptiest, for jobs that need the bandwidth of a node's memory.
    Spread,
}

impl Packing {
    /// As it is asked for and printed.
    pub fn word(self) -> &'static str {
        match self {
            Packing::Pack => "pack",
            Packing::Spread => "spread",
        }
    }
}

/// What a request takes of each of its nodes, or what a node has.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Slice {
    pub cores: u32,
    pub memory: Mebibytes,
    pub devices: Devices,
}

impl Slice {
    /// A slice without cores stands for a whole node.
    pub fn is_none(&self) -> bool {
        self.cores == 0
    }
}

/// What a job has of one node that it shares.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Numbers of cores; those of one NUMA domain follow one another, and so do the domains of one package.
    pub cores: Indices,
    /// So much it may use; 0: as much as there is.
    pub memory: Mebibytes,
    /// Numbers of the devices of each name, from 0 on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, Indices>,
}

/// What a job asks of each of its nodes beside tasks, CPUs and memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceRequest {
    /// For each CPU of its tasks; 0: not asked for.
    pub memory_per_cpu: Mebibytes,
    /// On each node.
    pub devices: Devices,
    /// Over all nodes, alike on each.
    pub devices_in_all: Devices,
    /// Over all nodes, of each cluster where it has some: counted things of the cluster that belong to no node.
    #[serde(skip_serializing_if = "Devices::is_empty")]
    pub licences: Devices,
    /// The most tasks on a node; 0: as many as there is room for.
    pub tasks_per_node: u32,
    /// Its nodes are not shared with other jobs, however the cluster is shared.
    pub exclusive: bool,
    pub packing: Packing,
    /// A task's CPUs are cores: other hardware threads of theirs stay idle.
    pub one_thread_a_core: bool,
    /// It may lend CPUs of its nodes while it runs, and may begin on CPUs that others lend (004).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub share: bool,
    /// It never has fewer CPUs on a node, where it shares them; 0: one for each of its tasks there.
    #[serde(skip_serializing_if = "crate::checked::is_zero")]
    pub min_cpus_per_node: u32,
    /// Of each package (socket) of its nodes it keeps so many cores, where it shares them; 0: as may be.
    #[serde(skip_serializing_if = "crate::checked::is_zero")]
    pub cores_per_package: u32,
    /// Between its nodes no other node of their cluster lies, in the [natural order](crate::natural) of names (004, §3.2.4).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub contiguous: bool,
}

impl ResourceRequest {
    /// Nothing of it was asked for.
    pub fn is_default(&self) -> bool {
        *self == ResourceRequest::default()
    }

    /// What each of `n_nodes` must have of devices.
    pub fn devices_on_each(&self, n_nodes: u32) -> Devices {
        let mut all = self.devices.clone();
        for (name, count) in self.devices_in_all.iter() {
            all.add(name, count.div_ceil(n_nodes.max(1)));
        }
        all
    }
}

impl Slice {
    /// All that a node has.
    pub fn whole(inventory: &Inventory) -> Slice {
        Slice { cores: inventory.cores, memory: inventory.memory, devices: inventory.devices.clone() }
    }
}

impl Grant {
    /// All that a node has.
    pub fn whole(inventory: &Inventory) -> Grant {
        let Slice { cores, memory, devices } = Slice::whole(inventory);
        let devices = devices.iter().map(|(name, count)| (name.to_owned(), Indices::below(count))).collect();
        Grant { cores: Indices::below(cores), memory, devices }
    }

    /// How much of the node it is.
    pub fn amount(&self) -> Slice {
        let devices = self.devices.iter().map(|(name, indices)| (name.clone(), indices.len())).collect();
        Slice { cores: self.cores.len(), memory: self.memory, devices }
    }

    /// With as much memory as the one of both that has more, and the devices of both.
    pub fn with_rest_of(mut self, other: &Grant) -> Grant {
        self.memory = self.memory.max(other.memory);
        for (name, indices) in &other.devices {
            self.devices.entry(name.clone()).or_default().insert_all(indices);
        }
        self
    }
}
