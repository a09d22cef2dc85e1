//! Applies facts: the only place where the state changes.

use std::collections::BTreeSet;
use std::sync::Arc;

use rms_api::audit::AuditEntry;
use rms_api::desired::NodeExit;
use rms_model::settings::SettingError;
use rms_model::sharing::asked;
use rms_model::token::TokenState;
use rms_model::{
    Allocation, ClusterId, Generation, JobId, JobSpec, NodeAdmin, NodeId, NodeLink, Outcome, Run, Span, Time,
};
use thiserror::Error;

use super::{AUDIT_KEPT, FreeNodes, Holders, State};
use crate::state::fact::Fact;
use crate::state::job::{Ending, Ghost, Hold, Job, Phase, SOON, Share, StartAnswer, Started};
use crate::state::node::{Node, NodeGhost};

/// A fact that cannot have come from the state it is applied to.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ApplyError {
    #[error("a fact names job {0}, which is not there")]
    Job(JobId),
    #[error("a fact names node {0}, which is not there")]
    Node(NodeId),
    #[error("a fact needs job {job} {needed}, which it is not")]
    Phase { job: JobId, needed: &'static str },
    #[error("a fact changes a setting to what it cannot be")]
    Setting(#[from] SettingError),
}

/// Collects the nodes whose desired states have changed, if anyone needs them.
#[derive(Debug)]
pub(crate) enum BumpedNodes<'a> {
    Recorded(&'a mut BTreeSet<NodeId>),
    /// The caller does not need them.
    Ignored,
}

impl BumpedNodes<'_> {
    fn record(&mut self, node: NodeId) {
        match self {
            BumpedNodes::Recorded(nodes) => {
                nodes.insert(node);
            }
            BumpedNodes::Ignored => {}
        }
    }
}

