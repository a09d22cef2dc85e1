//! What an admin may tune while the server runs; durable and audited.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::policy::Policy;
use crate::time::{ParseSpanError, Span};

/// What becomes of the jobs of a node that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LostPolicy {
    /// The job ends as `node lost`.
    Fail,
    /// The job waits again, in its old place, under a new run number, if it allows that.
    Requeue,
}

/// What becomes of processes that a launcher had started, when the launcher is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LauncherPolicy {
    /// They are ended with it (001, §5.3.1).
    End,
    /// They run to their end, or to that of their wall time, without it.
    Run,
}

/// The tunable values, one by one documented where `rms admin show` prints them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// How long a ghost keeps freed hosts, so that slow launchers get their chance (001, §5.3.1).
    pub fair_start: Span,
    /// The same for clusters, by name, that have their own.
    pub fair_start_at: BTreeMap<String, Span>,
    /// The least time between two scheduling passes (001, §5.3.2).
    pub resched_timer: Span,
    /// How many waiting applications a pass considers, in order; 0 = all (001, §5.4).
    pub queue_depth: u32,
    /// How long an agent may be away before its node is lost.
    pub node_lost_after: Span,
    pub lost_policy: LostPolicy,
    /// Between TERM and KILL.
    pub kill_grace: Span,
    /// The wall time of a job that names none.
    pub default_wall: Span,
    /// The longest wall time that is accepted.
    pub max_wall: Span,
    /// The most jobs in the system at once; a submit beyond it is refused. It bounds memory and journal.
    pub max_jobs: u32,
    /// Who may start before whom. Absent in journals that are older than the choice.
    #[serde(default)]
    pub policy: Policy,
    /// How long an application may be subscribed without a request; 0 = for ever.
    pub request_timeout: Span,
    /// How long a launcher may take to launch or accept once its application was started; 0 = as long as the wall time.
    pub start_timeout: Span,
    /// How long a launcher may be away before it is lost, and its application with it; 0 = not at all.
    pub launcher_grace: Span,
    pub launcher_policy: LauncherPolicy,
    /// How long an evolving application may take, once a smaller stage is due, to name the nodes that it frees.
    #[serde(default)]
    pub release_grace: Span,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            fair_start: Span::ZERO,
            fair_start_at: BTreeMap::new(),
            resched_timer: Span::ZERO,
            queue_depth: 1000,
            node_lost_after: Span::from_secs(60),
            lost_policy: LostPolicy::Fail,
            kill_grace: Span::from_secs(10),
            default_wall: Span::from_hours(1),
            max_wall: Span::from_hours(24 * 365),
            max_jobs: 1_000_000,
            policy: Policy::Views,
            request_timeout: Span::from_hours(1),
            start_timeout: Span::from_secs(60),
            launcher_grace: Span::from_secs(60),
            launcher_policy: LauncherPolicy::End,
            release_grace: Span::ZERO,
        }
    }
}

