//! Why a template is none, an act is not possible, or what the other end said is not taken.

use rms_model::{NodeId, Span};
use thiserror::Error;

use crate::message::NegotiationId;
use crate::table::Phase;
use crate::template::{MAX_ITEMS, MAX_PRICE, MAX_SIZES};
use crate::terms::Quantity;

/// Why something is not a template. Items and sets are counted from 0, as in the template.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TemplateError {
    /// There is nothing to negotiate about.
    #[error("the template has no items")]
    NoItems,
    /// The list is too long.
    #[error("{n_items} items in {n_sets} sets are more than the {MAX_ITEMS} that are allowed")]
    TooManyItems {
        /// Items in the list.
        n_items: usize,
        /// Sets in the list.
        n_sets: usize,
    },
    /// A resource of an unknown kind.
    #[error("item {item} is of the unknown kind {kind}; the kinds are 1 (hosts), 2 (cores) and 3 (time)")]
    UnknownKind {
        /// Which item.
        item: usize,
        /// The number that was sent.
        kind: u16,
    },
    /// Sizes of an unknown shape.
    #[error(
        "item {item} has sizes of the unknown shape {shape}, or with {n_numbers} numbers, which do not belong to it"
    )]
    UnknownShape {
        /// Which item.
        item: usize,
        /// The number that was sent.
        shape: u16,
        /// How many numbers came with it.
        n_numbers: usize,
    },
    /// A cluster for something that has none.
    #[error("item {item} is time, which belongs to no cluster")]
    ClusterOfTime {
        /// Which item.
        item: usize,
    },
    /// A set that is not there.
    #[error("item {item} is in set {set}, which does not exist")]
    NoSuchSet {
        /// Which item.
        item: usize,
        /// The set it names.
        set: u16,
    },
    /// A set without items.
    #[error("set {set} has no items")]
    EmptySet {
        /// Which set.
        set: usize,
    },
    /// Nothing is to change.
    #[error("item {item} asks for nothing")]
    NoQuantity {
        /// Which item.
        item: usize,
    },
    /// More than exists anywhere.
    #[error("item {item} comes to {asked}, but there are never more than {limit}")]
    TooMuch {
        /// Which item.
        item: usize,
        /// The quantity, or the total with what is held.
        asked: Quantity,
        /// The most there can be.
        limit: Quantity,
    },
    /// More is to be given back than is held.
    #[error("item {item} gives {asked} back, but only {held} are held")]
    MoreThanHeld {
        /// Which item.
        item: usize,
        /// The quantity.
        asked: Quantity,
        /// What is held.
        held: Quantity,
    },
    /// No quantity lies between the bounds.
    #[error("item {item} has no quantity between at least {least} and at most {most}")]
    EmptyRange {
        /// Which item.
        item: usize,
        /// The lower bound.
        least: Quantity,
        /// The upper bound.
        most: Quantity,
    },
    /// Nothing is a multiple of zero.
    #[error("item {item} wants multiples of 0")]
    MultipleOfZero {
        /// Which item.
        item: usize,
    },
    /// A list of sizes without any.
    #[error("item {item} has an empty list of sizes")]
    NoSizes {
        /// Which item.
        item: usize,
    },
    /// A list of sizes that is too long.
    #[error("item {item} lists {n_sizes} sizes; at most {MAX_SIZES} are allowed")]
    TooManySizes {
        /// Which item.
        item: usize,
        /// How many it lists.
        n_sizes: usize,
    },
    /// A list of sizes out of order.
    #[error("item {item} lists its sizes out of order or twice; they must ascend")]
    SizesUnsorted {
        /// Which item.
        item: usize,
    },
    /// The quantity does not satisfy the terms beside it.
    #[error("item {item} proposes {quantity} against its own terms")]
    AgainstOwnTerms {
        /// Which item.
        item: usize,
        /// The quantity.
        quantity: Quantity,
    },
    /// A price beyond all prices.
    #[error("item {item} has a price above {MAX_PRICE}")]
    PriceTooHigh {
        /// Which item.
        item: usize,
    },
    /// A duration that is none.
    #[error("item {item} has a duration that is not between zero and 100 years")]
    Duration {
        /// Which item.
        item: usize,
    },
    /// It would have to be given back before it is ready.
    #[error("item {item} is to be given back before it has to be ready")]
    BackBeforeReady {
        /// Which item.
        item: usize,
    },
    /// Time with a duration.
    #[error("item {item} is time, which cannot be lent: it has neither a duration nor a time to give it back")]
    TimeCannotBeLent {
        /// Which item.
        item: usize,
    },
    /// Hosts are named where there are none, or not as many as the quantity.
    #[error("item {item} names {names} hosts for a quantity of {quantity}")]
    HostsNamed {
        /// Which item.
        item: usize,
        /// How many it names.
        names: usize,
        /// The quantity.
        quantity: Quantity,
    },
    /// A host is named twice.
    #[error("item {item} names host {host} twice")]
    HostTwice {
        /// Which item.
        item: usize,
        /// Which host.
        host: NodeId,
    },
    /// A status that no proposal has.
    #[error("item {item} has a status that only the outcome of a negotiation can have")]
    NotAProposal {
        /// Which item.
        item: usize,
    },
    /// One resource twice, and not as alternatives.
    #[error("item {item} is about the same resource as one before it, and they are no alternatives")]
    TwiceTheSame {
        /// Which item.
        item: usize,
    },
    /// Two alternatives disagree about what is held.
    #[error("item {item} says that another quantity is held than an alternative before it")]
    HeldDiffers {
        /// Which item.
        item: usize,
    },
    /// Some set has too little left in it.
    #[error("so much is refused that some set cannot be met: reject the proposal instead")]
    CannotBeMet,
}

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
    /// Other hosts than were agreed.
    #[error("{n_hosts} hosts are not what was agreed ({agreed}, and all that were named)")]
    Hosts {
        /// How many there are.
        n_hosts: usize,
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
    #[error("this is against the rules of a negotiation")]
    Breach(#[from] Breach),
    /// The desk knows of no such negotiation.
    #[error("there is no negotiation {0}")]
    NoSuch(NegotiationId),
    /// One at a time for each direction.
    #[error("negotiation {0} is open for the same direction")]
    AlreadyOpen(NegotiationId),
}

/// Why something that was heard has changed nothing, or has ended the negotiation.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
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
    /// Nobody here has a negotiation of that number, or not any more.
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
