//! Handles the calls of external launchers for their applications, and checks who may make them (001, §4.2 and §5.3.1).

mod rate;
mod requests;
mod status;
#[cfg(test)]
mod tests;
mod timeouts;

use rms_model::identity::check_name;
use rms_model::job::TaskCount;
use rms_model::{Identity, JobId, JobSpec, NodeId, Outcome, Owner, Role, Slice, Span, Time, Work};

pub(crate) use status::LauncherCounts;

use rms_api::refusal::Refusal;
use rms_api::subscription::{Filter, Launchable, LauncherAnswer, LauncherCall, MAX_SLICES, Notice, Subscription, Tag};

use crate::admit;
use crate::effect::Effect;
use crate::event::Ticket;
use crate::executable;
use crate::jobs::Jobs;
use crate::notices::launcher_of;
use crate::plan::views;
use crate::quota::{self, SubmitRates};
use crate::rights::{check_priority, not_allowed, wrong_state};
use crate::state::fact::Fact;
use crate::state::job::{Job, Launcher, LauncherLink, Phase, StartAnswer, Started};
use crate::step::Step;

/// Handles the calls and connections of external launchers.
pub(crate) struct Launchers<'a> {
    pub(crate) jobs: Jobs<'a>,
    pub(crate) counts: &'a mut LauncherCounts,
    pub(crate) submit_rates: &'a mut SubmitRates,
}

