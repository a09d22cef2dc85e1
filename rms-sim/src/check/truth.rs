//! The history says how a job's processes really ended, even if a report came late or twice.

use std::collections::{BTreeMap, BTreeSet};

use rms_api::desired::NodeExit;
use rms_core::Fact;
use rms_core::state::job::LauncherLink;
use rms_model::{JobId, JobRecord, NodeAdmin, NodeId, NodeLink, Outcome, Run, Time, Work};

use super::{Rule, Violation, is_natural};

#[derive(Debug, Default)]
pub(super) struct Truth {
    exits: BTreeMap<(JobId, Run), BTreeMap<String, NodeExit>>,
    /// Jobs whose cancellation was requested.
    cancels: BTreeSet<JobId>,
    /// Jobs whose nodes have changed, or are going to: the server ends them when their course is over, or a stage is
    /// too late.
    evolving: BTreeSet<JobId>,
    /// Jobs whose nodes change by negotiation: nodes that came late are ended with the first ones.
    malleable: BTreeSet<JobId>,
    /// Jobs that have announced their stages.
    with_profile: BTreeSet<JobId>,
    /// When jobs with a course have to end.
    ends: BTreeMap<JobId, Time>,
    /// When jobs last started.
    starts: BTreeMap<JobId, Time>,
    /// Jobs whose work is a script.
    scripts: BTreeSet<JobId>,
    /// How launchers use their nodes: at first without the agents.
    by_launcher: BTreeMap<JobId, Launched>,
    names: BTreeMap<NodeId, String>,
    /// Nodes that were given up at some time.
    given_up: BTreeSet<String>,
}

/// What is known of an application's launcher.
#[derive(Debug, Default)]
struct Launched {
    /// Whether it had processes started by the agents.
    has_work: bool,
    was_away: bool,
    breaks_rules: bool,
    /// The exit codes with which it has reported that it is done.
    codes: BTreeSet<i32>,
}

impl Truth {
    pub(super) fn finish_said(&mut self, job: JobId, code: i32) {
        self.by_launcher.entry(job).or_default().codes.insert(code);
    }

    pub(super) fn breaks_rules(&mut self, job: JobId) {
        self.by_launcher.entry(job).or_default().breaks_rules = true;
    }

    /// Judges outcomes that no process knows. `None`: its processes decide.
    fn by_launcher(&self, record: &JobRecord) -> Option<bool> {
        let launcher = self.by_launcher.get(&record.job)?;
        let over = |started: rms_model::Time| started + record.request.wall <= record.ended;
        match &record.outcome {
            Outcome::Completed if launcher.codes.contains(&0) => Some(true),
            Outcome::Failed { code } if launcher.codes.contains(code) => Some(true),
            Outcome::WallTime if !launcher.has_work => Some(record.started.is_some_and(over)),
            Outcome::LauncherLost => Some(launcher.was_away),
            Outcome::Violation { .. } => Some(launcher.breaks_rules),
            Outcome::Completed | Outcome::Failed { .. } if !launcher.has_work => Some(false),
            Outcome::Completed
            | Outcome::Failed { .. }
            | Outcome::WallTime
            | Outcome::Signaled { .. }
            | Outcome::Cancelled { .. }
            | Outcome::NodeLost { .. }
            | Outcome::NotStarted { .. }
            | Outcome::OutOfMemory { .. }
            | Outcome::Unsupervised { .. }
            | Outcome::StageLate { .. } => None,
        }
    }

    pub(super) fn ended(&mut self, node: &str, job: JobId, run: Run, exit: NodeExit) {
        self.exits.entry((job, run)).or_default().insert(node.to_owned(), exit);
    }

    pub(super) fn cancel_ordered(&mut self, job: JobId) {
        self.cancels.insert(job);
    }

    pub(super) fn durable(&mut self, fact: &Fact) -> Result<(), Violation> {
        if let Fact::JobSubmitted { job, spec, .. } = fact
            && let Work::Script { .. } = spec.execution.work
        {
            self.scripts.insert(*job);
        }
        if let Fact::JobSubmitted { job, spec, .. } = fact {
            if spec.malleable.is_some() {
                self.malleable.insert(*job);
            }
            if spec.evolving.is_some() {
                self.with_profile.insert(*job);
            }
        }
        // Nodes were requested for the job.
        if let Fact::StageEntered { job, .. } = fact
            && !self.with_profile.contains(job)
        {
            self.malleable.insert(*job);
        }
        if let Fact::LauncherSubscribed { job, .. } = fact {
            self.by_launcher.entry(*job).or_default();
        }
        if let Fact::LauncherLaunched { job, .. } = fact {
            self.by_launcher.entry(*job).or_default().has_work = true;
        }
        if let Fact::LauncherLinkChanged { job, link: LauncherLink::Away { .. }, .. } = fact {
            self.by_launcher.entry(*job).or_default().was_away = true;
        }
        if let Fact::CourseSet { job, course, .. } | Fact::StageEntered { job, course, .. } = fact {
            self.evolving.insert(*job);
            self.ends.insert(*job, course.end());
        }
        if let Fact::JobStarted { job, at, .. } = fact {
            self.starts.insert(*job, *at);
        }
        if let Fact::JobUpdated { job, wall: Some(wall), .. } = fact
            && let (Some(end), Some(start)) = (self.ends.get_mut(job), self.starts.get(job))
        {
            *end = *start + *wall;
        }
        if let Fact::NodeJoined { node, name, .. } = fact {
            self.names.insert(*node, name.clone());
        }
        if let Fact::NodeLinkChanged { node, link: NodeLink::Lost { .. } }
        | Fact::NodeAdminChanged { node, admin: NodeAdmin::Down { .. } } = fact
            && let Some(name) = self.names.get(node)
        {
            self.given_up.insert(name.clone());
        }
        match fact {
            Fact::JobDone { record, .. } => self.check(record),
            _ => Ok(()),
        }
    }

