//! What an experiment has cost this process: CPU time and memory.

use nix::sys::resource::{UsageWho, getrusage};

/// CPU seconds, of the user and the system, and the most memory that was ever resident.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    pub(super) cpu_s: f64,
    pub(super) peak_rss_mib: f64,
}

impl Cost {
    /// So far.
    pub(super) fn now() -> Cost {
        // The kernel refuses this to nobody for oneself; without it the figures are 0.
        let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Cost::default() };
        let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
        let cpu_s = seconds(usage.user_time()) + seconds(usage.system_time());
        Cost { cpu_s, peak_rss_mib: usage.max_rss() as f64 / 1024.0 }
    }

    /// Since `self` was taken.
    pub(super) fn until_now(self) -> Cost {
        let now = Cost::now();
        Cost { cpu_s: now.cpu_s - self.cpu_s, ..now }
    }
}
