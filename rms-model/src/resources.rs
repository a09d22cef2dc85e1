//! The resources of a node, and whether it may be used.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

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

/// The feature of nodes where memory limits are enforced on jobs; the agent detects it.
pub const MEMORY_FEATURE: &str = "memory-limit";

/// The limits that a node's kernel may be unable to enforce: names in [`Inventory::unenforced`].
pub const ENFORCEABLE: [&str; 3] = ["cpus", "devices", "memory"];

/// What a node reports about itself when it joins (001: the node part of CINFO).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Inventory {
    pub sockets: u32,
    pub numa_nodes: u32,
    /// Physical cores over all sockets.
    pub cores: u32,
    /// Logical CPUs over all cores; the unit of `-c`.
    pub cpus: u32,
    pub memory: Mebibytes,
    /// Speed relative to the deployment's reference node, in thousandths.
    pub speed_milli: u32,
    #[serde(deserialize_with = "crate::checked::names")]
    pub features: BTreeSet<String>,
    /// Devices that the agent detected, or that were configured.
    #[serde(default, skip_serializing_if = "Devices::is_empty")]
    pub devices: Devices,
    /// Space for scratch files, as declared by its administrator.
    #[serde(default, skip_serializing_if = "Mebibytes::is_none")]
    pub scratch: Mebibytes,
    /// The names in [`ENFORCEABLE`] that its kernel does not enforce; newer agents may report others.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty", deserialize_with = "crate::checked::names")]
    pub unenforced: BTreeSet<String>,
    /// The number of cores of each package, if these differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub package_cores: Vec<u32>,
    /// The number of cores of each NUMA domain, if these differ; a domain over two packages counts in both.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domain_cores: Vec<u32>,
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
            package_cores: Vec::new(),
            domain_cores: Vec::new(),
        }
    }
}

impl Inventory {
    /// Returns the number of hardware threads of a core.
    pub fn threads_per_core(&self) -> u32 {
        (self.cpus / self.cores.max(1)).max(1)
    }

    /// Returns the cores of each package, as consecutive ranges over all cores.
    pub fn packages(&self) -> impl Iterator<Item = Range<u32>> {
        parts(self.sockets, &self.package_cores, self.cores)
    }

    /// Returns the cores of each NUMA domain, as consecutive ranges over all cores.
    pub fn domains(&self) -> impl Iterator<Item = Range<u32>> {
        parts(self.numa_nodes, &self.domain_cores, self.cores)
    }

    /// Returns the number of cores of the largest package.
    pub fn largest_package(&self) -> u32 {
        self.packages().map(|cores| cores.end - cores.start).max().unwrap_or(0)
    }

    /// Returns the node with packages and NUMA domains of these numbers of cores, which are omitted if they are equal.
    #[must_use]
    pub fn with_parts(self, package_cores: Vec<u32>, domain_cores: Vec<u32>) -> Inventory {
        let unless_equal = |sizes: Vec<u32>, n_parts: u32| {
            let equal = parts(n_parts, &[], self.cores).map(|cores| cores.end - cores.start);
            if equal.eq(sizes.iter().copied()) { Vec::new() } else { sizes }
        };
        let package_cores = unless_equal(package_cores, self.sockets);
        let domain_cores = unless_equal(domain_cores, self.numa_nodes);
        Inventory { package_cores, domain_cores, ..self }
    }
}

/// Returns the cores of each part of a node. Without sizes the parts are as equal as possible, the first ones larger by
/// one core if the number does not divide; with wrong sizes the last part gets the rest.
fn parts(n_parts: u32, sizes: &[u32], n_cores: u32) -> impl Iterator<Item = Range<u32>> {
    // Every part has at least one core.
    let n_parts = n_parts.clamp(1, n_cores.max(1));
    let (least, n_with_more) = (n_cores / n_parts, n_cores % n_parts);
    let n_parts = if sizes.is_empty() { n_parts } else { sizes.len() as u32 };
    let mut end = 0;
    (0..n_parts).map(move |part| {
        let size = sizes.get(part as usize).copied().unwrap_or(least + u32::from(part < n_with_more));
        let first = end;
        end = if part + 1 == n_parts { n_cores } else { size.saturating_add(first).min(n_cores) };
        first..end
    })
}

/// The state of a node as set by the admin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeAdmin {
    Enabled,
    /// No new job starts here; running ones may end. *Draining* while jobs run, *drained* afterwards.
    Drain {
        reason: String,
        by: String,
        since: Time,
    },
    /// Out of service: jobs here are ended as if the node were lost.
    Down {
        reason: String,
        by: String,
        since: Time,
    },
}

/// The state of the agent's connection as the server knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeLink {
    Connected {
        since: Time,
    },
    /// The connection is gone, and no job is planned on the node; jobs there may still run.
    Away {
        since: Time,
    },
    /// Away for longer than `node_lost_after`; its jobs were ended.
    Lost {
        since: Time,
    },
    /// The connection is gone since `since`, when the agent or the server may have been restarted. Jobs are planned on
    /// the node until `restart_grace` is over.
    Expected {
        since: Time,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(sockets: u32, numa_nodes: u32, cores: u32) -> Inventory {
        Inventory { sockets, numa_nodes, cores, cpus: cores, ..Inventory::default() }
    }

    #[test]
    fn parts_are_as_equal_as_can_be_unless_their_sizes_are_told() {
        let equal = node(2, 3, 10);
        assert_eq!(equal.packages().collect::<Vec<_>>(), [0..5, 5..10]);
        assert_eq!(equal.domains().collect::<Vec<_>>(), [0..4, 4..7, 7..10]);
        assert_eq!(equal.clone().with_parts(vec![5, 5], vec![4, 3, 3]), equal, "nothing is said of equal ones");
        let unequal = node(2, 3, 10).with_parts(vec![7, 3], vec![4, 3, 3]);
        assert_eq!((unequal.package_cores.as_slice(), unequal.domain_cores.as_slice()), (&[7, 3][..], &[][..]));
        assert_eq!(unequal.packages().collect::<Vec<_>>(), [0..7, 7..10]);
        assert_eq!((equal.largest_package(), unequal.largest_package()), (5, 7));
        // One NUMA domain over both packages.
        let over = node(2, 1, 4).with_parts(vec![2, 2], vec![2, 2]);
        assert_eq!((over.package_cores.len(), over.domains().collect::<Vec<_>>()), (0, vec![0..2, 2..4]));
    }

    #[test]
    fn each_core_is_in_one_part_whatever_an_agent_says() {
        let all = u32::MAX;
        for sizes in [vec![], vec![9], vec![1, 1], vec![all, all], vec![0, 0, 0, 3, 9], vec![4; 9]] {
            for sockets in [0, 1, 4, 7, all] {
                let node = Inventory { package_cores: sizes.clone(), ..node(sockets, 1, 4) };
                let packages: Vec<_> = node.packages().take(10).collect();
                let cores: Vec<u32> = packages.iter().cloned().flatten().collect();
                assert_eq!((cores.as_slice(), packages.len() < 10), (&[0, 1, 2, 3][..], true), "{node:?}");
            }
        }
        assert_eq!(node(0, 0, 0).domains().flatten().count(), 0);
    }
}
