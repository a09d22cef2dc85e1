//! Reads sockets, NUMA nodes, cores and CPUs from a sysfs tree.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::cpulist::{self, CpuListError, CpuSet};

/// The machine as the kernel describes it, restricted to some CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    pub sockets: u32,
    pub numa_nodes: u32,
    pub cores: u32,
    pub cpus: CpuSet,
}

/// Why a tree could not be read.
#[derive(Debug, Error)]
pub enum SysfsError {
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} is not what sysfs holds")]
    List { path: PathBuf, source: CpuListError },
    #[error("none of the CPUs {wanted} is online; online are {online}")]
    NoCpus { wanted: String, online: String },
}

/// The machine under `root` (`/sys` but in tests), of which only `allowed` count; `None` allows all.
///
/// # Errors
/// A tree without online CPUs, or none of the allowed ones online.
pub fn read(root: &Path, allowed: Option<&CpuSet>) -> Result<Machine, SysfsError> {
    let online = read_list(&root.join("devices/system/cpu/online"))?;
    let cpus: CpuSet = match allowed {
        Some(allowed) => online.intersection(allowed).copied().collect(),
        None => online.clone(),
    };
    if cpus.is_empty() {
        let wanted = allowed.map(cpulist::print).unwrap_or_default();
        return Err(SysfsError::NoCpus { wanted, online: cpulist::print(&online) });
    }
    let mut sockets = BTreeSet::new();
    let mut cores = BTreeSet::new();
    for cpu in &cpus {
        let topology = root.join(format!("devices/system/cpu/cpu{cpu}/topology"));
        // Some virtual machines have no topology directories: each CPU is then a core of one socket.
        let socket = read_number(&topology.join("physical_package_id")).unwrap_or(0);
        let die = read_number(&topology.join("die_id")).unwrap_or(0);
        let core = read_number(&topology.join("core_id")).unwrap_or(i64::from(*cpu));
        sockets.insert(socket);
        cores.insert((socket, die, core));
    }
    let numa_nodes = count_numa_nodes(&root.join("devices/system/node"), &cpus);
    Ok(Machine { sockets: sockets.len() as u32, numa_nodes, cores: cores.len() as u32, cpus })
}

/// NUMA nodes that have at least one of the CPUs; a kernel without NUMA has one node.
fn count_numa_nodes(dir: &Path, cpus: &CpuSet) -> u32 {
    let Ok(entries) = dir.read_dir() else { return 1 };
    let has_cpus = |path: PathBuf| read_list(&path.join("cpulist")).is_ok_and(|list| !list.is_disjoint(cpus));
    let is_node = |name: &str| name.strip_prefix("node").is_some_and(|digits| digits.parse::<u32>().is_ok());
    let n_nodes = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_str().is_some_and(is_node))
        .filter(|entry| has_cpus(entry.path()))
        .count();
    (n_nodes as u32).max(1)
}

fn read_list(path: &Path) -> Result<CpuSet, SysfsError> {
    let text = std::fs::read_to_string(path).map_err(|source| SysfsError::Read { path: path.to_owned(), source })?;
    cpulist::parse(&text).map_err(|source| SysfsError::List { path: path.to_owned(), source })
}

fn read_number(path: &Path) -> Option<i64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sockets of two cores of two CPUs each, one NUMA node a socket; CPU 7 is offline.
    fn fixture() -> tempfile::TempDir {
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
        assert_eq!((machine.sockets, machine.numa_nodes, machine.cores, machine.cpus.len()), (2, 2, 4, 7));
    }

    #[test]
    fn only_allowed_cpus_count() {
        let dir = fixture();
        let machine = read(dir.path(), Some(&CpuSet::from([1, 2, 3, 7]))).expect("readable");
        assert_eq!((machine.sockets, machine.numa_nodes, machine.cores, machine.cpus.len()), (1, 1, 2, 3));
        let error = read(dir.path(), Some(&CpuSet::from([7, 9]))).expect_err("offline").to_string();
        assert_eq!(error, "none of the CPUs 7,9 is online; online are 0-6");
    }

    #[test]
    fn this_machine_can_be_read() {
        let machine = read(Path::new("/sys"), None).expect("a Linux machine");
        assert!(machine.cores as usize <= machine.cpus.len() && machine.sockets <= machine.cores, "{machine:?}");
    }
}
