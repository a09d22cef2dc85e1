//! The arithmetic of slowdown-driven sharing: what a guest costs its mates, and which mates are best (004, §3.2).

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// An exact fraction in lowest terms with a positive denominator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fraction {
    numerator: i128,
    denominator: i128,
}

/// A running job that could lend to a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mate {
    pub id: u64,
    pub penalty: Fraction,
    /// Nodes that it would share.
    pub weight: u32,
}

/// Which mates a guest needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Nodes, exactly.
    pub weight: u32,
    /// Only mates with a lower penalty are taken; `None`: any.
    pub max_slowdown: Option<Fraction>,
    pub most_mates: usize,
    /// The number of mates within the cut-off that are considered, those with the least penalties; `None`: all.
    pub most_candidates: Option<usize>,
}

/// The mates that cost the least together; of equal sets, that with the fewest mates, then with the smallest ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The sum of their penalties.
    pub impact: Fraction,
    /// Their ids, in order.
    pub mates: Vec<u64>,
}

impl Fraction {
    pub const ZERO: Fraction = Fraction { numerator: 0, denominator: 1 };

    /// Creates a fraction; `None` if the denominator is not positive.
    pub fn new(numerator: i128, denominator: i128) -> Option<Fraction> {
        if denominator <= 0 {
            return None;
        }
        let divisor = i128::try_from(gcd(numerator.unsigned_abs(), denominator.unsigned_abs())).unwrap_or(1).max(1);
        Some(Fraction { numerator: numerator / divisor, denominator: denominator / divisor })
    }

    pub fn parts(self) -> (i128, i128) {
        (self.numerator, self.denominator)
    }

    /// Returns the product; `None` if it is out of range.
    pub(crate) fn times(self, factor: u32) -> Option<Fraction> {
        match factor {
            1 => Some(self),
            _ => Fraction::new(self.numerator.checked_mul(factor.into())?, self.denominator),
        }
    }

    /// Returns the sum; `None` if it is out of range.
    pub fn plus(self, other: Fraction) -> Option<Fraction> {
        let left = self.numerator.checked_mul(other.denominator)?;
        let right = other.numerator.checked_mul(self.denominator)?;
        Fraction::new(left.checked_add(right)?, self.denominator.checked_mul(other.denominator)?)
    }
}

impl PartialOrd for Fraction {
    fn partial_cmp(&self, other: &Fraction) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Fraction {
    /// Compares their continued fractions, so that nothing overflows.
    fn cmp(&self, other: &Fraction) -> Ordering {
        let (mut left, mut right) = (*self, *other);
        let mut is_turned = false;
        loop {
            let wholes = (left.numerator.div_euclid(left.denominator), right.numerator.div_euclid(right.denominator));
            let rests = (left.numerator.rem_euclid(left.denominator), right.numerator.rem_euclid(right.denominator));
            let order = match (wholes.0.cmp(&wholes.1), rests) {
                (Ordering::Equal, (0, 0)) => Ordering::Equal,
                (Ordering::Equal, (0, _)) => Ordering::Less,
                (Ordering::Equal, (_, 0)) => Ordering::Greater,
                (Ordering::Equal, (left_rest, right_rest)) => {
                    left = Fraction { numerator: left.denominator, denominator: left_rest };
                    right = Fraction { numerator: right.denominator, denominator: right_rest };
                    is_turned = !is_turned;
                    continue;
                }
                (order, _) => order,
            };
            return if is_turned { order.reverse() } else { order };
        }
    }
}

/// Returns the slowdown of a job (004, eq. 4): its time in the system with `increase`, over its requested time. `None`
/// if it requested none.
pub fn penalty(in_system: i128, increase: i128, requested: i128) -> Option<Fraction> {
    Fraction::new(in_system.checked_add(increase)?, requested)
}

/// Selects the mates whose nodes add up to exactly the wanted number, at the least sum of penalties (004, eq. 2 and 3),
/// among the sets that are valid; `is_valid` is given a set's ids in the order of penalties. `None` if there are none.
pub fn select(mates: &[Mate], wanted: Wanted, mut is_valid: impl FnMut(&[u64]) -> bool) -> Option<Selection> {
    let is_within = |mate: &&Mate| wanted.max_slowdown.is_none_or(|most| mate.penalty < most);
    let mut candidates: Vec<Mate> = mates.iter().filter(is_within).copied().collect();
    candidates.sort_by(|a, b| a.penalty.cmp(&b.penalty).then(a.id.cmp(&b.id)));
    candidates.truncate(wanted.most_candidates.unwrap_or(usize::MAX));
    let mut by_weight: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (idx, mate) in candidates.iter().enumerate() {
        by_weight.entry(mate.weight).or_default().push(idx);
    }
    let is_valid = &mut is_valid;
    let sums = reachable_sums(by_weight.keys().copied(), wanted.weight, wanted.most_mates);
    let mut search = Search { candidates: &candidates, by_weight, sums, chosen: Vec::new(), best: None, is_valid };
    search.extend(0, wanted.weight, wanted.most_mates, Fraction::ZERO);
    search.best
}

/// Returns for each number up to `most_summands` which sums up to `most` are possible with that many of these sizes, or
/// fewer. Sizes may repeat.
pub(crate) fn reachable_sums(
    sizes: impl Iterator<Item = u32> + Clone,
    most: u32,
    most_summands: usize,
) -> Vec<Vec<bool>> {
    let mut sums = vec![vec![false; most as usize + 1]];
    sums[0][0] = true;
    for n_summands in 1..=most_summands {
        let last = &sums[n_summands - 1];
        let mut next = last.clone();
        for size in sizes.clone().filter(|size| *size <= most) {
            match n_summands {
                1 => next[size as usize] = true,
                _ => next[size as usize..].iter_mut().zip(last).for_each(|(sum, rest)| *sum |= rest),
            }
        }
        sums.push(next);
    }
    sums
}

struct Search<'a> {
    /// Ordered by penalty.
    candidates: &'a [Mate],
    /// Indices of candidates by weight, to find the last mate of a set.
    by_weight: BTreeMap<u32, Vec<usize>>,
    /// For each number of mates still to be chosen, the weights that they can have together.
    sums: Vec<Vec<bool>>,
    chosen: Vec<u64>,
    best: Option<Selection>,
    is_valid: &'a mut dyn FnMut(&[u64]) -> bool,
}

