//! Changes the description of a job: all requested changes at once, or none.

use std::sync::Arc;

use rms_api::call::update::{Changes, ONLY_WHILE_RUNNING, Resizing, ResizingChanges, ResourceChanges};
use rms_api::call::{Nodes, Shape, Submission};
use rms_api::refusal::Refusal;
use rms_model::variables::SLURM;
use rms_model::{
    Environment, Evolving, Identity, JobId, JobSpec, Malleable, Mebibytes, OnResize, Request, Role, Sizes, Span,
    Speedup, Time, Work,
};

use crate::admit;
use crate::executable;
use crate::negotiate;
use crate::plan;
use crate::queue::Queue;
use crate::quota;
use crate::rights::{check_priority, not_allowed, wrong_state};
use crate::state::State;
use crate::state::fact::Fact;
use crate::state::job::{Job, Phase, Started};
use crate::step::Step;

impl Queue<'_> {
    pub(crate) fn update(
        &mut self,
        now: Time,
        step: &mut Step,
        who: &Identity,
        job: JobId,
        changes: &Changes,
    ) -> Result<(), Refusal> {
        let entry = &self.jobs.state().jobs()[&job];
        let by = || who.name.clone();
        let environment = changes.environment.as_ref();
        let environment = environment.map(|new| with_slurms(new, &entry.spec.execution.environment)).transpose()?;
        let changes = &Changes { environment, ..changes.clone() };
        let (spec, time) = match &entry.phase {
            Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting => {
                (self.changed(who, job, entry, changes)?, None)
            }
            Phase::Started(Started { ending: Some(_), .. }) => {
                return Err(wrong_state(job, "ending", "only a job that waits or runs can be changed"));
            }
            Phase::Ghost(_) => return Err(wrong_state(job, "done", "only its ghost keeps the nodes")),
            Phase::Started(_) if !changes.is_of_running() => {
                return Err(wrong_state(job, "started", ONLY_WHILE_RUNNING));
            }
            Phase::Started(started) => {
                if changes.wall.is_some() && entry.spec.evolving.is_some() {
                    let hint = "'rms evolve' changes the time of a job with a profile";
                    return Err(wrong_state(job, "started", hint));
                }
                let mut spec = (*entry.spec).clone();
                relabel(who, &mut spec, changes)?;
                (spec, self.changed_time(now, who, job, started, changes)?)
            }
        };
        let is_held = matches!(&entry.phase, Phase::Submitted { hold: Some(_) });
        // Checks that may refuse come before changes.
        let environment = changes.environment.clone();
        if let Some(environment) = &environment {
            quota::check_bytes(self.jobs.state(), who, &Work::Nodes, environment)?;
            self.submit_rates.check(self.jobs.context.state(), now, who, &Work::Nodes, environment)?;
        }
        match changes.hold {
            Some(true) if !is_held || self.replaces_hold(who, job) => self.hold(now, step, who, job)?,
            Some(false) if is_held => self.check_release(who, job)?,
            Some(_) | None => {}
        }
        let spec = Arc::new(JobSpec::without_work(spec));
        // For a job that has shared CPUs, the limit follows from the time that it would need with all of them.
        let started = self.jobs.state().jobs()[&job].started();
        let sharing = started.filter(|started| started.sharing.is_some()).map(|started| started.request.wall);
        let wall = time.map(|time| sharing.unwrap_or(time));
        self.jobs.context.record(step, Fact::JobUpdated { job, spec, environment, wall, by: by(), at: now });
        if let (Some(time), Some(_)) = (time, sharing) {
            self.jobs.change_requested(now, step, job, time);
        }
        if changes.hold == Some(false) && is_held {
            self.release(now, step, who, job)?;
        }
        let entry = &self.jobs.state().jobs()[&job];
        let may_begin = entry.spec.begin.is_none_or(|begin| begin <= now) && entry.launcher.is_none();
        if may_begin && matches!(&entry.phase, Phase::Submitted { hold: None }) {
            self.jobs.context.record(step, Fact::RequestSent { job, at: now });
        }
        self.jobs.context.launches.remove(&job);
        self.jobs.context.passes.wanted = true;
        Ok(())
    }

    /// Returns the changed spec of a waiting job, checked as at admission.
    fn changed(&self, who: &Identity, job: JobId, entry: &Job, changes: &Changes) -> Result<JobSpec, Refusal> {
        let mut spec = (*entry.spec).clone();
        relabel(who, &mut spec, changes)?;
        spec.requeue = changes.requeue.or(spec.requeue);
        admit::check_begin(changes.begin)?;
        spec.begin = changes.begin.or(spec.begin);
        if let Some(cwd) = &changes.cwd {
            spec.execution.cwd.clone_from(cwd);
        }
        let stdio = &mut spec.execution.stdio;
        for (stream, file) in [
            (&mut stdio.input, &changes.input),
            (&mut stdio.output, &changes.output),
            (&mut stdio.error, &changes.error),
        ] {
            *stream = file.clone().or(stream.take());
        }
        if let Some(environment) = &changes.environment {
            spec.execution.environment = Arc::clone(environment);
        }
        match spec.execution.work {
            Work::Nodes if changes.is_of_execution() => {
                return Err(wrong_state(job, entry.state().word(), "its launcher says what is started, and where"));
            }
            Work::Nodes => {}
            Work::Script { .. } | Work::Tasks { .. } => executable::check(&spec.execution)?,
        }
        if changes.is_of_size() {
            if entry.launcher.is_some() {
                return Err(wrong_state(job, entry.state().word(), "its launcher says its sizes and times"));
            }
            resize(self.jobs.state(), who, job, &mut spec, changes)?;
        }
        // As of the limits that it has now.
        match (changes.survives_loss, &mut spec.malleable) {
            (Some(survives), Some(malleable)) => malleable.survives_loss = Some(survives),
            (Some(true), None) if changes.resizing.is_none() => {
                return Err(Refusal::Malformed(
                    "only a job that changes its size, or negotiates, goes on without a node that is lost",
                ));
            }
            (Some(_), None) | (None, _) => {}
        }
        Ok(spec)
    }

    /// Returns the new wall time of a running job, as with all CPUs that it requested. Users stay below the longest
    /// that is allowed, and do not extend what they borrow from others.
    fn changed_time(
        &self,
        now: Time,
        who: &Identity,
        job: JobId,
        started: &Started,
        changes: &Changes,
    ) -> Result<Option<Span>, Refusal> {
        let Some(change) = changes.wall else { return Ok(None) };
        if started.is_overdue(now) {
            return Err(Refusal::WallOver(job));
        }
        if negotiate::is_changing_time(&self.jobs.state().jobs()[&job]) {
            let hint = "a negotiation is changing its wall time: try again when that has ended";
            return Err(wrong_state(job, "started", hint));
        }
        let (wall, max) = (change.of(started.requested()), longest_wall(self.jobs.state(), who));
        let is_raised = wall > started.requested();
        if is_raised && wall > max {
            return Err(Refusal::WallTooLong { wall, max });
        }
        if is_raised && started.is_guest() && who.role != Role::Admin {
            let hint = "it borrows cores, and began because it was to end before the jobs that lend them: an admin may \
                        give it more time";
            return Err(wrong_state(job, "started", hint));
        }
        if is_raised && let Some(node) = self.jobs.state().out_of_reach(started) {
            return Err(Refusal::AgentAway { job, node: self.jobs.state().nodes()[&node].name.clone() });
        }
        let more = Span::from_millis(wall.as_millis().saturating_sub(started.requested().as_millis()));
        if is_raised && let Some(short) = negotiate::shortage_for_longer(self.jobs.state(), now, job, more) {
            return Err(Refusal::OverBudget { job, short });
        }
        if is_raised {
            self.check_stages(now, job, started, wall)?;
        }
        let ran = self.jobs.state().time_at_full_speed(job, now);
        if wall <= ran { Err(Refusal::WallPassed { job, ran }) } else { Ok(Some(wall)) }
    }

    /// Checks that no stage which was promised to a running application begins late if this job has more time. While it
    /// lends or borrows CPUs, how much longer it then runs is not known in advance: as long as it likes, for this.
    fn check_stages(&self, now: Time, job: JobId, started: &Started, wall: Span) -> Result<(), Refusal> {
        let state = self.jobs.state();
        let from = started.at + started.request.wall;
        let until = if started.is_sharing() { from + Span::MAX_WALL } else { started.at + wall };
        let Some((at, by)) = plan::first_late_stage(state, now, started, until) else { return Ok(()) };
        let most = if started.is_sharing() { started.requested() } else { at.since(started.at) };
        Err(Refusal::StagePromised { job, by, most })
    }

    /// Checks the permission that [`Queue::release`] requires.
    fn check_release(&self, who: &Identity, job: JobId) -> Result<(), Refusal> {
        let entry = &self.jobs.state().jobs()[&job];
        match &entry.phase {
            Phase::Submitted { hold: Some(hold) } if hold.by != entry.spec.owner.0 && who.role != Role::Admin => {
                Err(not_allowed(who, "release a job that an admin holds", "an admin may"))
            }
            _ => Ok(()),
        }
    }
}

