//! The range of sizes of a malleable job, as typed and shown: `2-8`, `2-64:pow2`, `2,4,6,8`.

use std::fmt;
use std::str::FromStr;

use negotiation::subject::MAX_NODES;
use negotiation::template::MAX_SIZES as MAX_LISTED;
use rms_model::Sizes;
use thiserror::Error;

use crate::size::MAX_SIZES;

/// The value of `--malleable`. Both ends are useful sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeRange {
    pub least: u32,
    /// [`NO_END`] for as many as there are.
    pub most: u32,
    pub sizes: Sizes,
}

/// More nodes than any cluster has.
pub const NO_END: u32 = MAX_NODES as u32;

/// Why a text is not a range of sizes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SizeRangeError {
    #[error(
        "'{0}' is no range of sizes: write 2-8, 4, 2+ (or more), 2-8:pow2 (powers of two), 2-8:mult=4 (multiples) or 2,4,6,8"
    )]
    Nonsense(String),
    #[error("a job keeps at least one node")]
    Zero,
    #[error("the range '{0}' runs backwards: write the smaller number first")]
    Backwards(String),
    #[error("'{text}' holds no size that is {sizes}: widen the range")]
    NoneFits { text: String, sizes: String },
    #[error("everything is a multiple of a number above 0, so write 2-8:mult=2")]
    ZeroUnit,
    #[error("'{text}' lists {n_sizes} sizes, and at most {MAX_LISTED} are possible: write a range, like 2-512:mult=2")]
    TooMany { text: String, n_sizes: usize },
    #[error("{0} nodes are more than a cluster can have: for no upper end write 2+")]
    TooLarge(u32),
}

impl FromStr for SizeRange {
    type Err = SizeRangeError;

    fn from_str(text: &str) -> Result<SizeRange, SizeRangeError> {
        let nonsense = || SizeRangeError::Nonsense(shorten(text));
        if text.contains(',') {
            return listed(text);
        }
        let (range, shape) = text.split_once(':').map_or((text, None), |(range, shape)| (range, Some(shape)));
        let sizes = match shape {
            None => Sizes::Any,
            Some("pow2") => Sizes::PowerOfTwo,
            Some(shape) => {
                let unit = shape.strip_prefix("mult=").and_then(number).ok_or_else(nonsense)?;
                if unit == 0 {
                    return Err(SizeRangeError::ZeroUnit);
                }
                Sizes::MultipleOf(unit.into())
            }
        };
        let (least, most) = match (range.strip_suffix('+'), range.split_once('-')) {
            (Some(least), _) => (number(least).ok_or_else(nonsense)?, NO_END),
            (None, Some((least, most))) => (number(least).ok_or_else(nonsense)?, number(most).ok_or_else(nonsense)?),
            (None, None) => {
                let only = number(range).ok_or_else(nonsense)?;
                (only, only)
            }
        };
        ends(text, least, most, sizes)
    }
}

/// Parses which sizes are useful, without their ends: `pow2`, `mult=4`, `2,4,8`.
///
/// # Errors
/// The text is none of these.
pub fn parse_sizes(text: &str) -> Result<Sizes, &'static str> {
    let unit = text.strip_prefix("mult=").and_then(number).filter(|unit| *unit > 0);
    match (text, unit) {
        ("any", _) => Ok(Sizes::Any),
        ("pow2", _) => Ok(Sizes::PowerOfTwo),
        (_, Some(unit)) => Ok(Sizes::MultipleOf(unit.into())),
        (_, None) => listed(text).map(|range| range.sizes).map_err(|_| WHAT_SIZES),
    }
}

const WHAT_SIZES: &str = "write pow2, mult=4 or a list like 2,4,8";

fn listed(text: &str) -> Result<SizeRange, SizeRangeError> {
    let nonsense = || SizeRangeError::Nonsense(shorten(text));
    let mut counts = text.split(',').map(|part| number(part).ok_or_else(nonsense)).collect::<Result<Vec<_>, _>>()?;
    counts.sort_unstable();
    counts.dedup();
    if counts.len() > MAX_LISTED {
        return Err(SizeRangeError::TooMany { text: shorten(text), n_sizes: counts.len() });
    }
    let (least, most) = (counts.first().copied().unwrap_or(0), counts.last().copied().unwrap_or(0));
    ends(text, least, most, Sizes::Listed(counts.into_iter().map(u64::from).collect()))
}

/// Moves the ends inwards to useful sizes.
fn ends(text: &str, least: u32, most: u32, sizes: Sizes) -> Result<SizeRange, SizeRangeError> {
    if least == 0 {
        return Err(SizeRangeError::Zero);
    }
    if most < least {
        return Err(SizeRangeError::Backwards(shorten(text)));
    }
    if most > NO_END {
        return Err(SizeRangeError::TooLarge(most));
    }
    let inner = |bound: Option<u64>| bound.and_then(|bound| u32::try_from(bound).ok());
    let (first, last) = (inner(sizes.least(least.into())), inner(sizes.greatest(most.into())));
    match (first, last) {
        (Some(first), Some(last)) if first <= last => {
            Ok(SizeRange { least: first, most: if most == NO_END { NO_END } else { last }, sizes })
        }
        (Some(_) | None, Some(_) | None) => Err(SizeRangeError::NoneFits { text: shorten(text), sizes: sizes.kind() }),
    }
}

