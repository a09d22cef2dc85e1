//! Answers: written by the server, in parts where they are long.

use rms_api::Refusal;
use rms_api::answer::Answer;
use rms_api::audit::AuditEntry;
use rms_model::token::{Issued, Token, TokenState};
use rms_model::{ClusterId, JobId, JobRecord, Policy};

use super::opt_millis;
use crate::answer as wire;
use crate::answer::ClientAnswer;
use crate::message::MAX_LINES;
use crate::refused::Refused;
use crate::vocabulary;

/// The parts of an answer. Each is made when it is asked for, so that a long one is never there twice.
pub type Parts<'a> = Box<dyn Iterator<Item = ClientAnswer> + Send + 'a>;

/// The frames of an answer, in order; never none.
pub fn answer_parts(answer: &Result<Answer, Refusal>) -> Parts<'_> {
    let answer = match answer {
        Ok(answer) => answer,
        Err(refusal) => return only(ClientAnswer::Refused(refusal.into())),
    };
    match answer {
        Answer::Done => only(ClientAnswer::Done),
        Answer::Submitted { job } => only(ClientAnswer::Submitted { job: job.0 }),
        Answer::WouldStart { request, at, reason } => only(ClientAnswer::WouldStart {
            request: request.into(),
            at: opt_millis(*at),
            reason: reason.as_ref().map(wire::Reason::from),
        }),
        Answer::Jobs { done, refused } => jobs_parts(done, refused),
        Answer::Queue { now, jobs } => {
            let now = now.as_millis();
            parts(jobs, move |jobs, last| ClientAnswer::Queue { now, jobs, last })
        }
        Answer::Detail { now, jobs } => {
            let now = now.as_millis();
            one_by_one(jobs, move |job: Option<wire::JobDetail>, last| ClientAnswer::Detail {
                now,
                job: job.map(Box::new),
                last,
            })
        }
        Answer::Nodes { now, nodes, clusters } => {
            let now = now.as_millis();
            let cluster =
                |(cluster, name): &(ClusterId, String)| wire::ClusterName { cluster: cluster.0, name: name.clone() };
            let mut clusters: Vec<wire::ClusterName> = clusters.iter().map(cluster).collect();
            // The first part brings all the clusters: they are few.
            parts(nodes, move |nodes, last| {
                let clusters = std::mem::take(&mut clusters);
                ClientAnswer::Nodes { now, nodes, clusters, last }
            })
        }
        Answer::View(view) => {
            let (now, job) = (view.now.as_millis(), view.job.map(|job| job.0));
            one_by_one(&view.clusters, move |cluster, last| ClientAnswer::View { now, job, cluster, last })
        }
        Answer::Settings(settings) => parts(settings, |settings, last| ClientAnswer::Settings { settings, last }),
        Answer::Audit(changes) => parts(changes, |changes, last| ClientAnswer::Audit { changes, last }),
        Answer::Tokens(tokens) => parts(tokens, |tokens, last| ClientAnswer::Tokens { tokens, last }),
        Answer::Certificates(certificates) => {
            parts(certificates, |certificates, last| ClientAnswer::Certificates { certificates, last })
        }
        Answer::Negotiated(outcome) => only(ClientAnswer::Negotiated(outcome.into())),
        Answer::Negotiations { now, lines } => {
            let now = now.as_millis();
            one_by_one(lines, move |line: Option<crate::negotiate::NegotiationLine>, last| ClientAnswer::Negotiations {
                now,
                line: line.map(Box::new),
                last,
            })
        }
        Answer::Budgets(users) => parts(users, |users, last| ClientAnswer::Budgets { users, last }),
        Answer::Status(status) => only(ClientAnswer::Status(status.into())),
    }
}

/// The frames of a history, in order; never none.
pub fn history_parts(jobs: &[JobRecord]) -> Parts<'_> {
    parts(jobs, |jobs, last| ClientAnswer::History { jobs, last })
}

fn only<'a>(answer: ClientAnswer) -> Parts<'a> {
    Box::new(std::iter::once(answer))
}

/// Cuts a list into parts of [`MAX_LINES`]; an empty list is one empty part.
fn parts<'a, T: Sync, W: From<&'a T>>(
    items: &'a [T],
    mut part: impl FnMut(Vec<W>, bool) -> ClientAnswer + Send + 'a,
) -> Parts<'a> {
    let n_parts = items.len().div_ceil(MAX_LINES).max(1);
    let lines = |idx: usize| items.iter().skip(idx * MAX_LINES).take(MAX_LINES).map(W::from).collect();
    Box::new((0..n_parts).map(move |idx| part(lines(idx), idx + 1 == n_parts)))
}

