//! How the state changes as evolving applications go on from stage to stage.

use std::collections::BTreeMap;

use rms_model::sharing::asked;
use rms_model::{ClusterId, Grant, JobId, JobSpec, NodeId, OnResize, Time, Work};

use super::apply::ApplyError;
use super::{BumpedNodes, State};
use crate::state::course::{Course, Evolved, stage_begins};
use crate::state::job::{Phase, SOON, Share, Shares};

impl State {
    pub(super) fn set_course(
        &mut self,
        job: JobId,
        at: Time,
        course: &Course,
        bumped: &mut BumpedNodes<'_>,
    ) -> Result<(), ApplyError> {
        let nodes = self.started_mut(job)?.nodes.clone();
        let first: Vec<_> = nodes.into_iter().map(|node| (node, self.nodes[&node].generation)).collect();
        self.edit_job(job, |entry| {
            let n_tasks = entry.spec.tasks.most_on_a_node(entry.nodes().len() as u32);
            let spread = tasks_per_node(&entry.spec, first.len() as u32);
            let has_stages = entry.spec.evolving.is_some();
            let Phase::Started(started) = &mut entry.phase else { return };
            match &mut started.evolved {
                Some(evolved) => {
                    let is_same_stage = evolved.course.current().start == course.current().start;
                    if !is_same_stage {
                        evolved.record_stage(at);
                    }
                    evolved.course = course.clone();
                }
                None => {
                    let mut evolved = Evolved::new(course.clone());
                    for ((node, ordered), n_here) in first.iter().zip(spread) {
                        match has_stages {
                            true => evolved.place(*node, n_tasks, *ordered),
                            false => evolved.place_with(*node, n_here, *ordered),
                        }
                    }
                    started.evolved = Some(Box::new(evolved));
                }
            }
            started.request.wall = course.end().since(started.at);
            started.note_resize();
        })?;
        // The agents know for how long it may last.
        let alive: Vec<NodeId> = self.started_mut(job)?.alive().collect();
        for node in alive {
            self.bump(node, bumped);
        }
        Ok(())
    }

    pub(super) fn enter_stage(
        &mut self,
        (job, at): (JobId, Time),
        gained: &[NodeId],
        freed: &[NodeId],
        course: &Course,
        grants: &BTreeMap<NodeId, Grant>,
        bumped: &mut BumpedNodes<'_>,
    ) -> Result<(), ApplyError> {
        self.count_core_time(job, stage_begins(at, course))?;
        self.change_holders(gained.iter().copied(), bumped, true, |holders| holders.insert(job))?;
        self.save_parts_as_grants(job, freed)?;
        let nodes = self.nodes_after(job, gained, freed);
        let ordered: Vec<_> = gained.iter().map(|node| (*node, self.nodes[node].generation)).collect();
        let mut empty = Vec::new();
        let asked_before = self.jobs.get(&job).map_or(0, |entry| asked(self.cores_of(entry)));
        self.edit_job(job, |entry| {
            let n_tasks = entry.spec.tasks.most_on_a_node(entry.nodes().len() as u32);
            let has_stages = entry.spec.evolving.is_some();
            let join_idle = joins_idle(&entry.spec);
            let Phase::Started(started) = &mut entry.phase else { return };
            let Some(evolved) = &mut started.evolved else { return };
            let of_first = started.nodes.first().and_then(|node| evolved.places.get(node)?.n_tasks).unwrap_or(0);
            // An application that was asked to leave already knows the nodes without these.
            let is_known = gained.is_empty() && freed.iter().all(|node| evolved.departing.contains_key(node));
            let late = started.late + course.late_after(&evolved.course);
            started.late = if late <= SOON { late } else { started.late };
            evolved.enter_stage(at, course);
            if !is_known {
                evolved.generation += 1;
            }
            for (node, ordered) in &ordered {
                match (has_stages, join_idle) {
                    (true, _) => evolved.place(*node, n_tasks, *ordered),
                    (false, true) => evolved.place_with(*node, 0, *ordered),
                    (false, false) => evolved.place_with(*node, of_first, *ordered),
                }
                started.nodes.push(*node);
                started.shares.insert(*node, Share::Ordered);
            }
            started.nodes.retain(|node| !freed.contains(node));
            for node in freed {
                evolved.places.remove(node);
                evolved.changed.remove(node);
                evolved.departing.remove(node);
                evolved.leaving.insert(*node, at);
                if started.shares.get(node) == Some(&Share::Ended) {
                    empty.push(*node);
                }
            }
            evolved.chosen.clear();
            started.grants.extend(grants.clone());
            started.request.nodes = nodes;
            started.request.wall = course.end().since(started.at);
            started.note_resize();
        })?;
        self.resize_sharing(job, at, asked_before)?;
        self.hand_over(job, at, gained, freed);
        self.recount(job);
        // All nodes are told which other nodes the job has now.
        let alive: Vec<NodeId> = self.started_mut(job)?.alive().filter(|node| !gained.contains(node)).collect();
        for node in alive {
            self.bump(node, bumped);
        }
        self.free_nodes(job, &empty, bumped)
    }

