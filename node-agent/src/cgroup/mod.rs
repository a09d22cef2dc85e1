//! One cgroup for each supervisor and the job under it: counts what the whole tree uses, finds all of it.

mod claim;
mod probe;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::unistd::Pid;
use rms_model::{Span, Usage};
use serde::{Deserialize, Serialize};

pub use claim::Claim;
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
}

/// The counters at the start of a job; what a supervisor served before is not the next job's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Baseline {
    cpu_micros: u64,
}

impl Cgroup {
    /// No cgroup: every question is answered by the sub-reaper.
    pub fn none() -> Cgroup {
        Cgroup { kind: Kind::None, dirs: Vec::new(), cpuacct: None, memory: None, pids: None }
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

    /// Starts to count.
    pub fn baseline(&self) -> Baseline {
        if let (Kind::V1, Some(dir)) = (self.kind, &self.memory) {
            let _an_older_peak_remains = fs::write(dir.join("memory.max_usage_in_bytes"), "0");
        }
        Baseline { cpu_micros: self.cpu_micros().unwrap_or(0) }
    }

    /// What was used since; `None` where no cgroup counts.
    pub fn usage(&self, since: Baseline) -> Option<Usage> {
        let micros = self.cpu_micros()?.saturating_sub(since.cpu_micros);
        let cpu = Span::from_millis(i64::try_from(micros.div_ceil(1000)).unwrap_or(i64::MAX));
        let memory_file = match self.kind {
            Kind::V1 => "memory.max_usage_in_bytes",
            Kind::V2 => "memory.peak",
            Kind::None => return None,
        };
        let peak = self.memory.as_ref().and_then(|dir| read_number(&dir.join(memory_file)));
        Some(Usage { cpu, peak_memory_kib: peak.unwrap_or(0) / 1024 })
    }

    fn cpu_micros(&self) -> Option<u64> {
        let dir = self.cpuacct.as_ref()?;
        match self.kind {
            Kind::V1 => Some(read_number(&dir.join("cpuacct.usage"))? / 1000),
            Kind::V2 => {
                let text = fs::read_to_string(dir.join("cpu.stat")).ok()?;
                text.lines().find_map(|line| line.strip_prefix("usage_usec "))?.trim().parse().ok()
            }
            Kind::None => None,
        }
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

fn read_number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}
