//! Values of a setting for single clusters or users, beside the one for all others.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The values of those who have their own, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Own<T>(BTreeMap<String, T>);

/// Whom a setting with a name behind an `@` is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject<'a> {
    Cluster(&'a str),
    User(&'a str),
}

/// The settings that may have such values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keyed {
    FairStart,
    ViewShare,
    Allocation,
    MemoryPerCpu,
    MaxCpus,
    Licences,
    MaxSlowdown,
    SharingFactor,
    Price,
    Budget,
    GrowthLimit,
    Share,
    JobLimit,
    ScriptLimit,
    SubmitLimit,
}

/// What a setting of one cluster or user is set to so that the one for all counts again.
pub const AS_OTHERS: &str = "default";

impl Keyed {
    /// In the order they are shown.
    pub(super) const ALL: [Keyed; 15] = [
        Keyed::FairStart,
        Keyed::ViewShare,
        Keyed::Allocation,
        Keyed::MemoryPerCpu,
        Keyed::MaxCpus,
        Keyed::Licences,
        Keyed::MaxSlowdown,
        Keyed::SharingFactor,
        Keyed::Price,
        Keyed::Budget,
        Keyed::GrowthLimit,
        Keyed::Share,
        Keyed::JobLimit,
        Keyed::ScriptLimit,
        Keyed::SubmitLimit,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Keyed::FairStart => "fair_start",
            Keyed::ViewShare => "view_share",
            Keyed::Allocation => "allocation",
            Keyed::MemoryPerCpu => "memory_per_cpu",
            Keyed::MaxCpus => "max_cpus",
            Keyed::Licences => "licences",
            Keyed::MaxSlowdown => "max_slowdown",
            Keyed::SharingFactor => "sharing_factor",
            Keyed::Price => "price",
            Keyed::Budget => "budget",
            Keyed::GrowthLimit => "growth_limit",
            Keyed::Share => "share",
            Keyed::JobLimit => "job_limit",
            Keyed::ScriptLimit => "script_limit",
            Keyed::SubmitLimit => "submit_limit",
        }
    }

    /// The setting and the name in `setting@name`.
    pub(super) fn parse(key: &str) -> Option<(Keyed, &str)> {
        let (setting, name) = key.split_once('@')?;
        let keyed = Keyed::ALL.into_iter().find(|keyed| keyed.name() == setting)?;
        Some((keyed, name))
    }

    pub(super) fn subject(self, name: &str) -> Subject<'_> {
        match self {
            Keyed::FairStart
            | Keyed::ViewShare
            | Keyed::Allocation
            | Keyed::MemoryPerCpu
            | Keyed::MaxCpus
            | Keyed::Licences
            | Keyed::MaxSlowdown
            | Keyed::SharingFactor
            | Keyed::Price => Subject::Cluster(name),
            Keyed::Budget
            | Keyed::GrowthLimit
            | Keyed::Share
            | Keyed::JobLimit
            | Keyed::ScriptLimit
            | Keyed::SubmitLimit => Subject::User(name),
        }
    }
}

impl<T> Own<T> {
    /// The value of this one, if it has its own.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.0.get(name)
    }

    /// Whether nobody has its own.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets the value of this one to what is `parsed` from a text, or takes it back.
    pub(super) fn set<E>(
        &mut self,
        name: &str,
        value: &str,
        parsed: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<(), E> {
        if value == AS_OTHERS {
            self.0.remove(name);
        } else {
            self.0.insert(name.to_owned(), parsed(value)?);
        }
        Ok(())
    }

    pub(super) fn forget(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// The value of this one as a text.
    pub(super) fn print(&self, name: &str, print: impl FnOnce(&T) -> String) -> String {
        self.0.get(name).map_or_else(|| AS_OTHERS.to_owned(), print)
    }

    /// Those who have their own.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl<T> Default for Own<T> {
    fn default() -> Own<T> {
        Own(BTreeMap::new())
    }
}
