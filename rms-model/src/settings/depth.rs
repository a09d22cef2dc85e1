//! How many of the queue's first applications a scheduling pass considers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The setting `queue_depth` (001, §5.4).
///
/// It is stored as a number: 0 for all applications, and the largest number for `auto`, which older programs also read
/// as all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "u32", into = "u32")]
pub enum Depth {
    All,
    First(u32),
    /// As many as keep passes fast enough (001, §6.3).
    Auto,
}

/// The error for a text that is not a depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoDepth;

impl Depth {
    /// The initial depth if the server chooses the depth.
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