/// Changes what can be changed at any time.
fn relabel(who: &Identity, spec: &mut JobSpec, changes: &Changes) -> Result<(), Refusal> {
    if let Some(priority) = changes.priority {
        check_priority(who, priority)?;
        // While the job runs, the priority decides which jobs it gives nodes to, and which give it some.
        spec.priority = priority;
    }
    for (key, text) in &changes.labels {
        if !spec.labels.set(key, text.clone()) {
            return Err(Refusal::Malformed("a job has no such label: it has a name, an account and a comment"));
        }
    }
    admit::check_labels(&spec.labels)
}

/// Computes the job's sizes again, with the changes in place of what was requested before.
fn resize(state: &State, who: &Identity, job: JobId, spec: &mut JobSpec, changes: &Changes) -> Result<(), Refusal> {
    let (evolving, malleable) = match &changes.resizing {
        None => changed_resizing(spec, &changes.resizing_changes)?,
        Some(Resizing::Never) => (None, None),
        Some(Resizing::Within(malleable)) => (None, Some(malleable.clone())),
        Some(Resizing::ByStages(evolving)) => (Some(evolving.clone()), None),
    };
    if evolving.is_some() && (changes.shapes.is_some() || changes.wall.is_some()) {
        return Err(Refusal::HasProfile(job));
    }
    let clusters = changes.clusters.clone().unwrap_or_else(|| spec.clusters.clone());
    let longest = spec.options.iter().map(|request| request.wall).max();
    let new_sizes = || vec![Shape { nodes: Nodes::FromTasks, wall: None }];
    let mut shapes = match (&changes.shapes, &changes.resizing) {
        _ if evolving.is_some() => Vec::new(),
        (Some(shapes), _) => shapes.clone(),
        // New limits give new sizes to start with.
        (None, Some(Resizing::Within(_))) => new_sizes(),
        (None, None) if changes.resizing_changes.range.is_some() => new_sizes(),
        (None, _) => shapes_of(state, &spec.options, changes.clusters.is_some()),
    };
    for shape in &mut shapes {
        shape.wall = shape.wall.or(longest);
        if let (Some(change), Some(wall)) = (changes.wall, &mut shape.wall) {
            *wall = change.of(*wall);
        }
    }
    let mut constraint = spec.constraint.clone();
    constraint.features = changes.features.clone().unwrap_or(constraint.features);
    constraint.nodelist = changes.nodelist.clone().unwrap_or(constraint.nodelist);
    constraint.exclude = changes.exclude.clone().unwrap_or(constraint.exclude);
    constraint.memory = changes.memory.unwrap_or(constraint.memory);
    constraint.cpus = changes.min_cpus.unwrap_or(constraint.cpus);
    let mut resources = changes.resources.of(spec.resources.clone());
    let ResourceChanges { min_cpus_per_node, min_cpus_per_task, cores_per_package, .. } = &changes.resources;
    let keeps_any = [min_cpus_per_node, cores_per_package].into_iter().flatten().any(|least| *least > 0)
        || min_cpus_per_task.as_ref().is_some_and(|least| !least.is_empty());
    if !resources.share && keeps_any {
        return Err(Refusal::Malformed(
            "min-cpus-per-node, min-cpus-per-task and cores-per-package say what a job keeps while it lends CPUs: write \
             share=yes, too",
        ));
    }
    // Memory per node or per CPU: the one set last counts, also where it asks for none.
    match (changes.memory, changes.resources.memory_per_cpu) {
        (None, Some(_)) => constraint.memory = Mebibytes(0),
        (Some(_), None) => resources.memory_per_cpu = Mebibytes(0),
        (None, None) | (Some(_), Some(_)) => {}
    }
    let submission = Submission {
        resources,
        cpus_per_task: changes.cpus_per_task.unwrap_or(spec.cpus_per_task),
        clusters,
        constraint,
        evolving,
        malleable,
        ..Submission::of(spec.execution.work.clone(), shapes)
    };
    let tasks = admit::tasks(changes.n_tasks)?.unwrap_or(spec.tasks);
    // A user keeps what an admin has allowed beyond the longest wall time.
    let max_wall = longest_wall(state, who).max(longest.unwrap_or(Span::ZERO));
    (spec.tasks, spec.options) = admit::sizes(state, &submission, tasks, max_wall)?;
    let Submission { cpus_per_task, clusters, constraint, resources, evolving, malleable, .. } = submission;
    spec.resources = resources;
    (spec.cpus_per_task, spec.clusters, spec.constraint) = (cpus_per_task, clusters, constraint);
    (spec.evolving, spec.malleable) = (evolving, malleable);
    Ok(())
}

