//! How the state changes as evolving applications go on from stage to stage.

use std::collections::BTreeMap;

use rms_model::{JobId, NodeId, Time};

use super::apply::Misfit;
use super::{Bumped, State};
use crate::course::{Course, Evolved};
use crate::job::{Phase, Share};
use crate::plan::evolve::cluster_of;

impl State {
    pub(super) fn set_course(
        &mut self,
        job: JobId,
        at: Time,
        course: &Course,
        bumped: &mut Bumped<'_>,
    ) -> Result<(), Misfit> {
        let nodes = self.started_mut(job)?.nodes.clone();
        let first: Vec<_> = nodes.into_iter().map(|node| (node, self.nodes[&node].generation)).collect();
        self.edit_job(job, |entry| {
            let n_tasks = entry.spec.tasks.most_on_a_host(entry.nodes().len() as u32);
            let Phase::Started(started) = &mut entry.phase else { return };
            match &mut started.evolved {
                Some(evolved) => {
                    let is_same_stage = evolved.course.current().start == course.current().start;
                    if !is_same_stage {
                        evolved.turn_page(at);
                    }
                    evolved.course = course.clone();
                }
                None => {
                    let mut evolved = Evolved::new(course.clone());
                    first.iter().for_each(|(node, ordered)| evolved.berth(*node, n_tasks, *ordered));
                    started.evolved = Some(Box::new(evolved));
                }
            }
            started.request.wall = course.end().since(started.at);
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
        job: JobId,
        at: Time,
        gained: &[NodeId],
        freed: &[NodeId],
        course: &Course,
        bumped: &mut Bumped<'_>,
    ) -> Result<(), Misfit> {
        for node in gained {
            self.change_holders(*node, bumped, true, |holders| holders.insert(job))?;
        }
        let ordered: Vec<_> = gained.iter().map(|node| (*node, self.nodes[node].generation)).collect();
        let mut empty = Vec::new();
        self.edit_job(job, |entry| {
            let n_tasks = entry.spec.tasks.most_on_a_host(entry.nodes().len() as u32);
            let Phase::Started(started) = &mut entry.phase else { return };
            let Some(evolved) = &mut started.evolved else { return };
            evolved.turn_page(course.current().start);
            evolved.course = course.clone();
            if !(gained.is_empty() && freed.is_empty()) {
                evolved.generation += 1;
            }
            for (node, ordered) in &ordered {
                evolved.berth(*node, n_tasks, *ordered);
                started.nodes.push(*node);
                started.shares.insert(*node, Share::Ordered);
            }
            started.nodes.retain(|node| !freed.contains(node));
            for node in freed {
                evolved.berths.remove(node);
                evolved.leaving.insert(*node, at);
                if started.shares.get(node) == Some(&Share::Ended) {
                    empty.push(*node);
                }
            }
            evolved.chosen.clear();
            started.request.hosts.insert(cluster_of(&started.request), started.nodes.len() as u32);
            started.request.wall = course.end().since(started.at);
        })?;
        // Everybody is told who the others are now.
        let alive: Vec<NodeId> = self.started_mut(job)?.alive().filter(|node| !gained.contains(node)).collect();
        for node in alive {
            self.bump(node, bumped);
        }
        self.free_hosts(job, &empty, bumped)
    }

    pub(super) fn free_hosts(&mut self, job: JobId, nodes: &[NodeId], bumped: &mut Bumped<'_>) -> Result<(), Misfit> {
        self.edit_evolved(job, |shares, evolved| {
            for node in nodes {
                evolved.leaving.remove(node);
                shares.remove(node);
            }
        })?;
        self.release(job, nodes, bumped)
    }

    /// Of a job that runs and evolves; its shares are given beside what evolves.
    pub(super) fn edit_evolved(
        &mut self,
        job: JobId,
        edit: impl FnOnce(&mut BTreeMap<NodeId, Share>, &mut Evolved),
    ) -> Result<(), Misfit> {
        let started = self.started_mut(job)?;
        match &mut started.evolved {
            Some(evolved) => {
                edit(&mut started.shares, evolved);
                Ok(())
            }
            None => Err(Misfit::Phase { job, needed: "evolving" }),
        }
    }
}
