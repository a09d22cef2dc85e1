//! Devices of a node, counted by name.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};
use thiserror::Error;

use crate::name::check_name;

/// Counts of devices by name: `gpu`, or with a type, `gpu:a100`. No count is 0.
#[derive(Clone, Debug, Default, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Devices(BTreeMap<String, u32>);

/// Passes compare these for each node of each job, and mostly there are none.
impl PartialEq for Devices {
    #[inline]
    fn eq(&self, other: &Devices) -> bool {
        self.0.len() == other.0.len() && (self.0.is_empty() || self.0 == other.0)
    }
}

/// The error for a text that does not name devices.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{text}' does not name devices: write gpu:2, gpu:a100:2, or several with commas between them")]
pub struct DevicesError {
    text: String,
}

/// The most devices of one name: a node has no numbers for more.
pub const MAX_DEVICES: u32 = crate::indices::MAX_INDEX;

impl Devices {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates in the order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u32)> {
        self.0.iter().map(|(name, count)| (name.as_str(), *count))
    }

    /// Returns the number of devices of exactly this name.
    pub fn count(&self, name: &str) -> u32 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Lists the devices that serve a request for this name, in the order of names, each with its count.
    pub fn serving<'a>(&'a self, wanted: &'a str) -> impl Iterator<Item = (&'a str, u32)> {
        self.iter().filter(move |(name, _)| Devices::serves(name, wanted))
    }

    /// Returns whether there are enough devices for a request of all of these.
    pub fn cover(&self, wanted: &Devices) -> bool {
        wanted.is_empty() || self.choices(wanted).next().is_some()
    }

    /// Lists the ways in which these devices, if all of them are free, serve a request, by their own names: of one type
    /// first, then of two types; of more types only if nothing else suffices.
    pub fn choices<'a>(&'a self, wanted: &'a Devices) -> impl Iterator<Item = Devices> + 'a {
        let mut ways = vec![Devices::default()];
        for (name, count) in wanted.iter() {
            let next = ways.iter().flat_map(|way| {
                let left = self.serving(name).map(|(own, n_own)| (own, n_own.saturating_sub(way.count(own))));
                let left: Vec<(&str, u32)> = left.filter(|(_, n_left)| *n_left > 0).collect();
                mixes(&left, count).into_iter().map(|mix| {
                    let mut more = way.clone();
                    mix.into_iter().for_each(|(own, count)| more.add(own, count));
                    more
                })
            });
            ways = next.take(MAX_CHOICES).collect();
        }
        ways.into_iter()
    }

    /// Adds a number of devices of a name.
    pub fn add(&mut self, name: &str, count: u32) {
        if count > 0 {
            let known = self.0.entry(name.to_owned()).or_default();
            *known = known.saturating_add(count).min(MAX_DEVICES);
        }
    }

    /// Returns the same devices with a different number of this name.
    pub fn with(&self, name: &str, count: u32) -> Devices {
        let mut devices = self.clone();
        devices.0.remove(name);
        devices.add(name, count);
        devices
    }

    /// Returns whether a device of the name `has` serves a request for `wanted`. A request without a type accepts any
    /// type.
    pub fn serves(has: &str, wanted: &str) -> bool {
        has == wanted || has.split_once(':').is_some_and(|(kind, _)| kind == wanted)
    }
}

/// Returns the ways to take `count` devices of what is left of each type.
fn mixes<'a>(left: &[(&'a str, u32)], count: u32) -> Vec<Vec<(&'a str, u32)>> {
    let enough = left.iter().filter(|(_, n_left)| *n_left >= count);
    let mut ways: Vec<Vec<(&str, u32)>> = enough.map(|(own, _)| vec![(*own, count)]).collect();
    let pairs = left.iter().enumerate().flat_map(|(idx, one)| left[idx + 1..].iter().map(move |other| (*one, *other)));
    let of_two = pairs.flat_map(|((one, n_one), (other, n_other))| {
        let least = count.saturating_sub(n_other).max(1);
        let most = n_one.min(count.saturating_sub(1));
        (least..=most).map(move |n_taken| vec![(one, n_taken), (other, count - n_taken)])
    });
    ways.extend(of_two.take(MAX_CHOICES));
    if ways.is_empty() {
        let mut missing = count;
        let take = |(own, n_left): &(&'a str, u32)| {
            let n_taken = (*n_left).min(missing);
            missing -= n_taken;
            (*own, n_taken)
        };
        let of_all: Vec<(&str, u32)> = left.iter().map(take).collect();
        ways.extend((missing == 0).then_some(of_all));
    }
    ways
}

impl FromIterator<(String, u32)> for Devices {
    fn from_iter<I: IntoIterator<Item = (String, u32)>>(counts: I) -> Devices {
        let mut devices = Devices::default();
        counts.into_iter().for_each(|(name, count)| devices.add(&name, count));
        devices
    }
}

