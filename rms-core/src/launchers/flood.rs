//! Bounds how often a launcher may call, in the core's own time.

use rms_api::refusal::Refusal;
use rms_model::{JobId, Outcome, Time};

use crate::rms::Rms;
use crate::step::Step;

/// The calls of one application in the present second, and since when there are too many.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flood {
    second: i64,
    n_calls: u32,
    /// Seconds without a pause in which there were too many.
    n_flooded: u32,
}

/// What is to become of a call.
pub(crate) enum Spate {
    Taken,
    Refused,
    /// It has been told often enough.
    Ended,
}

impl Flood {
    /// One more call, where `most` are allowed in a second.
    pub(crate) fn call(&mut self, now: Time, most: u32) -> Spate {
        let second = now.as_secs();
        if second != self.second {
            let was_flooded = self.n_calls > most && second == self.second + 1;
            let n_flooded = if was_flooded { self.n_flooded } else { 0 };
            *self = Flood { second, n_calls: 0, n_flooded };
        }
        self.n_calls = self.n_calls.saturating_add(1);
        let is_first_too_many = self.n_calls == most + 1;
        self.n_flooded += u32::from(is_first_too_many);
        match self.n_calls <= most {
            true => Spate::Taken,
            false if self.n_flooded >= MOST_FLOODED => Spate::Ended,
            false => Spate::Refused,
        }
    }
}

impl Rms {
    /// One more call of a launcher.
    ///
    /// # Errors
    /// There are too many; if it goes on so, its application is ended.
    pub(crate) fn count_call(&mut self, now: Time, step: &mut Step, job: JobId) -> Result<(), Refusal> {
        match self.floods.entry(job).or_default().call(now, MOST_CALLS) {
            Spate::Taken => Ok(()),
            Spate::Refused => Err(Refusal::Flood { job, most: MOST_CALLS }),
            Spate::Ended => {
                let reason =
                    format!("its launcher called more than {MOST_CALLS} times in each of {MOST_FLOODED} seconds");
                self.end_for_violation(now, step, job, reason);
                Err(Refusal::Flood { job, most: MOST_CALLS })
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
/// Seconds of flood in a row after which the application is ended.
pub(crate) const MOST_FLOODED: u32 = 5;
