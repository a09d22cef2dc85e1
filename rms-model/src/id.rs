//! Ids as newtypes, so that a node is never taken for a job.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// Returns the next id.
            pub fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// An application in the system (001, §5.3.1), counted from 1 in the order of submission.
    JobId(u64)
);
id!(
    /// A cluster of equivalent nodes (001: CID).
    ClusterId(u16)
);
id!(
    /// A node (001: RID); its cluster never changes.
    NodeId(u32)
);
id!(
    /// The version of a node's desired state; an agent ignores a lower one.
    Generation(u64)
);
id!(
    /// Which execution of a job this is: 1 at the first start, one more after each requeue. It fences the processes of
    /// an earlier execution from a later one.
    Run(u32)
);

/// The error for a text that is not a job id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the id of a job is a number, like 7")]
pub struct BadJobId;

impl FromStr for JobId {
    type Err = BadJobId;

    /// Accepts only the displayed form: digits.
    fn from_str(text: &str) -> Result<JobId, BadJobId> {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse().ok()).flatten().map(JobId).ok_or(BadJobId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_job_is_read_as_it_is_shown() {
        for job in [JobId(0), JobId(7), JobId(u64::MAX)] {
            assert_eq!(job.to_string().parse(), Ok(job));
        }
        for text in ["", "+7", "-7", " 7", "7.1", "a1", "18446744073709551616"] {
            assert_eq!(text.parse::<JobId>(), Err(BadJobId), "{text}");
        }
    }
}
