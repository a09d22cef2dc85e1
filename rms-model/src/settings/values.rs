//! Prints and parses the values of settings.

use std::ops::RangeInclusive;
use std::str::FromStr;

use super::{Depth, GhostRule, LauncherPolicy, LostPolicy, MAX_BUDGET, MAX_PRICE, MAX_SHARE};
use crate::allocation::Allocation;
use crate::devices::Devices;
use crate::policy::Policy;
use crate::resizing::{OfferRule, ShrinkRule};
use crate::resources::Mebibytes;
use crate::sharing::{MaxSlowdown, Ratio, RuntimeModel};
use crate::time::{ParseSpanError, Span};

/// How the values of some settings are printed and parsed. Accepted values must stay valid, because journals contain
/// them.
pub(super) struct Form<T: 'static> {
    pub(super) print: fn(&T) -> String,
    pub(super) read: fn(&str) -> Result<T, Wrong>,
}

/// The error for a text that is not a value.
#[derive(Debug)]
pub(super) enum Wrong {
    Span(ParseSpanError),
    /// What is expected instead.
    Expected(&'static str),
}

/// The word for no limit.
const NONE: &str = "none";

/// Passes add a few of these to times, so none may come close to the maximum time.
pub(super) const SPAN: Form<Span> = Form { print: Span::to_string, read: span };
/// A time longer than zero.
pub(super) const WALL: Form<Span> = Form { print: Span::to_string, read: wall };
/// A time above zero: an offer that expires at once would be useless.
pub(super) const VALID: Form<Span> = Form {
    print: Span::to_string,
    read: |text| {
        let span = text.parse().map_err(Wrong::Span)?;
        let is_sane = (Span::from_secs(1)..=Span::from_hours(1)).contains(&span);
        is_sane.then_some(span).ok_or(Wrong::Expected("a duration from 1s to 1h"))
    },
};
pub(super) const KEEP: Form<Option<Span>> =
    Form { print: or_none, read: |text| if text == NONE { Ok(None) } else { wall(text).map(Some) } };
pub(super) const MOST: Form<Option<u64>> =
    Form { print: or_none, read: |text| unless_none(text, 1..=u64::MAX, "none, or a number of jobs") };
pub(super) const BUDGET: Form<Option<u64>> = Form {
    print: or_none,
    read: |text| unless_none(text, 0..=MAX_BUDGET, "none, or thousandths from 0 to 1152921504606846976"),
};
pub(super) const LIMIT: Form<Option<u32>> = Form {
    print: or_none,
    read: |text| unless_none(text, 0..=u32::MAX, "none, or a whole number from 0 to 4294967295"),
};
pub(super) const CANDIDATES: Form<Option<u32>> = Form {
    print: or_none,
    read: |text| {
        unless_none(text, 1..=u32::MAX, "none, or a whole number of at least 1 (max_slowdown 0: nobody lends)")
    },
};
pub(super) const COUNT: Form<u32> =
    Form { print: u32::to_string, read: |text| number(text, 0..=u32::MAX, "a whole number from 0 to 4294967295") };
pub(super) const PRICE: Form<u64> = Form {
    print: u64::to_string,
    read: |text| number(text, 0..=MAX_PRICE, "thousandths for a node and hour, from 0 to 1099511627776"),
};
pub(super) const SHARE: Form<u32> =
    Form { print: u32::to_string, read: |text| number(text, 1..=MAX_SHARE, "a whole number from 1 to 1000000") };
/// A percentage that may be 0.
pub(super) const PERCENT: Form<u32> =
    Form { print: u32::to_string, read: |text| number(text, 0..=100, "a whole number from 0 to 100") };
pub(super) const VIEW_SHARE: Form<u32> =
    Form { print: u32::to_string, read: |text| number(text, 1..=100, "a whole number of percent from 1 to 100") };
pub(super) const JOBS: Form<u32> =
    Form { print: u32::to_string, read: |text| number(text, 1..=u32::MAX, "a whole number of at least 1") };
/// The number of mates; kept small, because all combinations are tried.
pub(super) const MATES: Form<u32> =
    Form { print: u32::to_string, read: |text| number(text, 1..=8, "a whole number from 1 to 8") };
/// The number of sharers, each of which has a part of what its predecessor has.
pub(super) const SHARERS: Form<u32> =
    Form { print: u32::to_string, read: |text| number(text, 2..=8, "a whole number from 2 to 8") };
pub(super) const DEPTH: Form<Depth> =
    Form { print: Depth::to_string, read: |text| parsed(text, "auto, or a whole number from 0 to 4294967294") };
pub(super) const POLICY: Form<Policy> =
    Form { print: Policy::to_string, read: |text| parsed(text, "views, fcfs, easy, conservative or slowdown") };
pub(super) const OFFER_RULE: Form<OfferRule> = Form {
    print: OfferRule::to_string,
    read: |text| parsed(text, "never, equal_share, fewest_above_minimum or efficiency"),
};
pub(super) const SHRINK_RULE: Form<ShrinkRule> =
    Form { print: ShrinkRule::to_string, read: |text| parsed(text, "never, priority or queue") };
pub(super) const MAX_SLOWDOWN: Form<MaxSlowdown> = Form {
    print: MaxSlowdown::to_string,
    read: |text| parsed(text, "a number like 10 or 2.5, infinite, average, mean, median or p70"),
};
/// A factor below 1: a job that lent everything would stop.
pub(super) const FACTOR: Form<Ratio> = Form {
    print: Ratio::to_string,
    read: |text| {
        let factor = text.parse().ok().filter(|factor: &Ratio| factor.parts().0 < factor.parts().1);
        factor.ok_or(Wrong::Expected("a part below 1, as 0.5 or 2/3"))
    },
};
/// Memory below an exbibyte.
pub(super) const MEMORY: Form<Mebibytes> = Form {
    print: |memory| memory.0.to_string(),
    read: |text| number(text, 0..=(1 << 40) - 1, "MiB, as a whole number; 0 counts none").map(Mebibytes),
};
pub(super) const LICENCES: Form<Devices> = Form {
    print: |licences| if licences.is_empty() { NONE.to_owned() } else { licences.to_string() },
    read: |text| {
        let parsed = if text == NONE { Ok(Devices::default()) } else { text.parse() };
        // A name with a colon is a wrong count.
        let parsed = parsed.ok().filter(|all: &Devices| all.iter().all(|(name, _)| !name.contains(':')));
        let mut names: Vec<&str> = text.split(',').map(|part| part.split(':').next().unwrap_or(part)).collect();
        names.sort_unstable();
        let parsed = parsed.filter(|_| names.windows(2).all(|two| two[0] != two[1]));
        parsed.ok_or(Wrong::Expected("none, or names with counts, each name once: matlab:20,ansys:5"))
    },
};
pub(super) const YES_OR_NO: Form<bool> = Form {
    print: |is_so| if *is_so { "yes" } else { "no" }.to_owned(),
    read: |text| match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(Wrong::Expected("yes or no")),
    },
};

