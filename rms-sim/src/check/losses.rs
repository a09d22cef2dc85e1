//! A job that can go on without a lost node does so, with at least its minimum of nodes; no other job does.

use std::collections::{BTreeMap, BTreeSet};

use rms_core::{Fact, State};
use rms_model::{JobId, Malleable, NodeAdmin, NodeId, NodeLink, OnResize, Outcome, Sizes};

use super::{Rule, Violation};

#[derive(Debug, Default)]
pub(super) struct Losses {
    /// The minimum that each application has declared itself.
    declared: BTreeMap<JobId, u32>,
    /// Executions that ended on a node before it was freed: a node that was lost on its way to a job is not a loss of
    /// the job.
    ended: BTreeSet<(JobId, NodeId)>,
}

impl Losses {
    /// Checks a durable fact; `then` is the state with this fact and without those that were written after it in the
    /// same instant.
    pub(super) fn durable(&mut self, fact: &Fact, then: &State) -> Result<(), Violation> {
        match fact {
            Fact::LimitsDeclared { job, declared } => {
                self.declared.insert(*job, declared.least);
                Ok(())
            }
            Fact::JobRequeued { job, .. } => {
                self.declared.remove(job);
                Ok(())
            }
            Fact::ShareEnded { job, node, .. } => {
                self.ended.insert((*job, *node));
                Ok(())
            }
            Fact::JobStarted { job, .. } => {
                self.ended.retain(|(of, _)| of != job);
                Ok(())
            }
            Fact::StageEntered { job, gained, freed, .. } => {
                self.ended.retain(|(of, node)| of != job || !gained.contains(node));
                let is_loss = |node: &NodeId| is_lost(then, *node) && !self.ended.contains(&(*job, *node));
                if freed.iter().any(is_loss) { self.shrinks(*job, freed, then) } else { Ok(()) }
            }
            Fact::JobEnding { job, outcome: Outcome::NodeLost { .. }, .. } => self.ends(*job, then),
            _ => Ok(()),
        }
    }

    fn shrinks(&self, job: JobId, freed: &[NodeId], then: &State) -> Result<(), Violation> {
        let malleable = then.jobs().get(&job).and_then(|entry| entry.spec.malleable.as_ref());
        let has_said = |malleable: &Malleable| {
            let says = then
                .jobs()
                .get(&job)
                .and_then(|entry| entry.negotiations.as_ref())
                .is_some_and(|negotiations| negotiations.survives_loss);
            malleable.survives_loss.unwrap_or(malleable.on_resize == OnResize::Workers || says)
        };
        let Some(malleable) = malleable.filter(|malleable| has_said(malleable)) else {
            return Err(
                Rule::Losses.broken(format!("job {job} goes on without {freed:?}, and has not said that it can"))
            );
        };
        let (n_left, least) = (n_staying(job, freed, then), self.least(job, malleable));
        match n_left < least {
            true => Err(Rule::Losses.broken(format!("job {job} goes on with {n_left} nodes, and needs {least}"))),
            false => Ok(()),
        }
    }

    /// Checks the end of a farm: a loss ends a farm of any size only if too few nodes are left.
    fn ends(&self, job: JobId, then: &State) -> Result<(), Violation> {
        let malleable = then.jobs().get(&job).and_then(|entry| entry.spec.malleable.as_ref());
        let is_farm = |malleable: &&Malleable| {
            let are_workers = malleable.on_resize == OnResize::Workers && malleable.survives_loss != Some(false);
            are_workers && malleable.sizes == Sizes::Any && !malleable.is_as_started()
        };
        let Some(malleable) = malleable.filter(is_farm) else { return Ok(()) };
        let (n_left, least) = (n_staying(job, &[], then), self.least(job, malleable));
        match n_left > least {
            true => {
                Err(Rule::Losses.broken(format!("job {job} was ended with {n_left} nodes left, and needs {least}")))
            }
            false => Ok(()),
        }
    }

    fn least(&self, job: JobId, malleable: &Malleable) -> u32 {
        self.declared.get(&job).copied().unwrap_or(malleable.least).max(1)
    }
}

/// Counts the nodes that the job has, has not been told to leave, and that are not lost.
fn n_staying(job: JobId, freed: &[NodeId], then: &State) -> u32 {
    let Some(started) = then.jobs().get(&job).and_then(|entry| entry.started()) else { return 0 };
    let is_going = |node: &NodeId| {
        let evolved = started.evolved.as_ref();
        evolved.is_some_and(|evolved| evolved.leaving.contains_key(node) || evolved.departing.contains_key(node))
    };
    let stays =
        |node: &&NodeId| !freed.contains(node) && !is_going(node) && !is_lost(then, **node) && !is_down(then, **node);
    started.nodes.iter().filter(stays).count() as u32
}

/// Returns whether an admin has taken the node down: what ran there counts as lost.
fn is_down(then: &State, node: NodeId) -> bool {
    then.nodes().get(&node).is_some_and(|entry| matches!(entry.admin, NodeAdmin::Down { .. }))
}

fn is_lost(then: &State, node: NodeId) -> bool {
    then.nodes().get(&node).is_some_and(|entry| matches!(entry.link, NodeLink::Lost { .. }))
}
