//! Changes by admins: settings, nodes, clusters, and the network links between clusters.

use rms_api::answer::Answer;
use rms_api::audit::AuditEntry;
use rms_api::refusal::Refusal;
use rms_api::subscription::ClusterLink;
use rms_model::identity::check_name;
use rms_model::settings::{AS_OTHERS, Subject};
use rms_model::{Identity, JobId, Mebibytes, NodeAdmin, Role, Settings, Time, hostlist};

use crate::access;
use crate::admit;
use crate::agents::BY_ITSELF;
use crate::executable::too_large;
use crate::jobs::Jobs;
use crate::rights::{self, admins_only};
use crate::state::State;
use crate::state::fact::Fact;
use crate::state::job::Job;
use crate::state::node::Node;
use crate::step::Step;

/// Handles the calls of admins.
pub(crate) struct Admin<'a> {
    pub(crate) jobs: Jobs<'a>,
}

impl Admin<'_> {
    pub(crate) fn set(
        &mut self,
        now: Time,
        step: &mut Step,
        who: &Identity,
        key: &str,
        value: &str,
    ) -> Result<Answer, Refusal> {
        admins_only(who, "change settings")?;
        match Settings::subject_of(key) {
            Some(Subject::Cluster(cluster)) => {
                admit::cluster(self.jobs.state(), cluster)?;
            }
            Some(Subject::User(user)) => check_name(user)?,
            None => {}
        }
        let old = self.jobs.state().settings().get(key)?;
        let mut after = self.jobs.state().settings().clone();
        after.set(key, value)?;
        after.check()?;
        self.check_memory(&after, key, value)?;
        // Recorded as it was said, even if the value stays the same: the next start gives the setting back to the file.
        let is_given_back = value == AS_OTHERS && !key.contains('@');
        let new = if is_given_back { AS_OTHERS.to_owned() } else { after.get(key)? };
        if old != new {
            let change = AuditEntry::of_setting(now, &who.name, key, &old, &new);
            self.jobs.context.record(step, Fact::SettingChanged { change });
            self.jobs.context.name_rows(now, step);
            self.jobs.context.passes.wanted = true;
        }
        Ok(Answer::Done)
    }

    /// Refuses more memory for each CPU than any node has: it would be counted for all jobs that ask for no memory, and
    /// none of them could be submitted.
    fn check_memory(&self, after: &Settings, key: &str, value: &str) -> Result<(), Refusal> {
        let (setting, cluster) = key.split_once('@').map_or((key, None), |(setting, name)| (setting, Some(name)));
        if setting != "memory_per_cpu" {
            return Ok(());
        }
        let memory = cluster.map_or(after.memory_per_cpu, |cluster| after.memory_per_cpu_of(cluster));
        match largest_memory(self.jobs.state(), cluster) {
            Some(largest) if memory > largest => {
                Err(Refusal::MemoryPerCpu { key: key.to_owned(), value: value.to_owned(), largest })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Takes back that an admin drained nodes or took them down. What a node says of itself stays: it would only fail
    /// to start jobs, or start them without what it must enforce.
    pub(crate) fn resume(
        &mut self,
        now: Time,
        step: &mut Step,
        who: &Identity,
        names: &[String],
    ) -> Result<Answer, Refusal> {
        admins_only(who, "change nodes")?;
        let nodes = rights::nodes_named(self.jobs.state(), names)?;
        for node in &nodes {
            let entry = &self.jobs.state().nodes()[node];
            if let NodeAdmin::Drain { reason, by, .. } = &entry.admin
                && by == BY_ITSELF
            {
                return Err(Refusal::NodeInTrouble { node: entry.name.clone(), reason: reason.clone() });
            }
        }
        for node in nodes {
            let trouble = self.jobs.context.troubles.get(&node).cloned();
            let by_itself = |reason| NodeAdmin::Drain { reason, by: BY_ITSELF.to_owned(), since: now };
            let admin = trouble.map_or(NodeAdmin::Enabled, by_itself);
            self.jobs.context.record(step, Fact::NodeAdminChanged { node, admin });
        }
        self.jobs.context.passes.wanted = true;
        Ok(Answer::Done)
    }

    pub(crate) fn set_admin(
        &mut self,
        now: Time,
        step: &mut Step,
        who: &Identity,
        names: &[String],
        admin: NodeAdmin,
    ) -> Result<Answer, Refusal> {
        admins_only(who, "change nodes")?;
        match &admin {
            NodeAdmin::Enabled => {}
            NodeAdmin::Drain { reason, .. } | NodeAdmin::Down { reason, .. } => check_reason(reason)?,
        }
        for node in rights::nodes_named(self.jobs.state(), names)? {
            self.jobs.context.record(step, Fact::NodeAdminChanged { node, admin: admin.clone() });
            match &admin {
                NodeAdmin::Enabled | NodeAdmin::Drain { .. } => {}
                NodeAdmin::Down { reason, by, .. } if self.jobs.state().nodes()[&node].is_connected() => {
                    let reason = set_down(by, reason);
                    let holders: Vec<JobId> = self.jobs.state().nodes()[&node].holders.iter().copied().collect();
                    for job in holders {
                        // The agent ends what runs there; a job that survives the loss of a node survives this, too.
                        if !self.jobs.negotiations().shrink_by_loss(now, step, job, node) {
                            self.jobs.end_lost(now, step, job, node, &reason);
                        }
                    }
                }
                NodeAdmin::Down { reason, by, .. } => {
                    self.jobs.give_up_shares(now, step, node, &set_down(by, reason));
                }
            }
        }
        self.jobs.context.passes.wanted = true;
        Ok(Answer::Done)
    }

    pub(crate) fn remove_nodes(
        &mut self,
        now: Time,
        step: &mut Step,
        who: &Identity,
        names: &[String],
    ) -> Result<Answer, Refusal> {
        admins_only(who, "remove nodes")?;
        let nodes = rights::nodes_named(self.jobs.state(), names)?;
        for node in &nodes {
            let entry = &self.jobs.state().nodes()[node];
            if entry.is_connected() || !entry.holders.is_empty() {
                return Err(Refusal::NodeInUse { node: entry.name.clone() });
            }
        }
        for node in nodes {
            self.jobs.context.forget_sent(node);
            self.jobs.context.troubles.remove(&node);
            let identity = Identity { role: Role::Agent, name: self.jobs.state().nodes()[&node].name.clone() };
            self.jobs.context.record(step, Fact::NodeRemoved { node });
            // The node can join again only with a new token, as any other node.
            let serials = access::valid_serials(self.jobs.state(), |issued| issued.identity == identity);
            access::revoke(self.jobs.context, now, step, serials, &who.name);
        }
        self.jobs.context.passes.wanted = true;
        Ok(Answer::Done)
    }

    /// Removes a cluster that has no nodes and that no job requests any more.
    pub(crate) fn remove_cluster(&mut self, step: &mut Step, who: &Identity, name: &str) -> Result<Answer, Refusal> {
        admins_only(who, "remove clusters")?;
        let cluster = admit::cluster(self.jobs.state(), name)?;
        let in_use = |what: String| Err(Refusal::ClusterInUse { cluster: name.to_owned(), what });
        let nodes: Vec<&str> =
            self.jobs.state().nodes().values().filter(|node| node.cluster == cluster).map(|node| &*node.name).collect();
        if !nodes.is_empty() {
            return in_use(format!("has the nodes {}: remove them first ('rms admin remove')", hostlist::fold(&nodes)));
        }
        let means_it = |entry: &Job| entry.spec.options.iter().any(|request| request.nodes.contains_key(&cluster));
        if let Some((job, _)) = self.jobs.state().jobs().iter().find(|(_, entry)| means_it(entry)) {
            return in_use(format!("is asked for by job {job}: wait for its end, or cancel it"));
        }
        self.jobs.context.record(step, Fact::ClusterRemoved { cluster });
        self.jobs.context.passes.wanted = true;
        Ok(Answer::Done)
    }

    /// Sets the link between two clusters (001: ICINFO).
    pub(crate) fn set_link(
        &mut self,
        now: Time,
        step: &mut Step,
        who: &Identity,
        names: [&str; 2],
        latency_us: u32,
        bandwidth_mbit: u32,
    ) -> Result<Answer, Refusal> {
        admins_only(who, "set what lies between clusters")?;
        let a = admit::cluster(self.jobs.state(), names[0])?;
        let b = admit::cluster(self.jobs.state(), names[1])?;
        if a == b {
            return Err(Refusal::Malformed("a link is between two clusters"));
        }
        let link = ClusterLink { between: (a.min(b), a.max(b)), latency_us, bandwidth_mbit };
        if self.jobs.state().links.get(&link.between) != Some(&link) {
            self.jobs.context.record(step, Fact::ClusterLinkSet { link, at: now, by: who.name.clone() });
            self.jobs.context.passes.wanted = true;
        }
        Ok(Answer::Done)
    }
}

/// Returns the largest memory of a node of this cluster, or of any; `None` if there is no node.
fn largest_memory(state: &State, cluster: Option<&str>) -> Option<Mebibytes> {
    let is_there = |node: &&Node| cluster.is_none_or(|cluster| state.clusters()[&node.cluster] == cluster);
    state.nodes().values().filter(is_there).map(|node| node.inventory.memory).max()
}

/// Checks a reason: it is shown on users' terminals.
fn check_reason(reason: &str) -> Result<(), Refusal> {
    too_large("a reason", reason.len(), MAX_REASON)?;
    if reason.trim().is_empty() {
        return Err(Refusal::Malformed("the reason is empty: state it with --reason"));
    }
    let is_plain = !reason.chars().any(char::is_control);
    if is_plain { Ok(()) } else { Err(Refusal::Malformed("a reason has no control characters")) }
}

/// In bytes, as of a comment on a job.
const MAX_REASON: usize = 1024;

/// Says why the jobs of a node end that an admin has set down.
fn set_down(by: &str, reason: &str) -> String {
    format!("set down by {by}: {reason}")
}

#[cfg(test)]
mod tests;
