//! The settings that an admin may change while the server runs; durable and audited.

mod depth;
mod own;
mod table;
mod values;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::allocation::Allocation;
use crate::devices::Devices;
use crate::policy::Policy;
use crate::resizing::{OfferRule, ShrinkRule};
use crate::resources::Mebibytes;
use crate::sharing::{MaxSlowdown, Ratio, SharingSettings};
use crate::time::{ParseSpanError, Span};
pub use depth::Depth;
pub use own::{AS_OTHERS, Own, Subject};
use own::{OwnRow, Whose};
pub use table::KEYS;
use table::{Row, TABLE};
use values::Wrong;

/// What happens to the jobs of a lost node, unless a job specifies it itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LostPolicy {
    /// The job ends as `node lost`.
    Fail,
    /// The job waits again, at its old place in the queue, under a new run number.
    Requeue,
}

/// What happens to processes started by a launcher when the launcher is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LauncherPolicy {
    /// They are ended (001, §5.3.1).
    End,
    /// They continue without it until their end or the end of their wall time.
    Run,
}

/// When a ghost keeps nodes that were given back for the fair-start delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GhostRule {
    /// Always (001, §5.3.1).
    Always,
    /// Only while an application with an external launcher waits that could use them: the delay benefits its launcher.
    IfWanted,
}

