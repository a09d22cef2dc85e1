//! One cgroup for each supervisor and the job under it: counts what the whole tree uses, finds all of it.

mod claim;
mod meter;
mod probe;

use std::fs;
use std::io;
use std::path::PathBuf;

use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::topology::cpulist::{self, CpuSet};
pub use claim::Claim;
pub use meter::{Baseline, Meter};
pub use probe::{Parent, ProbeError, Wanted, WantedError, probe};

/// How this node keeps track of process trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    V1,
    V2,
    /// By being the sub-reaper of the tree.
    None,
}

/// The cgroup of one supervisor; a directory in each hierarchy of v1, one directory of v2, none at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    kind: Kind,
    dirs: Vec<PathBuf>,
    cpuacct: Option<PathBuf>,
    memory: Option<PathBuf>,
    pids: Option<PathBuf>,
    /// Where it keeps everything inside to some CPUs.
    #[serde(default)]
    cpuset: Option<PathBuf>,
}

impl Cgroup {
    /// No cgroup: every question is answered by the sub-reaper.
    pub fn none() -> Cgroup {
        Cgroup { kind: Kind::None, dirs: Vec::new(), cpuacct: None, memory: None, pids: None, cpuset: None }
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Moves the calling process in; what it forks is born inside. The first attach after a pause costs
    /// about 14 ms, so it is done before there is a job.
    ///
    /// # Errors
    /// The kernel refuses, or the directory is gone.
    pub fn enter(&self) -> io::Result<()> {
        self.dirs.iter().try_for_each(|dir| fs::write(dir.join("cgroup.procs"), "0"))
    }

    /// All processes inside.
    pub fn processes(&self) -> Vec<Pid> {
        let Some(dir) = self.dirs.first() else { return Vec::new() };
        let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).map(Pid::from_raw).collect()
    }

    /// Kills everything inside, the supervisor too.
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

    /// Keeps everything inside to these CPUs, if it can.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_cpus(&self, cpus: &CpuSet) -> io::Result<()> {
        let Some(dir) = &self.cpuset else { return Ok(()) };
        fs::write(dir.join("cpuset.cpus"), cpulist::print(cpus))
    }

    /// Lets nobody inside fork while the tree is being killed, or does so again.
    pub fn forbid_forks(&self, forbid: bool) {
        if let Some(dir) = &self.pids {
            // Without the controller the kill is repeated until it has caught up with the forks.
            let _best_effort = fs::write(dir.join("pids.max"), if forbid { "0" } else { "max" });
        }
    }

    /// Can this cgroup count for another job? The peak of memory in v2 stays for ever.
    pub fn can_start_over(&self) -> bool {
        self.kind != Kind::V2
    }

    /// Opens its counters.
    pub fn meter(&self) -> Meter {
        Meter::open(self.kind, self.cpuacct.as_deref(), self.memory.as_deref())
    }

    /// Removes it; it must be empty.
    ///
    /// # Errors
    /// It is not empty yet.
    pub fn remove(&self) -> io::Result<()> {
        for dir in &self.dirs {
            match fs::remove_dir(dir) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
