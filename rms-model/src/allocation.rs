//! What a job takes of a node that it shares: cores, memory and devices.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::devices::Devices;
use crate::indices::Indices;
use crate::resources::{Inventory, Mebibytes};

/// How the nodes of a cluster are allocated to jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Allocation {
    /// A node belongs to one job at a time.
    #[default]
    Nodes,
    /// Jobs share nodes: each has whole cores of its own, and the memory and devices that it asked for.
    Cores,
}

impl Allocation {
    pub const ALL: [Allocation; 2] = [Allocation::Nodes, Allocation::Cores];

    /// Returns the word in settings and outputs.
    pub fn word(self) -> &'static str {
        match self {
            Allocation::Nodes => "nodes",
            Allocation::Cores => "cores",
        }
    }
}

/// Which of the nodes with enough room a job uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Packing {
    /// The fullest: whole nodes stay free for jobs that need them.
    #[default]
    Pack,
    /// The emptiest, for jobs that need the bandwidth of a node's memory.
    Spread,
}

impl Packing {
    /// Returns the word in options and outputs.
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
    /// Returns whether nothing was requested.
    pub fn is_default(&self) -> bool {
        *self == Slice::default()
    }

    /// Returns whether there are no cores: such a slice stands for a whole node, which may have to have memory or devices.
    pub fn is_of_whole_nodes(&self) -> bool {
        self.cores == 0
    }
}

/// What a job has of a node that it shares.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The numbers of its cores; those of one NUMA domain are consecutive, and so are the domains of one package.
    pub cores: Indices,
    /// The memory that it may use; 0 for no limit.
    pub memory: Mebibytes,
    /// The numbers of its devices by name, from 0.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, Indices>,
}

/// What a job requests of each of its nodes in addition to tasks, CPUs and memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceRequest {
    /// The memory for each CPU of its tasks; 0 if not requested.
    pub memory_per_cpu: Mebibytes,
    /// Devices on each node.
    pub devices: Devices,
    /// Devices over all nodes, evenly distributed.
    pub devices_in_all: Devices,
    /// Licences over all nodes, from each cluster that it uses: countable resources of a cluster that belong to no
    /// node.
    #[serde(skip_serializing_if = "Devices::is_empty")]
    pub licences: Devices,
    /// The most tasks on a node; 0 for as many as fit.
    pub tasks_per_node: u32,
    /// Its nodes are not shared with other jobs, even on a shared cluster.
    pub exclusive: bool,
    pub packing: Packing,
    /// A task's CPUs are cores: their other hardware threads stay idle.
    pub one_thread_a_core: bool,
    /// It may lend CPUs of its nodes while it runs, and may start on CPUs that others lend (004).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub share: bool,
    /// The minimum number of CPUs that it keeps on a node when it lends; 0 for one per task there.
    #[serde(skip_serializing_if = "crate::checked::is_zero")]
    pub min_cpus_per_node: u32,
    /// The minimum number of CPUs that each of its tasks keeps when it lends, in the order of tasks; the last number
    /// holds for all others. Empty for one each.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "crate::checked::counts")]
    pub min_cpus_per_task: Vec<u32>,
    /// The number of cores that it keeps on each package (socket) of its nodes when it lends; 0 for no minimum.
    #[serde(skip_serializing_if = "crate::checked::is_zero")]
    pub cores_per_package: u32,
    /// No other node of their cluster lies between its nodes, in the [natural order](crate::natural) of names (004,
    /// §3.2.4).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub contiguous: bool,
}

impl ResourceRequest {
    /// Returns whether nothing was requested.
    pub fn is_default(&self) -> bool {
        *self == ResourceRequest::default()
    }

    /// Returns the number of CPUs that these tasks keep when the job lends.
    pub fn kept_by_tasks(&self, tasks: Range<u32>) -> u32 {
        let n_tasks = tasks.end.saturating_sub(tasks.start);
        let Some(last) = self.min_cpus_per_task.last() else { return n_tasks };
        let own = self.min_cpus_per_task.get(tasks.start as usize..).unwrap_or_default();
        let own = own.iter().take(n_tasks as usize).map(|least| (*least).max(1));
        let n_others = n_tasks - own.len() as u32;
        own.fold(n_others.saturating_mul((*last).max(1)), u32::saturating_add)
    }

    /// Returns the devices that each of `n_nodes` must have.
    pub fn devices_on_each(&self, n_nodes: u32) -> Devices {
        let mut all = self.devices.clone();
        for (name, count) in self.devices_in_all.iter() {
            all.add(name, count.div_ceil(n_nodes.max(1)));
        }
        all
    }
}

impl Slice {
    /// Returns everything that a node has.
    pub fn whole(inventory: &Inventory) -> Slice {
        Slice { cores: inventory.cores, memory: inventory.memory, devices: inventory.devices.clone() }
    }
}

impl Grant {
    /// Returns everything that a node has.
    pub fn whole(inventory: &Inventory) -> Grant {
        let Slice { cores, memory, devices } = Slice::whole(inventory);
        let devices = devices.iter().map(|(name, count)| (name.to_owned(), Indices::below(count))).collect();
        Grant { cores: Indices::below(cores), memory, devices }
    }

    /// Returns the amount of the node's resources in the grant.
    pub fn amount(&self) -> Slice {
        let devices = self.devices.iter().map(|(name, indices)| (name.clone(), indices.len())).collect();
        Slice { cores: self.cores.len(), memory: self.memory, devices }
    }

    /// Adds the devices of the other grant, and raises the memory to that of the larger one.
    pub fn with_rest_of(mut self, other: &Grant) -> Grant {
        self.memory = self.memory.max(other.memory);
        for (name, indices) in &other.devices {
            self.devices.entry(name.clone()).or_default().insert_all(indices);
        }
        self
    }
}
