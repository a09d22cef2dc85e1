//! All settings: a row for each, with its name, the format of its values, and whether clusters or users may have their
//! own.

use super::Settings;
use super::own::{OwnRow, Whose};
use super::values::{
    ALLOCATION, BUDGET, CANDIDATES, COUNT, DEPTH, FACTOR, GHOSTS, JOBS, KEEP, LAUNCHER_POLICY, LICENCES, LIMIT,
    LOST_POLICY, MATES, MAX_SLOWDOWN, MEMORY, MOST, OFFER_RULE, PERCENT, POLICY, PRICE, RUNTIME_MODEL, SHARE, SHARERS,
    SHRINK_RULE, SPAN, VALID, VIEW_SHARE, WALL, Wrong, YES_OR_NO,
};

/// How the value of one setting is accessed.
pub(super) struct Row {
    pub(super) key: &'static str,
    pub(super) get: fn(&Settings) -> String,
    pub(super) set: fn(&mut Settings, &str) -> Result<(), Wrong>,
    /// Present if clusters or users may have their own values.
    pub(super) own: Option<OwnRow>,
}

macro_rules! setting {
    ($key:ident $(in $group:ident)?, $form:ident $(, $whose:ident $own:ident)?) => {
        Row {
            key: stringify!($key),
            get: |settings| ($form.print)(&settings.$($group.)?$key),
            set: |settings, value| {
                settings.$($group.)?$key = ($form.read)(value)?;
                Ok(())
            },
            own: own!($form $(, $whose $own)?),
        }
    };
}

macro_rules! own {
    ($form:ident) => {
        None
    };
    ($form:ident, $whose:ident $own:ident) => {
        Some(OwnRow {
            whose: Whose::$whose,
            names: |settings| settings.$own.names().collect(),
            get: |settings, name| settings.$own.get(name).map($form.print),
            set: |settings, name, value| {
                settings.$own.insert(name, ($form.read)(value)?);
                Ok(())
            },
            forget: |settings, name| settings.$own.forget(name),
        })
    };
}

/// The rows in the order of display.
pub(super) const TABLE: &[Row] = &[
    setting!(fair_start, SPAN, Cluster fair_start_at),
    setting!(resched_timer, SPAN),
    setting!(queue_depth, DEPTH),
    setting!(pass_time, WALL),
    setting!(node_lost_after, WALL),
    setting!(lost_policy, LOST_POLICY),
    setting!(kill_grace, SPAN),
    setting!(default_wall, WALL),
    setting!(max_wall, WALL),
    setting!(max_jobs, JOBS),
    setting!(policy, POLICY),
    setting!(request_timeout, SPAN),
    setting!(start_timeout, SPAN),
    setting!(launcher_grace, SPAN),
    setting!(launcher_policy, LAUNCHER_POLICY),
    setting!(release_grace, SPAN),
    setting!(exit_grace, SPAN),
    setting!(offer_idle, OFFER_RULE),
    setting!(shrink_for, SHRINK_RULE),
    setting!(offer_valid, VALID),
    setting!(offer_again, SPAN),
    setting!(delay_tolerance, SPAN),
    setting!(price, PRICE, Cluster price_at),
    setting!(price_floor, PERCENT),
    setting!(budget, BUDGET, User budget_of),
    setting!(growth_limit, LIMIT, User growth_limit_of),
    setting!(share, SHARE, User share_of),
    setting!(restart_grace, SPAN),
    setting!(offer_recall, SHRINK_RULE),
    setting!(history_keep, KEEP),
    setting!(history_most, MOST),
    setting!(job_limit, LIMIT, User job_limit_of),
    setting!(script_limit, LIMIT, User script_limit_of),
    setting!(submit_limit, LIMIT, User submit_limit_of),
    setting!(ghosts, GHOSTS),
    setting!(allocation, ALLOCATION, Cluster allocation_at),
    setting!(memory_per_cpu, MEMORY, Cluster memory_per_cpu_at),
    setting!(max_cpus, LIMIT, Cluster max_cpus_at),
    setting!(licences, LICENCES, Cluster licences_at),
    setting!(view_share, VIEW_SHARE, Cluster view_share_at),
    setting!(view_refresh, SPAN),
    setting!(max_slowdown in sharing, MAX_SLOWDOWN, Cluster max_slowdown_at),
    setting!(sharing_factor in sharing, FACTOR, Cluster sharing_factor_at),
    setting!(max_mates in sharing, MATES, Cluster max_mates_at),
    setting!(max_sharers in sharing, SHARERS, Cluster max_sharers_at),
    setting!(max_candidates in sharing, CANDIDATES, Cluster max_candidates_at),
    setting!(runtime_model in sharing, RUNTIME_MODEL),
    setting!(mix_free_nodes in sharing, YES_OR_NO, Cluster mix_free_nodes_at),
    setting!(weigh_nodes in sharing, YES_OR_NO, Cluster weigh_nodes_at),
    setting!(min_cpus_per_node in sharing, COUNT, Cluster min_cpus_per_node_at),
];

/// The names of the settings in the order of display.
pub const KEYS: [&str; TABLE.len()] = {
    let mut keys = [""; TABLE.len()];
    let mut idx = 0;
    while idx < keys.len() {
        keys[idx] = TABLE[idx].key;
        idx += 1;
    }
    keys
};
