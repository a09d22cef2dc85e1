//! How the state changes as running applications get cores on their nodes and give some back.

use std::collections::BTreeMap;

use negotiation::NegotiationId;
use rms_model::{FormerRun, Grant, Granted, Indices, Inventory, JobId, JobSpec, Mebibytes, NodeId, Slice, Time};

use super::{ApplyError, BumpedNodes, State, threads_of_core};
use crate::state::course::{CoreTime, Cores};
use crate::state::job::{Job, Phase, Share, Started};
use crate::state::sharing::millis;

impl Job {
    /// Returns the part of a held node that no other job may have; `None`: all of it. Cores that the job gives back
    /// remain its own until all agents have confirmed that its processes keep to the others.
    pub fn part_of(&self, node: NodeId, inventory: &Inventory) -> Option<Grant> {
        match &self.phase {
            Phase::Started(started) => started.part_of(&self.spec, node, inventory),
            Phase::Ghost(_) | Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting => {
                self.grants().get(&node).cloned()
            }
        }
    }
}

impl Started {
    pub(super) fn part_of(&self, spec: &JobSpec, node: NodeId, inventory: &Inventory) -> Option<Grant> {
        self.without_lent(spec, node, inventory, self.own_part_of(spec, node, inventory))
    }

    /// Returns the part of a node that no other job may have, including the cores that it lends.
    pub(super) fn own_part_of(&self, spec: &JobSpec, node: NodeId, inventory: &Inventory) -> Option<Grant> {
        let Some(evolved) = &self.evolved else { return self.grants.get(&node).cloned() };
        let part = self.cores_part(spec, node, inventory)?;
        // Its processes may still use what it gives back, and what cannot be applied is given back to it.
        let before = evolved.changed.get(&node).filter(|_| self.awaits_agents());
        Some(match before {
            Some(changed) => part.with_rest_of(&changed.was),
            None => part,
        })
    }

    /// Returns the part with the memory and the devices that were last sent to its agent.
    fn cores_part(&self, spec: &JobSpec, node: NodeId, inventory: &Inventory) -> Option<Grant> {
        let granted = self.grants.get(&node);
        // No agent has confirmed this for a lost node, where its processes may still run.
        let settled = self.cores(node).filter(|cores| cores.is_in_force && !self.awaits_agents());
        let Some(cores) = settled else { return granted.cloned() };
        let n_kept = cores.n_cores.div_ceil(threads_of_core(spec, inventory));
        if granted.is_none() && n_kept >= inventory.cores {
            return None;
        }
        let mut part = granted.cloned().unwrap_or_else(|| Grant::whole(inventory));
        // The agent keeps the first cores for it.
        part.cores = part.cores.iter().take(n_kept as usize).collect();
        Some(part)
    }
}

impl State {
    /// Returns what a job that ends has of its nodes, and its core time until `ended`; `None` if it has not started.
    pub(crate) fn granted(&self, entry: &Job, ended: Time) -> Option<Granted> {
        let started = entry.started()?;
        let mut granted = Granted { licences: entry.licences(), ..Granted::default() };
        for node in &started.nodes {
            let known = self.nodes.get(node)?;
            let inventory = &known.inventory;
            let part = started.own_part_of(&entry.spec, *node, inventory);
            let part = part.or_else(|| self.grant_of_all_cores(entry, known));
            granted.whole_nodes += u32::from(part.is_none());
            let Slice { cores, memory, devices } = part.map_or_else(|| Slice::whole(inventory), |part| part.amount());
            granted.cores = granted.cores.saturating_add(cores);
            granted.memory = Mebibytes(granted.memory.0.saturating_add(memory.0));
            devices.iter().for_each(|(name, count)| granted.devices.add(name, count));
        }
        let loans = self.loans_at(started, ended).unwrap_or_default();
        let held = self.own_core_time(entry, ended)?;
        granted.core_time = held.saturating_add(loans.borrowed).saturating_sub(loans.lent);
        Some(granted)
    }

    /// Returns what the history remembers of the run of a job that returns to the queue.
    pub(super) fn former_run(&self, job: JobId, at: Time) -> Option<FormerRun> {
        let entry = self.jobs.get(&job)?;
        let started = entry.started()?;
        let ended = started.ended_at.unwrap_or(at);
        Some(FormerRun {
            run: entry.run,
            started: started.at,
            ended,
            outcome: started.ending.as_ref()?.outcome.clone(),
            nodes: self.node_names(&started.nodes),
            usage: started.usage,
            core_time: self.granted(entry, ended).map_or(0, |granted| granted.core_time),
            loans: self.loans_at(started, ended),
        })
    }

    /// Returns the core time of a job on its own cores, in core-milliseconds: those that it lends count, those that it
    /// borrows do not.
    fn own_core_time(&self, entry: &Job, until: Time) -> Option<u64> {
        let started = entry.started()?;
        let counted = started.evolved.as_ref().and_then(|evolved| evolved.counted);
        // Nodes that changed in an older version had, on average, as many cores as its present ones.
        let held = started.evolved.as_ref().filter(|_| counted.is_none()).and_then(|evolved| evolved.history(until));
        let held = held.map(|held| {
            let stages = held.stages().iter();
            let node_time = stages.map(|held| u64::from(held.nodes).saturating_mul(millis(held.span))).sum::<u64>();
            node_time / started.nodes.len().max(1) as u64
        });
        let mut core_time = counted.map_or(0, |counted| counted.spent);
        for node in &started.nodes {
            let inventory = &self.nodes.get(node)?.inventory;
            let part = started.own_part_of(&entry.spec, *node, inventory);
            let cores = part.map_or(inventory.cores, |part| part.cores.len());
            // While it was a guest there, it had only what it borrowed.
            let own_since = started.guest_until(*node, until).unwrap_or(started.at);
            let took = match (counted, held) {
                (Some(counted), _) => millis(until.since(own_since.max(counted.until))),
                (None, Some(held)) => held.saturating_sub(millis(own_since.since(started.at))),
                (None, None) => millis(until.since(own_since)),
            };
            core_time = core_time.saturating_add(took.saturating_mul(cores.into()));
        }
        Some(core_time)
    }

