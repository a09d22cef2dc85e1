//! The actions of the owner of an end, and the results that the owner receives.

use std::collections::BTreeSet;

use rms_model::{NodeId, Span};
use serde::{Deserialize, Serialize};

use crate::error::Rejected;
use crate::message::{Message, Reason};
use crate::subject::NegotiationId;
use crate::table::{Ending, Phase, StatementKind};
use crate::template::Template;

/// The limits of a dialogue; it keeps those with which it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Rules {
    /// The maximum number of proposals of both ends together.
    pub max_rounds: u16,
    /// The longest time for which a proposal is valid, whatever it says.
    pub longest_valid: Span,
    /// The RMS fails a change that is not ready this long after it was agreed; an agreed deadline may be earlier.
    pub apply_within: Span,
    /// How long to wait for the first acknowledgement; doubled after each repetition.
    pub repeat_first: Span,
    /// The longest time between repetitions, and how often the application polls the RMS.
    pub repeat_most: Span,
}

/// An action of the owner of an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Offers, or counters the other end's proposal.
    Propose {
        /// The proposed template.
        template: Template,
        /// How long to wait for an answer.
        valid_for: Span,
    },
    /// Agrees to the other end's proposal.
    Accept,
    /// Rejects the other end's proposal.
    Reject(Reason),
    /// Takes back this end's proposal, or leaves the negotiation.
    Withdraw(Reason),
    /// By the giver: begins to hand over, or releases, these nodes. Empty if no nodes were agreed.
    Commit(BTreeSet<NodeId>),
    /// By the RMS: the change is done.
    Ready,
    /// By the RMS: these nodes, which the application was to give back, are lost: the change is done without its word.
    Gone(BTreeSet<NodeId>),
    /// What was agreed cannot be done.
    Fail(Reason),
}

/// The phase of an end has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The id of the negotiation.
    pub id: NegotiationId,
    /// The phase before.
    pub from: Phase,
    /// The phase now.
    pub to: Phase,
}

/// The results of an action, a message or the passing of time.
#[must_use = "messages that are dropped are repeated only later"]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Messages to the other end, to be sent in any order; any of them may be lost.
    pub messages: Vec<Message>,
    /// The changes of the phase.
    pub changes: Vec<Change>,
    /// Why a received message was refused. A late or repeated message is normal; a breach is not.
    pub refused: Option<Rejected>,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            max_rounds: 32,
            longest_valid: Span::from_hours(1),
            apply_within: Span::from_mins(10),
            repeat_first: Span::from_millis(500),
            repeat_most: Span::from_secs(30),
        }
    }
}

impl Output {
    /// Appends later results.
    pub fn merge(&mut self, later: Output) {
        self.messages.extend(later.messages);
        self.changes.extend(later.changes);
        self.refused = later.refused.or(self.refused.take());
    }
}

impl Action {
    /// Returns the kind of statement that the action makes.
    pub fn kind(&self) -> StatementKind {
        match self {
            Action::Propose { .. } => StatementKind::Propose,
            Action::Accept => StatementKind::Accept,
            Action::Reject(_) => StatementKind::End(Ending::Rejected),
            Action::Withdraw(_) => StatementKind::End(Ending::Withdrawn),
            Action::Commit(_) => StatementKind::Commit,
            Action::Ready | Action::Gone(_) => StatementKind::Ready,
            Action::Fail(_) => StatementKind::End(Ending::Failed),
        }
    }
}
