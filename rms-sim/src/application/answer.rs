//! How a model application answers a proposal of the server, depending on what it can use and pay.

use negotiation::{Action, Dialogue, Direction, Item, Price, Quantity, Reason, Resource, Template, Terms};
use rms_model::Span;

use super::manner::{Answers, Manner};

/// Returns its answer to the standing proposal; none if it does not answer.
pub(super) fn answer(manner: &Manner, dialogue: &Dialogue) -> Option<Action> {
    let theirs = dialogue.theirs()?;
    match manner.answers {
        Answers::Ignores => None,
        Answers::Declines => Some(Action::Reject(Reason::Declined)),
        Answers::ByItsSizes | Answers::Haggles { .. } => Some(match theirs.items() {
            [item] => to_one(manner, theirs, item, dialogue.mine().and_then(|mine| mine.items().first())),
            items => to_several(manner, theirs, items),
        }),
    }
}

fn to_one(manner: &Manner, theirs: &Template, item: &Item, mine: Option<&Item>) -> Action {
    let direction = theirs.direction();
    let Some(quantity) = usable(manner, direction, item) else { return Action::Reject(Reason::Declined) };
    // No end may withdraw a concession.
    let quantity = match (direction, mine) {
        (Direction::Grow, Some(mine)) => quantity.min(mine.quantity),
        (Direction::Shrink, Some(mine)) => quantity.max(mine.quantity),
        (Direction::Grow | Direction::Shrink, None) => quantity,
    };
    let price = bid(manner, direction, item.terms.price, mine.map(|mine| mine.terms.price));
    let is_fair = match direction {
        Direction::Grow => item.terms.price <= price,
        Direction::Shrink => item.terms.price >= price,
    };
    if quantity == item.quantity && is_fair {
        return Action::Accept;
    }
    let is_the_last = mine.is_some_and(|mine| mine.quantity == quantity && mine.terms.price == price);
    if is_the_last {
        let reason = if is_fair { Reason::NoResources } else { Reason::Price };
        return Action::Reject(reason);
    }
    let own = mine.cloned().unwrap_or_else(|| own_terms(manner, direction, item));
    let own = Item { quantity, terms: Terms { price, ..own.terms.clone() }, nodes: Default::default(), ..own };
    match theirs.with_items(vec![own]) {
        Ok(template) => Action::Propose { template, valid_for: VALID_FOR },
        // Nodes that it cannot do without were named, or `held` has changed meanwhile.
        Err(_) => Action::Reject(Reason::Changed),
    }
}

/// Answers a proposal of several items, which is taken as it is or rejected.
fn to_several(manner: &Manner, theirs: &Template, items: &[Item]) -> Action {
    let is_usable = |item: &Item| usable(manner, theirs.direction(), item) == Some(item.quantity);
    let suits = items.iter().filter(|item| item.is_live()).all(is_usable);
    if theirs.is_definite() && suits { Action::Accept } else { Action::Reject(Reason::Declined) }
}

/// Returns the usable change that is nearest to the proposed one; 002 (§3): of 15, an application on 8 can use 8 more.
pub(super) fn usable(manner: &Manner, direction: Direction, item: &Item) -> Option<Quantity> {
    match item.resource {
        Resource::Time => Some(item.quantity),
        Resource::Cores(_) | Resource::Memory(_) | Resource::Devices(..) | Resource::Licences(..) => None,
        Resource::Nodes(_) => {
            let own = own_terms(manner, direction, item);
            match direction {
                Direction::Grow => own.greatest(direction, item.quantity),
                Direction::Shrink => {
                    own.least(direction, item.quantity).or_else(|| own.greatest(direction, item.quantity))
                }
            }
        }
    }
}

/// Returns the same resource with its own terms: all that it can ever use of it.
fn own_terms(manner: &Manner, direction: Direction, item: &Item) -> Item {
    let most = match direction {
        Direction::Grow => u64::from(manner.most).saturating_sub(item.held.0),
        Direction::Shrink => item.held.0.saturating_sub(u64::from(manner.least)),
    };
    let most = Quantity(most);
    let terms = Terms { most, sizes: manner.sizes.clone(), price: item.terms.price, ..Terms::up_to(most) };
    Item { terms, nodes: Default::default(), ..item.clone() }
}

/// Returns the price that it offers to pay, or wants to be paid.
fn bid(manner: &Manner, direction: Direction, asked: Price, last: Option<Price>) -> Price {
    match (direction, manner.answers) {
        (Direction::Grow, Answers::Haggles { step }) => {
            let next = last.map_or(step, |last| last.0 + step);
            Price(next.min(manner.ceiling.0).min(asked.0).max(last.map_or(0, |last| last.0)))
        }
        (Direction::Grow, Answers::ByItsSizes | Answers::Declines | Answers::Ignores) => {
            Price(asked.0.min(manner.ceiling.0).max(last.map_or(0, |last| last.0)))
        }
        // It gives for any price.
        (Direction::Shrink, _) => last.map_or(asked, |last| asked.min(last)),
    }
}

const VALID_FOR: Span = Span::from_mins(1);
