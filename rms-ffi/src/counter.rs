//! Turns a C program's answer to an offer into the items of a counter-offer.

use std::collections::BTreeSet;

use launcher_sdk::negotiator::{Direction, HeldNode, Holding, Item, Price, Quantity, Resource, Sizes, Template};
use rms_model::{ClusterId, NodeId, Span, Time};

use crate::failure::Failure;
use crate::kind;

/// What is proposed instead of an offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// 0: that of the offer.
    pub kind: i32,
    /// `None`: that of the offer.
    pub cluster: Option<String>,
    /// Of devices and licences; `None`: that of the offer.
    pub name: Option<String>,
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
    /// The offer is about several resources, which these fields cannot tell apart; the counter is about another
    /// resource than the offer; or a node is not held.
    pub fn items(
        self,
        offer: &Template,
        holding: &Holding,
        cluster_name: impl Fn(ClusterId) -> Option<String>,
    ) -> Result<Vec<Item>, Failure> {
        let mut items = offer.items().to_vec();
        let mut live = items.iter_mut().filter(|item| item.is_live());
        let (Some(item), None) = (live.next(), live.next()) else {
            let text = "the offer is about several resources: it can be accepted or rejected, but not countered from C";
            return Err(Failure::NotNow(text.to_owned()));
        };
        self.check_subject(&item.resource, offer.direction(), cluster_name)?;
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

    /// Checks that this is about the resource of the offer, where it says so.
    fn check_subject(
        &self,
        resource: &Resource,
        direction: Direction,
        cluster_name: impl Fn(ClusterId) -> Option<String>,
    ) -> Result<(), Failure> {
        let other = |field: &str, said: &str, offered: Option<&str>| {
            let offered = offered.map_or_else(|| format!("has no {field}"), |offered| format!("is of {offered}"));
            Failure::Invalid(format!("terms: {field} is {said}, but the offer {offered}; 0 and NULL mean the offer's"))
        };
        let offered = kind::kind(resource, direction);
        if self.kind != 0 && self.kind != offered {
            return Err(other("kind", &kind::name(self.kind), Some(&kind::name(offered))));
        }
        if let Some(said) = self.name.as_deref().filter(|said| resource.name() != Some(said)) {
            return Err(other("name", said, resource.name()));
        }
        let offered = resource.cluster().map(|cluster| cluster_name(cluster).unwrap_or_else(|| cluster.to_string()));
        match self.cluster.as_deref().filter(|said| offered.as_deref() != Some(said)) {
            Some(said) => Err(other("cluster", said, offered.as_deref())),
            None => Ok(()),
        }
    }
}

fn node(holding: &Holding, name: &str) -> Result<NodeId, Failure> {
    let found = holding.nodes.iter().find(|node: &&HeldNode| node.name == name);
    found.map(|node| node.node).ok_or_else(|| Failure::Invalid(format!("the job has no node '{name}'")))
}

#[cfg(test)]
mod tests {
    use launcher_sdk::negotiator::{ItemStatus, SetRule, Side, Terms};
    use negotiation::Parties;
    use rms_model::{JobId, Run};

    use super::*;
    use crate::layout as c;

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
            kind: 0,
            cluster: None,
            name: None,
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

    fn name(cluster: ClusterId) -> Option<String> {
        Some(["a", "b"][cluster.0 as usize].to_owned())
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
        let items = counter(8, &[]).items(&offer, &NOTHING, name).expect("one resource");
        assert_eq!((items[0].quantity, items[0].terms.price), (Quantity(8), Price(3)));
        assert_eq!(items[0].terms.most, Quantity(15), "what was of use before still is");
        offer.with_items(items).expect("the counter is a proposal about the same");
    }

    #[test]
    fn what_these_words_cannot_say_is_refused() {
        let several = offer(vec![item(NODES, 2), item(Resource::Time, 60_000)]);
        assert!(matches!(counter(1, &[]).items(&several, &NOTHING, name), Err(Failure::NotNow(_))));
        let one = offer(vec![item(NODES, 2)]);
        assert!(matches!(counter(1, &["b"]).items(&one, &NOTHING, name), Err(Failure::Invalid(_))));
    }

    #[test]
    fn a_counter_about_another_resource_is_refused() {
        let gpus = offer(vec![item(Resource::Devices(ClusterId(0), "gpu".to_owned()), 2)]);
        let time = offer(vec![item(Resource::Time, 60_000)]);
        let said = |offer: &Template, kind, cluster: Option<&str>, of: Option<&str>| {
            let counter =
                Counter { kind, cluster: cluster.map(str::to_owned), name: of.map(str::to_owned), ..counter(1, &[]) };
            counter.items(offer, &NOTHING, name).map_err(|failure| failure.to_string())
        };
        assert!(said(&gpus, c::RMS_MORE_DEVICES, Some("a"), Some("gpu")).is_ok());
        assert!(said(&time, c::RMS_EXTEND, None, None).is_ok());
        let check = |said: Result<Vec<Item>, String>, parts: [&str; 3]| {
            let text = said.expect_err("it is about something else");
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        };
        check(said(&gpus, c::RMS_FEWER_DEVICES, None, None), ["kind", "RMS_FEWER_DEVICES", "RMS_MORE_DEVICES"]);
        check(said(&gpus, 99, None, None), ["kind", "99", "RMS_MORE_DEVICES"]);
        check(said(&gpus, 0, Some("b"), None), ["cluster", "is b", "of a"]);
        check(said(&gpus, 0, None, Some("matlab")), ["name", "is matlab", "of gpu"]);
        check(said(&time, 0, Some("a"), None), ["cluster", "is a", "has no cluster"]);
        check(said(&time, 0, None, Some("gpu")), ["name", "is gpu", "has no name"]);
    }
}