impl State {
    /// Applies a fact, either newly recorded or [replayed](super::Replay) from the journal. `bumped` gains the nodes
    /// whose desired state has changed.
    ///
    /// # Errors
    /// The fact does not fit the state, which must not be used afterwards.
    pub(crate) fn apply(&mut self, fact: &Fact, bumped: &mut BumpedNodes<'_>) -> Result<(), ApplyError> {
        match fact {
            Fact::ClusterAdded { cluster, name } => {
                self.clusters.insert(*cluster, name.clone());
                if self.settings.allocation_of(name) == Allocation::Cores {
                    self.index.shared.add_cluster(*cluster);
                }
                self.last_cluster = self.last_cluster.max(Some(*cluster));
            }
            Fact::ClusterRemoved { cluster } => {
                // Journals that are older than this field derived the next id from the clusters that existed.
                self.last_cluster = self.last_cluster.max(self.clusters.keys().next_back().copied());
                if let Some(name) = self.clusters.remove(cluster) {
                    self.settings.forget_cluster(&name);
                }
                self.index.shared.remove_cluster(*cluster);
                self.links.retain(|(a, b), _| a != cluster && b != cluster);
                self.ghost_node_time_at.remove(cluster);
            }
            Fact::Audited { entry } => self.keep_audit(entry.clone()),
            Fact::NodeJoined { node, cluster, name, inventory, address, at } => {
                let entry = Node {
                    name: name.clone(),
                    cluster: *cluster,
                    inventory: inventory.clone(),
                    address: address.clone(),
                    admin: NodeAdmin::Enabled,
                    link: NodeLink::Away { since: *at },
                    generation: Generation(1),
                    holders: Default::default(),
                    stale: Vec::new(),
                    ghost: None,
                };
                self.last_node = self.last_node.max(*node);
                self.index.insert_node(*node, &entry);
                self.index.neighbours.insert(*node, &entry, &self.nodes);
                self.nodes.insert(*node, entry);
            }
            Fact::NodeDescribed { node, inventory, address } => self.edit_node(*node, |entry| {
                entry.inventory = inventory.clone();
                entry.address = address.clone();
            })?,
            Fact::NodeAdminChanged { node, admin } => self.edit_node(*node, |entry| entry.admin = admin.clone())?,
            Fact::NodeLinkChanged { node, link } => self.edit_node(*node, |entry| entry.link = *link)?,
            Fact::NodeFenced { node, stale } => {
                self.edit_node(*node, |entry| entry.stale = stale.clone())?;
                self.bump(*node, bumped);
            }
            Fact::NodeGenerationRaised { node, generation } => {
                self.edit_node(*node, |entry| entry.generation = entry.generation.max(*generation))?;
                bumped.record(*node);
            }
            Fact::NodeRemoved { node } => {
                if let Some(entry) = self.nodes.remove(node) {
                    self.index.remove_node(*node, &entry);
                    self.index.neighbours.remove(*node, &entry);
                }
            }
            Fact::SettingChanged { change } => {
                self.settings.set(&change.subject, &change.new)?;
                let (setting, _) = change.subject.split_once('@').unwrap_or((&change.subject, ""));
                if matches!(setting, "policy" | "allocation") {
                    self.forget_promises()?;
                }
                if setting == "allocation" {
                    self.keep_whole_nodes()?;
                    self.rebuild_index();
                }
                self.keep_audit(change.clone());
            }
            Fact::DepthChosen { depth } => self.own_depth = Some(*depth),
            Fact::JobSubmitted { job, at, spec, held } => {
                let hold = held.then(|| Hold { by: spec.owner.0.clone(), since: *at });
                let mut spec = spec.clone();
                let shared = self.index.add_usage(&spec);
                self.index.add_owned(*job, &spec.owner);
                if !Arc::ptr_eq(&shared, &spec.execution.environment) {
                    Arc::make_mut(&mut spec).execution.environment = shared;
                }
                let phase = Phase::Submitted { hold };
                let entry = Job {
                    spec,
                    submitted: *at,
                    requested: None,
                    eligible: None,
                    run: Run(0),
                    phase,
                    ended_before: None,
                    former_runs: Vec::new(),
                    promised: None,
                    launcher: None,
                    negotiations: None,
                };
                self.insert_job(*job, Box::new(entry));
            }
            Fact::JobHeld { job, by, at } => self.edit_job(*job, |entry| {
                entry.phase = Phase::Submitted { hold: Some(Hold { by: by.clone(), since: *at }) };
                entry.promised = None;
            })?,
            Fact::JobReleased { job, by: _, at } => self.edit_job(*job, |entry| {
                entry.phase = Phase::Submitted { hold: None };
                if let Some(launcher) = &mut entry.launcher {
                    launcher.expected_since = *at;
                    launcher.awaited = Span::ZERO;
                }
            })?,
            Fact::JobPriorityChanged { job, priority, by: _, at: _ } => {
                self.edit_job(*job, |entry| Arc::make_mut(&mut entry.spec).priority = *priority)?;
            }
            Fact::JobUpdated { job, spec, environment, wall, by: _, at } => {
                let before = Arc::clone(&self.jobs.get(job).ok_or(ApplyError::Job(*job))?.spec);
                let mut spec = (**spec).clone().with_work_of(&before);
                if let Some(environment) = environment {
                    spec.execution.environment = Arc::clone(environment);
                    spec.execution.environment = self.index.add_usage(&spec);
                }
                self.updated(*job, spec, *wall, *at, bumped)?;
                if environment.is_some() {
                    self.index.remove_usage(&before);
                }
            }
            Fact::RequestSent { job, at } => self.edit_job(*job, |entry| {
                entry.requested.get_or_insert(*at);
                entry.eligible = Some(*at).filter(|at| entry.requested != Some(*at));
                entry.phase = Phase::RequestSent;
            })?,
            Fact::JobsQueued { jobs } => {
                for job in jobs {
                    let is_queued = self.jobs.get(job).is_some_and(Job::is_queued);
                    if !is_queued {
                        return Err(ApplyError::Phase { job: *job, needed: "queued" });
                    }
                    // Its place in the queue is the same.
                    if let Some(entry) = self.jobs.get_mut(job) {
                        entry.phase = Phase::Waiting;
                    }
                    self.index.unseen.remove(job);
                }
            }
            Fact::JobStarted { job, run, at, request, nodes, grants } => {
                let mut has_launcher = false;
                self.edit_job(*job, |entry| {
                    entry.run = *run;
                    let late = entry.promised.take().map_or(Span::ZERO, |promise| at.since(promise.at));
                    if let Some(launcher) = &mut entry.launcher {
                        launcher.answer = None;
                        launcher.awaited = Span::ZERO;
                        has_launcher = true;
                    }
                    // Agents are told nothing until an external launcher says what to start.
                    let told: &[NodeId] = if has_launcher { &[] } else { nodes };
                    entry.phase = Phase::Started(Started {
                        at: *at,
                        request: request.clone(),
                        nodes: nodes.clone(),
                        grants: grants.clone(),
                        takes_whole: false,
                        shares: told.iter().map(|node| (*node, Share::Ordered)).collect(),
                        ending: None,
                        worst_code: 0,
                        usage: Default::default(),
                        ended_at: None,
                        evolved: None,
                        sharing: None,
                        late: if late <= SOON && late < request.wall { late } else { Span::ZERO },
                    });
                })?;
                self.change_holders(nodes.iter().copied(), bumped, !has_launcher, |holders| holders.insert(*job))?;
            }
            Fact::ShareRunning { job, node, since } => {
                self.started_mut(*job)?.shares.insert(*node, Share::Running { since: *since });
            }
            Fact::ShareEnded { job, node, exit, usage, at } => {
                let script_node = self.jobs.get(job).and_then(Job::script_node);
                let started = self.started_mut(*job)?;
                if script_node.is_none_or(|script_node| script_node == *node) {
                    // The last share of a job ended after all others, unless it is reported late.
                    started.ended_at = at.map(|at| started.ended_at.map_or(at, |known| known.max(at)));
                }
                let awaited_agents = started.awaits_agents();
                started.shares.insert(*node, Share::Ended);
                started.usage = started.usage.and(*usage);
                match (exit, &mut started.evolved) {
                    // The exit of processes that were told to leave says nothing about the job.
                    (NodeExit::Overstayed, Some(evolved)) => {
                        evolved.n_violations += u32::from(evolved.leaving.contains_key(node));
                    }
                    (_, Some(evolved)) if evolved.leaving.contains_key(node) => {}
                    (NodeExit::Exited { code }, _) => started.worst_code = started.worst_code.max(*code),
                    (
                        NodeExit::Signaled { .. }
                        | NodeExit::Aborted { .. }
                        | NodeExit::WallTime
                        | NodeExit::Ordered
                        | NodeExit::Vanished { .. }
                        | NodeExit::NotStarted { .. }
                        | NodeExit::Overstayed
                        | NodeExit::OutOfMemory
                        | NodeExit::Violated { .. }
                        | NodeExit::Unsupervised { .. },
                        _,
                    ) => {}
                }
                // A node without processes sends no confirmation that the job keeps to its CPUs.
                self.begin_loan(*job, *node, *at)?;
                if awaited_agents {
                    self.recount(*job);
                }
                self.bump(*node, bumped);
            }
            Fact::JobEnding { job, at, outcome, requeue } => {
                let alive: Vec<NodeId> = self.started_mut(*job)?.alive().collect();
                let ending = Ending { at: *at, outcome: outcome.clone(), requeue: *requeue };
                self.edit_job(*job, |entry| {
                    if let Phase::Started(started) = &mut entry.phase {
                        started.ending = Some(ending);
                    }
                })?;
                for node in alive {
                    self.bump(node, bumped);
                }
            }
            Fact::JobDone { record, ghost_until, negotiations: _, told } => {
                let (job, done_at) = (record.job, told.unwrap_or(record.ended));
                if record.started.is_some() {
                    self.slowdowns.add(record.ended.since(record.eligible), record.request.wall);
                }
                self.settle_charges(job, record.ended);
                let held_nodes = self.jobs.get(&job).is_some_and(|entry| entry.started().is_some());
                if held_nodes && *ghost_until > done_at {
                    let nodes = self.jobs.get(&job).map(|entry| entry.nodes().to_vec()).unwrap_or_default();
                    self.save_parts_as_grants(job, &nodes)?;
                    let ghost = |started: &Started, outcome: &Outcome| Ghost {
                        done_at,
                        until: *ghost_until,
                        request: started.request.clone(),
                        nodes: started.nodes.clone(),
                        grants: started.grants.clone(),
                        outcome: outcome.clone(),
                        parts: Default::default(),
                    };
                    self.edit_job(job, |entry| {
                        entry.negotiations = None;
                        if let Phase::Started(started) = &entry.phase {
                            entry.phase = Phase::Ghost(ghost(started, &record.outcome));
                        }
                    })?;
                } else {
                    self.drop_job(job, bumped)?;
                }
            }
            Fact::GhostExpired { job } => {
                self.count_ghost(*job, None);
                self.drop_job(*job, bumped)?;
            }
            Fact::JobRequeued { job, at } => {
                self.settle_charges(*job, *at);
                let former = self.former_run(*job, *at);
                self.release_nodes(*job, bumped)?;
                self.edit_job(*job, |entry| {
                    entry.ended_before = former.as_ref().map(|former| Box::new(former.outcome.clone()));
                    entry.former_runs.extend(former);
                    entry.eligible = Some(*at);
                    entry.phase = Phase::RequestSent;
                    entry.negotiations = None;
                })?;
            }
            Fact::CourseSet { job, at, course } => self.set_course(*job, *at, course, bumped)?,
            Fact::StageEntered { job, at, gained, freed, course, grants } => {
                self.enter_stage((*job, *at), gained, freed, course, grants, bumped)?;
            }
            Fact::NodesGhosted { job, nodes, at, until } => {
                let ghost = NodeGhost { job: *job, from: *at, until: *until };
                for node in nodes {
                    self.edit_node(*node, |entry| entry.ghost = Some(ghost))?;
                }
            }
            Fact::NodeGhostsExpired { nodes, at } => self.expire_node_ghosts(nodes, *at)?,
            Fact::NodesFreed { job, nodes } => self.free_nodes(*job, nodes, bumped)?,
            Fact::NodesReleased { job, nodes } => self.released(*job, nodes)?,
            Fact::NodesChosen { job, nodes, by: _ } => {
                self.edit_evolved(*job, |_, evolved| evolved.chosen = nodes.clone())?;
            }
            Fact::ProfileChanged { job, evolving, options } => self.edit_job(*job, |entry| {
                let spec = Arc::make_mut(&mut entry.spec);
                spec.evolving = Some(evolving.clone());
                spec.options = options.clone();
            })?,
            Fact::DialogueChanged { job, at, dialogue, asking } => {
                self.dialogue_changed(*job, *at, dialogue, asking.as_deref())?
            }
            Fact::NodesHeld { job, negotiation, nodes, grants } => {
                self.hold_nodes(*job, *negotiation, nodes, grants)?;
            }
            Fact::NodesDeparting { job, at, nodes } => self.depart_nodes(*job, *at, nodes, bumped)?,
            Fact::NodesStay { job } => self.stay(*job, bumped)?,
            Fact::LimitsDeclared { job, declared } => self.declared(*job, declared)?,
            Fact::LossDeclared { job, survives } => self.negotiations_mut(*job)?.survives_loss = *survives,
            Fact::PromiseWarned { job, negotiation, at } => self.warned(*job, *negotiation, *at)?,
            Fact::PromisedNodesLost { job, negotiation, nodes } => self.promised_lost(*job, *negotiation, nodes)?,
            Fact::LoanCalled { job, negotiation, cluster, by } => {
                self.loan_called(*job, *negotiation, *cluster, *by)?
            }
            Fact::LoanEnded { job, negotiation, cluster } => self.loan_ended(*job, *negotiation, *cluster)?,
            Fact::CoresSet { job, negotiation, cores, more, at } => {
                // Older journals have no time.
                at.map_or(Ok(()), |at| self.count_core_time(*job, at))?;
                self.set_cores(*job, *negotiation, cores, more, bumped)?
            }
            Fact::GrantsSet { job, negotiation, grants } => self.set_grants(*job, *negotiation, grants, bumped)?,
            Fact::LicencesSet { job, negotiation, cluster, licences } => {
                self.set_licences(*job, *negotiation, *cluster, licences)?;
            }
            Fact::CoresInForce { job, node, generation } => self.cores_in_force(*job, *node, *generation)?,
            Fact::CpusShared { job, at: _, sharing, grants, wall } => {
                self.share_cpus(*job, sharing, grants, *wall, bumped)?;
            }
            Fact::CpusInForce { job, node, generation, at } => {
                self.cpus_in_force(*job, *node, (*generation, *at), bumped)?;
            }
            Fact::TokenCreated { token } => {
                self.tokens.insert(token.id.clone(), token.clone());
            }
            Fact::TokenUsed { id, at, redeemed } => {
                if let Some(token) = self.tokens.get_mut(id) {
                    token.state = TokenState::Used { at: *at };
                    token.redeemed.clone_from(redeemed);
                }
            }
            Fact::TokenRevoked { id, at, by } => {
                if let Some(token) = self.tokens.get_mut(id) {
                    token.state = TokenState::Revoked { at: *at, by: by.clone() };
                }
            }
            Fact::TokenForgotten { id } => {
                self.tokens.remove(id);
            }
            Fact::CertificateIssued { issued } => {
                self.certificates.insert(issued.serial.clone(), issued.clone());
            }
            Fact::CertificatesRevoked { serials, at, by: _ } => {
                for serial in serials {
                    if let Some(issued) = self.certificates.get_mut(serial) {
                        issued.revoked = Some(*at);
                    }
                }
            }
            Fact::CertificateForgotten { serial } => {
                self.certificates.remove(serial);
            }
            Fact::StartsPromised { starts } => {
                for (job, promise) in starts {
                    let entry = self.jobs.get(job).ok_or(ApplyError::Job(*job))?;
                    let fits =
                        promise.as_ref().is_none_or(|promise| (promise.option_idx as usize) < entry.spec.options.len());
                    if !entry.is_queued() || !fits {
                        return Err(ApplyError::Phase { job: *job, needed: "queued, with the size that is promised" });
                    }
                    if let Some(entry) = self.jobs.get_mut(job) {
                        self.index.change_promise(*job, entry, promise.as_ref());
                        entry.promised.clone_from(promise);
                    }
                }
            }
            Fact::LauncherSubscribed { job, at, spec, filter } => self.subscribed(*job, *at, spec, filter),
            Fact::LauncherLinkChanged { job, link, awaited } => self.edit_launcher(*job, |launcher| {
                launcher.link = *link;
                launcher.awaited = *awaited;
            })?,
            Fact::LauncherRequested { job, at, tag, request, slice } => {
                self.requested(*job, *at, *tag, request, slice)?;
            }
            Fact::LauncherLaunched { job, at, launch } => self.launched(*job, *at, launch, bumped)?,
            Fact::LauncherAccepted { job, at } => {
                let answer = StartAnswer::Accepted { at: *at };
                self.edit_launcher(*job, |launcher| launcher.answer = Some(answer))?;
            }
            Fact::GhostParted { job, until } => self.ghost_parted(*job, until)?,
            Fact::GhostPartExpired { job, cluster } => self.ghost_part_expired(*job, *cluster, bumped)?,
            Fact::ClusterLinkSet { link, at, by } => self.link_set(*link, *at, by),
        }
        Ok(())
    }

