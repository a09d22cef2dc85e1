//! The agent's settings that are fixed at its start.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rms_api::desired::{DesiredJob, LaunchNode};
use rms_malleable::LIBRARY;
use rms_model::{Indices, Inventory, Span};
use tokio::sync::watch;

use crate::cgroup::Parent;
use crate::devices::DeviceFiles;
use crate::hash::fnv1a;
use crate::keys::Keys;
use crate::order::{Negotiates, Order, OwnDevices};
use crate::spool::Spool;
use crate::topology::cores::Cores;
use crate::topology::cpulist::CpuSet;

/// The environment of one agent.
#[derive(Debug)]
pub struct Setup {
    /// The node's name.
    pub name: String,
    /// Distinguishes this agent from others on the same machine.
    pub instance: String,
    pub spool: Spool,
    pub cgroups: Parent,
    /// The CPUs of every job that has the whole node; `None` if no CPU is reserved and no cpuset confines jobs.
    pub mask: Option<CpuSet>,
    pub cores: Cores,
    /// The node's resources. `announced` is what the server is told: the larger amount, while jobs run that started
    /// when the node had more.
    pub inventory: Inventory,
    pub announced: watch::Sender<Inventory>,
    pub devices: DeviceFiles,
    /// The path of this program, which is also its own spawner.
    pub program: PathBuf,
    pub rsh: Option<PathBuf>,
    /// The directory with the commands that scripts written for Slurm call.
    pub aliases: Option<PathBuf>,
    /// The library with which OpenMP programs follow the CPUs of their job.
    pub malleable_library: Option<PathBuf>,
    /// How long to wait before CPUs are taken from processes that were told to give them back.
    pub shrink_patience: Span,
    pub agent_socket: PathBuf,
    /// The server's address, also for jobs on this node: `host:port`.
    pub server: String,
    pub keys: Keys,
    /// How many idle supervisors are kept ready, so that a job need not wait for a fork.
    pub n_warm: usize,
    /// The bytes that a job may leave in the spool; absent for a tenth of its disk.
    pub spool_quota: Option<u64>,
    /// The resources that the admin wants enforced and that the kernel does not enforce.
    pub missing_enforcement: Vec<String>,
}

/// Returns the name of an agent's cgroups and marks: the node's name, and a hash of the agent's directory.
pub fn instance(name: &str, dir: &Path) -> String {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    format!("{name}-{:08x}", fnv1a(dir.as_os_str().as_bytes()))
}

/// Returns the path of `rms-rsh` if it is installed next to the agent.
pub fn rsh_beside(program: &Path) -> Option<PathBuf> {
    let rsh = program.parent()?.join("rms-rsh");
    rsh.is_file().then_some(rsh)
}

/// Returns the path of the library for malleable threads if it is installed next to the agent, or in a library
/// directory.
pub fn library_near(program: &Path) -> Option<PathBuf> {
    let dir = program.parent()?;
    let places = [dir.join(LIBRARY), dir.join("../lib").join(LIBRARY), dir.join("../lib/limber").join(LIBRARY)];
    places.into_iter().find_map(|place| place.canonicalize().ok())
}

/// Creates the directory with `srun`, which is `rms` under another name; returns `None` if `rms` is not installed
/// next to the agent. Running jobs have it in their `PATH`, so it stays when the agent ends.
///
/// # Errors
/// No permission, or no space.
pub fn make_aliases(program: &Path, dir: &Path) -> io::Result<Option<PathBuf>> {
    let Some(rms) = program.parent().map(|dir| dir.join("rms")).filter(|rms| rms.is_file()) else { return Ok(None) };
    fs::create_dir_all(dir)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755))?;
    let (draft, place) = (dir.join(".srun"), dir.join("srun"));
    let _left_over = fs::remove_file(&draft);
    symlink(rms, &draft)?;
    fs::rename(draft, place)?;
    dir.canonicalize().map(Some)
}

impl Setup {
    /// Returns the order for a supervisor.
    pub fn order(&self, desired: &DesiredJob) -> Order {
        Order {
            job: desired.job,
            run: desired.run,
            launch: Arc::clone(&desired.launch),
            node_idx: desired.node_idx,
            mask: self.mask_of(desired),
            aliases: self.aliases.clone(),
            packages: place_of(desired)
                .map(|place| self.cores.by_package(place, desired.launch.one_thread_a_core))
                .unwrap_or_default(),
            devices: place_of(desired).and_then(|place| self.devices.own(place, self.cgroups.closes_devices().is_ok())),
            malleable_library: self.malleable_library.clone(),
            shrink_patience: Some(self.shrink_patience),
            agent_socket: self.agent_socket.clone(),
            rsh: self.rsh.clone(),
            mark: format!("{}.{}.{}", self.instance, desired.job, desired.run),
            negotiates: desired.launch.on_resize.as_ref().map(|_| Negotiates {
                credentials: self.keys.dir(desired.job, desired.run),
                server: self.server.clone(),
            }),
        }
    }
}

impl Setup {
    /// Returns whether the node no longer has the cores or devices of an order, or now numbers them differently.
    pub fn exceeds_node(&self, order: &Order) -> bool {
        let Some((place, grant)) = order.place().and_then(|place| Some((place, place.grant.as_ref()?))) else {
            return false;
        };
        let lacks = |indices: &Indices, count: u32| indices.iter().any(|index| index >= count);
        let cpus = self.cores.of(place, order.launch.one_thread_a_core);
        let devices = self.devices.own(place, self.cgroups.closes_devices().is_ok());
        let are_others = |before: &OwnDevices, now: &OwnDevices| before.gpus != now.gpus || before.has_other_files(now);
        lacks(&grant.cores, self.inventory.cores)
            || grant.devices.iter().any(|(name, indices)| lacks(indices, self.inventory.devices.count(name)))
            || cpus.is_some_and(|cpus| order.mask.as_ref() != Some(&cpus))
            || order.devices.as_ref().zip(devices.as_ref()).is_some_and(|(before, now)| are_others(before, now))
    }

    /// Announces the actual resources to the server. Returns false if they were announced already.
    pub fn announce(&self) -> bool {
        self.announced.send_if_modified(|announced| {
            let is_news = *announced != self.inventory;
            announced.clone_from(&self.inventory);
            is_news
        })
    }
}

impl Setup {
    /// Returns the CPUs of a job on this node.
    fn mask_of(&self, desired: &DesiredJob) -> Option<CpuSet> {
        let own = place_of(desired).and_then(|place| self.cores.of(place, desired.launch.one_thread_a_core));
        own.or_else(|| self.mask.clone())
    }
}

fn place_of(desired: &DesiredJob) -> Option<&LaunchNode> {
    desired.launch.nodes.get(desired.node_idx as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_keeps_its_name_in_every_version() {
        assert_eq!(instance("n1", Path::new("/no/such/directory")), "n1-455e746d");
    }
}
