//! Determines which cgroups this process can create, and creates the parent of all supervisors' cgroups.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use thiserror::Error;

use super::claim::{self, Claim};
use super::{Cgroup, Kind, device_program};
use crate::topology::cpulist::{self, CpuSet};

/// The kind of cgroups that the configuration requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CgroupMode {
    /// v2 if usable, else v1, else none.
    #[default]
    Auto,
    V1,
    V2,
    None,
}

/// An unknown kind of cgroups.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is no kind of cgroup: write auto, v1, v2 or none")]
pub struct CgroupModeError(String);

impl FromStr for CgroupMode {
    type Err = CgroupModeError;

    fn from_str(text: &str) -> Result<CgroupMode, CgroupModeError> {
        match text {
            "auto" => Ok(CgroupMode::Auto),
            "v1" => Ok(CgroupMode::V1),
            "v2" => Ok(CgroupMode::V2),
            "none" => Ok(CgroupMode::None),
            other => Err(CgroupModeError(other.to_owned())),
        }
    }
}

/// Why the requested cgroups are not available.
#[derive(Debug, Error)]
pub enum ProbeError {
    #[error("this machine has no {0} mounted; set cgroup = \"auto\"")]
    NotMounted(&'static str),
    #[error("cannot make the cgroup {path}; run as root, have it delegated, or set cgroup = \"none\"")]
    Make { path: PathBuf, source: io::Error },
}

/// The cgroup that holds the cgroups of all supervisors of one agent.
#[derive(Clone, Debug)]
pub struct Parent {
    kind: Kind,
    /// The directories by controller; in v2 a single one under the name "".
    dirs: BTreeMap<String, PathBuf>,
    has_cpuset: bool,
    /// Whether device files can be closed to jobs, or why not.
    devices: Result<(), String>,
}

/// The resources that the cgroups enforce, in addition to memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct EnforcedResources<'a> {
    /// All CPUs of the node that jobs may use; `None` if there are no cpusets.
    pub cpus: Option<&'a CpuSet>,
    /// Whether there are device files that some jobs must not open.
    pub devices: bool,
}

/// v1 controllers that are used if mounted; the first two are required.
const V1_CONTROLLERS: [&str; 5] = ["cpuacct", "memory", "pids", "cpuset", "devices"];

/// Probes the kinds of cgroups and creates the parent. `name` is the path under the hierarchy's root (v1) or under the
/// agent's delegated cgroup (v2).
///
/// # Errors
/// One kind is requested explicitly and not available.
pub fn probe(wanted: CgroupMode, name: &str, enforced: EnforcedResources<'_>) -> Result<Parent, ProbeError> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let none = || Parent::new(Kind::None, BTreeMap::new());
    match wanted {
        CgroupMode::None => Ok(none()),
        CgroupMode::V1 => probe_v1(&mounts, name, enforced),
        CgroupMode::V2 => probe_v2(&mounts, &own, name, enforced),
        CgroupMode::Auto => {
            let v2 = probe_v2(&mounts, &own, name, enforced);
            let v2 = v2.ok().filter(|v2| {
                let is_usable = v2.counts_memory();
                if !is_usable {
                    v2.remove();
                }
                is_usable
            });
            Ok(v2.or_else(|| probe_v1(&mounts, name, enforced).ok()).unwrap_or_else(none))
        }
    }
}

fn probe_v1(mounts: &str, name: &str, enforced: EnforcedResources<'_>) -> Result<Parent, ProbeError> {
    let mut dirs = BTreeMap::new();
    for controller in V1_CONTROLLERS {
        let is_needed = controller == "cpuacct" || controller == "memory";
        let is_wanted = match controller {
            "cpuset" => enforced.cpus.is_some(),
            "devices" => enforced.devices,
            _ => true,
        };
        let Some(mount) = find_mount(mounts, "cgroup", Some(controller)).filter(|_| is_wanted) else {
            if is_needed {
                return Err(ProbeError::NotMounted("cgroup v1 with cpuacct and memory"));
            }
            continue;
        };
        let path = mount.join(name);
        match make(&path, (controller == "cpuset").then_some(mount.as_path())) {
            Ok(()) => drop(dirs.insert(controller.to_owned(), path)),
            Err(source) if is_needed => return Err(ProbeError::Make { path, source }),
            // The other controllers are optional.
            Err(_) => {}
        }
    }
    let set_cpus = |(dir, cpus): (&PathBuf, &CpuSet)| {
        widen(dir, cpus).and_then(|()| fs::write(dir.join("cgroup.clone_children"), "1")).is_ok()
    };
    let has_cpuset = dirs.get("cpuset").zip(enforced.cpus).is_some_and(set_cpus);
    if !has_cpuset && let Some(dir) = dirs.remove("cpuset") {
        let _jobs_are_inside = fs::remove_dir(dir);
    }
    let devices = if dirs.contains_key("devices") { Ok(()) } else { Err("no devices cgroup can be made".to_owned()) };
    Ok(Parent { has_cpuset, devices, ..Parent::new(Kind::V1, dirs) })
}

