//! Calls: written by clients, parsed by the server.

use rms_api::call::{Call, Query};
use rms_model::identity::check_name;
use rms_model::{JobId, Run};

use super::evolving::{stages_from_wire, stages_to_wire};
use super::vocabulary::{c_text, environment, named, variables};
use super::{Malformed, all, opt_millis, opt_time, span};
use crate::call as wire;
use crate::message::MAX_LINES;
use crate::request::{ClientRequest, Follow, HistoryQuery, Watch};

impl ClientRequest {
    /// What a client's call stands for. `draw_serial` is asked for the serial of a certificate to be renewed:
    /// serials are never the client's to choose.
    ///
    /// # Errors
    /// Content that cannot be.
    pub fn parse(call: wire::ClientCall, draw_serial: impl FnOnce() -> String) -> Result<ClientRequest, Malformed> {
        let call = match call {
            wire::ClientCall::Submit(submission) => Call::Submit(Box::new((*submission).try_into()?)),
            wire::ClientCall::Cancel { select } => Call::Cancel { select: select.try_into()? },
            wire::ClientCall::Signal { select, signal } => Call::Signal { select: select.try_into()?, signal },
            wire::ClientCall::Hold { select } => Call::Hold { select: select.try_into()? },
            wire::ClientCall::Release { select } => Call::Release { select: select.try_into()? },
            wire::ClientCall::SetPriority { select, priority } => {
                Call::SetPriority { select: select.try_into()?, priority }
            }
            wire::ClientCall::Query(query) => Call::Query(query.try_into()?),
            wire::ClientCall::Set { key, value } => Call::Set { key, value },
            wire::ClientCall::Drain { nodes, reason } => Call::Drain { nodes, reason },
            wire::ClientCall::Down { nodes, reason } => Call::Down { nodes, reason },
            wire::ClientCall::Resume { nodes } => Call::Resume { nodes },
            wire::ClientCall::Remove { nodes } => Call::Remove { nodes },
            wire::ClientCall::CreateToken(order) => Call::CreateToken(order.try_into()?),
            wire::ClientCall::RevokeToken { id } => Call::RevokeToken { id },
            wire::ClientCall::Renew { csr } => Call::Renew { csr, serial: draw_serial() },
            wire::ClientCall::RevokeCertificate { which, jobs } => {
                Call::RevokeCertificate { which: which.try_into()?, jobs: jobs.map(rms_api::call::JobsOfRevoked::from) }
            }
            wire::ClientCall::RemoveCluster { name } => Call::RemoveCluster { name },
            wire::ClientCall::Evolve { job, stages, open } => {
                Call::Evolve { job: JobId(job), stages: stages_from_wire(stages)?, open }
            }
            wire::ClientCall::FreeNodes { job, nodes } => Call::FreeNodes { job: JobId(job), nodes },
            wire::ClientCall::History(query) => return Ok(ClientRequest::History(query.try_into()?)),
            wire::ClientCall::Follow(follow) => return Ok(ClientRequest::Follow(follow.try_into()?)),
            wire::ClientCall::Watch { jobs } => return Ok(ClientRequest::Watch(Watch { jobs: job_ids(jobs)? })),
            wire::ClientCall::SetLink { a, b, latency_us, bandwidth_mbit } => {
                Call::SetLink { a, b, latency_us, bandwidth_mbit }
            }
            wire::ClientCall::Launcher => return Ok(ClientRequest::Launcher),
            wire::ClientCall::Negotiator => return Ok(ClientRequest::Negotiator),
            wire::ClientCall::Negotiate { job, ask } => Call::Negotiate { job: JobId(job), ask: ask.try_into()? },
            wire::ClientCall::ResizeDone { job, generation } => Call::ResizeDone { job: JobId(job), generation },
            wire::ClientCall::OrderNegotiation { job, negotiation, order } => {
                Call::OrderNegotiation { job: JobId(job), negotiation: negotiation.into(), order: order.into() }
            }
            wire::ClientCall::Launchers => return Ok(ClientRequest::Launchers),
            wire::ClientCall::Server => return Ok(ClientRequest::Server),
        };
        Ok(ClientRequest::Call(call))
    }
}

