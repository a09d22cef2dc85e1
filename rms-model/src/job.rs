//! The description of a job by its user, and how it ended.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::allocation::ResourceRequest;
use crate::devices::Devices;
use crate::evolution::Evolution;
use crate::evolving::Evolving;
use crate::execution::{Execution, Work};
use crate::id::{ClusterId, JobId, Run};
use crate::labels::Labels;
use crate::malleable::Malleable;
use crate::plain::plain;
use crate::request::Request;
use crate::resources::{Inventory, Mebibytes};
use crate::settings::LostPolicy;
use crate::sharing::CpuLoans;
use crate::time::{Span, Time};

/// The owner of a job: a Unix user name, which each agent resolves on its own node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Owner(pub String);

/// Lets maps keyed by owner be searched by name.
impl Borrow<str> for Owner {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// What every node of a job must have.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Constraint {
    #[serde(deserialize_with = "crate::checked::names")]
    pub features: BTreeSet<String>,
    pub memory: Mebibytes,
    /// Logical CPUs that a node must have to hold its share of the tasks.
    pub cpus: u32,
    #[serde(default, skip_serializing_if = "Devices::is_empty")]
    pub devices: Devices,
    /// The number of physical cores.
    #[serde(default, skip_serializing_if = "crate::checked::is_zero")]
    pub cores: u32,
    #[serde(default, skip_serializing_if = "crate::checked::is_zero")]
    pub sockets: u32,
    /// The speed in thousandths of the reference node's speed.
    #[serde(default, skip_serializing_if = "crate::checked::is_zero")]
    pub speed_milli: u32,
    #[serde(default, skip_serializing_if = "Mebibytes::is_none")]
    pub scratch: Mebibytes,
    /// Names of the only nodes that the job may use; all if empty.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty", deserialize_with = "crate::checked::names")]
    pub nodelist: BTreeSet<String>,
    /// Names of nodes that the job does not use.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty", deserialize_with = "crate::checked::names")]
    pub exclude: BTreeSet<String>,
}

impl Constraint {
    /// Returns whether nodes of this kind have all that is required.
    pub fn is_met_by(&self, inventory: &Inventory) -> bool {
        inventory.memory >= self.memory
            && inventory.cpus >= self.cpus
            && self.suits(inventory)
            && inventory.devices.cover(&self.devices)
    }

    /// Returns whether the node is of a suitable kind. Memory, CPUs and devices, of which a job may take a part, are
    /// checked elsewhere.
    pub fn suits(&self, inventory: &Inventory) -> bool {
        self.features.is_subset(&inventory.features)
            && inventory.cores >= self.cores
            && inventory.sockets >= self.sockets
            && inventory.speed_milli >= self.speed_milli
            && inventory.scratch >= self.scratch
    }

    /// Returns whether the constraint includes or excludes nodes by name.
    pub fn names_nodes(&self) -> bool {
        !self.nodelist.is_empty() || !self.exclude.is_empty()
    }

    /// Returns whether the node of this name may be used.
    pub fn allows(&self, node: &str) -> bool {
        (self.nodelist.is_empty() || self.nodelist.contains(node)) && !self.exclude.contains(node)
    }
}

/// The number of tasks of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskCount {
    /// The number on each node, whatever size the job starts with.
    PerNode(u32),
    /// The total, spread over the nodes in blocks, with one more on the first nodes.
    Total(u32),
}

impl TaskCount {
    /// Returns the number of tasks on all of `n_nodes`.
    pub fn total(self, n_nodes: u32) -> u32 {
        match self {
            TaskCount::PerNode(n_tasks) => n_tasks.saturating_mul(n_nodes),
            TaskCount::Total(n_tasks) => n_tasks,
        }
    }

    /// Returns the number of tasks on the node with the most.
    pub fn most_on_a_node(self, n_nodes: u32) -> u32 {
        match self {
            TaskCount::PerNode(n_tasks) => n_tasks,
            TaskCount::Total(n_tasks) => n_tasks.div_ceil(n_nodes.max(1)),
        }
    }
}

