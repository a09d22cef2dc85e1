//! The shared nouns, both ways.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rms_model as model;
use rms_model::identity::check_name;
use rms_model::job::{Constraint, TaskCount};
use rms_model::token::TokenIdentity;
use rms_model::{ClusterId, JobId, Mebibytes, Owner, Profile, Role, Run, Span};

use super::evolving::{stages_from_wire, stages_to_wire};
use super::{Malformed, all, opt_millis, opt_time, span, time};
use crate::message::{MAX_ENVIRONMENT_BYTES, MAX_SCRIPT_BYTES};
use crate::vocabulary as wire;

impl From<Role> for wire::Role {
    fn from(role: Role) -> wire::Role {
        match role {
            Role::Server => wire::Role::Server,
            Role::Agent => wire::Role::Agent,
            Role::User => wire::Role::User,
            Role::Admin => wire::Role::Admin,
            Role::Job => wire::Role::Job,
        }
    }
}

impl From<wire::Role> for Role {
    fn from(role: wire::Role) -> Role {
        match role {
            wire::Role::Server => Role::Server,
            wire::Role::Agent => Role::Agent,
            wire::Role::User => Role::User,
            wire::Role::Admin => Role::Admin,
            wire::Role::Job => Role::Job,
        }
    }
}

impl From<&model::Identity> for wire::Identity {
    fn from(identity: &model::Identity) -> wire::Identity {
        wire::Identity { role: identity.role.into(), name: identity.name.clone() }
    }
}

impl TryFrom<wire::Identity> for model::Identity {
    type Error = Malformed;

    fn try_from(identity: wire::Identity) -> Result<model::Identity, Malformed> {
        model::Identity::new(identity.role.into(), &identity.name).map_err(named("an identity"))
    }
}

pub(crate) fn named(field: &'static str) -> impl Fn(model::identity::NameError) -> Malformed {
    move |source| Malformed::Name { field, source }
}

/// Text that goes to the kernel as a C string.
pub(crate) fn c_text(field: &'static str, text: String) -> Result<String, Malformed> {
    if text.contains('\0') { Err(Malformed::Character { field }) } else { Ok(text) }
}

pub(crate) fn c_texts(field: &'static str, texts: Vec<String>) -> Result<Vec<String>, Malformed> {
    all(texts, |text| c_text(field, text))
}

pub(crate) fn variables(environment: &model::Environment) -> Vec<wire::Variable> {
    let variable = |(name, value): &(String, String)| wire::Variable { name: name.clone(), value: value.clone() };
    environment.0.iter().map(variable).collect()
}

pub(crate) fn environment(variables: Vec<wire::Variable>) -> Result<model::Environment, Malformed> {
    let n_bytes: usize = variables.iter().map(|variable| variable.name.len() + variable.value.len() + 2).sum();
    if n_bytes > MAX_ENVIRONMENT_BYTES {
        return Err(Malformed::TooLarge { field: "the environment", n_bytes, max: MAX_ENVIRONMENT_BYTES });
    }
    let variable = |variable: wire::Variable| {
        let field = "an environment variable";
        let is_name = !variable.name.is_empty() && !variable.name.contains('=');
        if !is_name {
            return Err(Malformed::Character { field });
        }
        Ok((c_text(field, variable.name)?, c_text(field, variable.value)?))
    };
    Ok(model::Environment(all(variables, variable)?))
}

impl From<&model::Work> for wire::Work {
    fn from(work: &model::Work) -> wire::Work {
        match work {
            model::Work::Script { script, args } => wire::Work::Script { script: script.clone(), args: args.clone() },
            model::Work::Tasks { argv } => wire::Work::Tasks { argv: argv.clone() },
            model::Work::Hosts => wire::Work::Hosts,
        }
    }
}

impl TryFrom<wire::Work> for model::Work {
    type Error = Malformed;

