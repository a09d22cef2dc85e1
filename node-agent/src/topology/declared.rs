//! Parses a declared topology (`pack:2 numa:2 core:24 pu:1`), which may replace the real one.

use thiserror::Error;

/// A declared machine; each number counts within the level before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declared {
    pub packs: u32,
    /// NUMA nodes in each pack.
    pub numa_per_pack: u32,
    /// Cores in each NUMA node, or in each pack if no `numa` is given.
    pub cores: u32,
    pub pus_per_core: u32,
}

/// Why a text is not a topology.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{text}' is not a topology: {problem}; write pack:2 core:24 pu:1, or pack:2 numa:2 core:12 pu:2")]
pub struct DeclaredError {
    text: String,
    problem: String,
}

/// The most logical CPUs that a node may declare.
const MAX_CPUS: u64 = 65_536;

impl Declared {
    /// # Errors
    /// An unknown, repeated or misplaced level, a count of zero, no `core`, more than 65,536 CPUs in all.
    pub fn parse(text: &str) -> Result<Declared, DeclaredError> {
        let fail = |problem: String| DeclaredError { text: text.chars().take(80).collect(), problem };
        let mut counts: [Option<u32>; LEVELS.len()] = [None; LEVELS.len()];
        let mut n_seen = 0;
        for part in text.split_whitespace() {
            let (level, count) =
                part.split_once(':').ok_or_else(|| fail(format!("'{part}' has no count after a colon")))?;
            let level_idx = LEVELS
                .iter()
                .position(|known| *known == level)
                .ok_or_else(|| fail(format!("there is no level '{level}'; the levels are pack, numa, core and pu")))?;
            if level_idx < n_seen {
                return Err(fail(format!("'{level}' comes twice or too late; the order is pack, numa, core, pu")));
            }
            let count = count.parse::<u32>().ok().filter(|count| *count > 0);
            counts[level_idx] = Some(count.ok_or_else(|| fail(format!("'{part}' needs a count of 1 or more")))?);
            n_seen = level_idx + 1;
        }
        let [packs, numa, cores, pus] = counts;
        let declared = Declared {
            packs: packs.unwrap_or(1),
            numa_per_pack: numa.unwrap_or(1),
            cores: cores.ok_or_else(|| fail("it says nothing of cores".to_owned()))?,
            pus_per_core: pus.unwrap_or(1),
        };
        let n_cpus = [declared.packs, declared.numa_per_pack, declared.cores, declared.pus_per_core]
            .iter()
            .fold(1_u64, |product, count| product.saturating_mul(u64::from(*count)));
        if n_cpus > MAX_CPUS {
            return Err(fail(format!("it has {n_cpus} CPUs, more than {MAX_CPUS}")));
        }
        Ok(declared)
    }

    pub fn numa_nodes(self) -> u32 {
        self.packs * self.numa_per_pack
    }

    pub fn cores(self) -> u32 {
        self.numa_nodes() * self.cores
    }

    pub fn cpus(self) -> u32 {
        self.cores() * self.pus_per_core
    }
}

/// From the outermost level to the innermost.
const LEVELS: [&str; 4] = ["pack", "numa", "core", "pu"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declaration_multiplies_from_the_outside_in() {
        let two_sockets = Declared::parse("pack:2 core:24 pu:1").expect("valid");
        assert_eq!((two_sockets.numa_nodes(), two_sockets.cores(), two_sockets.cpus()), (2, 48, 48));
        let numa = Declared::parse("pack:2 numa:2 core:12 pu:2").expect("valid");
        assert_eq!((numa.numa_nodes(), numa.cores(), numa.cpus()), (4, 48, 96));
        assert_eq!(Declared::parse("core:4").expect("valid").cpus(), 4);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, problem) in [
            ("", "nothing of cores"),
            ("pack:2", "nothing of cores"),
            ("socket:2 core:4", "no level 'socket'"),
            ("core:0", "'core:0' needs a count"),
            ("core", "'core' has no count"),
            ("core:4 pack:2", "'pack' comes twice or too late"),
            ("core:4 core:4", "'core' comes twice"),
            ("pack:99999 core:99999", "more than 65536"),
            ("core:-1", "needs a count"),
        ] {
            let error = Declared::parse(text).expect_err(text).to_string();
            assert!(error.contains(problem), "{error}");
        }
    }
}
