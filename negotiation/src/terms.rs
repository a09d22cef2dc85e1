//! The terms of one resource, and which quantities satisfy them.

use std::fmt;

use rms_model::{Span, Time};
use serde::{Deserialize, Serialize};

/// So much of a resource: hosts, cores on each host, or milliseconds of wall time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Quantity(pub u64);

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What one unit costs for an hour, in thousandths of the deployment's currency. Who takes pays who gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Price(pub u64);

/// Which totals are of use: what is held *after* the change, not the change itself. "Accepted as long as the total
/// number of processors is a power of 2" (002, §6).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Sizes {
    /// Every total.
    #[default]
    Any,
    /// Multiples of a number above 0; so is 0.
    MultipleOf(u64),
    /// 1, 2, 4, …
    PowerOfTwo,
    /// Exactly these, ascending.
    Listed(Vec<u64>),
}

/// What the sender of a proposal wants beside the quantity. Each proposal carries the terms of its own sender; those
/// of an accepted one bind both.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Terms {
    /// Fewer are of no use to the sender. Binds nobody, but a counter below it is a waste of a round.
    pub least: Quantity,
    /// More are of no use to the sender.
    pub most: Quantity,
    /// Totals that the sender can use.
    pub sizes: Sizes,
    /// For how long after it is ready; `None`: until the application ends.
    pub duration: Option<Span>,
    /// Per unit and hour.
    pub price: Price,
    /// Ready by then, or it has failed; `None`: whenever.
    pub deadline: Option<Time>,
    /// Given back by then, by the RMS's clock; `None`: never.
    pub give_back_by: Option<Time>,
    /// How urgent it is among the sender's own negotiations; higher goes first. Binds nobody.
    pub priority: i32,
}

impl Sizes {
    /// Whether a total is one of these.
    pub fn fits(&self, total: u64) -> bool {
        match self {
            Sizes::Any => true,
            Sizes::MultipleOf(unit) => total.is_multiple_of(*unit),
            Sizes::PowerOfTwo => total.is_power_of_two(),
            Sizes::Listed(sizes) => sizes.binary_search(&total).is_ok(),
        }
    }

    /// The greatest of these totals that is not above `bound`.
    pub fn greatest(&self, bound: u64) -> Option<u64> {
        match self {
            Sizes::Any => Some(bound),
            Sizes::MultipleOf(unit) => bound.checked_rem(*unit).map(|rest| bound - rest),
            Sizes::PowerOfTwo => bound.checked_ilog2().map(|log| 1 << log),
            Sizes::Listed(sizes) => sizes.iter().rev().find(|size| **size <= bound).copied(),
        }
    }

    /// The least of these totals that is not below `bound`.
    pub fn least(&self, bound: u64) -> Option<u64> {
        match self {
            Sizes::Any => Some(bound),
            Sizes::MultipleOf(unit) => bound.checked_next_multiple_of(*unit),
            Sizes::PowerOfTwo => bound.checked_next_power_of_two(),
            Sizes::Listed(sizes) => sizes.iter().find(|size| **size >= bound).copied(),
        }
    }

    /// Whether everything that was of use under `earlier` surely still is.
    pub(crate) fn covers(&self, earlier: &Sizes) -> bool {
        match (self, earlier) {
            (Sizes::Any, _) | (Sizes::PowerOfTwo, Sizes::PowerOfTwo) => true,
            (Sizes::MultipleOf(now), Sizes::MultipleOf(before)) => before.is_multiple_of(*now),
            (Sizes::MultipleOf(unit), Sizes::Any) => *unit == 1,
            (Sizes::MultipleOf(unit), Sizes::PowerOfTwo) => *unit == 1,
            (Sizes::PowerOfTwo | Sizes::Listed(_), Sizes::Any | Sizes::MultipleOf(_)) => false,
            (Sizes::Listed(_), Sizes::PowerOfTwo) => false,
            (_, Sizes::Listed(before)) => before.iter().all(|size| self.fits(*size)),
        }
    }
}

impl Terms {
    /// No terms but the range itself: from 1 to `quantity`.
    pub fn up_to(quantity: Quantity) -> Terms {
        Terms { least: Quantity(1), ..Terms::exactly(quantity) }
    }

    /// No terms but the quantity itself.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds() -> Vec<Sizes> {
        let multiples = (1..6).map(Sizes::MultipleOf);
        let listed = [vec![1, 4, 6, 9], vec![0], vec![8], vec![2, 4, 8]].into_iter().map(Sizes::Listed);
        [Sizes::Any, Sizes::PowerOfTwo].into_iter().chain(multiples).chain(listed).collect()
    }

    #[test]
    fn the_greatest_and_the_least_are_what_a_search_finds() {
        for sizes in kinds() {
            for bound in 0..40 {
                let greatest = (0..=bound).rev().find(|total| sizes.fits(*total));
                assert_eq!(sizes.greatest(bound), greatest, "{sizes:?} up to {bound}");
                let least = (bound..100).find(|total| sizes.fits(*total));
                assert_eq!(sizes.least(bound), least, "{sizes:?} from {bound}");
            }
        }
    }

    #[test]
    fn what_covers_another_allows_all_that_it_allowed() {
        for now in kinds() {
            assert!(now.covers(&now), "{now:?}");
            for before in kinds() {
                let looser = (0..200).filter(|total| before.fits(*total)).all(|total| now.fits(total));
                assert!(looser || !now.covers(&before), "{now:?} covers {before:?}");
            }
        }
    }

    #[test]
    fn the_ends_of_the_numbers_do_not_wrap() {
        assert_eq!(Sizes::PowerOfTwo.least(u64::MAX), None);
        assert_eq!(Sizes::MultipleOf(10).least(u64::MAX), None);
        assert_eq!(Sizes::PowerOfTwo.greatest(0), None);
        assert_eq!(Sizes::MultipleOf(0).greatest(5), None);
        assert_eq!(Sizes::MultipleOf(0).least(5), None);
    }
}
