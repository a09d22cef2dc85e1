//! Answers: parsed by clients.

use std::sync::Arc;

use rms_api::audit::AuditEntry;
use rms_model::token::{Issued, Token, TokenState};
use rms_model::{ClusterId, Generation, JobId, Owner, Policy, Run};

use super::{Malformed, opt_time, span, time};
use crate::answer as wire;

impl TryFrom<wire::JobLine> for rms_api::answer::JobLine {
    type Error = Malformed;

    fn try_from(line: wire::JobLine) -> Result<rms_api::answer::JobLine, Malformed> {
        Ok(rms_api::answer::JobLine {
            job: JobId(line.job),
            run: Run(line.run),
            name: line.name,
            owner: Owner(line.owner),
            state: line.state.into(),
            priority: line.priority,
            n_tasks: line.n_tasks,
            cpus_per_task: line.cpus_per_task,
            submitted: time(line.submitted),
            requested: opt_time(line.requested),
            request: line.request.try_into()?,
            started: opt_time(line.started),
            estimate: opt_time(line.estimate),
            until: opt_time(line.until),
            nodes: line.nodes,
            reason: line.reason.map(rms_api::answer::Reason::from),
            outcome: line.outcome.map(Into::into),
            stages: line.stages.map(TryInto::try_into).transpose()?,
            malleable: line.malleable.map(TryInto::try_into).transpose()?,
        })
    }
}

impl TryFrom<wire::JobDetail> for rms_api::answer::JobDetail {
    type Error = Malformed;

    fn try_from(detail: wire::JobDetail) -> Result<rms_api::answer::JobDetail, Malformed> {
        let cores = |cores: wire::CoresLine| {
            let wire::CoresLine { node, n_cores, all, is_in_force } = cores;
            rms_api::answer::CoresLine { node, n_cores, all, is_in_force }
        };
        let cores = detail.cores.into_iter().map(cores).collect();
        Ok(rms_api::answer::JobDetail { line: detail.line.try_into()?, spec: Arc::new(detail.spec.try_into()?), cores })
    }
}

impl From<wire::Reason> for rms_api::answer::Reason {
    fn from(reason: wire::Reason) -> rms_api::answer::Reason {
        match reason {
            wire::Reason::Held { by } => rms_api::answer::Reason::Held { by },
            wire::Reason::NotBefore { at } => rms_api::answer::Reason::NotBefore { at: time(at) },
            wire::Reason::NotPlanned { next_pass } => {
                rms_api::answer::Reason::NotPlanned { next_pass: time(next_pass) }
            }
            wire::Reason::NoRequest { until } => rms_api::answer::Reason::NoRequest { until: opt_time(until) },
            wire::Reason::AgentsExpected { cluster, n_nodes, until } => {
                rms_api::answer::Reason::AgentsExpected { cluster, n_nodes, until: time(until) }
            }
            wire::Reason::LauncherAway { since, until } => {
                rms_api::answer::Reason::LauncherAway { since: time(since), until: opt_time(until) }
            }
            wire::Reason::BeyondDepth { depth, position } => rms_api::answer::Reason::BeyondDepth { depth, position },
            wire::Reason::TooFewHosts { cluster, wanted, usable, total } => {
                rms_api::answer::Reason::TooFewHosts { cluster, wanted, usable, total }
            }
            wire::Reason::Behind { policy, job, until } => {
                rms_api::answer::Reason::Behind { policy: policy.into(), job: JobId(job), until: time(until) }
            }
            wire::Reason::Blocked { cluster, wanted, capacity, busy, from, until, by, total } => {
                rms_api::answer::Reason::Blocked {
                    cluster,
                    wanted,
                    capacity,
                    busy,
                    from: time(from),
                    until: time(until),
                    by: by.into_iter().map(rms_api::answer::Blocker::from).collect(),
                    total,
                }
            }
        }
    }
}

impl From<wire::Blocker> for rms_api::answer::Blocker {
    fn from(blocker: wire::Blocker) -> rms_api::answer::Blocker {
        let wire::Blocker { job, state, hosts, from, until, is_offer, is_promised } = blocker;
        let (from, until) = (time(from), time(until));
        rms_api::answer::Blocker { job: JobId(job), state: state.into(), hosts, from, until, is_offer, is_promised }
    }
}

