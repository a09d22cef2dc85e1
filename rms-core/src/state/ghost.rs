//! Ghosts that leave their clusters one after the other, and what they have kept idle.

use std::collections::BTreeMap;

use rms_model::{ClusterId, JobId, NodeId, Span, Time};

use super::{ApplyError, BumpedNodes, State};
use crate::state::job::Phase;

impl State {
    pub(super) fn ghost_parted(&mut self, job: JobId, until: &BTreeMap<ClusterId, Time>) -> Result<(), ApplyError> {
        let mut is_ghost = false;
        self.edit_job(job, |entry| {
            if let Phase::Ghost(ghost) = &mut entry.phase {
                ghost.parts = until.clone();
                is_ghost = true;
            }
        })?;
        if is_ghost { Ok(()) } else { Err(ApplyError::Phase { job, needed: "a ghost" }) }
    }

    pub(super) fn ghost_part_expired(
        &mut self,
        job: JobId,
        cluster: ClusterId,
        bumped: &mut BumpedNodes<'_>,
    ) -> Result<(), ApplyError> {
        self.count_ghost(job, Some(cluster));
        let nodes = self.jobs.get(&job).ok_or(ApplyError::Job(job))?.nodes();
        let is_here = |node: &&NodeId| self.nodes.get(node).is_some_and(|entry| entry.cluster == cluster);
        let leaves: Vec<NodeId> = nodes.iter().filter(is_here).copied().collect();
        self.release(job, leaves.iter().copied(), bumped)?;
        self.edit_job(job, |entry| {
            if let Phase::Ghost(ghost) = &mut entry.phase {
                ghost.nodes.retain(|node| !leaves.contains(node));
                ghost.parts.remove(&cluster);
            }
        })
    }

    /// Counts for how long a ghost has kept its nodes, on one cluster or on all that it still keeps.
    pub(super) fn count_ghost(&mut self, job: JobId, only: Option<ClusterId>) {
        let Some(Phase::Ghost(ghost)) = self.jobs.get(&job).map(|entry| &entry.phase) else { return };
        for node in &ghost.nodes {
            let Some(cluster) = self.nodes.get(node).map(|entry| entry.cluster) else { continue };
            if only.is_some_and(|only| only != cluster) {
                continue;
            }
            let kept = ghost.until_in(cluster).since(ghost.done_at);
            self.ghost_node_time = self.ghost_node_time + kept;
            let here = self.ghost_node_time_at.entry(cluster).or_insert(Span::ZERO);
            *here = *here + kept;
        }
    }

    /// Frees nodes that running applications had given back.
    pub(super) fn expire_node_ghosts(&mut self, nodes: &[NodeId], at: Time) -> Result<(), ApplyError> {
        for node in nodes {
            let Some(entry) = self.nodes.get(node) else { continue };
            let Some(ghost) = entry.ghost else { continue };
            let kept = at.min(ghost.until).since(ghost.from);
            let here = self.ghost_node_time_at.entry(entry.cluster).or_insert(Span::ZERO);
            *here = *here + kept;
            self.ghost_node_time = self.ghost_node_time + kept;
            self.edit_node(*node, |entry| entry.ghost = None)?;
        }
        Ok(())
    }

    /// Returns the nodes that running applications have given back and that are still kept, the next one to be free
    /// first.
    pub(crate) fn node_ghosts(&self) -> impl Iterator<Item = (Time, NodeId)> + '_ {
        self.index.node_ghosts.iter().copied()
    }
}