/// The settings; each is documented where `rms admin show` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// How long a ghost keeps freed nodes, so that slow launchers get their chance (001, §5.3.1).
    pub fair_start: Span,
    /// Values for single clusters, by name.
    pub fair_start_at: Own<Span>,
    /// Percent of a cluster's nodes that an application with an external launcher may choose from (001, §8).
    pub view_share: u32,
    /// Values for single clusters.
    pub view_share_at: Own<u32>,
    /// How long after a start launchers that wait before it in the queue are shown it at the latest; 0: with the next
    /// pass, whenever that is (001, Fig. 5).
    pub view_refresh: Span,
    /// The minimum time between two scheduling passes (001, §5.3.2). Promised starts do not wait for it.
    pub resched_timer: Span,
    /// The number of waiting applications that a pass considers, in order (001, §5.4).
    pub queue_depth: Depth,
    /// The longest time of a pass, if the server chooses the depth.
    pub pass_time: Span,
    /// How long an agent may be away before its node is lost.
    pub node_lost_after: Span,
    pub lost_policy: LostPolicy,
    /// The time between TERM and KILL.
    pub kill_grace: Span,
    /// The wall time of a job that specifies none.
    pub default_wall: Span,
    /// The longest wall time that is accepted.
    pub max_wall: Span,
    /// The most jobs in the system at once; further submits are refused. Limits memory and journal.
    pub max_jobs: u32,
    /// Which job may start before which. Absent in older journals.
    #[serde(default)]
    pub policy: Policy,
    /// How long an application may be subscribed without a request; 0 = without limit.
    pub request_timeout: Span,
    /// How long a launcher may take to launch or accept after the start of its application; 0 = as long as the wall
    /// time.
    pub start_timeout: Span,
    /// How long a launcher may be away before it is lost, and its application with it; 0 = not at all.
    pub launcher_grace: Span,
    pub launcher_policy: LauncherPolicy,
    /// How long an evolving application may take to name the nodes that it frees, once a smaller stage is due.
    #[serde(default)]
    pub release_grace: Span,
    /// How long processes on nodes that the application reports to have left may take to end before they get TERM.
    pub exit_grace: Span,
    /// Which running applications are offered nodes that no waiting job needs (002).
    pub offer_idle: OfferRule,
    /// For which jobs running applications are asked to give nodes back.
    pub shrink_for: ShrinkRule,
    /// For how long an offer is valid, and its nodes are held for it.
    pub offer_valid: Span,
    /// After an offer was declined, only larger ones are made for this long.
    pub offer_again: Span,
    /// The most by which all growth of running applications together may delay a waiting job.
    pub delay_tolerance: Span,
    /// The cost of a gained node for an hour, in thousandths; 0 = nothing.
    pub price: u64,
    /// Values for single clusters.
    pub price_at: Own<u64>,
    /// The lowest price that the server accepts in a negotiation, in percent of the price.
    pub price_floor: u32,
    /// What a user may spend on gained nodes in total, in thousandths; `None` = without limit.
    pub budget: Option<u64>,
    /// Values for single users.
    pub budget_of: Own<Option<u64>>,
    /// The number of nodes that all jobs of a user may have beyond their initial ones; `None` = without limit.
    pub growth_limit: Option<u32>,
    /// Values for single users.
    pub growth_limit_of: Own<Option<u32>>,
    /// The weight of a user when idle nodes are shared.
    pub share: u32,
    /// Values for single users.
    pub share_of: Own<u32>,
    /// How long jobs are planned on a node whose agent is away: it, or the server, may have been restarted.
    pub restart_grace: Span,
    /// For which waiting jobs unanswered offers are withdrawn before they expire.
    pub offer_recall: ShrinkRule,
    /// How long the history keeps a job that has ended; `None` = without limit.
    pub history_keep: Option<Span>,
    /// How many ended jobs the history keeps, newest first; `None` = all.
    pub history_most: Option<u64>,
    /// The most jobs of a user in the system at once; `None` = without limit.
    pub job_limit: Option<u32>,
    /// Values for single users.
    pub job_limit_of: Own<Option<u32>>,
    /// The MiB that scripts and environments of all jobs of a user in the system may take, counting equal environments
    /// once; `None` = without limit.
    pub script_limit: Option<u32>,
    /// Values for single users.
    pub script_limit_of: Own<Option<u32>>,
    /// The submits of a user per second, where each 4 KiB of script and environment count as one more; a minute's worth
    /// may come at once. `None` = without limit.
    pub submit_limit: Option<u32>,
    /// Values for single users.
    pub submit_limit_of: Own<Option<u32>>,
    pub ghosts: GhostRule,
    /// How the nodes of a cluster are allocated to jobs.
    pub allocation: Allocation,
    /// Values for single clusters, by name.
    pub allocation_at: Own<Allocation>,
    /// If jobs share nodes: the memory for each CPU of a job that requests none; 0 = none is counted.
    pub memory_per_cpu: Mebibytes,
    /// Values for single clusters.
    pub memory_per_cpu_at: Own<Mebibytes>,
    /// The most CPUs that a job may request over all its nodes of a cluster; `None` = without limit.
    pub max_cpus: Option<u32>,
    /// Values for single clusters.
    pub max_cpus_at: Own<Option<u32>>,
    /// Countable resources of a cluster that belong to no node.
    pub licences: Devices,
    /// Values for single clusters.
    pub licences_at: Own<Devices>,
    /// Settings of the policy `slowdown` (004).
    pub sharing: SharingSettings,
    /// The cut-offs of single clusters.
    pub max_slowdown_at: Own<MaxSlowdown>,
    /// The sharing factors of single clusters.
    pub sharing_factor_at: Own<Ratio>,
    /// Values for single clusters, as are the next five.
    #[serde(skip_serializing_if = "Own::is_empty")]
    pub max_mates_at: Own<u32>,
    #[serde(skip_serializing_if = "Own::is_empty")]
    pub max_sharers_at: Own<u32>,
    #[serde(skip_serializing_if = "Own::is_empty")]
    pub max_candidates_at: Own<Option<u32>>,
    #[serde(skip_serializing_if = "Own::is_empty")]
    pub mix_free_nodes_at: Own<bool>,
    #[serde(skip_serializing_if = "Own::is_empty")]
    pub weigh_nodes_at: Own<bool>,
    #[serde(skip_serializing_if = "Own::is_empty")]
    pub min_cpus_per_node_at: Own<u32>,
}

