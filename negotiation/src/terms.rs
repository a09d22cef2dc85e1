//! The terms of one resource, and which quantities satisfy them.

use std::fmt;

pub use rms_model::Sizes;
use rms_model::{Span, Time};
use serde::{Deserialize, Serialize};

/// A quantity of a resource: nodes; cores, MiB of memory or devices on each node; licences; or milliseconds of wall
/// time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Quantity(pub u64);

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The cost of one unit for an hour, in thousandths of the deployment's currency. The taker pays the giver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Price(pub u64);

/// What the sender of a proposal wants in addition to the quantity. Each proposal carries the terms of its own sender;
/// those of the accepted one bind both ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Terms {
    /// The sender cannot use fewer. Not binding, but a counter-proposal below it wastes a round.
    pub least: Quantity,
    /// The sender cannot use more.
    pub most: Quantity,
    /// Totals that the sender can use.
    pub sizes: Sizes,
    /// How long it lasts after it is ready; `None` until the application ends.
    pub duration: Option<Span>,
    /// Per unit and hour.
    pub price: Price,
    /// The time by which it must be ready, or it has failed; `None` for no deadline.
    pub deadline: Option<Time>,
    /// The time by which it must be given back, by the RMS's clock; `None` for never.
    pub give_back_by: Option<Time>,
    /// How urgent it is among the sender's own negotiations; higher goes first. Not binding.
    pub priority: i32,
}

impl Terms {
    /// Returns when what is ready at a time must be given back; `None` for never.
    pub fn ends(&self, ready: Time) -> Option<Time> {
        self.duration.map(|duration| ready + duration).into_iter().chain(self.give_back_by).min()
    }
}

impl Price {
    /// Returns the cost of `units` for the time `held`, rounded up. It saturates, because more than any budget is the
    /// largest number.
    pub fn cost(self, units: u32, held: Span) -> u64 {
        let millis = u128::from(held.as_millis().max(0).unsigned_abs());
        // At most 2⁶⁴ · 2³², multiplied by the longest span: this may exceed 128 bits.
        let an_hour = u128::from(self.0) * u128::from(units);
        let whole = an_hour.checked_mul(millis).map(|total| total.div_ceil(MILLIS_AN_HOUR));
        whole.and_then(|cost| u64::try_from(cost).ok()).unwrap_or(u64::MAX)
    }
}

impl Terms {
    /// Returns terms with only a range: from 1 to `quantity`.
    pub fn up_to(quantity: Quantity) -> Terms {
        Terms { least: Quantity(1), ..Terms::exactly(quantity) }
    }

    /// Returns terms that accept only the exact quantity.
    pub fn exactly(quantity: Quantity) -> Terms {
        Terms {
            least: quantity,
            most: quantity,
            sizes: Sizes::Any,
            duration: None,
            price: Price(0),
            deadline: None,
            give_back_by: None,
            priority: 0,
        }
    }
}

const MILLIS_AN_HOUR: u128 = 3_600_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_hours_cost_what_the_list_says() {
        assert_eq!(Price(1500).cost(4, Span::from_hours(2)), 12_000);
        assert_eq!(Price(1500).cost(4, Span::from_mins(1)), 100);
        assert_eq!(Price(1).cost(1, Span::from_millis(1)), 1, "rounded up");
        assert_eq!(Price(0).cost(9, Span::from_hours(9)), 0);
        assert_eq!(Price(u64::MAX).cost(u32::MAX, Span::from_millis(i64::MAX)), u64::MAX);
        assert_eq!(Price(5).cost(5, Span::from_millis(-5)), 0);
    }
}
