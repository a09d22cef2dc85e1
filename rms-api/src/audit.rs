//! The audit: which administrator or user changed what, and when.

use rms_model::Time;
use serde::{Deserialize, Serialize};

/// One action: the old and the new value of a setting, or the given details of any other action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    pub at: Time,
    pub by: String,
    /// The setting, nodes, token, certificate or jobs.
    #[serde(rename = "key")]
    pub subject: String,
    pub old: String,
    pub new: String,
    /// [`AuditEntry::SET`] for settings, and in journals older than the other actions.
    #[serde(default = "set", skip_serializing_if = "is_set")]
    pub action: String,
}

impl AuditEntry {
    /// The action of changing a setting.
    pub const SET: &'static str = "set";

    pub fn of_setting(at: Time, by: &str, key: &str, old: &str, new: &str) -> AuditEntry {
        let (by, subject, old, new) = (by.to_owned(), key.to_owned(), old.to_owned(), new.to_owned());
        AuditEntry { at, by, subject, old, new, action: set() }
    }

    /// Returns whether it changed a setting.
    pub fn is_setting(&self) -> bool {
        is_set(&self.action)
    }
}

fn set() -> String {
    AuditEntry::SET.to_owned()
}

fn is_set(action: &str) -> bool {
    action == AuditEntry::SET
}
