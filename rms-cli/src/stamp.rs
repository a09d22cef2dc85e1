//! Points in time as people and programs write them: local time, ISO 8601 with its offset, `now+1h`, `16:00`.

use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use jiff::civil::{self, DateTime};
use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, Zoned};
use rms_model::{Span, Time};
use thiserror::Error;

/// Why a text is not a point in time.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseTimeError {
    #[error(
        "'{0}' is not a time: write now+1h30m, 16:00, tomorrow, 2026-11-20, 2026-11-20T16:00 (local time) or \
         2026-11-20T16:00:00+01:00; -1h is an hour ago"
    )]
    Nonsense(String),
    #[error("'{text}': {error}")]
    Span { text: String, error: rms_model::time::ParseSpanError },
    #[error("'{0}' is too late: no day after 9999-12-29 can be named")]
    TooLate(String),
    #[error("'{0}' is in the past: write a time to come, as now+1h30m, 16:00 or tomorrow, or leave it out")]
    Past(String),
}

/// Which occurrence of a time of day without a date is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occurrence {
    /// The next one, for plans.
    Next,
    /// The last one, for the past.
    Last,
}

/// Returns the time by the clock of this machine.
pub fn now() -> Time {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

/// Chooses, once per process, the zone of all times that are read and written: that of the system, or UTC with `--utc`.
/// Returns a warning if `TZ` names no zone.
pub fn choose_zone(utc: bool) -> Option<String> {
    let _ = CHOICE.set(if utc { Choice::Utc } else { Choice::System });
    let name = std::env::var("TZ").ok().filter(|name| !utc && !name.is_empty())?;
    is_lost().then(|| format!("warning: TZ='{name}' names no time zone of this machine: times are in UTC"))
}

#[derive(Clone, Copy, Debug)]
enum Choice {
    Utc,
    System,
}

/// Unset only in unit tests, which use UTC unless they name another zone.
static CHOICE: OnceLock<Choice> = OnceLock::new();
/// Looked up when the first time is read or written: most commands need none.
static SYSTEM: OnceLock<TimeZone> = OnceLock::new();

fn system() -> &'static TimeZone {
    SYSTEM.get_or_init(|| {
        let is_named = std::env::var_os("TZ").is_some();
        // Finding the zone's name searches all zones, which takes a sixth of the run time of a short command.
        local().filter(|_| !is_named).unwrap_or_else(TimeZone::system)
    })
}

/// Returns the zone of this machine by its rules, without its name.
fn local() -> Option<TimeZone> {
    TimeZone::tzif("Local", &std::fs::read("/etc/localtime").ok()?).ok()
}

fn is_lost() -> bool {
    system().is_unknown()
}

fn zone() -> &'static TimeZone {
    match CHOICE.get() {
        Some(Choice::System) if !is_lost() => system(),
        Some(Choice::System | Choice::Utc) | None => const { &TimeZone::UTC },
    }
}

/// Returns `2026-11-20T17:00:00.250+01:00`, or with a `Z` in UTC; `None` for times beyond the years 1970 to 9999.
pub fn iso(time: Time) -> Option<String> {
    iso_in(zone(), time, "%Y-%m-%dT%H:%M:%S%.3f")
}

/// Returns the same without fractions, and `-` if there is none: for tables.
pub fn iso_secs(time: Time) -> String {
    iso_in(zone(), time, "%Y-%m-%dT%H:%M:%S").unwrap_or_else(|| "-".to_owned())
}

fn iso_in(zone: &TimeZone, time: Time, format: &str) -> Option<String> {
    let at = civil_time(zone, time)?;
    let is_utc = *zone == TimeZone::UTC || at.offset() == Offset::UTC;
    let offset = if is_utc { "Z".to_owned() } else { at.strftime("%:z").to_string() };
    Some(format!("{}{offset}", at.strftime(format)))
}

/// Returns the local date and time; `None` for times beyond the years 1970 to 9999.
fn civil_time(zone: &TimeZone, time: Time) -> Option<Zoned> {
    let at = Timestamp::from_millisecond(time.as_millis()).ok()?.to_zoned(zone.clone());
    let is_sane = time >= Time::EPOCH && (1969..=9999).contains(&at.year());
    is_sane.then_some(at)
}

