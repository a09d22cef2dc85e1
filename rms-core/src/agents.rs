//! Handles the reports of agents about their nodes, and nodes whose agents are silent.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use rms_api::desired::AgentHello;
use rms_api::desired::{JobReport, JobStatus, NodeExit, NodeReport};
use rms_api::refusal::Refusal;
use rms_model::identity::check_name;
use rms_model::{Generation, Grant, Indices, Inventory, JobId, NodeAdmin, NodeId, NodeLink, Run, Time};

use crate::effect::Effect;
use crate::jobs::{Jobs, ShareEnd};
use crate::state::fact::Fact;
use crate::state::job::Share;
use crate::step::Step;

/// Handles the events of agents.
pub(crate) struct Agents<'a> {
    pub(crate) jobs: Jobs<'a>,
}

impl Agents<'_> {
    pub(crate) fn agent_connected(
        &mut self,
        now: Time,
        step: &mut Step,
        name: &str,
        hello: AgentHello,
        report: NodeReport,
    ) {
        let (address, inventory, trouble) = (hello.address.clone(), hello.inventory.clone(), hello.trouble.clone());
        let node = match self.admit_agent(now, step, name, hello, report.seen) {
            Ok(node) => node,
            Err(refusal) => {
                step.order(Effect::RefuseAgent { node: name.to_owned(), refusal });
                return;
            }
        };
        if report.seen > self.jobs.state().nodes()[&node].generation {
            self.jobs.context.record(step, Fact::NodeGenerationRaised { node, generation: report.seen.next() });
        }
        self.jobs.context.record(step, Fact::NodeLinkChanged { node, link: NodeLink::Connected { since: now } });
        self.take_in(now, step, node, &report, true);
        self.describe(now, step, node, inventory, address);
        // The node is drained before any pass plans with it. The agent reports when it works again.
        if trouble.is_some() {
            self.agent_troubled(now, step, name, trouble);
        }
        self.jobs.context.resend(node);
        self.jobs.context.passes.wanted = true;
    }

    fn admit_agent(
        &mut self,
        now: Time,
        step: &mut Step,
        name: &str,
        hello: AgentHello,
        seen: Generation,
    ) -> Result<NodeId, Refusal> {
        check_name(&hello.cluster)?;
        if seen > MAX_GENERATION {
            return Err(Refusal::Malformed("the agent says that it acted on a generation which no node can reach"));
        }
        if hello.inventory.cpus == 0 {
            return Err(Refusal::Malformed("a node needs at least one CPU"));
        }
        for feature in &hello.inventory.features {
            check_name(feature)?;
        }
        let AgentHello { cluster: cluster_name, address, inventory, trouble: _ } = hello;
        let known = self.jobs.state().node_named(name);
        if let Some(node) = known {
            let entry = &self.jobs.state().nodes()[&node];
            let home = &self.jobs.state().clusters()[&entry.cluster];
            if *home != cluster_name {
                let (node, known, asked) = (name.to_owned(), home.clone(), cluster_name);
                return Err(Refusal::NodeInAnotherCluster { node, known, asked });
            }
            return Ok(node);
        }
        check_name(name)?;
        let cluster = match self.jobs.state().cluster_named(&cluster_name) {
            Some(cluster) => cluster,
            None => {
                let cluster = self.jobs.state().next_cluster();
                self.jobs.context.record(step, Fact::ClusterAdded { cluster, name: cluster_name });
                cluster
            }
        };
        let node = self.jobs.state().last_node.next();
        let name = name.to_owned();
        let home = format!("cluster {}", self.jobs.state().clusters()[&cluster]);
        self.jobs.context.audit(now, step, format!("agent/{name}"), "node-join", name.clone(), home);
        self.jobs.context.record(step, Fact::NodeJoined { node, cluster, name, inventory, address, at: now });
        Ok(node)
    }

    /// Records what a node reports of itself, unless its jobs have more than that. Such a node gets no job until an
    /// admin has checked it: an agent reports that much less only by mistake.
    fn describe(&mut self, now: Time, step: &mut Step, node: NodeId, inventory: Inventory, address: String) {
        let state = self.jobs.state();
        let entry = &state.nodes()[&node];
        if entry.inventory == inventory && entry.address == address {
            return;
        }
        let grants = entry.holders.iter().filter_map(|job| state.jobs()[job].grants().get(&node));
        let has_room = has_room_for(&inventory, grants);
        let reason = format!(
            "it says that it has {} cores, {} and devices '{}', which is less than its jobs have; restart its agent when they \
             have ended, then resume it",
            inventory.cores, inventory.memory, inventory.devices
        );
        let inventory = if has_room { inventory } else { entry.inventory.clone() };
        let is_enabled = entry.admin == NodeAdmin::Enabled;
        self.jobs.context.record(step, Fact::NodeDescribed { node, inventory, address });
        if !has_room && is_enabled {
            let admin = NodeAdmin::Drain { reason, by: "the server".to_owned(), since: now };
            self.jobs.context.record(step, Fact::NodeAdminChanged { node, admin });
        }
    }

    pub(crate) fn agent_reported(&mut self, now: Time, step: &mut Step, name: &str, report: NodeReport) {
        let Some(node) = self.jobs.state().node_named(name) else { return };
        self.take_in(now, step, node, &report, false);
    }

    /// Drains a node that can start nothing, and resumes it once it can, unless an admin has drained it meanwhile.
    pub(crate) fn agent_troubled(&mut self, now: Time, step: &mut Step, name: &str, reason: Option<String>) {
        let Some(node) = self.jobs.state().node_named(name) else { return };
        match &reason {
            Some(reason) => drop(self.jobs.context.troubles.insert(node, reason.clone())),
            None => drop(self.jobs.context.troubles.remove(&node)),
        }
        let admin = match (&self.jobs.state().nodes()[&node].admin, reason) {
            (NodeAdmin::Enabled, Some(reason)) => NodeAdmin::Drain { reason, by: BY_ITSELF.to_owned(), since: now },
            (NodeAdmin::Drain { reason: old, by, since }, Some(reason)) if by == BY_ITSELF && *old != reason => {
                NodeAdmin::Drain { reason, by: BY_ITSELF.to_owned(), since: *since }
            }
            (NodeAdmin::Drain { by, .. }, None) if by == BY_ITSELF => NodeAdmin::Enabled,
            (NodeAdmin::Enabled, None) | (NodeAdmin::Drain { .. } | NodeAdmin::Down { .. }, _) => return,
        };
        self.jobs.context.record(step, Fact::NodeAdminChanged { node, admin });
        self.jobs.context.passes.wanted = true;
    }

    pub(crate) fn agent_gone(&mut self, now: Time, step: &mut Step, name: &str) {
        let Some(node) = self.jobs.state().node_named(name) else { return };
        if self.jobs.state().nodes()[&node].is_connected() {
            self.jobs.context.agent_away(now, step, node);
            self.jobs.context.passes.wanted = true;
        }
        self.jobs.context.forget_sent(node);
    }

    /// Compares a report with the desired state. A `whole` report names every job on the node, so a job that is missing
    /// has vanished.
    fn take_in(&mut self, now: Time, step: &mut Step, node: NodeId, report: &NodeReport, whole: bool) {
        let known = &self.jobs.state().nodes()[&node].stale;
        let mut stale: BTreeSet<(JobId, Run)> = if whole { BTreeSet::new() } else { known.iter().copied().collect() };
        for JobReport { job, run, status } in &report.jobs {
            let is_wanted = self.jobs.share(*job, *run, node).is_some_and(|share| share != Share::Ended);
            match status {
                JobStatus::Running { since, generation, is_confined } if is_wanted => {
                    if self.jobs.share(*job, *run, node) == Some(Share::Ordered) {
                        self.jobs.context.record(step, Fact::ShareRunning { job: *job, node, since: *since });
                    }
                    self.jobs.negotiations().confinement_reported(now, step, (*job, node), *generation, *is_confined);
                    self.jobs.cpu_confinement_reported(now, step, (*job, node), *generation, *is_confined);
                }
                JobStatus::Starting if is_wanted => {}
                JobStatus::Running { .. } | JobStatus::Starting => {
                    stale.insert((*job, *run));
                }
                JobStatus::Ended { at, exit, usage } => {
                    stale.remove(&(*job, *run));
                    if is_wanted && !self.jobs.context.is_of_earlier_place(*job, node, report.seen) {
                        let at = self.jobs.ended_before(now, *job, node, *at, whole);
                        let end = ShareEnd { exit: exit.clone(), usage: *usage, at };
                        self.jobs.share_ended(now, step, *job, node, end);
                    }
                }
            }
        }
        if whole {
            self.find_vanished(now, step, node, report);
        }
        let stale: Vec<(JobId, Run)> = stale.into_iter().collect();
        if self.jobs.state().nodes()[&node].stale != stale {
            self.jobs.context.record(step, Fact::NodeFenced { node, stale });
            self.jobs.context.passes.wanted = true;
        }
    }

    fn find_vanished(&mut self, now: Time, step: &mut Step, node: NodeId, report: &NodeReport) {
        let holders: Vec<JobId> = self.jobs.state().nodes()[&node].holders.iter().copied().collect();
        for job in holders {
            let run = self.jobs.state().jobs()[&job].run;
            let was_running = matches!(self.jobs.share(job, run, node), Some(Share::Running { .. }));
            let is_reported = report.jobs.iter().any(|report| report.job == job && report.run == run);
            if was_running && !is_reported {
                let exit = NodeExit::Vanished { reason: "the agent knows nothing of it any more".to_owned() };
                self.jobs.share_ended(now, step, job, node, ShareEnd::seen(exit));
            }
        }
    }

    /// Handles a node whose agent has been away for too long.
    pub(crate) fn node_lost(&mut self, now: Time, step: &mut Step, node: NodeId) {
        self.jobs.context.record(step, Fact::NodeLinkChanged { node, link: NodeLink::Lost { since: now } });
        self.jobs.give_up_shares(now, step, node, "its agent did not come back");
        self.jobs.context.passes.wanted = true;
    }
}

/// Returns whether all of these grants fit on the node together.
fn has_room_for<'a>(inventory: &Inventory, mut grants: impl Iterator<Item = &'a Grant>) -> bool {
    let mut memory = 0_u64;
    let is_there = |grant: &Grant| {
        memory = memory.saturating_add(grant.memory.0);
        let below = |indices: &Indices, count: u32| indices.iter().all(|index| index < count);
        let has = |(name, indices): (&String, &Indices)| below(indices, inventory.devices.count(name));
        below(&grant.cores, inventory.cores) && grant.devices.iter().all(has)
    };
    let are_there = grants.all(is_there);
    are_there && memory <= inventory.memory.0
}

/// Named as the cause of the drain of a node that reported that it can start nothing; no user has this name.
pub(crate) const BY_ITSELF: &str = "the node itself";

/// A million changes a second for a hundred thousand years: a higher number from an agent is not accepted.
const MAX_GENERATION: Generation = Generation(1 << 62);
