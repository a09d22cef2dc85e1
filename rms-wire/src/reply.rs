//! The client's end of a call: asks, and puts the parts of the answer together.

use rms_api::answer::{ClusterView, JobDetail, JobLine, NodeLine, Reason, Status, ViewAnswer};
use rms_api::audit::AuditEntry;
use rms_api::negotiate::{AskOutcome, BudgetLine, NegotiationLine};
use rms_model::token::{Issued, Token};
use rms_model::{ClusterId, JobId, JobRecord, Request, Time};
use thiserror::Error;

use crate::answer::{ClientAnswer, ServerReport};
use crate::call::ClientCall;
use crate::convert::{Malformed, all, opt_time, time};
use crate::link::{Link, LinkError};
use crate::refused::Refused;
use crate::request::LauncherReport;

/// A whole answer. It mirrors [`Answer`](rms_api::Answer), with refusals as they travel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Done,
    Submitted {
        job: JobId,
    },
    WouldStart {
        request: Request,
        at: Option<Time>,
        reason: Option<Reason>,
    },
    Jobs {
        done: Vec<JobId>,
        refused: Vec<(JobId, Refused)>,
    },
    Queue {
        now: Time,
        jobs: Vec<JobLine>,
    },
    Detail {
        now: Time,
        jobs: Vec<JobDetail>,
    },
    Nodes {
        now: Time,
        nodes: Vec<NodeLine>,
        clusters: Vec<(ClusterId, String)>,
    },
    View(ViewAnswer),
    Settings(Vec<(String, String)>),
    Audit(Vec<AuditEntry>),
    Tokens(Vec<Token>),
    Certificates(Vec<Issued>),
    Status(Status),
    History(Vec<JobRecord>),
    Launchers(LauncherReport),
    Server(ServerReport),
    Negotiated(AskOutcome),
    Negotiations {
        now: Time,
        lines: Vec<NegotiationLine>,
    },
    Budgets(Vec<BudgetLine>),
    /// Certificates in PEM, for a renewal.
    Certificate {
        chain: String,
        ca: String,
    },
}

/// Why a call has no answer.
#[derive(Debug, Error)]
pub enum CallError {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Link(#[from] LinkError),
}

impl Link {
    /// Asks the server and waits for the whole answer. Not for `Follow` and `Watch`, whose answers never end.
    ///
    /// # Errors
    /// The server refuses, or the link ends before the answer does.
    pub async fn call(&self, call: &ClientCall) -> Result<Reply, CallError> {
        let mut channel = self.open().await?;
        channel.send(call).await?;
        channel.finish();
        let (_sender, mut receiver) = channel.split();
        let mut parts = ReplyParts::new();
        loop {
            let answer = receiver.recv_some::<ClientAnswer>().await?;
            if let ClientAnswer::Refused(refused) = answer {
                return Err(CallError::Refused(refused));
            }
            match parts.push(answer) {
                Ok(Some(reply)) => return Ok(reply),
                Ok(None) => {}
                Err(malformed) => {
                    let error = LinkError::Malformed(malformed);
                    self.close_for(&error);
                    return Err(error.into());
                }
            }
        }
    }
}

/// Puts the parts of an answer together.
#[derive(Debug, Default)]
pub struct ReplyParts {
    so_far: Option<Reply>,
    n_lines: usize,
}

impl ReplyParts {
    pub fn new() -> ReplyParts {
        ReplyParts::default()
    }

