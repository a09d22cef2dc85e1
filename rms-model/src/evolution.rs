//! Evolution profiles: what an application needs, stage by stage (000 and 003: requested and expanded EP).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::profile::Block;
use crate::time::{ParseSpanError, Span, Time};

/// The stages of an application in their order, from its start. They are never merged, so that stage i of a plan is
/// stage i of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<Stage>", into = "Vec<Stage>")]
pub struct Evolution {
    stages: Vec<Stage>,
}

/// A number of nodes for a time. A stage of 0 nodes is a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stage {
    pub nodes: u32,
    pub span: Span,
}

/// How long a stage may be extended until the next one becomes possible, as a multiple of its duration (000: expand
/// limit; 003: stretch limit).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ExpandLimit {
    /// A stage lasts at most this many thousandths of what was requested, rounded down; at least 1000.
    Milli(#[serde(deserialize_with = "at_least_whole")] u32),
    /// A stage may be extended without limit.
    Infinite,
}

/// Clamps the factor: a stage is never shortened, nor extended by more than a factor of a thousand.
fn at_least_whole<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    Ok(u32::deserialize(from)?.clamp(1000, 1_000_000))
}

/// How a requested profile may be changed to be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Expansion {
    pub limit: ExpandLimit,
    /// Whether to start as late as the same completion allows (000 and 003: +c).
    pub compacting: bool,
}

/// The most stages of an application. A longer list is rejected instead of planned: on a crowded profile, the cost of
/// placing it grows with the number of stages times the steps of the profile.
pub const MAX_STAGES: usize = 1000;

/// The error for stages that are not a profile.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EvolutionError {
    #[error("stage {number} lasts {span}: a stage must last longer than zero and at most 100 years")]
    Duration { number: usize, span: Span },
    #[error("{n_stages} stages are more than the {MAX_STAGES} that are allowed")]
    TooMany { n_stages: usize },
    #[error("stage {number}, '{text}', is not NODESxDURATION; write for example 2x500s,8x1h,2x10m")]
    Stage { number: usize, text: String },
    #[error("stage {number}: {error}")]
    Span { number: usize, error: ParseSpanError },
}

impl Evolution {
    /// # Errors
    /// A stage has no duration or one of more than a hundred years, or there are too many stages.
    pub fn new(stages: Vec<Stage>) -> Result<Evolution, EvolutionError> {
        if stages.len() > MAX_STAGES {
            return Err(EvolutionError::TooMany { n_stages: stages.len() });
        }
        for (idx, Stage { span, .. }) in stages.iter().enumerate() {
            if *span <= Span::ZERO || *span > LONGEST_STAGE {
                return Err(EvolutionError::Duration { number: idx + 1, span: *span });
            }
        }
        Ok(Evolution { stages })
    }

    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    pub fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }

    /// Returns the number of nodes of the largest stage.
    pub fn peak(&self) -> u32 {
        self.stages.iter().map(|stage| stage.nodes).max().unwrap_or(0)
    }

    /// Returns the duration of all stages together.
    pub fn span(&self) -> Span {
        self.stages.iter().fold(Span::ZERO, |sum, stage| sum + stage.span)
    }

    /// Returns the area in nodes times milliseconds.
    pub fn area(&self) -> i128 {
        self.stages.iter().map(|stage| i128::from(stage.nodes) * i128::from(stage.span.as_millis())).sum()
    }

    /// Returns the application as a rigid one: its peak for the duration of all stages.
    pub fn rigid(&self) -> Evolution {
        let one = Stage { nodes: self.peak(), span: self.span() };
        Evolution { stages: if self.is_empty() { Vec::new() } else { vec![one] } }
    }

    /// Returns the same nodes with other durations, one for each stage; `None` if their number differs or one is zero.
    pub fn lasting(&self, spans: &[Span]) -> Option<Evolution> {
        let are_all = spans.len() == self.stages.len() && spans.iter().all(|span| *span > Span::ZERO);
        let stage = |(stage, span): (&Stage, &Span)| Stage { nodes: stage.nodes, span: *span };
        are_all.then(|| Evolution { stages: self.stages.iter().zip(spans).map(stage).collect() })
    }

    /// Returns the blocks that it occupies if it starts at `start` (003: the scheduled EP, delayed).
    pub fn blocks(&self, start: Time) -> impl Iterator<Item = Block> + '_ {
        self.stages.iter().scan(start, |from, stage| {
            let block = Block { from: *from, until: *from + stage.span, nodes: i64::from(stage.nodes) };
            *from = block.until;
            Some(block)
        })
    }
}

/// The longest stage: as long as any job may run.
const LONGEST_STAGE: Span = Span::MAX_WALL;

impl TryFrom<Vec<Stage>> for Evolution {
    type Error = EvolutionError;

    fn try_from(stages: Vec<Stage>) -> Result<Evolution, EvolutionError> {
        Evolution::new(stages)
    }
}

impl From<Evolution> for Vec<Stage> {
    fn from(evolution: Evolution) -> Vec<Stage> {
        evolution.stages
    }
}

/// Parses `2x500s,8x1h`: nodes and duration of each stage.
impl FromStr for Evolution {
    type Err = EvolutionError;

