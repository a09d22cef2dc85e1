//! The random evolving applications of 003, §5.1.

use std::str::FromStr;

use rms_model::{Evolution, Span, Stage};
use thiserror::Error;

/// A range, with both ends included; all values in it are equally likely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub least: u32,
    pub most: u32,
}

/// Why a text is not a range.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is no range: write the least and the most, both above 0, as 15-20")]
pub struct NoRange(String);

impl FromStr for Range {
    type Err = NoRange;

    fn from_str(text: &str) -> Result<Range, NoRange> {
        let fail = || NoRange(text.chars().take(80).collect());
        let (least, most) = text.split_once('-').unwrap_or((text, text));
        let (least, most) = (least.parse().map_err(|_| fail())?, most.parse().map_err(|_| fail())?);
        if 0 < least && least <= most && most <= MOST { Ok(Range { least, most }) } else { Err(fail()) }
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.least, self.most)
    }
}

/// More than any experiment needs.
const MOST: u32 = 1_000_000;

/// The ranges from which each test is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranges {
    pub n_apps: Range,
    pub n_stages: Range,
    pub stage_secs: Range,
    pub stage_nodes: Range,
}

/// The ranges of the paper.
impl Default for Ranges {
    fn default() -> Ranges {
        let range = |least, most| Range { least, most };
        Ranges {
            n_apps: range(15, 20),
            n_stages: range(1, 10),
            stage_secs: range(500, 3600),
            stage_nodes: range(1, 75),
        }
    }
}

/// Draws one test after the other. The generator is SplitMix64, so that others can draw the same tests.
#[derive(Clone, Debug)]
pub struct EvolvingTests {
    state: u64,
    ranges: Ranges,
}

impl EvolvingTests {
    pub fn new(seed: u64, ranges: Ranges) -> EvolvingTests {
        EvolvingTests { state: seed, ranges }
    }

    /// Draws the applications of the next test, in the order of their submission; all are submitted at 0.
    pub fn draw(&mut self) -> Vec<Evolution> {
        (0..self.between(self.ranges.n_apps)).map(|_| self.application()).collect()
    }

    fn application(&mut self) -> Evolution {
        let n_stages = self.between(self.ranges.n_stages);
        let stages = (0..n_stages).map(|_| {
            let secs = self.between(self.ranges.stage_secs);
            let nodes = self.between(self.ranges.stage_nodes);
            Stage { nodes, span: Span::from_secs(secs.into()) }
        });
        Evolution::new(stages.collect()).expect("no stage is empty, and no profile has more stages than may be")
    }

    fn between(&mut self, Range { least, most }: Range) -> u32 {
        let n_values = u128::from(most - least) + 1;
        least + ((u128::from(self.next()) * n_values) >> 64) as u32
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
            let mut tests = EvolvingTests::new(seed, Ranges::default());
            (0..50).map(|_| tests.draw()).collect::<Vec<_>>()
        };
        assert_eq!(tests(7), tests(7));
        assert_ne!(tests(7), tests(8));
        let ranges = Ranges { n_apps: "3".parse().expect("a range"), ..Ranges::default() };
        assert_eq!(EvolvingTests::new(7, ranges).draw().len(), 3);
        for wrong in ["", "0-3", "4-3", "x", "1-2-3", "1-1000001"] {
            assert!(wrong.parse::<Range>().is_err(), "{wrong}");
        }
        for apps in tests(7) {
            assert!((15..=20).contains(&apps.len()));
            for app in apps {
                assert!((1..=10).contains(&app.stages().len()));
                assert!(app.stages().iter().all(|stage| (1..=75).contains(&stage.nodes)));
                assert!(app.stages().iter().all(|stage| (500_000..=3_600_000).contains(&stage.span.as_millis())));
            }
        }
    }
}