/// Returns the longest wall time to which someone may change that of a job.
fn longest_wall(state: &State, who: &Identity) -> Span {
    if who.role == Role::Admin { Span::MAX_WALL } else { state.settings().max_wall }
}

/// Returns how the job changes its size once these changes are made to what it has.
fn changed_resizing(
    spec: &JobSpec,
    changes: &ResizingChanges,
) -> Result<(Option<Evolving>, Option<Malleable>), Refusal> {
    match (&spec.evolving, &spec.malleable) {
        (Some(_), _) if changes.is_of_limits() => Err(Refusal::Malformed(
            "the job has a profile: write 'profile=' to end it, or malleable=2-8 and how the job is told (on-resize=, \
             workers= or negotiable=) in its place",
        )),
        (Some(profile), _) => Ok((Some(changes.of_profile(profile.clone())), None)),
        (None, _) if changes.is_of_profile() => Err(Refusal::Malformed(
            "expand, compact and open are for a job with a profile: write profile=2x500s,8x1h, too",
        )),
        (None, Some(limits)) => Ok((None, Some(changes.of_limits(limits.clone())))),
        (None, None) if !changes.is_of_limits() => Ok((None, None)),
        (None, None) if changes.range.is_some() => Err(Refusal::Malformed(
            "a malleable job must learn that its nodes have changed: write on-resize=signal:USR1, \
             on-resize=exec:COMMAND, workers=yes or negotiable=yes, too",
        )),
        (None, None) if changes.on_resize == Some(OnResize::Negotiates) => {
            // As many nodes as it starts with, until it requests others.
            let (sizes, speedup) = (Sizes::Any, Speedup::default());
            let on_resize = OnResize::Negotiates;
            let limits = Malleable { least: 0, most: 0, sizes, on_resize, speedup, survives_loss: None };
            Ok((None, Some(changes.of_limits(limits))))
        }
        (None, None) => Err(Refusal::Malformed(
            "on-resize, workers and speedup are for a job whose nodes change: write malleable=2-8, too",
        )),
    }
}

