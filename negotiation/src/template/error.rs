//! Why a template is invalid, and which item is wrong.

use std::fmt;

use rms_model::NodeId;
use thiserror::Error;

use super::{Item, MAX_ITEMS, MAX_PRICE, MAX_SIZES};
use crate::subject::Resource;
use crate::terms::{Quantity, Sizes};

/// The item that is wrong. Who proposes a change of one resource has written no list of items, so the number of one
/// would tell nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// The only item of the template, by its resource.
    Only(Resource),
    /// One of several, counted from 0.
    Item(usize),
}

impl Which {
    /// Returns the item at `idx` of these.
    pub(crate) fn of(idx: usize, items: &[Item]) -> Which {
        match items {
            [only] => Which::Only(only.resource.clone()),
            _ => Which::Item(idx),
        }
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Which::Only(Resource::Nodes(_)) => f.write_str("the change of nodes"),
            Which::Only(Resource::Cores(_)) => f.write_str("the change of cores"),
            Which::Only(Resource::Memory(_)) => f.write_str("the change of memory"),
            Which::Only(Resource::Devices(_, name)) => write!(f, "the change of {name}"),
            Which::Only(Resource::Licences(_, name)) => write!(f, "the change of licences of {name}"),
            Which::Only(Resource::Time) => f.write_str("the change of wall time"),
            Which::Item(idx) => write!(f, "item {idx}"),
        }
    }
}

/// Why a template is invalid. Sets are counted from 0, as in the template.
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
    #[error("{item} has no name, or one that it cannot have: devices and licences are named like gpu:a100 or matlab")]
    NoName {
        /// Which item.
        item: Which,
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
    #[error("{item} asks for nothing")]
    NoQuantity {
        /// Which item.
        item: Which,
    },
    /// More than can exist.
    #[error("{item} comes to {asked}, but there are never more than {limit}")]
    TooMuch {
        /// Which item.
        item: Which,
        /// The quantity, or the total with what is held.
        asked: Quantity,
        /// The most there can be.
        limit: Quantity,
    },
    /// More would be given back than is held.
    #[error("{item} gives back {}, which is more than the {held} held", resource.amount(*asked))]
    MoreThanHeld {
        /// Which item.
        item: Which,
        /// What is given back.
        resource: Resource,
        /// The quantity.
        asked: Quantity,
        /// What is held.
        held: Quantity,
    },
    /// No quantity lies between the bounds.
    #[error("{item} has no quantity between at least {least} and at most {most}")]
    EmptyRange {
        /// Which item.
        item: Which,
        /// The lower bound.
        least: Quantity,
        /// The upper bound.
        most: Quantity,
    },
    /// Multiples of zero.
    #[error("{item} wants multiples of 0")]
    MultipleOfZero {
        /// Which item.
        item: Which,
    },
    /// An empty list of sizes.
    #[error("{item} has an empty list of sizes")]
    NoSizes {
        /// Which item.
        item: Which,
    },
    /// A list of sizes that is too long.
    #[error("{item} lists {n_sizes} sizes; at most {MAX_SIZES} are allowed")]
    TooManySizes {
        /// Which item.
        item: Which,
        /// How many it lists.
        n_sizes: usize,
    },
    /// A list of sizes out of order.
    #[error("{item} lists its sizes out of order or twice; they must ascend")]
    SizesUnsorted {
        /// Which item.
        item: Which,
    },
    /// The total after the change is none of the sizes of the same item.
    #[error("{item} makes {total} in all, which is not {}", sizes.kind())]
    NotASize {
        /// Which item.
        item: Which,
        /// What would be held, with its unit.
        total: String,
        /// The sizes.
        sizes: Sizes,
    },
    /// The quantity is not in the range of the same item.
    #[error("{item} proposes {quantity} against its own terms")]
    AgainstOwnTerms {
        /// Which item.
        item: Which,
        /// The quantity.
        quantity: Quantity,
    },
    /// A price above the limit.
    #[error("{item} has a price above {MAX_PRICE}")]
    PriceTooHigh {
        /// Which item.
        item: Which,
    },
    /// An invalid duration.
    #[error("{item} has a duration that is not between zero and 100 years")]
    Duration {
        /// Which item.
        item: Which,
    },
    /// It would have to be given back before it is ready.
    #[error("{item} is to be given back before it has to be ready")]
    BackBeforeReady {
        /// Which item.
        item: Which,
    },
    /// Wall time with a duration.
    #[error("{item} cannot be lent: wall time has neither a duration nor a time to give it back")]
    TimeCannotBeLent {
        /// Which item.
        item: Which,
    },
    /// Nodes are named for a resource that is not on nodes.
    #[error("licences and wall time are not on nodes: name none")]
    NotOnNodes,
    /// The number of named nodes differs from the quantity, or is more than there can be.
    #[error("{item} names {} for a quantity of {quantity}", counted(*names))]
    NodesNamed {
        /// Which item.
        item: Which,
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
    #[error("{item} has a status that only the outcome of a negotiation can have")]
    NotAProposal {
        /// Which item.
        item: Which,
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

fn counted(n_nodes: usize) -> String {
    if n_nodes == 1 { "1 node".to_owned() } else { format!("{n_nodes} nodes") }
}
