//! Reads the counters of a cgroup through files that stay open across jobs.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rms_model::{Span, Usage};

use super::Kind;

/// The counters of one cgroup; without a cgroup there are none.
#[derive(Debug)]
pub struct Meter {
    kind: Kind,
    cpu: Option<File>,
    peak: Option<File>,
    /// How often the memory limit was reached.
    limited: Option<File>,
}

/// The counters at the start of a job, so that the usage of the supervisor's earlier jobs is not counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Baseline {
    cpu_micros: u64,
    /// Memory already in use, in bytes, such as pages of files that earlier jobs have read or written.
    left_over: u64,
    n_limited: u64,
}

impl Meter {
    pub(super) fn open(kind: Kind, cpuacct: Option<&Path>, memory: Option<&Path>) -> Meter {
        let (cpu_name, peak_name, limited_name) = match kind {
            Kind::V1 => ("cpuacct.usage", "memory.max_usage_in_bytes", "memory.failcnt"),
            Kind::V2 => ("cpu.stat", "memory.peak", "memory.events"),
            Kind::None => return Meter { kind, cpu: None, peak: None, limited: None },
        };
        let open = |dir: Option<&Path>, name: &str| File::open(dir?.join(name)).ok();
        // Older kernels with v2 do not allow resetting the peak.
        let begins_anew = |dir: &Path| OpenOptions::new().read(true).write(true).open(dir.join(peak_name)).ok();
        let peak = memory.and_then(begins_anew).or_else(|| open(memory, peak_name));
        Meter { kind, cpu: open(cpuacct, cpu_name), peak, limited: open(memory, limited_name) }
    }

    /// Starts a measurement.
    pub fn baseline(&self) -> Baseline {
        let has_begun_anew = self.peak.as_ref().is_some_and(|peak| peak.write_all_at(b"0", 0).is_ok());
        let left_over = if has_begun_anew { self.peak_bytes() } else { 0 };
        let n_limited = if left_over > 0 { self.n_limited() } else { 0 };
        Baseline { cpu_micros: self.cpu_micros().unwrap_or(0), left_over, n_limited }
    }

    /// Returns the usage since the baseline; `None` without a cgroup that counts.
    pub fn usage(&self, since: Baseline) -> Option<Usage> {
        let micros = self.cpu_micros()?.saturating_sub(since.cpu_micros);
        let cpu = Span::from_millis(i64::try_from(micros.div_ceil(1000)).unwrap_or(i64::MAX));
        let peak = self.peak_bytes();
        // If the limit was reached, the kernel has reclaimed the memory that was in use before.
        let is_beside = since.left_over > 0 && self.n_limited() == since.n_limited;
        let peak = if is_beside { peak.saturating_sub(since.left_over) } else { peak };
        Some(Usage { cpu, peak_memory_kib: peak / 1024 })
    }

    /// Returns the peak memory since the last job began, including what was in use before.
    pub fn peak_bytes(&self) -> u64 {
        self.peak.as_ref().and_then(|peak| read(peak)?.trim().parse().ok()).unwrap_or(0)
    }

    fn n_limited(&self) -> u64 {
        let text = self.limited.as_ref().and_then(read).unwrap_or_default();
        let count = match self.kind {
            Kind::V1 => Some(text.as_str()),
            Kind::V2 => text.lines().find_map(|line| line.strip_prefix("max ")),
            Kind::None => None,
        };
        count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    }

    fn cpu_micros(&self) -> Option<u64> {
        let text = read(self.cpu.as_ref()?)?;
        match self.kind {
            Kind::V1 => Some(text.trim().parse::<u64>().ok()? / 1000),
            Kind::V2 => text.lines().find_map(|line| line.strip_prefix("usage_usec "))?.trim().parse().ok(),
            Kind::None => None,
        }
    }
}

/// Reads a counter file: it has a few lines at most, which the kernel generates at each read from the start.
fn read(file: &File) -> Option<String> {
    let mut text = vec![0; 4096];
    let n = file.read_at(&mut text, 0).ok()?;
    text.truncate(n);
    String::from_utf8(text).ok()
}
