//! Answers to queries: the state as lines for people and programs.

mod licences;
mod listed;
mod masks;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rms_api::answer::{
    Answer, ClusterView, CoresLine, CoresView, JobDetail, JobLine, JobState, LimitedNodes, LoanLine, NodeLine,
    NodeState, SharingDetail, Status, ViewAnswer,
};
use rms_api::call::Query;
use rms_api::filter::JobFilter;
use rms_api::negotiate::Declared;
use rms_api::refusal::Refusal;
use rms_model::{
    Allocation, ClusterId, Identity, JobId, Mebibytes, NodeAdmin, NodeId, NodeLink, Profile, Request, Slice, Time,
};

use crate::context::Context;
use crate::launchers::LauncherCounts;
use crate::negotiate::{self, Negotiators};
use crate::plan::{self, Plan};
use crate::published::Published;
use crate::rights::{self, admins_only, may_see_secrets};
use crate::state::job::{Job, Phase};
use crate::state::node::Node;
use crate::state::sharing::Sharing;
use crate::state::{State, threads_of_core};

/// Answers queries about the state.
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
            Query::Queue(filter) => self.queue(now, &filter),
            Query::Job(select) | Query::Explain(select) => {
                let jobs = rights::selected(self.state(), who, &select)?;
                let published = self.context.published(now);
                self.details(&published, now, who, jobs)
            }
            Query::Details(filter) => {
                let published = self.context.published(now);
                let listed = self.listed(&published, now, &filter)?;
                self.details(&published, now, who, listed.into_iter().map(|(job, _)| job).collect())
            }
            Query::Nodes(filter) => {
                let nodes = self.listed_nodes(&filter)?;
                Ok(Answer::Nodes { now, nodes, clusters: self.clusters() })
            }
            Query::Clusters => Ok(Answer::Clusters(self.clusters())),
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
                // The digest of an unused token is confidential, too.
                let blank =
                    |token: &rms_model::token::Token| rms_model::token::Token { digest: [0; 32], ..token.clone() };
                Ok(Answer::Tokens(self.state().tokens.values().map(blank).collect()))
            }
            Query::Certificates => {
                admins_only(who, "list certificates")?;
                Ok(Answer::Certificates(self.state().certificates.values().cloned().collect()))
            }
            Query::Negotiations { job } => negotiate::negotiations(self.state(), now, who, job),
            Query::Masks(of) => self.masks(now, &of),
            Query::Budgets => Ok(Answer::Budgets(negotiate::budgets(self.state(), now, who))),
            Query::Licences => Ok(self.licences()),
            Query::Status => Ok(Answer::Status(self.status(now))),
        }
    }

    fn queue(&mut self, now: Time, filter: &JobFilter) -> Result<Answer, Refusal> {
        let published = self.context.published(now);
        let listed = self.listed(&published, now, filter)?;
        let unknown = listed.iter().filter(|(_, queue_idx)| queue_idx.is_none()).map(|(job, _)| *job);
        let queue_idxs = self.queue_idxs(&published, unknown);
        let place = |job, queue_idx: Option<usize>| queue_idx.or_else(|| queue_idxs.get(&job).copied());
        let line = |(job, queue_idx)| self.line(&published, now, place(job, queue_idx), job);
        let jobs = listed.into_iter().map(line).collect();
        Ok(Answer::Queue { now, planned: published.plan.now, jobs })
    }

    fn clusters(&self) -> Vec<(ClusterId, String)> {
        self.state().clusters().iter().map(|(cluster, name)| (*cluster, name.clone())).collect()
    }

    /// Returns the places in the queue of those jobs that are not in the plan. Walks the queue once: a walk for each
    /// job would take quadratic time.
    fn queue_idxs(&self, published: &Published, jobs: impl Iterator<Item = JobId>) -> BTreeMap<JobId, usize> {
        let state = self.state();
        let is_beyond = |job: &JobId| {
            let entry = state.jobs().get(job).filter(|entry| entry.is_queued());
            entry.is_some_and(|entry| published.place(*job, entry).is_none())
        };
        let wanted: BTreeSet<JobId> = jobs.filter(is_beyond).collect();
        let queued = state.queue().enumerate().map(|(idx, job)| (job, idx));
        queued.filter(|(job, _)| wanted.contains(job)).take(wanted.len()).collect()
    }

    /// Returns all that is known of these jobs, in this order.
    ///
    /// # Errors
    /// A job that is not in the system.
    fn details(&self, published: &Published, now: Time, who: &Identity, jobs: Vec<JobId>) -> Result<Answer, Refusal> {
        let mut details = Vec::new();
        let queue_idxs = self.queue_idxs(published, jobs.iter().copied());
        for job in jobs {
            let entry = self.state().jobs().get(&job).ok_or(Refusal::NoSuchJob(job))?;
            let mut spec = Arc::clone(&entry.spec);
            if !may_see_secrets(who, entry) {
                redact(Arc::make_mut(&mut spec));
            }
            let queue_idx = queue_idxs.get(&job).copied();
            let mut line = self.line(published, now, queue_idx, job);
            let fit = published.placed(job, entry).and_then(plan::Placed::fit);
            line.stages = self.context.stages(entry, fit, now, usize::MAX);
            let next_pass = self.context.next_pass().unwrap_or(now).max(now);
            let place = plan::QueuePosition { queue_idx, placed_idx: published.place(job, entry) };
            line.reason = plan::reason(self.state(), &published.plan, job, place, next_pass);
            let cores = cores_lines(self.state(), entry);
            let grant = |node: &NodeId| {
                let known = &self.state().nodes()[node];
                let part = entry.part_of(*node, &known.inventory);
                Some((known.name.clone(), part.or_else(|| self.state().grant_of_all_cores(entry, known))?))
            };
            let grants = entry.nodes().iter().filter_map(grant).collect();
            let sharing = sharing_detail(self.state(), job, now);
            let (licences, ended_before) = (entry.licences(), entry.ended_before.as_deref().cloned());
            let former_runs = entry.former_runs.clone();
            let limited = self.limited(entry);
            details.push(JobDetail {
                line,
                spec,
                cores,
                grants,
                licences,
                ended_before,
                former_runs,
                sharing,
                limited,
            });
        }
        Ok(Answer::Detail { now, planned: published.plan.now, jobs: details })
    }

    fn limited(&self, entry: &Job) -> Vec<LimitedNodes> {
        let name = |cluster: &ClusterId| self.state().clusters().get(cluster).cloned().unwrap_or_default();
        let loans = entry.negotiations.iter().flat_map(|negotiations| &negotiations.loans);
        loans.map(|loan| LimitedNodes { cluster: name(&loan.cluster), nodes: loan.nodes, until: loan.until }).collect()
    }

    /// Returns the line of a job; `queue_idx` is its place in the queue. The blockers are left to `explain`.
    fn line(&self, published: &Published, now: Time, queue_idx: Option<usize>, job: JobId) -> JobLine {
        let entry = &self.state().jobs()[&job];
        let started = entry.started();
        let request = shown_request(published, job, entry);
        let outcome = match &entry.phase {
            Phase::Started(started) => started.ending.as_ref().map(|ending| ending.outcome.clone()),
            Phase::Ghost(ghost) => Some(ghost.outcome.clone()),
            Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting => None,
        };
        let fit = published.placed(job, entry).and_then(plan::Placed::fit);
        JobLine {
            job,
            run: entry.run,
            labels: entry.spec.labels.public(),
            owner: entry.spec.owner.clone(),
            state: entry.state(),
            priority: entry.spec.priority,
            n_tasks: entry.spec.tasks.total(request.n_nodes()),
            cpus_per_task: entry.spec.cpus_per_task,
            resources: entry.spec.resources.clone(),
            submitted: entry.submitted,
            requested: entry.requested,
            started: started.map(|started| started.at),
            estimate: published.estimate(job, entry, now),
            until: until(entry),
            nodes: self.state().node_names(entry.nodes()),
            reason: self.short_reason(published, now, entry, job, queue_idx),
            outcome,
            stages: self.context.stages(entry, fit, now, 2),
            malleable: self.present_limits(entry, job),
            request: request.into_owned(),
        }
    }

    /// Returns the limits as its program has declared them, or as submitted, but no lower than the number of pinned
    /// nodes.
    fn present_limits(&self, entry: &Job, job: JobId) -> Option<Declared> {
        let submitted = entry.spec.malleable.as_ref()?;
        let declared = entry.negotiations.as_ref().and_then(|negotiations| negotiations.declared.clone());
        let mut limits = declared.unwrap_or_else(|| Declared::from(submitted));
        if limits.most > 0 {
            limits.least = limits.least.max(self.negotiators.n_pinned(self.state(), job));
        }
        Some(limits)
    }

    /// Returns the reason without the walk over all jobs that finds the blockers.
    fn short_reason(
        &self,
        published: &Published,
        now: Time,
        entry: &Job,
        job: JobId,
        queue_idx: Option<usize>,
    ) -> Option<rms_api::answer::Reason> {
        let (state, plan) = (self.state(), &published.plan);
        match published.place(job, entry) {
            Some(placed_idx) => {
                plan::short_reason(state, plan, entry, placed_idx, &plan.placements[placed_idx].outcome)
            }
            None => plan::reason(state, plan, job, plan::QueuePosition { queue_idx, placed_idx: None }, now),
        }
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
                let reason = "its agent is not connected, and expected back".to_owned();
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
            free: self.free(node),
            address: node.address.clone(),
            generation: node.generation,
            jobs: node.holders.iter().copied().collect(),
        }
    }

    /// Returns what no job has of a shared node.
    fn free(&self, node: &Node) -> Option<Slice> {
        let state = self.state();
        if state.settings().allocation_of(&state.clusters()[&node.cluster]) != Allocation::Cores {
            return None;
        }
        let id = state.node_named(&node.name)?;
        let taken: Option<Vec<Slice>> =
            node.holders.iter().map(|job| Some(state.jobs()[job].part_of(id, &node.inventory)?.amount())).collect();
        // A job without a grant has the whole node.
        let Some(taken) = taken.filter(|_| node.ghost.is_none()) else { return Some(Slice::default()) };
        let mut free = Slice::whole(&node.inventory);
        for slice in taken {
            free.cores = free.cores.saturating_sub(slice.cores);
            free.memory = Mebibytes(free.memory.0.saturating_sub(slice.memory.0));
            let left = |(name, count): (&str, u32)| (name.to_owned(), count.saturating_sub(slice.devices.count(name)));
            free.devices = free.devices.iter().map(left).collect();
        }
        Some(free)
    }

    fn view(&mut self, now: Time, job: Option<JobId>) -> Result<Answer, Refusal> {
        let of_job = match job {
            None => None,
            Some(job) => {
                let entry = self.state().jobs().get(&job).ok_or(Refusal::NoSuchJob(job))?;
                match plan::plan_before(self.state(), now, job) {
                    Some(plan) => Some(plan),
                    // An external launcher sees what is left until it has a place in the queue.
                    None if sees_what_is_left(entry) => None,
                    None => {
                        let state = entry.state().word();
                        let hint = "only a waiting job within the queue depth has a view";
                        return Err(Refusal::WrongState { job, state, hint });
                    }
                }
            }
        };
        let (now, mut clusters) = match of_job {
            Some(plan) => (now, layers(self.state(), &plan)),
            None => {
                let (now, clusters) = self.context.published_layers(now, layers);
                (now, Arc::unwrap_or_clone(clusters))
            }
        };
        let has_launcher = |job: JobId| self.state().jobs().get(&job).is_some_and(|entry| entry.launcher.is_some());
        for view in clusters.iter_mut().filter(|_| job.is_some_and(has_launcher)) {
            let choosable = self.state().settings().choosable_in(&view.name, view.capacity);
            view.choosable = (choosable < view.capacity).then_some(choosable);
        }
        Ok(Answer::View(ViewAnswer { now, job, clusters }))
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
            ghost_node_time: self.state().ghost_node_time,
            launchers: self.counts.status(self.context),
            queue_depth: self.state().depth(),
            // The loop around the core knows the disk.
            shortage: None,
        }
    }
}

