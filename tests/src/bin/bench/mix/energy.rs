//! The energy that the machine's packages have used, where the kernel tells it (RAPL).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Where the kernel tells it.
pub const POWERCAP: &str = "/sys/class/powercap";

/// The counters of all packages at one moment, in microjoules.
pub struct Energy {
    /// With the file of each, and the value after which it begins at 0 again.
    counters: Vec<(PathBuf, u64, u64)>,
}

impl Energy {
    /// # Errors
    /// There are no counters, or they may not be read.
    pub fn now(powercap: &Path) -> Result<Energy> {
        let folders = fs::read_dir(powercap).with_context(|| format!("cannot read {}", powercap.display()))?;
        let mut counters = Vec::new();
        for folder in folders {
            let folder = folder?;
            // What a package is made of (`intel-rapl:0:0`) is counted with it.
            let name = folder.file_name().to_string_lossy().into_owned();
            if name.starts_with("intel-rapl:") && name.matches(':').count() == 1 {
                let file = folder.path().join("energy_uj");
                let (count, most) = (number(&file)?, number(&folder.path().join("max_energy_range_uj"))?);
                counters.push((file, count, most));
            }
        }
        if counters.is_empty() {
            bail!("{} tells the energy of no package", powercap.display());
        }
        Ok(Energy { counters })
    }

    /// What was used since then, in joules, as long as no counter went round twice.
    ///
    /// # Errors
    /// As [`Energy::now`].
    pub fn since(&self) -> Result<f64> {
        let mut used = 0;
        for (file, before, most) in &self.counters {
            let now = number(file)?;
            used += if now >= *before { now - before } else { most - before + now };
        }
        Ok(used as f64 / 1e6)
    }
}

fn number(file: &Path) -> Result<u64> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    text.trim().parse().with_context(|| format!("no number in {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_summed_up_and_counters_go_round() {
        let powercap = tempfile::tempdir().expect("a directory");
        let put = |name: &str, count: u64| {
            let folder = powercap.path().join(name);
            fs::create_dir_all(&folder).expect("writable");
            fs::write(folder.join("energy_uj"), format!("{count}\n")).expect("writable");
            fs::write(folder.join("max_energy_range_uj"), "10000000\n").expect("writable");
        };
        assert!(Energy::now(powercap.path()).is_err());
        put("intel-rapl:0", 1_000_000);
        put("intel-rapl:0:0", 500_000);
        put("intel-rapl:1", 9_000_000);
        let before = Energy::now(powercap.path()).expect("two packages");
        put("intel-rapl:0", 3_000_000);
        put("intel-rapl:0:0", 1_500_000);
        put("intel-rapl:1", 500_000);
        assert_eq!(before.since().expect("two packages"), 2.0 + 1.5);
    }
}