/// Returns the requested shapes as far as the sizes show them; on other clusters, the same number of nodes of one
/// cluster.
fn shapes_of(state: &State, options: &[Request], is_elsewhere: bool) -> Vec<Shape> {
    let mut shapes: Vec<Shape> = Vec::new();
    for request in options {
        let nodes = match request.nodes.len() {
            1 if is_elsewhere => Nodes::Count(request.n_nodes()),
            _ => {
                let named = |(cluster, nodes): (&_, &u32)| (state.clusters()[cluster].clone(), *nodes);
                Nodes::PerCluster(request.nodes.iter().map(named).collect())
            }
        };
        let shape = Shape { nodes, wall: Some(request.wall) };
        if !shapes.contains(&shape) {
            shapes.push(shape);
        }
    }
    shapes
}

/// Returns the new environment of a job. A job that gets Slurm's variables keeps them: its submitter requested that,
/// and what else to set, in the environment, and a caller that replaces the environment means the user's own variables.
fn with_slurms(new: &Arc<Environment>, old: &Environment) -> Result<Arc<Environment>, Refusal> {
    let speaks_slurm =
        |environment: &Environment| environment.0.iter().any(|(name, value)| name == SLURM && value == "1");
    if !speaks_slurm(old) {
        return Ok(Arc::clone(new));
    }
    let is_given = |name: &str| new.0.iter().any(|(given, _)| given == name);
    let is_kept = |name: &str| (name == SLURM || name.starts_with("SLURM_")) && !is_given(name);
    let kept = old.0.iter().filter(|(name, _)| is_kept(name));
    let both = new.0.iter().chain(kept).cloned().collect::<Vec<_>>();
    let both = Environment::try_from(both).map_err(|_| Refusal::Malformed("its environment would be too large"))?;
    Ok(Arc::new(both))
}