impl From<wire::QueuePolicy> for Policy {
    fn from(policy: wire::QueuePolicy) -> Policy {
        match policy {
            wire::QueuePolicy::Views => Policy::Views,
            wire::QueuePolicy::Fcfs => Policy::Fcfs,
            wire::QueuePolicy::Easy => Policy::Easy,
            wire::QueuePolicy::Conservative => Policy::Conservative,
        }
    }
}

impl From<wire::NodeState> for rms_api::answer::NodeState {
    fn from(state: wire::NodeState) -> rms_api::answer::NodeState {
        match state {
            wire::NodeState::Idle => rms_api::answer::NodeState::Idle,
            wire::NodeState::Busy => rms_api::answer::NodeState::Busy,
            wire::NodeState::Ghost => rms_api::answer::NodeState::Ghost,
            wire::NodeState::Draining => rms_api::answer::NodeState::Draining,
            wire::NodeState::Drained => rms_api::answer::NodeState::Drained,
            wire::NodeState::Down => rms_api::answer::NodeState::Down,
            wire::NodeState::Away => rms_api::answer::NodeState::Away,
            wire::NodeState::Lost => rms_api::answer::NodeState::Lost,
        }
    }
}

impl TryFrom<wire::NodeLine> for rms_api::answer::NodeLine {
    type Error = Malformed;

    fn try_from(line: wire::NodeLine) -> Result<rms_api::answer::NodeLine, Malformed> {
        Ok(rms_api::answer::NodeLine {
            name: line.name,
            cluster: line.cluster,
            state: line.state.into(),
            reason: line.reason,
            since: time(line.since),
            inventory: line.inventory.try_into()?,
            address: line.address,
            generation: Generation(line.generation),
            jobs: line.jobs.into_iter().map(JobId).collect(),
        })
    }
}

impl TryFrom<wire::ClusterView> for rms_api::answer::ClusterView {
    type Error = Malformed;

    fn try_from(view: wire::ClusterView) -> Result<rms_api::answer::ClusterView, Malformed> {
        Ok(rms_api::answer::ClusterView {
            cluster: ClusterId(view.cluster),
            name: view.name,
            capacity: view.capacity,
            total: view.total,
            started: view.started.try_into()?,
            ghosts: view.ghosts.try_into()?,
            planned: view.planned.try_into()?,
            offered: view.offered.try_into()?,
        })
    }
}

impl From<wire::AuditEntry> for AuditEntry {
    fn from(change: wire::AuditEntry) -> AuditEntry {
        let wire::AuditEntry { at, by, subject, old, new, action } = change;
        AuditEntry { at: time(at), by, subject, old, new, action }
    }
}

impl TryFrom<wire::Token> for Token {
    type Error = Malformed;

    fn try_from(token: wire::Token) -> Result<Token, Malformed> {
        Ok(Token {
            id: token.id,
            digest: token.digest,
            identity: token.identity.try_into()?,
            cluster: token.cluster,
            created: time(token.created),
            created_by: token.created_by,
            expires: time(token.expires),
            state: match token.state {
                wire::TokenState::Open => TokenState::Open,
                wire::TokenState::Used { at } => TokenState::Used { at: time(at) },
                wire::TokenState::Revoked { at, by } => TokenState::Revoked { at: time(at), by },
            },
        })
    }
}

impl TryFrom<wire::Issued> for Issued {
    type Error = Malformed;

    fn try_from(issued: wire::Issued) -> Result<Issued, Malformed> {
        Ok(Issued {
            serial: issued.serial,
            identity: issued.identity.try_into()?,
            issued: time(issued.issued),
            expires: time(issued.expires),
            revoked: opt_time(issued.revoked),
        })
    }
}

impl TryFrom<wire::Status> for rms_api::answer::Status {
    type Error = Malformed;

    fn try_from(status: wire::Status) -> Result<rms_api::answer::Status, Malformed> {
        Ok(rms_api::answer::Status {
            now: time(status.now),
            n_nodes: status.n_nodes,
            n_connected: status.n_connected,
            n_waiting: status.n_waiting,
            n_started: status.n_started,
            n_ghosts: status.n_ghosts,
            n_submitted: status.n_submitted,
            n_passes: status.n_passes,
            last_pass: opt_time(status.last_pass),
            ghost_host_time: span("the time of ghosts", status.ghost_host_time)?,
            launchers: rms_api::answer::LauncherStatus::default(),
        })
    }
}