/// Returns `HH:MM:SS` on the day of `now`, with the date instead of the seconds on another day: for tables whose head
/// names the zone. A time at another offset than now's shows its offset.
pub fn short(time: Time, now: Time) -> String {
    short_in(zone(), time, now)
}

fn short_in(zone: &TimeZone, time: Time, now: Time) -> String {
    let (Some(at), Some(now)) = (civil_time(zone, time), civil_time(zone, now)) else {
        return "-".to_owned();
    };
    let text = if at.date() == now.date() {
        at.strftime("%H:%M:%S")
    } else if at.year() == now.year() {
        at.strftime("%m-%d %H:%M")
    } else {
        at.strftime("%Y-%m-%d %H:%M")
    };
    if at.offset() == now.offset() { text.to_string() } else { format!("{text} {}", name_at(&at)) }
}

/// Returns the same with the name of the zone: for sentences.
pub fn clock(time: Time, now: Time) -> String {
    clock_in(zone(), time, now)
}

fn clock_in(zone: &TimeZone, time: Time, now: Time) -> String {
    let short = short_in(zone, time, now);
    let Some(at) = civil_time(zone, time) else { return short };
    let name = name_at(&at);
    if short.ends_with(&name) { short } else { format!("{short} {name}") }
}

/// Returns the zone's name at that time: `CET`, `UTC`, `+0530`.
pub fn zone_name(time: Time) -> String {
    civil_time(zone(), time).map_or_else(|| "UTC".to_owned(), |at| name_at(&at))
}

fn name_at(at: &Zoned) -> String {
    at.strftime("%Z").to_string()
}

/// Returns a part of the local time, by a format of `strftime`; `-` if there is none.
pub fn formatted(time: Time, format: &str) -> String {
    civil_time(zone(), time).map_or_else(|| "-".to_owned(), |at| at.strftime(format).to_string())
}

/// Returns how far local time is ahead of UTC at that time.
pub fn ahead_of_utc_secs(time: Time) -> i64 {
    civil_time(zone(), time).map_or(0, |at| i64::from(at.offset().seconds()))
}

/// Returns `in 5m`, for example, or `at once` for a time that has come.
pub fn ahead(at: Time, now: Time) -> String {
    if at <= now { "at once".to_owned() } else { format!("in {}", brief(at.since(now))) }
}

/// Returns a span for tables: two units at most, `-` if nothing was measured.
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
/// The text has none of the forms that [`ParseTimeError`] names.
pub fn parse(text: &str, now: Time, occurrence: Occurrence) -> Result<Time, ParseTimeError> {
    parse_in(zone(), text, now, occurrence)
}

/// Returns the time that a text names for the begin of a job: the next occurrence.
///
/// # Errors
/// See [`parse`]; or the time has passed.
pub fn parse_begin(text: &str, now: Time) -> Result<Time, ParseTimeError> {
    let begin = parse(text, now, Occurrence::Next)?;
    if begin < now { Err(ParseTimeError::Past(text.chars().take(80).collect())) } else { Ok(begin) }
}

/// Returns the text if it is a time in some zone: where flags are read, the zone is not chosen yet.
///
/// # Errors
/// See [`parse`].
pub fn checked(text: &str) -> Result<String, ParseTimeError> {
    parse_in(&TimeZone::UTC, text, now(), Occurrence::Next).map(|_| text.to_owned())
}

