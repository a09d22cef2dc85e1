//! One cgroup for each supervisor and its job: counts the resource usage of the whole process tree, and finds all of
//! its processes.

mod claim;
mod device_program;
mod meter;
mod probe;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::sys::stat::{major, minor};
use nix::unistd::Pid;
use rms_model::Mebibytes;
use serde::{Deserialize, Serialize};

use crate::topology::cpulist::{self, CpuSet};
pub use claim::Claim;
pub use meter::{Baseline, Meter};
pub use probe::{CgroupMode, CgroupModeError, EnforcedResources, Parent, ProbeError, probe};

/// The most memory that a supervisor itself needs.
const OWN_MIB: u64 = 4;
/// The most bytes left by one job that may be charged to the next.
const MOST_LEFT_OVER: u64 = 4 << 20;

/// How this node keeps track of process trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    V1,
    V2,
    /// The supervisor is the sub-reaper of the tree.
    None,
}

/// The cgroup of one supervisor: a directory in each v1 hierarchy, one v2 directory, or none at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    kind: Kind,
    dirs: Vec<PathBuf>,
    cpuacct: Option<PathBuf>,
    memory: Option<PathBuf>,
    pids: Option<PathBuf>,
    /// The directory that confines the processes inside to some CPUs.
    #[serde(default)]
    cpuset: Option<PathBuf>,
    /// The directory that closes device files to the processes inside.
    #[serde(default)]
    devices: Option<PathBuf>,
}

/// The kernel's identification of a device file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeviceNumber {
    pub is_block: bool,
    pub major: u64,
    pub minor: u64,
}

impl DeviceNumber {
    /// Returns the number of a device file; `None` if it is not a device file or does not exist.
    pub fn of(path: &Path) -> Option<DeviceNumber> {
        let metadata = fs::metadata(path).ok()?;
        let is_block = metadata.file_type().is_block_device();
        let number = metadata.rdev();
        let is_device = is_block || metadata.file_type().is_char_device();
        is_device.then(|| DeviceNumber { is_block, major: major(number), minor: minor(number) })
    }

    /// Returns the number as written in the kernel's rules.
    fn rule(self) -> String {
        let kind = if self.is_block { 'b' } else { 'c' };
        format!("{kind} {}:{} rwm", self.major, self.minor)
    }
}

impl Cgroup {
    /// Returns a `Cgroup` without directories: the sub-reaper keeps track of the processes.
    pub fn none() -> Cgroup {
        let dirs = Vec::new();
        Cgroup { kind: Kind::None, dirs, cpuacct: None, memory: None, pids: None, cpuset: None, devices: None }
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Moves the calling process into the cgroup; its future children start there. The first attach after a pause costs
    /// about 14 ms, so it is done before there is a job.
    ///
    /// # Errors
    /// The kernel refuses, or the directory does not exist any more.
    pub fn enter(&self) -> io::Result<()> {
        self.dirs.iter().try_for_each(|dir| fs::write(dir.join("cgroup.procs"), "0"))
    }

    /// Returns all processes inside.
    pub fn processes(&self) -> Vec<Pid> {
        let Some(dir) = self.dirs.first() else { return Vec::new() };
        let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).map(Pid::from_raw).collect()
    }

    /// Kills all processes inside, including the supervisor.
    pub fn kill_all(&self) {
        if self.kind == Kind::V2
            && let Some(dir) = self.dirs.first()
            && fs::write(dir.join("cgroup.kill"), "1").is_ok()
        {
            return;
        }
        for pid in self.processes() {
            let _gone_already = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
    }

    /// Confines all processes inside to these CPUs, if cpusets are available.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_cpus(&self, cpus: &CpuSet) -> io::Result<()> {
        let Some(dir) = &self.cpuset else { return Ok(()) };
        fs::write(dir.join("cpuset.cpus"), cpulist::print(cpus))
    }

