//! What a job takes of a node that it shares: cores, memory and devices.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};
use thiserror::Error;

use crate::indices::Indices;
use crate::name::check_name;
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

/// Counted things of a node by their names: `gpu`, or with a type `gpu:a100`. None of them is counted 0 times.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Devices(BTreeMap<String, u32>);

/// What a request takes of each of its nodes, or what a node has.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Slice {
    pub cores: u32,
    pub memory: Mebibytes,
    pub devices: Devices,
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
    /// At most so many tasks go on a node; 0: as many as there is room for.
    pub tasks_per_node: u32,
    /// Its nodes belong to nobody else, however the cluster is shared.
    pub exclusive: bool,
    pub packing: Packing,
    /// A task's CPUs are cores: other hardware threads of theirs stay idle.
    pub one_thread_a_core: bool,
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

/// Why a text names no devices.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{text}' does not name devices: write gpu:2, gpu:a100:2, or several with commas between them")]
pub struct DevicesError {
    text: String,
}

/// More of one name than a node has numbers for.
const MAX_DEVICES: u32 = crate::indices::MAX_INDEX;

impl Devices {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In the order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u32)> {
        self.0.iter().map(|(name, count)| (name.as_str(), *count))
    }

    /// Of this very name.
    pub fn count(&self, name: &str) -> u32 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// So many more of a name.
    pub fn add(&mut self, name: &str, count: u32) {
        if count > 0 {
            let known = self.0.entry(name.to_owned()).or_default();
            *known = known.saturating_add(count).min(MAX_DEVICES);
        }
    }

    /// Does one device of the name `has` serve who asks for `wanted`? A type that was not asked for does not matter.
    pub fn serves(has: &str, wanted: &str) -> bool {
        has == wanted || has.split_once(':').is_some_and(|(kind, _)| kind == wanted)
    }
}

impl FromIterator<(String, u32)> for Devices {
    fn from_iter<I: IntoIterator<Item = (String, u32)>>(counts: I) -> Devices {
        let mut devices = Devices::default();
        counts.into_iter().for_each(|(name, count)| devices.add(&name, count));
        devices
    }
}

/// `gpu:a100:2,fpga:1`; a name without a count is one device.
impl FromStr for Devices {
    type Err = DevicesError;

    fn from_str(text: &str) -> Result<Devices, DevicesError> {
        let fail = || DevicesError { text: text.chars().take(80).collect() };
        let mut devices = Devices::default();
        for part in text.split(',') {
            let (name, count) = match part.rsplit_once(':') {
                Some((name, count)) if count.bytes().all(|byte| byte.is_ascii_digit()) => {
                    (name, count.parse().map_err(|_| fail())?)
                }
                Some(_) | None => (part, 1),
            };
            if !is_device_name(name) || count > MAX_DEVICES {
                return Err(fail());
            }
            devices.add(name, count);
        }
        Ok(devices)
    }
}

fn is_device_name(name: &str) -> bool {
    let mut parts = name.split(':');
    let is_name = |part: Option<&str>| part.is_some_and(|part| check_name(part).is_ok());
    let has_kind = is_name(parts.next());
    has_kind && parts.next().is_none_or(|kind| check_name(kind).is_ok()) && parts.next().is_none()
}

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.iter().map(|(name, count)| format!("{name}:{count}")).collect();
        f.write_str(&parts.join(","))
    }
}

impl<'de> Deserialize<'de> for Devices {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Devices, D::Error> {
        let counts: BTreeMap<String, u32> = BTreeMap::deserialize(from)?;
        let is_right = |(name, count): (&String, &u32)| is_device_name(name) && (1..=MAX_DEVICES).contains(count);
        match counts.iter().all(is_right) && counts.len() <= MAX_NAMES {
            true => Ok(Devices(counts)),
            false => Err(serde::de::Error::custom("devices with names or counts that cannot be")),
        }
    }
}

/// A request names fewer kinds of devices than this.
const MAX_NAMES: usize = 64;

impl Slice {
    /// All that a node has.
    pub fn whole(inventory: &Inventory) -> Slice {
        Slice { cores: inventory.cores, memory: inventory.memory, devices: inventory.devices.clone() }
    }
}

impl Grant {
    /// How much of the node it is.
    pub fn amount(&self) -> Slice {
        let devices = self.devices.iter().map(|(name, indices)| (name.clone(), indices.len())).collect();
        Slice { cores: self.cores.len(), memory: self.memory, devices }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_as_they_are_printed() {
        for (text, printed) in [
            ("gpu:2", "gpu:2"),
            ("gpu", "gpu:1"),
            ("gpu:a100", "gpu:a100:1"),
            ("gpu:a100:2,fpga:1", "fpga:1,gpu:a100:2"),
            ("gpu:1,gpu:2", "gpu:3"),
            ("gpu:0", ""),
        ] {
            assert_eq!(text.parse::<Devices>().map(|devices| devices.to_string()), Ok(printed.to_owned()), "{text}");
        }
        for text in ["", ":2", "gpu:a:b:2", "gpu:99999999999", "gpu::2", "gpu:2,", "g pu:1", "gpu:70000"] {
            assert!(text.parse::<Devices>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_type_that_was_not_asked_for_does_not_matter() {
        assert!(Devices::serves("gpu:a100", "gpu") && Devices::serves("gpu", "gpu"));
        assert!(!Devices::serves("gpu", "gpu:a100") && !Devices::serves("gpu:v100", "gpu:a100"));
        assert!(!Devices::serves("gpus:a100", "gpu"));
    }
}
