//! The numbers of nodes that an application can use.

use serde::{Deserialize, Serialize};

/// The usable totals: what is held *after* the change, not the change itself. "Accepted as long as the total number of
/// processors is a power of 2" (002, §6).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Sizes {
    /// Any total.
    #[default]
    Any,
    /// Multiples of a positive number, including 0.
    MultipleOf(u64),
    /// 1, 2, 4, …
    PowerOfTwo,
    /// Exactly these totals, ascending.
    Listed(Vec<u64>),
}

/// The most totals in a list.
pub const MAX_SIZES: usize = 256;

impl Sizes {
    /// Returns whether these sizes are valid: multiples of a positive number, or ascending totals.
    pub fn is_valid(&self) -> bool {
        match self {
            Sizes::Any | Sizes::PowerOfTwo => true,
            Sizes::MultipleOf(unit) => *unit > 0,
            Sizes::Listed(sizes) => {
                (1..=MAX_SIZES).contains(&sizes.len()) && sizes.is_sorted_by(|one, next| one < next)
            }
        }
    }

    /// Describes the sizes, as the end of a sentence.
    pub fn kind(&self) -> String {
        match self {
            Sizes::Any => "possible".to_owned(),
            Sizes::PowerOfTwo => "a power of two".to_owned(),
            Sizes::MultipleOf(unit) => format!("a multiple of {unit}"),
            Sizes::Listed(_) => "listed".to_owned(),
        }
    }

    /// Returns whether a total is one of these sizes.
    pub fn fits(&self, total: u64) -> bool {
        match self {
            Sizes::Any => true,
            Sizes::MultipleOf(unit) => total.is_multiple_of(*unit),
            Sizes::PowerOfTwo => total.is_power_of_two(),
            Sizes::Listed(sizes) => sizes.binary_search(&total).is_ok(),
        }
    }

    /// Returns the largest of these totals that is at most `bound`.
    pub fn greatest(&self, bound: u64) -> Option<u64> {
        match self {
            Sizes::Any => Some(bound),
            Sizes::MultipleOf(unit) => bound.checked_rem(*unit).map(|rest| bound - rest),
            Sizes::PowerOfTwo => bound.checked_ilog2().map(|log| 1 << log),
            Sizes::Listed(sizes) => sizes.iter().rev().find(|size| **size <= bound).copied(),
        }
    }

    /// Returns the smallest of these totals that is at least `bound`.
    pub fn least(&self, bound: u64) -> Option<u64> {
        match self {
            Sizes::Any => Some(bound),
            Sizes::MultipleOf(unit) => bound.checked_next_multiple_of(*unit),
            Sizes::PowerOfTwo => bound.checked_next_power_of_two(),
            Sizes::Listed(sizes) => sizes.iter().find(|size| **size >= bound).copied(),
        }
    }

    /// Returns whether every total that was usable under `earlier` is certain to be usable still.
    pub fn covers(&self, earlier: &Sizes) -> bool {
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
