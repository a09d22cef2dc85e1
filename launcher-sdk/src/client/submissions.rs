//! Tells a job from another one that has its number: a server that was restored from a backup gives numbers again.

use std::collections::BTreeMap;

use rms_api::answer::JobChange;
use rms_model::{JobId, Time};

use crate::error::CallError;

/// When the jobs that a client follows or watches were submitted, as the first change of each says.
#[derive(Debug, Default)]
pub(super) struct Submissions(BTreeMap<JobId, Time>);

impl Submissions {
    /// # Errors
    /// The change is one of another job with the same number ([`CallError::OtherJob`]).
    pub(super) fn check(&mut self, change: &JobChange) -> Result<(), CallError> {
        let Some(submitted) = change.submitted else { return Ok(()) };
        match *self.0.entry(change.job).or_insert(submitted) == submitted {
            true => Ok(()),
            false => Err(CallError::OtherJob(change.job)),
        }
    }
}