/// The highest price, in thousandths, that a negotiation can carry.
pub const MAX_PRICE: u64 = 1 << 40;
/// The largest budget, in thousandths.
pub const MAX_BUDGET: u64 = 1 << 60;
/// The largest share.
pub const MAX_SHARE: u32 = 1_000_000;

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            fair_start: Span::ZERO,
            fair_start_at: Own::default(),
            view_share: 100,
            view_share_at: Own::default(),
            view_refresh: Span::from_secs(1),
            resched_timer: Span::ZERO,
            queue_depth: Depth::First(1000),
            pass_time: Span::from_millis(100),
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
            exit_grace: Span::from_secs(2),
            offer_idle: OfferRule::EqualShare,
            shrink_for: ShrinkRule::Queue,
            offer_valid: Span::from_secs(30),
            offer_again: Span::from_secs(60),
            delay_tolerance: Span::ZERO,
            price: 0,
            price_at: Own::default(),
            price_floor: 100,
            budget: None,
            budget_of: Own::default(),
            growth_limit: None,
            growth_limit_of: Own::default(),
            share: 1,
            share_of: Own::default(),
            restart_grace: Span::from_secs(10),
            offer_recall: ShrinkRule::Priority,
            history_keep: None,
            history_most: None,
            job_limit: None,
            job_limit_of: Own::default(),
            script_limit: Some(256),
            script_limit_of: Own::default(),
            submit_limit: Some(1000),
            submit_limit_of: Own::default(),
            ghosts: GhostRule::Always,
            allocation: Allocation::Nodes,
            allocation_at: Own::default(),
            memory_per_cpu: Mebibytes(0),
            memory_per_cpu_at: Own::default(),
            max_cpus: None,
            max_cpus_at: Own::default(),
            licences: Devices::default(),
            licences_at: Own::default(),
            sharing: SharingSettings::default(),
            max_slowdown_at: Own::default(),
            sharing_factor_at: Own::default(),
            max_mates_at: Own::default(),
            max_sharers_at: Own::default(),
            max_candidates_at: Own::default(),
            mix_free_nodes_at: Own::default(),
            weigh_nodes_at: Own::default(),
            min_cpus_per_node_at: Own::default(),
        }
    }
}