impl Launchers<'_> {
    pub(crate) fn handle_launcher_call(
        &mut self,
        now: Time,
        step: &mut Step,
        ticket: Ticket,
        who: &Identity,
        call: LauncherCall,
    ) {
        // The consequences of a call are sent after its answer.
        let mut after = Step::default();
        let answer = self.launcher_call(now, step, &mut after, who, call);
        self.counts.count(&answer);
        step.order(Effect::LauncherAnswer { ticket, answer });
        step.merge(after);
    }

    fn launcher_call(
        &mut self,
        now: Time,
        before: &mut Step,
        step: &mut Step,
        who: &Identity,
        call: LauncherCall,
    ) -> Result<LauncherAnswer, Refusal> {
        if let Some(job) = call.application() {
            self.may_speak_for(who, job)?;
            self.count_call(now, step, job)?;
        }
        match call {
            LauncherCall::Subscribe(subscription) => self.subscribe(now, step, who, *subscription),
            LauncherCall::Attach { job } => self.attach(now, before, step, job),
            LauncherCall::Clusters { job } => Ok(LauncherAnswer::Clusters(self.cluster_infos(job))),
            LauncherCall::Request { job, wish } => self.request(now, step, job, wish),
            LauncherCall::Launch { job, tag, launch } => self.launch_work(now, step, who, (job, tag), *launch),
            LauncherCall::Accept { job, tag } => self.accept(now, step, job, tag),
            LauncherCall::Finish { job, tag, code } => self.finish(now, step, job, tag, code),
        }
    }

    /// Creates an application for a launcher (001: subscribe).
    fn subscribe(
        &mut self,
        now: Time,
        step: &mut Step,
        who: &Identity,
        subscription: Subscription,
    ) -> Result<LauncherAnswer, Refusal> {
        match who.role {
            Role::User | Role::Admin => {}
            Role::Server | Role::Agent | Role::Job => {
                return Err(not_allowed(who, "subscribe", "users and admins may"));
            }
        }
        let Subscription { labels, filter, priority, malleable } = subscription;
        check_priority(who, priority)?;
        let max = self.jobs.state().settings().max_jobs;
        if self.jobs.state().jobs().len() >= max as usize {
            return Err(Refusal::SystemFull { max });
        }
        admit::check_labels(&labels)?;
        self.check_filter(&filter)?;
        if let Some(limits) = &malleable {
            // What will be launched is not known yet; it is checked at the launch.
            admit::check_limits(limits, &Work::Tasks { argv: Vec::new() })?;
        }
        let job = self.jobs.state().last_job.next();
        let spec = JobSpec {
            labels,
            constraint: filter.constraint.clone(),
            priority,
            // A requeued execution would be another start, unknown to its launcher.
            requeue: Some(false),
            malleable,
            ..JobSpec::of(Owner(who.name.clone()), Work::Nodes, Vec::new())
        };
        quota::check_quota(self.jobs.state(), who, &spec)?;
        // A filter that another launcher watches already costs no pass more.
        if !self.jobs.context.streams.watches(&filter) {
            quota::check_slices(self.jobs.state(), who, &filter)?;
        }
        self.submit_rates.check(
            self.jobs.context.state(),
            now,
            who,
            &spec.execution.work,
            &spec.execution.environment,
        )?;
        self.jobs.context.streams.open(job, &filter);
        self.jobs.context.record(step, Fact::LauncherSubscribed { job, at: now, spec: Box::new(spec), filter });
        self.jobs.context.tell_first_view(now, step, job);
        let request_until = self.jobs.state().request_until(&self.jobs.state().jobs()[&job]);
        Ok(LauncherAnswer::Subscribed { job, request_until, now: Some(now) })
    }

    /// Checks that what a filter names exists, and that some cluster meets it.
    fn check_filter(&self, filter: &Filter) -> Result<(), Refusal> {
        admit::check_lists(filter.clusters.len(), &filter.constraint)?;
        filter.constraint.features.iter().try_for_each(|feature| check_name(feature))?;
        if filter.slices.len() > MAX_SLICES || filter.slices.iter().any(Slice::is_of_whole_nodes) {
            return Err(Refusal::Malformed("a filter has at most 8 slices, of one core or more each"));
        }
        if self.jobs.state().nodes().is_empty() {
            return Err(Refusal::NoNodes);
        }
        filter.clusters.iter().try_for_each(|name| admit::cluster(self.jobs.state(), name).map(|_| ()))?;
        admit::check_features(self.jobs.state(), &filter.constraint)?;
        admit::check_node_names(self.jobs.state(), &filter.constraint)?;
        if views::shown(self.jobs.state(), filter).is_empty() {
            let wanted = filter.least_nodes.max(1);
            let (mut constraint, possible) = (requests::describe(&filter.constraint), self.nodes_meeting(filter));
            if !filter.total_memory.is_none() {
                constraint.push_str(&format!(" in a cluster with {} of memory in all", filter.total_memory));
            }
            return Err(Refusal::TooManyNodes { wanted, constraint, possible });
        }
        Ok(())
    }

    /// Attaches a launcher to its application again, after a restart or a lost connection.
    fn attach(&mut self, now: Time, before: &mut Step, step: &mut Step, job: JobId) -> Result<LauncherAnswer, Refusal> {
        let entry = &self.jobs.state().jobs()[&job];
        if let Phase::Ghost(_) = &entry.phase {
            return Err(wrong_state(job, "done", "there is nothing left to speak for"));
        }
        let launcher = launcher_of(entry);
        let filter = launcher.filter.clone();
        if launcher.is_connected() {
            before.order(Effect::Notify { job, notice: Notice::Replaced });
        }
        let (link, awaited) = (LauncherLink::Connected { since: now }, entry.launcher_awaited(now));
        self.jobs.context.record(step, Fact::LauncherLinkChanged { job, link, awaited });
        let entry = &self.jobs.state().jobs()[&job];
        match &entry.phase {
            Phase::Submitted { .. } => {
                self.jobs.context.streams.open(job, &filter);
                self.jobs.context.tell_first_view(now, step, job);
            }
            Phase::RequestSent | Phase::Waiting => {
                // Its view depends on the jobs before it in the queue, so the pass sends it, once for all launchers
                // that come back.
                self.jobs.context.streams.open(job, &filter);
                self.jobs.context.passes.wanted = true;
            }
            Phase::Started(_) => self.jobs.context.tell_start(step, job),
            Phase::Ghost(_) => {}
        }
        let request_until = self.jobs.state().request_until(&self.jobs.state().jobs()[&job]);
        Ok(LauncherAnswer::Subscribed { job, request_until, now: Some(now) })
    }

    /// Handles the loss of a launcher's connection.
    pub(crate) fn launcher_gone(&mut self, now: Time, step: &mut Step, job: JobId) {
        let Some(entry) = self.jobs.state().jobs().get(&job) else { return };
        let is_connected = entry.launcher.as_ref().is_some_and(Launcher::is_connected);
        if is_connected {
            let (link, awaited) = (LauncherLink::Away { since: now }, entry.launcher_awaited(now));
            self.jobs.context.streams.close(job);
            self.jobs.context.record(step, Fact::LauncherLinkChanged { job, link, awaited });
        }
    }

    /// Marks launchers as away from now on: the time in which none could connect does not count.
    pub(crate) fn launchers_away(&mut self, now: Time, step: &mut Step, is_expected: fn(LauncherLink) -> bool) {
        let expected = |(job, entry): (&JobId, &Job)| {
            let launcher = entry.launcher.as_ref().filter(|launcher| is_expected(launcher.link))?;
            Some((*job, launcher.awaited))
        };
        let launchers: Vec<(JobId, Span)> = self.jobs.state().jobs().iter().filter_map(expected).collect();
        for (job, awaited) in launchers {
            let link = LauncherLink::Away { since: now };
            self.jobs.context.record(step, Fact::LauncherLinkChanged { job, link, awaited });
        }
    }

    /// Starts what the launcher wants on the nodes that it was granted.
    fn launch_work(
        &mut self,
        now: Time,
        step: &mut Step,
        who: &Identity,
        (job, tag): (JobId, Tag),
        launch: Launchable,
    ) -> Result<LauncherAnswer, Refusal> {
        let (launcher, started) = self.granted(job, tag)?;
        if launcher.has_launched() {
            return Err(wrong_state(job, "running", "it has launched its processes already"));
        }
        executable::check(&launch.execution)?;
        let limits = launch.malleable.as_ref().or(self.jobs.state().jobs()[&job].spec.malleable.as_ref());
        if let Some(limits) = limits {
            admit::check_limits(limits, &launch.execution.work)?;
            admit::check_launched(limits, &started.request)?;
        }
        let tasks = match launch.n_tasks {
            Some(0) => return Err(Refusal::NothingAsked),
            Some(n_tasks) => TaskCount::Total(n_tasks),
            None => TaskCount::PerNode(1),
        };
        let n_nodes = started.nodes.len() as u32;
        executable::check_spread(&launch.execution.work, tasks, n_nodes)?;
        let tasks_here = tasks.most_on_a_node(n_nodes);
        let wanted_cpus = tasks_here.saturating_mul(launch.cpus_per_task);
        let n_cpus = |node: &NodeId| started.cpus_granted(*node, &self.jobs.state().nodes()[node].inventory);
        let smallest = started.nodes.iter().map(n_cpus).min().unwrap_or(0);
        if wanted_cpus > smallest {
            let cpus_per_task = launch.cpus_per_task;
            return Err(Refusal::NotInGrant { tasks: tasks_here, cpus_per_task, cpus: smallest });
        }
        quota::check_bytes(self.jobs.state(), who, &launch.execution.work, &launch.execution.environment)?;
        self.submit_rates.check(
            self.jobs.context.state(),
            now,
            who,
            &launch.execution.work,
            &launch.execution.environment,
        )?;
        self.jobs.context.record(step, Fact::LauncherLaunched { job, at: now, launch: Box::new(launch) });
        Ok(LauncherAnswer::Done)
    }

    /// Records that the launcher has accepted its start.
    fn accept(&mut self, now: Time, step: &mut Step, job: JobId, tag: Tag) -> Result<LauncherAnswer, Refusal> {
        let (launcher, _) = self.granted(job, tag)?;
        match launcher.answer {
            // The answer to an earlier call may have been lost.
            Some(StartAnswer::Accepted { at: _ }) => {}
            Some(StartAnswer::Launched { at: _ }) => {
                return Err(wrong_state(job, "running", "it has launched its processes already"));
            }
            None => self.jobs.context.record(step, Fact::LauncherAccepted { job, at: now }),
        }
        Ok(LauncherAnswer::Done)
    }

    /// Handles a launcher's report that its application is done (001: done).
    fn finish(
        &mut self,
        now: Time,
        step: &mut Step,
        job: JobId,
        tag: Tag,
        code: i32,
    ) -> Result<LauncherAnswer, Refusal> {
        if !(0..=255).contains(&code) {
            return Err(Refusal::Malformed("an exit code is between 0 and 255, as that of a process"));
        }
        let outcome = if code == 0 { Outcome::Completed } else { Outcome::Failed { code } };
        match &self.jobs.state().jobs()[&job].phase {
            // It withdraws, whichever of its requests the tag names. What never ran is not completed.
            Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting => {
                let by = self.jobs.state().jobs()[&job].spec.owner.0.clone();
                let outcome = if code == 0 { Outcome::Cancelled { by } } else { outcome };
                self.jobs.done(now, step, job, outcome);
            }
            Phase::Started(_) => {
                self.granted(job, tag)?;
                self.jobs.end(now, step, job, outcome, false);
            }
            Phase::Ghost(_) => return Err(wrong_state(job, "done", "only its ghost keeps the nodes")),
        }
        Ok(LauncherAnswer::Done)
    }

    /// Returns the start to which the launcher's tag belongs.
    fn granted(&self, job: JobId, tag: Tag) -> Result<(&Launcher, &Started), Refusal> {
        let entry = &self.jobs.state().jobs()[&job];
        let launcher = launcher_of(entry);
        let started = match &entry.phase {
            Phase::Started(started) => started,
            Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting => {
                return Err(wrong_state(job, entry.state().word(), "it has not started"));
            }
            Phase::Ghost(_) => return Err(wrong_state(job, "done", "only its ghost keeps the nodes")),
        };
        if let Some(granted) = launcher.tag
            && granted != tag
        {
            return Err(Refusal::WrongTag { job, tag: tag.0, granted: granted.0 });
        }
        if started.ending.is_some() {
            return Err(wrong_state(job, "ending", "it is being ended already"));
        }
        Ok((launcher, started))
    }

    /// Checks that the caller owns the application and that it has a launcher. An admin does not act in the name of others.
    fn may_speak_for(&self, who: &Identity, job: JobId) -> Result<(), Refusal> {
        let entry = self.jobs.state().jobs().get(&job).ok_or(Refusal::NoSuchJob(job))?;
        let is_owner = match who.role {
            Role::User | Role::Admin => entry.spec.owner.0 == who.name,
            Role::Agent | Role::Server | Role::Job => false,
        };
        if !is_owner {
            return Err(Refusal::NotYourApplication { job, owner: entry.spec.owner.0.clone() });
        }
        if entry.launcher.is_none() {
            return Err(Refusal::NoLauncher(job));
        }
        Ok(())
    }
}
