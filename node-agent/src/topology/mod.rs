//! Describes the node: the inventory for the server, and the CPUs that its jobs may actually use.

pub mod cores;
pub mod cpulist;
pub mod declared;
pub mod sysfs;

use std::collections::BTreeSet;
use std::path::Path;

use nix::sched::{CpuSet as KernelCpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use rms_model::{Devices, Inventory, Mebibytes};
use sysinfo::{MemoryRefreshKind, RefreshKind, System};

use cores::Cores;
use cpulist::CpuSet;
use declared::Declared;
use sysfs::{Machine, SysfsError};

/// The node as declared and as it actually is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// The resources that the server plans with.
    pub inventory: Inventory,
    /// The CPUs of every job that has the whole node.
    pub cpus: CpuSet,
    /// Some of the machine's CPUs are withheld from jobs.
    pub is_masked: bool,
    /// The real CPUs of the declared cores.
    pub cores: Cores,
}

/// The properties of the node that the configuration sets.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    pub cpus: Option<CpuSet>,
    pub declared: Option<Declared>,
    pub memory: Option<Mebibytes>,
    pub speed_milli: Option<u32>,
    pub features: BTreeSet<String>,
    pub devices: Devices,
    pub scratch: Mebibytes,
}

/// # Errors
/// The topology cannot be read, or none of the configured CPUs exists.
pub fn describe(sys: &Path, overrides: &Overrides) -> Result<Topology, SysfsError> {
    let own = own_cpus();
    let allowed = match (&overrides.cpus, &own) {
        (Some(wished), Some(own)) => Some(wished.intersection(own).copied().collect()),
        (Some(wished), None) => Some(wished.clone()),
        (None, own) => own.clone(),
    };
    if let (Some(wished), Some(own), Some(allowed)) = (&overrides.cpus, &own, &allowed)
        && allowed.is_empty()
    {
        return Err(SysfsError::NoCpus { wanted: cpulist::print(wished), there: cpulist::print(own) });
    }
    let mut topology = of_machine(sysfs::read(sys, allowed.as_ref())?, overrides);
    topology.inventory.features.extend(found_features(sys));
    Ok(topology)
}

/// Returns the features that every node has without being declared: its architecture, and `infiniband` if it has an
/// adapter for that network (or Omni-Path, which has the same interface).
fn found_features(sys: &Path) -> Vec<String> {
    let has_infiniband =
        std::fs::read_dir(sys.join("class/infiniband")).is_ok_and(|mut adapters| adapters.next().is_some());
    let mut features = vec![std::env::consts::ARCH.to_owned()];
    features.extend(has_infiniband.then(|| "infiniband".to_owned()));
    features
}

fn of_machine(machine: Machine, overrides: &Overrides) -> Topology {
    let memory = overrides.memory.unwrap_or_else(machine_memory);
    let (sockets, numa_nodes, cores, cpus) = match overrides.declared {
        // CPUs that the machine does not have are counted, not applied.
        Some(declared) => (declared.packs, declared.numa_nodes(), declared.cores(), declared.cpus()),
        None => (machine.sockets, machine.numa_nodes, machine.cores.len() as u32, machine.cpus.len() as u32),
    };
    let speed_milli = overrides.speed_milli.unwrap_or(1000);
    let features = overrides.features.clone();
    let devices = overrides.devices.clone();
    let inventory = Inventory {
        sockets,
        numa_nodes,
        cores,
        cpus,
        memory,
        speed_milli,
        features,
        devices,
        scratch: overrides.scratch,
        ..Inventory::default()
    };
    let inventory = match overrides.declared {
        Some(_) => inventory,
        None => inventory.with_parts(machine.package_cores, machine.domain_cores),
    };
    let threads = inventory.threads_per_core();
    let real = Cores::new(machine.cores, threads, cpus);
    let cores = match overrides.declared {
        Some(Declared { packs, .. }) => {
            let cores_each = (cores / packs).max(1);
            real.declared(cores, threads).in_packages((0..cores).map(|core| core / cores_each).collect())
        }
        None => real.in_packages(machine.packages),
    };
    Topology { inventory, cpus: machine.cpus, is_masked: overrides.cpus.is_some(), cores }
}

/// Returns the CPUs that this process may run on; jobs inherit them.
pub fn own_cpus() -> Option<CpuSet> {
    cpus_of(Pid::from_raw(0)).ok()
}

