//! What users spend on nodes: reserved when agreed, charged for node-hours that were really held.

use negotiation::Price;
use rms_model::Span;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What a user has spent, and what is set aside for nodes that are held, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Balance {
    /// Charged so far.
    pub spent: u64,
    /// Set aside for negotiations and nodes that are not over.
    pub reserved: u64,
}

/// The user cannot pay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("it may cost {needed} thousandths, and {left} are left")]
pub struct Exhausted {
    pub needed: u64,
    pub left: u64,
}

impl Balance {
    /// Returns what may still be spent; `None`: no limit.
    pub fn left(&self, budget: Option<u64>) -> Option<u64> {
        Some(budget?.saturating_sub(self.spent).saturating_sub(self.reserved))
    }

    /// Sets aside what something can cost at most.
    ///
    /// # Errors
    /// Less than that is left; nothing is set aside then.
    pub fn reserve(&mut self, budget: Option<u64>, needed: u64) -> Result<(), Exhausted> {
        match self.left(budget) {
            Some(left) if left < needed => Err(Exhausted { needed, left }),
            Some(_) | None => {
                self.reserved = self.reserved.saturating_add(needed);
                Ok(())
            }
        }
    }

    /// Closes a reservation: charges the real cost, but never more than was set aside, and releases the rest.
    pub fn settle(&mut self, reserved: u64, real: u64) {
        self.reserved = self.reserved.saturating_sub(reserved);
        self.spent = self.spent.saturating_add(real.min(reserved));
    }
}

/// Returns how many nodes can be paid for `held` with what is left; `None`: any number.
pub fn affordable(left: Option<u64>, price: Price, held: Span) -> Option<u32> {
    let left = u128::from(left?);
    let millis = u128::from(held.as_millis().max(0).unsigned_abs());
    let one = u128::from(price.0) * millis;
    if one == 0 {
        return None;
    }
    // Rounding up costs less than a thousandth more than that.
    let nodes = (left * MILLIS_AN_HOUR) / one;
    Some(u32::try_from(nodes).unwrap_or(u32::MAX))
}

const MILLIS_AN_HOUR: u128 = 3_600_000;

#[cfg(test)]
mod tests {
    use super::*;
    use test_kit::for_seeds;

    #[test]
    fn what_is_set_aside_and_not_used_comes_back() {
        let mut balance = Balance::default();
        balance.reserve(Some(100), 60).expect("enough");
        assert_eq!(balance.reserve(Some(100), 41), Err(Exhausted { needed: 41, left: 40 }));
        balance.reserve(Some(100), 40).expect("just enough");
        balance.settle(60, 10);
        assert_eq!(balance, Balance { spent: 10, reserved: 40 });
        balance.settle(40, 400);
        assert_eq!(balance, Balance { spent: 50, reserved: 0 }, "never more than was set aside");
        assert_eq!(balance.left(Some(20)), Some(0), "the budget was lowered meanwhile");
        assert_eq!(balance.left(None), None);
    }

    #[test]
    fn whatever_happens_no_more_is_spent_than_the_budget_and_nothing_is_forgotten() {
        for_seeds("whatever_happens_no_more_is_spent", 500, |dice| {
            let budget = dice.roll() >> dice.number(0, 63);
            let mut balance = Balance::default();
            let mut open: Vec<u64> = Vec::new();
            let mut charged: u128 = 0;
            for _ in 0..40 {
                if dice.chance(60) || open.is_empty() {
                    let price = Price(dice.roll() >> dice.number(0, 63));
                    let held = Span::from_millis((dice.roll() >> dice.number(1, 63)) as i64);
                    let left = balance.left(Some(budget)).expect("there is a budget");
                    let most = affordable(Some(left), price, held);
                    if let Some(most) = most {
                        assert!(price.cost(most, held) <= left, "{most} at {price:?} for {held}");
                        let one_more = most.checked_add(1).map(|more| price.cost(more, held));
                        assert!(one_more.is_none_or(|cost| cost > left || left == u64::MAX), "{most} are not the most");
                    }
                    let needed = price.cost(dice.number(0, most.unwrap_or(7).min(100)), held);
                    balance.reserve(Some(budget), needed).expect("it is affordable");
                    open.push(needed);
                } else {
                    let idx = dice.number(0, open.len() as u32 - 1) as usize;
                    let reserved = open.swap_remove(idx);
                    let real = dice.roll() >> dice.number(0, 63);
                    balance.settle(reserved, real);
                    charged += u128::from(real.min(reserved));
                }
                let reserved: u128 = open.iter().copied().map(u128::from).sum();
                assert_eq!((u128::from(balance.spent), u128::from(balance.reserved)), (charged, reserved));
                assert!(charged + reserved <= u128::from(budget));
            }
        });
    }
}
