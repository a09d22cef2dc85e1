//! Splits a long answer into parts, on the server, and joins them, on the client.

use rms_api::Answer;
use rms_api::answer::ViewAnswer;

use super::{MAX_LINES, Malformed};
use crate::answer::AnswerPart;

/// The parts of an answer. Each is made on demand, so that a long answer is never in memory twice.
pub type Parts<'a> = Box<dyn Iterator<Item = AnswerPart> + Send + 'a>;

/// Returns the frames of an answer, in order; at least one. Jobs, views and negotiations can be large: one per frame.
pub fn answer_parts(answer: &Answer) -> Parts<'_> {
    match answer {
        Answer::Jobs { done, refused } => {
            let n_parts = done.len().max(refused.len()).div_ceil(MAX_LINES).max(1);
            let part = move |idx| Answer::Jobs { done: lines(done, idx), refused: lines(refused, idx) };
            numbered(n_parts, part)
        }
        Answer::Queue { now, planned, jobs } => {
            parts(jobs, MAX_LINES, |_, jobs| Answer::Queue { now: *now, planned: *planned, jobs })
        }
        Answer::Detail { now, planned, jobs } => {
            parts(jobs, 1, |_, jobs| Answer::Detail { now: *now, planned: *planned, jobs })
        }
        // The first part contains all clusters: they are few.
        Answer::Nodes { now, nodes, clusters } => parts(nodes, MAX_LINES, move |idx, nodes| {
            let clusters = if idx == 0 { clusters.clone() } else { Vec::new() };
            Answer::Nodes { now: *now, nodes, clusters }
        }),
        Answer::Clusters(clusters) => parts(clusters, MAX_LINES, |_, clusters| Answer::Clusters(clusters)),
        Answer::View(view) => {
            parts(&view.clusters, 1, |_, clusters| Answer::View(ViewAnswer { now: view.now, job: view.job, clusters }))
        }
        Answer::Settings(settings) => parts(settings, MAX_LINES, |_, settings| Answer::Settings(settings)),
        Answer::Audit(changes) => parts(changes, MAX_LINES, |_, changes| Answer::Audit(changes)),
        Answer::Tokens(tokens) => parts(tokens, MAX_LINES, |_, tokens| Answer::Tokens(tokens)),
        Answer::Certificates(issued) => parts(issued, MAX_LINES, |_, issued| Answer::Certificates(issued)),
        Answer::Negotiations { now, lines } => parts(lines, 1, |_, lines| Answer::Negotiations { now: *now, lines }),
        Answer::Masks { now, nodes } => parts(nodes, 1, |_, nodes| Answer::Masks { now: *now, nodes }),
        Answer::Budgets(users) => parts(users, MAX_LINES, |_, users| Answer::Budgets(users)),
        // Any number of jobs may have some of a licence.
        Answer::Licences(lines) => parts(lines, 1, |_, lines| Answer::Licences(lines)),
        Answer::History(jobs) => parts(jobs, MAX_LINES, |_, jobs| Answer::History(jobs)),
        Answer::Submitted { .. }
        | Answer::WouldStart { .. }
        | Answer::Status(_)
        | Answer::Negotiated(_)
        | Answer::Done
        | Answer::Launchers(_)
        | Answer::Server(_)
        | Answer::Certificate { .. } => numbered(1, |_| answer.clone()),
    }
}

/// Splits a list into parts of `n_lines`; an empty list is one empty part.
fn parts<'a, T: Clone + Sync>(
    items: &'a [T],
    n_lines: usize,
    part: impl Fn(usize, Vec<T>) -> Answer + Send + 'a,
) -> Parts<'a> {
    numbered(items.len().div_ceil(n_lines).max(1), move |idx| {
        part(idx, items.iter().skip(idx * n_lines).take(n_lines).cloned().collect())
    })
}

fn numbered<'a>(n_parts: usize, part: impl Fn(usize) -> Answer + Send + 'a) -> Parts<'a> {
    Box::new((0..n_parts).map(move |idx| AnswerPart { answer: Ok(part(idx)), last: idx + 1 == n_parts }))
}

