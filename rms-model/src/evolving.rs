//! The announcement of an application with changing needs: its profile, and how the profile may be changed to be
//! placed.

use serde::{Deserialize, Serialize};

use crate::evolution::{Evolution, ExpandLimit, Expansion};

/// An evolving application as it was announced (000 and 003: the requested EP).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Evolving {
    pub stages: Evolution,
    pub expansion: Expansion,
    /// More stages may follow: the job ends with the profile unless that is extended in time.
    pub open: bool,
}

impl Default for Expansion {
    /// Lets a stage last twice as long as requested and compacts nothing: `mic` in 003.
    fn default() -> Expansion {
        Expansion { limit: ExpandLimit::TWICE, compacting: false }
    }
}
