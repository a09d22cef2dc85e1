//! Bounds how often a launcher may call, in the core's own time.

use rms_api::refusal::Refusal;
use rms_model::{JobId, Outcome, Time};

use crate::rms::Rms;
use crate::step::Step;

/// The calls of one application in the present second, and since when there are too many.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallRate {
    second: i64,
    n_calls: u32,
    /// Seconds without a pause in which there were too many.
    n_exceeded: u32,
}

/// What is to become of a call.
pub(crate) enum Rate {
    Allowed,
    Refused,
    /// It has been told often enough.
    Ended,
}

impl CallRate {
    /// One more call, where `most` are allowed in a second.
    pub(crate) fn call(&mut self, now: Time, most: u32) -> Rate {
        let second = now.as_secs();
        if second != self.second {
            let was_exceeded = self.n_calls > most && second == self.second + 1;
            let n_exceeded = if was_exceeded { self.n_exceeded } else { 0 };
            *self = CallRate { second, n_calls: 0, n_exceeded };
        }
        self.n_calls = self.n_calls.saturating_add(1);
        let is_first_too_many = self.n_calls == most + 1;
        self.n_exceeded += u32::from(is_first_too_many);
        match self.n_calls <= most {
            true => Rate::Allowed,
            false if self.n_exceeded >= MOST_EXCEEDED => Rate::Ended,
            false => Rate::Refused,
        }
    }
}

impl Rms {
    /// One more call of a launcher.
    ///
    /// # Errors
    /// There are too many; if it goes on so, its application is ended.
    pub(crate) fn count_call(&mut self, now: Time, step: &mut Step, job: JobId) -> Result<(), Refusal> {
        match self.call_rates.entry(job).or_default().call(now, MOST_CALLS) {
            Rate::Allowed => Ok(()),
            Rate::Refused => Err(Refusal::RateLimit { job, most: MOST_CALLS }),
            Rate::Ended => {
                let reason =
                    format!("its launcher called more than {MOST_CALLS} times in each of {MOST_EXCEEDED} seconds");
                self.end_for_violation(now, step, job, reason);
                Err(Refusal::RateLimit { job, most: MOST_CALLS })
            }
        }
    }

    /// A launcher did not keep to the rules: its application is ended, whatever it does.
    pub(crate) fn end_for_violation(&mut self, now: Time, step: &mut Step, job: JobId, reason: String) {
        self.end_from_outside(now, step, job, Outcome::Violation { reason });
    }

    /// Ends an application in whatever state it is.
    pub(crate) fn end_from_outside(&mut self, now: Time, step: &mut Step, job: JobId, outcome: Outcome) {
        let Some(entry) = self.state.jobs().get(&job) else { return };
        if entry.is_before_its_start() {
            self.done(now, step, job, outcome);
        } else if entry.started().is_some_and(|started| started.ending.is_none()) {
            self.end(now, step, job, outcome, false);
        }
    }
}

/// Far more than a launcher that answers each change of its view at once has reason for.
pub(crate) const MOST_CALLS: u32 = 100;
/// Seconds in a row above the rate, after which the application is ended.
pub(crate) const MOST_EXCEEDED: u32 = 5;
