//! A ghost keeps its hosts for the fair-start delay, so that slow launchers get their chance (001, §5.3.1).

use std::collections::BTreeMap;

use rms_core::Fact;
use rms_model::{JobId, NodeId, Time};

use super::{Rule, Violation};

/// Who holds which host since when, and until when its ghost must keep it.
#[derive(Debug, Default)]
pub(super) struct Ghosts {
    held: BTreeMap<JobId, Vec<NodeId>>,
    kept: BTreeMap<NodeId, (JobId, Time)>,
}

impl Ghosts {
    pub(super) fn durable(&mut self, fact: &Fact) -> Result<(), Violation> {
        if let Fact::JobStarted { job, at, nodes, .. } = fact {
            for node in nodes {
                if let Some((ghost, until)) = self.kept.get(node)
                    && at < until
                {
                    return Err(Rule::Ghost.broken(format!(
                        "job {job} started on node {node} at {at:?}, which the ghost of job {ghost} keeps until {until:?}"
                    )));
                }
            }
            self.held.insert(*job, nodes.clone());
        }
        if let Fact::JobDone { record, ghost_until } = fact {
            for node in self.held.remove(&record.job).unwrap_or_default() {
                self.kept.insert(node, (record.job, *ghost_until));
            }
        }
        if let Fact::JobRequeued { job, .. } = fact {
            self.held.remove(job);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rms_model::{Outcome, Request, Run, Span};

    use super::*;
    use crate::check::tests::{record, started};

    #[test]
    fn a_start_on_a_host_that_a_ghost_keeps_is_seen() {
        let done = |until| Fact::JobDone { record: Box::new(record(JobId(1), Outcome::Completed)), ghost_until: until };
        let start = |job, at| {
            started(JobId(job), Run(1), Time::from_secs(at), Request::on_one(Default::default(), 1, Span::ZERO))
        };
        let mut ghosts = Ghosts::default();
        assert_eq!(ghosts.durable(&start(1, 0)), Ok(()));
        assert_eq!(ghosts.durable(&done(Time::from_secs(20))), Ok(()));
        assert!(ghosts.durable(&start(2, 19)).is_err());
        assert_eq!(ghosts.durable(&start(3, 20)), Ok(()));
    }
}