fn parse_in(zone: &TimeZone, text: &str, now: Time, occurrence: Occurrence) -> Result<Time, ParseTimeError> {
    let fail = || ParseTimeError::Nonsense(text.chars().take(80).collect());
    let too_late = || ParseTimeError::TooLate(text.chars().take(80).collect());
    let trimmed = text.trim();
    if trimmed == "now" {
        return Ok(now);
    }
    let after_now = trimmed.strip_prefix("now");
    let signed = |sign: char| after_now.unwrap_or(trimmed).strip_prefix(sign);
    let span = |span: &str| {
        let is_bare = !span.is_empty() && span.bytes().all(|byte| byte.is_ascii_digit());
        // Slurm counts seconds where `now` is followed by a number without a unit.
        let read = if after_now.is_some() && is_bare { format!("{span}s").parse() } else { span.parse::<Span>() };
        read.map_err(|error| ParseTimeError::Span { text: text.chars().take(80).collect(), error })
    };
    if let Some(ahead) = signed('+') {
        return Some(now + span(ahead)?).filter(|time| *time <= Time::LATEST).ok_or_else(too_late);
    }
    if let Some(ago) = signed('-') {
        return Ok(now - span(ago)?);
    }
    let time = match parse_day(zone, trimmed, now) {
        Some(time) => Some(time),
        None if trimmed.contains('-') => parse_date(zone, trimmed),
        None => parse_clock(zone, trimmed, now, occurrence),
    };
    // The very last days do not exist in every zone.
    let day: Option<civil::Date> = trimmed.get(..10).and_then(|day| day.parse().ok());
    match time {
        Some(time) if (Time::EPOCH..=Time::LATEST).contains(&time) => Ok(time),
        Some(time) if time > Time::LATEST => Err(too_late()),
        None if day.is_some_and(|day| day > LAST_DAY) => Err(too_late()),
        Some(_) | None => Err(fail()),
    }
}

/// Parses `today`, `tomorrow` and `yesterday`, each optionally followed by a time; without one, the day's first
/// instant.
fn parse_day(zone: &TimeZone, text: &str, now: Time) -> Option<Time> {
    let (day, clock) = text.split_once([' ', 'T']).unwrap_or((text, ""));
    let today = civil_time(zone, now)?.date();
    let date = match day {
        "today" => today,
        "tomorrow" => today.tomorrow().ok()?,
        "yesterday" => today.yesterday().ok()?,
        _ => return None,
    };
    match clock {
        "" => first_instant(zone, date),
        clock => instants(zone, date.to_datetime(clock_time(clock)?)).first().copied(),
    }
}

/// Returns the next time at which the local clock shows `HH:MM[:SS]`, or the last one.
fn parse_clock(zone: &TimeZone, text: &str, now: Time, occurrence: Occurrence) -> Option<Time> {
    let clock = clock_time(text)?;
    let today = civil_time(zone, now)?.date();
    let days = [today.yesterday().ok(), Some(today), today.tomorrow().ok()];
    let mut fitting = days.into_iter().flatten().flat_map(|day| instants(zone, day.to_datetime(clock)));
    match occurrence {
        Occurrence::Next => fitting.find(|time| *time >= now),
        Occurrence::Last => fitting.rfind(|time| *time <= now),
    }
}

/// Parses `HH:MM[:SS]`, `midnight` and `noon`.
fn clock_time(text: &str) -> Option<civil::Time> {
    match text {
        "midnight" => return Some(civil::Time::midnight()),
        "noon" => return civil::Time::new(12, 0, 0, 0).ok(),
        _ => {}
    }
    let parts: Vec<&str> = text.split(':').collect();
    let two_digits = |part: &&str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
    if !(2..=3).contains(&parts.len()) || !parts.iter().all(two_digits) {
        return None;
    }
    let number = |idx: usize| parts.get(idx).map_or(Some(0), |part| part.parse::<i8>().ok());
    civil::Time::new(number(0)?, number(1)?, number(2)?, 0).ok()
}

/// Returns when the local clock shows this time: two instants if the clock is put back, and if it skips the time, the
/// instant later by the skipped time.
fn instants(zone: &TimeZone, shown: DateTime) -> Vec<Time> {
    let ambiguous = || zone.to_ambiguous_timestamp(shown);
    let mut times: Vec<Time> =
        [ambiguous().compatible(), ambiguous().later()].into_iter().flatten().map(time_of).collect();
    times.dedup();
    times
}

fn parse_date(zone: &TimeZone, text: &str) -> Option<Time> {
    let is_plain = text.is_ascii() && text.len() <= 40;
    if !is_plain {
        return None;
    }
    if text.len() == 10 {
        return first_instant(zone, text.parse().ok()?);
    }
    // With a date and hours alone, the minutes may have been forgotten.
    let has_minutes = text.as_bytes().get(13) == Some(&b':');
    if !has_minutes {
        return None;
    }
    // 'Z' after minutes without seconds, which ISO 8601 also allows.
    let with_seconds = text.strip_suffix(['Z', 'z']).filter(|head| head.len() == 16).map(|head| format!("{head}:00Z"));
    match with_seconds.as_deref().unwrap_or(text).parse::<Timestamp>() {
        Ok(at) => Some(time_of(at)),
        Err(_) if text.ends_with(['Z', 'z']) => None,
        Err(_) => instants(zone, text.parse().ok()?).first().copied(),
    }
}

