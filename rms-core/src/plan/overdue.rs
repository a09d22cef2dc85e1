//! How long a pass assumes jobs to stay that should have left.

use rms_model::{Settings, Span, Time};

use crate::state::job::{AT_ONCE, SOON};

/// Assumes until when jobs stay, at the time of a pass. A job whose wall time is over gets TERM: it leaves soon, or is
/// killed after the grace time, or nobody knows when it leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overdue {
    now: Time,
    grace: Span,
}

impl Overdue {
    pub(crate) fn new(now: Time, settings: &Settings) -> Overdue {
        Overdue { now, grace: settings.kill_grace }
    }

    /// Returns until when a job stays that is planned to leave at `planned`. It is later than now, because otherwise
    /// others would be planned onto its nodes.
    pub(super) fn until(self, planned: Time) -> Time {
        let assumed = [planned, planned + AT_ONCE, planned + SOON, planned + self.grace];
        assumed.into_iter().find(|until| *until > self.now).unwrap_or_else(|| self.unknown())
    }

    /// Returns until when something stays of which only is known that it should leave.
    pub(super) fn unknown(self) -> Time {
        self.now + self.grace.max(SOON)
    }

    /// Returns when others may start because more is assumed than at this time for jobs that are still there then.
    /// `next_end` returns the first planned end after a time.
    pub(crate) fn next_change(self, next_end: impl Fn(Time) -> Option<Time>) -> Option<Time> {
        let change = |span: Span| Some(next_end(self.now - span)? + span);
        let oldest = next_end(Time::EPOCH)?;
        let is_unknown = oldest + self.grace.max(SOON) <= self.now;
        let changes = [change(AT_ONCE), change(SOON), change(self.grace), is_unknown.then(|| self.unknown())];
        changes.into_iter().flatten().min()
    }
}
