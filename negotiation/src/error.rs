//! Why an action is not possible, or why a message of the other end is refused.

use rms_model::Span;
use thiserror::Error;

use crate::subject::NegotiationId;
use crate::table::Phase;
use crate::template::Which;

/// In which respect a proposal is worse for the other end than the sender's previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Error)]
pub enum Worse {
    /// More is demanded, or less offered.
    #[error("its quantity")]
    Quantity,
    /// The taker refused it and demands it again, or it is no longer offered.
    #[error("whether it is part of the proposal")]
    Part,
    /// A lower bid, or a higher ask.
    #[error("its price")]
    Price,
    /// Demanded for longer, or offered for a shorter time.
    #[error("its duration")]
    Duration,
    /// Demanded until later, or offered until earlier.
    #[error("when it is given back")]
    GiveBack,
    /// Demanded earlier, or promised later.
    #[error("its deadline")]
    Deadline,
    /// Quantities that were usable are no longer usable.
    #[error("the range of its quantity")]
    Range,
    /// Totals that were usable are no longer usable.
    #[error("its sizes")]
    Sizes,
}

/// The rule of the dialogue that is broken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Breach {
    /// The rounds must be consecutive.
    #[error("round {said} does not follow here; it is {expected}")]
    Round {
        /// The round in the message.
        said: u16,
        /// The only possible one.
        expected: u16,
    },
    /// The number of rounds is bounded.
    #[error("more than {most} rounds")]
    TooManyRounds {
        /// The limit.
        most: u16,
    },
    /// A counter must be about the same parties and resources, and start from the same holdings.
    #[error("it is about other parties, resources or holdings")]
    OtherSubject,
    /// A counter may concede something, or nothing, but may not take anything back.
    #[error("{item} is worse than the same end's last proposal: {worse}")]
    Worsens {
        /// Which item.
        item: Which,
        /// In which respect.
        worse: Worse,
    },
    /// Only a proposal without open alternatives can be accepted.
    #[error("the proposal still has alternatives; counter with one of them")]
    Indefinite,
    /// The proposal would never be valid.
    #[error("a proposal cannot be valid for {0}")]
    Validity(Span),
    /// The nodes are not those that were agreed.
    #[error("{n_nodes} nodes are not what was agreed ({agreed}, and all that were named)")]
    Nodes {
        /// How many there are.
        n_nodes: usize,
        /// How many were agreed.
        agreed: u64,
    },
}

/// Why an action of this end is not possible; nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ActError {
    /// Not possible in this phase, or not by this end.
    #[error("this is not possible now: the negotiation is {0}")]
    NotNow(Phase),
    /// The proposal to answer is no longer valid.
    #[error("the proposal has expired")]
    Lapsed,
    /// The action itself breaks a rule.
    #[error("this is against the rules of a negotiation: {0}")]
    Breach(Breach),
    /// No such negotiation exists.
    #[error("there is no negotiation {0}")]
    NoSuch(NegotiationId),
    /// A negotiation for the same direction is open already; only one may be.
    #[error("negotiation {0} is open for the same direction: answer or withdraw it, or wait until it is over")]
    AlreadyOpen(NegotiationId),
}

// Not `#[from]`: the broken rule is the reason itself and is printed with it.
impl From<Breach> for ActError {
    fn from(breach: Breach) -> ActError {
        ActError::Breach(breach)
    }
}

/// Why a received message has changed nothing, or has ended the negotiation.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Rejected {
    /// It belongs to another negotiation.
    #[error("the message is about negotiation {0}")]
    ForeignId(NegotiationId),
    /// This message or a later one was received already.
    #[error("statement {number} is not newer than {seen}")]
    Stale {
        /// Its number.
        number: u32,
        /// The latest that was received.
        seen: u32,
    },
    /// The peer claims to have received a statement that was never made.
    #[error("statement {seen} cannot have been heard: only {said} were made")]
    NeverSaid {
        /// The number that it claims.
        seen: u32,
        /// How many statements there are.
        said: u32,
    },
    /// Not possible in this phase, or not by that end.
    #[error("the statement does not follow: the negotiation is {0}")]
    OutOfTurn(Phase),
    /// It arrived after the decision; the peer will be told how the negotiation ended.
    #[error("it came too late: the negotiation is {0}")]
    TooLate(Phase),
    /// It breaks a rule; if it is a proposal, the negotiation has ended with it.
    #[error("it is against the rules of a negotiation")]
    Breach(#[from] Breach),
    /// This end has no negotiation of that number, or no longer has it.
    #[error("there is no negotiation {0}")]
    Unknown(NegotiationId),
    /// Another one is open for the same direction, and continues.
    #[error("negotiation {0} is open for the same direction")]
    AlreadyOpen(NegotiationId),
}

/// The error for a reminder of a negotiation that cannot exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("negotiation {id} cannot stand as the server says: {why}")]
pub struct Forgery {
    /// The id of the negotiation.
    pub id: NegotiationId,
    /// The rule that does not hold.
    pub why: &'static str,
}
