//! Which applications the server offers idle nodes, and for which jobs it asks for nodes back (002).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Which applications are offered nodes that no waiting job needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OfferRule {
    /// None: applications that want more nodes request them.
    Never,
    /// All equally, weighted by the shares of their users.
    #[default]
    EqualShare,
    /// First the one with the fewest nodes above its minimum: the rule of the "agreement" policies.
    FewestAboveMinimum,
    /// First the one whose declared speed-up gains the most from one more node.
    Efficiency,
}

/// For which jobs running applications are asked to shrink. For a drained node they are always asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShrinkRule {
    /// For no job.
    Never,
    /// For the first waiting job; jobs of a lower priority are asked.
    Priority,
    /// For the first waiting job; all but jobs of a higher priority are asked.
    #[default]
    Queue,
}

/// The error for a word that is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is no such rule")]
pub struct UnknownRule(pub String);

impl OfferRule {
    /// All rules.
    pub const ALL: [OfferRule; 4] =
        [OfferRule::Never, OfferRule::EqualShare, OfferRule::FewestAboveMinimum, OfferRule::Efficiency];

    /// Returns the word in settings.
    pub fn name(self) -> &'static str {
        match self {
            OfferRule::Never => "never",
            OfferRule::EqualShare => "equal_share",
            OfferRule::FewestAboveMinimum => "fewest_above_minimum",
            OfferRule::Efficiency => "efficiency",
        }
    }
}

impl ShrinkRule {
    /// All rules.
    pub const ALL: [ShrinkRule; 3] = [ShrinkRule::Never, ShrinkRule::Priority, ShrinkRule::Queue];

    /// Returns the word in settings.
    pub fn name(self) -> &'static str {
        match self {
            ShrinkRule::Never => "never",
            ShrinkRule::Priority => "priority",
            ShrinkRule::Queue => "queue",
        }
    }
}

impl fmt::Display for OfferRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for ShrinkRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for OfferRule {
    type Err = UnknownRule;

    fn from_str(text: &str) -> Result<OfferRule, UnknownRule> {
        let named = OfferRule::ALL.into_iter().find(|rule| rule.name() == text);
        named.ok_or_else(|| UnknownRule(text.to_owned()))
    }
}

impl FromStr for ShrinkRule {
    type Err = UnknownRule;

    fn from_str(text: &str) -> Result<ShrinkRule, UnknownRule> {
        let named = ShrinkRule::ALL.into_iter().find(|rule| rule.name() == text);
        named.ok_or_else(|| UnknownRule(text.to_owned()))
    }
}
