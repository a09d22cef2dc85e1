//! Points in time as people and programs write them: ISO 8601 in UTC, `now+1h`, `16:00`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rms_model::{Span, Time};
use thiserror::Error;

/// Why a text is not a point in time.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "'{text}' is not a time: write now+1h30m, 16:00 (UTC), 2026-11-20, 2026-11-20T16:00 or 2026-11-20T16:00:00Z; -1h is an hour ago"
)]
pub struct ParseTimeError {
    text: String,
}

/// The clock of this machine.
pub fn now() -> Time {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

/// `2026-11-20T16:00:00.250Z`; `None` for what lies beyond the years 1970 to 9999.
pub fn iso(time: Time) -> Option<String> {
    let millis = u64::try_from(time.as_millis()).ok().filter(|millis| *millis < YEAR_10000)?;
    let at = UNIX_EPOCH + Duration::from_millis(millis);
    Some(humantime::format_rfc3339_millis(at).to_string())
}

/// The same without fractions, and `-` where there is none: for tables.
pub fn iso_secs(time: Time) -> String {
    iso(time).map_or_else(|| "-".to_owned(), |text| format!("{}Z", &text[..19]))
}

/// `HH:MM:SS` on the day of `now`, with the date before it on another day.
pub fn short(time: Time, now: Time) -> String {
    let same_day = time.as_secs().div_euclid(DAY_SECS) == now.as_secs().div_euclid(DAY_SECS);
    let Some(text) = iso(time) else {
        return "-".to_owned();
    };
    if same_day { text[11..19].to_owned() } else { format!("{} {}", &text[5..10], &text[11..16]) }
}

/// A span as a table shows it: two units at most, `-` for nothing measured.
pub fn brief(span: Span) -> String {
    let millis = span.as_millis().max(0);
    let secs = millis / 1000;
    match secs {
        0 if millis > 0 => format!("{millis}ms"),
        0..60 => format!("{secs}s"),
        60..3600 => two(secs / 60, "m", secs % 60, "s"),
        3600..DAY_SECS => two(secs / 3600, "h", secs % 3600 / 60, "m"),
        _ => two(secs / DAY_SECS, "d", secs % DAY_SECS / 3600, "h"),
    }
}

fn two(large: i64, large_unit: &str, small: i64, small_unit: &str) -> String {
    if small == 0 { format!("{large}{large_unit}") } else { format!("{large}{large_unit}{small:02}{small_unit}") }
}

/// # Errors
/// A text in none of the forms that [`ParseTimeError`] names.
pub fn parse(text: &str, now: Time) -> Result<Time, ParseTimeError> {
    let fail = || ParseTimeError { text: text.chars().take(80).collect() };
    let text = text.trim();
    if text == "now" {
        return Ok(now);
    }
    if let Some(span) = text.strip_prefix("now+").or_else(|| text.strip_prefix('+')) {
        return Ok(now + span.parse::<Span>().map_err(|_| fail())?);
    }
    if let Some(span) = text.strip_prefix("now-").or_else(|| text.strip_prefix('-')) {
        return Ok(now - span.parse::<Span>().map_err(|_| fail())?);
    }
    if text.contains('-') {
        return parse_date(text).ok_or_else(fail);
    }
    parse_clock(text, now).ok_or_else(fail)
}

/// The next time the UTC clock shows `HH:MM[:SS]`.
fn parse_clock(text: &str, now: Time) -> Option<Time> {
    let parts: Vec<&str> = text.split(':').collect();
    let two_digits = |part: &&str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
    if !(2..=3).contains(&parts.len()) || !parts.iter().all(two_digits) {
        return None;
    }
    let number = |idx: usize| parts.get(idx).map_or(Some(0), |part| part.parse::<i64>().ok());
    let (hours, mins, secs) = (number(0)?, number(1)?, number(2)?);
    if hours > 23 || mins > 59 || secs > 59 {
        return None;
    }
    let midnight = now.as_secs().div_euclid(DAY_SECS) * DAY_SECS;
    let today = Time::from_secs(midnight + hours * 3600 + mins * 60 + secs);
    Some(if today >= now { today } else { today + Span::from_secs(DAY_SECS) })
}

fn parse_date(text: &str) -> Option<Time> {
    // The date alone means its first instant, and minutes may stand without seconds.
    let is_plain = text.is_ascii() && text.len() <= 40;
    if !is_plain {
        return None;
    }
    let full = match text.len() {
        10 => format!("{text}T00:00:00Z"),
        16 => format!("{text}:00Z"),
        17 if text.ends_with('Z') => format!("{}:00Z", &text[..16]),
        _ => text.to_owned(),
    };
    let at = humantime::parse_rfc3339_weak(&full).ok()?;
    let since_epoch = at.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since_epoch.as_millis()).ok().map(Time::from_millis)
}

const DAY_SECS: i64 = 86_400;
/// Milliseconds from 1970 to the year 10000, which has no four-digit form.
const YEAR_10000: u64 = 253_402_300_800_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-20T12:30:00Z
    const NOON: Time = Time::from_secs(1_795_177_800);

    #[test]
    fn times_read_as_the_field_writes_them() {
        let check = |text: &str, expected: &str| {
            let time = parse(text, NOON).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(iso_secs(time), expected, "{text}");
        };
        check("now", "2026-11-20T12:30:00Z");
        check("now+1h30m", "2026-11-20T14:00:00Z");
        check("+90s", "2026-11-20T12:31:30Z");
        check("-1d", "2026-11-19T12:30:00Z");
        check("16:00", "2026-11-20T16:00:00Z");
        check("08:00:30", "2026-11-21T08:00:30Z");
        check("2026-12-01", "2026-12-01T00:00:00Z");
        check("2026-12-01T07:15", "2026-12-01T07:15:00Z");
        check("2026-12-01 07:15:10", "2026-12-01T07:15:10Z");
        check("2026-12-01T07:15:10Z", "2026-12-01T07:15:10Z");
    }

    #[test]
    fn nonsense_is_no_time_and_never_a_panic() {
        for text in
            ["", "tomorrow", "25:00", "12:60", "now+", "now+x", "2026-13-01", "2026-12-01T07", "é-1", "1:2", "-"]
        {
            assert!(parse(text, NOON).is_err(), "{text}");
        }
    }

    #[test]
    fn far_times_have_no_text_but_do_not_panic() {
        assert_eq!(iso(Time::NEVER), None);
        assert_eq!(iso(Time::from_millis(-1)), None);
        assert_eq!(iso_secs(Time::NEVER), "-");
        assert_eq!(short(Time::NEVER, NOON), "-");
    }

    #[test]
    fn tables_show_the_clock_today_and_the_date_on_other_days() {
        assert_eq!(short(NOON + Span::from_mins(2), NOON), "12:32:00");
        assert_eq!(short(NOON + Span::from_hours(24), NOON), "11-21 12:30");
    }

    #[test]
    fn brief_spans_have_two_units_at_most() {
        let check = |millis: i64, expected: &str| assert_eq!(brief(Span::from_millis(millis)), expected);
        check(0, "0s");
        check(250, "250ms");
        check(59_000, "59s");
        check(61_000, "1m01s");
        check(3_600_000, "1h");
        check(5_460_000, "1h31m");
        check(90_000_000, "1d01h");
    }
}