    /// Counts the core time of an application until its own cores change.
    pub(super) fn count_core_time(&mut self, job: JobId, until: Time) -> Result<(), ApplyError> {
        let entry = self.jobs.get(&job).ok_or(ApplyError::Job(job))?;
        if entry.started().is_some_and(|started| started.evolved.is_some())
            && let Some(spent) = self.own_core_time(entry, until)
        {
            self.edit_evolved(job, |_, evolved| evolved.counted = Some(CoreTime { spent, until }))?;
        }
        Ok(())
    }

    /// Changes a job's cores. All its nodes are told, because the hostfile of a job must be the same on each.
    pub(super) fn set_cores(
        &mut self,
        job: JobId,
        by: NegotiationId,
        cores: &[(NodeId, u32)],
        more: &BTreeMap<NodeId, Indices>,
        bumped: &mut BumpedNodes<'_>,
    ) -> Result<(), ApplyError> {
        let entry = self.jobs.get(&job).ok_or(ApplyError::Job(job))?;
        let given: Vec<u32> =
            cores.iter().map(|(node, _)| entry.cpus_given(*node, &self.nodes[node].inventory)).collect();
        self.settle_grants(job)?;
        self.drop_changes_in_force(job)?;
        let entry = &self.jobs[&job];
        let all_cores = |(node, _): &(NodeId, u32)| {
            let is_granted = entry.grants().contains_key(node);
            let grant = self.nodes.get(node).filter(|_| !is_granted);
            Some((*node, grant.and_then(|known| self.grant_of_all_cores(entry, known))?))
        };
        // Others can use what it never asked for once they can have cores.
        let grants: Vec<(NodeId, Grant)> = cores.iter().filter_map(all_cores).collect();
        let started = self.started_mut(job)?;
        started.grants.extend(grants);
        started.note_resize();
        let generation = started.generation() + 1;
        let grants = &mut started.grants;
        for (node, more) in more {
            if let Some(grant) = grants.get_mut(node) {
                grant.cores.insert_all(more);
            }
        }
        self.edit_evolved(job, |shares, evolved| {
            evolved.generation += 1;
            for ((node, n_cores), all) in cores.iter().zip(given) {
                let Some(place) = evolved.places.get_mut(node) else { continue };
                let was = place.cores.map_or(all, |cores| cores.n_cores);
                let n_cores = *n_cores;
                // A node without processes sends no confirmation.
                let is_in_force = shares.get(node) == Some(&Share::Ended);
                place.cores = Some(Cores { n_cores, was, generation, by, is_in_force });
            }
        })?;
        self.parts_changed(job, by, bumped)
    }

    /// Records that the agent has applied everything up to this generation.
    pub(super) fn cores_in_force(&mut self, job: JobId, node: NodeId, generation: u32) -> Result<(), ApplyError> {
        self.edit_evolved(job, |_, evolved| {
            let cores = evolved.places.get_mut(&node).and_then(|place| place.cores.as_mut());
            if let Some(cores) = cores.filter(|cores| cores.generation <= generation) {
                cores.is_in_force = true;
            }
            let changed = evolved.changed.get_mut(&node).filter(|changed| changed.generation <= generation);
            changed.into_iter().for_each(|changed| changed.is_in_force = true);
        })?;
        self.recount(job);
        Ok(())
    }

    /// Removes cores that the job has given back from its grants of all nodes, before a change that the agents are to
    /// confirm: until they have, the job keeps all of its grants, and others may have those cores.
    pub(super) fn settle_grants(&mut self, job: JobId) -> Result<(), ApplyError> {
        let started = self.started_mut(job)?;
        if started.awaits_agents() {
            // What is being given back is not free yet.
            return Ok(());
        }
        let nodes = started.nodes.clone();
        self.save_parts_as_grants(job, &nodes)
    }

    /// Stores the present parts as grants: cores given back on these nodes must not become the job's again when it gets
    /// other cores or leaves the nodes.
    pub(super) fn save_parts_as_grants(&mut self, job: JobId, nodes: &[NodeId]) -> Result<(), ApplyError> {
        let entry = self.jobs.get(&job).ok_or(ApplyError::Job(job))?;
        let part = |node: &NodeId| {
            let known = self.nodes.get(node)?;
            // Others may have come while the nodes of this cluster were shared.
            let is_shared = self.is_shared(known.cluster)
                || (known.holders.len() > 1
                    && entry.started()?.own_part_of(&entry.spec, *node, &known.inventory).is_some());
            entry.part_of(*node, &known.inventory).filter(|_| is_shared).map(|part| (*node, part))
        };
        let parts: Vec<(NodeId, Grant)> = nodes.iter().filter_map(part).collect();
        self.started_mut(job)?.grants.extend(parts);
        Ok(())
    }

    /// Updates the index after a job's part of shared nodes has changed, and nothing else that is indexed.
    pub(super) fn recount(&mut self, job: JobId) {
        if let Some(entry) = self.jobs.get(&job) {
            self.index.recount(job, entry, &self.nodes);
        }
    }
}