impl Search<'_> {
    fn extend(&mut self, from: usize, weight: u32, n_left: usize, impact: Fraction) {
        if n_left == 1 {
            let Some(last) = self.by_weight.get(&weight) else { return };
            let (first, n_last) = (last.partition_point(|idx| *idx < from), last.len());
            let _is_over =
                (first..n_last).try_for_each(|place| self.take(self.by_weight[&weight][place], weight, n_left, impact));
        } else if n_left > 1 {
            let _is_over = (from..self.candidates.len()).try_for_each(|idx| self.take(idx, weight, n_left, impact));
        }
    }

    /// Extends the set by one mate. Stops where the mates after it cost no less than the best set found.
    fn take(&mut self, idx: usize, weight: u32, n_left: usize, impact: Fraction) -> ControlFlow<()> {
        let Mate { id, penalty, weight: shared } = self.candidates[idx];
        let rest = weight.checked_sub(shared).filter(|rest| self.sums[n_left - 1][*rest as usize]);
        if rest.is_none() && self.best.is_none() {
            return ControlFlow::Continue(());
        }
        // Sums that leave the range of numbers are no candidates for the least.
        let Some(with_it) = impact.plus(penalty) else { return ControlFlow::Continue(()) };
        let is_hopeless = self.best.as_ref().is_some_and(|best| with_it > best.impact);
        if is_hopeless && penalty >= Fraction::ZERO {
            return ControlFlow::Break(());
        }
        if let Some(rest) = rest {
            self.chosen.push(id);
            if rest == 0 {
                self.found(with_it);
            }
            self.extend(idx + 1, rest, n_left - 1, with_it);
            self.chosen.pop();
        }
        ControlFlow::Continue(())
    }

    fn found(&mut self, impact: Fraction) {
        let mut mates = self.chosen.clone();
        mates.sort_unstable();
        let is_better = |best: &Selection| (impact, mates.len(), &mates) < (best.impact, best.mates.len(), &best.mates);
        if self.best.as_ref().is_none_or(is_better) && (self.is_valid)(&self.chosen) {
            self.best = Some(Selection { impact, mates });
        }
    }
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fraction(numerator: i128, denominator: i128) -> Fraction {
        Fraction::new(numerator, denominator).expect("a positive denominator")
    }

    fn mate(id: u64, penalty: i128, weight: u32) -> Mate {
        Mate { id, penalty: fraction(penalty, 1), weight }
    }

    fn wanted(weight: u32) -> Wanted {
        Wanted { weight, max_slowdown: None, most_mates: 2, most_candidates: None }
    }

    #[test]
    fn a_mate_at_the_cut_off_is_not_taken() {
        let mates = [mate(1, 10, 4)];
        let below = |most| select(&mates, Wanted { max_slowdown: Some(fraction(most, 1)), ..wanted(4) }, |_| true);
        assert_eq!(below(10), None, "004: strictly below");
        assert!(below(11).is_some());
    }

    #[test]
    fn of_equal_sets_the_fewest_mates_go_first_and_no_other_is_tried() {
        let mates = [mate(4, 6, 4), mate(1, 3, 2), mate(2, 3, 2), mate(3, 3, 2)];
        let select_but = |refused: &[&[u64]]| {
            let mut n_tried = 0;
            let is_valid = |ids: &[u64]| {
                n_tried += 1;
                !refused.contains(&ids)
            };
            let best = select(&mates, wanted(4), is_valid).expect("there are sets");
            assert_eq!(best.impact, fraction(6, 1));
            (best.mates, n_tried)
        };
        assert_eq!(select_but(&[]), (vec![4], 2), "the first pair, and the one mate");
        assert_eq!(select_but(&[&[4]]), (vec![1, 2], 2));
        assert_eq!(select_but(&[&[4], &[1, 2], &[1, 3]]), (vec![2, 3], 4));
    }

    #[test]
    fn fractions_are_in_order_where_their_products_would_overflow() {
        let huge = i128::MAX - 1;
        assert!(fraction(huge, huge - 1) < fraction(huge - 1, huge - 2));
        assert!(fraction(-huge, 3) < fraction(-1, huge));
        assert_eq!(fraction(2, 4).cmp(&fraction(1, 2)), Ordering::Equal);
        assert_eq!(fraction(huge, 1).plus(fraction(huge, 1)), None, "out of range, not wrapped");
    }
}
