//! Nothing runs twice: an execution starts once on each of its nodes, and a new one starts only when the old one is
//! fenced.

use std::collections::{BTreeMap, BTreeSet};

use rms_api::desired::DesiredJob;
use rms_core::{Fact, State};
use rms_model::settings::LostPolicy;
use rms_model::{JobId, Run, Time};

use super::{Rule, Violation};
use crate::node::ModelNode;

#[derive(Debug, Default)]
pub(super) struct Runs {
    /// All starts of processes so far.
    starts: BTreeMap<(JobId, Run, String, u32), Time>,
    /// Jobs that may start again after the loss of a node.
    may_requeue: BTreeSet<JobId>,
    n_done: BTreeMap<JobId, u32>,
}

impl Runs {
    pub(super) fn starting(&mut self, now: Time, node: &str, wanted: &DesiredJob) -> Result<(), Violation> {
        self.starts_once(now, node, wanted.job, wanted.run, wanted.joined())
    }

    /// Checks that an execution starts once on a node. A node that an evolving application freed may return, with a
    /// later generation of its nodes.
    fn starts_once(&mut self, now: Time, node: &str, job: JobId, run: Run, joined: u32) -> Result<(), Violation> {
        match self.starts.insert((job, run, node.to_owned(), joined), now) {
            Some(before) => Err(Rule::Runs.broken(format!(
                "{node} starts job {job}, run {run}, at {now:?} though it started it at {before:?} before"
            ))),
            None => Ok(()),
        }
    }

    pub(super) fn durable(&mut self, fact: &Fact, state: &State, nodes: &[ModelNode]) -> Result<(), Violation> {
        if let Fact::JobSubmitted { job, spec, .. } = fact
            && spec.may_run_again(LostPolicy::Requeue)
        {
            self.may_requeue.insert(*job);
        }
        if let Fact::JobDone { record, .. } = fact {
            let n_done = self.n_done.entry(record.job).or_default();
            *n_done += 1;
            if *n_done > 1 {
                return Err(Rule::Ends.broken(format!("job {} is done for the second time", record.job)));
            }
        }
        if let Fact::JobStarted { job, run, .. } = fact {
            if self.n_done.contains_key(job) {
                return Err(Rule::Runs.broken(format!("job {job} starts after it was done")));
            }
            if *run > Run(1) {
                self.starts_again(*job, *run, state, nodes)?;
            }
        }
        Ok(())
    }

    fn starts_again(&self, job: JobId, run: Run, state: &State, nodes: &[ModelNode]) -> Result<(), Violation> {
        if !self.may_requeue.contains(&job) {
            return Err(Rule::Runs.broken(format!("job {job} starts again, as run {run}, though it may not")));
        }
        for node in nodes {
            for (there, old) in node.alive() {
                let is_older = there == job && old < run;
                let books = state.nodes().values().find(|entry| entry.name == node.name);
                // An unreachable node cannot be cleared either; it is cleared when it comes back.
                let is_fenced = books.is_none_or(|entry| !entry.is_connected() || entry.stale.contains(&(job, old)));
                if is_older && !is_fenced {
                    let node = &node.name;
                    return Err(Rule::Runs.broken(format!("job {job} starts run {run} while {node} has run {old}")));
                }
            }
        }
        Ok(())
    }

    pub(super) fn n_done(&self, job: JobId) -> u32 {
        self.n_done.get(&job).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use rms_model::{Outcome, Request, Settings, Span};

    use super::*;
    use crate::check::tests::{record, started};

    fn start(job: u64, run: u32) -> Fact {
        started(JobId(job), Run(run), Time::EPOCH, Request::on_one(Default::default(), 1, Span::ZERO))
    }

    #[test]
    fn processes_that_start_twice_are_seen() {
        let mut runs = Runs::default();
        assert_eq!(runs.starts_once(Time::EPOCH, "a1", JobId(1), Run(1), 1), Ok(()));
        assert_eq!(runs.starts_once(Time::EPOCH, "a2", JobId(1), Run(1), 1), Ok(()));
        assert_eq!(runs.starts_once(Time::EPOCH, "a1", JobId(1), Run(2), 1), Ok(()));
        assert!(runs.starts_once(Time::EPOCH, "a1", JobId(1), Run(1), 1).is_err());
    }

    #[test]
    fn a_second_run_of_a_job_that_may_not_and_a_second_end_are_seen() {
        let state = State::new(Settings::default());
        let done = Fact::JobDone {
            record: Box::new(record(JobId(1), Outcome::Completed)),
            ghost_until: Time::EPOCH,
            negotiations: Vec::new(),
            told: None,
        };
        let mut runs = Runs::default();
        assert_eq!(runs.durable(&start(1, 1), &state, &[]), Ok(()));
        assert!(runs.durable(&start(1, 2), &state, &[]).is_err());
        assert_eq!(runs.durable(&done, &state, &[]), Ok(()));
        assert!(runs.durable(&start(1, 1), &state, &[]).is_err());
        assert!(runs.durable(&done, &state, &[]).is_err());
    }
}
