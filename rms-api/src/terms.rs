//! The terms of proposals, and which term a proposal breaks: what was proposed, and what the other end or the cluster
//! allows.

use std::collections::BTreeMap;

use negotiation::{Direction, Item, Phase, Price, Reason, Resource, Side, Sizes, Template};
use rms_model::{ClusterId, Settings, Span};

use crate::negotiate::{BudgetShortage, NegotiationRecord, Said};

/// Returns the standing proposal, or the last one.
pub fn last_proposal(record: &NegotiationRecord) -> Option<(Side, u16, &Template)> {
    latest_proposals(record).next()
}

/// Returns the proposals, the last one first.
fn latest_proposals(record: &NegotiationRecord) -> impl Iterator<Item = (Side, u16, &Template)> {
    record.rounds.iter().rev().filter_map(|round| match &round.said {
        Said::Proposed { by, round, template } => Some((*by, *round, template)),
        Said::Phase { .. } => None,
    })
}

/// Converts a quantity of time, which is in milliseconds.
pub fn time(quantity: u64) -> Span {
    i64::try_from(quantity).map_or(Span::MAX_WALL, Span::from_millis).min(Span::MAX_WALL)
}

/// Returns a price as `0.25`, in the currency of the deployment, for a node and hour.
pub fn price(price: Price) -> String {
    (price.0 as f64 / 1000.0).to_string()
}

/// Returns the terms of `earlier`, a proposal of the other end, that `counter` does not keep.
pub fn against(earlier: &Template, by: Side, counter: &Template) -> Vec<String> {
    let direction = earlier.direction();
    let pairs = earlier.items().iter().zip(counter.items()).filter(|(_, item)| item.is_live());
    pairs.flat_map(|(wanted, item)| item_against(wanted, by, item, direction)).collect()
}

fn item_against(wanted: &Item, by: Side, item: &Item, direction: Direction) -> Vec<String> {
    let (terms, what) = (&wanted.terms, name(&item.resource));
    let amount = |quantity: u64| amount(&item.resource, quantity);
    let proposed = amount(item.quantity.0);
    let mut broken = Vec::new();
    if item.quantity < terms.least {
        broken.push(format!("{what}: {proposed} proposed, at least {} allowed", amount(terms.least.0)));
    }
    if item.quantity > terms.most {
        broken.push(format!("{what}: {proposed} proposed, at most {} allowed", amount(terms.most.0)));
    }
    match (wanted.total(direction, item.quantity), sizes(&terms.sizes)) {
        (Some(total), Some(allowed)) if !terms.sizes.fits(total) => {
            broken.push(format!("{what} in all: {} proposed, {allowed} allowed", amount(total)));
        }
        (Some(_) | None, Some(_) | None) => {}
    }
    let (bid, other) = (item.terms.price, terms.price);
    let gives = by == direction.giver();
    if gives && bid > other {
        broken.push(format!("price of a node and hour: {} proposed, at most {} allowed", price(bid), price(other)));
    }
    if !gives && bid < other {
        broken.push(format!("price of a node and hour: {} proposed, at least {} allowed", price(bid), price(other)));
    }
    if let (Some(given), Some(longest)) = (item.terms.duration, terms.duration)
        && given != longest
    {
        broken.push(format!("for how long: {given} proposed, {longest} wanted"));
    }
    broken
}

/// The limits of the deployment that a proposal has to keep, as far as they are known.
#[derive(Clone, Debug, Default)]
pub struct Allowed {
    pub settings: Option<Settings>,
    /// The names of the clusters.
    pub clusters: BTreeMap<ClusterId, String>,
}

impl Allowed {
    /// Returns how many nodes beyond their initial ones all jobs of a user may have.
    fn growth(&self, owner: &str) -> Option<u32> {
        self.settings.as_ref()?.growth_limit_of(owner)
    }

    fn longest_wall(&self) -> Option<Span> {
        Some(self.settings.as_ref()?.max_wall)
    }

    /// Returns the lowest price in a negotiation about nodes of a cluster.
    fn least_price(&self, cluster: ClusterId) -> Option<Price> {
        let settings = self.settings.as_ref()?;
        let name = self.clusters.get(&cluster).map_or("", String::as_str);
        let floor = settings.price_in(name).saturating_mul(settings.price_floor.into());
        Some(Price(floor.div_ceil(100)))
    }

    /// Returns that an item's bid is below the lowest price, if it is.
    fn too_low(&self, item: &Item) -> Option<String> {
        let least = match item.resource {
            Resource::Nodes(cluster) => self.least_price(cluster)?,
            Resource::Cores(_) | Resource::Memory(_) | Resource::Devices(..) => return None,
            Resource::Licences(..) | Resource::Time => return None,
        };
        let bid = item.terms.price;
        (bid < least)
            .then(|| format!("price of a node and hour: {} proposed, at least {} allowed", price(bid), price(least)))
    }

