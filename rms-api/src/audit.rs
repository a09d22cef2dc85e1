//! Who did what, when: the record of what administrators and users have changed.

use rms_model::Time;
use serde::{Deserialize, Serialize};

/// Who did what, when: of a setting from what to what, of anything else what was said with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    pub at: Time,
    pub by: String,
    /// The setting, the nodes, the token, the certificate, the jobs.
    #[serde(rename = "key")]
    pub subject: String,
    pub old: String,
    pub new: String,
    /// [`AuditEntry::SET`] for settings, as in journals that are older than the other actions.
    #[serde(default = "set", skip_serializing_if = "is_set")]
    pub action: String,
}

impl AuditEntry {
    /// The action of a setting that was changed.
    pub const SET: &'static str = "set";

    pub fn of_setting(at: Time, by: &str, key: &str, old: &str, new: &str) -> AuditEntry {
        let (by, subject, old, new) = (by.to_owned(), key.to_owned(), old.to_owned(), new.to_owned());
        AuditEntry { at, by, subject, old, new, action: set() }
    }

    /// Whether it is about a setting.
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
