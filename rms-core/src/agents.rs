//! What agents say of their nodes, and what becomes of nodes that say nothing.

use std::collections::BTreeSet;

use rms_api::desired::AgentHello;
use rms_api::desired::{JobReport, JobStatus, NodeExit, NodeReport};
use rms_api::refusal::Refusal;
use rms_model::identity::check_name;
use rms_model::{Generation, JobId, NodeAdmin, NodeId, NodeLink, Outcome, Run, Time, Usage};

use crate::effect::Effect;
use crate::rms::Rms;
use crate::state::fact::Fact;
use crate::state::job::Share;
use crate::step::Step;

impl Rms {
    pub(crate) fn agent_connected(
        &mut self,
        now: Time,
        step: &mut Step,
        name: &str,
        hello: AgentHello,
        report: NodeReport,
    ) {
        let node = match self.admit_agent(now, step, name, hello, report.seen) {
            Ok(node) => node,
            Err(refusal) => {
                step.order(Effect::RefuseAgent { node: name.to_owned(), refusal });
                return;
            }
        };
        if report.seen > self.state.nodes()[&node].generation {
            self.record(step, Fact::NodeGenerationRaised { node, generation: report.seen.next() });
        }
        self.record(step, Fact::NodeLinkChanged { node, link: NodeLink::Connected { since: now } });
        self.take_in(now, step, node, &report, true);
        self.tell(node);
        self.passes.wanted = true;
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
        if seen > MOST_GENERATIONS {
            return Err(Refusal::Malformed("the agent says that it acted on a generation which no node can reach"));
        }
        if hello.inventory.cpus == 0 {
            return Err(Refusal::Malformed("a node needs at least one CPU"));
        }
        for feature in &hello.inventory.features {
            check_name(feature)?;
        }
        let AgentHello { cluster: cluster_name, address, inventory } = hello;
        let known = self.state.node_named(name);
        if let Some(node) = known {
            let entry = &self.state.nodes()[&node];
            let home = &self.state.clusters()[&entry.cluster];
            if *home != cluster_name {
                let (node, known, asked) = (name.to_owned(), home.clone(), cluster_name);
                return Err(Refusal::NodeInAnotherCluster { node, known, asked });
            }
            if entry.inventory != inventory || entry.address != address {
                self.record(step, Fact::NodeDescribed { node, inventory, address });
            }
            return Ok(node);
        }
        check_name(name)?;
        let cluster = match self.state.cluster_named(&cluster_name) {
            Some(cluster) => cluster,
            None => {
                let cluster = self.state.next_cluster();
                self.record(step, Fact::ClusterAdded { cluster, name: cluster_name });
                cluster
            }
        };
        let node = self.state.last_node.next();
        let name = name.to_owned();
        let home = format!("cluster {}", self.state.clusters()[&cluster]);
        self.audit(now, step, format!("agent/{name}"), "node-join", name.clone(), home);
        self.record(step, Fact::NodeJoined { node, cluster, name, inventory, address, at: now });
        Ok(node)
    }

    pub(crate) fn agent_reported(&mut self, now: Time, step: &mut Step, name: &str, report: NodeReport) {
        let Some(node) = self.state.node_named(name) else { return };
        self.take_in(now, step, node, &report, false);
    }

    /// A node that can start nothing is drained, and resumed once it can, unless an admin has said otherwise meanwhile.
    pub(crate) fn agent_troubled(&mut self, now: Time, step: &mut Step, name: &str, reason: Option<String>) {
        let Some(node) = self.state.node_named(name) else { return };
        let admin = match (&self.state.nodes()[&node].admin, reason) {
            (NodeAdmin::Enabled, Some(reason)) => NodeAdmin::Drain { reason, by: BY_ITSELF.to_owned(), since: now },
            (NodeAdmin::Drain { reason: old, by, since }, Some(reason)) if by == BY_ITSELF && *old != reason => {
                NodeAdmin::Drain { reason, by: BY_ITSELF.to_owned(), since: *since }
            }
            (NodeAdmin::Drain { by, .. }, None) if by == BY_ITSELF => NodeAdmin::Enabled,
            (NodeAdmin::Enabled, None) | (NodeAdmin::Drain { .. } | NodeAdmin::Down { .. }, _) => return,
        };
        self.record(step, Fact::NodeAdminChanged { node, admin });
        self.passes.wanted = true;
    }

    pub(crate) fn agent_gone(&mut self, now: Time, step: &mut Step, name: &str) {
        let Some(node) = self.state.node_named(name) else { return };
        if self.state.nodes()[&node].is_connected() {
            self.record(step, Fact::NodeLinkChanged { node, link: NodeLink::Away { since: now } });
            self.passes.wanted = true;
        }
        self.forget_sent(node);
    }