/// `None` for a join, which has its own protocol.
pub fn client_call(call: &Call) -> Option<wire::ClientCall> {
    Some(match call {
        Call::Submit(submission) => wire::ClientCall::Submit(Box::new(submission.as_ref().into())),
        Call::Cancel { select } => wire::ClientCall::Cancel { select: select.into() },
        Call::Signal { select, signal } => wire::ClientCall::Signal { select: select.into(), signal: *signal },
        Call::Hold { select } => wire::ClientCall::Hold { select: select.into() },
        Call::Release { select } => wire::ClientCall::Release { select: select.into() },
        Call::SetPriority { select, priority } => {
            wire::ClientCall::SetPriority { select: select.into(), priority: *priority }
        }
        Call::Query(query) => wire::ClientCall::Query(query.into()),
        Call::Set { key, value } => wire::ClientCall::Set { key: key.clone(), value: value.clone() },
        Call::Drain { nodes, reason } => wire::ClientCall::Drain { nodes: nodes.clone(), reason: reason.clone() },
        Call::Down { nodes, reason } => wire::ClientCall::Down { nodes: nodes.clone(), reason: reason.clone() },
        Call::Resume { nodes } => wire::ClientCall::Resume { nodes: nodes.clone() },
        Call::Remove { nodes } => wire::ClientCall::Remove { nodes: nodes.clone() },
        Call::CreateToken(order) => wire::ClientCall::CreateToken(order.into()),
        Call::RevokeToken { id } => wire::ClientCall::RevokeToken { id: id.clone() },
        Call::Join { .. } => return None,
        Call::Renew { csr, serial: _ } => wire::ClientCall::Renew { csr: csr.clone() },
        Call::RevokeCertificate { which, jobs } => {
            wire::ClientCall::RevokeCertificate { which: which.into(), jobs: jobs.map(wire::JobsOfRevoked::from) }
        }
        Call::RemoveCluster { name } => wire::ClientCall::RemoveCluster { name: name.clone() },
        Call::SetLink { a, b, latency_us, bandwidth_mbit } => wire::ClientCall::SetLink {
            a: a.clone(),
            b: b.clone(),
            latency_us: *latency_us,
            bandwidth_mbit: *bandwidth_mbit,
        },
        Call::Evolve { job, stages, open } => {
            wire::ClientCall::Evolve { job: job.0, stages: stages_to_wire(stages), open: *open }
        }
        Call::FreeNodes { job, nodes } => wire::ClientCall::FreeNodes { job: job.0, nodes: nodes.clone() },
        Call::Negotiate { job, ask } => wire::ClientCall::Negotiate { job: job.0, ask: ask.into() },
        Call::ResizeDone { job, generation } => wire::ClientCall::ResizeDone { job: job.0, generation: *generation },
        Call::OrderNegotiation { job, negotiation, order } => wire::ClientCall::OrderNegotiation {
            job: job.0,
            negotiation: (*negotiation).into(),
            order: (*order).into(),
        },
    })
}

/// Each id costs the server a look and a line of the answer.
fn job_ids(jobs: Vec<u64>) -> Result<Vec<JobId>, Malformed> {
    let n = jobs.len();
    if n > MAX_IDS {
        return Err(Malformed::TooMany { field: "the list of jobs", n, max: MAX_IDS });
    }
    Ok(jobs.into_iter().map(JobId).collect())
}

const MAX_IDS: usize = 65_536;