/// A job that was accepted: everything in it was possible on the clusters at that time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    #[serde(default)]
    pub labels: Labels,
    pub owner: Owner,
    pub execution: Execution,
    pub tasks: TaskCount,
    /// 0 if not requested: the tasks share the CPUs of their node.
    pub cpus_per_task: u32,
    /// The sizes from which the built-in launcher chooses, in order of preference if several are equally good; never
    /// empty.
    pub options: Vec<Request>,
    /// The clusters to choose from; empty means any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<String>,
    pub constraint: Constraint,
    #[serde(default, skip_serializing_if = "ResourceRequest::is_default")]
    pub resources: ResourceRequest,
    /// Jobs with higher values come first.
    pub priority: i32,
    /// Whether the job may start again after its node was lost. If absent, the setting decides.
    pub requeue: Option<bool>,
    /// Earliest start; the job is not eligible before.
    pub begin: Option<Time>,
    /// The stages of an application with changing needs; its options are then its peak for its whole time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evolving: Option<Evolving>,
    /// The sizes between which it may be changed while it runs (002); its options are then the sizes it may start with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub malleable: Option<Malleable>,
}

impl JobSpec {
    /// Creates a minimal job: one task on each node in `/`, with an empty environment and no name.
    pub fn of(owner: Owner, execution: impl Into<Execution>, options: Vec<Request>) -> JobSpec {
        JobSpec {
            labels: Labels::default(),
            owner,
            execution: execution.into(),
            tasks: TaskCount::PerNode(1),
            cpus_per_task: 0,
            options,
            clusters: Vec::new(),
            constraint: Constraint::default(),
            resources: ResourceRequest::default(),
            priority: 0,
            requeue: None,
            begin: None,
            evolving: None,
            malleable: None,
        }
    }

    /// Returns the job without its environment and its work: the part that can change after the submission.
    #[must_use]
    pub fn without_work(self) -> JobSpec {
        JobSpec { execution: Execution { environment: Arc::default(), work: Work::Nodes, ..self.execution }, ..self }
    }

    /// Returns the job with the environment and the work of another one.
    #[must_use]
    pub fn with_work_of(self, job: &JobSpec) -> JobSpec {
        let (environment, work) = (Arc::clone(&job.execution.environment), job.execution.work.clone());
        JobSpec { execution: Execution { environment, work, ..self.execution }, ..self }
    }

    /// Returns whether the job may start again after its node was lost. Its own choice overrides the setting. A client
    /// that follows its streams would see them twice, and the input is gone: such a job runs again only on request.
    pub fn may_run_again(&self, policy: LostPolicy) -> bool {
        let by_setting = match policy {
            LostPolicy::Requeue => !self.execution.stdio.stream,
            LostPolicy::Fail => false,
        };
        self.requeue.unwrap_or(by_setting)
    }
}

/// How an application ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    Completed,
    /// The highest exit code of the work; never 0.
    Failed {
        code: i32,
    },
    /// Ended by a signal that the RMS did not send.
    Signaled {
        signal: i32,
    },
    Cancelled {
        by: String,
    },
    /// Ended because its wall time was over.
    WallTime,
    /// One of its nodes was lost, or its processes there were lost.
    NodeLost {
        node: String,
        /// Why, if that was recorded.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// Its launcher was lost.
    LauncherLost,
    /// It never ran, because a node could not start it.
    NotStarted {
        node: String,
        reason: String,
    },
    /// The job or its launcher violated a rule.
    Violation {
        reason: String,
    },
    /// The nodes of a stage of its profile did not become free within the expand limit.
    StageLate {
        stage: u32,
    },
    /// The kernel killed some of its processes because they needed more memory than requested.
    OutOfMemory {
        node: String,
        limit: Mebibytes,
    },
    /// The supervisor on a node was killed, and the job was ended there.
    Unsupervised {
        node: String,
        reason: String,
    },
}

impl Outcome {
    /// The words of [`Outcome::word`], each once.
    pub const WORDS: [&'static str; 11] = [
        "completed",
        "failed",
        "cancelled",
        "timeout",
        "node_lost",
        "launcher_lost",
        "not_started",
        "violation",
        "stage_late",
        "out_of_memory",
        "supervisor_lost",
    ];

