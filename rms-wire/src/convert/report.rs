//! What an agent says of itself and its jobs: cut into frames by the agent, put together by the server.

use rms_api::desired::AgentHello;
use rms_api::desired::{JobReport, JobStatus, NodeExit, NodeReport};
use rms_model::identity::check_name;
use rms_model::{Generation, JobId, Run};

use super::vocabulary::{c_text, named};
use super::{Malformed, time};
use crate::message::MAX_LINES;
use crate::to_server as wire;

/// The frames of a report, in order; never none.
pub fn report_parts(report: &NodeReport) -> Vec<wire::ToServer> {
    let seen = report.seen.0;
    let part = |jobs, last| wire::ToServer::Report(wire::ReportPart { seen, jobs, last });
    if report.jobs.is_empty() {
        return vec![part(Vec::new(), true)];
    }
    let n_parts = report.jobs.len().div_ceil(MAX_LINES);
    let chunks = report.jobs.chunks(MAX_LINES).enumerate();
    chunks.map(|(idx, jobs)| part(jobs.iter().map(wire::JobReport::from).collect(), idx + 1 == n_parts)).collect()
}

/// Puts the frames of a report together.
#[derive(Debug, Default)]
pub struct ReportParts {
    so_far: Option<NodeReport>,
}

impl ReportParts {
    pub fn new() -> ReportParts {
        ReportParts::default()
    }

    /// Takes the next frame; returns the whole with the last one.
    ///
    /// # Errors
    /// A frame that does not parse, or belongs to another report than those before it.
    pub fn push(&mut self, part: wire::ReportPart) -> Result<Option<NodeReport>, Malformed> {
        let seen = Generation(part.seen);
        let mut report = self.so_far.take().unwrap_or(NodeReport { seen, jobs: Vec::new() });
        if report.seen != seen {
            return Err(Malformed::MixedGenerations { first: report.seen.0, later: seen.0 });
        }
        let n_lines = part.jobs.len();
        if n_lines > MAX_LINES {
            return Err(Malformed::TooMany { field: "a part of a report", n: n_lines, max: MAX_LINES });
        }
        if n_lines == 0 && !part.last {
            return Err(Malformed::EmptyPart);
        }
        for job in part.jobs {
            report.jobs.push(job.try_into()?);
        }
        let n = report.jobs.len();
        if n > MAX_JOBS_OF_A_NODE {
            return Err(Malformed::TooMany { field: "a report", n, max: MAX_JOBS_OF_A_NODE });
        }
        if part.last {
            return Ok(Some(report));
        }
        self.so_far = Some(report);
        Ok(None)
    }
}

/// More than any spool holds.
const MAX_JOBS_OF_A_NODE: usize = 65_536;

impl From<&AgentHello> for wire::AgentHello {
    fn from(hello: &AgentHello) -> wire::AgentHello {
        let AgentHello { cluster, address, inventory } = hello;
        wire::AgentHello { cluster: cluster.clone(), address: address.clone(), inventory: inventory.into() }
    }
}

impl TryFrom<wire::AgentHello> for AgentHello {
    type Error = Malformed;

    fn try_from(hello: wire::AgentHello) -> Result<AgentHello, Malformed> {
        check_name(&hello.cluster).map_err(named("the cluster of an agent"))?;
        let wire::AgentHello { cluster, address, inventory } = hello;
        Ok(AgentHello {
            cluster,
            address: c_text("the address of an agent", address)?,
            inventory: inventory.try_into()?,
        })
    }
}

impl From<&JobReport> for wire::JobReport {
    fn from(report: &JobReport) -> wire::JobReport {
        wire::JobReport { job: report.job.0, run: report.run.0, status: (&report.status).into() }
    }
}

impl TryFrom<wire::JobReport> for JobReport {
    type Error = Malformed;

    fn try_from(report: wire::JobReport) -> Result<JobReport, Malformed> {
        Ok(JobReport { job: JobId(report.job), run: Run(report.run), status: report.status.try_into()? })
    }
}

impl From<&JobStatus> for wire::JobStatus {
    fn from(status: &JobStatus) -> wire::JobStatus {
        match status {
            JobStatus::Starting => wire::JobStatus::Starting,
            JobStatus::Running { since, generation, is_confined } => wire::JobStatus::Running {
                since: since.as_millis(),
                generation: *generation,
                is_confined: *is_confined,
            },
            JobStatus::Ended { at, exit, usage } => {
                wire::JobStatus::Ended { at: at.as_millis(), exit: exit.into(), usage: (*usage).into() }
            }
        }
    }
}

impl TryFrom<wire::JobStatus> for JobStatus {
    type Error = Malformed;

    fn try_from(status: wire::JobStatus) -> Result<JobStatus, Malformed> {
        match status {
            wire::JobStatus::Starting => Ok(JobStatus::Starting),
            wire::JobStatus::Running { since, generation, is_confined } => {
                Ok(JobStatus::Running { since: time(since), generation, is_confined })
            }
            wire::JobStatus::Ended { at, exit, usage } => {
                Ok(JobStatus::Ended { at: time(at), exit: exit.into(), usage: usage.try_into()? })
            }
        }
    }
}

impl From<&NodeExit> for wire::NodeExit {
    fn from(exit: &NodeExit) -> wire::NodeExit {
        match exit.clone() {
            NodeExit::Exited { code } => wire::NodeExit::Exited { code },
            NodeExit::Signaled { signal } => wire::NodeExit::Signaled { signal },
            NodeExit::Aborted { code } => wire::NodeExit::Aborted { code },
            NodeExit::WallTime => wire::NodeExit::WallTime,
            NodeExit::Ordered => wire::NodeExit::Ordered,
            NodeExit::Vanished { reason } => wire::NodeExit::Vanished { reason },
            NodeExit::NotStarted { reason } => wire::NodeExit::NotStarted { reason },
            NodeExit::Overstayed => wire::NodeExit::Overstayed,
            NodeExit::OutOfMemory => wire::NodeExit::OutOfMemory,
            NodeExit::Unsupervised { reason } => wire::NodeExit::Unsupervised { reason },
            NodeExit::Violated { reason } => wire::NodeExit::Violated { reason },
        }
    }
}

impl From<wire::NodeExit> for NodeExit {
    fn from(exit: wire::NodeExit) -> NodeExit {
        match exit {
            wire::NodeExit::Exited { code } => NodeExit::Exited { code },
            wire::NodeExit::Signaled { signal } => NodeExit::Signaled { signal },
            wire::NodeExit::Aborted { code } => NodeExit::Aborted { code },
            wire::NodeExit::WallTime => NodeExit::WallTime,
            wire::NodeExit::Ordered => NodeExit::Ordered,
            wire::NodeExit::Vanished { reason } => NodeExit::Vanished { reason },
            wire::NodeExit::NotStarted { reason } => NodeExit::NotStarted { reason },
            wire::NodeExit::Overstayed => NodeExit::Overstayed,
            wire::NodeExit::OutOfMemory => NodeExit::OutOfMemory,
            wire::NodeExit::Unsupervised { reason } => NodeExit::Unsupervised { reason },
            wire::NodeExit::Violated { reason } => NodeExit::Violated { reason },
        }
    }
}