/// One frame for each item, and one without for none.
fn one_by_one<'a, T: Sync, W: From<&'a T>>(
    items: &'a [T],
    part: impl Fn(Option<W>, bool) -> ClientAnswer + Send + 'a,
) -> Parts<'a> {
    if items.is_empty() {
        return only(part(None, true));
    }
    Box::new(items.iter().enumerate().map(move |(idx, item)| part(Some(item.into()), idx + 1 == items.len())))
}

fn jobs_parts<'a>(done: &'a [JobId], refused: &'a [(JobId, Refusal)]) -> Parts<'a> {
    let n_parts = done.len().max(refused.len()).div_ceil(MAX_LINES).max(1);
    let part = move |idx: usize| ClientAnswer::Jobs {
        done: done.iter().skip(idx * MAX_LINES).take(MAX_LINES).map(|job| job.0).collect(),
        refused: refused.iter().skip(idx * MAX_LINES).take(MAX_LINES).map(refused_job).collect(),
        last: idx + 1 == n_parts,
    };
    Box::new((0..n_parts).map(part))
}

fn refused_job((job, refusal): &(JobId, Refusal)) -> wire::RefusedJob {
    wire::RefusedJob { job: job.0, refused: Refused::from(refusal) }
}

impl From<&rms_api::answer::JobLine> for wire::JobLine {
    fn from(line: &rms_api::answer::JobLine) -> wire::JobLine {
        wire::JobLine {
            job: line.job.0,
            run: line.run.0,
            name: line.name.clone(),
            owner: line.owner.0.clone(),
            state: line.state.into(),
            priority: line.priority,
            n_tasks: line.n_tasks,
            cpus_per_task: line.cpus_per_task,
            submitted: line.submitted.as_millis(),
            requested: opt_millis(line.requested),
            request: (&line.request).into(),
            started: opt_millis(line.started),
            estimate: opt_millis(line.estimate),
            until: opt_millis(line.until),
            nodes: line.nodes.clone(),
            reason: line.reason.as_ref().map(wire::Reason::from),
            outcome: line.outcome.as_ref().map(vocabulary::Outcome::from),
            stages: line.stages.as_ref().map(Into::into),
            malleable: line.malleable.as_ref().map(Into::into),
        }
    }
}

impl From<&rms_api::answer::JobDetail> for wire::JobDetail {
    fn from(detail: &rms_api::answer::JobDetail) -> wire::JobDetail {
        let cores = |cores: &rms_api::answer::CoresLine| {
            let rms_api::answer::CoresLine { node, n_cores, all, is_in_force } = cores.clone();
            wire::CoresLine { node, n_cores, all, is_in_force }
        };
        let cores = detail.cores.iter().map(cores).collect();
        wire::JobDetail { line: (&detail.line).into(), spec: (&*detail.spec).into(), cores }
    }
}

impl From<&rms_api::answer::Reason> for wire::Reason {
    fn from(reason: &rms_api::answer::Reason) -> wire::Reason {
        match reason.clone() {
            rms_api::answer::Reason::Held { by } => wire::Reason::Held { by },
            rms_api::answer::Reason::NotBefore { at } => wire::Reason::NotBefore { at: at.as_millis() },
            rms_api::answer::Reason::NotPlanned { next_pass } => {
                wire::Reason::NotPlanned { next_pass: next_pass.as_millis() }
            }
            rms_api::answer::Reason::NoRequest { until } => wire::Reason::NoRequest { until: opt_millis(until) },
            rms_api::answer::Reason::AgentsExpected { cluster, n_nodes, until } => {
                wire::Reason::AgentsExpected { cluster, n_nodes, until: until.as_millis() }
            }
            rms_api::answer::Reason::LauncherAway { since, until } => {
                wire::Reason::LauncherAway { since: since.as_millis(), until: opt_millis(until) }
            }
            rms_api::answer::Reason::BeyondDepth { depth, position } => wire::Reason::BeyondDepth { depth, position },
            rms_api::answer::Reason::TooFewHosts { cluster, wanted, usable, total } => {
                wire::Reason::TooFewHosts { cluster, wanted, usable, total }
            }
            rms_api::answer::Reason::Behind { policy, job, until } => {
                wire::Reason::Behind { policy: policy.into(), job: job.0, until: until.as_millis() }
            }
            rms_api::answer::Reason::Blocked { cluster, wanted, capacity, busy, from, until, by, total } => {
                wire::Reason::Blocked {
                    cluster,
                    wanted,
                    capacity,
                    busy,
                    from: from.as_millis(),
                    until: until.as_millis(),
                    by: by.iter().map(wire::Blocker::from).collect(),
                    total,
                }
            }
        }
    }
}