    fn has_budget(&self, owner: &str) -> bool {
        self.settings.as_ref().is_some_and(|settings| settings.budget_of(owner).is_some())
    }
}

/// Returns the terms of the previous proposal that the standing one does not keep.
pub fn against_before(record: &NegotiationRecord) -> Option<String> {
    let mut proposals = latest_proposals(record);
    let (by, _, standing) = proposals.next()?;
    let (other, _, earlier) = proposals.next()?;
    let broken = if by == other { Vec::new() } else { against(earlier, by, standing) };
    (!broken.is_empty()).then(|| broken.join("; "))
}

/// Returns why a negotiation of this user's job ended without a result, if a term of its last proposal was the reason.
pub fn broken(record: &NegotiationRecord, owner: &str, allowed: &Allowed) -> Option<String> {
    let reason = record.rounds.iter().rev().find_map(|round| match &round.said {
        Said::Phase { phase: Phase::Ended(_), reason } => Some(*reason),
        Said::Phase { .. } | Said::Proposed { .. } => None,
    })??;
    let mut proposals = latest_proposals(record);
    let (by, _, template) = proposals.next()?;
    match (reason, by, proposals.next()) {
        // It did not take the price that it was asked for.
        (Reason::Price, Side::Rms, Some((Side::Application, _, bid))) => {
            let too_low = bid.items().iter().find_map(|item| allowed.too_low(item));
            too_low.or_else(|| against(template, Side::Application, bid).pop())
        }
        _ => broken_by(template, reason, owner, allowed),
    }
}