    /// Returns how many nodes of each cluster a job holds once these have come and those have gone.
    fn nodes_after(&self, job: JobId, gained: &[NodeId], freed: &[NodeId]) -> BTreeMap<ClusterId, u32> {
        let mut nodes = BTreeMap::new();
        let before = self.jobs.get(&job).map_or(&[][..], |entry| entry.nodes());
        for node in before.iter().chain(gained).filter(|node| !freed.contains(node)) {
            *nodes.entry(self.nodes[node].cluster).or_default() += 1;
        }
        nodes
    }

    pub(super) fn free_nodes(
        &mut self,
        job: JobId,
        nodes: &[NodeId],
        bumped: &mut BumpedNodes<'_>,
    ) -> Result<(), ApplyError> {
        self.edit_evolved(job, |shares, evolved| {
            for node in nodes {
                evolved.leaving.remove(node);
                evolved.released.remove(node);
                shares.remove(node);
            }
        })?;
        self.started_mut(job)?.grants.retain(|node, _| !nodes.contains(node));
        self.recount(job);
        self.release(job, nodes.iter().copied(), bumped)
    }

    /// Changes the shares and the evolving part of a running job.
    pub(super) fn edit_evolved(
        &mut self,
        job: JobId,
        edit: impl FnOnce(&mut Shares, &mut Evolved),
    ) -> Result<(), ApplyError> {
        let started = self.started_mut(job)?;
        match &mut started.evolved {
            Some(evolved) => {
                edit(&mut started.shares, evolved);
                Ok(())
            }
            None => Err(ApplyError::Phase { job, needed: "evolving" }),
        }
    }
}

/// Returns the number of tasks on each node at the start of a job: blocks, with one more on the first nodes if the
/// number does not divide.
pub(crate) fn tasks_per_node(spec: &JobSpec, n_nodes: u32) -> impl Iterator<Item = u32> + use<> {
    let n_tasks = spec.tasks.total(n_nodes);
    let (least, n_with_more) = (n_tasks / n_nodes.max(1), n_tasks % n_nodes.max(1));
    (0..n_nodes).map(move |idx| least + u32::from(idx < n_with_more))
}

/// Returns whether nothing starts on nodes that join later. This holds for tasks that communicate: they spawn others
/// there. Workers are independent, and scripts use their nodes as they like.
fn joins_idle(spec: &JobSpec) -> bool {
    let are_workers = spec.malleable.as_ref().is_some_and(|malleable| malleable.on_resize == OnResize::Workers);
    match spec.execution.work {
        Work::Tasks { .. } => !are_workers,
        Work::Script { .. } | Work::Nodes => false,
    }
}