    fn try_from(work: wire::Work) -> Result<model::Work, Malformed> {
        match work {
            wire::Work::Script { script, args } => {
                let n_bytes = script.len();
                if n_bytes > MAX_SCRIPT_BYTES {
                    return Err(Malformed::TooLarge { field: "the script", n_bytes, max: MAX_SCRIPT_BYTES });
                }
                Ok(model::Work::Script { script, args: c_texts("an argument of the script", args)? })
            }
            wire::Work::Tasks { argv } => Ok(model::Work::Tasks { argv: c_texts("an argument of the tasks", argv)? }),
            wire::Work::Hosts => Ok(model::Work::Hosts),
        }
    }
}

impl From<&model::Stdio> for wire::Stdio {
    fn from(stdio: &model::Stdio) -> wire::Stdio {
        let model::Stdio { input, output, error, append, stream } = stdio.clone();
        wire::Stdio { input, output, error, append, stream }
    }
}

impl TryFrom<wire::Stdio> for model::Stdio {
    type Error = Malformed;

    fn try_from(stdio: wire::Stdio) -> Result<model::Stdio, Malformed> {
        let path = |path: Option<String>| path.map(|path| c_text("a file of standard output", path)).transpose();
        let wire::Stdio { input, output, error, append, stream } = stdio;
        Ok(model::Stdio { input: path(input)?, output: path(output)?, error: path(error)?, append, stream })
    }
}

impl From<&model::Limits> for wire::Limits {
    fn from(limits: &model::Limits) -> wire::Limits {
        let model::Limits { open_files, core_bytes, stack_bytes, locked_bytes, processes, address_space_bytes } =
            limits.clone();
        wire::Limits { open_files, core_bytes, stack_bytes, locked_bytes, processes, address_space_bytes }
    }
}

impl From<wire::Limits> for model::Limits {
    fn from(limits: wire::Limits) -> model::Limits {
        let wire::Limits { open_files, core_bytes, stack_bytes, locked_bytes, processes, address_space_bytes } = limits;
        model::Limits { open_files, core_bytes, stack_bytes, locked_bytes, processes, address_space_bytes }
    }
}

pub(crate) fn features(features: Vec<String>) -> Result<BTreeSet<String>, Malformed> {
    let feature = |feature: String| check_name(&feature).map(|()| feature).map_err(named("a feature"));
    features.into_iter().map(feature).collect()
}

impl From<&Constraint> for wire::Constraint {
    fn from(constraint: &Constraint) -> wire::Constraint {
        let Constraint { features, memory, cpus } = constraint;
        wire::Constraint { features: features.iter().cloned().collect(), memory_mib: memory.0, cpus: *cpus }
    }
}

impl TryFrom<wire::Constraint> for Constraint {
    type Error = Malformed;

    fn try_from(constraint: wire::Constraint) -> Result<Constraint, Malformed> {
        let wire::Constraint { features: names, memory_mib, cpus } = constraint;
        Ok(Constraint { features: features(names)?, memory: Mebibytes(memory_mib), cpus })
    }
}

impl From<&model::Inventory> for wire::Inventory {
    fn from(inventory: &model::Inventory) -> wire::Inventory {
        let model::Inventory { sockets, numa_nodes, cores, cpus, memory, speed_milli, features } = inventory;
        wire::Inventory {
            sockets: *sockets,
            numa_nodes: *numa_nodes,
            cores: *cores,
            cpus: *cpus,
            memory_mib: memory.0,
            speed_milli: *speed_milli,
            features: features.iter().cloned().collect(),
        }
    }
}

impl TryFrom<wire::Inventory> for model::Inventory {
    type Error = Malformed;

    fn try_from(inventory: wire::Inventory) -> Result<model::Inventory, Malformed> {
        let wire::Inventory { sockets, numa_nodes, cores, cpus, memory_mib, speed_milli, features: names } = inventory;
        let memory = Mebibytes(memory_mib);
        Ok(model::Inventory { sockets, numa_nodes, cores, cpus, memory, speed_milli, features: features(names)? })
    }
}

