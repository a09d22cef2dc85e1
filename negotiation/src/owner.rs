//! What the owner of an end wants of its dialogue, and what it learns from it.

use std::collections::BTreeSet;

use rms_model::{NodeId, Span};
use serde::{Deserialize, Serialize};

use crate::error::Rejected;
use crate::message::{Message, Reason};
use crate::subject::NegotiationId;
use crate::table::{Ending, Phase, StatementKind};
use crate::template::Template;

/// Bounds of a dialogue; it keeps those under which it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Rules {
    /// Proposals of both ends together.
    pub max_rounds: u16,
    /// A proposal is not valid for longer, whatever it says.
    pub longest_valid: Span,
    /// The RMS fails what is not ready so long after it was agreed; an agreed deadline may come before.
    pub apply_within: Span,
    /// How long to wait for the first confirmation; doubled after each repetition.
    pub repeat_first: Span,
    /// The longest time between repetitions, and how often the application asks what is new.
    pub repeat_most: Span,
}

/// What the owner of an end wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Offers, or counters the other end's proposal.
    Propose {
        /// What is proposed.
        template: Template,
        /// For how long an answer is awaited.
        valid_for: Span,
    },
    /// Agrees to the other end's proposal.
    Accept,
    /// Says no to the other end's proposal.
    Reject(Reason),
    /// Takes the own proposal back, or leaves the talk.
    Withdraw(Reason),
    /// Who gives: begins to hand over, or lets go of, these nodes. None if no nodes were agreed.
    Commit(BTreeSet<NodeId>),
    /// The RMS: it is done.
    Ready,
    /// What was agreed cannot be done.
    Fail(Reason),
}

/// The phase of an end has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// In which negotiation.
    pub id: NegotiationId,
    /// The phase before.
    pub from: Phase,
    /// The phase now.
    pub to: Phase,
}

/// What comes of something that happened.
#[must_use = "messages that are dropped are repeated only later"]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// To be sent to the other end, in any order; any of them may be lost.
    pub messages: Vec<Message>,
    /// What became of the negotiation.
    pub changes: Vec<Change>,
    /// Why what was heard was not taken. Being late or heard twice is no offence; a breach is.
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
    /// Adds what came of something later.
    pub fn merge(&mut self, later: Output) {
        self.messages.extend(later.messages);
        self.changes.extend(later.changes);
        self.refused = later.refused.or(self.refused.take());
    }
}

impl Action {
    /// What is done by it.
    pub fn kind(&self) -> StatementKind {
        match self {
            Action::Propose { .. } => StatementKind::Propose,
            Action::Accept => StatementKind::Accept,
            Action::Reject(_) => StatementKind::End(Ending::Rejected),
            Action::Withdraw(_) => StatementKind::End(Ending::Withdrawn),
            Action::Commit(_) => StatementKind::Commit,
            Action::Ready => StatementKind::Ready,
            Action::Fail(_) => StatementKind::End(Ending::Failed),
        }
    }
}