    fn from_str(text: &str) -> Result<Evolution, EvolutionError> {
        let stage = |(idx, part): (usize, &str)| {
            let fail = || EvolutionError::Stage { number: idx + 1, text: part.chars().take(40).collect() };
            let (nodes, span) = part.trim().split_once('x').ok_or_else(fail)?;
            let is_count = !nodes.is_empty() && nodes.bytes().all(|b| b.is_ascii_digit());
            let nodes = is_count.then(|| nodes.parse().ok()).flatten().ok_or_else(fail)?;
            let span = span.parse().map_err(|error| EvolutionError::Span { number: idx + 1, error })?;
            Ok(Stage { nodes, span })
        };
        let n_stages = text.split(',').count();
        if n_stages > MAX_STAGES {
            return Err(EvolutionError::TooMany { n_stages });
        }
        Evolution::new(text.split(',').enumerate().map(stage).collect::<Result<_, _>>()?)
    }
}

impl fmt::Display for Evolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (idx, Stage { nodes, span }) in self.stages.iter().enumerate() {
            let comma = if idx == 0 { "" } else { "," };
            write!(f, "{comma}{nodes}x{span}")?;
        }
        Ok(())
    }
}

impl ExpandLimit {
    /// No stage may be extended (000: noX; 003: nos).
    pub const NONE: ExpandLimit = ExpandLimit::Milli(1000);
    /// A stage may last twice as long (000: 2X; 003: mic).
    pub const TWICE: ExpandLimit = ExpandLimit::Milli(2000);

    /// Returns the longest time that a stage of `span` may last.
    pub fn longest(self, span: Span) -> Span {
        match self {
            ExpandLimit::Milli(milli) => {
                let millis = i128::from(span.as_millis()) * i128::from(milli.max(1000)) / 1000;
                Span::from_millis(i64::try_from(millis).unwrap_or(i64::MAX))
            }
            ExpandLimit::Infinite => Span::from_millis(i64::MAX),
        }
    }
}

/// The error for a text that is not an expand limit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{text}' is not an expand limit: write a number from 1 to 1000 with up to three decimals, or inf")]
pub struct ExpandLimitError {
    text: String,
}

/// Parses `1`, `1.5`, `inf`.
impl FromStr for ExpandLimit {
    type Err = ExpandLimitError;

    fn from_str(text: &str) -> Result<ExpandLimit, ExpandLimitError> {
        if text == "inf" {
            return Ok(ExpandLimit::Infinite);
        }
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let are_digits =
            |part: &str, most: usize| (1..=most).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        let digits = (are_digits(whole, 4) && are_digits(decimals, 3)).then(|| format!("{whole}{decimals:0<3}"));
        let milli = digits.and_then(|digits| digits.parse().ok()).filter(|milli| (1000..=1_000_000).contains(milli));
        milli.map(ExpandLimit::Milli).ok_or_else(|| ExpandLimitError { text: text.chars().take(40).collect() })
    }
}

impl fmt::Display for ExpandLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExpandLimit::Milli(milli) if milli % 1000 == 0 => write!(f, "{}", milli / 1000),
            ExpandLimit::Milli(milli) => {
                let decimals = format!("{:03}", milli % 1000);
                write!(f, "{}.{}", milli / 1000, decimals.trim_end_matches('0'))
            }
            ExpandLimit::Infinite => f.write_str("inf"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_read_and_print_as_users_write_them() {
        let check = |text: &str, printed: &str| {
            let evolution: Evolution = text.parse().expect(text);
            assert_eq!(evolution.to_string(), printed);
            assert_eq!(printed.parse::<Evolution>(), Ok(evolution));
        };
        check("2x500s,8x3600s,2x600s", "2x8m20s,8x1h,2x10m");
        check("1x01:00:00, 0x250ms", "1x1h,0x250ms");
        let evolution: Evolution = "2x500s,8x3600s".parse().expect("as above");
        assert_eq!((evolution.peak(), evolution.span()), (8, Span::from_secs(4100)));
        assert_eq!(evolution.area(), (2 * 500 + 8 * 3600) * 1000);
        assert_eq!(evolution.rigid().to_string(), "8x1h8m20s");
        let blocks: Vec<i64> = evolution.blocks(Time::from_secs(7)).map(|block| block.until.as_secs()).collect();
        assert_eq!(blocks, [507, 4107]);
    }

    #[test]
    fn a_bad_stage_is_named() {
        let check = |text: &str, expected: &str| {
            let error = text.parse::<Evolution>().expect_err(text).to_string();
            assert!(error.contains(expected), "{error}");
        };
        check("", "stage 1, ''");
        check("2x1h,", "stage 2, ''");
        check("2x1h,8*2h", "stage 2, '8*2h'");
        check("-2x1h", "stage 1");
        check("2x0s", "stage 1 lasts 0s");
        check("2x500d,2x200000d", "stage 2 lasts");
        check(&"1x1s,".repeat(MAX_STAGES), "more than the 1000");
    }

    #[test]
    fn limits_read_and_print() {
        for text in ["1", "2", "1.5", "1.005", "1000", "inf"] {
            assert_eq!(text.parse::<ExpandLimit>().expect(text).to_string(), text);
        }
        for text in ["", "0.9", "-1", "1.", ".5", "1.0005", "1000.1", "infinite", "1e3"] {
            assert!(text.parse::<ExpandLimit>().is_err(), "{text}");
        }
        assert_eq!(ExpandLimit::Milli(1500).longest(Span::from_millis(3)), Span::from_millis(4));
        let century = Span::MAX_WALL;
        assert!(ExpandLimit::Infinite.longest(century) > century);
    }
}