#[cfg(test)]
mod tests {
    use rms_api::Call;
    use rms_api::answer::{Answer, JobState};
    use rms_api::call::Select;
    use rms_api::call::update::SizeRange;
    use rms_api::call::update::{ResourceChanges, WallChange};
    use rms_model::variables::SUBMIT_DIR;
    use rms_model::{ExpandLimit, Expansion};

    use super::*;
    use crate::effect::Effect;
    use crate::tests::World;
    use crate::{Event, Ticket};

    /// Makes a change and returns the reason if it is refused.
    fn update(world: &mut World, role: Role, name: &str, job: JobId, changes: Changes) -> Option<String> {
        let who = Identity::new(role, name).expect("a plain name");
        let call = Call::Update { select: Select::Ids(vec![job]), changes: Box::new(changes) };
        let effects = world.event(Event::Called { ticket: Ticket(1), who, call });
        let answer = effects.into_iter().find_map(|effect| match effect {
            Effect::Answer { ticket: _, answer } => Some(answer),
            _ => None,
        });
        match answer.expect("every call is answered") {
            Ok(Answer::Jobs { refused, .. }) => refused.first().map(|(_, why)| why.kind.clone()),
            other => panic!("no list of jobs: {other:?}"),
        }
    }

    fn wall(change: WallChange) -> Changes {
        Changes { wall: Some(change), ..Changes::default() }
    }

    #[test]
    fn the_time_of_a_running_job_grows_as_far_as_is_allowed_and_beyond_for_admins() {
        let mut world = World::new();
        world.node("n1", &[]);
        world.set("max_wall", "2h");
        let job = world.submit(1, 3600, &[]);
        assert_eq!(world.line(job).state, JobState::Started);
        let root = |world: &mut World, change| update(world, Role::Admin, "admin", job, wall(change));
        let owner = |world: &mut World, change| update(world, Role::User, "root", job, wall(change));
        let more = WallChange::More(Span::from_hours(1));
        assert_eq!(update(&mut world, Role::User, "bob", job, wall(more)).as_deref(), Some("not_your_job"));
        assert_eq!(owner(&mut world, more), None);
        assert_eq!(owner(&mut world, more).as_deref(), Some("wall_too_long"));
        assert_eq!(root(&mut world, more), None);
        assert_eq!(world.line(job).request.wall, Span::from_hours(3));
        assert_eq!(owner(&mut world, WallChange::Less(Span::from_mins(30))), None, "less is nobody's harm");
        world.now += Span::from_mins(10);
        assert_eq!(owner(&mut world, WallChange::To(Span::from_mins(5))).as_deref(), Some("wall_passed"));
        let size = Changes { n_tasks: Some(2), ..wall(more) };
        assert_eq!(update(&mut world, Role::Admin, "admin", job, size).as_deref(), Some("wrong_state"));
    }