impl From<&model::Request> for wire::Request {
    fn from(request: &model::Request) -> wire::Request {
        let one = |(cluster, hosts): (&ClusterId, &u32)| wire::ClusterHosts { cluster: cluster.0, hosts: *hosts };
        wire::Request { hosts: request.hosts.iter().map(one).collect(), wall: request.wall.as_millis() }
    }
}

impl TryFrom<wire::Request> for model::Request {
    type Error = Malformed;

    fn try_from(request: wire::Request) -> Result<model::Request, Malformed> {
        let n_clusters = request.hosts.len();
        let hosts: BTreeMap<ClusterId, u32> =
            request.hosts.into_iter().map(|one| (ClusterId(one.cluster), one.hosts)).collect();
        if hosts.len() != n_clusters {
            return Err(Malformed::ClusterTwice { field: "a request" });
        }
        Ok(model::Request { hosts, wall: span("the wall time of a request", request.wall)? })
    }
}

impl From<&Profile> for wire::Profile {
    fn from(profile: &Profile) -> wire::Profile {
        let step = |step: model::profile::Step| wire::Step { from: step.from.as_millis(), hosts: step.hosts };
        wire::Profile { steps: profile.steps().map(step).collect() }
    }
}

impl TryFrom<wire::Profile> for Profile {
    type Error = Malformed;

    fn try_from(profile: wire::Profile) -> Result<Profile, Malformed> {
        let fail = Malformed::Profile { field: "a profile" };
        let Some((first, last)) = profile.steps.first().zip(profile.steps.last()) else { return Ok(Profile::new()) };
        let moves = |two: &[wire::Step]| two[0].from < two[1].from && two[0].hosts != two[1].hosts;
        if first.hosts == 0 || last.hosts != 0 || !profile.steps.windows(2).all(moves) {
            return Err(fail);
        }
        let pair = |two: &[wire::Step]| {
            let millis = two[1].from.checked_sub(two[0].from)?;
            Some((Span::from_millis(millis), two[0].hosts))
        };
        let pairs = profile.steps.windows(2).map(pair).collect::<Option<Vec<_>>>().ok_or(fail)?;
        Ok(Profile::from_pairs(time(first.from), pairs))
    }
}

impl From<&model::Outcome> for wire::Outcome {
    fn from(outcome: &model::Outcome) -> wire::Outcome {
        match outcome.clone() {
            model::Outcome::Completed => wire::Outcome::Completed,
            model::Outcome::Failed { code } => wire::Outcome::Failed { code },
            model::Outcome::Signaled { signal } => wire::Outcome::Signaled { signal },
            model::Outcome::Cancelled { by } => wire::Outcome::Cancelled { by },
            model::Outcome::WallTime => wire::Outcome::WallTime,
            model::Outcome::NodeLost { node } => wire::Outcome::NodeLost { node },
            model::Outcome::LauncherLost => wire::Outcome::LauncherLost,
            model::Outcome::NotStarted { node, reason } => wire::Outcome::NotStarted { node, reason },
            model::Outcome::Violation { reason } => wire::Outcome::Violation { reason },
            model::Outcome::StageLate { stage } => wire::Outcome::StageLate { stage },
            model::Outcome::OutOfMemory { node, limit } => wire::Outcome::OutOfMemory { node, limit_mib: limit.0 },
            model::Outcome::Unsupervised { node, reason } => wire::Outcome::Unsupervised { node, reason },
        }
    }
}

