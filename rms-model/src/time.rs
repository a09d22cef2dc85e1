//! Points in time and durations, in whole milliseconds.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A point in time: milliseconds since the Unix epoch (a simulation may start at 0).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(i64);

/// A length of time in milliseconds; never negative where a duration is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Span(i64);

impl Time {
    pub const EPOCH: Time = Time(0);
    /// Later than any planned time.
    pub const NEVER: Time = Time(i64::MAX);
    /// Midnight, 30 December 9999, UTC: later times have no date in some time zones.
    pub const LATEST: Time = Time::from_secs(253_402_128_000);

    pub const fn from_millis(millis: i64) -> Time {
        Time(millis)
    }

    pub const fn from_secs(secs: i64) -> Time {
        Time(secs.saturating_mul(1000))
    }

    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Returns whole seconds since the epoch, rounded down.
    pub const fn as_secs(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// Returns the time elapsed since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0).max(0))
    }
}

impl Span {
    pub const ZERO: Span = Span(0);
    /// The longest wall time, a hundred years.
    pub const MAX_WALL: Span = Span(100 * 366 * 24 * 3600 * 1000);

    pub const fn from_millis(millis: i64) -> Span {
        Span(millis)
    }

    pub const fn from_secs(secs: i64) -> Span {
        Span(secs.saturating_mul(1000))
    }

    pub const fn from_mins(mins: i64) -> Span {
        Span::from_secs(mins.saturating_mul(60))
    }

    pub const fn from_hours(hours: i64) -> Span {
        Span::from_mins(hours.saturating_mul(60))
    }

    pub const fn as_millis(self) -> i64 {
        self.0
    }

    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1000.0
    }

    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Converts the span for timers; a negative span becomes zero.
    pub fn to_std(self) -> std::time::Duration {
        std::time::Duration::from_millis(self.0.max(0) as u64)
    }
}

impl Add<Span> for Time {
    type Output = Time;

    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Sub<Span> for Time {
    type Output = Time;

    fn sub(self, span: Span) -> Time {
        Time(self.0.saturating_sub(span.0))
    }
}

impl Add for Span {
    type Output = Span;

    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

/// Prints `1d02h03m04s`, with the largest unit first and zero units omitted; parsing returns the same span.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let mut rest = self.0.unsigned_abs();
        for (unit, millis) in UNITS {
            let count = rest / millis;
            rest %= millis;
            if count > 0 {
                write!(f, "{count}{unit}")?;
            }
        }
        Ok(())
    }
}

/// Units in the order of printing.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// The error for a text that is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseSpanError {
    #[error("'{0}' is not a duration: write 90s, 1h30m, 2d, 250ms, MM:SS, HH:MM:SS or D-HH:MM:SS")]
    Nonsense(String),
    #[error("'{0}' has no unit: write {0}s, {0}m or {0}h")]
    NoUnit(String),
    #[error("'{0}' minutes are longer than any time can be: write less")]
    TooLong(String),
}

/// Accepts `1h30m`, `90s`, `250ms`, `1.5h`, `MM:SS`, `HH:MM:SS` and `D-HH[:MM[:SS]]`. A number without a unit is
/// rejected unless it is 0: some users mean seconds, others minutes.
impl FromStr for Span {
    type Err = ParseSpanError;

    fn from_str(text: &str) -> Result<Span, ParseSpanError> {
        let shown = || text.chars().take(80).collect();
        let is_bare = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let millis = if text.contains(':') || text.contains('-') {
            parse_clock(text)
        } else if is_bare && text.parse() == Ok(0_i64) {
            Some(0)
        } else if is_bare && text.parse::<f64>().is_ok() {
            return Err(ParseSpanError::NoUnit(shown()));
        } else {
            parse_units(text)
        };
        millis.map(Span).ok_or_else(|| ParseSpanError::Nonsense(shown()))
    }
}

/// Parses a job's wall time like any duration, except that a bare number means minutes, as users of `sbatch` expect.
/// Used where only a wall time can be given: `-t`, `#SBATCH --time`.
///
/// # Errors
/// Those of parsing any duration.
pub fn parse_wall(text: &str) -> Result<Span, ParseSpanError> {
    let is_bare = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let millis = digits(text).and_then(|mins| mins.checked_mul(60_000));
    match millis {
        Some(millis) => Ok(Span(millis)),
        None if is_bare => Err(ParseSpanError::TooLong(text.chars().take(80).collect())),
        None => text.parse(),
    }
}

