//! A job that did not agree to share keeps all the cores that it began with, to its end (004, §3.3).

use std::collections::BTreeMap;

use rms_core::{Fact, State};
use rms_model::{Indices, JobId, NodeId, Run};

use super::{Rule, Violation};
use crate::node::ModelNode;

/// The grants of jobs at their start.
#[derive(Debug, Default)]
pub(super) struct Slowed {
    granted: BTreeMap<(JobId, Run), BTreeMap<NodeId, Indices>>,
}

impl Slowed {
    pub(super) fn durable(&mut self, fact: &Fact, state: &State) -> Result<(), Violation> {
        match fact {
            Fact::JobStarted { job, run, grants, .. } => {
                let cores = grants.iter().map(|(node, grant)| (*node, grant.cores.clone())).collect();
                self.granted.insert((*job, *run), cores);
            }
            Fact::JobDone { record, .. } => self.granted.retain(|(of, _), _| *of != record.job),
            Fact::JobRequeued { job, .. } => self.granted.retain(|(of, _), _| of != job),
            Fact::CpusShared { job, .. } => {
                let has_said = state.jobs().get(job).is_none_or(|entry| entry.spec.resources.share);
                if !has_said {
                    return Err(Rule::Slowed.broken(format!("job {job} lends or borrows cores, and never said so")));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks the processes, not the state. A job that may change its size gives cores back voluntarily.
    pub(super) fn keeps_cores(&self, state: &State, nodes: &[ModelNode]) -> Result<(), Violation> {
        for node in nodes {
            let Some((id, known)) = state.nodes().iter().find(|(_, known)| known.name == node.name) else { continue };
            for ((job, run), supervisor) in node.supervisors().iter().filter(|(_, supervisor)| supervisor.is_alive()) {
                let Some(entry) = state.jobs().get(job).filter(|entry| entry.run == *run) else { continue };
                let is_fixed = entry.started().is_some_and(|started| started.evolved.is_none());
                let has_all = is_fixed && !entry.spec.resources.share;
                let Some(granted) = self.granted.get(&(*job, *run)).filter(|_| has_all) else { continue };
                let mut missing = match granted.get(id) {
                    Some(cores) => cores.clone(),
                    None => Indices::below(known.inventory.cpus),
                };
                missing.remove_all(supervisor.cores());
                if !missing.is_empty() {
                    let what =
                        format!("job {job}.{run} began with cores {missing} of {} and has them no more", node.name);
                    return Err(Rule::Slowed.broken(what));
                }
            }
        }
        Ok(())
    }
}
