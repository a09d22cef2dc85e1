//! An answer to an offer in the simple words of C becomes the items of a counter-offer.

use std::collections::BTreeSet;

use launcher_sdk::negotiator::{HeldHost, Holding, Item, Price, Quantity, Sizes, Template};
use rms_model::{NodeId, Span, Time};

use crate::failure::Failure;

/// What is proposed in place of an offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    pub quantity: Quantity,
    pub least: Quantity,
    pub sizes: Sizes,
    pub price: Price,
    pub duration: Option<Span>,
    pub deadline: Option<Time>,
    pub priority: i32,
    /// By name; empty: any.
    pub hosts: Vec<String>,
}

impl Counter {
    /// The offer's items, of which the only one becomes this.
    ///
    /// # Errors
    /// The offer is about several resources, which these words cannot tell apart; or a host is not held.
    pub fn items(self, offer: &Template, holding: &Holding) -> Result<Vec<Item>, Failure> {
        let mut items = offer.items().to_vec();
        let mut live = items.iter_mut().filter(|item| item.is_live());
        let (Some(item), None) = (live.next(), live.next()) else {
            let text = "the offer is about several resources: it can be accepted or rejected, but not countered from C";
            return Err(Failure::NotNow(text.to_owned()));
        };
        item.quantity = self.quantity;
        item.hosts =
            self.hosts.iter().map(|name| node(holding, name)).collect::<Result<BTreeSet<NodeId>, Failure>>()?;
        item.terms.least = self.least;
        item.terms.most = self.quantity.max(item.terms.most);
        item.terms.sizes = self.sizes;
        item.terms.price = self.price;
        item.terms.duration = self.duration;
        item.terms.deadline = self.deadline;
        item.terms.priority = self.priority;
        Ok(items)
    }
}

fn node(holding: &Holding, name: &str) -> Result<NodeId, Failure> {
    let found = holding.hosts.iter().find(|host: &&HeldHost| host.name == name);
    found.map(|host| host.node).ok_or_else(|| Failure::Invalid(format!("the job has no host '{name}'")))
}
