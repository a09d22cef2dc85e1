//! Which waiting application may start before which: the queue's policy.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How a pass treats the queue. All of them place an application at its first hole; they differ in what it may pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// FCFS with repeated backfilling (001, Fig. 5): each pass places the queue anew, in its order. Nobody is promised
    /// a start.
    #[default]
    Views,
    /// Nothing passes a waiting application.
    Fcfs,
    /// Only the first application that has to wait has a reservation; others start now if they do not delay it.
    Easy,
    /// Every application is promised a start when it is first considered, and the promise only ever moves earlier.
    Conservative,
    /// As `views`; and who cannot start now starts at once on CPUs that running jobs lend, where that lowers slowdown
    /// (004).
    Slowdown,
}

/// A word that is none of the policies'.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is no policy: write views, fcfs, easy, conservative or slowdown")]
pub struct UnknownPolicy(pub String);

impl Policy {
    /// Every policy.
    pub const ALL: [Policy; 5] = [Policy::Views, Policy::Fcfs, Policy::Easy, Policy::Conservative, Policy::Slowdown];

    /// The word for it in settings and on the command line.
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
