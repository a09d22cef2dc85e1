//! How often a launcher may call.

use rms_api::refusal::Refusal;
use rms_model::{JobId, Time};

use super::Launchers;
use crate::rate::{MOST_CALLS, MOST_EXCEEDED, Rate};
use crate::step::Step;

impl Launchers<'_> {
    /// One more call of a launcher.
    ///
    /// # Errors
    /// There are too many; if it goes on so, its application is ended.
    pub(crate) fn count_call(&mut self, now: Time, step: &mut Step, job: JobId) -> Result<(), Refusal> {
        match self.jobs.context.call_rates.entry(job).or_default().call(now, MOST_CALLS) {
            Rate::Allowed => Ok(()),
            Rate::Refused => Err(Refusal::RateLimit { job, most: MOST_CALLS }),
            Rate::Ended => {
                let reason =
                    format!("its launcher called more than {MOST_CALLS} times in each of {MOST_EXCEEDED} seconds");
                self.jobs.end_for_violation(now, step, job, reason);
                Err(Refusal::RateLimit { job, most: MOST_CALLS })
            }
        }
    }
}