impl From<&rms_api::answer::Blocker> for wire::Blocker {
    fn from(blocker: &rms_api::answer::Blocker) -> wire::Blocker {
        let rms_api::answer::Blocker { job, state, hosts, from, until, is_offer, is_promised } = *blocker;
        let (from, until) = (from.as_millis(), until.as_millis());
        wire::Blocker { job: job.0, state: state.into(), hosts, from, until, is_offer, is_promised }
    }
}

impl From<Policy> for wire::QueuePolicy {
    fn from(policy: Policy) -> wire::QueuePolicy {
        match policy {
            Policy::Views => wire::QueuePolicy::Views,
            Policy::Fcfs => wire::QueuePolicy::Fcfs,
            Policy::Easy => wire::QueuePolicy::Easy,
            Policy::Conservative => wire::QueuePolicy::Conservative,
        }
    }
}

impl From<rms_api::answer::NodeState> for wire::NodeState {
    fn from(state: rms_api::answer::NodeState) -> wire::NodeState {
        match state {
            rms_api::answer::NodeState::Idle => wire::NodeState::Idle,
            rms_api::answer::NodeState::Busy => wire::NodeState::Busy,
            rms_api::answer::NodeState::Ghost => wire::NodeState::Ghost,
            rms_api::answer::NodeState::Draining => wire::NodeState::Draining,
            rms_api::answer::NodeState::Drained => wire::NodeState::Drained,
            rms_api::answer::NodeState::Down => wire::NodeState::Down,
            rms_api::answer::NodeState::Away => wire::NodeState::Away,
            rms_api::answer::NodeState::Lost => wire::NodeState::Lost,
        }
    }
}

impl From<&rms_api::answer::NodeLine> for wire::NodeLine {
    fn from(line: &rms_api::answer::NodeLine) -> wire::NodeLine {
        wire::NodeLine {
            name: line.name.clone(),
            cluster: line.cluster.clone(),
            state: line.state.into(),
            reason: line.reason.clone(),
            since: line.since.as_millis(),
            inventory: (&line.inventory).into(),
            address: line.address.clone(),
            generation: line.generation.0,
            jobs: line.jobs.iter().map(|job| job.0).collect(),
        }
    }
}

impl From<&rms_api::answer::ClusterView> for wire::ClusterView {
    fn from(view: &rms_api::answer::ClusterView) -> wire::ClusterView {
        wire::ClusterView {
            cluster: view.cluster.0,
            name: view.name.clone(),
            capacity: view.capacity,
            total: view.total,
            started: (&view.started).into(),
            ghosts: (&view.ghosts).into(),
            planned: (&view.planned).into(),
            offered: (&view.offered).into(),
        }
    }
}

impl From<&(String, String)> for wire::Setting {
    fn from((key, value): &(String, String)) -> wire::Setting {
        wire::Setting { key: key.clone(), value: value.clone() }
    }
}

impl From<&AuditEntry> for wire::AuditEntry {
    fn from(change: &AuditEntry) -> wire::AuditEntry {
        let AuditEntry { at, by, subject, old, new, action } = change.clone();
        wire::AuditEntry { at: at.as_millis(), by, subject, old, new, action }
    }
}

impl From<&Token> for wire::Token {
    fn from(token: &Token) -> wire::Token {
        wire::Token {
            id: token.id.clone(),
            digest: token.digest,
            identity: (&token.identity).into(),
            cluster: token.cluster.clone(),
            created: token.created.as_millis(),
            created_by: token.created_by.clone(),
            expires: token.expires.as_millis(),
            state: match &token.state {
                TokenState::Open => wire::TokenState::Open,
                TokenState::Used { at } => wire::TokenState::Used { at: at.as_millis() },
                TokenState::Revoked { at, by } => wire::TokenState::Revoked { at: at.as_millis(), by: by.clone() },
            },
        }
    }
}

impl From<&Issued> for wire::Issued {
    fn from(issued: &Issued) -> wire::Issued {
        wire::Issued {
            serial: issued.serial.clone(),
            identity: (&issued.identity).into(),
            issued: issued.issued.as_millis(),
            expires: issued.expires.as_millis(),
            revoked: opt_millis(issued.revoked),
        }
    }
}

impl From<&rms_api::answer::Status> for wire::Status {
    fn from(status: &rms_api::answer::Status) -> wire::Status {
        wire::Status {
            now: status.now.as_millis(),
            n_nodes: status.n_nodes,
            n_connected: status.n_connected,
            n_waiting: status.n_waiting,
            n_started: status.n_started,
            n_ghosts: status.n_ghosts,
            n_submitted: status.n_submitted,
            n_passes: status.n_passes,
            last_pass: opt_millis(status.last_pass),
            ghost_host_time: status.ghost_host_time.as_millis(),
        }
    }
}
