//! Finds and ends the processes that belong to one test.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Ends, when dropped, every process whose command line or environment names the directory.
#[derive(Debug)]
pub struct Reaper {
    dir: PathBuf,
}

impl Reaper {
    pub fn new(dir: &Path) -> Reaper {
        Reaper { dir: dir.to_path_buf() }
    }

    /// Returns the pids of the test's processes, except this one.
    pub fn pids(&self) -> Vec<i32> {
        let name = self.dir.to_string_lossy().into_owned();
        let own = std::process::id() as i32;
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.filter(|pid| *pid != own && names(*pid, &name)).collect()
    }
}

fn names(pid: i32, name: &str) -> bool {
    let holds = |file: &str| {
        fs::read(format!("/proc/{pid}/{file}")).is_ok_and(|text| String::from_utf8_lossy(&text).contains(name))
    };
    holds("cmdline") || holds("environ")
}

impl Drop for Reaper {
    fn drop(&mut self) {
        // A process may fork during the search, so search until none is left; a zombie names nothing any more.
        for _ in 0..50 {
            let pids = self.pids();
            if pids.is_empty() {
                return;
            }
            for pid in pids {
                // The process may have ended already, which is the aim.
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

/// Returns whether the process exists and is not a zombie.
pub fn is_alive(pid: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}