    /// Closes these device files to all processes inside, and reopens those that were closed `before`, if device
    /// control is available.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_devices(&self, before: &BTreeSet<DeviceNumber>, closed: &BTreeSet<DeviceNumber>) -> io::Result<()> {
        let Some(dir) = &self.devices else { return Ok(()) };
        let set = |file: &str, number: &DeviceNumber| fs::write(dir.join(file), number.rule());
        match self.kind {
            Kind::V1 => {
                before.difference(closed).try_for_each(|number| set("devices.allow", number))?;
                closed.difference(before).try_for_each(|number| set("devices.deny", number))
            }
            Kind::V2 => device_program::close(dir, closed),
            Kind::None => Ok(()),
        }
    }

    /// Returns whether the cgroup can limit the memory of jobs.
    pub fn limits_memory(&self) -> bool {
        self.memory.is_some()
    }

    /// Forbids forks inside while the tree is being killed, or allows them again. Returns false if that is impossible.
    pub fn forbid_forks(&self, forbid: bool) -> bool {
        let limit = if forbid { "0" } else { "max" };
        self.pids.as_ref().is_some_and(|dir| fs::write(dir.join("pids.max"), limit).is_ok())
    }

    /// Limits the processes inside to this much memory and no swap; 0 for no limit.
    ///
    /// # Errors
    /// The kernel refuses, or no memory controller is available.
    pub fn limit_memory(&self, limit: Mebibytes) -> io::Result<()> {
        let Some(dir) = &self.memory else { return Err(io::ErrorKind::Unsupported.into()) };
        // The supervisor is inside, too.
        let bytes = limit.0.saturating_add(OWN_MIB).saturating_mul(1 << 20).to_string();
        let is_limited = limit > Mebibytes(0);
        match self.kind {
            Kind::None => Err(io::ErrorKind::Unsupported.into()),
            Kind::V1 => {
                // The limit of memory and swap together must not be below that of memory; not every kernel counts them.
                let both = dir.join("memory.memsw.limit_in_bytes");
                let before = fs::read_to_string(&both);
                let _not_counted = fs::write(&both, "-1");
                let limited = fs::write(dir.join("memory.limit_in_bytes"), if is_limited { &bytes } else { "-1" });
                let both_bytes = match &limited {
                    Ok(()) => is_limited.then_some(bytes),
                    // The job takes more than that now: everything stays as it was.
                    Err(_) => before.ok(),
                };
                let _not_counted = both_bytes.map(|bytes| fs::write(&both, bytes.trim()));
                limited
            }
            Kind::V2 => {
                // Otherwise the kernel would kill processes to enforce the limit.
                if is_limited && in_use(dir) > limit.0.saturating_add(OWN_MIB).saturating_mul(1 << 20) {
                    return Err(io::ErrorKind::ResourceBusy.into());
                }
                let _not_counted = fs::write(dir.join("memory.swap.max"), if is_limited { "0" } else { "max" });
                fs::write(dir.join("memory.max"), if is_limited { &bytes } else { "max" })
            }
        }
    }

    /// Returns how many processes inside the kernel has killed so far because they were out of memory.
    pub fn n_out_of_memory(&self) -> u64 {
        let file = match self.kind {
            Kind::V1 => "memory.oom_control",
            Kind::V2 => "memory.events",
            Kind::None => return 0,
        };
        let text = self.memory.as_ref().and_then(|dir| fs::read_to_string(dir.join(file)).ok()).unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok()).unwrap_or(0)
    }

    /// Returns whether this cgroup can be reused for another job. In v2 the peak memory is never reset.
    pub fn can_start_over(&self) -> bool {
        self.kind != Kind::V2
    }

    /// Returns whether a job with this peak in bytes may have left shared memory or pages of files behind. In v1 they are
    /// charged here as long as they exist: they would reduce what the next job may use, and nobody could say what its
    /// peak is. The lengthy statistics are read only after a job that can have left that much.
    pub fn has_left_over(&self, peak: u64) -> bool {
        if self.kind != Kind::V1 || peak < 2 * MOST_LEFT_OVER {
            return false;
        }
        let stat = self.memory.as_ref().and_then(|dir| fs::read_to_string(dir.join("memory.stat")).ok());
        // Of files and of shared memory alike.
        let cache = stat.as_ref().and_then(|stat| stat.lines().find_map(|line| line.strip_prefix("cache ")));
        cache.and_then(|bytes| bytes.trim().parse::<u64>().ok()).is_some_and(|bytes| bytes >= MOST_LEFT_OVER)
    }

    /// Opens the counters.
    pub fn meter(&self) -> Meter {
        Meter::open(self.kind, self.cpuacct.as_deref(), self.memory.as_deref())
    }

    /// Removes the cgroup, which must be empty.
    ///
    /// # Errors
    /// The cgroup is not empty yet.
    pub fn remove(&self) -> io::Result<()> {
        let remove = |dir: &PathBuf| match fs::remove_dir(dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        };
        // Removes every directory that can be removed, even if others stay.
        let removed: Vec<io::Result<()>> = self.dirs.iter().map(remove).collect();
        removed.into_iter().collect()
    }
}

