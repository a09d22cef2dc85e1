//! Why a template is invalid, and which item is wrong.

use rms_model::NodeId;
use thiserror::Error;

use super::{MAX_ITEMS, MAX_PRICE, MAX_SIZES};
use crate::subject::Resource;
use crate::terms::Quantity;

/// Why a template is invalid. Items and sets are counted from 0, as in the template.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TemplateError {
    /// The template has no items.
    #[error("the template has no items")]
    NoItems,
    /// The list of items or sets is too long.
    #[error("{n_items} items in {n_sets} sets are more than the {MAX_ITEMS} that are allowed")]
    TooManyItems {
        /// Items in the list.
        n_items: usize,
        /// Sets in the list.
        n_sets: usize,
    },
    /// A resource of an unknown kind.
    #[error(
        "item {item} is of the unknown kind {kind}; the kinds are 1 (nodes), 2 (cores), 3 (time), 4 (memory), 5 (devices) and 6 (licences)"
    )]
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
        /// How many numbers it had.
        n_numbers: usize,
    },
    /// A cluster for a resource that has none.
    #[error("item {item} is time, which belongs to no cluster")]
    ClusterOfTime {
        /// Which item.
        item: usize,
    },
    /// A device or a licence without a name, or another resource with one.
    #[error(
        "item {item} has no name, or one that it cannot have: devices and licences are named like gpu:a100 or matlab"
    )]
    NoName {
        /// Which item.
        item: usize,
    },
    /// A set that does not exist.
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
    /// A change of zero.
    #[error("item {item} asks for nothing")]
    NoQuantity {
        /// Which item.
        item: usize,
    },
    /// More than can exist.
    #[error("item {item} comes to {asked}, but there are never more than {limit}")]
    TooMuch {
        /// Which item.
        item: usize,
        /// The quantity, or the total with what is held.
        asked: Quantity,
        /// The most there can be.
        limit: Quantity,
    },
    /// More would be given back than is held.
    #[error("item {item} gives back {}, which is more than the {held} held", resource.amount(*asked))]
    MoreThanHeld {
        /// Which item.
        item: usize,
        /// What is given back.
        resource: Resource,
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
    /// Multiples of zero.
    #[error("item {item} wants multiples of 0")]
    MultipleOfZero {
        /// Which item.
        item: usize,
    },
    /// An empty list of sizes.
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
    /// The quantity does not satisfy the terms of the same item.
    #[error("item {item} proposes {quantity} against its own terms")]
    AgainstOwnTerms {
        /// Which item.
        item: usize,
        /// The quantity.
        quantity: Quantity,
    },
    /// A price above the limit.
    #[error("item {item} has a price above {MAX_PRICE}")]
    PriceTooHigh {
        /// Which item.
        item: usize,
    },
    /// An invalid duration.
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
    /// Wall time with a duration.
    #[error("item {item} is time, which cannot be lent: it has neither a duration nor a time to give it back")]
    TimeCannotBeLent {
        /// Which item.
        item: usize,
    },
    /// Nodes are named for a resource without nodes, or their number differs from the quantity.
    #[error("item {item} names {names} nodes for a quantity of {quantity}")]
    NodesNamed {
        /// Which item.
        item: usize,
        /// How many it names.
        names: usize,
        /// The quantity.
        quantity: Quantity,
    },
    /// A node is named twice.
    #[error("item {item} names node {node} twice")]
    NodeTwice {
        /// Which item.
        item: usize,
        /// Which node.
        node: NodeId,
    },
    /// A status that no proposal can have.
    #[error("item {item} has a status that only the outcome of a negotiation can have")]
    NotAProposal {
        /// Which item.
        item: usize,
    },
    /// A resource occurs twice, but not as alternatives.
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
    /// Too many items of a set are refused.
    #[error("so much is refused that some set cannot be met: reject the proposal instead")]
    CannotBeMet,
}
