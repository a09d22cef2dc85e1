//! Values of settings, read and printed.

use super::{MAX_BUDGET, MAX_PRICE, MAX_SHARE, NONE, SettingError};
use crate::allocation::Allocation;
use crate::devices::Devices;
use crate::resources::Mebibytes;
use crate::time::Span;

pub(super) fn or_none<T: ToString>(value: &Option<T>) -> String {
    value.as_ref().map_or_else(|| NONE.to_owned(), T::to_string)
}

/// An offer that is over at once would be nothing but noise.
pub(super) fn valid(key: &str, value: &str) -> Result<Span, SettingError> {
    let span = value.parse::<Span>()?;
    let is_sane = (Span::from_secs(1)..=Span::from_hours(1)).contains(&span);
    if is_sane { Ok(span) } else { Err(bad(key, value, "a duration from 1s to 1h")) }
}

pub(super) fn price(key: &str, value: &str) -> Result<u64, SettingError> {
    let price = value.parse().ok().filter(|price| *price <= MAX_PRICE);
    price.ok_or_else(|| bad(key, value, "thousandths for a node and hour, from 0 to 1099511627776"))
}

pub(super) fn budget(key: &str, value: &str) -> Result<Option<u64>, SettingError> {
    if value == NONE {
        return Ok(None);
    }
    let budget = value.parse().ok().filter(|budget| *budget <= MAX_BUDGET);
    budget.map(Some).ok_or_else(|| bad(key, value, "none, or thousandths from 0 to 1152921504606846976"))
}

pub(super) fn limit(key: &str, value: &str) -> Result<Option<u32>, SettingError> {
    if value == NONE {
        return Ok(None);
    }
    value.parse().map(Some).map_err(|_| bad(key, value, "none, or a whole number from 0 to 4294967295"))
}

pub(super) fn share(key: &str, value: &str) -> Result<u32, SettingError> {
    let share = value.parse().ok().filter(|share| (1..=MAX_SHARE).contains(share));
    share.ok_or_else(|| bad(key, value, "a whole number from 1 to 1000000"))
}

pub(super) fn view_share(key: &str, value: &str) -> Result<u32, SettingError> {
    let percent = value.parse().ok().filter(|percent| (1..=100).contains(percent));
    percent.ok_or_else(|| bad(key, value, "a whole number of percent from 1 to 100"))
}

pub(super) fn listed(licences: &Devices) -> String {
    if licences.is_empty() { NONE.to_owned() } else { licences.to_string() }
}

pub(super) fn licences(key: &str, value: &str) -> Result<Devices, SettingError> {
    let fail = || bad(key, value, "none, or names with counts: matlab:20,ansys:5");
    let parsed: Devices = if value == NONE { Devices::default() } else { value.parse().map_err(|_| fail())? };
    // What looks like a type is a count that is none.
    let are_names = parsed.iter().all(|(name, _)| !name.contains(':'));
    are_names.then_some(parsed).ok_or_else(fail)
}

pub(super) fn allocation(key: &str, value: &str) -> Result<Allocation, SettingError> {
    Allocation::ALL.into_iter().find(|known| known.word() == value).ok_or_else(|| bad(key, value, "nodes or cores"))
}

/// No node has an exbibyte.
pub(super) fn memory(key: &str, value: &str) -> Result<Mebibytes, SettingError> {
    let memory = value.parse().ok().filter(|memory| *memory < 1 << 40);
    memory.map(Mebibytes).ok_or_else(|| bad(key, value, "MiB, as a whole number; 0 counts none"))
}

pub(super) fn bad(key: &str, value: &str, expected: &'static str) -> SettingError {
    SettingError::Value { key: key.to_owned(), value: value.to_owned(), expected }
}
