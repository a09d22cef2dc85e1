//! How long ghosts keep the nodes of applications that have ended, and those that running ones have given back (001,
//! §5.3.1: the fair-start delay).

use std::collections::{BTreeMap, BTreeSet};

use rms_model::settings::GhostRule;
use rms_model::{ClusterId, JobId, NodeId, NodeLink, Span, Time};

use crate::context::Context;
use crate::plan::views;
use crate::state::fact::Fact;
use crate::state::job::Phase;
use crate::step::Step;

impl Context {
    pub(crate) fn expire_ghost(&mut self, step: &mut Step, job: JobId) {
        self.record(step, Fact::GhostExpired { job });
        self.passes.wanted = true;
    }

    /// Returns when the ghost of a started job leaves each of its clusters (001, §5.3.1: the fair-start delay).
    pub(crate) fn ghost_untils(&self, now: Time, job: JobId) -> BTreeMap<ClusterId, Time> {
        let Some(started) = self.state().jobs()[&job].started() else { return BTreeMap::new() };
        let settings = self.state().settings();
        let is_same_for_all = settings.fair_start_at.is_empty() && settings.ghosts == GhostRule::Always;
        if is_same_for_all && settings.fair_start.is_zero() {
            return BTreeMap::new();
        }
        if is_same_for_all {
            let first = started.nodes.first().and_then(|node| self.state().nodes().get(node));
            return first.into_iter().map(|node| (node.cluster, now + settings.fair_start)).collect();
        }
        let mut untils = BTreeMap::new();
        for node in &started.nodes {
            let cluster = self.state().nodes()[node].cluster;
            untils.entry(cluster).or_insert_with(|| now + self.fair_start(cluster));
        }
        untils
    }

    /// Splits a ghost: where clusters have delays of their own, it leaves each when that delay is over.
    pub(crate) fn part_ghost(
        &mut self,
        now: Time,
        step: &mut Step,
        job: JobId,
        ghost_until: Time,
        mut untils: BTreeMap<ClusterId, Time>,
    ) {
        untils.retain(|_, until| *until < ghost_until);
        if untils.is_empty() {
            return;
        }
        let at_once = untils.values().filter(|until| **until <= now).count();
        self.record(step, Fact::GhostParted { job, until: untils });
        (0..at_once).for_each(|_| self.expire_next(now, step, job));
    }

    /// Removes the ghost from the cluster whose delay is over, or from all that is left of its nodes.
    pub(crate) fn expire_next(&mut self, now: Time, step: &mut Step, job: JobId) {
        let part = match &self.state().jobs()[&job].phase {
            Phase::Ghost(ghost) => ghost.next_part().filter(|(until, _)| *until <= now),
            Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting | Phase::Started(_) => None,
        };
        match part {
            Some((_, cluster)) => {
                self.record(step, Fact::GhostPartExpired { job, cluster });
                self.passes.wanted = true;
            }
            None => self.expire_ghost(step, job),
        }
    }

    /// Returns how long ghosts keep nodes of a cluster that are given back now.
    fn fair_start(&self, cluster: ClusterId) -> Span {
        let delay = self.state().settings().fair_start_of(&self.state().clusters()[&cluster]);
        let is_kept = !delay.is_zero() && self.keeps_ghosts(cluster);
        if is_kept { delay } else { Span::ZERO }
    }

    /// Returns whether a ghost on this cluster is useful to any launcher.
    fn keeps_ghosts(&self, cluster: ClusterId) -> bool {
        match self.state().settings().ghosts {
            GhostRule::Always => true,
            GhostRule::IfWanted => self.state().with_launcher().any(|(entry, launcher)| {
                entry.is_before_its_start() && views::shown(self.state(), &launcher.filter).contains(&cluster)
            }),
        }
    }

    /// Leaves ghosts on nodes that a running application has given back and that no job holds: they stay visible as
    /// occupied.
    pub(crate) fn leave_ghosts(&mut self, now: Time, step: &mut Step, job: JobId, freed: &[NodeId]) {
        let mut nodes: BTreeMap<ClusterId, Vec<NodeId>> = BTreeMap::new();
        for node in freed {
            let Some(entry) = self.state().nodes().get(node).filter(|entry| entry.holders.is_empty()) else { continue };
            // No job could use a lost node: a ghost would only delay its use once it is back.
            if matches!(entry.link, NodeLink::Lost { .. }) {
                continue;
            }
            nodes.entry(entry.cluster).or_default().push(*node);
        }
        for (cluster, nodes) in nodes {
            let delay = self.fair_start(cluster);
            if !delay.is_zero() {
                self.record(step, Fact::NodesGhosted { job, nodes, at: now, until: now + delay });
            }
        }
    }

    pub(crate) fn free_node_ghosts(&mut self, now: Time, step: &mut Step, nodes: Vec<NodeId>) {
        if !nodes.is_empty() {
            self.record(step, Fact::NodeGhostsExpired { nodes, at: now });
            self.passes.wanted = true;
        }
    }

    /// Returns whether there are ghosts that could have become useless.
    pub(crate) fn has_ghosts_to_end(&self) -> bool {
        match self.state().settings().ghosts {
            GhostRule::Always => false,
            GhostRule::IfWanted => self.state().next_ghost().is_some() || self.state().node_ghosts().next().is_some(),
        }
    }

    /// Ends ghosts early on clusters where no launcher waits any more.
    pub(crate) fn end_unwanted_ghosts(&mut self, now: Time, step: &mut Step) {
        if !self.has_ghosts_to_end() {
            return;
        }
        let clusters = self.state().clusters().keys().copied();
        let unwanted: Vec<ClusterId> = clusters.filter(|cluster| !self.keeps_ghosts(*cluster)).collect();
        if unwanted.is_empty() {
            return;
        }
        let is_unwanted =
            |node: &NodeId| self.state().nodes().get(node).is_some_and(|entry| unwanted.contains(&entry.cluster));
        let nodes: Vec<NodeId> = self.state().node_ghosts().map(|(_, node)| node).filter(is_unwanted).collect();
        self.free_node_ghosts(now, step, nodes);
        let ghosts: Vec<JobId> = self
            .state()
            .holding()
            .filter(|(_, entry)| matches!(entry.phase, Phase::Ghost(_)))
            .map(|(job, _)| job)
            .collect();
        for job in ghosts {
            let Phase::Ghost(ghost) = &self.state().jobs()[&job].phase else { continue };
            let is_unwanted = |cluster: &ClusterId| unwanted.contains(cluster);
            // Only the nodes that the ghost still has: it may have left some of the clusters that it requested.
            let clusters: BTreeSet<ClusterId> =
                ghost.nodes.iter().map(|node| self.state().nodes()[node].cluster).collect();
            if clusters.iter().any(is_unwanted) {
                let until_in = |cluster: &ClusterId| if is_unwanted(cluster) { now } else { ghost.until_in(*cluster) };
                let untils = clusters.iter().map(|cluster| (*cluster, until_in(cluster))).collect();
                let until = ghost.until;
                self.part_ghost(now, step, job, until, untils);
                let is_empty = self.state().jobs().get(&job).is_some_and(|entry| entry.nodes().is_empty());
                if is_empty {
                    self.expire_ghost(step, job);
                }
            }
        }
    }
}
