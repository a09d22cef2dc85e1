//! Values of a setting for single clusters or users, beside the one for all others.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Settings;
use super::values::Wrong;

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

/// Who may have a value of a setting for himself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    Cluster,
    User,
}

/// How the values of a setting that somebody has for himself are reached, by his name.
pub(super) struct OwnRow {
    pub(super) whose: Whose,
    pub(super) names: fn(&Settings) -> Vec<&str>,
    pub(super) get: fn(&Settings, &str) -> Option<String>,
    pub(super) set: fn(&mut Settings, &str, &str) -> Result<(), Wrong>,
    pub(super) forget: fn(&mut Settings, &str),
}

/// What a setting of one cluster or user is set to so that the one for all counts again.
pub const AS_OTHERS: &str = "default";

impl<T> Own<T> {
    /// The value of this one, if it has its own.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.0.get(name)
    }

    /// Whether nobody has its own.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn insert(&mut self, name: &str, value: T) {
        self.0.insert(name.to_owned(), value);
    }

    pub(super) fn forget(&mut self, name: &str) {
        self.0.remove(name);
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