macro_rules! words {
    ($name:ident: $type:ident { $($variant:ident = $word:literal),+ }, $expected:literal) => {
        pub(super) const $name: Form<$type> = Form {
            print: |value| match value { $($type::$variant => $word),+ }.to_owned(),
            read: |text| match text {
                $($word => Ok($type::$variant),)+
                _ => Err(Wrong::Expected($expected)),
            },
        };
    };
}

words!(LOST_POLICY: LostPolicy { Fail = "fail", Requeue = "requeue" }, "fail or requeue");
words!(LAUNCHER_POLICY: LauncherPolicy { End = "end", Run = "run" }, "end or run");
words!(GHOSTS: GhostRule { Always = "always", IfWanted = "if_wanted" }, "always or if_wanted");
words!(ALLOCATION: Allocation { Nodes = "nodes", Cores = "cores" }, "nodes or cores");
words!(RUNTIME_MODEL: RuntimeModel { Ideal = "ideal", Worst = "worst" }, "ideal or worst");

fn span(text: &str) -> Result<Span, Wrong> {
    match text.parse() {
        Ok(span) if span > Span::MAX_WALL => Err(Wrong::Expected("a duration of at most 100 years")),
        Ok(span) => Ok(span),
        Err(error) => Err(Wrong::Span(error)),
    }
}

fn wall(text: &str) -> Result<Span, Wrong> {
    match span(text)? {
        Span::ZERO => Err(Wrong::Expected("a duration longer than zero")),
        span => Ok(span),
    }
}

fn parsed<T: FromStr>(text: &str, expected: &'static str) -> Result<T, Wrong> {
    text.parse().map_err(|_| Wrong::Expected(expected))
}

fn number<T: FromStr + PartialOrd>(text: &str, range: RangeInclusive<T>, expected: &'static str) -> Result<T, Wrong> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or(Wrong::Expected(expected))
}

fn unless_none<T: FromStr + PartialOrd>(
    text: &str,
    range: RangeInclusive<T>,
    expected: &'static str,
) -> Result<Option<T>, Wrong> {
    if text == NONE { Ok(None) } else { number(text, range, expected).map(Some) }
}

fn or_none<T: ToString>(value: &Option<T>) -> String {
    value.as_ref().map_or_else(|| NONE.to_owned(), T::to_string)
}
