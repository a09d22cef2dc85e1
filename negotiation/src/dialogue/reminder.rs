//! What the RMS sends to an application's end that has lost its state of a negotiation, and how that end continues.

use std::collections::BTreeSet;

use rms_model::{NodeId, Span, Time};
use serde::{Deserialize, Serialize};

use super::{Dialogue, Proposal};
use crate::error::Forgery;
use crate::owner::Rules;
use crate::subject::{NegotiationId, Parties, Side};
use crate::table::Phase;
use crate::template::Template;
use crate::voice::Voice;

/// An open negotiation, as the RMS knows it. An application that remembers the negotiation needs none of this:
/// statements that it has not received are repeated to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reminder {
    /// The id of the negotiation.
    pub id: NegotiationId,
    /// Its phase.
    pub phase: Phase,
    /// The last proposal of each end, by round; the last one is the standing or agreed one.
    pub proposals: Vec<Reminded>,
    /// The nodes that come or go, once the giver has named them.
    pub nodes: Option<BTreeSet<NodeId>>,
    /// How long it can stay in this phase: until the proposal lapses, or what was agreed is overdue.
    pub left: Option<Span>,
    /// The number of the RMS's latest statement.
    pub said: u32,
    /// The number of the application's latest statement that the RMS has handled.
    pub heard: u32,
}

/// A proposal in a reminder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reminded {
    /// The side that made it.
    pub by: Side,
    /// Its round.
    pub round: u16,
    /// The proposed template.
    pub template: Template,
}

impl Dialogue {
    /// Returns the reminder for an application that may have forgotten the negotiation. Returns `None` if it is over:
    /// what the application then holds shows the result.
    pub fn reminder(&self, now: Time) -> Option<Reminder> {
        let until = match self.phase {
            Phase::Offered(_) | Phase::Countered(_) => self.lapses(),
            Phase::Accepted | Phase::Committing => self.due(),
            Phase::Idle | Phase::Applied | Phase::Ended(_) => return None,
            Phase::Pledged | Phase::Leaving | Phase::Failing => return None,
        };
        if until.is_some_and(|until| until <= now) {
            return None;
        }
        let reminded =
            |(by, round, template): (Side, u16, &Template)| Reminded { by, round, template: template.clone() };
        Some(Reminder {
            id: self.id,
            phase: self.phase,
            proposals: self.proposals().map(reminded).collect(),
            nodes: self.nodes.clone(),
            left: until.map(|until| until.since(now)),
            said: self.said(),
            heard: self.heard(),
        })
    }

    /// Restores the application's end to the state that it would have if it had received everything.
    ///
    /// # Errors
    /// No dialogue can be in this state.
    pub(crate) fn recalled(
        now: Time,
        parties: Parties,
        rules: Rules,
        reminder: &Reminder,
    ) -> Result<Dialogue, Forgery> {
        let Reminder { id, phase, proposals, nodes, left, said, heard } = reminder;
        let forgery = |why| Forgery { id: *id, why };
        let lapses = now + left.unwrap_or(rules.longest_valid).min(rules.longest_valid);
        let last_of = |side: Side| {
            let found = proposals.iter().rev().find(|proposal| proposal.by == side);
            found.map(|found| Proposal { round: found.round, template: found.template.clone(), lapses })
        };
        let dialogue = Dialogue {
            end: Side::Application,
            phase: *phase,
            mine: last_of(Side::Application),
            theirs: last_of(Side::Rms),
            nodes: nodes.clone(),
            voice: Voice::recalled(*heard, *said),
            ..Dialogue::new(Side::Application, *id, parties, rules)
        };
        match phase {
            Phase::Offered(_) | Phase::Countered(_) | Phase::Accepted | Phase::Committing => {}
            Phase::Idle | Phase::Pledged | Phase::Leaving | Phase::Failing | Phase::Applied | Phase::Ended(_) => {
                return Err(forgery("it is in no phase of which there is something to tell"));
            }
        }
        let standing = dialogue.standing().ok_or(forgery("nothing was proposed"))?;
        if proposals.iter().any(|proposal| proposal.template.parties() != parties) {
            return Err(forgery("it is between other parties"));
        }
        if proposals.iter().any(|proposal| !proposal.template.has_subject_of(&standing.template)) {
            return Err(forgery("its proposals are about different things"));
        }
        dialogue.check().map_err(forgery)?;
        Ok(dialogue)
    }
}
