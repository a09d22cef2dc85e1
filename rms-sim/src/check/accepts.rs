//! What the server has offered and the application accepts is agreed, and what is agreed does not fail for want of hosts:
//! only because a node was lost, an admin wanted it so, the time was over, or an end stops.

use std::collections::BTreeMap;

use negotiation::{Direction, Ending, NegotiationId, Phase, Reason, Side};
use rms_core::{Fact, State};
use rms_model::{JobId, NodeAdmin, NodeLink, Run, Time};

use super::{Rule, Violation};

#[derive(Debug, Default)]
pub(super) struct Accepts {
    phases: BTreeMap<(JobId, NegotiationId), (Phase, Time)>,
    /// When a node was last drained, lost, fenced or removed.
    trouble: Option<Time>,
    now: Time,
}

/// An accept of what stands has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) job: JobId,
    pub(crate) run: Run,
    pub(crate) id: NegotiationId,
}

impl Accepts {
    /// The time at which facts become durable that follow.
    pub(super) fn at(&mut self, now: Time) {
        self.now = now;
    }

    pub(super) fn durable(&mut self, fact: &Fact) -> Result<(), Violation> {
        match fact {
            Fact::NodeLinkChanged { link: NodeLink::Away { .. } | NodeLink::Lost { .. }, .. }
            | Fact::NodeAdminChanged { admin: NodeAdmin::Drain { .. } | NodeAdmin::Down { .. }, .. }
            | Fact::NodeFenced { .. }
            | Fact::NodeDescribed { .. }
            | Fact::NodeRemoved { .. } => {
                self.trouble = Some(self.now);
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
            Fact::Talked { job, at, dialogue, .. } => {
                let (id, to) = (dialogue.id(), dialogue.phase());
                let before = self.phases.insert((*job, id), (to, *at));
                let Some((from, since)) = before else { return Ok(()) };
                let was_promised = match from {
                    Phase::Offered(by) | Phase::Countered(by) => by == Side::Rms,
                    Phase::Accepted | Phase::Committing => true,
                    Phase::Idle | Phase::Pledged | Phase::Leaving | Phase::Failing => false,
                    Phase::Applied | Phase::Ended(_) => false,
                };
                let grows = dialogue.direction() == Some(Direction::Grow);
                let Phase::Ended(ending) = to else { return Ok(()) };
                let why = dialogue.reason();
                if !was_promised || !grows || self.may_end(ending, why, since, from) {
                    return Ok(());
                }
                Err(Rule::Accepts.broken(format!("job {job}, {id} was {from} and is {to} because of {why:?}")))
            }
            _ => Ok(()),
        }
    }

    fn may_end(&self, ending: Ending, why: Option<Reason>, since: Time, from: Phase) -> bool {
        let was_agreed = matches!(from, Phase::Accepted | Phase::Committing);
        match (ending, why) {
            // The application's answers, and the end of its time.
            (Ending::Rejected | Ending::Expired, _) if !was_agreed => true,
            (_, Some(Reason::Administrator | Reason::Stopping)) => true,
            (_, Some(Reason::Lost)) => self.trouble.is_some_and(|trouble| trouble >= since) || self.is_still_troubled(),
            (Ending::Withdrawn, Some(reason)) if !was_agreed => match reason {
                Reason::Declined
                | Reason::Policy
                | Reason::Changed
                | Reason::Price
                | Reason::NoResources
                | Reason::Unknown => true,
                _ => false,
            },
            // The application said that it cannot use them, or they did not come in the time that it gave.
            (Ending::Failed, Some(Reason::Changed | Reason::Overdue | Reason::Unknown)) => true,
            (Ending::Failed | Ending::Rejected | Ending::Expired | Ending::Withdrawn, _) => false,
        }
    }

    /// Trouble that began before may go on.
    fn is_still_troubled(&self) -> bool {
        self.trouble.is_some()
    }
}

/// After the step in which an accept of a standing offer was heard.
pub(crate) fn is_agreed(accepted: &Accepted, durable: &State) -> Result<(), Violation> {
    let Accepted { job, run, id } = accepted;
    let entry = durable.jobs().get(job).filter(|entry| entry.run == *run);
    let Some(entry) = entry.filter(|entry| entry.started().is_some_and(|started| started.ending.is_none())) else {
        return Ok(());
    };
    let case = entry.talks.as_ref().and_then(|talks| talks.case(*id));
    let phase = case.map(|case| (case.phase(), case.dialogue.reason()));
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
