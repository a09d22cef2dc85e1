//! Why an act is not possible, or what the other end said is not taken.

use rms_model::Span;
use thiserror::Error;

use crate::subject::NegotiationId;
use crate::table::Phase;

/// In which respect a proposal is worse for the other end than the sender's one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Error)]
pub enum Worse {
    /// More is demanded, or less offered.
    #[error("its quantity")]
    Quantity,
    /// It was refused by who takes and is demanded again, or is no longer offered.
    #[error("whether it is part of the proposal")]
    Part,
    /// A lower bid, or a higher ask.
    #[error("its price")]
    Price,
    /// Demanded for longer, or offered for less long.
    #[error("its duration")]
    Duration,
    /// Demanded until later, or offered until earlier.
    #[error("when it is given back")]
    GiveBack,
    /// Demanded earlier, or promised later.
    #[error("its deadline")]
    Deadline,
    /// Quantities that were of use are of use no more.
    #[error("the range of its quantity")]
    Range,
    /// Totals that were of use are of use no more.
    #[error("its sizes")]
    Sizes,
}

/// Which rule of the dialogue something breaks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Breach {
    /// The rounds are numbered without gaps.
    #[error("round {said} does not follow here; it is {expected}")]
    Round {
        /// The round in the message.
        said: u16,
        /// The only one that is possible.
        expected: u16,
    },
    /// The rounds are bounded.
    #[error("more than {most} rounds")]
    TooManyRounds {
        /// How many are allowed.
        most: u16,
    },
    /// A counter is about the same parties and resources, and starts from the same holdings.
    #[error("it is about other parties, resources or holdings")]
    OtherSubject,
    /// A counter concedes something, or nothing, but takes nothing back.
    #[error("item {item} is worse than the same end's last proposal: {worse}")]
    Worsens {
        /// Which item.
        item: usize,
        /// In which respect.
        worse: Worse,
    },
    /// Only a proposal without open alternatives can be accepted.
    #[error("the proposal still has alternatives; counter with one of them")]
    Indefinite,
    /// A proposal that was never valid.
    #[error("a proposal cannot be valid for {0}")]
    Validity(Span),
    /// Other nodes than were agreed.
    #[error("{n_nodes} nodes are not what was agreed ({agreed}, and all that were named)")]
    Nodes {
        /// How many there are.
        n_nodes: usize,
        /// How many were agreed.
        agreed: u64,
    },
}

/// Why an own act is not possible; nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ActError {
    /// Not in this phase, or not by this end.
    #[error("this is not possible now: the negotiation is {0}")]
    NotNow(Phase),
    /// The proposal to be answered is no longer valid.
    #[error("the proposal has expired")]
    Lapsed,
    /// The act itself breaks a rule.
    #[error("this is against the rules of a negotiation: {0}")]
    Breach(Breach),
    /// There is no such negotiation.
    #[error("there is no negotiation {0}")]
    NoSuch(NegotiationId),
    /// One at a time for each direction.
    #[error("negotiation {0} is open for the same direction: answer or withdraw it, or wait until it is over")]
    AlreadyOpen(NegotiationId),
}

// Not a source: the broken rule is the reason itself, and is told with it.
impl From<Breach> for ActError {
    fn from(breach: Breach) -> ActError {
        ActError::Breach(breach)
    }
}

/// Why something that was heard has changed nothing, or has ended the negotiation.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Rejected {
    /// Another negotiation's.
    #[error("the message is about negotiation {0}")]
    ForeignId(NegotiationId),
    /// It was heard before, or something later was.
    #[error("statement {number} is not newer than {seen}")]
    Stale {
        /// Its number.
        number: u32,
        /// The latest that was heard.
        seen: u32,
    },
    /// The peer claims to have heard what was not said.
    #[error("statement {seen} cannot have been heard: only {said} were made")]
    NeverSaid {
        /// What it claims.
        seen: u32,
        /// How many there are.
        said: u32,
    },
    /// Not in this phase, or not by that end.
    #[error("the statement does not follow: the negotiation is {0}")]
    OutOfTurn(Phase),
    /// It came after the decision; the peer will hear how it ended.
    #[error("it came too late: the negotiation is {0}")]
    TooLate(Phase),
    /// It breaks a rule; if it is a proposal, the negotiation has ended with that.
    #[error("it is against the rules of a negotiation")]
    Breach(#[from] Breach),
    /// This end has no negotiation of that number, or has it no longer.
    #[error("there is no negotiation {0}")]
    Unknown(NegotiationId),
    /// One is open for the same direction, and goes on.
    #[error("negotiation {0} is open for the same direction")]
    AlreadyOpen(NegotiationId),
}

/// What an application is told of a negotiation that it does not remember cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("negotiation {id} cannot stand as the server says: {why}")]
pub struct Forgery {
    /// Which negotiation.
    pub id: NegotiationId,
    /// What does not hold.
    pub why: &'static str,
}
