//! The cost of an experiment for this process: CPU time and memory.

use nix::sys::resource::{UsageWho, getrusage};

/// User and system CPU time in seconds, and the peak of resident memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    pub(super) cpu_s: f64,
    pub(super) peak_rss_mib: f64,
}

impl Cost {
    /// Returns the cost so far.
    pub(super) fn now() -> Cost {
        // The kernel allows this for the calling process; if it fails, the figures are 0.
        let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Cost::default() };
        let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
        let cpu_s = seconds(usage.user_time()) + seconds(usage.system_time());
        Cost { cpu_s, peak_rss_mib: peak_rss_mib().unwrap_or(0.0) }
    }

    /// Returns the cost since `self` was taken.
    pub(super) fn until_now(self) -> Cost {
        let now = Cost::now();
        Cost { cpu_s: now.cpu_s - self.cpu_s, ..now }
    }
}

/// Returns the peak memory of this program. The value of `getrusage` would include the memory of the process that
/// started it.
fn peak_rss_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let mark = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(mark.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()? / 1024.0)
}
