//! How many of the queue's first applications a scheduling pass considers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The setting `queue_depth` (001, §5.4).
///
/// It is written down as a number, as it always was: 0 for all of them, and the largest one for `auto`, which a program that
/// does not know it takes for all of them as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "u32", into = "u32")]
pub enum Depth {
    All,
    First(u32),
    /// As many as passes are quick enough for (001, §6.3).
    Auto,
}

/// What a text is no depth for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoDepth;

impl Depth {
    /// Where one begins that is the server's to choose.
    pub const BEGINNING: u32 = 1000;
}

const AUTO: &str = "auto";
const AUTO_WRITTEN: u32 = u32::MAX;

impl From<u32> for Depth {
    fn from(number: u32) -> Depth {
        match number {
            0 => Depth::All,
            AUTO_WRITTEN => Depth::Auto,
            first => Depth::First(first),
        }
    }
}

impl From<Depth> for u32 {
    fn from(depth: Depth) -> u32 {
        match depth {
            Depth::All => 0,
            Depth::First(first) => first,
            Depth::Auto => AUTO_WRITTEN,
        }
    }
}

impl FromStr for Depth {
    type Err = NoDepth;

    fn from_str(text: &str) -> Result<Depth, NoDepth> {
        match text {
            AUTO => Ok(Depth::Auto),
            number => number.parse().ok().filter(|number| *number < AUTO_WRITTEN).map(u32::into).ok_or(NoDepth),
        }
    }
}

impl fmt::Display for Depth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Depth::All => f.write_str("0"),
            Depth::First(first) => first.fmt(f),
            Depth::Auto => f.write_str(AUTO),
        }
    }
}
