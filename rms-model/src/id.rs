//! Ids as newtypes, so that a node is never taken for a job.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The id after this one.
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
    /// A node (001: RID); it belongs to one cluster for ever.
    NodeId(u32)
);
id!(
    /// How many times the desired state of a node has changed; an agent ignores a lower one.
    Generation(u64)
);
id!(
    /// Which execution of a job this is: 1 at the first start, one more after each requeue. It fences
    /// the processes of an earlier execution from a later one.
    Run(u32)
);