/// Returns the CPUs that a thread may run on.
///
/// # Errors
/// The thread has ended.
pub fn cpus_of(thread: Pid) -> nix::Result<CpuSet> {
    let kernel = sched_getaffinity(thread)?;
    let is_set = |cpu: &usize| kernel.is_set(*cpu).unwrap_or(false);
    Ok((0..KernelCpuSet::count()).filter(is_set).map(|cpu| cpu as u32).collect())
}

/// Restricts a thread to these CPUs.
///
/// # Errors
/// The thread has ended or belongs to another user, or none of the CPUs exists.
pub fn set_cpus_of(thread: Pid, cpus: &CpuSet) -> nix::Result<()> {
    let mut set = KernelCpuSet::new();
    for cpu in cpus {
        // No number is beyond the kernel's range, because the numbers come from the kernel.
        let _beyond_its_numbers = set.set(*cpu as usize);
    }
    sched_setaffinity(thread, &set)
}

fn machine_memory() -> Mebibytes {
    let ram = RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram());
    Mebibytes(System::new_with_specifics(ram).map_or(0, |system| system.total_memory() >> 20))
}

#[cfg(test)]
mod tests {
    use rms_api::desired::LaunchNode;
    use rms_model::Grant;

    use super::*;

    #[test]
    fn a_declared_topology_is_accounted_but_not_applied() {
        let declared = Declared::parse("pack:2 core:24 pu:1").ok();
        let topology = describe(Path::new("/sys"), &Overrides { declared, ..Overrides::default() }).expect("readable");
        assert_eq!((topology.inventory.sockets, topology.inventory.cpus), (2, 48));
        assert!(!topology.is_masked);
        assert!(topology.inventory.memory > Mebibytes(16), "{topology:?}");
    }

    #[test]
    fn architecture_and_network_are_features() {
        let tree = sysfs::tests::fixture();
        let overrides = Overrides { features: ["big".to_owned()].into(), ..Overrides::default() };
        let features = || describe(tree.path(), &overrides).expect("readable").inventory.features;
        let arch = std::env::consts::ARCH;
        assert_eq!(features(), ["big", arch].map(str::to_owned).into());
        std::fs::create_dir_all(tree.path().join("class/infiniband")).expect("ours");
        assert_eq!(features(), ["big", arch].map(str::to_owned).into(), "no adapter");
        std::fs::create_dir(tree.path().join("class/infiniband/mlx5_0")).expect("ours");
        assert_eq!(features(), ["big", arch, "infiniband"].map(str::to_owned).into());
    }

    #[test]
    fn a_core_that_is_offline_moves_the_borders_of_its_package_and_of_those_behind() {
        let tree = sysfs::tests::fixture();
        std::fs::write(tree.path().join("devices/system/cpu/online"), "0-1,4-7\n").expect("ours");
        let machine = sysfs::read(tree.path(), None).expect("readable");
        let topology = of_machine(machine.clone(), &Overrides::default());
        let inventory = &topology.inventory;
        assert_eq!(inventory.packages().collect::<Vec<_>>(), [0..1, 1..3]);
        assert_eq!(inventory.domains().collect::<Vec<_>>(), [0..1, 1..3]);
        // The server's packages are the real ones.
        let packages = inventory.packages().map(|cores| {
            let grant = Some(Grant { cores: cores.collect(), ..Grant::default() });
            topology.cores.by_package(&LaunchNode { grant, cpus: 6, ..test_kit::place("n1") }, false)
        });
        assert_eq!(packages.collect::<Vec<_>>(), [[vec![0, 1]], [vec![4, 5, 6, 7]]]);

        let declared = Declared::parse("pack:2 core:3").ok();
        let declared = of_machine(machine, &Overrides { declared, ..Overrides::default() });
        assert_eq!(declared.inventory.packages().collect::<Vec<_>>(), [0..3, 3..6]);
    }

    #[test]
    fn a_list_of_cpus_becomes_the_mask() {
        let first = own_cpus().expect("an affinity").first().copied().expect("a CPU");
        let cpus = Some(CpuSet::from([first, 8000]));
        let topology = describe(Path::new("/sys"), &Overrides { cpus, ..Overrides::default() }).expect("readable");
        assert_eq!((topology.inventory.cpus, topology.cpus, topology.is_masked), (1, CpuSet::from([first]), true));
    }
}
