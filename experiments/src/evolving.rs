//! The random evolving applications of 003, §5.1.

use rms_model::{Evolution, Span, Stage};

/// Draws one test after the other. The generator is SplitMix64, so that others can draw the same tests.
#[derive(Clone, Debug)]
pub struct EvolvingTests {
    state: u64,
}

/// From and to, both included.
const N_APPS: (u64, u64) = (15, 20);
const N_STAGES: (u64, u64) = (1, 10);
const STAGE_SECS: (u64, u64) = (500, 3600);
const STAGE_HOSTS: (u64, u64) = (1, 75);

/// The most hosts that a stage can need.
pub const LARGEST_STAGE: u32 = STAGE_HOSTS.1 as u32;

impl EvolvingTests {
    pub fn new(seed: u64) -> EvolvingTests {
        EvolvingTests { state: seed }
    }

    /// The applications of the next test, in the order of their submission; all are submitted at 0.
    pub fn draw(&mut self) -> Vec<Evolution> {
        (0..self.between(N_APPS)).map(|_| self.application()).collect()
    }

    fn application(&mut self) -> Evolution {
        let n_stages = self.between(N_STAGES);
        let stages = (0..n_stages).map(|_| {
            let secs = self.between(STAGE_SECS);
            let hosts = self.between(STAGE_HOSTS);
            Stage { hosts: hosts as u32, span: Span::from_secs(secs as i64) }
        });
        Evolution::new(stages.collect()).expect("no stage is shorter than 500 s")
    }

    fn between(&mut self, (least, most): (u64, u64)) -> u64 {
        let n_values = u128::from(most - least + 1);
        least + ((u128::from(self.next()) * n_values) >> 64) as u64
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_within_the_bounds_of_the_paper_and_depend_on_the_seed_alone() {
        let tests = |seed| {
            let mut tests = EvolvingTests::new(seed);
            (0..50).map(|_| tests.draw()).collect::<Vec<_>>()
        };
        assert_eq!(tests(7), tests(7));
        assert_ne!(tests(7), tests(8));
        for apps in tests(7) {
            assert!((15..=20).contains(&apps.len()));
            for app in apps {
                assert!((1..=10).contains(&app.stages().len()));
                assert!(app.stages().iter().all(|stage| (1..=75).contains(&stage.hosts)));
                assert!(app.stages().iter().all(|stage| (500_000..=3_600_000).contains(&stage.span.as_millis())));
            }
        }
    }
}