/// Sets the CPUs of a cpuset; CPUs that running jobs inside still use are kept.
fn widen(dir: &Path, cpus: &CpuSet) -> io::Result<()> {
    let file = dir.join("cpuset.cpus");
    let narrowed = fs::write(&file, cpulist::print(cpus));
    narrowed.or_else(|refused| {
        let mut all = cpulist::parse(fs::read_to_string(&file)?.trim()).map_err(|_| refused)?;
        all.extend(cpus);
        fs::write(&file, cpulist::print(&all))
    })
}

/// Creates `path`. In a cpuset hierarchy each level needs CPUs and memory nodes before a process can enter.
fn make(path: &Path, cpuset_root: Option<&Path>) -> io::Result<()> {
    fs::create_dir_all(path)?;
    let Some(root) = cpuset_root else { return Ok(()) };
    let below = path.strip_prefix(root).unwrap_or(Path::new(""));
    let mut level = root.to_owned();
    for part in below {
        let parent = level.clone();
        level.push(part);
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let is_empty = fs::read_to_string(level.join(file))?.trim().is_empty();
            if is_empty {
                fs::write(level.join(file), fs::read_to_string(parent.join(file))?.trim())?;
            }
        }
    }
    Ok(())
}

fn probe_v2(mounts: &str, own: &str, name: &str, enforced: EnforcedResources<'_>) -> Result<Parent, ProbeError> {
    let mount = find_mount(mounts, "cgroup2", None).ok_or(ProbeError::NotMounted("cgroup v2"))?;
    let own_path = Path::new(own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or(""));
    // systemd has started the agent there (DelegateSubgroup=), or an agent has moved there.
    let is_below = own_path.file_name().is_some_and(|name| name == SUBGROUP);
    let base = mount.join(own_path.parent().filter(|_| is_below).unwrap_or(own_path));
    let path = base.join(name);
    fs::create_dir_all(&path).map_err(|source| ProbeError::Make { path: path.clone(), source })?;
    let is_root = own_path.as_os_str().is_empty();
    if !is_root && !is_below {
        // A cgroup that holds processes cannot delegate controllers, so the agent moves one level down.
        let agent = base.join(SUBGROUP);
        let _without_controllers = fs::create_dir_all(&agent).and_then(|()| fs::write(agent.join("cgroup.procs"), "0"));
    }
    let mut level = base.clone();
    enable_controllers(&level);
    for part in Path::new(name) {
        level.push(part);
        enable_controllers(&level);
    }
    let set_cpus = |cpus: &CpuSet| fs::write(path.join("cpuset.cpus"), cpulist::print(cpus)).is_ok();
    let has_cpuset = enforced.cpus.is_some_and(set_cpus);
    let has_cpuset = has_cpuset && passes_on(&path, "cpuset");
    let refused = |error| format!("the kernel refuses the program that would close them: {error}");
    let devices = match enforced.devices {
        true => device_program::probe(&path).map_err(refused),
        false => Err("there are no files to close".to_owned()),
    };
    Ok(Parent { has_cpuset, devices, ..Parent::new(Kind::V2, BTreeMap::from([(String::new(), path)])) })
}

/// The cgroup of the agent itself, below the one that is delegated to it: cgroups of jobs are beside it, so that the
/// delegated one has no processes.
const SUBGROUP: &str = "limber-agent";

fn enable_controllers(dir: &Path) {
    for controller in ["memory", "pids", "cpuset"] {
        // Controllers that are not delegated stay disabled; CPU time is counted in any case.
        let _not_delegated = fs::write(dir.join("cgroup.subtree_control"), format!("+{controller}"));
    }
}

/// Returns whether child cgroups may use a controller of v2.
fn passes_on(dir: &Path, controller: &str) -> bool {
    let controllers = fs::read_to_string(dir.join("cgroup.subtree_control")).unwrap_or_default();
    controllers.split_whitespace().any(|name| name == controller)
}

/// Returns where a hierarchy is mounted: `device path type options …`.
fn find_mount(mounts: &str, kind: &str, option: Option<&str>) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (path, found, options) = (fields.next()?, fields.next()?, fields.next()?);
        let has_option = option.is_none_or(|wanted| options.split(',').any(|option| option == wanted));
        (found == kind && has_option).then(|| PathBuf::from(path))
    })
}

