//! Reads sockets, NUMA nodes, cores and CPUs from a sysfs tree.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::cpulist::{self, CpuListError, CpuSet};

/// The machine as the kernel describes it, restricted to some CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    pub sockets: u32,
    pub numa_nodes: u32,
    /// The logical CPUs of each core; cores are ordered by socket, NUMA node and core.
    pub cores: Vec<Vec<u32>>,
    /// The package of each core, counted from 0.
    pub packages: Vec<u32>,
    /// How many cores each package has; in `domain_cores`, how many each NUMA node within a package has.
    pub package_cores: Vec<u32>,
    pub domain_cores: Vec<u32>,
    pub cpus: CpuSet,
}

/// Why a tree could not be read.
#[derive(Debug, Error)]
pub enum SysfsError {
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} is not what sysfs holds")]
    List { path: PathBuf, source: CpuListError },
    #[error("none of the CPUs {wanted} can be used here; these can: {there}")]
    NoCpus { wanted: String, there: String },
}

/// Reads the machine under `root` (`/sys` except in tests), of which only `allowed` CPUs count; `None` allows all.
///
/// # Errors
/// The tree has no online CPUs, or none of the allowed ones is online.
pub fn read(root: &Path, allowed: Option<&CpuSet>) -> Result<Machine, SysfsError> {
    let online = read_list(&root.join("devices/system/cpu/online"))?;
    let cpus: CpuSet = match allowed {
        Some(allowed) => online.intersection(allowed).copied().collect(),
        None => online.clone(),
    };
    if cpus.is_empty() {
        let wanted = allowed.map(cpulist::print).unwrap_or_default();
        return Err(SysfsError::NoCpus { wanted, there: cpulist::print(&online) });
    }
    let mut sockets = BTreeSet::new();
    let mut cores: BTreeMap<_, Vec<u32>> = BTreeMap::new();
    let numa_nodes = numa_nodes(&root.join("devices/system/node"), &cpus);
    for cpu in &cpus {
        let topology = root.join(format!("devices/system/cpu/cpu{cpu}/topology"));
        // Some virtual machines have no topology directories: each CPU is then a core of one socket.
        let socket = read_number(&topology.join("physical_package_id")).unwrap_or(0);
        let die = read_number(&topology.join("die_id")).unwrap_or(0);
        let core = read_number(&topology.join("core_id")).unwrap_or(i64::from(*cpu));
        sockets.insert(socket);
        let numa_node = numa_nodes.iter().find(|(_, list)| list.contains(cpu)).map(|(number, _)| *number);
        cores.entry((socket, numa_node, die, core)).or_default().push(*cpu);
    }
    let n_numa_nodes = (numa_nodes.len() as u32).max(1);
    let package = |socket: &i64| sockets.range(..socket).count() as u32;
    let packages = cores.keys().map(|(socket, ..)| package(socket)).collect();
    let places: Vec<_> = cores.keys().map(|(socket, numa_node, ..)| (*socket, *numa_node)).collect();
    let package_cores = places.chunk_by(|one, next| one.0 == next.0).map(|cores| cores.len() as u32).collect();
    let domain_cores = places.chunk_by(PartialEq::eq).map(|cores| cores.len() as u32).collect();
    Ok(Machine {
        sockets: sockets.len() as u32,
        numa_nodes: n_numa_nodes,
        cores: cores.into_values().collect(),
        packages,
        package_cores,
        domain_cores,
        cpus,
    })
}

/// Returns the NUMA nodes that have at least one of the CPUs, with all CPUs of each; empty if the kernel has no NUMA
/// support.
fn numa_nodes(dir: &Path, cpus: &CpuSet) -> BTreeMap<u32, CpuSet> {
    let Ok(entries) = dir.read_dir() else { return BTreeMap::new() };
    let node = |entry: std::fs::DirEntry| {
        let number = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
        let list = read_list(&entry.path().join("cpulist")).ok()?;
        (!list.is_disjoint(cpus)).then_some((number, list))
    };
    entries.filter_map(Result::ok).filter_map(node).collect()
}