/// Splits the plan's last view into what started jobs, ghosts, offers and planned jobs hold.
fn layers(state: &State, plan: &Plan) -> Vec<ClusterView> {
    let layer = |(cluster, name): (&ClusterId, &String)| {
        let (mut started, mut ghosts, mut offered) = (Vec::new(), Vec::new(), Vec::new());
        for block in plan::base_blocks(state, plan.now, *cluster) {
            match block {
                (_, true, block) => offered.push(block),
                (JobState::Ghost, false, block) => ghosts.push(block),
                (_, false, block) => started.push(block),
            }
        }
        let base = plan.base.get(cluster).cloned().unwrap_or_default();
        let mut planned = plan.last_view.get(cluster).cloned().unwrap_or_default().cut_before(plan.now);
        planned.subtract(&base.cut_before(plan.now));
        // Several jobs may have parts of a shared node: it is counted once.
        let started = match state.is_shared(*cluster) {
            true => base,
            false => Profile::from_blocks(started),
        };
        let cores = state.is_shared(*cluster).then(|| {
            let taken = plan.base_cores.get(cluster).cloned().unwrap_or_default().cut_before(plan.now);
            let mut planned = plan.last_cores.get(cluster).cloned().unwrap_or_default().cut_before(plan.now);
            planned.subtract(&taken);
            let usable = state.nodes().values().filter(|node| node.cluster == *cluster && node.is_usable());
            CoresView { capacity: usable.map(|node| node.inventory.cores).sum(), taken, planned }
        });
        ClusterView {
            cluster: *cluster,
            name: name.clone(),
            capacity: state.n_usable(*cluster),
            total: state.nodes().values().filter(|node| node.cluster == *cluster).count() as u32,
            started: started.cut_before(plan.now),
            ghosts: Profile::from_blocks(ghosts).cut_before(plan.now),
            planned,
            offered: Profile::from_blocks(offered).cut_before(plan.now),
            choosable: None,
            cores,
        }
    };
    state.clusters().iter().map(layer).collect()
}

