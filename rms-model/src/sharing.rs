//! Settings for lending the CPUs of running jobs to jobs that would have to wait (004).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A non-negative fraction in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "(u32, u32)", try_from = "(u32, u32)")]
pub struct Ratio {
    numerator: u32,
    denominator: u32,
}

/// The error for a text or two numbers that are not a fraction.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is no fraction: write it as 10, 2.5 or 7/3")]
pub struct NoRatio(pub String);

/// The slowdown up to which a running job may lend its CPUs: the cut-off of 004, §3.2.2. A job whose slowdown would
/// reach it lends none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaxSlowdown {
    At(Ratio),
    Infinite,
    /// The mean over all jobs that have started, running or ended (004: DynAVGSD).
    Average,
    /// The mean over running jobs.
    Mean,
    /// The median over running jobs.
    Median,
    /// The slowdown that 70 % of running jobs do not exceed.
    Percentile70,
}

/// How fast a job runs with some of its CPUs (004, §3.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuntimeModel {
    /// As fast as all its CPUs together allow (eq. 5).
    Ideal,
    /// As fast as the node allows on which it has the smallest part of what it requested (eq. 6).
    #[default]
    Worst,
}

/// The settings of node sharing under the policy `slowdown`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SharingSettings {
    pub max_slowdown: MaxSlowdown,
    /// The part of its cores on a node that a job may lend (004, §3.3).
    pub sharing_factor: Ratio,
    /// The most jobs whose nodes one guest may use (004, §3.2.4: m).
    pub max_mates: u32,
    /// The most jobs that may share the same cores through loans: an owner and its guest are 2; if more are allowed,
    /// guests lend, too (004, §3.2.4: more than two jobs a node).
    pub max_sharers: u32,
    /// The number of possible mates that are considered, those with the smallest slowdown (004, §3.2.4: nm); `None` =
    /// all.
    pub max_candidates: Option<u32>,
    /// The model by which run times are estimated.
    pub runtime_model: RuntimeModel,
    /// Whether a guest may use free nodes, or free cores of other nodes, in addition to those of its mates (004,
    /// §3.2.4).
    pub mix_free_nodes: bool,
    /// Whether the slowdown of each mate counts once for each of its nodes when mates are chosen, as in the authors'
    /// code; otherwise once, as in the paper (004, eq. 2).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub weigh_nodes: bool,
    /// The CPUs that a job keeps on each node while it shares, if it says nothing about that; 0: one for each task.
    #[serde(skip_serializing_if = "crate::checked::is_zero")]
    pub min_cpus_per_node: u32,
}

impl Default for SharingSettings {
    fn default() -> SharingSettings {
        SharingSettings {
            max_slowdown: MaxSlowdown::At(Ratio { numerator: 10, denominator: 1 }),
            sharing_factor: Ratio { numerator: 1, denominator: 2 },
            max_mates: 2,
            max_sharers: 2,
            max_candidates: None,
            runtime_model: RuntimeModel::Worst,
            mix_free_nodes: false,
            weigh_nodes: false,
            min_cpus_per_node: 0,
        }
    }
}

impl Ratio {
    /// Returns `None` if the denominator is 0.
    pub fn new(numerator: u32, denominator: u32) -> Option<Ratio> {
        let divisor = gcd(numerator, denominator);
        (denominator > 0).then(|| Ratio { numerator: numerator / divisor, denominator: denominator / divisor })
    }

    pub fn parts(self) -> (u32, u32) {
        (self.numerator, self.denominator)
    }

    /// Returns this part of a count, rounded down.
    pub fn of(self, count: u32) -> u32 {
        let part = u64::from(count) * u64::from(self.numerator) / u64::from(self.denominator);
        u32::try_from(part).unwrap_or(u32::MAX)
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl From<Ratio> for (u32, u32) {
    fn from(ratio: Ratio) -> (u32, u32) {
        ratio.parts()
    }
}

impl TryFrom<(u32, u32)> for Ratio {
    type Error = NoRatio;

    fn try_from((numerator, denominator): (u32, u32)) -> Result<Ratio, NoRatio> {
        Ratio::new(numerator, denominator).ok_or_else(|| NoRatio(format!("{numerator}/{denominator}")))
    }
}

impl FromStr for Ratio {
    type Err = NoRatio;

    fn from_str(text: &str) -> Result<Ratio, NoRatio> {
        let fail = || NoRatio(text.to_owned());
        let number = |digits: &str| {
            let are_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            if are_digits { digits.parse::<u32>().map_err(|_| fail()) } else { Err(fail()) }
        };
        if let Some((numerator, denominator)) = text.split_once('/') {
            return Ratio::new(number(numerator)?, number(denominator)?).ok_or_else(fail);
        }
        let (whole, digits) = text.split_once('.').unwrap_or((text, "0"));
        let scale = 10_u32.checked_pow(u32::try_from(digits.len()).map_err(|_| fail())?).ok_or_else(fail)?;
        let shifted = number(whole)?.checked_mul(scale).and_then(|shifted| shifted.checked_add(number(digits).ok()?));
        number(digits)?;
        Ratio::new(shifted.ok_or_else(fail)?, scale).ok_or_else(fail)
    }
}

/// Prints a decimal fraction if it has at most six places.
impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ratio { numerator, denominator } = *self;
        if denominator == 1 {
            return write!(f, "{numerator}");
        }
        let places = (1..=6).find(|places| 10_u32.pow(*places) % denominator == 0);
        let Some(places) = places else { return write!(f, "{numerator}/{denominator}") };
        let scale = u64::from(10_u32.pow(places));
        let shifted = u64::from(numerator) * scale / u64::from(denominator);
        let (whole, rest, places) = (shifted / scale, shifted % scale, places as usize);
        write!(f, "{whole}.{rest:0places$}")
    }
}

