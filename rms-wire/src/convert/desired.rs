//! A node's desired state: cut into frames by the server, put together by the agent.

use std::sync::Arc;

use rms_api::desired::{Aim, Desired, DesiredJob, Host, Launch};
use rms_model::identity::check_name;
use rms_model::{Generation, JobId, Mebibytes, NodeId, Owner, Run};

use super::vocabulary::{c_text, environment, named, variables};
use super::{Malformed, all, span};
use crate::to_agent as wire;

/// The frames of a desired state, in order; never none.
pub fn desire_parts(desired: &Desired) -> Vec<wire::ToAgent> {
    let generation = desired.generation.0;
    let part = |job, last| wire::ToAgent::Desire(wire::DesirePart { generation, job, last });
    let n_jobs = desired.jobs.len();
    if n_jobs == 0 {
        return vec![part(None, true)];
    }
    let jobs = desired.jobs.iter().enumerate();
    jobs.map(|(idx, job)| part(Some(Box::new(job.into())), idx + 1 == n_jobs)).collect()
}

/// Puts the frames of a desired state together.
#[derive(Debug, Default)]
pub struct DesiredParts {
    so_far: Option<Desired>,
}

impl DesiredParts {
    pub fn new() -> DesiredParts {
        DesiredParts::default()
    }

    /// Takes the next frame; returns the whole with the last one.
    ///
    /// # Errors
    /// A frame that does not parse, or belongs to another generation than those before it.
    pub fn push(&mut self, part: wire::DesirePart) -> Result<Option<Desired>, Malformed> {
        let generation = Generation(part.generation);
        let is_first = self.so_far.is_none();
        let mut desired = self.so_far.take().unwrap_or(Desired { generation, jobs: Vec::new() });
        if desired.generation != generation {
            let (first, later) = (desired.generation.0, generation.0);
            return Err(Malformed::MixedGenerations { first, later });
        }
        match part.job {
            Some(job) => desired.jobs.push((*job).try_into()?),
            None if is_first && part.last => {}
            None => return Err(Malformed::EmptyPart),
        }
        if part.last {
            return Ok(Some(desired));
        }
        self.so_far = Some(desired);
        Ok(None)
    }
}

impl From<&DesiredJob> for wire::DesiredJob {
    fn from(job: &DesiredJob) -> wire::DesiredJob {
        wire::DesiredJob {
            job: job.job.0,
            run: job.run.0,
            aim: match job.aim {
                Aim::Run => wire::Aim::Run,
                Aim::End { patience, grace } => {
                    wire::Aim::End { patience: patience.as_millis(), grace: grace.as_millis() }
                }
            },
            launch: job.launch.as_ref().into(),
            host_idx: job.host_idx,
        }
    }
}

impl TryFrom<wire::DesiredJob> for DesiredJob {
    type Error = Malformed;

    fn try_from(job: wire::DesiredJob) -> Result<DesiredJob, Malformed> {
        let launch = Launch::try_from(job.launch)?;
        let n_hosts = launch.hosts.len();
        if job.host_idx as usize >= n_hosts {
            return Err(Malformed::TooMany { field: "the index of a host", n: job.host_idx as usize, max: n_hosts });
        }
        Ok(DesiredJob {
            job: JobId(job.job),
            run: Run(job.run),
            aim: match job.aim {
                wire::Aim::Run => Aim::Run,
                wire::Aim::End { patience, grace } => {
                    Aim::End { patience: span("the patience", patience)?, grace: span("the grace", grace)? }
                }
            },
            launch: Arc::new(launch),
            host_idx: job.host_idx,
        })
    }
}

impl From<&Launch> for wire::Launch {
    fn from(launch: &Launch) -> wire::Launch {
        wire::Launch {
            name: launch.name.clone(),
            owner: launch.owner.0.clone(),
            work: (&launch.work).into(),
            n_tasks: launch.n_tasks,
            cpus_per_task: launch.cpus_per_task,
            cwd: launch.cwd.clone(),
            environment: variables(&launch.environment),
            umask: launch.umask,
            stdio: (&launch.stdio).into(),
            limits: (&launch.limits).into(),
            wall: launch.wall.as_millis(),
            grace: launch.grace.as_millis(),
            hosts: launch.hosts.iter().map(wire::Host::from).collect(),
            generation: launch.generation,
            on_resize: launch.on_resize.as_ref().map(Into::into),
            least: launch.least,
            most: launch.most,
            memory_mib: launch.memory.0,
        }
    }
}

impl TryFrom<wire::Launch> for Launch {
    type Error = Malformed;

    fn try_from(launch: wire::Launch) -> Result<Launch, Malformed> {
        check_name(&launch.owner).map_err(named("the owner of a job"))?;
        Ok(Launch {
            name: c_text("the name of a job", launch.name)?,
            owner: Owner(launch.owner),
            work: launch.work.try_into()?,
            n_tasks: launch.n_tasks,
            cpus_per_task: launch.cpus_per_task,
            cwd: c_text("the working directory", launch.cwd)?,
            environment: Arc::new(environment(launch.environment)?),
            umask: launch.umask,
            stdio: launch.stdio.try_into()?,
            limits: launch.limits.into(),
            wall: span("the wall time", launch.wall)?,
            grace: span("the grace", launch.grace)?,
            hosts: all(launch.hosts, Host::try_from)?,
            generation: launch.generation,
            on_resize: launch.on_resize.map(Into::into),
            least: launch.least,
            most: launch.most,
            memory: Mebibytes(launch.memory_mib),
        })
    }
}

impl From<&Host> for wire::Host {
    fn from(host: &Host) -> wire::Host {
        wire::Host {
            node: host.node.0,
            name: host.name.clone(),
            cluster: host.cluster.clone(),
            address: host.address.clone(),
            first_task: host.first_task,
            n_tasks: host.n_tasks,
            cpus: host.cpus,
            joined: host.joined,
            departing: host.departing,
        }
    }
}

impl TryFrom<wire::Host> for Host {
    type Error = Malformed;

    fn try_from(host: wire::Host) -> Result<Host, Malformed> {
        check_name(&host.name).map_err(named("a host of a job"))?;
        check_name(&host.cluster).map_err(named("the cluster of a host"))?;
        let wire::Host { node, name, cluster, address, first_task, n_tasks, cpus, joined, departing } = host;
        Ok(Host { node: NodeId(node), name, cluster, address, first_task, n_tasks, cpus, joined, departing })
    }
}
