//! What launchers say: written by them, parsed by the server.

use rms_api::subscription as core;
use rms_api::subscription::Tag;
use rms_model::identity::check_name;
use rms_model::job::Constraint;
use rms_model::{JobId, Request};

use super::Malformed;
use super::vocabulary::{c_text, environment, named, variables};
use crate::launcher as wire;

impl From<&core::LauncherCall> for wire::LauncherCall {
    fn from(call: &core::LauncherCall) -> wire::LauncherCall {
        match call {
            core::LauncherCall::Subscribe(subscription) => {
                let common = Box::new(subscription.as_ref().into());
                match &subscription.malleable {
                    None => wire::LauncherCall::Subscribe(common),
                    Some(limits) => {
                        wire::LauncherCall::SubscribeMalleable { subscription: common, malleable: limits.into() }
                    }
                }
            }
            core::LauncherCall::Attach { job } => wire::LauncherCall::Attach { job: job.0 },
            core::LauncherCall::Clusters { job } => wire::LauncherCall::Clusters { job: job.0 },
            core::LauncherCall::Request { job, wish } => wire::LauncherCall::Request { job: job.0, wish: wish.into() },
            core::LauncherCall::Launch { job, tag, launch } => {
                let (job, tag, common) = (job.0, tag.0, Box::new(launch.as_ref().into()));
                match &launch.malleable {
                    None => wire::LauncherCall::Launch { job, tag, launch: common },
                    Some(limits) => {
                        let malleable = limits.into();
                        wire::LauncherCall::LaunchMalleable { job, tag, launch: common, malleable }
                    }
                }
            }
            core::LauncherCall::Accept { job, tag } => wire::LauncherCall::Accept { job: job.0, tag: tag.0 },
            core::LauncherCall::Finish { job, tag, code } => {
                wire::LauncherCall::Finish { job: job.0, tag: tag.0, code: *code }
            }
        }
    }
}

impl TryFrom<wire::LauncherCall> for core::LauncherCall {
    type Error = Malformed;

    fn try_from(call: wire::LauncherCall) -> Result<core::LauncherCall, Malformed> {
        Ok(match call {
            wire::LauncherCall::Subscribe(subscription) => {
                core::LauncherCall::Subscribe(Box::new((*subscription).try_into()?))
            }
            wire::LauncherCall::SubscribeMalleable { subscription, malleable } => {
                let common = core::Subscription::try_from(*subscription)?;
                let malleable = Some(malleable.try_into()?);
                core::LauncherCall::Subscribe(Box::new(core::Subscription { malleable, ..common }))
            }
            wire::LauncherCall::LaunchMalleable { job, tag, launch, malleable } => {
                let common = core::Launchable::try_from(*launch)?;
                let launch = Box::new(core::Launchable { malleable: Some(malleable.try_into()?), ..common });
                core::LauncherCall::Launch { job: JobId(job), tag: Tag(tag), launch }
            }
            wire::LauncherCall::Attach { job } => core::LauncherCall::Attach { job: JobId(job) },
            wire::LauncherCall::Clusters { job } => core::LauncherCall::Clusters { job: JobId(job) },
            wire::LauncherCall::Request { job, wish } => {
                core::LauncherCall::Request { job: JobId(job), wish: wish.try_into()? }
            }
            wire::LauncherCall::Launch { job, tag, launch } => {
                core::LauncherCall::Launch { job: JobId(job), tag: Tag(tag), launch: Box::new((*launch).try_into()?) }
            }
            wire::LauncherCall::Accept { job, tag } => core::LauncherCall::Accept { job: JobId(job), tag: Tag(tag) },
            wire::LauncherCall::Finish { job, tag, code } => {
                core::LauncherCall::Finish { job: JobId(job), tag: Tag(tag), code }
            }
        })
    }
}

impl From<&core::Subscription> for wire::Subscription {
    fn from(subscription: &core::Subscription) -> wire::Subscription {
        // The limits go beside it.
        let core::Subscription { name, filter, priority, comment, malleable: _ } = subscription;
        wire::Subscription { name: name.clone(), filter: filter.into(), priority: *priority, comment: comment.clone() }
    }
}

impl TryFrom<wire::Subscription> for core::Subscription {
    type Error = Malformed;

    fn try_from(subscription: wire::Subscription) -> Result<core::Subscription, Malformed> {
        let wire::Subscription { name, filter, priority, comment } = subscription;
        Ok(core::Subscription {
            name: c_text("the application's name", name)?,
            filter: filter.try_into()?,
            priority,
            comment: c_text("the comment", comment)?,
            malleable: None,
        })
    }
}

impl From<&core::Filter> for wire::Filter {
    fn from(filter: &core::Filter) -> wire::Filter {
        let core::Filter { clusters, least_hosts, constraint } = filter;
        wire::Filter {
            clusters: clusters.iter().cloned().collect(),
            least_hosts: *least_hosts,
            constraint: constraint.into(),
        }
    }
}

impl TryFrom<wire::Filter> for core::Filter {
    type Error = Malformed;

    fn try_from(filter: wire::Filter) -> Result<core::Filter, Malformed> {
        let wire::Filter { clusters, least_hosts, constraint } = filter;
        let n = clusters.len();
        if n > MAX_CLUSTERS {
            return Err(Malformed::TooMany { field: "the filter's list of clusters", n, max: MAX_CLUSTERS });
        }
        let cluster = |name: String| check_name(&name).map(|()| name).map_err(named("a cluster"));
        let clusters = clusters.into_iter().map(cluster).collect::<Result<_, _>>()?;
        Ok(core::Filter { clusters, least_hosts, constraint: Constraint::try_from(constraint)? })
    }
}

impl From<&core::Wish> for wire::Wish {
    fn from(wish: &core::Wish) -> wire::Wish {
        wire::Wish { tag: wish.tag.0, seen: wish.seen, request: (&wish.request).into() }
    }
}

impl TryFrom<wire::Wish> for core::Wish {
    type Error = Malformed;

    fn try_from(wish: wire::Wish) -> Result<core::Wish, Malformed> {
        let wire::Wish { tag, seen, request } = wish;
        Ok(core::Wish { tag: Tag(tag), seen, request: Request::try_from(request)? })
    }
}

impl From<&core::Launchable> for wire::Launchable {
    fn from(launch: &core::Launchable) -> wire::Launchable {
        wire::Launchable {
            work: (&launch.work).into(),
            n_tasks: launch.n_tasks,
            cpus_per_task: launch.cpus_per_task,
            cwd: launch.cwd.clone(),
            environment: variables(&launch.environment),
            umask: launch.umask,
            stdio: (&launch.stdio).into(),
            limits: (&launch.limits).into(),
        }
    }
}

impl TryFrom<wire::Launchable> for core::Launchable {
    type Error = Malformed;

    fn try_from(launch: wire::Launchable) -> Result<core::Launchable, Malformed> {
        Ok(core::Launchable {
            work: launch.work.try_into()?,
            n_tasks: launch.n_tasks,
            cpus_per_task: launch.cpus_per_task,
            cwd: c_text("the working directory", launch.cwd)?,
            environment: environment(launch.environment)?,
            umask: launch.umask,
            stdio: launch.stdio.try_into()?,
            limits: launch.limits.into(),
            malleable: None,
        })
    }
}

/// As many as there can be.
const MAX_CLUSTERS: usize = 1 << 16;