/// Returns the granted request, or the one that the plan chose, or the first option.
fn shown_request<'a>(published: &'a Published, job: JobId, entry: &'a Job) -> Cow<'a, Request> {
    match &entry.phase {
        Phase::Started(started) => Cow::Borrowed(&started.request),
        Phase::Ghost(ghost) => Cow::Borrowed(&ghost.request),
        Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting => {
            let planned = published.placed(job, entry).and_then(plan::Placed::request);
            planned.map_or_else(|| Cow::Owned(entry.first_request()), Cow::Borrowed)
        }
    }
}

/// Returns when a started job must end, or when a ghost expires.
fn until(entry: &Job) -> Option<Time> {
    match &entry.phase {
        Phase::Started(started) => Some(started.until()),
        Phase::Ghost(ghost) => Some(ghost.until),
        Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting => None,
    }
}

/// Removes what only the owner and admins may read.
fn redact(spec: &mut rms_model::JobSpec) {
    use rms_model::{Malleable, OnResize, Work};
    spec.execution.environment = Default::default();
    spec.labels = spec.labels.public();
    match &mut spec.execution.work {
        Work::Script { script, args } => {
            *script = String::new();
            args.clear();
        }
        Work::Tasks { argv } => argv.truncate(1),
        Work::Nodes => {}
    }
    if let Some(Malleable { on_resize: OnResize::Hook(command), .. }) = spec.malleable.as_mut() {
        *command = command.split_whitespace().next().unwrap_or_default().to_owned();
    }
}