    /// Compares reality with what should be. A `whole` report names every job on the node, so one that is missing
    /// has vanished.
    fn take_in(&mut self, now: Time, step: &mut Step, node: NodeId, report: &NodeReport, whole: bool) {
        let known = &self.state.nodes()[&node].stale;
        let mut stale: BTreeSet<(JobId, Run)> = if whole { BTreeSet::new() } else { known.iter().copied().collect() };
        for JobReport { job, run, status } in &report.jobs {
            let is_wanted = self.share(*job, *run, node).is_some_and(|share| share != Share::Ended);
            match status {
                JobStatus::Running { since, generation, is_confined } if is_wanted => {
                    if self.share(*job, *run, node) == Some(Share::Ordered) {
                        self.record(step, Fact::ShareRunning { job: *job, node, since: *since });
                    }
                    self.confined(now, step, (*job, node), *generation, *is_confined);
                }
                JobStatus::Starting if is_wanted => {}
                JobStatus::Running { .. } | JobStatus::Starting => {
                    stale.insert((*job, *run));
                }
                JobStatus::Ended { at: _, exit, usage } => {
                    stale.remove(&(*job, *run));
                    if is_wanted && !self.is_of_earlier_place(*job, node, report.seen) {
                        self.share_ended(now, step, *job, node, exit.clone(), *usage);
                    }
                }
            }
        }
        if whole {
            self.find_vanished(now, step, node, report);
        }
        let stale: Vec<(JobId, Run)> = stale.into_iter().collect();
        if self.state.nodes()[&node].stale != stale {
            self.record(step, Fact::NodeFenced { node, stale });
            self.passes.wanted = true;
        }
    }

    fn find_vanished(&mut self, now: Time, step: &mut Step, node: NodeId, report: &NodeReport) {
        let holders: Vec<JobId> = self.state.nodes()[&node].holders.iter().copied().collect();
        for job in holders {
            let run = self.state.jobs()[&job].run;
            let was_running = matches!(self.share(job, run, node), Some(Share::Running { .. }));
            let is_reported = report.jobs.iter().any(|report| report.job == job && report.run == run);
            if was_running && !is_reported {
                let exit = NodeExit::Vanished { reason: "the agent knows nothing of it any more".to_owned() };
                self.share_ended(now, step, job, node, exit, Usage::default());
            }
        }
    }

    fn share(&self, job: JobId, run: Run, node: NodeId) -> Option<Share> {
        let entry = self.state.jobs().get(&job)?;
        let started = entry.started()?;
        (entry.run == run).then(|| started.shares.get(&node).copied()).flatten()
    }

    /// Its agent has been away for too long.
    pub(crate) fn node_lost(&mut self, now: Time, step: &mut Step, node: NodeId) {
        self.record(step, Fact::NodeLinkChanged { node, link: NodeLink::Lost { since: now } });
        self.give_up_shares(now, step, node);
        self.passes.wanted = true;
    }

    /// Ends the jobs of a node that cannot be reached; their shares there count as ended. Should the agent come
    /// back with them, they are fenced.
    pub(crate) fn give_up_shares(&mut self, now: Time, step: &mut Step, node: NodeId) {
        let holders: Vec<JobId> = self.state.nodes()[&node].holders.iter().copied().collect();
        for job in holders {
            let run = self.state.jobs()[&job].run;
            let is_alive = self.share(job, run, node).is_some_and(|share| share != Share::Ended);
            let is_bare = self.state.jobs()[&job].started().is_some_and(|started| started.shares.is_empty());
            if is_alive {
                let exit = NodeExit::Vanished { reason: "the node is lost".to_owned() };
                self.share_ended(now, step, job, node, exit, Usage::default());
            } else if is_bare {
                self.end_lost(now, step, job, node);
            }
        }
    }

    /// The job ends, or waits again, because `node` is not to be had any more.
    pub(crate) fn end_lost(&mut self, now: Time, step: &mut Step, job: JobId, node: NodeId) {
        let outcome = Outcome::NodeLost { node: self.state.nodes()[&node].name.clone() };
        self.end_lost_as(now, step, job, node, outcome);
    }

    /// The same for another reason, which the job's record tells.
    pub(crate) fn end_lost_as(&mut self, now: Time, step: &mut Step, job: JobId, node: NodeId, outcome: Outcome) {
        // What it only may get, or what has not come yet, is no part of it.
        if self.is_awaited(job, node) {
            self.arrival_failed(now, step, job, node);
            return;
        }
        let entry = &self.state.jobs()[&job];
        let is_promised = entry.promised_hosts().any(|promised| promised == node);
        let is_running = entry.started().is_some_and(|started| started.ending.is_none() && !started.is_leaving(node));
        if is_running && !is_promised {
            let requeue = entry.spec.may_run_again(self.state.settings().lost_policy);
            self.end(now, step, job, outcome, requeue);
        }
    }
}

/// Who has drained a node that said that it can start nothing; no person is called so.
const BY_ITSELF: &str = "the node itself";

/// A million changes a second for a hundred thousand years: an agent that names more does not count.
const MOST_GENERATIONS: Generation = Generation(1 << 62);
