//! Values of a setting for single clusters or users, which override the general one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Settings;
use super::values::Wrong;

/// The values of clusters or users with their own, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Own<T>(BTreeMap<String, T>);

/// The cluster or user of a setting with a name after an `@`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject<'a> {
    Cluster(&'a str),
    User(&'a str),
}

/// Whether clusters or users may have their own value of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    Cluster,
    User,
}

/// How the values of a setting for single clusters or users are accessed by name.
pub(super) struct OwnRow {
    pub(super) whose: Whose,
    pub(super) names: fn(&Settings) -> Vec<&str>,
    pub(super) get: fn(&Settings, &str) -> Option<String>,
    pub(super) set: fn(&mut Settings, &str, &str) -> Result<(), Wrong>,
    pub(super) forget: fn(&mut Settings, &str),
}

/// The value that restores the general setting for a cluster or user, and the built-in one for all.
pub const AS_OTHERS: &str = "default";

impl<T> Own<T> {
    /// Returns the value of this cluster or user, if it has its own.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.0.get(name)
    }

    /// Returns whether no cluster or user has its own value.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn insert(&mut self, name: &str, value: T) {
        self.0.insert(name.to_owned(), value);
    }

    pub(super) fn forget(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Lists the clusters or users with their own values.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl<T> Default for Own<T> {
    fn default() -> Own<T> {
        Own(BTreeMap::new())
    }
}