    #[test]
    fn an_admin_may_give_a_waiting_job_more_time_than_is_allowed_and_its_user_keeps_it() {
        let mut world = World::new();
        world.node("n1", &[]);
        world.set("max_wall", "2h");
        world.submit(1, 3600, &[]);
        let job = world.submit(1, 3600, &[]);
        let to = |hours| wall(WallChange::To(Span::from_hours(hours)));
        assert_eq!(update(&mut world, Role::User, "root", job, to(3)).as_deref(), Some("wall_too_long"));
        assert_eq!(update(&mut world, Role::Admin, "admin", job, to(3)), None);
        let cheaper = Changes { cpus_per_task: Some(0), ..Changes::default() };
        assert_eq!(update(&mut world, Role::User, "root", job, cheaper), None, "no more than it has");
        assert_eq!(update(&mut world, Role::User, "root", job, to(4)).as_deref(), Some("wall_too_long"));
        assert_eq!(world.rms.state().jobs()[&job].first_request().wall, Span::from_hours(3));
    }

    #[test]
    fn what_a_job_keeps_while_it_lends_is_said_of_jobs_that_may_lend() {
        let mut world = World::new();
        world.joins("n1", rms_model::Inventory { cores: 2, cpus: 2, ..Default::default() }, Vec::new());
        world.submit(1, 3600, &[]);
        let job = world.submit(1, 3600, &[]);
        let keeps = |share| {
            let resources = ResourceChanges { share, min_cpus_per_node: Some(1), ..ResourceChanges::default() };
            Changes { resources, ..Changes::default() }
        };
        assert_eq!(update(&mut world, Role::User, "root", job, keeps(None)).as_deref(), Some("malformed"));
        assert_eq!(update(&mut world, Role::User, "root", job, keeps(Some(true))), None);
        assert_eq!(update(&mut world, Role::User, "root", job, keeps(None)), None, "it shares");
    }

    #[test]
    fn an_admin_holds_a_job_that_its_user_holds() {
        let mut world = World::new();
        world.node("n1", &[]);
        let job = world.submit_with(|submission| submission.hold = true);
        let holds = |hold| Changes { hold: Some(hold), ..Changes::default() };
        assert_eq!(update(&mut world, Role::User, "root", job, holds(true)), None, "it holds it already");
        assert_eq!(update(&mut world, Role::Admin, "admin", job, holds(true)), None);
        assert_eq!(update(&mut world, Role::User, "root", job, holds(true)), None, "this takes nothing back");
        assert_eq!(update(&mut world, Role::User, "root", job, holds(false)).as_deref(), Some("not_allowed"));
        assert_eq!(update(&mut world, Role::Admin, "other", job, holds(false)), None);
        assert_eq!(world.line(job).state, JobState::Started);
    }

    #[test]
    fn how_a_waiting_job_changes_its_size_is_changed_with_its_sizes_or_not_at_all() {
        let mut world = World::new();
        for name in ["n1", "n2", "n3"] {
            world.node(name, &[]);
        }
        world.submit(3, 3600, &[]);
        let job = world.submit(2, 600, &[]);
        let owner = |world: &mut World, changes| update(world, Role::User, "root", job, changes);
        let resize = |resizing| Changes { resizing: Some(resizing), ..Changes::default() };
        let limits = |least, most| {
            let sizes = Sizes::Any;
            Malleable {
                least,
                most,
                sizes,
                on_resize: OnResize::Signal(10),
                speedup: Speedup::default(),
                survives_loss: None,
            }
        };
        let spec = |world: &World| Arc::clone(&world.rms.state().jobs()[&job].spec);
        let nodes = |world: &World| spec(world).options.iter().map(Request::n_nodes).collect::<Vec<_>>();
        assert_eq!(owner(&mut world, resize(Resizing::Within(limits(1, 3)))), None);
        assert_eq!((spec(&world).malleable.clone(), nodes(&world)), (Some(limits(1, 3)), vec![3, 2, 1]));
        let loss = |survives_loss| Changes { survives_loss, ..Changes::default() };
        assert_eq!(owner(&mut world, loss(Some(false))), None);
        assert_eq!(spec(&world).malleable.as_ref().and_then(|limits| limits.survives_loss), Some(false));
        assert!(spec(&world).options.iter().all(|request| request.wall == Span::from_secs(600)), "the time stays");
        assert_eq!(owner(&mut world, resize(Resizing::Within(limits(4, 9)))).as_deref(), Some("too_many_nodes"));
        let as_said = Malleable { survives_loss: Some(false), ..limits(1, 3) };
        assert_eq!(spec(&world).malleable, Some(as_said), "nothing was changed");

        let stages = |text: &str| Evolving {
            stages: text.parse().expect("a profile"),
            expansion: Expansion::default(),
            open: false,
        };
        let with_time = Changes { ..resize(Resizing::ByStages(stages("1x500s,3x1h"))) };
        let with_time = Changes { wall: Some(WallChange::To(Span::from_hours(1))), ..with_time };
        assert_eq!(owner(&mut world, with_time).as_deref(), Some("has_profile"));
        assert_eq!(
            owner(&mut world, resize(Resizing::ByStages(stages("1x500s,4x1h")))).as_deref(),
            Some("stage_too_large")
        );
        assert_eq!(owner(&mut world, resize(Resizing::ByStages(stages("1x500s,3x1h")))), None);
        assert_eq!((spec(&world).malleable.clone(), nodes(&world)), (None, vec![3]));
        assert_eq!(spec(&world).evolving, Some(stages("1x500s,3x1h")));
        assert_eq!(owner(&mut world, loss(Some(true))).as_deref(), Some("malformed"), "it has no limits");
        assert_eq!(owner(&mut world, resize(Resizing::Never)), None);
        assert_eq!(
            (spec(&world).evolving.clone(), nodes(&world)),
            (None, vec![3]),
            "as many as it would have had at most"
        );
    }

