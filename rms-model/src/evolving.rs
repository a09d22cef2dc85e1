//! The announcement of an application with changing needs: its profile, and how that may be changed to be placed.

use serde::{Deserialize, Serialize};

use crate::evolution::{Evolution, ExpandLimit, Expansion};

/// An evolving application as it was announced (000 and 003: the requested EP).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Evolving {
    pub stages: Evolution,
    pub expansion: Expansion,
    /// More stages may follow: the profile ends the job unless it is extended before its end.
    pub open: bool,
}

impl Default for Expansion {
    /// A stage may last twice as long as requested, and nothing is compacted: `mic` in 003.
    fn default() -> Expansion {
        Expansion { limit: ExpandLimit::TWICE, compacting: false }
    }
}