impl From<wire::Outcome> for model::Outcome {
    fn from(outcome: wire::Outcome) -> model::Outcome {
        match outcome {
            wire::Outcome::Completed => model::Outcome::Completed,
            wire::Outcome::Failed { code } => model::Outcome::Failed { code },
            wire::Outcome::Signaled { signal } => model::Outcome::Signaled { signal },
            wire::Outcome::Cancelled { by } => model::Outcome::Cancelled { by },
            wire::Outcome::WallTime => model::Outcome::WallTime,
            wire::Outcome::NodeLost { node } => model::Outcome::NodeLost { node },
            wire::Outcome::LauncherLost => model::Outcome::LauncherLost,
            wire::Outcome::NotStarted { node, reason } => model::Outcome::NotStarted { node, reason },
            wire::Outcome::Violation { reason } => model::Outcome::Violation { reason },
            wire::Outcome::StageLate { stage } => model::Outcome::StageLate { stage },
            wire::Outcome::OutOfMemory { node, limit_mib } => {
                model::Outcome::OutOfMemory { node, limit: model::Mebibytes(limit_mib) }
            }
            wire::Outcome::Unsupervised { node, reason } => model::Outcome::Unsupervised { node, reason },
        }
    }
}

impl From<model::Usage> for wire::Usage {
    fn from(usage: model::Usage) -> wire::Usage {
        wire::Usage { cpu: usage.cpu.as_millis(), peak_memory_kib: usage.peak_memory_kib }
    }
}

impl TryFrom<wire::Usage> for model::Usage {
    type Error = Malformed;

    fn try_from(usage: wire::Usage) -> Result<model::Usage, Malformed> {
        Ok(model::Usage { cpu: span("the CPU time", usage.cpu)?, peak_memory_kib: usage.peak_memory_kib })
    }
}

impl From<TaskCount> for wire::TaskCount {
    fn from(tasks: TaskCount) -> wire::TaskCount {
        match tasks {
            TaskCount::PerHost(n_tasks) => wire::TaskCount::PerHost(n_tasks),
            TaskCount::Total(n_tasks) => wire::TaskCount::Total(n_tasks),
        }
    }
}

impl From<wire::TaskCount> for TaskCount {
    fn from(tasks: wire::TaskCount) -> TaskCount {
        match tasks {
            wire::TaskCount::PerHost(n_tasks) => TaskCount::PerHost(n_tasks),
            wire::TaskCount::Total(n_tasks) => TaskCount::Total(n_tasks),
        }
    }
}