/// Returns the first instant of a day, which is not always midnight: some zones put their clocks forward then.
fn first_instant(zone: &TimeZone, date: civil::Date) -> Option<Time> {
    let begin = date.to_zoned(zone.clone()).ok()?.start_of_day().ok()?;
    Some(time_of(begin.timestamp()))
}

fn time_of(at: Timestamp) -> Time {
    Time::from_millis(at.as_millisecond())
}

const DAY_SECS: i64 = 86_400;
const LAST_DAY: civil::Date = civil::date(9999, 12, 29);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 2026-11-20T12:30:00Z
    const NOON: Time = Time::from_secs(1_795_177_800);

    /// Returns the rules of Central Europe, independent of this machine's zone files.
    fn europe() -> TimeZone {
        TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a zone")
    }

    /// Returns a zone that skips midnight: 6 September 2026 begins at 01:00.
    fn midnight_leap() -> TimeZone {
        TimeZone::posix("<-04>4<-03>,M9.1.6/24,M4.1.6/24").expect("a zone")
    }

    fn at(text: &str) -> Time {
        parse_in(&TimeZone::UTC, text, NOON, Occurrence::Next).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn a_job_does_not_begin_in_the_past() {
        for text in ["now", "now+0", "now+1h", "tomorrow", "12:00"] {
            assert!(parse_begin(text, NOON).is_ok(), "{text}");
        }
        for text in ["-1h", "yesterday", "2026-11-19", "2026-11-20T12:29:59Z"] {
            assert_eq!(parse_begin(text, NOON), Err(ParseTimeError::Past(text.to_owned())));
        }
    }

    fn read(zone: &TimeZone, now: &str, occurrence: Occurrence, text: &str) -> String {
        let time = parse_in(zone, text, at(now), occurrence).unwrap_or_else(|error| panic!("{error}"));
        iso_in(zone, time, "%Y-%m-%dT%H:%M:%S").expect("a sane year")
    }

    #[test]
    fn times_read_as_the_field_writes_them() {
        let check = |text: &str, expected: &str| {
            let time = parse(text, NOON, Occurrence::Next).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(iso_secs(time), expected, "{text}");
        };
        check("now", "2026-11-20T12:30:00Z");
        check("now+1h30m", "2026-11-20T14:00:00Z");
        check("now+1hour", "2026-11-20T13:30:00Z");
        check("now+60", "2026-11-20T12:31:00Z");
        check("now-60", "2026-11-20T12:29:00Z");
        check("now+90seconds", "2026-11-20T12:31:30Z");
        check("now+10minutes", "2026-11-20T12:40:00Z");
        check("now+2days", "2026-11-22T12:30:00Z");
        check("now+1week", "2026-11-27T12:30:00Z");
        check("+90s", "2026-11-20T12:31:30Z");
        check("-1d", "2026-11-19T12:30:00Z");
        check("16:00", "2026-11-20T16:00:00Z");
        check("08:00:30", "2026-11-21T08:00:30Z");
        check("12:30", "2026-11-20T12:30:00Z");
        check("tomorrow", "2026-11-21T00:00:00Z");
        check("tomorrow 07:30", "2026-11-21T07:30:00Z");
        check("yesterday", "2026-11-19T00:00:00Z");
        check("today", "2026-11-20T00:00:00Z");
        check("midnight", "2026-11-21T00:00:00Z");
        check("noon", "2026-11-21T12:00:00Z");
        check("2026-12-01", "2026-12-01T00:00:00Z");
        check("2026-12-01T07:15", "2026-12-01T07:15:00Z");
        check("2026-12-01 07:15:10", "2026-12-01T07:15:10Z");
        check("2026-12-01T07:15:10Z", "2026-12-01T07:15:10Z");
        check("2026-12-01T07:15Z", "2026-12-01T07:15:00Z");
        check("2026-12-01T07:15:10+01:00", "2026-12-01T06:15:10Z");
        check("2026-12-01T07:15+01:00", "2026-12-01T06:15:00Z");
        check("2026-12-01T07:15:10.250-0530", "2026-12-01T12:45:10Z");
    }

    #[test]
    fn a_clock_without_a_date_is_the_next_or_the_last_time_it_shows_that() {
        let check = |text: &str, expected: &str| {
            let time = parse(text, NOON, Occurrence::Last).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(iso_secs(time), expected, "{text}");
        };
        check("16:00", "2026-11-19T16:00:00Z");
        check("08:00:30", "2026-11-20T08:00:30Z");
        check("midnight", "2026-11-20T00:00:00Z");
        check("2026-12-01T07:15", "2026-12-01T07:15:00Z");
    }

    #[test]
    fn times_are_local_and_say_so() {
        let check = |now: &str, text: &str, expected: &str| {
            assert_eq!(read(&europe(), now, Occurrence::Next, text), expected, "{text} at {now}");
        };
        let winter = "2026-11-20T12:30:00Z";
        check(winter, "16:00", "2026-11-20T16:00:00+01:00");
        check(winter, "13:00", "2026-11-21T13:00:00+01:00");
        check(winter, "2026-07-01T08:00", "2026-07-01T08:00:00+02:00");
        check(winter, "2026-07-01T08:00:00Z", "2026-07-01T10:00:00+02:00");
        check(winter, "2026-07-01T08:00:00-04:00", "2026-07-01T14:00:00+02:00");
        // Past midnight here, but not in UTC.
        check("2026-11-20T23:30:00Z", "tomorrow", "2026-11-22T00:00:00+01:00");
        check("2026-11-20T23:30:00Z", "today", "2026-11-21T00:00:00+01:00");
        assert_eq!(iso_in(&europe(), at(winter), "%H:%M").as_deref(), Some("13:30+01:00"));
        assert_eq!(short_in(&europe(), at("2026-11-20T22:59:59Z"), at(winter)), "23:59:59");
        assert_eq!(short_in(&europe(), at("2026-11-20T23:00:00Z"), at(winter)), "11-21 00:00");
        assert_eq!(short_in(&europe(), at("2026-07-01T10:00:00Z"), at(winter)), "07-01 12:00 CEST");
        assert_eq!(short_in(&europe(), at("2027-01-01T10:00:00Z"), at(winter)), "2027-01-01 11:00");
        assert_eq!(clock_in(&europe(), at("2026-07-01T10:00:00Z"), at(winter)), "07-01 12:00 CEST");
        assert_eq!(clock_in(&europe(), at("2026-11-20T13:00:00Z"), at(winter)), "14:00:00 CET");
        let kolkata = TimeZone::posix("IST-5:30").expect("a zone");
        assert_eq!(read(&kolkata, winter, Occurrence::Next, "2026-07-01T08:00"), "2026-07-01T08:00:00+05:30");
    }

    #[test]
    fn a_clock_that_is_put_forward_or_back_shows_some_times_never_or_twice() {
        let next = |now: &str, text: &str, expected: &str| {
            assert_eq!(read(&europe(), now, Occurrence::Next, text), expected, "{text} after {now}");
        };
        // On 29 March 02:00 is 03:00, so 02:30 is as long after midnight as on other days.
        next("2026-03-29T00:00:00Z", "02:30", "2026-03-29T03:30:00+02:00");
        next("2026-03-29T00:00:00Z", "2026-03-29T02:30", "2026-03-29T03:30:00+02:00");
        next("2026-03-28T12:00:00Z", "now+1d", "2026-03-29T14:00:00+02:00");
        next("2026-03-28T23:30:00Z", "tomorrow", "2026-03-30T00:00:00+02:00");
        // On 25 October 03:00 is 02:00 again.
        next("2026-10-25T00:00:00Z", "02:30", "2026-10-25T02:30:00+02:00");
        next("2026-10-25T00:45:00Z", "02:30", "2026-10-25T02:30:00+01:00");
        next("2026-10-25T01:45:00Z", "02:30", "2026-10-26T02:30:00+01:00");
        next("2026-10-24T00:00:00Z", "2026-10-25T02:30", "2026-10-25T02:30:00+02:00");
        next("2026-10-24T00:00:00Z", "2026-10-25T02:30:00+01:00", "2026-10-25T02:30:00+01:00");
        let last = |now: &str, text: &str, expected: &str| {
            assert_eq!(read(&europe(), now, Occurrence::Last, text), expected, "{text} before {now}");
        };
        last("2026-10-25T01:15:00Z", "02:30", "2026-10-25T02:30:00+02:00");
        last("2026-10-25T01:45:00Z", "02:30", "2026-10-25T02:30:00+01:00");
        // A day of 23 hours lies between: not simply 24 hours ago.
        last("2026-03-29T07:00:00Z", "10:00", "2026-03-28T10:00:00+01:00");
        assert_eq!(
            read(&midnight_leap(), "2026-09-05T12:00:00Z", Occurrence::Next, "tomorrow"),
            "2026-09-06T01:00:00-03:00",
            "the day begins where its first instant is"
        );
        assert_eq!(
            read(&midnight_leap(), "2026-09-05T12:00:00Z", Occurrence::Next, "2026-09-06"),
            "2026-09-06T01:00:00-03:00"
        );
    }

    #[test]
    fn nonsense_is_no_time_and_never_a_panic() {
        for text in [
            "",
            "someday",
            "25:00",
            "12:60",
            "now+",
            "now+x",
            "2026-13-01",
            "2026-12-01T07",
            "é-1",
            "1:2",
            "-",
            "60",
            "+5",
            "-5",
            "now+1.5",
            "1969-12-31",
            "2026-02-29",
            "tomorrow 25:00",
            "2026-12-01T07Z",
            "24:00",
            "2026-12-01T07:15+30:00",
        ] {
            let read = parse(text, NOON, Occurrence::Next);
            assert!(read.is_err(), "{text} was read as {:?}", read.map(iso_secs));
        }
        let error = parse("+60", NOON, Occurrence::Next).expect_err("a number without unit").to_string();
        assert!(error.contains("60s") && error.contains("60m"), "{error}");
    }

    #[test]
    fn what_is_too_late_for_a_date_is_refused_by_the_last_day() {
        for text in
            ["now+99999999999d", "now+999999999999", "+3000000d", "9999-12-31", "9999-12-31T12:00", "9999-12-30T12:00Z"]
        {
            let error = parse(text, NOON, Occurrence::Next).expect_err(text).to_string();
            assert!(error.contains("9999-12-29"), "{text}: {error}");
        }
        assert!(iso(Time::LATEST).is_some() && parse("9999-12-29T23:59", NOON, Occurrence::Next).is_ok());
    }

    #[test]
    fn far_times_have_no_text_but_do_not_panic() {
        assert_eq!(iso(Time::NEVER), None);
        assert_eq!(iso(Time::from_millis(-1)), None);
        assert_eq!(iso_secs(Time::NEVER), "-");
        assert_eq!(short(Time::NEVER, NOON), "-");
        assert_eq!(clock(Time::NEVER, NOON), "-");
    }

    #[test]
    fn tables_show_the_clock_today_and_the_date_on_other_days() {
        assert_eq!(short(NOON + Span::from_mins(2), NOON), "12:32:00");
        assert_eq!(short(NOON + Span::from_hours(24), NOON), "11-21 12:30");
        assert_eq!(clock(NOON + Span::from_mins(2), NOON), "12:32:00 UTC");
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

    proptest! {
        #[test]
        fn what_is_written_for_programs_reads_back(millis in 0_i64..4_102_444_800_000, zone_idx in 0_usize..3) {
            let zone = [TimeZone::UTC, europe(), midnight_leap()][zone_idx].clone();
            let time = Time::from_millis(millis);
            let text = iso_in(&zone, time, "%Y-%m-%dT%H:%M:%S%.3f").expect("a sane year");
            prop_assert_eq!(parse_in(&europe(), &text, NOON, Occurrence::Next), Ok(time));
        }

        #[test]
        fn no_text_panics(text in "[-+0-9:TZ .a-z]{0,30}") {
            let _ = parse_in(&europe(), &text, NOON, Occurrence::Next);
        }
    }
}