    fn check(&self, record: &JobRecord) -> Result<(), Violation> {
        let none = BTreeMap::new();
        let exits = self.exits.get(&(record.job, record.run)).unwrap_or(&none);
        let any = |wanted: &dyn Fn(&NodeExit) -> bool| exits.values().any(wanted);
        let is_script = self.scripts.contains(&record.job);
        let is_true = match &record.outcome {
            Outcome::Completed if is_script => {
                record.nodes.first().and_then(|node| exits.get(node)) == Some(&NodeExit::Exited { code: 0 })
            }
            Outcome::Completed if self.malleable.contains(&record.job) => {
                let first = record.nodes.first().and_then(|node| exits.get(node));
                let is_bad = |node: &String| exits.get(node).is_some_and(|exit| !may_come_late(exit));
                first == Some(&NodeExit::Exited { code: 0 }) && !record.nodes.iter().any(is_bad)
            }
            Outcome::Completed => {
                record.nodes.iter().all(|node| exits.get(node) == Some(&NodeExit::Exited { code: 0 }))
            }
            Outcome::Failed { code } => {
                any(&|exit| *exit == NodeExit::Exited { code: *code } || *exit == NodeExit::Aborted { code: *code })
            }
            Outcome::Signaled { signal } => any(&|exit| *exit == NodeExit::Signaled { signal: *signal }),
            Outcome::Cancelled { by: _ } => self.cancels.contains(&record.job),
            // Its supervisors may not have been told in time that it has more wall time.
            Outcome::WallTime if self.malleable.contains(&record.job) => {
                let is_over = self.ends.get(&record.job).is_some_and(|end| *end <= record.ended);
                is_over || any(&|exit| *exit == NodeExit::WallTime)
            }
            // Whether the time was over is checked with its stages.
            Outcome::WallTime | Outcome::StageLate { .. } if self.evolving.contains(&record.job) => true,
            Outcome::WallTime => any(&|exit| *exit == NodeExit::WallTime),
            Outcome::NodeLost { node, .. } => {
                let was_given_up = self.given_up.contains(node);
                let vanished = matches!(exits.get(node), Some(NodeExit::Vanished { .. }));
                was_given_up || vanished
            }
            Outcome::LauncherLost | Outcome::Violation { .. } | Outcome::StageLate { .. } => false,
            Outcome::NotStarted { .. } => any(&|exit| matches!(exit, NodeExit::NotStarted { .. })),
            Outcome::OutOfMemory { .. } => any(&|exit| *exit == NodeExit::OutOfMemory),
            Outcome::Unsupervised { .. } => any(&|exit| matches!(exit, NodeExit::Unsupervised { .. })),
        };
        if self.by_launcher(record).unwrap_or(is_true) {
            return Ok(());
        }
        let natural: Vec<_> = exits.iter().filter(|(_, exit)| is_natural(exit)).collect();
        Err(Rule::Truth.broken(format!(
            "job {}, run {}, is recorded as '{}' on {:?}, but its exits were {exits:?}, of which {} by itself",
            record.job,
            record.run,
            record.outcome,
            record.nodes,
            natural.len()
        )))
    }
}

/// Returns whether a node of a malleable application that was done on its first node may have ended this way.
fn may_come_late(exit: &NodeExit) -> bool {
    match exit {
        NodeExit::Exited { code } => *code == 0,
        NodeExit::Ordered | NodeExit::Overstayed => true,
        // The job was being ended when its node went down.
        NodeExit::Vanished { .. } | NodeExit::Unsupervised { .. } => true,
        NodeExit::OutOfMemory | NodeExit::Violated { .. } => false,
        NodeExit::Signaled { .. } | NodeExit::Aborted { .. } | NodeExit::WallTime => false,
        NodeExit::NotStarted { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tests::record;

    #[test]
    fn an_outcome_that_no_process_had_is_seen() {
        let exits = |code| NodeExit::Exited { code };
        let check = |exit: NodeExit, outcome: Outcome| {
            let mut truth = Truth::default();
            truth.ended("a1", JobId(1), Run(1), exit);
            truth.check(&record(JobId(1), outcome)).is_ok()
        };
        assert!(check(exits(0), Outcome::Completed));
        assert!(!check(exits(1), Outcome::Completed));
        assert!(check(exits(3), Outcome::Failed { code: 3 }));
        assert!(!check(exits(3), Outcome::Failed { code: 4 }));
        assert!(!check(exits(0), Outcome::WallTime));
        assert!(!check(exits(0), Outcome::NodeLost { node: "a1".to_owned(), reason: String::new() }));
        assert!(!check(NodeExit::Ordered, Outcome::Cancelled { by: "nobody".to_owned() }));
    }
}