    /// Returns the word that `rms` prints and filters by.
    pub fn word(&self) -> &'static str {
        match self {
            Outcome::Completed => "completed",
            Outcome::Failed { .. } | Outcome::Signaled { .. } => "failed",
            Outcome::Cancelled { .. } => "cancelled",
            Outcome::WallTime => "timeout",
            Outcome::NodeLost { .. } => "node_lost",
            Outcome::LauncherLost => "launcher_lost",
            Outcome::NotStarted { .. } => "not_started",
            Outcome::Violation { .. } => "violation",
            Outcome::StageLate { .. } => "stage_late",
            Outcome::OutOfMemory { .. } => "out_of_memory",
            Outcome::Unsupervised { .. } => "supervisor_lost",
        }
    }

    /// Returns exit code and signal, as the history stores them.
    pub fn code_signal(&self) -> (i32, i32) {
        match self {
            Outcome::Completed => (0, 0),
            Outcome::Failed { code } => (*code, 0),
            Outcome::Signaled { signal } => (0, *signal),
            Outcome::Cancelled { .. } | Outcome::WallTime => (0, 15),
            Outcome::OutOfMemory { .. } => (0, 9),
            Outcome::NodeLost { .. }
            | Outcome::Unsupervised { .. }
            | Outcome::LauncherLost
            | Outcome::NotStarted { .. }
            | Outcome::Violation { .. }
            | Outcome::StageLate { .. } => (1, 0),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Completed => f.write_str("completed"),
            Outcome::Failed { code } => write!(f, "failed with exit code {code}"),
            Outcome::Signaled { signal } => write!(f, "killed by signal {signal}"),
            Outcome::Cancelled { by } => write!(f, "cancelled by {by}"),
            Outcome::WallTime => f.write_str("wall time over"),
            Outcome::NodeLost { node, reason } if reason.is_empty() => write!(f, "node {node} lost"),
            Outcome::NodeLost { node, reason } => write!(f, "node {node} lost: {}", plain(reason)),
            Outcome::LauncherLost => f.write_str("launcher lost"),
            Outcome::NotStarted { node, reason } => write!(f, "could not start on {node}: {}", plain(reason)),
            Outcome::Violation { reason } => write!(f, "ended for a violation: {}", plain(reason)),
            Outcome::OutOfMemory { node, limit } => {
                write!(f, "out of memory on {node}: its processes there wanted more than {limit}, their limit")
            }
            Outcome::Unsupervised { node, reason } => write!(f, "ended on {node}: {}", plain(reason)),
            Outcome::StageLate { stage } => {
                write!(f, "the nodes of stage {stage} were not free within its expand limit")
            }
        }
    }
}

/// The resources used by the processes of a job, over its whole process tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    #[serde(deserialize_with = "crate::checked::span")]
    pub cpu: Span,
    /// The highest sum on one node if the kernel records it, otherwise the peak of the largest process.
    pub peak_memory_kib: u64,
}

impl Usage {
    /// Adds the usage on another node of the same job.
    pub fn and(self, other: Usage) -> Usage {
        Usage { cpu: self.cpu + other.cpu, peak_memory_kib: self.peak_memory_kib.max(other.peak_memory_kib) }
    }
}

/// One job in the history: written once, when the job is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRecord {
    pub job: JobId,
    pub run: Run,
    #[serde(default)]
    pub labels: Labels,
    pub owner: Owner,
    pub submitted: Time,
    /// Since when it could have started: its submission, its begin time, the end of its last hold, or its last return to
    /// the queue.
    pub eligible: Time,
    /// Absent if it never started.
    pub started: Option<Time>,
    pub ended: Time,
    pub request: Request,
    pub n_tasks: u32,
    pub cpus_per_task: u32,
    /// Node names; the script ran on the first one.
    pub nodes: Vec<String>,
    pub outcome: Outcome,
    pub usage: Usage,
    /// What an evolving application actually held, stage by stage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evolution: Option<Evolution>,
    /// Absent if the job never shared CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loans: Option<CpuLoans>,
    /// Absent if it never started, and in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<Granted>,
    /// The runs after which it returned to the queue, the first one first; all else is of its last run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_runs: Vec<FormerRun>,
}

/// An execution of a job that ended with its return to the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormerRun {
    pub run: Run,
    pub started: Time,
    pub ended: Time,
    /// Why it ended.
    pub outcome: Outcome,
    /// Node names at its end.
    pub nodes: Vec<String>,
    pub usage: Usage,
    /// Core-milliseconds, as in [`Granted`].
    pub core_time: u64,
    /// Absent if it never shared CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loans: Option<CpuLoans>,
}