    pub(super) fn insert_job(&mut self, job: JobId, entry: Box<Job>) {
        self.last_job = self.last_job.max(job);
        self.index.insert_job(job, &entry, &self.nodes);
        self.jobs.insert(job, entry);
    }

    /// Adds an entry to the audit, dropping an old one if it is full.
    pub(super) fn keep_audit(&mut self, change: AuditEntry) {
        if self.audit.len() >= AUDIT_KEPT {
            // The last change of each setting stays: a restart asks whether an admin or the file has set it.
            let is_old = |(idx, entry): (usize, &AuditEntry)| {
                let is_same = |later: &AuditEntry| later.is_setting() && later.subject == entry.subject;
                !entry.is_setting() || is_same(&change) || self.audit[idx + 1..].iter().any(is_same)
            };
            let old = self.audit.iter().enumerate().position(is_old).unwrap_or(0);
            self.audit.remove(old);
        }
        self.audit.push(change);
    }

    pub(super) fn edit_job(&mut self, job: JobId, edit: impl FnOnce(&mut Job)) -> Result<(), ApplyError> {
        let entry = self.jobs.get_mut(&job).ok_or(ApplyError::Job(job))?;
        self.index.remove_job(job, entry);
        edit(entry);
        self.index.insert_job(job, entry, &self.nodes);
        Ok(())
    }

