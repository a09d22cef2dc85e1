//! Which jobs, nodes and records a list shows, their order and their number.
//!
//! The server filters, sorts and limits, so that only requested entries are sent. Absent or empty fields do not
//! restrict.

use rms_model::{JobId, Time, checked};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::answer::{JobState, NodeState};

/// The jobs of the system to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFilter {
    #[serde(default, deserialize_with = "checked::ids")]
    pub jobs: Vec<JobId>,
    /// Owners of the jobs.
    #[serde(default)]
    pub users: Vec<String>,
    #[serde(default)]
    pub states: Vec<JobState>,
    /// Names of the jobs.
    #[serde(default)]
    pub names: Vec<String>,
    /// Jobs that have or may get nodes of these clusters, by name.
    #[serde(default)]
    pub clusters: Vec<String>,
    /// Jobs submitted at or after this time.
    #[serde(default)]
    pub since: Option<Time>,
    /// Replaces the default order (running jobs first, then the queue), which still breaks ties.
    #[serde(default)]
    pub sort: Vec<(JobColumn, Way)>,
    /// The most jobs to list; 0 for all.
    #[serde(default)]
    pub limit: u32,
    /// The number of jobs to skip.
    #[serde(default)]
    pub offset: u64,
    /// Accounts of the jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accounts: Vec<String>,
}

/// The nodes to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFilter {
    /// Nodes by name; refused if one does not exist.
    #[serde(default)]
    pub names: Vec<String>,
    /// Nodes that jobs of these users have.
    #[serde(default)]
    pub users: Vec<String>,
    #[serde(default)]
    pub states: Vec<NodeState>,
    #[serde(default)]
    pub clusters: Vec<String>,
    /// Replaces the default order, in which they joined.
    #[serde(default)]
    pub sort: Vec<(NodeColumn, Way)>,
    /// The most nodes to list; 0 for all.
    #[serde(default)]
    pub limit: u32,
    /// The number of nodes to skip.
    #[serde(default)]
    pub offset: u64,
    /// Nodes that connected, or were drained, set down or lost, at this time or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

/// The columns by which jobs of the system can be sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobColumn {
    Job,
    User,
    Name,
    State,
    Priority,
    Nodes,
    Tasks,
    Wall,
    Submitted,
    /// The start time, actual or planned; jobs with an unknown start come last.
    Start,
    /// The time by which it must end; jobs that have not started come last.
    End,
}

/// The columns by which nodes can be sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeColumn {
    Node,
    Cluster,
    State,
    Cpus,
    Memory,
    Speed,
    /// The number of jobs on the node.
    Jobs,
    Since,
}

/// The columns by which records of the history can be sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecordColumn {
    Job,
    User,
    Name,
    State,
    Submitted,
    /// Jobs that never started come before all others.
    Started,
    Ended,
    /// The time from its start to its end.
    Ran,
    Cpu,
    Memory,
}

/// Ascending, or descending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    Up,
    Down,
}

/// A column to sort by, with its word.
pub trait Column: Copy + 'static {
    const WORDS: &'static [(&'static str, Self)];
}

impl Column for JobColumn {
    const WORDS: &'static [(&'static str, JobColumn)] = &[
        ("job", JobColumn::Job),
        ("user", JobColumn::User),
        ("name", JobColumn::Name),
        ("state", JobColumn::State),
        ("priority", JobColumn::Priority),
        ("nodes", JobColumn::Nodes),
        ("tasks", JobColumn::Tasks),
        ("wall", JobColumn::Wall),
        ("submitted", JobColumn::Submitted),
        ("start", JobColumn::Start),
        ("end", JobColumn::End),
    ];
}

impl Column for NodeColumn {
    const WORDS: &'static [(&'static str, NodeColumn)] = &[
        ("node", NodeColumn::Node),
        ("cluster", NodeColumn::Cluster),
        ("state", NodeColumn::State),
        ("cpus", NodeColumn::Cpus),
        ("memory", NodeColumn::Memory),
        ("speed", NodeColumn::Speed),
        ("jobs", NodeColumn::Jobs),
        ("since", NodeColumn::Since),
    ];
}

impl Column for RecordColumn {
    const WORDS: &'static [(&'static str, RecordColumn)] = &[
        ("job", RecordColumn::Job),
        ("user", RecordColumn::User),
        ("name", RecordColumn::Name),
        ("state", RecordColumn::State),
        ("submitted", RecordColumn::Submitted),
        ("started", RecordColumn::Started),
        ("ended", RecordColumn::Ended),
        ("ran", RecordColumn::Ran),
        ("cpu", RecordColumn::Cpu),
        ("memory", RecordColumn::Memory),
    ];
}

/// The error for a word that is not a column.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "there is no column '{word}' to sort by; the columns are {known}, with a '-' before one to begin with the greatest"
)]
pub struct NoSuchColumn {
    word: String,
    known: String,
}

/// Parses `submitted`, or `-priority` for descending. A unique prefix of a word is accepted.
///
/// # Errors
/// The word names no column, or several.
pub fn column<C: Column>(text: &str) -> Result<(C, Way), NoSuchColumn> {
    let (word, way) = match text.strip_prefix('-') {
        Some(word) => (word, Way::Down),
        None => (text.strip_prefix('+').unwrap_or(text), Way::Up),
    };
    let exact = C::WORDS.iter().find(|(known, _)| *known == word);
    let mut alike = C::WORDS.iter().filter(|(known, _)| !word.is_empty() && known.starts_with(word));
    let only = match (alike.next(), alike.next()) {
        (Some(only), None) => Some(only),
        (Some(_), Some(_)) | (None, _) => None,
    };
    exact.or(only).map(|(_, column)| (*column, way)).ok_or_else(|| NoSuchColumn {
        word: word.chars().take(40).collect(),
        known: C::WORDS.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", "),
    })
}

/// Removes repeated columns: sorting by the same column again changes nothing.
pub fn distinct<C: Copy + PartialEq>(sort: &[(C, Way)]) -> Vec<(C, Way)> {
    let mut distinct: Vec<(C, Way)> = Vec::new();
    for (column, way) in sort {
        if distinct.iter().all(|(known, _)| known != column) {
            distinct.push((*column, *way));
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_named_as_users_of_squeue_do() {
        assert_eq!(column("-priority"), Ok((JobColumn::Priority, Way::Down)));
        assert_eq!(column("+submit"), Ok((JobColumn::Submitted, Way::Up)));
        assert_eq!(column("start"), Ok((RecordColumn::Started, Way::Up)));
        let ambiguous = column::<JobColumn>("s").expect_err("state, submitted and start begin so");
        assert_eq!(
            ambiguous.to_string(),
            "there is no column 's' to sort by; the columns are job, user, name, state, priority, nodes, tasks, wall, submitted, start, end, with a '-' before one to begin with the greatest"
        );
        assert!(column::<NodeColumn>("").is_err() && column::<NodeColumn>("--node").is_err());
    }
}