impl Parent {
    /// Returns a parent that enforces nothing.
    pub(super) fn new(kind: Kind, dirs: BTreeMap<String, PathBuf>) -> Parent {
        Parent { kind, dirs, has_cpuset: false, devices: Err("there are no cgroups".to_owned()) }
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns whether a cpuset confines all processes inside to the configured CPUs.
    pub fn has_cpuset(&self) -> bool {
        self.has_cpuset
    }

    /// Checks whether device files can be closed to jobs.
    ///
    /// # Errors
    /// They cannot be closed; the text says why.
    pub fn closes_devices(&self) -> Result<(), &str> {
        self.devices.as_ref().copied().map_err(String::as_str)
    }

    /// Returns whether the memory of jobs can be limited to what they request.
    pub fn limits_memory(&self) -> bool {
        match self.kind {
            Kind::V1 => self.dirs.get("memory").is_some_and(|dir| dir.join("memory.limit_in_bytes").exists()),
            Kind::V2 => self.counts_memory(),
            Kind::None => false,
        }
    }

    fn counts_memory(&self) -> bool {
        self.dirs.get("").is_some_and(|dir| passes_on(dir, "memory"))
    }

    /// # Errors
    /// The kernel refuses.
    pub fn make(&self, name: &str) -> io::Result<Cgroup> {
        let cgroup = self.at(name);
        cgroup.dirs.iter().try_for_each(fs::create_dir_all)?;
        Ok(cgroup)
    }

    /// Returns the names of all cgroups inside.
    pub fn names(&self) -> BTreeSet<String> {
        // In all hierarchies: a process that was entering or leaving may have kept only one directory of a cgroup.
        let entries = self.dirs.values().filter_map(|dir| fs::read_dir(dir).ok()).flatten().flatten();
        let is_dir = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        entries.filter(is_dir).filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// Returns the directories, one in each hierarchy.
    pub fn dirs(&self) -> impl Iterator<Item = &PathBuf> {
        self.dirs.values()
    }

    /// Returns the cgroup of this name, which may not exist.
    pub fn at(&self, name: &str) -> Cgroup {
        let dir = |controller: &str| self.dirs.get(controller).map(|dir| dir.join(name));
        let (cpuacct, memory, pids) = match self.kind {
            Kind::V1 => (dir("cpuacct"), dir("memory"), dir("pids")),
            Kind::V2 => (dir(""), dir("").filter(|_| self.counts_memory()), dir("")),
            Kind::None => (None, None, None),
        };
        let cpuset = match self.kind {
            Kind::V1 => dir("cpuset"),
            Kind::V2 => dir("").filter(|_| self.has_cpuset),
            Kind::None => None,
        };
        let devices = match self.kind {
            Kind::V1 => dir("devices"),
            Kind::V2 => dir("").filter(|_| self.devices.is_ok()),
            Kind::None => None,
        };
        let dirs = self.dirs.values().map(|dir| dir.join(name)).collect();
        Cgroup { kind: self.kind, dirs, cpuacct, memory, pids, cpuset, devices }
    }

    /// Marks the directories as those of a live agent. Returns `None` if another agent has just removed them as those
    /// of a dead agent: probe again.
    ///
    /// # Errors
    /// The directories cannot be locked.
    pub fn claim(&self) -> io::Result<Option<Claim>> {
        claim::claim(self.dirs.values())
    }

    /// Removes the empty cgroups left next to this one by killed agents.
    pub fn remove_stale(&self) {
        self.dirs.values().for_each(|dir| claim::remove_stale_beside(dir));
    }

    /// Removes the parent itself, unless it still has cgroups inside.
    pub fn remove(&self) {
        for dir in self.dirs.values() {
            let _still_used = fs::remove_dir(dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
        cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0\n\
        cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n\
        cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n";

    #[test]
    fn hierarchies_are_found_by_type_and_controller() {
        let find = |kind, option| find_mount(MOUNTS, kind, option).map(|path| path.display().to_string());
        assert_eq!(find("cgroup", Some("cpuacct")).as_deref(), Some("/sys/fs/cgroup/cpu,cpuacct"));
        assert_eq!(find("cgroup2", None).as_deref(), Some("/sys/fs/cgroup/unified"));
        assert_eq!(find("cgroup", Some("pids")), None);
    }

    #[test]
    fn jobs_are_beside_the_agent_whoever_has_put_it_into_its_subgroup() {
        for (own, moves) in [("0::/a/unit\n", true), ("0::/a/unit/limber-agent\n", false)] {
            let root = tempfile::tempdir().expect("a temporary directory");
            let mounts = format!("cgroup2 {} cgroup2 rw 0 0\n", root.path().display());
            let parent = probe_v2(&mounts, own, "limber/n1", EnforcedResources::default()).expect("it is made");
            let unit = root.path().join("a/unit");
            assert_eq!(parent.dirs.values().collect::<Vec<_>>(), [&unit.join("limber/n1")], "{own}");
            assert_eq!(unit.join("limber-agent/cgroup.procs").exists(), moves, "{own}");
            assert!(unit.join("cgroup.subtree_control").exists(), "{own}");
        }
    }

    #[test]
    fn without_hierarchies_one_kind_is_refused_and_auto_does_without() {
        assert!(matches!(probe_v1("", "x", EnforcedResources::default()), Err(ProbeError::NotMounted(_))));
        assert!(matches!(probe_v2("", "", "x", EnforcedResources::default()), Err(ProbeError::NotMounted(_))));
    }
}
