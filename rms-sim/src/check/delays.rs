//! Nodes that are kept for a growth delay the start of no waiting job by more than the tolerance: planned again with
//! and without them, from the facts alone.

use std::collections::BTreeMap;

use rms_core::plan::Scope;
use rms_core::state::job::Job;
use rms_core::{Fact, Replay, State, plan};
use rms_model::{JobId, Settings, Time};

use super::{Rule, Violation};

/// The state after the facts that were checked.
#[derive(Debug)]
pub(super) struct Delays {
    replay: Replay,
    now: Time,
    /// Whether facts were written later than they were decided: the time at which they were planned is not known.
    is_late: bool,
}

impl Delays {
    pub(super) fn new(settings: Settings) -> Delays {
        Delays { replay: Replay::of(State::new(settings)), now: Time::EPOCH, is_late: false }
    }

    pub(super) fn state(&self) -> &State {
        self.replay.state()
    }

    /// Returns when the facts that are checked now were written.
    pub(super) fn now(&self) -> Time {
        self.now
    }

    /// Sets the time at which the following facts were written.
    pub(super) fn at(&mut self, now: Time, is_late: bool) {
        self.now = now;
        self.is_late = is_late;
    }

    pub(super) fn durable(&mut self, fact: &Fact) -> Result<(), Violation> {
        let gains = self.gains(fact) && !self.is_late && self.state().jobs().values().any(Job::is_queued);
        let before = if gains { self.estimates() } else { BTreeMap::new() };
        self.replay.follow(fact).expect("what became durable fits");
        if !gains {
            return Ok(());
        }
        let tolerance = self.state().settings().delay_tolerance;
        let after = self.estimates();
        for (job, then) in before {
            let start = after.get(&job).copied();
            if start.is_none_or(|start| start > then + tolerance) {
                return Err(Rule::Delays.broken(format!(
                    "job {job} would start at {then:?}, and with {fact:?} at {start:?}; the tolerance is {tolerance}"
                )));
            }
        }
        Ok(())
    }

    /// Returns whether more nodes are kept than before. The replacement of a lost node may delay any job.
    fn gains(&self, fact: &Fact) -> bool {
        let Fact::NodesHeld { job, negotiation, nodes, grants: _ } = fact else { return false };
        let negotiations = self.state().jobs().get(job).and_then(|entry| entry.negotiations.as_ref());
        let held = negotiations
            .and_then(|negotiations| negotiations.get(*negotiation))
            .map_or(0, |negotiation| negotiation.held.len());
        nodes.len() > held
    }

    /// Returns when each waiting job would start, as far as that is known.
    fn estimates(&self) -> BTreeMap<JobId, Time> {
        let plan = plan(self.state(), self.now, Scope::Estimates);
        let estimate =
            |placement: &rms_core::plan::Placement| Some((placement.job, placement.outcome.estimate(plan.now)?));
        plan.placements.iter().filter_map(estimate).collect()
    }
}