/// What a job had when it ended, over all its nodes, and how long it had cores.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Granted {
    /// Of a node that it had alone, all of them.
    pub cores: u32,
    /// The nodes that it had alone.
    pub whole_nodes: u32,
    /// 0 if it asked for none of the nodes that it shared.
    pub memory: Mebibytes,
    #[serde(skip_serializing_if = "Devices::is_empty")]
    pub devices: Devices,
    /// By cluster.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub licences: BTreeMap<ClusterId, Devices>,
    /// Core-milliseconds, without those that it lent.
    pub core_time: u64,
}

impl JobRecord {
    /// Returns what it lent and borrowed in all its runs; `None` if it never shared CPUs.
    pub fn total_loans(&self) -> Option<CpuLoans> {
        let of_runs = self.former_runs.iter().map(|former| former.loans).chain([self.loans]).flatten();
        of_runs.reduce(|sum, of_run| CpuLoans {
            lent: sum.lent.saturating_add(of_run.lent),
            borrowed: sum.borrowed.saturating_add(of_run.borrowed),
        })
    }

    /// Returns the usage of all its runs.
    pub fn total_usage(&self) -> Usage {
        self.former_runs.iter().fold(self.usage, |sum, former| sum.and(former.usage))
    }

    /// Returns the core-milliseconds of all its runs; `None` if they are unknown.
    pub fn total_core_time(&self) -> Option<u64> {
        let last = self.granted.as_ref().map(|granted| granted.core_time);
        let former = self.former_runs.iter().map(|former| former.core_time).reduce(u64::saturating_add);
        last.into_iter().chain(former).reduce(u64::saturating_add)
    }

    /// Creates a minimal record of an ended job: its first execution completed at `at` without having started.
    pub fn of(job: JobId, owner: Owner, request: Request, at: Time) -> JobRecord {
        JobRecord {
            job,
            run: Run(1),
            labels: Labels::default(),
            owner,
            submitted: at,
            eligible: at,
            started: None,
            ended: at,
            n_tasks: request.n_nodes(),
            request,
            cpus_per_task: 0,
            nodes: Vec::new(),
            outcome: Outcome::Completed,
            usage: Usage::default(),
            evolution: None,
            loans: None,
            granted: None,
            former_runs: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the next variant; a new variant does not compile until it is listed here.
    fn after(outcome: &Outcome) -> Option<Outcome> {
        Some(match outcome {
            Outcome::Completed => Outcome::Failed { code: 1 },
            Outcome::Failed { .. } => Outcome::Signaled { signal: 9 },
            Outcome::Signaled { .. } => Outcome::Cancelled { by: "ada".to_owned() },
            Outcome::Cancelled { .. } => Outcome::WallTime,
            Outcome::WallTime => Outcome::NodeLost { node: "n1".to_owned(), reason: String::new() },
            Outcome::NodeLost { .. } => Outcome::LauncherLost,
            Outcome::LauncherLost => Outcome::NotStarted { node: "n1".to_owned(), reason: String::new() },
            Outcome::NotStarted { .. } => Outcome::Violation { reason: String::new() },
            Outcome::Violation { .. } => Outcome::StageLate { stage: 1 },
            Outcome::StageLate { .. } => Outcome::OutOfMemory { node: "n1".to_owned(), limit: Mebibytes(1) },
            Outcome::OutOfMemory { .. } => Outcome::Unsupervised { node: "n1".to_owned(), reason: String::new() },
            Outcome::Unsupervised { .. } => return None,
        })
    }

    #[test]
    fn a_path_in_an_outcome_begins_no_line_and_hides_nothing() {
        let reason = "the working directory /x\n  user  root\u{1b}[8m cannot be used".to_owned();
        let told = Outcome::NotStarted { node: "n1".to_owned(), reason }.to_string();
        assert_eq!(
            told,
            "could not start on n1: the working directory /x\u{fffd}  user  root\u{fffd}[8m cannot be used"
        );
    }

    #[test]
    fn the_words_of_outcomes_are_those_that_outcomes_have() {
        let all = std::iter::successors(Some(Outcome::Completed), after);
        let mut words: Vec<&str> = all.map(|outcome| outcome.word()).collect();
        // A failure by exit code and one by signal print the same word.
        words.dedup();
        assert_eq!(words, Outcome::WORDS);
    }
}