fn lines<T: Clone>(items: &[T], idx: usize) -> Vec<T> {
    items.iter().skip(idx * MAX_LINES).take(MAX_LINES).cloned().collect()
}

/// Joins the parts of an answer.
#[derive(Debug, Default)]
pub struct AnswerParts {
    so_far: Option<Answer>,
    n_lines: usize,
}

impl AnswerParts {
    pub fn new() -> AnswerParts {
        AnswerParts::default()
    }

    /// Adds the next part; returns the whole answer with the last one.
    ///
    /// # Errors
    /// The part does not continue the previous ones, or there are too many lines.
    pub fn push(&mut self, part: Answer, last: bool) -> Result<Option<Answer>, Malformed> {
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

/// Appends the next part to a list.
fn join(mut so_far: Answer, part: Answer) -> Result<Answer, Malformed> {
    match (&mut so_far, part) {
        (Answer::Jobs { done, refused }, Answer::Jobs { done: more_done, refused: more_refused }) => {
            done.extend(more_done);
            refused.extend(more_refused);
        }
        (Answer::Queue { jobs, .. }, Answer::Queue { jobs: more, .. }) => jobs.extend(more),
        (Answer::Detail { jobs, .. }, Answer::Detail { jobs: more, .. }) => jobs.extend(more),
        (Answer::Nodes { nodes, clusters, .. }, Answer::Nodes { nodes: more, clusters: more_clusters, .. }) => {
            nodes.extend(more);
            clusters.extend(more_clusters);
        }
        (Answer::Clusters(clusters), Answer::Clusters(more)) => clusters.extend(more),
        (Answer::View(view), Answer::View(more)) => view.clusters.extend(more.clusters),
        (Answer::Settings(settings), Answer::Settings(more)) => settings.extend(more),
        (Answer::Audit(changes), Answer::Audit(more)) => changes.extend(more),
        (Answer::Tokens(tokens), Answer::Tokens(more)) => tokens.extend(more),
        (Answer::Certificates(issued), Answer::Certificates(more)) => issued.extend(more),
        (Answer::Negotiations { lines, .. }, Answer::Negotiations { lines: more, .. }) => lines.extend(more),
        (Answer::Masks { nodes, .. }, Answer::Masks { nodes: more, .. }) => nodes.extend(more),
        (Answer::Budgets(users), Answer::Budgets(more)) => users.extend(more),
        (Answer::Licences(lines), Answer::Licences(more)) => lines.extend(more),
        (Answer::History(jobs), Answer::History(more)) => jobs.extend(more),
        // Anything else mixes two answers, or continues one that has no parts.
        (_, _) => return Err(Malformed::MixedParts),
    }
    Ok(so_far)
}

fn n_lines(part: &Answer) -> usize {
    match part {
        Answer::Done
        | Answer::Submitted { .. }
        | Answer::WouldStart { .. }
        | Answer::Status(_)
        | Answer::Launchers(_)
        | Answer::Server(_)
        | Answer::Negotiated(_)
        | Answer::Certificate { .. } => 1,
        Answer::Jobs { done, refused } => done.len() + refused.len(),
        Answer::Queue { now: _, planned: _, jobs } => jobs.len(),
        Answer::Detail { now: _, planned: _, jobs } => jobs.len(),
        Answer::Nodes { now: _, nodes, clusters } => nodes.len() + clusters.len(),
        Answer::Clusters(clusters) => clusters.len(),
        Answer::View(view) => view.clusters.len(),
        Answer::Negotiations { now: _, lines } => lines.len(),
        Answer::Masks { now: _, nodes } => nodes.len(),
        Answer::Budgets(users) => users.len(),
        Answer::Licences(lines) => lines.len(),
        Answer::Settings(settings) => settings.len(),
        Answer::Audit(changes) => changes.len(),
        Answer::Tokens(tokens) => tokens.len(),
        Answer::Certificates(issued) => issued.len(),
        Answer::History(jobs) => jobs.len(),
    }
}

/// More lines than any deployment has; a server that sends more is not trusted.
const MAX_TOTAL_LINES: usize = 4_000_000;
