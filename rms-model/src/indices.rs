//! Sets of small numbers: the cores of a node, or its devices of one type.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// The highest number in a set: no node has more cores, and a malicious frame cannot make the decoder allocate more
/// memory.
pub const MAX_INDEX: u32 = (1 << 16) - 1;

/// One bit for each number; the first 64 need no allocation. Serialised as ranges with both ends included.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Indices {
    first: u64,
    /// The words after the first; the last is never 0.
    more: Vec<u64>,
}

impl Indices {
    /// Returns the set of the numbers below `n`.
    #[must_use]
    pub fn below(n: u32) -> Indices {
        let n = n.min(MAX_INDEX + 1);
        let word = |begin: u32| u64::MAX >> (u64::BITS - (n - begin).min(u64::BITS));
        let first = if n == 0 { 0 } else { word(0) };
        Indices { first, more: (64..n).step_by(64).map(word).collect() }
    }

    pub fn is_empty(&self) -> bool {
        self.first == 0 && self.more.is_empty()
    }

    pub fn len(&self) -> u32 {
        self.words().map(u64::count_ones).sum()
    }

    pub fn contains(&self, index: u32) -> bool {
        self.words().nth(index as usize / 64).is_some_and(|word| word & bit(index) != 0)
    }

    /// Adds a number; numbers above [`MAX_INDEX`] are ignored.
    pub fn insert(&mut self, index: u32) {
        if index > MAX_INDEX {
            return;
        }
        match (index as usize / 64).checked_sub(1) {
            None => self.first |= bit(index),
            Some(word_idx) => {
                if self.more.len() <= word_idx {
                    self.more.resize(word_idx + 1, 0);
                }
                self.more[word_idx] |= bit(index);
            }
        }
    }

    /// Iterates in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words().enumerate().flat_map(|(word_idx, word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                (left != 0).then(|| {
                    let index = word_idx as u32 * 64 + left.trailing_zeros();
                    left &= left - 1;
                    index
                })
            })
        })
    }

    pub fn insert_all(&mut self, others: &Indices) {
        self.first |= others.first;
        if self.more.len() < others.more.len() {
            self.more.resize(others.more.len(), 0);
        }
        std::iter::zip(&mut self.more, &others.more).for_each(|(word, other)| *word |= other);
    }

    pub fn remove_all(&mut self, others: &Indices) {
        self.first &= !others.first;
        std::iter::zip(&mut self.more, &others.more).for_each(|(word, other)| *word &= !other);
        while self.more.last() == Some(&0) {
            self.more.pop();
        }
    }

    pub fn is_disjoint(&self, others: &Indices) -> bool {
        std::iter::zip(self.words(), others.words()).all(|(word, other)| word & other == 0)
    }

    /// Returns the ranges of consecutive numbers, both ends included.
    pub fn ranges(&self) -> Vec<(u32, u32)> {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for index in self.iter() {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == index => *last = index,
                Some(_) | None => ranges.push((index, index)),
            }
        }
        ranges
    }

    fn words(&self) -> impl Iterator<Item = u64> + '_ {
        std::iter::once(self.first).chain(self.more.iter().copied())
    }
}

fn bit(index: u32) -> u64 {
    1 << (index % 64)
}

impl FromIterator<u32> for Indices {
    fn from_iter<I: IntoIterator<Item = u32>>(indices: I) -> Indices {
        let mut set = Indices::default();
        indices.into_iter().for_each(|index| set.insert(index));
        set
    }
}

/// Prints a list in the kernel's format for CPUs: `0-3,8`.
impl fmt::Display for Indices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (first, last)) in self.ranges().into_iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            if first == last { write!(f, "{comma}{first}")? } else { write!(f, "{comma}{first}-{last}")? }
        }
        Ok(())
    }
}

/// The error for a text that is not a list of numbers.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{text}' is not a list of numbers up to {MAX_INDEX}: {problem}; write 0-3,6")]
pub struct IndicesError {
    text: String,
    problem: &'static str,
}