fn number(text: &str) -> Option<u32> {
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

fn shorten(text: &str) -> String {
    text.chars().take(80).collect()
}

impl SizeRange {
    /// Returns the range; one without an end gets the end for a largest cluster of `largest` nodes.
    pub fn within(&self, largest: u32) -> SizeRange {
        if self.most != NO_END {
            return self.clone();
        }
        let last = self.sizes.greatest(largest.into()).map_or(0, |last| last.min(u64::from(NO_END)) as u32);
        SizeRange { most: last.max(self.least), ..self.clone() }
    }

    /// Returns whether the job may have this many nodes.
    pub fn allows(&self, n_nodes: u32) -> bool {
        (self.least..=self.most).contains(&n_nodes) && self.sizes.fits(n_nodes.into())
    }

    /// Returns the sizes, largest first: all, or a selection that includes both ends if there are many.
    pub fn counts(&self) -> Vec<u32> {
        let after = |size: u32| Some(self.sizes.least(u64::from(size) + 1)?.min(u64::from(NO_END) + 1) as u32);
        let sizes = std::iter::successors(Some(self.least), |size| after(*size));
        let all: Vec<u32> = sizes.take_while(|size| *size <= self.most).collect();
        let step = (all.len() - 1).div_ceil(MAX_SIZES as usize - 1).max(1);
        let is_kept = |(idx, _): &(usize, &u32)| idx % step == 0 || idx + 1 == all.len();
        let mut kept: Vec<u32> = all.iter().enumerate().filter(is_kept).map(|(_, size)| *size).collect();
        kept.reverse();
        kept
    }
}

/// Shows the range as it is typed.
impl fmt::Display for SizeRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Sizes::Listed(sizes) = &self.sizes {
            let sizes: Vec<String> = sizes.iter().map(u64::to_string).collect();
            return f.write_str(&sizes.join(","));
        }
        match self.most {
            NO_END => write!(f, "{}+", self.least)?,
            most if most == self.least => write!(f, "{most}")?,
            most => write!(f, "{}-{most}", self.least)?,
        }
        match &self.sizes {
            Sizes::Any | Sizes::Listed(_) => Ok(()),
            Sizes::PowerOfTwo => f.write_str(":pow2"),
            Sizes::MultipleOf(unit) => write!(f, ":mult={unit}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(text: &str) -> SizeRange {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn ranges_are_shown_as_they_are_typed() {
        for text in ["2-8", "4", "2+", "2-8:pow2", "4-8:mult=4", "2,4,6,8", "1+:pow2"] {
            assert_eq!(range(text).to_string(), text);
        }
        assert_eq!(range("8,2,4,2").to_string(), "2,4,8", "in order, each once");
    }

    #[test]
    fn the_ends_are_of_use_themselves() {
        let ends = |text: &str| (range(text).least, range(text).most);
        assert_eq!(ends("3-9:pow2"), (4, 8));
        assert_eq!(ends("2-10:mult=4"), (4, 8));
        assert_eq!(ends("2,6"), (2, 6));
        assert_eq!(ends("5+:mult=4"), (8, NO_END));
    }

    #[test]
    fn the_sizes_are_those_in_the_range() {
        assert_eq!(range("2-5").counts(), [5, 4, 3, 2]);
        assert_eq!(range("2-64:pow2").counts(), [64, 32, 16, 8, 4, 2]);
        assert_eq!(range("2,5,9").counts(), [9, 5, 2]);
        let many = range("1-1000").counts();
        assert!(many.len() as u64 <= MAX_SIZES && many[0] == 1000 && many.ends_with(&[1]), "{many:?}");
    }

    #[test]
    fn what_has_no_end_ends_with_the_largest_cluster() {
        let within = |text: &str, largest| range(text).within(largest).to_string();
        assert_eq!(within("2+", 5), "2-5");
        assert_eq!(within("2+:pow2", 7), "2-4:pow2");
        assert_eq!(within("7+", 5), "7", "which the server refuses");
        assert_eq!(within("2-8", 5), "2-8");
    }

    #[test]
    fn wrong_ranges_say_what_to_write() {
        let check = |text: &str, part: &str| {
            let error = text.parse::<SizeRange>().expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        };
        check("", "write 2-8");
        check("x", "write 2-8");
        check("2-8:4", "2-8:mult=4");
        check("2-", "write 2-8");
        check("2,,4", "write 2-8");
        check("0-4", "at least one");
        check("0,4", "at least one");
        check("8-2", "backwards");
        check("5-7:pow2", "no size that is a power of two");
        check("5-7:mult=8", "a multiple of 8");
        check("2-8:mult=0", "above 0");
        check("1-2000000", "write 2+");
        check("99999999999", "write 2-8");
        let long: Vec<String> = (1..=300).map(|size| size.to_string()).collect();
        check(&long.join(","), "lists 300 sizes");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[-0-9:+,powmult=]{0,20}") {
            if let Ok(range) = text.parse::<SizeRange>() {
                let counts = range.within(100).counts();
                prop_assert!(counts.len() as u64 <= MAX_SIZES && counts.iter().all(|count| range.allows(*count)));
                prop_assert_eq!(range.to_string().parse(), Ok(range));
            }
        }
    }
}