impl fmt::Display for MaxSlowdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MaxSlowdown::At(ratio) => ratio.fmt(f),
            MaxSlowdown::Infinite => f.write_str("infinite"),
            MaxSlowdown::Average => f.write_str("average"),
            MaxSlowdown::Mean => f.write_str("mean"),
            MaxSlowdown::Median => f.write_str("median"),
            MaxSlowdown::Percentile70 => f.write_str("p70"),
        }
    }
}

impl FromStr for MaxSlowdown {
    type Err = NoRatio;

    fn from_str(text: &str) -> Result<MaxSlowdown, NoRatio> {
        Ok(match text {
            "infinite" => MaxSlowdown::Infinite,
            "average" => MaxSlowdown::Average,
            "mean" => MaxSlowdown::Mean,
            "median" => MaxSlowdown::Median,
            "p70" => MaxSlowdown::Percentile70,
            number => MaxSlowdown::At(number.parse()?),
        })
    }
}

impl RuntimeModel {
    pub const ALL: [RuntimeModel; 2] = [RuntimeModel::Ideal, RuntimeModel::Worst];

    /// Returns the word in settings and outputs.
    pub fn word(self) -> &'static str {
        match self {
            RuntimeModel::Ideal => "ideal",
            RuntimeModel::Worst => "worst",
        }
    }

    /// Returns how much work a job does per unit of time; with all its cores, this is the number of cores that it
    /// requested. By the worst model it is 0 if the job has no cores on some node.
    pub fn rate(self, parts: impl Iterator<Item = CoreShare> + Clone) -> u64 {
        match self {
            RuntimeModel::Ideal => parts.map(|part| u64::from(part.n_nodes) * u64::from(part.has)).sum(),
            RuntimeModel::Worst => {
                let all = asked(parts.clone());
                // Rounded down if its nodes differ, so that the estimated time is too long rather than too short.
                let pace = |part: CoreShare| all * u64::from(part.has) / u64::from(part.asked.max(1));
                parts.map(pace).min().unwrap_or(0)
            }
        }
    }
}

/// The CPU time that a job has lent, and that it has borrowed from others (004).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuLoans {
    /// Core-milliseconds.
    pub lent: u64,
    /// Core-milliseconds.
    pub borrowed: u64,
}

/// The cores that a job has, out of those that it requested, on each of a number of identical nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreShare {
    pub n_nodes: u32,
    pub has: u32,
    pub asked: u32,
}

/// Returns the total number of requested cores.
pub fn asked(parts: impl Iterator<Item = CoreShare>) -> u64 {
    parts.map(|part| u64::from(part.n_nodes) * u64::from(part.asked)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_read_and_printed_in_one_form() {
        let check = |text: &str, printed: &str| {
            assert_eq!(text.parse::<Ratio>().expect(text).to_string(), printed);
        };
        check("10", "10");
        check("2.50", "2.5");
        check("0.05", "0.05");
        check("6/4", "1.5");
        check("7/3", "7/3");
        check("0", "0");
        for text in ["", "-1", "1.", ".5", "1/0", "1/", "a", "1e3", "99999999999", "1.12345678901"] {
            assert_eq!(text.parse::<Ratio>(), Err(NoRatio(text.to_owned())));
        }
    }

    #[test]
    fn the_slowest_node_sets_the_pace_under_the_worst_model() {
        let share = |n_nodes, has, asked| CoreShare { n_nodes, has, asked };
        let parts = [share(2, 4, 4), share(1, 2, 4)];
        assert_eq!(RuntimeModel::Ideal.rate(parts.into_iter()), 10);
        assert_eq!(RuntimeModel::Worst.rate(parts.into_iter()), 6);
        let uneven = [share(1, 2, 8), share(1, 1, 2)];
        assert_eq!(RuntimeModel::Worst.rate(uneven.into_iter()), 2, "10 cores at a quarter, rounded down");
    }
}
