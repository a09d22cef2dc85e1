//! By how much growth has delayed those who wait: small delays add up, and their sum is what is tolerated.

use std::collections::BTreeMap;

use rms_model::{JobId, Span, Time};

use crate::plan::{self, Plan};
use crate::state::State;
use crate::state::job::Job;

/// When waiting jobs would have started that a growth has delayed. A server that is started again begins anew.
#[derive(Debug, Default)]
pub(super) struct Undelayed(BTreeMap<JobId, Time>);

impl Undelayed {
    /// Would anybody start later, by this growth, than all growth together may make it?
    pub(super) fn would_exceed(&self, before: &Plan, after: &Plan, tolerance: Span) -> bool {
        plan::delayed(before, after).any(|(job, before, after)| {
            let latest = self.best(job, before) + tolerance;
            after.is_none_or(|after| after > latest)
        })
    }

    /// A growth is allowed: from now on, what it delays is held against what would be without it.
    pub(super) fn note(&mut self, state: &State, before: &Plan, after: &Plan) {
        self.0.retain(|job, _| state.jobs().get(job).is_some_and(Job::is_queued));
        for (job, before, _) in plan::delayed(before, after) {
            let best = self.best(job, before);
            self.0.insert(job, best);
        }
    }

    /// What it could hope for at best. Where others have ended early since, that is earlier than at its first delay.
    fn best(&self, job: JobId, estimate: Time) -> Time {
        self.0.get(&job).map_or(estimate, |undelayed| estimate.min(*undelayed))
    }
}
