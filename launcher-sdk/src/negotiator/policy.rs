//! Answers proposals for the application while it computes.

use std::fmt;
use std::panic::AssertUnwindSafe;

use negotiation::{Direction, Item, Quantity, Reason, Resource, SetRule};
use rms_api::negotiate::Holding;

use super::event::Offer;
use super::limits::Limits;

/// The answer to an offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Accept the offer.
    Accept,
    /// Make a counter-proposal: the items of the offer with other quantities or terms, in the same order.
    Counter(Vec<Item>),
    /// Reject the offer.
    Reject(Reason),
    /// The application answers itself: it gets the event.
    Ask,
}

/// Answers offers and counter-offers at once, on the negotiator's own thread. It must not block: while it runs, the
/// negotiator handles nothing else. One that panics is dropped: the application gets this offer and all later ones as
/// events.
pub struct Policy(Box<Decide>);

type Decide = dyn FnMut(&Offer, &Holding) -> Decision + Send;

impl Policy {
    /// Creates a policy from a function.
    pub fn new(decide: impl FnMut(&Offer, &Holding) -> Decision + Send + 'static) -> Policy {
        Policy(Box::new(decide))
    }

    /// Returns the answer; `None` if the function panics.
    pub(super) fn decide(&mut self, offer: &Offer, holding: &Holding) -> Option<Decision> {
        // The function is not called again after a panic, so nobody sees what it has left behind.
        std::panic::catch_unwind(AssertUnwindSafe(|| (self.0)(offer, holding))).ok()
    }

    /// Creates the policy that answers with [`within`] these limits.
    pub fn within(limits: Limits) -> Policy {
        Policy::new(move |offer, holding| within(&limits, offer, holding))
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Policy")
    }
}

/// Takes what the limits allow. An offer of more nodes than fit is countered with the most that do: "when it is offered
/// 15 processors, it takes 8" (002, §6, of an application on 8 that needs a power of two). A demand for more nodes than
/// can be given back is countered likewise. An offer at a higher price than our last bid is countered at that bid.
pub fn within(limits: &Limits, offer: &Offer, holding: &Holding) -> Decision {
    let template = &offer.template;
    let n_held = holding.nodes.iter().filter(|node| !node.is_departing).count() as u64;
    let mut items = template.items().to_vec();
    let mut is_all = template.is_definite();
    let mut n_changed = 0;
    let mut chosen: Vec<u16> = Vec::new();
    for (idx, item) in items.iter_mut().enumerate().filter(|(_, item)| item.is_live()) {
        let mine = offer.mine.as_ref().and_then(|mine| mine.items().get(idx));
        let is_alternative = template.rules().get(usize::from(item.set)) == Some(&SetRule::OneOf);
        let is_chosen = chosen.contains(&item.set);
        let quantity = match is_alternative && is_chosen {
            true => None,
            false => usable(limits, offer.direction, item, mine, n_held, n_changed),
        };
        let Some(quantity) = quantity else {
            item.status = negotiation::ItemStatus::Refused;
            is_all = false;
            continue;
        };
        chosen.push(item.set);
        if matches!(item.resource, Resource::Nodes(_)) {
            n_changed += quantity.0;
        }
        is_all &= answer_item(offer.direction, item, mine, quantity);
    }
    if is_all {
        return Decision::Accept;
    }
    match template.with_items(items.clone()) {
        Ok(_) => Decision::Counter(items),
        Err(_) => Decision::Reject(Reason::Declined),
    }
}

/// Returns the largest quantity, up to what is proposed, that the limits and our own terms allow.
fn usable(
    limits: &Limits,
    direction: Direction,
    item: &Item,
    mine: Option<&Item>,
    n_held: u64,
    n_changed: u64,
) -> Option<Quantity> {
    let own = mine.filter(|mine| mine.is_live());
    let fits_own = |quantity: u64| own.is_none_or(|own| own.fits(direction, Quantity(quantity)));
    match item.resource {
        Resource::Nodes(_) => {
            let fits = |quantity: &u64| {
                let total = match direction {
                    Direction::Grow => n_held.checked_add(n_changed + quantity),
                    Direction::Shrink => n_held.checked_sub(n_changed + quantity),
                };
                total.is_some_and(|total| limits.fits(total)) && fits_own(*quantity)
            };
            let most = item.quantity.0.min(n_held + u64::from(limits.most));
            (1..=most).rev().find(fits).map(Quantity)
        }
        // More time, and more resources inside current nodes, are always useful; whether to give any back is the
        // application's decision.
        Resource::Cores(_) | Resource::Memory(_) | Resource::Devices(..) | Resource::Licences(..) | Resource::Time => {
            let is_welcome = direction == Direction::Grow || own.is_some();
            (is_welcome && fits_own(item.quantity.0)).then_some(item.quantity)
        }
    }
}

/// Turns the item into our own proposal; returns whether it equals what the other end proposed.
fn answer_item(direction: Direction, item: &mut Item, mine: Option<&Item>, quantity: Quantity) -> bool {
    let price = match (direction, mine.map(|mine| mine.terms.price)) {
        (_, None) => item.terms.price,
        (Direction::Grow, Some(bid)) => item.terms.price.min(bid),
        (Direction::Shrink, Some(ask)) => item.terms.price.max(ask),
    };
    let is_same = quantity == item.quantity && price == item.terms.price;
    if !is_same {
        item.quantity = quantity;
        item.nodes.clear();
        item.terms.price = price;
        match mine.filter(|mine| mine.is_live()) {
            // What was useful before must stay useful, or the proposal would take back a concession.
            Some(mine) => {
                item.terms.least = mine.terms.least;
                item.terms.most = mine.terms.most;
                item.terms.sizes = mine.terms.sizes.clone();
                item.terms.duration = mine.terms.duration;
                item.terms.deadline = mine.terms.deadline;
                item.terms.give_back_by = mine.terms.give_back_by;
            }
            None => {
                item.terms.least = Quantity(1).max(item.terms.least.min(quantity));
                item.terms.most = quantity.max(item.terms.most);
                item.terms.sizes = negotiation::Sizes::Any;
            }
        }
    }
    is_same
}
