//! The policy of the queue: which waiting application may start before which.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How a pass treats the queue. All policies place an application in its first hole; they differ in which others it may
/// pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// FCFS with repeated backfilling (001, Fig. 5): each pass places the queue again, in its order. No start is
    /// promised.
    #[default]
    Views,
    /// No application passes a waiting one.
    Fcfs,
    /// Only the first application that has to wait has a reservation; others start now if they do not delay it.
    Easy,
    /// Each application is promised a start when it is first considered, and the promise only ever moves earlier.
    Conservative,
    /// Like `views`; in addition, a job that cannot start now starts at once on CPUs lent by running jobs if that
    /// lowers the slowdown (004).
    Slowdown,
}

/// The error for a word that is not a policy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is no policy: write views, fcfs, easy, conservative or slowdown")]
pub struct UnknownPolicy(pub String);

impl Policy {
    /// All policies.
    pub const ALL: [Policy; 5] = [Policy::Views, Policy::Fcfs, Policy::Easy, Policy::Conservative, Policy::Slowdown];

    /// Returns the word in settings and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Views => "views",
            Policy::Fcfs => "fcfs",
            Policy::Easy => "easy",
            Policy::Conservative => "conservative",
            Policy::Slowdown => "slowdown",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Policy, UnknownPolicy> {
        let named = Policy::ALL.into_iter().find(|policy| policy.name() == text);
        named.ok_or_else(|| UnknownPolicy(text.to_owned()))
    }
}