impl From<&rms_api::call::Submission> for wire::Submission {
    fn from(submission: &rms_api::call::Submission) -> wire::Submission {
        wire::Submission {
            name: submission.name.clone(),
            work: (&submission.work).into(),
            n_tasks: submission.n_tasks,
            cpus_per_task: submission.cpus_per_task,
            cwd: submission.cwd.clone(),
            environment: variables(&submission.environment),
            umask: submission.umask,
            stdio: (&submission.stdio).into(),
            limits: (&submission.limits).into(),
            shapes: submission.shapes.iter().map(wire::Shape::from).collect(),
            clusters: submission.clusters.clone(),
            constraint: (&submission.constraint).into(),
            priority: submission.priority,
            hold: submission.hold,
            requeue: submission.requeue,
            begin: opt_millis(submission.begin),
            comment: submission.comment.clone(),
            test_only: submission.test_only,
            evolving: submission.evolving.as_ref().map(Into::into),
            malleable: submission.malleable.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<wire::Submission> for rms_api::call::Submission {
    type Error = Malformed;

    fn try_from(submission: wire::Submission) -> Result<rms_api::call::Submission, Malformed> {
        let n_shapes = submission.shapes.len();
        if n_shapes > MAX_LINES {
            return Err(Malformed::TooMany { field: "the sizes of a job", n: n_shapes, max: MAX_LINES });
        }
        Ok(rms_api::call::Submission {
            name: c_text("the name of a job", submission.name)?,
            work: submission.work.try_into()?,
            n_tasks: submission.n_tasks,
            cpus_per_task: submission.cpus_per_task,
            cwd: c_text("the working directory", submission.cwd)?,
            environment: environment(submission.environment)?,
            umask: submission.umask,
            stdio: submission.stdio.try_into()?,
            limits: submission.limits.into(),
            shapes: all(submission.shapes, rms_api::call::Shape::try_from)?,
            clusters: submission.clusters,
            constraint: submission.constraint.try_into()?,
            priority: submission.priority,
            hold: submission.hold,
            requeue: submission.requeue,
            begin: opt_time(submission.begin),
            comment: submission.comment,
            test_only: submission.test_only,
            evolving: submission.evolving.map(TryInto::try_into).transpose()?,
            malleable: submission.malleable.map(TryInto::try_into).transpose()?,
        })
    }
}

impl From<&rms_api::call::Shape> for wire::Shape {
    fn from(shape: &rms_api::call::Shape) -> wire::Shape {
        let nodes = match &shape.nodes {
            rms_api::call::Nodes::FromTasks => wire::Nodes::FromTasks,
            rms_api::call::Nodes::Count(n_nodes) => wire::Nodes::Count(*n_nodes),
            rms_api::call::Nodes::PerCluster(counts) => {
                let count =
                    |(cluster, nodes): (&String, &u32)| wire::ClusterCount { cluster: cluster.clone(), nodes: *nodes };
                wire::Nodes::PerCluster(counts.iter().map(count).collect())
            }
        };
        wire::Shape { nodes, wall: shape.wall.map(rms_model::Span::as_millis) }
    }
}

impl TryFrom<wire::Shape> for rms_api::call::Shape {
    type Error = Malformed;

    fn try_from(shape: wire::Shape) -> Result<rms_api::call::Shape, Malformed> {
        let nodes = match shape.nodes {
            wire::Nodes::FromTasks => rms_api::call::Nodes::FromTasks,
            wire::Nodes::Count(n_nodes) => rms_api::call::Nodes::Count(n_nodes),
            wire::Nodes::PerCluster(counts) => {
                let n_counts = counts.len();
                let counts: std::collections::BTreeMap<String, u32> =
                    counts.into_iter().map(|count| (count.cluster, count.nodes)).collect();
                if counts.len() != n_counts {
                    return Err(Malformed::ClusterTwice { field: "a size of a job" });
                }
                rms_api::call::Nodes::PerCluster(counts)
            }
        };
        let wall = shape.wall.map(|wall| span("a wall time", wall)).transpose()?;
        Ok(rms_api::call::Shape { nodes, wall })
    }
}

impl From<&rms_api::call::Select> for wire::Select {
    fn from(select: &rms_api::call::Select) -> wire::Select {
        match select {
            rms_api::call::Select::Ids(jobs) => wire::Select::Ids(jobs.iter().map(|job| job.0).collect()),
            rms_api::call::Select::Last => wire::Select::Last,
            rms_api::call::Select::All => wire::Select::All,
            rms_api::call::Select::User(user) => wire::Select::User(user.clone()),
        }
    }
}

impl TryFrom<wire::Select> for rms_api::call::Select {
    type Error = Malformed;

    fn try_from(select: wire::Select) -> Result<rms_api::call::Select, Malformed> {
        Ok(match select {
            wire::Select::Ids(jobs) => rms_api::call::Select::Ids(job_ids(jobs)?),
            wire::Select::Last => rms_api::call::Select::Last,
            wire::Select::All => rms_api::call::Select::All,
            wire::Select::User(user) => {
                check_name(&user).map_err(named("a user"))?;
                rms_api::call::Select::User(user)
            }
        })
    }
}

impl From<&Query> for wire::Query {
    fn from(query: &Query) -> wire::Query {
        match query {
            Query::Queue => wire::Query::Queue,
            Query::Job(select) => wire::Query::Job(select.into()),
            Query::Nodes => wire::Query::Nodes,
            Query::Explain(select) => wire::Query::Explain(select.into()),
            Query::View { job } => wire::Query::View { job: job.map(|job| job.0) },
            Query::Settings => wire::Query::Settings,
            Query::Audit => wire::Query::Audit,
            Query::Tokens => wire::Query::Tokens,
            Query::Certificates => wire::Query::Certificates,
            Query::Status => wire::Query::Status,
            Query::Negotiations { job } => wire::Query::Negotiations { job: job.map(|job| job.0) },
            Query::Budgets => wire::Query::Budgets,
        }
    }
}

impl TryFrom<wire::Query> for Query {
    type Error = Malformed;

    fn try_from(query: wire::Query) -> Result<Query, Malformed> {
        Ok(match query {
            wire::Query::Queue => Query::Queue,
            wire::Query::Job(select) => Query::Job(select.try_into()?),
            wire::Query::Nodes => Query::Nodes,
            wire::Query::Explain(select) => Query::Explain(select.try_into()?),
            wire::Query::View { job } => Query::View { job: job.map(JobId) },
            wire::Query::Settings => Query::Settings,
            wire::Query::Audit => Query::Audit,
            wire::Query::Tokens => Query::Tokens,
            wire::Query::Certificates => Query::Certificates,
            wire::Query::Status => Query::Status,
            wire::Query::Negotiations { job } => Query::Negotiations { job: job.map(JobId) },
            wire::Query::Budgets => Query::Budgets,
        })
    }
}

impl From<&rms_api::call::TokenOrder> for wire::TokenOrder {
    fn from(order: &rms_api::call::TokenOrder) -> wire::TokenOrder {
        wire::TokenOrder {
            id: order.id.clone(),
            digest: order.digest,
            identity: (&order.identity).into(),
            cluster: order.cluster.clone(),
            ttl: order.ttl.as_millis(),
        }
    }
}

impl TryFrom<wire::TokenOrder> for rms_api::call::TokenOrder {
    type Error = Malformed;

    fn try_from(order: wire::TokenOrder) -> Result<rms_api::call::TokenOrder, Malformed> {
        check_name(&order.id).map_err(named("a token"))?;
        if let Some(cluster) = &order.cluster {
            check_name(cluster).map_err(named("the cluster of a token"))?;
        }
        Ok(rms_api::call::TokenOrder {
            id: order.id,
            digest: order.digest,
            identity: order.identity.try_into()?,
            cluster: order.cluster,
            ttl: span("the life of a token", order.ttl)?,
        })
    }
}

impl From<&rms_api::call::CertificateSelect> for wire::CertificateSelect {
    fn from(which: &rms_api::call::CertificateSelect) -> wire::CertificateSelect {
        match which {
            rms_api::call::CertificateSelect::Serial(serial) => wire::CertificateSelect::Serial(serial.clone()),
            rms_api::call::CertificateSelect::Identity(identity) => wire::CertificateSelect::Identity(identity.into()),
        }
    }
}

impl TryFrom<wire::CertificateSelect> for rms_api::call::CertificateSelect {
    type Error = Malformed;

    fn try_from(which: wire::CertificateSelect) -> Result<rms_api::call::CertificateSelect, Malformed> {
        Ok(match which {
            wire::CertificateSelect::Serial(serial) => rms_api::call::CertificateSelect::Serial(serial),
            wire::CertificateSelect::Identity(identity) => {
                rms_api::call::CertificateSelect::Identity(identity.try_into()?)
            }
        })
    }
}

impl From<&HistoryQuery> for wire::HistoryQuery {
    fn from(query: &HistoryQuery) -> wire::HistoryQuery {
        wire::HistoryQuery {
            user: query.user.clone(),
            states: query.states.clone(),
            since: opt_millis(query.since),
            until: opt_millis(query.until),
            jobs: query.jobs.iter().map(|job| job.0).collect(),
            name: query.name.clone(),
            limit: query.limit,
            offset: query.offset,
        }
    }
}

impl TryFrom<wire::HistoryQuery> for HistoryQuery {
    type Error = Malformed;

    fn try_from(query: wire::HistoryQuery) -> Result<HistoryQuery, Malformed> {
        Ok(HistoryQuery {
            user: query.user,
            states: query.states,
            since: opt_time(query.since),
            until: opt_time(query.until),
            jobs: job_ids(query.jobs)?,
            name: query.name,
            limit: query.limit,
            offset: query.offset,
        })
    }
}

impl From<&Follow> for wire::Follow {
    fn from(follow: &Follow) -> wire::Follow {
        let run = follow.run.map(|run| run.0);
        wire::Follow { job: follow.job.0, run, from: follow.from.clone(), input: follow.input }
    }
}

impl TryFrom<wire::Follow> for Follow {
    type Error = Malformed;

    fn try_from(follow: wire::Follow) -> Result<Follow, Malformed> {
        let run = follow.run.map(Run);
        Ok(Follow { job: JobId(follow.job), run, from: follow.from, input: follow.input })
    }
}

impl From<wire::JobsOfRevoked> for rms_api::call::JobsOfRevoked {
    fn from(jobs: wire::JobsOfRevoked) -> rms_api::call::JobsOfRevoked {
        match jobs {
            wire::JobsOfRevoked::Keep => rms_api::call::JobsOfRevoked::Keep,
            wire::JobsOfRevoked::Cancel => rms_api::call::JobsOfRevoked::Cancel,
        }
    }
}

impl From<rms_api::call::JobsOfRevoked> for wire::JobsOfRevoked {
    fn from(jobs: rms_api::call::JobsOfRevoked) -> wire::JobsOfRevoked {
        match jobs {
            rms_api::call::JobsOfRevoked::Keep => wire::JobsOfRevoked::Keep,
            rms_api::call::JobsOfRevoked::Cancel => wire::JobsOfRevoked::Cancel,
        }
    }
}