fn read_list(path: &Path) -> Result<CpuSet, SysfsError> {
    let text = std::fs::read_to_string(path).map_err(|source| SysfsError::Read { path: path.to_owned(), source })?;
    cpulist::parse(&text).map_err(|source| SysfsError::List { path: path.to_owned(), source })
}

fn read_number(path: &Path) -> Option<i64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Creates a sysfs tree: two sockets of two cores of two CPUs each, one NUMA node per socket; CPU 7 is offline.
    pub fn fixture() -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a directory");
        let put = |path: &str, text: &str| {
            let path = dir.path().join("devices/system").join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            std::fs::write(path, text).expect("a file");
        };
        put("cpu/online", "0-6\n");
        for cpu in 0..8 {
            put(&format!("cpu/cpu{cpu}/topology/physical_package_id"), &format!("{}\n", cpu / 4));
            put(&format!("cpu/cpu{cpu}/topology/core_id"), &format!("{}\n", cpu / 2 % 2));
        }
        put("node/node0/cpulist", "0-3\n");
        put("node/node1/cpulist", "4-7\n");
        put("node/possible", "0-1\n");
        dir
    }

    #[test]
    fn a_tree_is_counted() {
        let dir = fixture();
        let machine = read(dir.path(), None).expect("readable");
        assert_eq!((machine.sockets, machine.numa_nodes, machine.cores.len(), machine.cpus.len()), (2, 2, 4, 7));
    }

    #[test]
    fn cores_are_numbered_by_socket_and_numa_node() {
        let dir = fixture();
        let put = |path: &str, text: &str| {
            std::fs::write(dir.path().join("devices/system").join(path), text).expect("a file");
        };
        // The kernel numbers by threads, and the NUMA nodes of both packages in the reverse order of their cores.
        for cpu in 0..8 {
            put(&format!("cpu/cpu{cpu}/topology/physical_package_id"), &format!("{}\n", cpu % 2));
            put(&format!("cpu/cpu{cpu}/topology/core_id"), &format!("{}\n", cpu / 2 % 2));
        }
        std::fs::create_dir_all(dir.path().join("devices/system/node/node2")).expect("a directory");
        put("node/node0/cpulist", "2,6\n");
        put("node/node1/cpulist", "0,4\n");
        put("node/node2/cpulist", "1,3,5,7\n");
        let machine = read(dir.path(), None).expect("readable");
        assert_eq!(machine.cores, [vec![2, 6], vec![0, 4], vec![1, 5], vec![3]]);
        assert_eq!((machine.package_cores, machine.domain_cores), (vec![2, 2], vec![1, 1, 2]));
    }

    #[test]
    fn a_numa_node_over_two_packages_counts_in_both() {
        let dir = fixture();
        std::fs::remove_dir_all(dir.path().join("devices/system/node/node1")).expect("it is there");
        std::fs::write(dir.path().join("devices/system/node/node0/cpulist"), "0-7\n").expect("a file");
        let machine = read(dir.path(), None).expect("readable");
        assert_eq!((machine.numa_nodes, machine.domain_cores), (1, vec![2, 2]));
    }

    #[test]
    fn only_allowed_cpus_count() {
        let dir = fixture();
        let machine = read(dir.path(), Some(&CpuSet::from([1, 2, 3, 7]))).expect("readable");
        assert_eq!((machine.sockets, machine.numa_nodes, machine.cores.len(), machine.cpus.len()), (1, 1, 2, 3));
        let error = read(dir.path(), Some(&CpuSet::from([7, 9]))).expect_err("offline").to_string();
        assert_eq!(error, "none of the CPUs 7,9 can be used here; these can: 0-6");
    }

    #[test]
    fn this_machine_can_be_read() {
        let machine = read(Path::new("/sys"), None).expect("a Linux machine");
        assert!(machine.cores.len() <= machine.cpus.len(), "{machine:?}");
        assert!(machine.sockets as usize <= machine.cores.len(), "{machine:?}");
    }
}
