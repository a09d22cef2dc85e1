//! The messages between the two ends.

use std::collections::BTreeSet;

use rms_model::{NodeId, Span};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::subject::NegotiationId;
use crate::table::{Ending, StatementKind};
use crate::template::Template;

/// One message. An end repeats its latest statement until it knows that it was received; earlier ones are not needed
/// any more, because every statement implies those before it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Message {
    /// The id of the negotiation.
    pub id: NegotiationId,
    /// The number of the sender's latest statement, from 1; 0 if it has made none.
    pub seq: u32,
    /// The number of the receiver's latest statement that the sender has received.
    pub ack_seq: u32,
    /// Statement `seq`; absent if the message is only an acknowledgement.
    pub statement: Option<Statement>,
    /// With an end by the RMS: what exactly was not possible, for people. No end decides by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// With the acceptance of a shrink by the RMS: how long the application may keep the nodes.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "rms_model::checked::opt_span")]
    pub release_within: Option<Span>,
}

impl Message {
    /// Returns a message without what the RMS may add.
    pub fn new(id: NegotiationId, seq: u32, ack_seq: u32, statement: Option<Statement>) -> Message {
        Message { id, seq, ack_seq, statement, why: None, release_within: None }
    }
}

/// A statement of an end. From the application, `Accept` and `End` are wishes; from the RMS, they are decisions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Statement {
    /// An offer (round 1) or a counter-offer (2 and later).
    Propose {
        /// Counts the proposals of both ends together.
        round: u16,
        /// The proposed template.
        template: Template,
        /// How long it is valid, from when the RMS sends or first receives it.
        #[serde(deserialize_with = "rms_model::checked::span")]
        valid_for: Span,
    },
    /// The proposal of that round is agreed.
    Accept {
        /// The round of the proposal.
        round: u16,
    },
    /// The giver begins to hand over.
    Commit {
        /// The round that was agreed.
        round: u16,
        /// The nodes that come or go.
        nodes: BTreeSet<NodeId>,
    },
    /// From the RMS: the change is done; processes can be placed on the nodes, or are gone from them.
    Ready {
        /// The round that was agreed.
        round: u16,
        /// The nodes that came or went.
        nodes: BTreeSet<NodeId>,
    },
    /// The negotiation ends without a result.
    End {
        /// How it ended, or is to end.
        ending: Ending,
        /// The reason.
        reason: Reason,
    },
}

/// Why a negotiation ended without a result. New reasons are appended at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Error)]
pub enum Reason {
    /// The change is not wanted.
    #[error("it was declined")]
    Declined,
    /// Nothing acceptable is free.
    #[error("there is nothing to give")]
    NoResources,
    /// The price is not acceptable.
    #[error("the price is not acceptable")]
    Price,
    /// A limit or a policy forbids it.
    #[error("a policy forbids it")]
    Policy,
    /// No answer arrived in time.
    #[error("no answer came in time")]
    Lapsed,
    /// The proposal of the last round was not accepted.
    #[error("there were too many rounds")]
    TooManyRounds,
    /// A proposal broke a rule.
    #[error("a proposal broke the rules")]
    BadProposal,
    /// Both ends opened a negotiation for the same direction; the RMS's continues.
    #[error("the RMS opened another one at the same time")]
    Crossed,
    /// A negotiation for the same direction is open already.
    #[error("another one is open for the same direction")]
    AlreadyOpen,
    /// The negotiation is not known here, or no longer known.
    #[error("it is not known")]
    Unknown,
    /// The change was not ready by its deadline.
    #[error("it was not ready in time")]
    Overdue,
    /// Nodes could not be prepared, or were lost on the way.
    #[error("the nodes could not be made ready")]
    Lost,
    /// A promise was not kept.
    #[error("a promise was broken")]
    BrokenPromise,
    /// An administrator ended it.
    #[error("an administrator ended it")]
    Administrator,
    /// The application or the RMS is about to end.
    #[error("the application or the server is stopping")]
    Stopping,
    /// The circumstances have changed.
    #[error("circumstances have changed")]
    Changed,
    /// What the RMS had offered is needed for a more urgent job, or for a job for which a setting allows offers to be
    /// recalled.
    #[error("the offer was taken back for a waiting job")]
    Recalled,
    /// Nodes cannot be given back: ranks that `mpirun` has started there can leave only together.
    #[error("ranks that mpirun has started there cannot leave before all of them end")]
    KeepsRanks,
}

impl Statement {
    /// Returns the kind of the statement.
    pub fn kind(&self) -> StatementKind {
        match self {
            Statement::Propose { .. } => StatementKind::Propose,
            Statement::Accept { .. } => StatementKind::Accept,
            Statement::Commit { .. } => StatementKind::Commit,
            Statement::Ready { .. } => StatementKind::Ready,
            Statement::End { ending, .. } => StatementKind::End(*ending),
        }
    }
}
