//! The settings of node sharing by name.

use super::SettingError;
use super::values::{bad, limit, or_none};
use crate::sharing::{MaxSlowdown, Ratio, RuntimeModel, SharingSettings};

/// `None` if it is none of them.
pub(super) fn get(settings: &SharingSettings, key: &str) -> Option<String> {
    Some(match key {
        "max_slowdown" => settings.max_slowdown.to_string(),
        "sharing_factor" => settings.sharing_factor.to_string(),
        "max_mates" => settings.max_mates.to_string(),
        "max_sharers" => settings.max_sharers.to_string(),
        "max_candidates" => or_none(&settings.max_candidates),
        "runtime_model" => settings.runtime_model.word().to_owned(),
        "mix_free_nodes" => if settings.mix_free_nodes { "yes" } else { "no" }.to_owned(),
        _ => return None,
    })
}

/// # Errors
/// It is none of them, or takes other values.
pub(super) fn set(settings: &mut SharingSettings, key: &str, value: &str) -> Result<(), SettingError> {
    match key {
        "max_slowdown" => settings.max_slowdown = max_slowdown(key, value)?,
        "sharing_factor" => settings.sharing_factor = factor(key, value)?,
        "max_mates" => {
            let most = value.parse().ok().filter(|most| (1..=MAX_MATES).contains(most));
            settings.max_mates = most.ok_or_else(|| bad(key, value, "a whole number from 1 to 8"))?;
        }
        "max_sharers" => {
            let most = value.parse().ok().filter(|most| (2..=MAX_SHARERS).contains(most));
            settings.max_sharers = most.ok_or_else(|| bad(key, value, "a whole number from 2 to 8"))?;
        }
        "max_candidates" => settings.max_candidates = limit(key, value)?,
        "runtime_model" => {
            let model = RuntimeModel::ALL.into_iter().find(|model| model.word() == value);
            settings.runtime_model = model.ok_or_else(|| bad(key, value, "ideal or worst"))?;
        }
        "mix_free_nodes" => {
            settings.mix_free_nodes = match value {
                "yes" => true,
                "no" => false,
                _ => return Err(bad(key, value, "yes or no")),
            };
        }
        _ => return Err(SettingError::Unknown(key.to_owned())),
    }
    Ok(())
}

pub(super) fn max_slowdown(key: &str, value: &str) -> Result<MaxSlowdown, SettingError> {
    value.parse().map_err(|_| bad(key, value, "a number like 10 or 2.5, infinite, average, mean, median or p70"))
}

/// Whoever lent all would not go on at all.
pub(super) fn factor(key: &str, value: &str) -> Result<Ratio, SettingError> {
    let factor = value.parse::<Ratio>().ok().filter(|factor| factor.parts().0 < factor.parts().1);
    factor.ok_or_else(|| bad(key, value, "a part below 1, as 0.5 or 2/3"))
}

/// All combinations of so many are tried.
const MAX_MATES: u32 = 8;

/// Each has a part of what the one before it has.
const MAX_SHARERS: u32 = 8;
