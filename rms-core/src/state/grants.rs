//! How the state changes as running applications get memory, devices and licences and give some back.

use std::collections::BTreeMap;

use negotiation::NegotiationId;
use rms_model::job::Constraint;
use rms_model::{Allocation, ClusterId, Devices, Grant, Indices, JobId, NodeId};

use super::{ApplyError, BumpedNodes, State, constraint_of, takes_parts};
use crate::state::course::{GrantChange, NegotiatedLicences};
use crate::state::job::{Job, Phase, Share};
use crate::state::node::Node;

impl State {
    /// Marks the jobs that run where nodes were allocated whole until now: they take whole nodes as they grow, too. The
    /// settings are the new ones, the index is of the old ones.
    pub(super) fn keep_whole_nodes(&mut self) -> Result<(), ApplyError> {
        let is_newly_shared = |cluster: &ClusterId| {
            let allocation = self.settings.allocation_of(&self.clusters[cluster]);
            allocation == Allocation::Cores && !self.is_shared(*cluster)
        };
        let has_whole = |entry: &Job| {
            let started = entry.started();
            started.is_some_and(|at| at.grants.is_empty() && at.request.nodes.keys().any(is_newly_shared))
        };
        let jobs: Vec<JobId> = self.jobs.iter().filter(|(_, entry)| has_whole(entry)).map(|(job, _)| *job).collect();
        jobs.into_iter().try_for_each(|job| {
            self.started_mut(job)?.takes_whole = true;
            Ok(())
        })
    }

    /// Returns what a job has of a core-shared node of which it requested all cores: it has the node without a grant,
    /// because nobody else can use the rest of it. `None` if it may use all memory and devices, too.
    pub(crate) fn grant_of_all_cores(&self, entry: &Job, known: &Node) -> Option<Grant> {
        let Constraint { memory, devices, .. } = constraint_of(&entry.spec, &entry.started()?.request);
        let shares = self.is_shared(known.cluster) && takes_parts(entry) && devices.is_empty();
        shares.then(|| Grant { cores: Indices::below(known.inventory.cores), memory, ..Grant::default() })
    }

    /// Returns what a started job has of a node.
    pub(crate) fn granted_on(&self, job: JobId, node: NodeId) -> Option<Grant> {
        let (entry, known) = (self.jobs.get(&job)?, self.nodes.get(&node)?);
        let granted = entry.grants().get(&node).cloned();
        Some(
            granted.or_else(|| self.grant_of_all_cores(entry, known)).unwrap_or_else(|| Grant::whole(&known.inventory)),
        )
    }

    /// Sets other memory and devices, whatever the grants say of cores. All nodes are told, as for cores; until all have
    /// confirmed, the job keeps what it had as well.
    pub(super) fn set_grants(
        &mut self,
        job: JobId,
        by: NegotiationId,
        grants: &BTreeMap<NodeId, Grant>,
        bumped: &mut BumpedNodes<'_>,
    ) -> Result<(), ApplyError> {
        self.settle_grants(job)?;
        self.drop_changes_in_force(job)?;
        let was = |node: &NodeId| Some((*node, self.granted_on(job, *node)?));
        let before: Vec<(NodeId, Grant)> = grants.keys().filter_map(was).collect();
        let known = &mut self.started_mut(job)?.grants;
        for (node, was) in &before {
            // Older journals have grants with cores that the job had given back.
            known.insert(*node, Grant { cores: was.cores.clone(), ..grants[node].clone() });
        }
        let generation = self.started_mut(job)?.generation() + 1;
        self.edit_evolved(job, |shares, evolved| {
            evolved.generation += 1;
            for (node, was) in before {
                // A node without processes sends no confirmation.
                let is_in_force = shares.get(&node) == Some(&Share::Ended);
                evolved.changed.insert(node, GrantChange { was, generation, by, is_in_force });
            }
        })?;
        self.parts_changed(job, by, bumped)
    }

    /// Marks a negotiation that has changed a job's parts of its nodes as handed over, and its nodes as to be told.
    pub(super) fn parts_changed(
        &mut self,
        job: JobId,
        by: NegotiationId,
        bumped: &mut BumpedNodes<'_>,
    ) -> Result<(), ApplyError> {
        let negotiation = self.jobs.get_mut(&job).and_then(|entry| entry.negotiations.as_mut()?.get_mut(by));
        if let Some(negotiation) = negotiation {
            negotiation.is_handed_over = true;
        }
        self.recount(job);
        let alive: Vec<NodeId> = self.started_mut(job)?.alive().collect();
        alive.into_iter().for_each(|node| self.bump(node, bumped));
        Ok(())
    }

    /// Forgets what the job had before changes that are in force everywhere.
    pub(super) fn drop_changes_in_force(&mut self, job: JobId) -> Result<(), ApplyError> {
        let started = self.started_mut(job)?;
        if !started.awaits_agents() {
            started.evolved.iter_mut().for_each(|evolved| evolved.changed.clear());
        }
        Ok(())
    }

    /// Sets the licences of a job on a cluster. Nodes are not involved.
    pub(super) fn set_licences(
        &mut self,
        job: JobId,
        by: NegotiationId,
        cluster: ClusterId,
        licences: &Devices,
    ) -> Result<(), ApplyError> {
        let mut is_evolved = false;
        self.edit_job(job, |entry| {
            let was = entry.licences_on(cluster).clone();
            let Phase::Started(started) = &mut entry.phase else { return };
            let Some(evolved) = &mut started.evolved else { return };
            evolved.licences.insert(cluster, NegotiatedLicences { licences: licences.clone(), was, by });
            is_evolved = true;
        })?;
        if is_evolved { Ok(()) } else { Err(ApplyError::Phase { job, needed: "evolving" }) }
    }
}
