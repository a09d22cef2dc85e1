//! The benefit of malleable jobs: workloads through the production core with a part of their jobs malleable, compared
//! with none.
//!
//! The server is the core with its passes, offers and shrinks; its own end answers for the applications, as it does for
//! jobs that are only told their size. A job's work follows its declared speed-up, and each change of its nodes costs
//! it a pause in which no work is done.

mod jobs;
mod nbody;
mod study;

pub use jobs::{GainJobs, Nature};
pub use nbody::nbody;
pub use study::{Measured, Metric, Row, Spread, Study};
