//! Whom the server offers idle nodes, and for whose sake it asks for nodes back (002).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Which applications are offered nodes that no waiting job needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OfferRule {
    /// Nobody: applications that want more ask for it.
    Never,
    /// Everybody equally, weighted by the shares of their users.
    #[default]
    EqualShare,
    /// First who holds the fewest nodes above its minimum: the rule of the "agreement" policies.
    FewestAboveMinimum,
    /// First who gains the most speed by one more node, as far as it has declared that.
    Efficiency,
}

/// For whom running applications are asked to shrink. For a drained node they always are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShrinkRule {
    /// For nobody.
    Never,
    /// For the first waiting job, by jobs of a lower priority.
    Priority,
    /// For the first waiting job, by everybody but jobs of a higher priority.
    #[default]
    Queue,
}

/// A word that is none of a rule's.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is no such rule")]
pub struct UnknownRule(pub String);

impl OfferRule {
    /// Every rule.
    pub const ALL: [OfferRule; 4] =
        [OfferRule::Never, OfferRule::EqualShare, OfferRule::FewestAboveMinimum, OfferRule::Efficiency];

    /// The word for it in settings.
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
    /// Every rule.
    pub const ALL: [ShrinkRule; 3] = [ShrinkRule::Never, ShrinkRule::Priority, ShrinkRule::Queue];

    /// The word for it in settings.
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