/// Why a setting cannot be changed so.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SettingError {
    #[error("there is no setting '{0}'; the settings are {list}", list = KEYS.join(", "))]
    Unknown(String),
    #[error(transparent)]
    Span(#[from] ParseSpanError),
    #[error("'{value}' is not a value of {key}: {expected}")]
    Value { key: String, value: String, expected: &'static str },
}

/// The names of the settings, in the order they are shown.
pub const KEYS: [&str; 15] = [
    "fair_start",
    "resched_timer",
    "queue_depth",
    "node_lost_after",
    "lost_policy",
    "kill_grace",
    "default_wall",
    "max_wall",
    "max_jobs",
    "policy",
    "request_timeout",
    "start_timeout",
    "launcher_grace",
    "launcher_policy",
    "release_grace",
];

/// What a setting of one cluster is set to so that the one for all clusters counts again.
pub const AS_OTHERS: &str = "default";

/// Begins the name of a cluster's own fair-start delay.
const FAIR_START_AT: &str = "fair_start@";

impl Settings {
    /// The fair-start delay of a cluster.
    pub fn fair_start_of(&self, cluster: &str) -> Span {
        self.fair_start_at.get(cluster).copied().unwrap_or(self.fair_start)
    }

    /// The names of all settings that have a value: [`KEYS`], then those of single clusters.
    pub fn keys(&self) -> impl Iterator<Item = String> + '_ {
        let of_clusters = self.fair_start_at.keys().map(|cluster| format!("{FAIR_START_AT}{cluster}"));
        KEYS.iter().map(|key| (*key).to_owned()).chain(of_clusters)
    }

    /// The cluster that a setting is about, if it is not about all.
    pub fn cluster_of(key: &str) -> Option<&str> {
        key.strip_prefix(FAIR_START_AT)
    }

    /// The value of one setting, in the form [`Settings::set`] takes.
    ///
    /// # Errors
    /// An unknown key.
    pub fn get(&self, key: &str) -> Result<String, SettingError> {
        if let Some(cluster) = Settings::cluster_of(key) {
            let own = self.fair_start_at.get(cluster);
            return Ok(own.map_or_else(|| AS_OTHERS.to_owned(), Span::to_string));
        }
        Ok(match key {
            "fair_start" => self.fair_start.to_string(),
            "resched_timer" => self.resched_timer.to_string(),
            "queue_depth" => self.queue_depth.to_string(),
            "node_lost_after" => self.node_lost_after.to_string(),
            "lost_policy" => match self.lost_policy {
                LostPolicy::Fail => "fail".to_owned(),
                LostPolicy::Requeue => "requeue".to_owned(),
            },
            "kill_grace" => self.kill_grace.to_string(),
            "default_wall" => self.default_wall.to_string(),
            "max_wall" => self.max_wall.to_string(),
            "max_jobs" => self.max_jobs.to_string(),
            "policy" => self.policy.to_string(),
            "request_timeout" => self.request_timeout.to_string(),
            "start_timeout" => self.start_timeout.to_string(),
            "launcher_grace" => self.launcher_grace.to_string(),
            "launcher_policy" => match self.launcher_policy {
                LauncherPolicy::End => "end".to_owned(),
                LauncherPolicy::Run => "run".to_owned(),
            },
            "release_grace" => self.release_grace.to_string(),
            _ => return Err(SettingError::Unknown(key.to_owned())),
        })
    }

    /// # Errors
    /// An unknown key, or a value that the key does not take; nothing is changed then.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SettingError> {
        let span = || value.parse::<Span>();
        let wall = || match value.parse::<Span>() {
            Ok(Span::ZERO) => Err(bad(key, value, "a duration longer than zero")),
            Ok(span) if span > Span::MAX_WALL => Err(bad(key, value, "a duration of at most 100 years")),
            Ok(span) => Ok(span),
            Err(error) => Err(error.into()),
        };
        let count = || value.parse::<u32>().map_err(|_| bad(key, value, "a whole number from 0 to 4294967295"));
        if let Some(cluster) = Settings::cluster_of(key) {
            if value == AS_OTHERS {
                self.fair_start_at.remove(cluster);
            } else {
                self.fair_start_at.insert(cluster.to_owned(), span()?);
            }
            return Ok(());
        }
        match key {
            "fair_start" => self.fair_start = span()?,
            "resched_timer" => self.resched_timer = span()?,
            "queue_depth" => self.queue_depth = count()?,
            "node_lost_after" => self.node_lost_after = wall()?,
            "lost_policy" => {
                self.lost_policy = match value {
                    "fail" => LostPolicy::Fail,
                    "requeue" => LostPolicy::Requeue,
                    _ => return Err(bad(key, value, "fail or requeue")),
                }
            }
            "kill_grace" => self.kill_grace = span()?,
            "release_grace" => self.release_grace = span()?,
            "default_wall" => self.default_wall = wall()?,
            "max_wall" => self.max_wall = wall()?,
            "max_jobs" => {
                self.max_jobs = match count()? {
                    0 => return Err(bad(key, value, "a whole number of at least 1")),
                    n_jobs => n_jobs,
                }
            }
            "policy" => {
                self.policy = value.parse().map_err(|_| bad(key, value, "views, fcfs, easy or conservative"))?;
            }
            "request_timeout" => self.request_timeout = span()?,
            "start_timeout" => self.start_timeout = span()?,
            "launcher_grace" => self.launcher_grace = span()?,
            "launcher_policy" => {
                self.launcher_policy = match value {
                    "end" => LauncherPolicy::End,
                    "run" => LauncherPolicy::Run,
                    _ => return Err(bad(key, value, "end or run")),
                }
            }
            _ => return Err(SettingError::Unknown(key.to_owned())),
        }
        Ok(())
    }
}

fn bad(key: &str, value: &str, expected: &'static str) -> SettingError {
    SettingError::Value { key: key.to_owned(), value: value.to_owned(), expected }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_reads_back_what_it_prints() {
        for key in KEYS {
            let mut settings = Settings::default();
            let value = settings.get(key).expect(key);
            settings.set(key, &value).expect(key);
            assert_eq!(settings, Settings::default(), "{key}");
        }
    }

    #[test]
    fn a_cluster_may_have_its_own_fair_start_delay_until_it_is_taken_back() {
        let mut settings = Settings::default();
        settings.set("fair_start", "2s").expect("for all");
        settings.set("fair_start@fast", "0s").expect("for one");
        assert_eq!((settings.fair_start_of("fast"), settings.fair_start_of("b")), (Span::ZERO, Span::from_secs(2)));
        assert_eq!(settings.get("fair_start@fast").as_deref(), Ok("0s"));
        assert_eq!(settings.get("fair_start@b").as_deref(), Ok(AS_OTHERS));
        assert_eq!(settings.keys().last().as_deref(), Some("fair_start@fast"));
        settings.set("fair_start@fast", AS_OTHERS).expect("taken back");
        assert_eq!(settings.fair_start_of("fast"), Span::from_secs(2));
        assert!(settings.fair_start_at.is_empty());
    }

    #[test]
    fn a_bad_value_changes_nothing_and_says_what_is_expected() {
        let mut settings = Settings::default();
        let error = settings.set("lost_policy", "shrug").unwrap_err();
        assert_eq!(error.to_string(), "'shrug' is not a value of lost_policy: fail or requeue");
        assert!(settings.set("fair_strat", "1s").unwrap_err().to_string().contains("fair_start"));
        assert!(settings.set("max_wall", "0s").is_err());
        assert_eq!(settings, Settings::default());
    }
}
