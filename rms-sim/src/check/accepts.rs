//! An offer of the server that the application accepts is agreed, and what is agreed does not fail for want of nodes:
//! only because a node was lost, an admin ended it, the time was over, or an end stops.

use std::collections::BTreeMap;

use negotiation::{Direction, Ending, NegotiationId, Phase, Reason, Side};
use rms_core::{Fact, State};
use rms_model::{JobId, NodeAdmin, NodeLink, Run, ShrinkRule};

use super::{Rule, Violation};

#[derive(Debug, Default)]
pub(super) struct Accepts {
    phases: BTreeMap<(JobId, NegotiationId), Phase>,
    /// Whether a node was ever away, drained, lost, fenced or removed.
    has_seen_trouble: bool,
}

/// An accept of a standing proposal that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) job: JobId,
    pub(crate) run: Run,
    pub(crate) id: NegotiationId,
}

impl Accepts {
    /// Checks a durable fact; `state` includes it.
    pub(super) fn durable(&mut self, fact: &Fact, state: &State) -> Result<(), Violation> {
        match fact {
            Fact::NodeLinkChanged {
                link: NodeLink::Away { .. } | NodeLink::Expected { .. } | NodeLink::Lost { .. },
                ..
            }
            | Fact::NodeAdminChanged { admin: NodeAdmin::Drain { .. } | NodeAdmin::Down { .. }, .. }
            | Fact::NodeFenced { .. }
            | Fact::NodeDescribed { .. }
            | Fact::NodeRemoved { .. } => {
                self.has_seen_trouble = true;
                Ok(())
            }
            Fact::JobDone { record, .. } => {
                self.phases.retain(|(job, _), _| *job != record.job);
                Ok(())
            }
            Fact::JobRequeued { job, .. } => {
                self.phases.retain(|(of, _), _| of != job);
                Ok(())
            }
            Fact::DialogueChanged { job, dialogue, .. } => {
                let (id, to) = (dialogue.id(), dialogue.phase());
                let before = self.phases.insert((*job, id), to);
                let Some(from) = before else { return Ok(()) };
                let was_promised = match from {
                    Phase::Offered(by) | Phase::Countered(by) => by == Side::Rms,
                    Phase::Accepted | Phase::Committing => true,
                    Phase::Idle | Phase::Pledged | Phase::Leaving | Phase::Failing => false,
                    Phase::Applied | Phase::Ended(_) => false,
                };
                let grows = dialogue.direction() == Some(Direction::Grow);
                let Phase::Ended(ending) = to else { return Ok(()) };
                let why = dialogue.reason();
                let is_recalled = why == Some(Reason::Recalled)
                    && from == Phase::Offered(Side::Rms)
                    && is_for_the_more_urgent(state, *job);
                if !was_promised || !grows || is_recalled || self.may_end(ending, why, from) {
                    return Ok(());
                }
                Err(Rule::Accepts.broken(format!("job {job}, {id} was {from} and is {to} because of {why:?}")))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether an offer or an agreement may end for this reason.
    fn may_end(&self, ending: Ending, why: Option<Reason>, from: Phase) -> bool {
        let was_agreed = matches!(from, Phase::Accepted | Phase::Committing);
        match (ending, why) {
            // The application rejected it, or its deadline passed.
            (Ending::Rejected | Ending::Expired, _) if !was_agreed => true,
            (_, Some(Reason::Administrator | Reason::Stopping)) => true,
            // The trouble may have begun long before, and be noticed only now.
            (_, Some(Reason::Lost)) => self.has_seen_trouble,
            // The requester for the application, or its process, does not want the offer.
            (Ending::Withdrawn, Some(reason)) => !was_agreed && may_withdraw(reason),
            // The application reported that it cannot use the nodes, or they did not come in the time that it gave.
            (Ending::Failed, Some(Reason::Changed | Reason::Overdue | Reason::Unknown)) => true,
            (Ending::Failed | Ending::Rejected | Ending::Expired | Ending::Withdrawn, _) => false,
        }
    }
}

/// Returns whether a job waits for which offers to this one may be taken back.
fn is_for_the_more_urgent(state: &State, offered: JobId) -> bool {
    let Some(mine) = state.jobs().get(&offered).map(|entry| entry.spec.priority) else { return false };
    let mut waiting = state.jobs().values().filter(|entry| entry.is_queued()).map(|entry| entry.spec.priority);
    match state.settings().offer_recall {
        ShrinkRule::Never => false,
        ShrinkRule::Priority => waiting.any(|priority| priority > mine),
        ShrinkRule::Queue => waiting.any(|priority| priority >= mine),
    }
}

fn may_withdraw(reason: Reason) -> bool {
    match reason {
        Reason::Declined | Reason::Policy | Reason::Changed | Reason::Price | Reason::NoResources => true,
        // A negotiation whose latest statements were lost with a power failure is given up.
        Reason::Unknown => true,
        Reason::Lapsed | Reason::TooManyRounds | Reason::BadProposal | Reason::Crossed | Reason::AlreadyOpen => false,
        Reason::Overdue | Reason::Lost | Reason::BrokenPromise | Reason::Administrator | Reason::Stopping => false,
        // What is offered is held: it is not taken back for other jobs, except where the setting allows it.
        Reason::Recalled | Reason::KeepsRanks => false,
    }
}

/// Checks the negotiation after the step in which an accept of a standing offer was received.
pub(crate) fn is_agreed(accepted: &Accepted, durable: &State) -> Result<(), Violation> {
    let Accepted { job, run, id } = accepted;
    let entry = durable.jobs().get(job).filter(|entry| entry.run == *run);
    let Some(entry) = entry.filter(|entry| entry.started().is_some_and(|started| started.ending.is_none())) else {
        return Ok(());
    };
    let negotiation = entry.negotiations.as_ref().and_then(|negotiations| negotiations.get(*id));
    let phase = negotiation.map(|negotiation| (negotiation.phase(), negotiation.dialogue.reason()));
    let is_agreed = match phase {
        Some((Phase::Accepted | Phase::Committing | Phase::Applied, _)) => true,
        Some((Phase::Ended(_), Some(Reason::Administrator | Reason::Lost | Reason::Stopping))) => true,
        Some(_) | None => false,
    };
    if is_agreed {
        return Ok(());
    }
    Err(Rule::Accepts.broken(format!("job {job}.{run} has accepted {id} in time, and it is {phase:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_agreed_does_not_fail_for_want_of_nodes() {
        let calm = Accepts::default();
        let stormy = Accepts { has_seen_trouble: true, ..Accepts::default() };
        let fails = |accepts: &Accepts, why| accepts.may_end(Ending::Failed, Some(why), Phase::Accepted);
        assert!(!fails(&calm, Reason::NoResources) && !fails(&stormy, Reason::NoResources));
        assert!(!fails(&calm, Reason::Lost) && fails(&stormy, Reason::Lost));
        let offered = Phase::Offered(Side::Rms);
        assert!(calm.may_end(Ending::Rejected, Some(Reason::Declined), offered));
        assert!(!calm.may_end(Ending::Withdrawn, Some(Reason::Lapsed), offered));
        assert!(!calm.may_end(Ending::Withdrawn, Some(Reason::Recalled), offered), "but for whom a setting says");
    }
}