impl From<&model::JobSpec> for wire::JobSpec {
    fn from(spec: &model::JobSpec) -> wire::JobSpec {
        wire::JobSpec {
            name: spec.name.clone(),
            owner: spec.owner.0.clone(),
            work: (&spec.work).into(),
            tasks: spec.tasks.into(),
            cpus_per_task: spec.cpus_per_task,
            cwd: spec.cwd.clone(),
            environment: variables(&spec.environment),
            umask: spec.umask,
            stdio: (&spec.stdio).into(),
            limits: (&spec.limits).into(),
            options: spec.options.iter().map(wire::Request::from).collect(),
            constraint: (&spec.constraint).into(),
            priority: spec.priority,
            requeue: spec.requeue,
            begin: opt_millis(spec.begin),
            comment: spec.comment.clone(),
            evolving: spec.evolving.as_ref().map(Into::into),
            malleable: spec.malleable.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<wire::JobSpec> for model::JobSpec {
    type Error = Malformed;

    fn try_from(spec: wire::JobSpec) -> Result<model::JobSpec, Malformed> {
        Ok(model::JobSpec {
            name: spec.name,
            owner: Owner(spec.owner),
            work: spec.work.try_into()?,
            tasks: spec.tasks.into(),
            cpus_per_task: spec.cpus_per_task,
            cwd: spec.cwd,
            environment: Arc::new(environment(spec.environment)?),
            umask: spec.umask,
            stdio: spec.stdio.try_into()?,
            limits: spec.limits.into(),
            options: all(spec.options, model::Request::try_from)?,
            constraint: spec.constraint.try_into()?,
            priority: spec.priority,
            requeue: spec.requeue,
            begin: opt_time(spec.begin),
            comment: spec.comment,
            evolving: spec.evolving.map(TryInto::try_into).transpose()?,
            malleable: spec.malleable.map(TryInto::try_into).transpose()?,
        })
    }
}

impl From<&model::JobRecord> for wire::JobRecord {
    fn from(record: &model::JobRecord) -> wire::JobRecord {
        wire::JobRecord {
            job: record.job.0,
            run: record.run.0,
            name: record.name.clone(),
            owner: record.owner.0.clone(),
            submitted: record.submitted.as_millis(),
            eligible: record.eligible.as_millis(),
            started: opt_millis(record.started),
            ended: record.ended.as_millis(),
            request: (&record.request).into(),
            n_tasks: record.n_tasks,
            cpus_per_task: record.cpus_per_task,
            nodes: record.nodes.clone(),
            outcome: (&record.outcome).into(),
            usage: record.usage.into(),
            evolution: record.evolution.as_ref().map(stages_to_wire),
        }
    }
}

impl TryFrom<wire::JobRecord> for model::JobRecord {
    type Error = Malformed;

    fn try_from(record: wire::JobRecord) -> Result<model::JobRecord, Malformed> {
        Ok(model::JobRecord {
            job: JobId(record.job),
            run: Run(record.run),
            name: record.name,
            owner: Owner(record.owner),
            submitted: time(record.submitted),
            eligible: time(record.eligible),
            started: opt_time(record.started),
            ended: time(record.ended),
            request: record.request.try_into()?,
            n_tasks: record.n_tasks,
            cpus_per_task: record.cpus_per_task,
            nodes: record.nodes,
            outcome: record.outcome.into(),
            usage: record.usage.try_into()?,
            evolution: record.evolution.map(stages_from_wire).transpose()?,
        })
    }
}

impl From<rms_api::answer::JobState> for wire::JobState {
    fn from(state: rms_api::answer::JobState) -> wire::JobState {
        match state {
            rms_api::answer::JobState::Submitted => wire::JobState::Submitted,
            rms_api::answer::JobState::Held => wire::JobState::Held,
            rms_api::answer::JobState::RequestSent => wire::JobState::RequestSent,
            rms_api::answer::JobState::Waiting => wire::JobState::Waiting,
            rms_api::answer::JobState::Started => wire::JobState::Started,
            rms_api::answer::JobState::Ending => wire::JobState::Ending,
            rms_api::answer::JobState::Ghost => wire::JobState::Ghost,
            rms_api::answer::JobState::Finished => wire::JobState::Finished,
        }
    }
}

impl From<wire::JobState> for rms_api::answer::JobState {
    fn from(state: wire::JobState) -> rms_api::answer::JobState {
        match state {
            wire::JobState::Submitted => rms_api::answer::JobState::Submitted,
            wire::JobState::Held => rms_api::answer::JobState::Held,
            wire::JobState::RequestSent => rms_api::answer::JobState::RequestSent,
            wire::JobState::Waiting => rms_api::answer::JobState::Waiting,
            wire::JobState::Started => rms_api::answer::JobState::Started,
            wire::JobState::Ending => rms_api::answer::JobState::Ending,
            wire::JobState::Ghost => rms_api::answer::JobState::Ghost,
            wire::JobState::Finished => rms_api::answer::JobState::Finished,
        }
    }
}

impl From<&TokenIdentity> for wire::TokenIdentity {
    fn from(identity: &TokenIdentity) -> wire::TokenIdentity {
        match identity {
            TokenIdentity::Named(identity) => wire::TokenIdentity::Named(identity.into()),
            TokenIdentity::AnyAgent => wire::TokenIdentity::AnyAgent,
        }
    }
}

impl TryFrom<wire::TokenIdentity> for TokenIdentity {
    type Error = Malformed;

    fn try_from(identity: wire::TokenIdentity) -> Result<TokenIdentity, Malformed> {
        match identity {
            wire::TokenIdentity::Named(identity) => Ok(TokenIdentity::Named(identity.try_into()?)),
            wire::TokenIdentity::AnyAgent => Ok(TokenIdentity::AnyAgent),
        }
    }
}