/// Returns whether the job is shown what the pass leaves, because no pass has a place for it.
fn sees_what_is_left(entry: &Job) -> bool {
    entry.launcher.is_some() && entry.is_before_its_start()
}

/// Returns what a running job has lent and borrowed, if it ever did.
fn sharing_detail(state: &State, job: JobId, now: Time) -> Option<SharingDetail> {
    let entry = state.jobs().get(&job)?;
    let (started, known) = (entry.started()?, entry.sharing()?);
    let name = |node: &NodeId| state.nodes().get(node).map(|node| node.name.clone());
    let is_left = |owner: &Sharing, node: &NodeId| !owner.awaited.contains(node);
    let lent = known.lent.iter().filter_map(|(node, loan)| {
        let (cores, since) = (loan.cores.clone(), loan.since.unwrap_or(known.since));
        Some(LoanLine { node: name(node)?, job: loan.guest, cores, since, is_in_force: is_left(known, node) })
    });
    let borrowed = known.mates.iter().filter_map(|(node, owner)| {
        let cores = started.grants.get(node)?.cores.clone();
        let of_owner = state.jobs().get(owner)?.sharing();
        let since = of_owner.and_then(|owner| owner.lent.get(node)?.since).unwrap_or(known.since);
        let is_in_force = of_owner.is_some_and(|owner| is_left(owner, node));
        Some(LoanLine { node: name(node)?, job: *owner, cores, since, is_in_force })
    });
    let (lent, borrowed) = (lent.collect(), borrowed.collect());
    let Sharing { requested: asked_wall, loans, .. } = state.sharing_at(job, now)?;
    Some(SharingDetail { asked_wall, lent, borrowed, loans })
}

/// Returns the core counts of the job's nodes where they were changed.
fn cores_lines(state: &State, entry: &Job) -> Vec<CoresLine> {
    let Some(started) = entry.started() else { return Vec::new() };
    let line = |node: &NodeId| {
        let is_in_force = started.evolved.as_ref()?.places.get(node)?.cores?.is_in_force;
        let known = &state.nodes()[node];
        let n_cpus = started.cores_on(*node, entry.cpus_given(*node, &known.inventory));
        let n_cores = n_cpus.div_ceil(threads_of_core(&entry.spec, &known.inventory)).min(known.inventory.cores);
        Some(CoresLine { node: known.name.clone(), n_cores, all: known.inventory.cores, is_in_force })
    };
    started.nodes.iter().filter_map(line).collect()
}
