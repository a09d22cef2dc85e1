//! The progress of a job that lends cores or has begun on those of others (004, §3.4).

use rms_core::State;
use rms_core::state::job::Job;
use rms_core::state::sharing::whole_seconds;
use rms_model::sharing::asked;
use rms_model::{RuntimeModel, Span, Time};

/// The work of a job, in core-milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    left: u64,
    rate: u64,
    since: Time,
    /// The cores that it requested, and those that it has.
    n_asked: u64,
    n_cores: u64,
    /// Core-milliseconds used until `since`.
    used: u64,
}

impl Pace {
    /// Creates the pace of a job that has had all its cores since it started, and needs the time `run` with them.
    pub(super) fn new(state: &State, entry: &Job, run: Span) -> Option<Pace> {
        let since = entry.started()?.at;
        let n_asked = asked(state.cores_of(entry));
        let left = n_asked.saturating_mul(millis(run));
        Some(Pace { left, rate: n_asked, since, n_asked, n_cores: n_asked, used: 0 })
    }

    /// Handles a change of its cores to those in the state.
    pub(super) fn change(&mut self, state: &State, entry: &Job, model: RuntimeModel, at: Time) {
        let took = millis(at.since(self.since));
        self.left = self.left.saturating_sub(self.rate.saturating_mul(took));
        self.used = self.used.saturating_add(self.n_cores.saturating_mul(took));
        self.since = at;
        self.rate = model.rate(state.cores_of(entry));
        self.n_cores = RuntimeModel::Ideal.rate(state.cores_of(entry));
    }

    /// Returns when it will be done, if nothing changes: after whole seconds.
    pub(super) fn end(&self) -> Time {
        self.since + whole_seconds(self.left, self.rate)
    }

    /// Returns the part of its cores that it will have had, over all of its time.
    pub(super) fn share(&self, started: Time) -> f64 {
        let end = self.end();
        let used = self.used.saturating_add(self.n_cores.saturating_mul(millis(end.since(self.since))));
        used as f64 / (self.n_asked.max(1) as f64 * millis(end.since(started)).max(1) as f64)
    }
}

fn millis(span: Span) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(0)
}