    pub(super) fn edit_node(&mut self, node: NodeId, edit: impl FnOnce(&mut Node)) -> Result<(), ApplyError> {
        let entry = self.nodes.get_mut(&node).ok_or(ApplyError::Node(node))?;
        let was_usable = entry.is_usable();
        self.index.remove_node(node, entry);
        edit(entry);
        self.index.insert_node(node, entry);
        if entry.is_usable() != was_usable || self.is_shared(self.nodes[&node].cluster) {
            let entry = &self.nodes[&node];
            for job in &entry.holders {
                if let Some(holder) = self.jobs.get(job) {
                    self.index.recount(*job, holder, &self.nodes);
                }
            }
        }
        Ok(())
    }

    /// Changes the holders of nodes. If `is_told`, their desired states change, too. Nodes that were removed meanwhile
    /// are skipped; the error names the last of them.
    pub(super) fn change_holders(
        &mut self,
        nodes: impl Iterator<Item = NodeId>,
        bumped: &mut BumpedNodes<'_>,
        is_told: bool,
        change: impl Fn(&mut Holders),
    ) -> Result<(), ApplyError> {
        let mut outcome = Ok(());
        // Most nodes of a job are of one cluster.
        let mut free: Option<(ClusterId, &mut FreeNodes)> = None;
        for node in nodes {
            let Some(entry) = self.nodes.get_mut(&node) else {
                outcome = Err(ApplyError::Node(node));
                continue;
            };
            let was_held = !entry.holders.is_empty();
            change(&mut entry.holders);
            let is_held = !entry.holders.is_empty();
            if was_held != is_held && entry.is_open() {
                if free.as_ref().is_none_or(|(cluster, _)| *cluster != entry.cluster) {
                    free = self.index.free.get_mut(&entry.cluster).map(|free| (entry.cluster, free));
                }
                match &mut free {
                    Some((_, free)) if is_held => free.remove(node, entry),
                    Some((_, free)) => free.insert(node, entry),
                    None => {}
                }
            }
            if is_told {
                entry.generation = entry.generation.next();
                bumped.record(node);
            }
        }
        outcome
    }