    #[test]
    fn parts_of_limits_or_of_a_profile_are_changed_alone_and_the_rest_stays() {
        let mut world = World::new();
        for name in ["n1", "n2", "n3", "n4"] {
            world.node(name, &[]);
        }
        world.submit(4, 3600, &[]);
        let limits = |least, most, on_resize| Malleable {
            least,
            most,
            sizes: Sizes::Any,
            on_resize,
            speedup: Speedup(vec![(1, 1000), (2, 1900)]),
            survives_loss: Some(false),
        };
        let part = |resizing_changes| Changes { resizing_changes, ..Changes::default() };
        let nothing = ResizingChanges::default;
        let how = |on_resize| part(ResizingChanges { on_resize: Some(on_resize), ..nothing() });
        let range = |least, most| {
            let range = Some(SizeRange { least, most, sizes: Sizes::Any });
            part(ResizingChanges { range, ..nothing() })
        };
        let open = || part(ResizingChanges { open: Some(true), ..nothing() });
        let spec = |world: &World, job| Arc::clone(&world.rms.state().jobs()[&job].spec);
        let owner = |world: &mut World, job, changes| update(world, Role::User, "root", job, changes);

        let job = world.submit_with(|submission| submission.malleable = Some(limits(1, 4, OnResize::Signal(10))));
        assert_eq!(owner(&mut world, job, how(OnResize::Workers)), None);
        assert_eq!(spec(&world, job).malleable, Some(limits(1, 4, OnResize::Workers)));
        assert_eq!(owner(&mut world, job, how(OnResize::Negotiates)), None);
        assert_eq!(spec(&world, job).malleable, Some(limits(1, 4, OnResize::Negotiates)), "the range stays");
        assert_eq!(owner(&mut world, job, range(2, 3)), None);
        assert_eq!(spec(&world, job).malleable, Some(limits(2, 3, OnResize::Negotiates)));
        assert_eq!(spec(&world, job).options.iter().map(Request::n_nodes).collect::<Vec<_>>(), [3, 2]);
        assert_eq!(owner(&mut world, job, open()).as_deref(), Some("malformed"));

        let job = world.submit_with(|submission| {
            let stages = "1x500s,3x1h".parse().expect("a profile");
            submission.evolving = Some(Evolving { stages, expansion: Expansion::default(), open: false });
        });
        assert_eq!(owner(&mut world, job, open()), None);
        let (expand, compacting) = (Some(ExpandLimit::NONE), Some(true));
        assert_eq!(owner(&mut world, job, part(ResizingChanges { expand, compacting, ..nothing() })), None);
        let profile = spec(&world, job).evolving.clone().expect("it keeps it");
        assert_eq!(profile.expansion, Expansion { limit: ExpandLimit::NONE, compacting: true });
        assert_eq!((profile.stages.to_string().as_str(), profile.open), ("1x8m20s,3x1h", true));
        assert_eq!(owner(&mut world, job, how(OnResize::Negotiates)).as_deref(), Some("malformed"));

        let job = world.submit(2, 600, &[]);
        for changes in [how(OnResize::Workers), range(1, 3), open()] {
            assert_eq!(owner(&mut world, job, changes).as_deref(), Some("malformed"), "it has neither");
        }
        let survives = Changes { survives_loss: Some(true), ..how(OnResize::Negotiates) };
        assert_eq!(owner(&mut world, job, survives), None);
        let limits = spec(&world, job).malleable.clone().expect("it negotiates");
        assert_eq!((limits.is_as_started(), limits.survives_loss), (true, Some(true)));
    }

