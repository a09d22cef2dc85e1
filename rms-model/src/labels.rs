//! What a job is called and marked with: carried from its submission to its history, and no reason for any decision.
//!
//! One more is a field here and a line in [`Labels::all`]; everything that describes a job has all of them.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Labels {
    /// What `rms queue` shows; never empty in the system.
    #[serde(deserialize_with = "crate::checked::text")]
    pub name: String,
    /// For people; only the owner and admins read it.
    #[serde(deserialize_with = "crate::checked::text", skip_serializing_if = "String::is_empty")]
    pub comment: String,
    /// Under which it is to be counted.
    #[serde(deserialize_with = "crate::checked::text", skip_serializing_if = "String::is_empty")]
    pub account: String,
}

/// One of the labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label<'a> {
    /// As messages and outputs call it.
    pub key: &'static str,
    pub text: &'a str,
    pub max_bytes: usize,
    /// May everybody read it? Otherwise it is for the owner and admins.
    pub is_public: bool,
}

impl Labels {
    /// A job of this name, and nothing else said of it.
    pub fn named(name: impl Into<String>) -> Labels {
        Labels { name: name.into(), ..Labels::default() }
    }

    pub fn all(&self) -> [Label<'_>; 3] {
        let Labels { name, comment, account } = self;
        [
            Label { key: "name", text: name, max_bytes: 128, is_public: true },
            Label { key: "comment", text: comment, max_bytes: 1024, is_public: false },
            Label { key: "account", text: account, max_bytes: 128, is_public: true },
        ]
    }

    /// False if there is none of this name.
    pub fn set(&mut self, key: &str, text: String) -> bool {
        let Labels { name, comment, account } = self;
        let label = match key {
            "name" => name,
            "comment" => comment,
            "account" => account,
            _ => return false,
        };
        *label = text;
        true
    }

    /// Those that everybody may read, but for the name.
    pub fn marks(&self) -> impl Iterator<Item = Label<'_>> {
        self.all().into_iter().filter(|label| label.is_public && label.key != "name")
    }

    /// What everybody may read.
    #[must_use]
    pub fn public(&self) -> Labels {
        Labels { comment: String::new(), ..self.clone() }
    }
}