    /// Applies an update of a job's specification.
    fn updated(
        &mut self,
        job: JobId,
        spec: JobSpec,
        wall: Option<Span>,
        at: Time,
        bumped: &mut BumpedNodes<'_>,
    ) -> Result<(), ApplyError> {
        let asked = self.jobs.get(&job).map_or(0, |entry| asked(self.cores_of(entry)));
        self.edit_job(job, |entry| {
            entry.promised = None;
            let not_yet = spec.begin.is_some_and(|begin| begin > at) && entry.launcher.is_none();
            entry.spec = Arc::new(spec);
            match (&mut entry.phase, wall) {
                (Phase::RequestSent | Phase::Waiting, _) if not_yet => entry.phase = Phase::Submitted { hold: None },
                (Phase::Started(started), Some(wall)) => {
                    let (before, end) = (started.request.wall, started.at + wall);
                    started.sharing.iter_mut().for_each(|sharing| sharing.change_wall(at, asked, (before, wall), end));
                    started.request.wall = wall;
                    started.move_end();
                }
                (Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting, _) => {}
                (Phase::Started(_), None) | (Phase::Ghost(_), _) => {}
            }
        })?;
        if wall.is_some() {
            // The job may now hold nodes that others were promised.
            self.forget_promises()?;
            let alive: Vec<NodeId> = self.started_mut(job)?.alive().collect();
            alive.into_iter().for_each(|node| self.bump(node, bumped));
        }
        Ok(())
    }

