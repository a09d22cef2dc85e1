//! The proposals with which a model application opens negotiations.

use negotiation::{Direction, Item, Quantity, Resource, SetRule, Terms};
use rms_api::negotiate::Holding;
use rms_model::{ClusterId, Time};

use super::manner::{Manner, Want, Wanted};

/// Returns the sets and items of its first proposal; none if it can use nothing of what it wants.
pub(super) fn opening(manner: &Manner, want: &Want, holding: &Holding, now: Time) -> Option<(Vec<SetRule>, Vec<Item>)> {
    let home = holding.nodes.first()?.cluster;
    let on = |cluster: ClusterId| {
        let n_held = holding.nodes.iter().filter(|node| node.cluster == cluster).count() as u64;
        // It keeps its first node.
        let n_spare = n_held.saturating_sub(u64::from(cluster == home));
        of_nodes(manner, want, Resource::Nodes(cluster), (n_held, n_spare), want.quantity, now)
    };
    let n_held = holding.nodes.iter().filter(|node| node.cluster == home).count() as u64;
    let nodes = |quantity: u64| {
        let held = (n_held, n_held.saturating_sub(1));
        of_nodes(manner, want, Resource::Nodes(home), held, quantity, now)
    };
    let time = || {
        let held = holding.until.since(now).as_millis().unsigned_abs();
        let quantity = Quantity(want.quantity * 1000);
        Item {
            terms: Terms { least: Quantity(1), ..Terms::exactly(quantity) },
            ..Item::up_to(Resource::Time, held, quantity.0)
        }
    };
    Some(match want.what {
        Wanted::Nodes => (vec![SetRule::All], vec![on(home)?]),
        Wanted::Elsewhere => (vec![SetRule::All], vec![on(other(home))?]),
        Wanted::OnBoth => (vec![SetRule::All], vec![on(home)?, on(other(home))?]),
        Wanted::OnEither => (vec![SetRule::AnyOf], vec![on(home)?, on(other(home))?]),
        Wanted::Time => (vec![SetRule::All], vec![time()]),
        Wanted::NodesOrHalf => {
            let (whole, half) = (nodes(want.quantity)?, nodes((want.quantity / 2).max(1))?);
            if whole.quantity == half.quantity {
                (vec![SetRule::All], vec![whole])
            } else {
                (vec![SetRule::OneOf], vec![whole, half])
            }
        }
        Wanted::NodesAndTime => (vec![SetRule::AnyOf], vec![nodes(want.quantity)?, time()]),
    })
}

/// Returns the other cluster. Where applications negotiate, there are two clusters, counted from 0.
fn other(home: ClusterId) -> ClusterId {
    ClusterId(1 - home.0.min(1))
}

/// Returns a change of its nodes that it can use, up to what it wants; its terms say which part of it would do.
fn of_nodes(
    manner: &Manner,
    want: &Want,
    resource: Resource,
    (held, spare): (u64, u64),
    quantity: u64,
    now: Time,
) -> Option<Item> {
    let whole = Quantity(quantity);
    let mut item = Item::up_to(resource, held, quantity);
    item.terms = Terms {
        least: Quantity(want.least.min(quantity)),
        most: whole,
        sizes: manner.sizes.clone(),
        duration: want.duration,
        price: want.price,
        deadline: want.within.map(|within| now + within),
        give_back_by: None,
        priority: 0,
    };
    let bound = match want.direction {
        Direction::Grow => whole,
        Direction::Shrink => whole.min(Quantity(spare)),
    };
    item.quantity = item.greatest(want.direction, bound).filter(|quantity| quantity.0 > 0)?;
    if want.direction == Direction::Shrink {
        item.terms.deadline = None;
        item.terms.duration = None;
    }
    Some(item)
}
