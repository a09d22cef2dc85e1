//! Turns a C program's answer to an offer into the items of a counter-offer.

use std::collections::BTreeSet;

use launcher_sdk::negotiator::{HeldNode, Holding, Item, Price, Quantity, Sizes, Template};
use rms_model::{NodeId, Span, Time};

use crate::failure::Failure;

/// What is proposed instead of an offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    pub quantity: Quantity,
    pub least: Quantity,
    pub sizes: Sizes,
    pub price: Price,
    pub duration: Option<Span>,
    pub deadline: Option<Time>,
    pub priority: i32,
    /// By name; any nodes if empty.
    pub nodes: Vec<String>,
}

impl Counter {
    /// Returns the offer's items, the only live one of which is replaced by this counter.
    ///
    /// # Errors
    /// The offer is about several resources, which these fields cannot tell apart; or a node is not held.
    pub fn items(self, offer: &Template, holding: &Holding) -> Result<Vec<Item>, Failure> {
        let mut items = offer.items().to_vec();
        let mut live = items.iter_mut().filter(|item| item.is_live());
        let (Some(item), None) = (live.next(), live.next()) else {
            let text = "the offer is about several resources: it can be accepted or rejected, but not countered from C";
            return Err(Failure::NotNow(text.to_owned()));
        };
        item.quantity = self.quantity;
        item.nodes =
            self.nodes.iter().map(|name| node(holding, name)).collect::<Result<BTreeSet<NodeId>, Failure>>()?;
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
    let found = holding.nodes.iter().find(|node: &&HeldNode| node.name == name);
    found.map(|node| node.node).ok_or_else(|| Failure::Invalid(format!("the job has no node '{name}'")))
}

#[cfg(test)]
mod tests {
    use launcher_sdk::negotiator::{Direction, ItemStatus, Resource, SetRule, Side, Terms};
    use negotiation::Parties;
    use rms_model::{ClusterId, JobId, Run};

    use super::*;

    fn item(resource: Resource, quantity: u64) -> Item {
        Item {
            set: 0,
            resource,
            quantity: Quantity(quantity),
            held: Quantity(8),
            nodes: BTreeSet::new(),
            terms: Terms::up_to(Quantity(quantity)),
            status: ItemStatus::Proposed,
        }
    }

    fn offer(items: Vec<Item>) -> Template {
        let parties = Parties { job: JobId(1), run: Run(1), initiator: Side::Rms };
        Template::new(parties, Direction::Grow, vec![SetRule::All], items).expect("a template")
    }

    fn counter(quantity: u64, nodes: &[&str]) -> Counter {
        Counter {
            quantity: Quantity(quantity),
            least: Quantity(quantity),
            sizes: Sizes::PowerOfTwo,
            price: Price(3),
            duration: None,
            deadline: None,
            priority: 0,
            nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
        }
    }

    const NOTHING: Holding = Holding {
        generation: 1,
        nodes: Vec::new(),
        until: Time::EPOCH,
        stages: None,
        licences: std::collections::BTreeMap::new(),
    };
    const NODES: Resource = Resource::Nodes(ClusterId(0));

    #[test]
    fn of_fifteen_nodes_eight_are_taken() {
        let offer = offer(vec![item(NODES, 15)]);
        let items = counter(8, &[]).items(&offer, &NOTHING).expect("one resource");
        assert_eq!((items[0].quantity, items[0].terms.price), (Quantity(8), Price(3)));
        assert_eq!(items[0].terms.most, Quantity(15), "what was of use before still is");
        offer.with_items(items).expect("the counter is a proposal about the same");
    }

    #[test]
    fn what_these_words_cannot_say_is_refused() {
        let several = offer(vec![item(NODES, 2), item(Resource::Time, 60_000)]);
        assert!(matches!(counter(1, &[]).items(&several, &NOTHING), Err(Failure::NotNow(_))));
        let one = offer(vec![item(NODES, 2)]);
        assert!(matches!(counter(1, &["b"]).items(&one, &NOTHING), Err(Failure::Invalid(_))));
    }
}
