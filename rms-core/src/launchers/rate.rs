//! Limits the call rate of launchers.

use rms_api::refusal::Refusal;
use rms_model::{JobId, Time};

use super::Launchers;
use crate::rate::{MAX_CALLS, MAX_SECONDS_EXCEEDED, RateDecision};
use crate::step::Step;

impl Launchers<'_> {
    /// Counts one more call of a launcher.
    ///
    /// # Errors
    /// There are too many calls; if that continues, the application is ended.
    pub(crate) fn count_call(&mut self, now: Time, step: &mut Step, job: JobId) -> Result<(), Refusal> {
        match self.jobs.context.call_rates.entry(job).or_default().call(now, MAX_CALLS) {
            RateDecision::Allowed => Ok(()),
            RateDecision::Refused => Err(Refusal::RateLimit { job, most: MAX_CALLS }),
            RateDecision::Ended => {
                let reason = format!(
                    "its launcher called more than {MAX_CALLS} times in each of {MAX_SECONDS_EXCEEDED} seconds"
                );
                self.jobs.end_for_violation(now, step, job, reason);
                Err(Refusal::RateLimit { job, most: MAX_CALLS })
            }
        }
    }
}
