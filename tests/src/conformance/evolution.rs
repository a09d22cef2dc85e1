//! How vectors write evolution profiles and their placements.

use rms_core::plan::fit::Fit;
use rms_model::{Evolution, ExpandLimit, Profile, Span, Stage, Time};
use serde::Deserialize;

/// `[[seconds, hosts], …]`.
pub type Pairs = Vec<(i64, i64)>;

#[derive(Debug, PartialEq, Eq, Deserialize)]
pub struct Placement {
    pub start: i64,
    pub ep: Pairs,
    /// Not every schema has it: it follows from the others.
    #[serde(default)]
    pub completion: Option<i64>,
}

/// 1, 2, 3 or "inf".
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Limit {
    Factor(u32),
    Word(String),
}

impl Limit {
    pub fn parse(&self) -> Result<ExpandLimit, String> {
        let text = match self {
            Limit::Factor(factor) => factor.to_string(),
            Limit::Word(word) => word.clone(),
        };
        text.parse().map_err(|error: rms_model::evolution::ExpandLimitError| error.to_string())
    }
}

pub fn evolution(pairs: &Pairs) -> Result<Evolution, String> {
    let stage = |(secs, hosts): &(i64, i64)| {
        let hosts = u32::try_from(*hosts).map_err(|error| error.to_string())?;
        Ok(Stage { nodes: hosts, span: Span::from_secs(*secs) })
    };
    let stages = pairs.iter().map(stage).collect::<Result<_, String>>()?;
    Evolution::new(stages).map_err(|error| error.to_string())
}

pub fn profile(origin: i64, pairs: &Pairs) -> Profile {
    let pairs = pairs.iter().map(|(secs, hosts)| (Span::from_secs(*secs), *hosts));
    Profile::from_pairs(Time::from_secs(origin), pairs)
}

pub fn expect_placed(what: &str, fit: &Fit, expected: &Placement) -> Result<(), String> {
    let stage = |stage: &Stage| (stage.span.as_millis() / 1000, i64::from(stage.nodes));
    let actual = Placement {
        start: fit.start.as_secs(),
        ep: fit.expanded.stages().iter().map(stage).collect(),
        completion: expected.completion.map(|_| fit.completion().as_secs()),
    };
    if actual == *expected { Ok(()) } else { Err(format!("{what}: {actual:?} instead of {expected:?}")) }
}