/// Returns the bytes that processes inside use in v2, except for those that the kernel can write back to files.
fn in_use(dir: &Path) -> u64 {
    let current = fs::read_to_string(dir.join("memory.current")).ok().and_then(|text| text.trim().parse::<u64>().ok());
    let stat = fs::read_to_string(dir.join("memory.stat")).unwrap_or_default();
    let counted = |name: &str| {
        let value = stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        value.unwrap_or(0)
    };
    let of_files = counted("file ").saturating_sub(counted("shmem "));
    current.unwrap_or(0).saturating_sub(of_files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_hierarchy_keeps_is_found_when_the_others_are_gone() {
        let dir = tempfile::tempdir().expect("a directory");
        let dirs = ["cpu", "cpuacct", "pids"].map(|name| (name.to_owned(), dir.path().join(name)));
        let parent = Parent::new(Kind::V1, dirs.into());
        let cgroup = parent.at("seat");
        cgroup.dirs.iter().for_each(|dir| fs::create_dir_all(dir).expect("a directory"));
        // Stands in for a process.
        let busy = dir.path().join("cpuacct/seat/busy");
        fs::write(&busy, "").expect("a file");
        assert!(cgroup.remove().is_err());
        assert!(!dir.path().join("cpu/seat").exists() && !dir.path().join("pids/seat").exists());
        assert_eq!(parent.names().into_iter().collect::<Vec<_>>(), ["seat"]);
        fs::remove_file(busy).expect("it is there");
        assert!(cgroup.remove().is_ok() && parent.names().is_empty());
    }

    #[test]
    fn memory_that_a_job_leaves_in_a_cgroup_of_v1_is_noticed() {
        let dir = tempfile::tempdir().expect("a directory");
        let has_left_over = |kind: Kind, peak: u64, cache: u64| {
            fs::write(dir.path().join("memory.stat"), format!("cache {}\nshmem 0\n", cache << 20)).expect("ours");
            memory_of(kind, dir.path()).has_left_over(peak << 20)
        };
        assert!(has_left_over(Kind::V1, 900, 4) && has_left_over(Kind::V1, 9, 8));
        assert!(!has_left_over(Kind::V1, 900, 0) && !has_left_over(Kind::V1, 900, 3), "the supervisor has as much");
        assert!(!has_left_over(Kind::V2, 900, 800), "each job has its own");
        assert!(!Cgroup::none().has_left_over(900 << 20));
    }

    #[test]
    fn of_device_files_only_what_changes_is_written_in_v1() {
        assert_eq!(DeviceNumber::of(Path::new("/dev/null")).map(DeviceNumber::rule).as_deref(), Some("c 1:3 rwm"));
        assert_eq!(DeviceNumber::of(Path::new("/")), None);
        let dir = tempfile::tempdir().expect("a directory");
        let cgroup = Cgroup { kind: Kind::V1, devices: Some(dir.path().to_owned()), ..Cgroup::none() };
        let [one, two, three] = [1, 2, 3].map(|minor| DeviceNumber { is_block: true, major: 7, minor });
        cgroup.set_devices(&[one, three].into(), &[two, three].into()).expect("written");
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).expect("it was written");
        assert_eq!((read("devices.allow"), read("devices.deny")), ("b 7:1 rwm".to_owned(), "b 7:2 rwm".to_owned()));
    }

    fn memory_of(kind: Kind, dir: &Path) -> Cgroup {
        Cgroup { kind, memory: Some(dir.to_owned()), ..Cgroup::none() }
    }

    #[test]
    fn memory_is_limited_in_both_kinds_and_nowhere_else() {
        let dir = tempfile::tempdir().expect("a directory");
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).expect("it was written");
        let bytes = ((64 + OWN_MIB) << 20).to_string();
        let v2 = memory_of(Kind::V2, dir.path());
        v2.limit_memory(Mebibytes(64)).expect("written");
        assert_eq!((read("memory.max"), read("memory.swap.max")), (bytes.clone(), "0".to_owned()));
        fs::write(dir.path().join("memory.current"), (100_u64 << 20).to_string()).expect("ours");
        fs::write(dir.path().join("memory.stat"), format!("anon 1\nfile {}\nshmem 0\n", 40_u64 << 20)).expect("ours");
        v2.limit_memory(Mebibytes(60)).expect("the pages of files can go");
        let busy = v2.limit_memory(Mebibytes(50)).expect_err("its processes use more");
        assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy);
        v2.limit_memory(Mebibytes(0)).expect("written");
        assert_eq!((read("memory.max"), read("memory.swap.max")), ("max".to_owned(), "max".to_owned()));
        fs::write(dir.path().join("memory.events"), "low 0\nhigh 0\nmax 41\noom 3\noom_kill 2\n").expect("ours");
        assert_eq!(v2.n_out_of_memory(), 2);

        let v1 = memory_of(Kind::V1, dir.path());
        v1.limit_memory(Mebibytes(64)).expect("written");
        assert_eq!((read("memory.limit_in_bytes"), read("memory.memsw.limit_in_bytes")), (bytes.clone(), bytes));
        v1.limit_memory(Mebibytes(0)).expect("written");
        assert_eq!((read("memory.limit_in_bytes"), read("memory.memsw.limit_in_bytes")), ("-1".into(), "-1".into()));
        fs::write(dir.path().join("memory.oom_control"), "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n")
            .expect("ours");
        assert_eq!(v1.n_out_of_memory(), 5);
        assert!(Cgroup::none().limit_memory(Mebibytes(64)).is_err());
    }
}
