//! Identifies processes that another `rms` has started, so that only these are ended.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// Identifies a process uniquely: the kernel reuses pids, but not with the same start time in the same boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessRecord {
    pub pid: i32,
    /// When it started, in clock ticks since the boot.
    pub start_ticks: u64,
    pub boot: String,
}

/// A handle of a running process that never refers to another process.
#[derive(Debug)]
pub struct Handle {
    pidfd: OwnedFd,
}

impl ProcessRecord {
    /// Returns the process that has this pid now.
    ///
    /// # Errors
    /// There is no such process.
    pub fn of(pid: i32) -> io::Result<ProcessRecord> {
        Ok(ProcessRecord { pid, start_ticks: start_ticks(pid)?, boot: boot_id()? })
    }

    /// Returns a handle if the process still runs; `None` for a zombie.
    pub fn open(&self) -> Option<Handle> {
        self.handle().filter(|_| !is_zombie(self.pid))
    }

    fn handle(&self) -> Option<Handle> {
        let pidfd = pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::empty()).ok()?;
        // Checked after the handle was opened: from then on it cannot refer to another process.
        let is_same = ProcessRecord::of(self.pid).is_ok_and(|now| now == *self);
        is_same.then_some(Handle { pidfd })
    }

    /// Returns whether there is such a process, as [`ProcessRecord::is_running`].
    pub async fn is_any_running(record: Option<&ProcessRecord>) -> bool {
        match record {
            Some(record) => record.is_running().await,
            None => false,
        }
    }

    /// Returns whether it runs. Waits for the end of one that is being killed: its port and its locks are in use until
    /// then.
    pub async fn is_running(&self) -> bool {
        // One that has ended but for its threads still uses them.
        let Some(handle) = self.handle() else { return false };
        // Between the signal and the end of the process there is a moment in which neither can be seen.
        let is_dying = is_dying(self.pid) || {
            tokio::time::sleep(MOMENT).await;
            is_dying(self.pid)
        };
        // An end that takes longer is no end.
        !is_dying || handle.ended(LONGEST_END).await.is_err()
    }
}

impl Handle {
    /// Sends a signal. A process that has just ended needs none, so errors are ignored.
    pub fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.pidfd, signal);
    }

    /// Waits until the process ends.
    ///
    /// # Errors
    /// It still runs after `patience`, or cannot be waited for.
    pub async fn ended(self, patience: Duration) -> io::Result<()> {
        // On a separate thread, as the safe way to watch a descriptor is to block on it.
        let waited = tokio::task::spawn_blocking(move || wait_readable(&self.pidfd, patience)).await;
        waited.map_err(io::Error::other)?
    }
}

/// Waits until a pidfd is readable, which it is once its process has ended.
fn wait_readable(pidfd: &OwnedFd, patience: Duration) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        let left = patience.saturating_sub(begun.elapsed());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn start_ticks(pid: i32) -> io::Result<u64> {
    stat_field(pid, START_FIELD)?.parse().map_err(io::Error::other)
}

fn is_zombie(pid: i32) -> bool {
    stat_field(pid, 0).is_ok_and(|state| state == "Z" || state == "X")
}

/// Returns whether the process is about to end: a SIGKILL is pending, or the kernel is removing it.
fn is_dying(pid: i32) -> bool {
    let flags = stat_field(pid, FLAGS_FIELD).ok().and_then(|flags| flags.parse::<u64>().ok());
    // A process that is not there any more has ended, too.
    flags.is_none_or(|flags| flags & PF_EXITING != 0) || is_zombie(pid) || has_kill_pending(pid)
}

fn has_kill_pending(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending = status.lines().filter_map(|line| line.strip_prefix("SigPnd:").or(line.strip_prefix("ShdPnd:")));
    pending.filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok()).any(|mask| mask & KILL_MASK != 0)
}

/// Returns a field of `/proc/PID/stat`, counted from the state, which follows the name: the name may contain
/// any character.
fn stat_field(pid: i32, idx: usize) -> io::Result<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after_name = stat.rsplit_once(')').map(|(_, rest)| rest);
    let field = after_name.and_then(|rest| rest.split_whitespace().nth(idx));
    field.map(str::to_owned).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// Returns the parent of a process.
pub fn parent(pid: i32) -> Option<i32> {
    stat_field(pid, PARENT_FIELD).ok()?.parse().ok()
}

/// Field 22 of proc(5), counted from the state, which is field 3.
const START_FIELD: usize = 19;
/// Field 9: the flags of the kernel.
const FLAGS_FIELD: usize = 6;
/// See `include/linux/sched.h`.
const PF_EXITING: u64 = 0x4;
/// The bit of signal 9.
const KILL_MASK: u64 = 1 << 8;
const MOMENT: Duration = Duration::from_millis(5);
const LONGEST_END: Duration = Duration::from_secs(10);
const PARENT_FIELD: usize = 1;

fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[tokio::test]
    async fn a_recorded_process_is_known_and_ended_and_nobody_else() {
        let mut child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().expect("sleep starts");
        let record = ProcessRecord::of(child.id() as i32).expect("it runs");
        let other = ProcessRecord { start_ticks: record.start_ticks + 1, ..record.clone() };
        assert!(other.open().is_none(), "a later process with the same pid");
        let earlier_boot = ProcessRecord { boot: "another".into(), ..record.clone() };
        assert!(earlier_boot.open().is_none());
        let handle = record.open().expect("it runs");
        handle.signal(Signal::TERM);
        handle.ended(Duration::from_secs(10)).await.expect("it has ended");
        assert!(record.open().is_none(), "a zombie does not run");
        child.wait().expect("it is our child");
    }

    #[tokio::test]
    async fn waiting_for_one_that_stays_gives_up() {
        let mut child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().expect("sleep starts");
        let handle = ProcessRecord::of(child.id() as i32).expect("it runs").open().expect("it runs");
        let error = handle.ended(Duration::from_millis(20)).await.expect_err("it stays");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        child.kill().expect("it is our child");
        child.wait().expect("it is our child");
    }

    #[tokio::test]
    async fn a_process_that_is_being_killed_does_not_run() {
        for _ in 0..100 {
            let mut child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().expect("sleep starts");
            let record = ProcessRecord::of(child.id() as i32).expect("it runs");
            assert!(record.is_running().await);
            child.kill().expect("it is our child");
            assert!(!record.is_running().await, "it may take a while to go");
            child.wait().expect("it is our child");
        }
    }
}