/// The error for a setting that cannot be changed as requested.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SettingError {
    #[error("there is no setting '{0}'; the settings are {list}", list = KEYS.join(", "))]
    Unknown(String),
    #[error("{setting} has one value for all clusters and users: write it without '@{name}'")]
    NotOwn { setting: &'static str, name: String },
    #[error(transparent)]
    Span(#[from] ParseSpanError),
    #[error("'{value}' is not a value of {key}: {expected}")]
    Value { key: String, value: String, expected: &'static str },
    /// Each value is valid, but together they are inconsistent.
    #[error("{key} = {value} cannot hold together with {other} = {other_value}: {why}")]
    Contradiction { key: &'static str, value: String, other: &'static str, other_value: String, why: &'static str },
}

impl Settings {
    /// Returns the fair-start delay of a cluster.
    pub fn fair_start_of(&self, cluster: &str) -> Span {
        self.fair_start_at.get(cluster).copied().unwrap_or(self.fair_start)
    }

    /// Returns how many of `n_nodes` nodes of a cluster an application with an external launcher may choose from: at
    /// least one.
    pub fn choosable_in(&self, cluster: &str, n_nodes: u32) -> u32 {
        let percent = self.view_share_at.get(cluster).copied().unwrap_or(self.view_share);
        let share = (u64::from(n_nodes) * u64::from(percent)).div_ceil(100);
        u32::try_from(share).unwrap_or(n_nodes).min(n_nodes).max(n_nodes.min(1))
    }

    /// Returns how the nodes of a cluster are allocated to jobs.
    pub fn allocation_of(&self, cluster: &str) -> Allocation {
        self.allocation_at.get(cluster).copied().unwrap_or(self.allocation)
    }

    /// Returns the memory for each CPU of a job on this cluster that requests none; 0: none is counted.
    pub fn memory_per_cpu_of(&self, cluster: &str) -> Mebibytes {
        self.memory_per_cpu_at.get(cluster).copied().unwrap_or(self.memory_per_cpu)
    }

    /// Returns the most CPUs that a job may request on this cluster; `None`: without limit.
    pub fn max_cpus_of(&self, cluster: &str) -> Option<u32> {
        self.max_cpus_at.get(cluster).copied().unwrap_or(self.max_cpus)
    }

    /// Returns the licences of this cluster.
    pub fn licences_of(&self, cluster: &str) -> &Devices {
        self.licences_at.get(cluster).unwrap_or(&self.licences)
    }

    /// Returns the slowdown up to which jobs of a cluster lend their CPUs.
    pub fn max_slowdown_of(&self, cluster: &str) -> MaxSlowdown {
        self.max_slowdown_at.get(cluster).copied().unwrap_or(self.sharing.max_slowdown)
    }

    /// Returns the part of its cores on a node of a cluster that a job may lend.
    pub fn sharing_factor_of(&self, cluster: &str) -> Ratio {
        self.sharing_factor_at.get(cluster).copied().unwrap_or(self.sharing.sharing_factor)
    }

    /// Returns the settings of node sharing that hold on a cluster.
    pub fn sharing_of(&self, cluster: &str) -> SharingSettings {
        let all = &self.sharing;
        SharingSettings {
            max_slowdown: self.max_slowdown_of(cluster),
            sharing_factor: self.sharing_factor_of(cluster),
            max_mates: self.max_mates_at.get(cluster).copied().unwrap_or(all.max_mates),
            max_sharers: self.max_sharers_at.get(cluster).copied().unwrap_or(all.max_sharers),
            max_candidates: self.max_candidates_at.get(cluster).copied().unwrap_or(all.max_candidates),
            runtime_model: all.runtime_model,
            mix_free_nodes: self.mix_free_nodes_at.get(cluster).copied().unwrap_or(all.mix_free_nodes),
            weigh_nodes: self.weigh_nodes_at.get(cluster).copied().unwrap_or(all.weigh_nodes),
            min_cpus_per_node: self.min_cpus_per_node_at.get(cluster).copied().unwrap_or(all.min_cpus_per_node),
        }
    }

    /// Returns whether any cluster has licences.
    pub fn have_licences(&self) -> bool {
        !self.licences.is_empty() || !self.licences_at.is_empty()
    }

    /// Returns the cost of a gained node of a cluster for an hour, in thousandths.
    pub fn price_in(&self, cluster: &str) -> u64 {
        self.price_at.get(cluster).copied().unwrap_or(self.price)
    }

    /// Returns what a user may spend in total, in thousandths; `None`: without limit.
    pub fn budget_of(&self, user: &str) -> Option<u64> {
        self.budget_of.get(user).copied().unwrap_or(self.budget)
    }

    /// Returns the number of nodes that all jobs of a user may have beyond their initial ones; `None`: without limit.
    pub fn growth_limit_of(&self, user: &str) -> Option<u32> {
        self.growth_limit_of.get(user).copied().unwrap_or(self.growth_limit)
    }

    /// Returns the most jobs of a user in the system at once; `None`: without limit.
    pub fn job_limit_of(&self, user: &str) -> Option<u32> {
        self.job_limit_of.get(user).copied().unwrap_or(self.job_limit)
    }

    /// Returns the MiB that scripts and environments of a user's jobs may take; `None`: without limit.
    pub fn script_limit_of(&self, user: &str) -> Option<u32> {
        self.script_limit_of.get(user).copied().unwrap_or(self.script_limit)
    }

    /// Returns the submits of a user per second; `None`: without limit.
    pub fn submit_limit_of(&self, user: &str) -> Option<u32> {
        self.submit_limit_of.get(user).copied().unwrap_or(self.submit_limit)
    }

    /// Returns the weight of a user when idle nodes are shared.
    pub fn share_of(&self, user: &str) -> u32 {
        self.share_of.get(user).copied().unwrap_or(self.share)
    }

    /// Returns the names of all settings that have a value: [`KEYS`], then those of single clusters and users.
    pub fn keys(&self) -> impl Iterator<Item = String> + '_ {
        let own = TABLE.iter().filter_map(|row| Some((row.key, row.own.as_ref()?)));
        let with_names = own.flat_map(|(key, own)| {
            let names = (own.names)(self);
            names.into_iter().map(move |name| format!("{key}@{name}"))
        });
        KEYS.iter().map(|key| (*key).to_owned()).chain(with_names)
    }

    /// Returns the cluster or user to which a setting is restricted, if any.
    pub fn subject_of(key: &str) -> Option<Subject<'_>> {
        let (own, name) = own_row(key)?;
        Some(match own.whose {
            Whose::Cluster => Subject::Cluster(name),
            Whose::User => Subject::User(name),
        })
    }

    /// Returns the value of one setting, in the form that [`Settings::set`] accepts.
    ///
    /// # Errors
    /// An unknown key.
    pub fn get(&self, key: &str) -> Result<String, SettingError> {
        match own_row(key) {
            Some((own, name)) => Ok((own.get)(self, name).unwrap_or_else(|| AS_OTHERS.to_owned())),
            None => Ok((row(key)?.get)(self)),
        }
    }

    /// Checks that all settings are consistent.
    ///
    /// # Errors
    /// The first two settings that contradict each other.
    pub fn check(&self) -> Result<(), SettingError> {
        if self.default_wall > self.max_wall {
            return Err(SettingError::Contradiction {
                key: "default_wall",
                value: self.default_wall.to_string(),
                other: "max_wall",
                other_value: self.max_wall.to_string(),
                why: "every job that names no wall time would be refused",
            });
        }
        Ok(())
    }

    /// Removes the values of this cluster.
    pub fn forget_cluster(&mut self, name: &str) {
        let of_clusters = TABLE.iter().filter_map(|row| row.own.as_ref()).filter(|own| own.whose == Whose::Cluster);
        of_clusters.for_each(|own| (own.forget)(self, name));
    }

    /// Removes all values of this setting for single clusters or users, so that the general one applies to all.
    pub fn forget_own(&mut self, key: &str) {
        let Some(own) = TABLE.iter().find(|row| row.key == key).and_then(|row| row.own.as_ref()) else { return };
        let names: Vec<String> = (own.names)(self).into_iter().map(str::to_owned).collect();
        names.iter().for_each(|name| (own.forget)(self, name));
    }

    /// # Errors
    /// An unknown key or an invalid value; nothing is changed then.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SettingError> {
        let set = match own_row(key) {
            Some((own, name)) if value == AS_OTHERS => {
                (own.forget)(self, name);
                Ok(())
            }
            Some((own, name)) => (own.set)(self, name, value),
            None if value == AS_OTHERS => (row(key)?.set)(self, &Settings::default().get(key)?),
            None => (row(key)?.set)(self, value),
        };
        set.map_err(|wrong| match wrong {
            Wrong::Span(error) => error.into(),
            Wrong::Expected(expected) => SettingError::Value { key: key.to_owned(), value: value.to_owned(), expected },
        })
    }
}

fn row(key: &str) -> Result<&'static Row, SettingError> {
    let (setting, name) = key.split_once('@').map_or((key, None), |(setting, name)| (setting, Some(name)));
    match (TABLE.iter().find(|row| row.key == setting), name) {
        (Some(row), None) => Ok(row),
        (Some(row), Some(name)) => Err(SettingError::NotOwn { setting: row.key, name: name.to_owned() }),
        (None, _) => Err(SettingError::Unknown(key.to_owned())),
    }
}

/// Returns the setting and the name in `setting@name`.
fn own_row(key: &str) -> Option<(&'static OwnRow, &str)> {
    let (setting, name) = key.split_once('@')?;
    let row = TABLE.iter().find(|row| row.key == setting)?;
    Some((row.own.as_ref()?, name))
}

#[cfg(test)]
mod tests;
