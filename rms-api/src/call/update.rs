//! What of a job is to be changed: each thing that is said, and nothing else.

use std::fmt;

use serde::{Deserialize, Serialize};

/// All of it, or nothing. What is absent stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Changes {
    pub priority: Option<i32>,
}

impl Changes {
    pub fn of_priority(priority: i32) -> Changes {
        Changes { priority: Some(priority) }
    }
}

/// As the audit tells them.
impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.priority.map_or(Ok(()), |priority| write!(f, "priority={priority}"))
    }
}
