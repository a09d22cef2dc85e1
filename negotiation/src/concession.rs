//! Checks whether a proposal takes back a concession of the same end.

use rms_model::{Span, Time};

use crate::error::{Breach, Worse};
use crate::subject::Side;
use crate::template::{Item, ItemStatus, Template, Which};

/// Returns in what respect `later` is worse for the other end than `earlier`, both by `sender`; `answered` is the other
/// end's proposal between them. Without this rule two ends could negotiate in circles forever.
pub fn worsening(sender: Side, earlier: &Template, answered: &Template, later: &Template) -> Option<Breach> {
    let gives = sender == later.direction().giver();
    let rows = earlier.items().iter().zip(answered.items()).zip(later.items());
    rows.enumerate().find_map(|(idx, ((before, answer), now))| {
        let worse = if gives { worse_offer(before, answer, now) } else { worse_demand(before, now) };
        worse.map(|worse| Breach::Worsens { item: Which::of(idx, later.items()), worse })
    })
}

/// Checks an offer of the giver, who may not take it back. An item that the taker has refused is refused for good, and
/// need not be offered again.
fn worse_offer(before: &Item, answer: &Item, now: &Item) -> Option<Worse> {
    if now.status == ItemStatus::Refused {
        let was_wanted = before.status != ItemStatus::Refused && answer.status != ItemStatus::Refused;
        return was_wanted.then_some(Worse::Part);
    }
    if before.status == ItemStatus::Refused {
        return None;
    }
    let (then, terms) = (&before.terms, &now.terms);
    first_of([
        (now.quantity < before.quantity, Worse::Quantity),
        (terms.price > then.price, Worse::Price),
        (for_long(terms.duration) < for_long(then.duration), Worse::Duration),
        (forever(terms.give_back_by) < forever(then.give_back_by), Worse::GiveBack),
        (forever(terms.deadline) > forever(then.deadline), Worse::Deadline),
        (terms.least > then.least || terms.most < then.most, Worse::Range),
        (!terms.sizes.covers(&then.sizes), Worse::Sizes),
    ])
}

/// Checks a demand of the taker, who may not demand more; dropping a demand is a concession.
fn worse_demand(before: &Item, now: &Item) -> Option<Worse> {
    if now.status == ItemStatus::Refused {
        return None;
    }
    if before.status == ItemStatus::Refused {
        return Some(Worse::Part);
    }
    let (then, terms) = (&before.terms, &now.terms);
    first_of([
        (now.quantity > before.quantity, Worse::Quantity),
        (terms.price < then.price, Worse::Price),
        (for_long(terms.duration) > for_long(then.duration), Worse::Duration),
        (forever(terms.give_back_by) > forever(then.give_back_by), Worse::GiveBack),
        (forever(terms.deadline) < forever(then.deadline), Worse::Deadline),
        // The upper bound may decrease with the quantity: wanting less does no harm.
        (terms.least > then.least, Worse::Range),
        (!terms.sizes.covers(&then.sizes), Worse::Sizes),
    ])
}

fn first_of<const N: usize>(respects: [(bool, Worse); N]) -> Option<Worse> {
    respects.into_iter().find_map(|(is_worse, respect)| is_worse.then_some(respect))
}

fn for_long(duration: Option<Span>) -> Span {
    duration.unwrap_or(Span::from_millis(i64::MAX))
}

fn forever(time: Option<Time>) -> Time {
    time.unwrap_or(Time::NEVER)
}
