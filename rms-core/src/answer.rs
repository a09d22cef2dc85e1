//! Answers to queries: what is true, put into lines that a person or a program reads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rms_api::answer::{
    Answer, ClusterView, CoresLine, JobDetail, JobLine, JobState, NodeLine, NodeState, Status, ViewAnswer,
};
use rms_api::call::{Query, Select};
use rms_api::negotiate::Declared;
use rms_api::refusal::Refusal;
use rms_model::{ClusterId, Identity, JobId, NodeAdmin, NodeId, NodeLink, Profile, Time};

use crate::context::Context;
use crate::launchers::LauncherCounts;
use crate::negotiate::{self, Negotiators};
use crate::plan::{self, Plan};
use crate::rights::{self, admins_only, may_see_secrets};
use crate::state::State;
use crate::state::job::{Job, Phase};
use crate::state::node::Node;

/// The answers at work.
pub(crate) struct Answers<'a> {
    pub(crate) context: &'a mut Context,
    pub(crate) negotiators: &'a Negotiators,
    pub(crate) counts: &'a LauncherCounts,
}

impl Answers<'_> {
    fn state(&self) -> &State {
        self.context.state()
    }

    pub(crate) fn query(&mut self, now: Time, who: &Identity, query: Query) -> Result<Answer, Refusal> {
        match query {
            Query::Queue => Ok(self.queue(now)),
            Query::Job(select) => self.details(now, who, &select),
            Query::Explain(select) => self.details(now, who, &select),
            Query::Nodes => Ok(self.node_lines(now)),
            Query::View { job } => self.view(now, job),
            Query::Settings => {
                let settings = self.state().settings();
                let value = |key: &str| settings.get(key).expect("every listed key has a value");
                Ok(Answer::Settings(settings.keys().map(|key| (key.clone(), value(&key))).collect()))
            }
            Query::Audit => {
                admins_only(who, "read the audit")?;
                Ok(Answer::Audit(self.state().audit.clone()))
            }
            Query::Tokens => {
                admins_only(who, "list tokens")?;
                // The digest of an open token is worth guarding too.
                let blank =
                    |token: &rms_model::token::Token| rms_model::token::Token { digest: [0; 32], ..token.clone() };
                Ok(Answer::Tokens(self.state().tokens.values().map(blank).collect()))
            }
            Query::Certificates => {
                admins_only(who, "list certificates")?;
                Ok(Answer::Certificates(self.state().certificates.values().cloned().collect()))
            }
            Query::Negotiations { job } => negotiate::negotiations(self.state(), now, who, job),
            Query::Budgets => Ok(Answer::Budgets(negotiate::budgets(self.state(), now, who))),
            Query::Status => Ok(Answer::Status(self.status(now))),
        }
    }

    /// Started jobs and ghosts first, then the queue in its order, then those that are not eligible.
    fn queue(&mut self, now: Time) -> Answer {
        let plan = self.context.estimates(now);
        let holding = self.state().holding().map(|(job, _)| (job, None));
        let queued = self.state().queue().enumerate().map(|(idx, job)| (job, Some(idx)));
        let submitted = |(_, entry): &(&JobId, &Job)| matches!(entry.phase, Phase::Submitted { .. });
        let rest = self.state().jobs().iter().filter(submitted).map(|(job, _)| (*job, None));
        let order = holding.chain(queued).chain(rest);
        let jobs = order.map(|(job, queue_idx)| self.line(&plan, queue_idx, job)).collect();
        Answer::Queue { now, jobs }
    }

    /// Where the jobs stand in the queue, in one walk: a walk for each of them would take as long as all jobs squared.
    fn queue_idxs(&self, jobs: &[JobId]) -> BTreeMap<JobId, usize> {
        let wanted: BTreeSet<JobId> = jobs.iter().copied().collect();
        let queued = self.state().queue().enumerate().map(|(idx, job)| (job, idx));
        queued.filter(|(job, _)| wanted.contains(job)).take(wanted.len()).collect()
    }

    fn details(&mut self, now: Time, who: &Identity, select: &Select) -> Result<Answer, Refusal> {
        let plan = self.context.estimates(now);
        let mut details = Vec::new();
        let selected = rights::selected(self.state(), who, select)?;
        let queue_idxs = self.queue_idxs(&selected);
        for job in selected {
            let entry = self.state().jobs().get(&job).ok_or(Refusal::NoSuchJob(job))?;
            let mut spec = Arc::clone(&entry.spec);
            if !may_see_secrets(who, entry) {
                redact(Arc::make_mut(&mut spec));
            }
            let queue_idx = queue_idxs.get(&job).copied();
            let mut line = self.line(&plan, queue_idx, job);
            let placed = queue_idx.and_then(|idx| plan.placements.get(idx)).and_then(|placed| placed.outcome.fit());
            line.stages = self.context.stages(entry, placed, now, usize::MAX);
            line.reason =
                plan::reason(self.state(), &plan, job, queue_idx, self.context.next_pass().unwrap_or(now).max(now));
            let cores = cores_lines(self.state(), entry);
            details.push(JobDetail { line, spec, cores });
        }
        Ok(Answer::Detail { now, jobs: details })
    }

    /// One line; `queue_idx` is the job's place in the queue. The blockers are left to `explain`.
    fn line(&self, plan: &Plan, queue_idx: Option<usize>, job: JobId) -> JobLine {
        let entry = &self.state().jobs()[&job];
        let placed = queue_idx.and_then(|idx| plan.placements.get(idx)).map(|placement| &placement.outcome);
        let started = entry.started();
        let ghost = match &entry.phase {
            Phase::Ghost(ghost) => Some(ghost),
            Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting | Phase::Started(_) => None,
        };
        let planned = placed.and_then(|placed| placed.request());
        let request = match (started, ghost, planned) {
            (Some(started), _, _) => &started.request,
            (None, Some(ghost), _) => &ghost.request,
            (None, None, Some(request)) => request,
            (None, None, None) => &entry.first_request(),
        };
        let outcome = match (started.and_then(|started| started.ending.as_ref()), ghost) {
            (Some(ending), _) => Some(ending.outcome.clone()),
            (None, Some(ghost)) => Some(ghost.outcome.clone()),
            (None, None) => None,
        };
        let until = match (started, ghost) {
            (Some(started), _) => Some(started.at + started.request.wall),
            (None, ghost) => ghost.map(|ghost| ghost.until),
        };
        JobLine {
            job,
            run: entry.run,
            labels: entry.spec.labels.public(),
            owner: entry.spec.owner.clone(),
            state: entry.state(),
            priority: entry.spec.priority,
            n_tasks: entry.spec.tasks.total(request.n_hosts()),
            cpus_per_task: entry.spec.cpus_per_task,
            submitted: entry.submitted,
            requested: entry.requested,
            request: request.clone(),
            started: started.map(|started| started.at),
            estimate: placed.and_then(|placed| placed.estimate(plan.now)),
            until,
            nodes: self.state().node_names(entry.nodes()),
            reason: self.short_reason(plan, placed, entry, job, queue_idx),
            outcome,
            stages: self.context.stages(entry, placed.and_then(plan::Placed::fit), plan.now, 2),
            malleable: self.present_limits(entry, job),
        }
    }

    /// As it was submitted, but above hosts that its ranks cannot leave.
    fn present_limits(&self, entry: &Job, job: JobId) -> Option<Declared> {
        let mut limits = Declared::from(entry.spec.malleable.as_ref()?);
        if limits.most > 0 {
            limits.least = limits.least.max(self.negotiators.n_kept(self.state(), job));
        }
        Some(limits)
    }

    /// The reason without the walk over all jobs that finding the blockers takes.
    fn short_reason(
        &self,
        plan: &Plan,
        placed: Option<&plan::Placed>,
        entry: &Job,
        job: JobId,
        queue_idx: Option<usize>,
    ) -> Option<rms_api::answer::Reason> {
        match placed {
            Some(placed) if entry.is_queued() => {
                plan::short_reason(self.state(), plan, entry, queue_idx.unwrap_or(plan.placements.len()), placed)
            }
            Some(_) => None,
            None => plan::reason(self.state(), plan, job, queue_idx, plan.now),
        }
    }

    fn node_lines(&self, now: Time) -> Answer {
        let lines = self.state().nodes().values().map(|node| self.node_line(node)).collect();
        let clusters = self.state().clusters().iter().map(|(cluster, name)| (*cluster, name.clone())).collect();
        Answer::Nodes { now, nodes: lines, clusters }
    }

    fn node_line(&self, node: &Node) -> NodeLine {
        let is_ghost = |job: &JobId| self.state().jobs()[job].state() == JobState::Ghost;
        let is_held = !node.holders.is_empty();
        let link_since = match node.link {
            NodeLink::Connected { since } | NodeLink::Away { since } => since,
            NodeLink::Lost { since } | NodeLink::Expected { since } => since,
        };
        let (state, reason, since) = match (&node.admin, node.link) {
            (NodeAdmin::Down { reason, by: _, since }, _) => (NodeState::Down, Some(reason.clone()), *since),
            (_, NodeLink::Lost { since }) => {
                (NodeState::Lost, Some("its agent has been away for too long".to_owned()), since)
            }
            (_, NodeLink::Away { since }) => (NodeState::Away, Some("its agent is not connected".to_owned()), since),
            (_, NodeLink::Expected { since }) => {
                let reason = "its agent has not come back since the server was restarted".to_owned();
                (NodeState::Away, Some(reason), since)
            }
            (NodeAdmin::Drain { reason, by: _, since }, NodeLink::Connected { .. }) => {
                let state = if is_held { NodeState::Draining } else { NodeState::Drained };
                (state, Some(reason.clone()), *since)
            }
            (NodeAdmin::Enabled, NodeLink::Connected { .. }) => match node.holders.first() {
                Some(job) if is_ghost(job) => (NodeState::Ghost, None, link_since),
                Some(_) => (NodeState::Busy, None, link_since),
                None if !node.stale.is_empty() => {
                    (NodeState::Busy, Some("ending jobs that are no longer wanted".to_owned()), link_since)
                }
                None if node.ghost.is_some() => (NodeState::Ghost, None, link_since),
                None => (NodeState::Idle, None, link_since),
            },
        };
        NodeLine {
            name: node.name.clone(),
            cluster: self.state().clusters()[&node.cluster].clone(),
            state,
            reason,
            since,
            inventory: node.inventory.clone(),
            address: node.address.clone(),
            generation: node.generation,
            jobs: node.holders.iter().copied().collect(),
        }
    }

    fn view(&mut self, now: Time, job: Option<JobId>) -> Result<Answer, Refusal> {
        let clusters = match job {
            None => {
                let plan = self.context.estimates(now);
                self.layers(&plan)
            }
            Some(job) => {
                if !self.state().jobs().contains_key(&job) {
                    return Err(Refusal::NoSuchJob(job));
                }
                let plan = plan::plan_before(self.state(), now, job);
                match plan {
                    Some(plan) => self.layers(&plan),
                    // An external launcher sees what is left, until it has a place in the queue.
                    None if sees_what_is_left(&self.state().jobs()[&job]) => {
                        let plan = self.context.estimates(now);
                        self.layers(&plan)
                    }
                    None => {
                        let state = self.state().jobs()[&job].state().word();
                        let hint = "only a waiting job within the queue depth has a view";
                        return Err(Refusal::WrongState { job, state, hint });
                    }
                }
            }
        };
        Ok(Answer::View(ViewAnswer { now, job, clusters }))
    }

    /// The plan's last view, taken apart into what holds it.
    fn layers(&self, plan: &Plan) -> Vec<ClusterView> {
        let layer = |(cluster, name): (&ClusterId, &String)| {
            let (mut started, mut ghosts, mut offered) = (Vec::new(), Vec::new(), Vec::new());
            for block in plan::base_blocks(self.state(), plan.now, *cluster) {
                match block {
                    (_, true, block) => offered.push(block),
                    (JobState::Ghost, false, block) => ghosts.push(block),
                    (_, false, block) => started.push(block),
                }
            }
            let base = plan.base.get(cluster).cloned().unwrap_or_default();
            let mut planned = plan.last_view.get(cluster).cloned().unwrap_or_default().cut_before(plan.now);
            planned.subtract(&base.cut_before(plan.now));
            ClusterView {
                cluster: *cluster,
                name: name.clone(),
                capacity: self.state().n_usable(*cluster),
                total: self.state().nodes().values().filter(|node| node.cluster == *cluster).count() as u32,
                started: Profile::from_blocks(started).cut_before(plan.now),
                ghosts: Profile::from_blocks(ghosts).cut_before(plan.now),
                planned,
                offered: Profile::from_blocks(offered).cut_before(plan.now),
            }
        };
        self.state().clusters().iter().map(layer).collect()
    }

    pub(crate) fn status(&self, now: Time) -> Status {
        let count = |state: JobState| self.state().holding().filter(|(_, entry)| entry.state() == state).count() as u32;
        Status {
            now,
            n_nodes: self.state().nodes().len() as u32,
            n_connected: self.state().nodes().values().filter(|node| node.is_connected()).count() as u32,
            n_waiting: self.state().n_queued() as u32,
            n_started: count(JobState::Started) + count(JobState::Ending),
            n_ghosts: count(JobState::Ghost),
            n_submitted: self.state().last_job.0,
            n_passes: self.context.passes.count,
            last_pass: self.context.passes.last,
            ghost_host_time: self.state().ghost_host_time,
            launchers: self.counts.status(self.context),
        }
    }
}

/// What only the owner and admins may read.
fn redact(spec: &mut rms_model::JobSpec) {
    use rms_model::Work;
    spec.execution.environment = Default::default();
    spec.labels = spec.labels.public();
    match &mut spec.execution.work {
        Work::Script { script, args } => {
            *script = String::new();
            args.clear();
        }
        Work::Tasks { argv } => argv.truncate(1),
        Work::Hosts => {}
    }
}

/// Is it shown what the pass leaves, because no pass has a place for it?
fn sees_what_is_left(entry: &Job) -> bool {
    entry.launcher.is_some() && entry.is_before_its_start()
}

/// The cores of its hosts of which it does not have all.
fn cores_lines(state: &State, entry: &Job) -> Vec<CoresLine> {
    let Some(started) = entry.started() else { return Vec::new() };
    let line = |node: &NodeId| {
        let is_in_force = started.evolved.as_ref()?.places.get(node)?.cores?.is_in_force;
        let host = &state.nodes()[node];
        let (node, all) = (*node, host.inventory.cpus);
        Some(CoresLine { node: host.name.clone(), n_cores: started.cores_on(node, all), all, is_in_force })
    };
    started.nodes.iter().filter_map(line).collect()
}
