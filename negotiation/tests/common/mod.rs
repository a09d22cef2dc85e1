//! Helpers for several tests: short constructors for templates.

#![allow(dead_code, reason = "every test program uses its own part of it")]

pub mod channel;

use negotiation::{Direction, Item, Parties, Price, Resource, Side, Template};
use rms_model::{ClusterId, JobId, Run};

/// The cluster of all these tests.
pub const CLUSTER: Resource = Resource::Nodes(ClusterId(0));

/// Returns the parties: job 7 and the RMS.
pub fn parties(initiator: Side) -> Parties {
    Parties { job: JobId(7), run: Run(1), initiator }
}

/// Returns an item for `quantity` more nodes, with no terms but the range from one.
pub fn nodes(held: u64, quantity: u64) -> Item {
    Item::up_to(CLUSTER, held, quantity)
}

/// Returns the same item at a price.
pub fn priced(held: u64, quantity: u64, price: u64) -> Item {
    let mut item = nodes(held, quantity);
    item.terms.price = Price(price);
    item
}

/// Returns a template of one item.
pub fn template(initiator: Side, direction: Direction, item: Item) -> Template {
    Template::of_one(parties(initiator), direction, item).expect("the tests make right templates")
}