/// Returns why a proposal was refused to a job of this user for this reason, if a term of it was the cause.
pub fn broken_by(template: &Template, reason: Reason, owner: &str, allowed: &Allowed) -> Option<String> {
    let direction = template.direction();
    let live = template.items().iter().filter(|item| item.is_live());
    let all: Vec<String> = live.filter_map(|item| refused(item, direction, reason, (owner, allowed))).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// Returns what was not possible in this item.
fn refused(item: &Item, direction: Direction, reason: Reason, (owner, allowed): (&str, &Allowed)) -> Option<String> {
    let (what, held) = (name(&item.resource), item.held.0);
    let proposed = match direction {
        Direction::Grow => format!("{what}: {} more proposed", amount(&item.resource, item.quantity.0)),
        Direction::Shrink => format!("{what}: {} fewer proposed", amount(&item.resource, item.quantity.0)),
    };
    let has_time = item.terms.duration.is_some() || item.terms.give_back_by.is_some();
    match (reason, &item.resource, direction) {
        (Reason::Policy, Resource::Nodes(_), Direction::Shrink) if item.quantity.0 >= held => Some(format!(
            "{proposed}, at most {} of {held} allowed: its first node stays to its end",
            held.saturating_sub(1)
        )),
        (Reason::Policy, Resource::Nodes(_), Direction::Shrink) => {
            Some(format!("{proposed}; named nodes have to be its own, and not its first"))
        }
        (Reason::Policy, Resource::Nodes(_), Direction::Grow) => {
            let limit = allowed.growth(owner).map_or_else(
                || "fewer".to_owned(),
                |limit| format!("all jobs of {owner} together {limit} more than they started with"),
            );
            Some(format!("{proposed}; growth_limit allows {limit}"))
        }
        (
            Reason::Policy,
            Resource::Cores(_) | Resource::Memory(_) | Resource::Devices(..) | Resource::Licences(..),
            _,
        ) if has_time => Some(format!("for how long: {what} are given and taken without a time only")),
        (Reason::Policy, Resource::Cores(_), Direction::Shrink) => Some(format!(
            "{proposed}, at most {} of {held} on each of its own nodes allowed: one stays",
            held.saturating_sub(1)
        )),
        (Reason::Policy, Resource::Cores(_), Direction::Grow) => {
            Some(format!("{proposed}; only nodes that it has can give more"))
        }
        (Reason::Policy, Resource::Memory(_), _) if held == 0 => Some(format!(
            "{proposed}, but it was submitted without --mem: it has no limit that could change, or has its nodes alone"
        )),
        (Reason::Policy, Resource::Memory(_), _) => Some(format!(
            "{proposed}, holding {}: memory changes only on nodes that jobs share, and some stays",
            amount(&item.resource, held)
        )),
        (Reason::Policy, Resource::Devices(..), _) => {
            Some(format!("{proposed}; only nodes that it has, and that jobs share, give and take devices"))
        }
        (Reason::Policy, Resource::Licences(..), _) => {
            Some(format!("{proposed}; only clusters where it has nodes give and take licences"))
        }
        (Reason::Policy, Resource::Time, Direction::Grow) => {
            let longest = allowed.longest_wall().map_or_else(|| "less".to_owned(), |wall| format!("{wall} in all"));
            Some(format!("{proposed}; max_wall, the longest wall time, allows {longest}"))
        }
        (Reason::Policy, Resource::Time, Direction::Shrink) => {
            Some(format!("{proposed}; so much of its wall time is not left"))
        }
        (Reason::Price, _, _) => {
            let bid = price(item.terms.price);
            Some(match allowed.too_low(item) {
                Some(too_low) => too_low,
                None if allowed.has_budget(owner) => {
                    format!("{proposed}; the budget of {owner} does not last for it: 'rms budget' shows what is left")
                }
                None => format!("price of a node and hour: {bid} proposed"),
            })
        }
        (
            Reason::NoResources,
            Resource::Nodes(_)
            | Resource::Cores(_)
            | Resource::Memory(_)
            | Resource::Devices(..)
            | Resource::Licences(..),
            Direction::Grow,
        ) => {
            let least = amount(&item.resource, item.terms.least.0);
            let sizes = sizes(&item.terms.sizes).map(|sizes| format!(", in all {sizes}")).unwrap_or_default();
            Some(format!("{proposed}, of which at least {least}{sizes} had to be free"))
        }
        (_, Resource::Nodes(_) | Resource::Cores(_) | Resource::Memory(_) | Resource::Devices(..), _)
        | (_, Resource::Licences(..) | Resource::Time, _) => None,
    }
}

/// Returns why a user cannot pay for a change.
pub fn shortage(BudgetShortage { needed, left }: BudgetShortage) -> String {
    format!(
        "its owner's budget is too small: this costs {} at least, and {} is left",
        price(Price(needed)),
        price(Price(left))
    )
}

fn name(resource: &Resource) -> String {
    match resource {
        Resource::Nodes(_) => "nodes".to_owned(),
        Resource::Cores(_) => "cores of a node".to_owned(),
        Resource::Memory(_) => "memory of a node".to_owned(),
        Resource::Devices(_, name) => format!("{name} of a node"),
        Resource::Licences(_, name) => format!("licences of {name}"),
        Resource::Time => "wall time".to_owned(),
    }
}

fn amount(resource: &Resource, quantity: u64) -> String {
    match resource {
        Resource::Nodes(_) | Resource::Cores(_) | Resource::Devices(..) | Resource::Licences(..) => {
            quantity.to_string()
        }
        Resource::Memory(_) => format!("{quantity} MiB"),
        Resource::Time => time(quantity).to_string(),
    }
}

/// Returns the totals that are useful, if not all are.
pub fn sizes(sizes: &Sizes) -> Option<String> {
    match sizes {
        Sizes::Any => None,
        Sizes::PowerOfTwo => Some("a power of two".to_owned()),
        Sizes::MultipleOf(unit) => Some(format!("a multiple of {unit}")),
        Sizes::Listed(sizes) => Some(sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(" or ")),
    }
}

#[cfg(test)]
mod tests {
    use negotiation::{Ending, NegotiationId, Parties, Price, Quantity, SetRule};
    use rms_model::{ClusterId, JobId, Run, Time};

    use crate::negotiate::RoundRecord;

    use super::*;

    /// Returns a proposal of `quantity` nodes more or fewer, with 8 held.
    fn proposal(direction: Direction, quantity: u64, change: impl FnOnce(&mut Item)) -> Template {
        let mut item = Item::up_to(Resource::Nodes(ClusterId(0)), 8, quantity);
        change(&mut item);
        let parties = Parties { job: JobId(7), run: Run(1), initiator: Side::Application };
        Template::new(parties, direction, vec![SetRule::All], vec![item]).expect("it is one")
    }

    #[test]
    fn a_counter_names_the_terms_that_it_does_not_keep() {
        let wanted = proposal(Direction::Grow, 8, |item| {
            item.terms.least = Quantity(4);
            item.terms.sizes = Sizes::PowerOfTwo;
            item.terms.price = Price(200);
        });
        let check = |quantity, price, expected: &[&str]| {
            let counter = proposal(Direction::Grow, quantity, |item| item.terms.price = Price(price));
            assert_eq!(against(&wanted, Side::Rms, &counter), expected, "{quantity} at {price}");
        };
        check(8, 200, &[]);
        check(
            3,
            500,
            &[
                "nodes: 3 proposed, at least 4 allowed",
                "nodes in all: 11 proposed, a power of two allowed",
                "price of a node and hour: 0.5 proposed, at most 0.2 allowed",
            ],
        );
    }

    #[test]
    fn a_bid_that_was_too_low_is_not_blamed_on_the_budget() {
        let mut limits = Settings::default();
        let told = [("budget@bob", "7"), ("price", "500"), ("price_floor", "80")];
        told.iter().for_each(|(key, value)| limits.set(key, value).expect("a setting"));
        let allowed = Allowed { settings: Some(limits), clusters: BTreeMap::new() };
        for (bid, expected) in
            [(300, "0.3 proposed, at least 0.4 allowed"), (400, "0.4 proposed, at least 0.5 allowed")]
        {
            let at = |round, by, price| {
                let template = proposal(Direction::Grow, 3, |item| item.terms.price = Price(price));
                RoundRecord { at: Time::EPOCH, said: Said::Proposed { by, round, template } }
            };
            let end = Said::Phase { phase: Phase::Ended(Ending::Withdrawn), reason: Some(Reason::Price) };
            let end = RoundRecord { at: Time::EPOCH, said: end };
            let rounds = vec![at(1, Side::Application, bid), at(2, Side::Rms, 500), end];
            let id = NegotiationId { initiator: Side::Application, number: 1 };
            let (direction, opened) = (Direction::Grow, Time::EPOCH);
            let record = NegotiationRecord { id, direction, by: None, opened, rounds, nodes: Vec::new() };
            let expected = format!("price of a node and hour: {expected}");
            assert_eq!(broken(&record, "bob", &allowed), Some(expected));
        }
    }

    #[test]
    fn a_refusal_names_the_term() {
        let item = |direction, quantity| proposal(direction, quantity, |_| {}).items()[0].clone();
        let told = [("growth_limit", "4"), ("growth_limit@bob", "2"), ("price", "500"), ("price_floor", "80")];
        let mut limits = Settings::default();
        told.iter().for_each(|(key, value)| limits.set(key, value).expect("a setting"));
        let settings = Some(limits);
        let mut poor = settings.clone();
        assert_eq!(poor.as_mut().map(|poor| poor.set("budget@bob", "7")), Some(Ok(())));
        let allowed = Allowed { settings, clusters: BTreeMap::new() };
        let refused = |item: &Item, direction, reason| refused(item, direction, reason, ("bob", &allowed));
        assert_eq!(
            refused(&item(Direction::Shrink, 8), Direction::Shrink, Reason::Policy).as_deref(),
            Some("nodes: 8 fewer proposed, at most 7 of 8 allowed: its first node stays to its end")
        );
        assert_eq!(
            refused(&item(Direction::Grow, 3), Direction::Grow, Reason::NoResources).as_deref(),
            Some("nodes: 3 more proposed, of which at least 1 had to be free")
        );
        assert_eq!(refused(&item(Direction::Grow, 3), Direction::Grow, Reason::Declined), None);
        assert_eq!(
            refused(&item(Direction::Grow, 3), Direction::Grow, Reason::Policy).as_deref(),
            Some("nodes: 3 more proposed; growth_limit allows all jobs of bob together 2 more than they started with")
        );
        let bids = |bid| proposal(Direction::Grow, 3, |item| item.terms.price = Price(bid)).items()[0].clone();
        assert_eq!(
            refused(&bids(300), Direction::Grow, Reason::Price).as_deref(),
            Some("price of a node and hour: 0.3 proposed, at least 0.4 allowed")
        );
        assert_eq!(
            refused(&bids(400), Direction::Grow, Reason::Price).as_deref(),
            Some("price of a node and hour: 0.4 proposed"),
            "he has no budget"
        );
        let poor = Allowed { settings: poor, clusters: BTreeMap::new() };
        assert_eq!(
            super::refused(&bids(400), Direction::Grow, Reason::Price, ("bob", &poor)).as_deref(),
            Some("nodes: 3 more proposed; the budget of bob does not last for it: 'rms budget' shows what is left")
        );
        assert_eq!(
            shortage(BudgetShortage { needed: 60, left: 31 }),
            "its owner's budget is too small: this costs 0.06 at least, and 0.031 is left"
        );
        let longer = Item { resource: Resource::Time, quantity: Quantity(1_800_000), ..item(Direction::Grow, 1) };
        assert_eq!(
            refused(&longer, Direction::Grow, Reason::Policy).as_deref(),
            Some("wall time: 30m more proposed; max_wall, the longest wall time, allows 365d in all")
        );
    }
}
