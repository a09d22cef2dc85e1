//! Labels of a job: stored from its submission to its history, and never used for decisions.
//!
//! A new label is a field here and a line in [`Labels::all`]; everything that describes a job then has it.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Labels {
    /// The name in `rms queue`; never empty in the system.
    #[serde(deserialize_with = "crate::checked::text")]
    pub name: String,
    /// A comment for people; only the owner and admins can read it.
    #[serde(deserialize_with = "crate::checked::text", skip_serializing_if = "String::is_empty")]
    pub comment: String,
    /// The account under which the job is counted.
    #[serde(deserialize_with = "crate::checked::text", skip_serializing_if = "String::is_empty")]
    pub account: String,
}

/// One of the labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label<'a> {
    /// The name in messages and outputs.
    pub key: &'static str,
    pub text: &'a str,
    pub max_bytes: usize,
    /// Whether all users may read it; otherwise only the owner and admins may.
    pub is_public: bool,
}

impl Labels {
    /// Returns the labels of a job that has only a name.
    pub fn named(name: impl Into<String>) -> Labels {
        Labels { name: name.into(), ..Labels::default() }
    }

    /// Returns the name of a job that is called like a file: without control characters, and not too long.
    pub fn name_of_file(file: &str) -> String {
        let mut name = file.replace(char::is_control, "_");
        name.truncate(name.floor_char_boundary(MAX_NAME_BYTES));
        name
    }

    pub fn all(&self) -> [Label<'_>; 3] {
        let Labels { name, comment, account } = self;
        [
            Label { key: "name", text: name, max_bytes: MAX_NAME_BYTES, is_public: true },
            Label { key: "comment", text: comment, max_bytes: 1024, is_public: false },
            Label { key: "account", text: account, max_bytes: 128, is_public: true },
        ]
    }

    /// Sets a label. Returns false if no label has this name.
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

    /// Lists the labels that all users may read, except the name.
    pub fn marks(&self) -> impl Iterator<Item = Label<'_>> {
        self.all().into_iter().filter(|label| label.is_public && label.key != "name")
    }

    /// Returns the labels that all users may read.
    #[must_use]
    pub fn public(&self) -> Labels {
        Labels { comment: String::new(), ..self.clone() }
    }
}

const MAX_NAME_BYTES: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_gives_a_name_that_a_job_may_have() {
        let name = |file: &str| Labels::name_of_file(file);
        assert_eq!(name("a\tb\n.sh"), "a_b_.sh");
        assert_eq!(name(&"p".repeat(300)).len(), MAX_NAME_BYTES);
        assert_eq!(name(&format!("p{}", "é".repeat(100))).len(), MAX_NAME_BYTES - 1, "no half letter");
    }
}
