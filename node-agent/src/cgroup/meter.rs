//! Reads what a cgroup has counted, through files that stay open from job to job.

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
}

/// The counters at the start of a job; what a supervisor served before is not the next job's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Baseline {
    cpu_micros: u64,
}

impl Meter {
    pub(super) fn open(kind: Kind, cpuacct: Option<&Path>, memory: Option<&Path>) -> Meter {
        let (cpu_name, peak_name) = match kind {
            Kind::V1 => ("cpuacct.usage", "memory.max_usage_in_bytes"),
            Kind::V2 => ("cpu.stat", "memory.peak"),
            Kind::None => return Meter { kind, cpu: None, peak: None },
        };
        let cpu = cpuacct.and_then(|dir| File::open(dir.join(cpu_name)).ok());
        // Only in v1 is the peak begun anew by writing.
        let peak = memory.and_then(|dir| {
            let is_reset = kind == Kind::V1;
            OpenOptions::new().read(true).write(is_reset).open(dir.join(peak_name)).ok()
        });
        Meter { kind, cpu, peak }
    }

    /// Starts to count.
    pub fn baseline(&self) -> Baseline {
        if let (Kind::V1, Some(peak)) = (self.kind, &self.peak) {
            let _an_older_peak_remains = peak.write_all_at(b"0", 0);
        }
        Baseline { cpu_micros: self.cpu_micros().unwrap_or(0) }
    }

    /// What was used since; `None` where no cgroup counts.
    pub fn usage(&self, since: Baseline) -> Option<Usage> {
        let micros = self.cpu_micros()?.saturating_sub(since.cpu_micros);
        let cpu = Span::from_millis(i64::try_from(micros.div_ceil(1000)).unwrap_or(i64::MAX));
        let peak = self.peak.as_ref().and_then(|peak| read(peak)?.trim().parse::<u64>().ok());
        Some(Usage { cpu, peak_memory_kib: peak.unwrap_or(0) / 1024 })
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

/// The counters are a few lines at most, which the kernel makes up at each read from the start.
fn read(file: &File) -> Option<String> {
    let mut text = vec![0; 4096];
    let n = file.read_at(&mut text, 0).ok()?;
    text.truncate(n);
    String::from_utf8(text).ok()
}