/// Parses `gpu:a100:2,fpga:1`; a name without a count means one device.
impl FromStr for Devices {
    type Err = DevicesError;

    fn from_str(text: &str) -> Result<Devices, DevicesError> {
        let fail = || DevicesError { text: text.chars().take(80).collect() };
        let mut devices = Devices::default();
        for part in text.split(',') {
            let (name, count) = match part.rsplit_once(':') {
                Some((name, count)) if count.bytes().all(|byte| byte.is_ascii_digit()) => {
                    (name, count.parse().map_err(|_| fail())?)
                }
                Some(_) | None => (part, 1),
            };
            if !is_device_name(name) || count > MAX_DEVICES {
                return Err(fail());
            }
            devices.add(name, count);
        }
        Ok(devices)
    }
}

/// Returns whether this is a device name, with or without a type.
pub fn is_device_name(name: &str) -> bool {
    let mut parts = name.split(':');
    let is_name = |part: Option<&str>| part.is_some_and(|part| check_name(part).is_ok());
    let has_kind = is_name(parts.next());
    has_kind && parts.next().is_none_or(|kind| check_name(kind).is_ok()) && parts.next().is_none()
}

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.iter().map(|(name, count)| format!("{name}:{count}")).collect();
        f.write_str(&parts.join(","))
    }
}

impl<'de> Deserialize<'de> for Devices {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Devices, D::Error> {
        let counts: BTreeMap<String, u32> = BTreeMap::deserialize(from)?;
        let is_right = |(name, count): (&String, &u32)| is_device_name(name) && (1..=MAX_DEVICES).contains(count);
        match counts.iter().all(is_right) && counts.len() <= MAX_NAMES {
            true => Ok(Devices(counts)),
            false => Err(serde::de::Error::custom("devices with names or counts that cannot be")),
        }
    }
}

/// The most ways that are tried if a node's devices serve a request in many ways.
const MAX_CHOICES: usize = 16;

/// The most kinds of devices in a request.
const MAX_NAMES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_as_they_are_printed() {
        for (text, printed) in [
            ("gpu:2", "gpu:2"),
            ("gpu", "gpu:1"),
            ("gpu:a100", "gpu:a100:1"),
            ("gpu:a100:2,fpga:1", "fpga:1,gpu:a100:2"),
            ("gpu:1,gpu:2", "gpu:3"),
            ("gpu:0", ""),
        ] {
            assert_eq!(text.parse::<Devices>().map(|devices| devices.to_string()), Ok(printed.to_owned()), "{text}");
        }
        for text in ["", ":2", "gpu:a:b:2", "gpu:99999999999", "gpu::2", "gpu:2,", "g pu:1", "gpu:70000"] {
            assert!(text.parse::<Devices>().is_err(), "{text}");
        }
    }

    #[test]
    fn types_are_mixed_where_that_serves() {
        let check = |has: &str, wanted: &str, ways: &[&str]| {
            let devices = |text: &str| text.parse::<Devices>().expect("devices");
            let (has, wanted) = (devices(has), devices(wanted));
            assert_eq!(has.choices(&wanted).map(|way| way.to_string()).collect::<Vec<_>>(), ways, "{wanted} of {has}");
            assert_eq!(has.cover(&wanted), !ways.is_empty());
        };
        check("gpu:a:2,gpu:b:1", "gpu:2", &["gpu:a:2", "gpu:a:1,gpu:b:1"]);
        check("gpu:a:2,gpu:b:1", "gpu:3", &["gpu:a:2,gpu:b:1"]);
        check("gpu:a:2,gpu:b:1", "gpu:4", &[]);
        check("gpu:a:2,gpu:b:1", "gpu:b:2", &[]);
        check("gpu:a:2,gpu:b:2", "gpu:1,gpu:a:2", &["gpu:a:2,gpu:b:1"]);
        check("gpu:a:1,gpu:b:1,gpu:c:1", "gpu:3", &["gpu:a:1,gpu:b:1,gpu:c:1"]);
        // If there are many ways, only the first ones are listed.
        let many: Devices = "gpu:a:60000,gpu:b:60000".parse().expect("devices");
        assert_eq!(many.choices(&"gpu:60001".parse().expect("devices")).count(), MAX_CHOICES);
    }

    #[test]
    fn a_type_that_was_not_asked_for_does_not_matter() {
        assert!(Devices::serves("gpu:a100", "gpu") && Devices::serves("gpu", "gpu"));
        assert!(!Devices::serves("gpu", "gpu:a100") && !Devices::serves("gpu:v100", "gpu:a100"));
        assert!(!Devices::serves("gpus:a100", "gpu"));
    }
}