fn parse_clock(text: &str) -> Option<i64> {
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (Some(digits(days)?), clock),
        None => (None, text),
    };
    let parts = clock.split(':').map(digits).collect::<Option<Vec<i64>>>()?;
    let secs = match (days, parts.as_slice()) {
        (None, [m, s]) => m.checked_mul(60)?.checked_add(*s)?,
        (_, [h, m, s]) => h.checked_mul(3600)?.checked_add(m.checked_mul(60)?)?.checked_add(*s)?,
        (Some(_), [h, m]) => h.checked_mul(3600)?.checked_add(m.checked_mul(60)?)?,
        (Some(_), [h]) => h.checked_mul(3600)?,
        _ => return None,
    };
    secs.checked_add(days.unwrap_or(0).checked_mul(86_400)?)?.checked_mul(1000)
}

fn parse_units(text: &str) -> Option<i64> {
    let mut total: i64 = 0;
    let mut rest = text;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let n_number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(n_number);
        let n_unit = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(n_unit);
        let unit_millis = match unit {
            "ms" => 1,
            "s" | "sec" | "secs" | "second" | "seconds" => 1000,
            "m" | "min" | "mins" | "minute" | "minutes" => 60_000,
            "h" | "hour" | "hours" => 3_600_000,
            "d" | "day" | "days" => 86_400_000,
            "w" | "week" | "weeks" => 7 * 86_400_000,
            _ => return None,
        };
        let millis = match number.split_once('.') {
            None => digits(number)?.checked_mul(unit_millis)?,
            Some(_) => {
                let value = number.parse::<f64>().ok()? * unit_millis as f64;
                if !(0.0..9e15).contains(&value) {
                    return None;
                }
                value.round() as i64
            }
        };
        total = total.checked_add(millis)?;
        rest = tail;
    }
    Some(total)
}

fn digits(text: &str) -> Option<i64> {
    let all_digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    all_digits.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_parse_as_the_field_writes_them() {
        let check = |text: &str, millis: i64| {
            assert_eq!(text.parse::<Span>(), Ok(Span(millis)), "{text}");
        };
        check("1h30m", 5_400_000);
        check("90s", 90_000);
        check("250ms", 250);
        check("1.5h", 5_400_000);
        check("2hours", 7_200_000);
        check("0", 0);
        check("02:30", 150_000);
        check("01:00:00", 3_600_000);
        check("1-00:00:00", 86_400_000);
        check("1-12", 129_600_000);
        check("2d", 172_800_000);
    }

    #[test]
    fn every_duration_is_printed() {
        assert_eq!(Span::from_millis(i64::MIN).to_string(), "-106751991167d7h12m55s808ms");
        assert_eq!(Span::from_secs(-90).to_string(), "-1m30s");
    }

    #[test]
    fn a_bare_number_is_minutes_of_wall_time_and_nothing_else() {
        for text in ["1", "10", "0.5", "1.", "007"] {
            let error = text.parse::<Span>().expect_err(text).to_string();
            assert_eq!(error, format!("'{text}' has no unit: write {text}s, {text}m or {text}h"));
        }
        assert_eq!(parse_wall("30"), Ok(Span::from_mins(30)));
        assert_eq!(parse_wall("30s"), Ok(Span::from_secs(30)));
        assert_eq!(parse_wall("01:30"), Ok(Span::from_secs(90)));
        let too_long = "9999999999999999999";
        assert_eq!(parse_wall(too_long), Err(ParseSpanError::TooLong(too_long.to_owned())));
        for text in ["", "0.5", "x", "9999999999999999999"] {
            assert!(parse_wall(text).is_err(), "{text}");
        }
    }

    #[test]
    fn nonsense_is_no_duration() {
        for text in ["", "h", "1x", "1h-", "-5s", "1:2:3:4", "9999999999999999999s", "1..5h", "5 m", "1-"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_printed_parses_back() {
        for millis in [0, 1, 999, 1000, 61_001, 86_400_000, 90_061_001] {
            let span = Span(millis);
            assert_eq!(span.to_string().parse::<Span>(), Ok(span));
        }
    }
}