    /// Takes the next part; returns the whole with the last one. Refusals are the caller's to look for first.
    ///
    /// # Errors
    /// A part that does not parse, or does not continue those before it.
    pub fn push(&mut self, part: ClientAnswer) -> Result<Option<Reply>, Malformed> {
        let (part, last) = parse(part)?;
        self.n_lines += n_lines(&part);
        if self.n_lines > MAX_TOTAL_LINES {
            return Err(Malformed::TooMany { field: "an answer", n: self.n_lines, max: MAX_TOTAL_LINES });
        }
        let whole = match self.so_far.take() {
            None => part,
            Some(so_far) => join(so_far, part)?,
        };
        if last {
            return Ok(Some(whole));
        }
        self.so_far = Some(whole);
        Ok(None)
    }
}

/// One part as a reply of its own, and whether it is the last.
fn parse(part: ClientAnswer) -> Result<(Reply, bool), Malformed> {
    Ok(match part {
        // A refusal is no part of an answer.
        ClientAnswer::Refused(_) => return Err(Malformed::MixedParts),
        ClientAnswer::Done => (Reply::Done, true),
        ClientAnswer::Submitted { job } => (Reply::Submitted { job: JobId(job) }, true),
        ClientAnswer::WouldStart { request, at, reason } => {
            let reason = reason.map(Reason::from);
            (Reply::WouldStart { request: request.try_into()?, at: opt_time(at), reason }, true)
        }
        ClientAnswer::Jobs { done, refused, last } => {
            let done = done.into_iter().map(JobId).collect();
            let refused = refused.into_iter().map(|one| (JobId(one.job), one.refused)).collect();
            (Reply::Jobs { done, refused }, last)
        }
        ClientAnswer::Queue { now, jobs, last } => {
            (Reply::Queue { now: time(now), jobs: all(jobs, JobLine::try_from)? }, last)
        }
        ClientAnswer::Detail { now, job, last } => {
            let job = job.map(|job| JobDetail::try_from(*job)).transpose()?;
            (Reply::Detail { now: time(now), jobs: job.into_iter().collect() }, last)
        }
        ClientAnswer::Nodes { now, nodes, clusters, last } => {
            let clusters = clusters.into_iter().map(|one| (ClusterId(one.cluster), one.name)).collect();
            (Reply::Nodes { now: time(now), nodes: all(nodes, NodeLine::try_from)?, clusters }, last)
        }
        ClientAnswer::View { now, job, cluster, last } => {
            let cluster = cluster.map(ClusterView::try_from).transpose()?;
            let clusters = cluster.into_iter().collect();
            (Reply::View(ViewAnswer { now: time(now), job: job.map(JobId), clusters }), last)
        }
        ClientAnswer::Settings { settings, last } => {
            (Reply::Settings(settings.into_iter().map(|one| (one.key, one.value)).collect()), last)
        }
        ClientAnswer::Audit { changes, last } => {
            (Reply::Audit(changes.into_iter().map(AuditEntry::from).collect()), last)
        }
        ClientAnswer::Tokens { tokens, last } => (Reply::Tokens(all(tokens, Token::try_from)?), last),
        ClientAnswer::Certificates { certificates, last } => {
            (Reply::Certificates(all(certificates, Issued::try_from)?), last)
        }
        ClientAnswer::Status(status) => (Reply::Status(status.try_into()?), true),
        ClientAnswer::History { jobs, last } => (Reply::History(all(jobs, JobRecord::try_from)?), last),
        ClientAnswer::Launchers(report) => (Reply::Launchers(report.try_into()?), true),
        ClientAnswer::Server(report) => (Reply::Server(report), true),
        ClientAnswer::Negotiated(outcome) => (Reply::Negotiated(outcome.into()), true),
        ClientAnswer::Negotiations { now, line, last } => {
            let line = line.map(|line| NegotiationLine::try_from(*line)).transpose()?;
            (Reply::Negotiations { now: time(now), lines: line.into_iter().collect() }, last)
        }
        ClientAnswer::Budgets { users, last } => {
            (Reply::Budgets(users.into_iter().map(BudgetLine::from).collect()), last)
        }
        ClientAnswer::Certificate { chain, ca } => (Reply::Certificate { chain, ca }, true),
    })
}

/// A list with the part that follows.
fn join(so_far: Reply, part: Reply) -> Result<Reply, Malformed> {
    match (so_far, part) {
        (Reply::Jobs { mut done, mut refused }, Reply::Jobs { done: more_done, refused: more_refused }) => {
            done.extend(more_done);
            refused.extend(more_refused);
            Ok(Reply::Jobs { done, refused })
        }
        (Reply::Queue { now, jobs }, Reply::Queue { now: _, jobs: more }) => {
            Ok(Reply::Queue { now, jobs: longer(jobs, more) })
        }
        (Reply::Detail { now, jobs }, Reply::Detail { now: _, jobs: more }) => {
            Ok(Reply::Detail { now, jobs: longer(jobs, more) })
        }
        (Reply::Nodes { now, nodes, clusters }, Reply::Nodes { now: _, nodes: more, clusters: more_clusters }) => {
            let clusters = longer(clusters, more_clusters);
            Ok(Reply::Nodes { now, nodes: longer(nodes, more), clusters })
        }
        (Reply::View(mut view), Reply::View(more)) => {
            view.clusters.extend(more.clusters);
            Ok(Reply::View(view))
        }
        (Reply::Settings(settings), Reply::Settings(more)) => Ok(Reply::Settings(longer(settings, more))),
        (Reply::Audit(changes), Reply::Audit(more)) => Ok(Reply::Audit(longer(changes, more))),
        (Reply::Tokens(tokens), Reply::Tokens(more)) => Ok(Reply::Tokens(longer(tokens, more))),
        (Reply::Certificates(issued), Reply::Certificates(more)) => Ok(Reply::Certificates(longer(issued, more))),
        (Reply::Negotiations { now, lines }, Reply::Negotiations { now: _, lines: more }) => {
            Ok(Reply::Negotiations { now, lines: longer(lines, more) })
        }
        (Reply::Budgets(users), Reply::Budgets(more)) => Ok(Reply::Budgets(longer(users, more))),
        (Reply::History(jobs), Reply::History(more)) => Ok(Reply::History(longer(jobs, more))),
        // Anything else mixes two answers, or continues one that has no parts.
        (_, _) => Err(Malformed::MixedParts),
    }
}

fn longer<T>(mut items: Vec<T>, more: Vec<T>) -> Vec<T> {
    items.extend(more);
    items
}

fn n_lines(part: &Reply) -> usize {
    match part {
        Reply::Done
        | Reply::Submitted { .. }
        | Reply::WouldStart { .. }
        | Reply::Status(_)
        | Reply::Launchers(_)
        | Reply::Server(_)
        | Reply::Negotiated(_)
        | Reply::Certificate { .. } => 1,
        Reply::Jobs { done, refused } => done.len() + refused.len(),
        Reply::Queue { now: _, jobs } => jobs.len(),
        Reply::Detail { now: _, jobs } => jobs.len(),
        Reply::Nodes { now: _, nodes, clusters } => nodes.len() + clusters.len(),
        Reply::View(view) => view.clusters.len(),
        Reply::Negotiations { now: _, lines } => lines.len(),
        Reply::Budgets(users) => users.len(),
        Reply::Settings(settings) => settings.len(),
        Reply::Audit(changes) => changes.len(),
        Reply::Tokens(tokens) => tokens.len(),
        Reply::Certificates(issued) => issued.len(),
        Reply::History(jobs) => jobs.len(),
    }
}

/// More lines than a deployment has; a server that sends more is not taken at its word.
const MAX_TOTAL_LINES: usize = 4_000_000;