    #[test]
    fn another_environment_is_kept_and_another_change_leaves_it() {
        let mut world = World::new();
        world.node("n1", &[]);
        world.submit(1, 3600, &[]);
        let job = world.submit(1, 600, &[]);
        let environment = Arc::new(Environment(vec![("LEVEL".to_owned(), "2".to_owned())]));
        let changes = Changes { environment: Some(Arc::clone(&environment)), ..Changes::default() };
        world.set("script_limit@root", "0");
        assert_eq!(update(&mut world, Role::User, "root", job, changes.clone()).as_deref(), Some("script_limit"));
        world.set("script_limit@root", "1");
        assert_eq!(update(&mut world, Role::User, "root", job, changes), None);
        assert_eq!(update(&mut world, Role::User, "root", job, wall(WallChange::To(Span::from_mins(30)))), None);
        assert_eq!(world.rms.state().jobs()[&job].spec.execution.environment, environment);
    }

    #[test]
    fn a_job_in_slurms_words_keeps_them_in_another_environment() {
        let environment = |variables: &[(&str, &str)]| {
            let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            Arc::new(Environment(variables.iter().map(own).collect()))
        };
        let mut world = World::new();
        world.node("n1", &[]);
        world.submit(1, 3600, &[]);
        let told = [("SLURM_CPUS_PER_TASK", "2"), ("SLURM_TMPDIR", "/tmp"), (SUBMIT_DIR, "/old"), ("OLD", "1")];
        let mut check = |slurm: Option<(&'static str, &'static str)>, expected: &[(&str, &str)]| {
            let old: Vec<(&str, &str)> = told.into_iter().chain(slurm).collect();
            let job = world.submit_with(|submission| submission.execution.environment = environment(&old));
            let new = environment(&[("LEVEL", "2"), (SUBMIT_DIR, "/new"), ("SLURM_TMPDIR", "/scratch")]);
            let changes = Changes { environment: Some(new), ..Changes::default() };
            assert_eq!(update(&mut world, Role::User, "root", job, changes), None);
            assert_eq!(world.rms.state().jobs()[&job].spec.execution.environment, environment(expected), "{slurm:?}");
        };
        let new = [("LEVEL", "2"), (SUBMIT_DIR, "/new"), ("SLURM_TMPDIR", "/scratch")];
        check(None, &new);
        check(Some((SLURM, "1")), &[&new[..], &[("SLURM_CPUS_PER_TASK", "2"), (SLURM, "1")]].concat());
    }

    #[test]
    fn a_shorter_job_starts_before_one_that_it_was_in_the_way_of() {
        let mut world = World::new();
        world.node("n1", &[]);
        world.node("n2", &[]);
        world.submit(1, 3600, &[]);
        world.submit(2, 3600, &[]);
        let job = world.submit(1, 7200, &[]);
        assert_eq!(world.line(job).state, JobState::Waiting, "it would delay the one before it");
        assert_eq!(update(&mut world, Role::User, "root", job, wall(WallChange::To(Span::from_mins(30)))), None);
        assert_eq!(world.line(job).state, JobState::Started, "it fits beside");
        let raised = Changes { priority: Some(5), ..Changes::default() };
        assert_eq!(update(&mut world, Role::User, "root", job, raised).as_deref(), Some("not_allowed"));
    }
}