    /// Drops all promised starts.
    fn forget_promises(&mut self) -> Result<(), ApplyError> {
        let promised: Vec<JobId> = self.index.promises.iter().map(|(_, job)| *job).collect();
        promised.into_iter().try_for_each(|job| self.edit_job(job, |entry| entry.promised = None))
    }

    /// Raises the generation of a node, whose desired state has changed.
    pub(super) fn bump(&mut self, node: NodeId, bumped: &mut BumpedNodes<'_>) {
        // The index does not hold generations, so it needs no care here.
        if let Some(entry) = self.nodes.get_mut(&node) {
            entry.generation = entry.generation.next();
            bumped.record(node);
        }
    }

    pub(super) fn started_mut(&mut self, job: JobId) -> Result<&mut Started, ApplyError> {
        match self.jobs.get_mut(&job).map(|entry| &mut entry.phase) {
            Some(Phase::Started(started)) => Ok(started),
            Some(Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting | Phase::Ghost(_)) => {
                Err(ApplyError::Phase { job, needed: "started" })
            }
            None => Err(ApplyError::Job(job)),
        }
    }

    fn release_nodes(&mut self, job: JobId, bumped: &mut BumpedNodes<'_>) -> Result<(), ApplyError> {
        let nodes: Vec<NodeId> = self.jobs.get(&job).map(|entry| entry.held().collect()).unwrap_or_default();
        self.release(job, nodes.into_iter(), bumped)
    }

    pub(super) fn release(
        &mut self,
        job: JobId,
        nodes: impl Iterator<Item = NodeId>,
        bumped: &mut BumpedNodes<'_>,
    ) -> Result<(), ApplyError> {
        match self.change_holders(nodes, bumped, true, |holders| holders.remove(job)) {
            // A node that was removed meanwhile has nothing to give back.
            Ok(()) | Err(ApplyError::Node(_)) => Ok(()),
            Err(misfit) => Err(misfit),
        }
    }

    fn drop_job(&mut self, job: JobId, bumped: &mut BumpedNodes<'_>) -> Result<(), ApplyError> {
        let Some(entry) = self.jobs.remove(&job) else { return Ok(()) };
        self.index.remove_job(job, &entry);
        self.index.remove_usage(&entry.spec);
        self.index.remove_owned(job, &entry.spec.owner);
        self.release(job, entry.held(), bumped)
    }
}