impl FromStr for Indices {
    type Err = IndicesError;

    fn from_str(text: &str) -> Result<Indices, IndicesError> {
        let fail = |problem| IndicesError { text: text.chars().take(80).collect(), problem };
        let mut indices = Indices::default();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |digits: &str| digits.trim().parse::<u32>().map_err(|_| fail("a part is no number"));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(fail("a range runs backwards"));
            }
            if last > MAX_INDEX {
                return Err(fail("a number is too high"));
            }
            (first..=last).for_each(|index| indices.insert(index));
        }
        Ok(indices)
    }
}

impl Serialize for Indices {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.ranges().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Indices {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Indices, D::Error> {
        let ranges: Vec<(u32, u32)> = Vec::deserialize(from)?;
        // Each range may be as long as the largest set: ranges are validated before they are expanded.
        let are_rising = ranges.windows(2).all(|two| two[0].1 < two[1].0);
        let are_right = ranges.iter().all(|(first, last)| first <= last && *last <= MAX_INDEX);
        if !are_rising || !are_right {
            return Err(serde::de::Error::custom(format_args!("ranges that do not rise, or pass {MAX_INDEX}")));
        }
        Ok(ranges.into_iter().flat_map(|(first, last)| first..=last).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use test_kit::Dice;

    use super::*;

    #[test]
    fn a_set_is_what_a_tree_says() {
        let mut dice = Dice::new(11);
        let mut roll = |n: u64| dice.below(n) as u32;
        for _ in 0..300 {
            let top = u64::from(1 + roll(300));
            let mut draw = |n: u32| (0..n).map(|_| roll(top)).collect::<BTreeSet<u32>>();
            let (one, other) = (draw(40), draw(40));
            let set = |tree: &BTreeSet<u32>| tree.iter().copied().collect::<Indices>();
            let (mut joined, mut left) = (set(&one), set(&one));
            joined.insert_all(&set(&other));
            left.remove_all(&set(&other));
            assert_eq!(joined, set(&one.union(&other).copied().collect()));
            assert_eq!(left, set(&one.difference(&other).copied().collect()));
            assert_eq!(set(&one).is_disjoint(&set(&other)), one.is_disjoint(&other));
            assert_eq!(set(&one).len() as usize, one.len());
            assert!(set(&one).iter().eq(one.iter().copied()));
            assert!((0..320).all(|index| set(&one).contains(index) == one.contains(&index)));
        }
    }

    #[test]
    fn a_list_of_numbers_is_read_or_refused_with_the_reason() {
        for text in ["0", "0-3,6", "1,3,5-7", "65535"] {
            assert_eq!(text.parse::<Indices>().map(|set| set.to_string()).as_deref(), Ok(text));
        }
        for (text, problem) in [
            ("", "no number"),
            ("1,,2", "no number"),
            ("3-1", "backwards"),
            ("0-65536", "too high"),
            ("-1", "no number"),
        ] {
            let error = text.parse::<Indices>().expect_err(text).to_string();
            assert!(error.contains(problem) && error.contains("0-3,6"), "{error}");
        }
    }

    #[test]
    fn those_below_a_number_are_all_of_them() {
        for n in [0, 1, 63, 64, 65, 127, 128, 200, MAX_INDEX, MAX_INDEX + 1, u32::MAX] {
            let one_by_one: Indices = (0..n.min(MAX_INDEX + 1)).collect();
            assert_eq!(Indices::below(n), one_by_one, "below {n}");
        }
    }

    #[test]
    fn a_set_is_printed_as_the_kernel_prints_cpus() {
        let set: Indices = [0, 1, 2, 9, 70, 71].into_iter().collect();
        assert_eq!(set.to_string(), "0-2,9,70-71");
        assert_eq!((Indices::default().to_string(), Indices::below(3).to_string()), (String::new(), "0-2".to_owned()));
    }
}
