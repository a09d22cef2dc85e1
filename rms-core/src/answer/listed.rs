//! Selects and sorts the jobs and nodes of a list, before lines are made of them.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use rms_api::answer::{JobState, NodeLine, NodeState};
use rms_api::filter::{JobColumn, JobFilter, NodeColumn, NodeFilter, Way, distinct};
use rms_api::refusal::Refusal;
use rms_model::{ClusterId, JobId, NodeId, Request, Time, natural};

use super::Answers;
use crate::admit;
use crate::published::Published;
use crate::rights;
use crate::state::State;
use crate::state::job::{Job, Phase};
use crate::state::node::Node;

impl Answers<'_> {
    /// Returns the jobs that a filter selects, with their places in the queue where known.
    ///
    /// # Errors
    /// A cluster that does not exist.
    pub(super) fn listed(
        &self,
        published: &Published,
        now: Time,
        filter: &JobFilter,
    ) -> Result<Vec<(JobId, Option<usize>)>, Refusal> {
        let state = self.state();
        let matcher = JobMatcher::of(state, filter)?;
        let found = self.candidates(filter).filter(|(job, entry, _)| matcher.matches(*job, entry));
        let (n_skipped, n_wanted) = page(filter.offset, filter.limit);
        let place = |(job, _, queue_idx): (JobId, &Job, Option<usize>)| (job, queue_idx);
        if filter.sort.is_empty() {
            return Ok(found.skip(n_skipped).take(n_wanted).map(place).collect());
        }
        let mut found: Vec<(JobId, &Job, Option<usize>)> = found.collect();
        // Stable: equal jobs stay in the order of their starts.
        let sort = distinct(&filter.sort);
        found.sort_by(|(one, entry, _), (other, other_entry, _)| {
            ordering(&sort, |column| compare_jobs(column, published, now, (*one, entry), (*other, other_entry)))
        });
        Ok(found.into_iter().skip(n_skipped).take(n_wanted).map(place).collect())
    }

    /// Returns running jobs, then the queue, then jobs that are not eligible: all that the filter can select, and as
    /// few others as possible.
    fn candidates(&self, filter: &JobFilter) -> Box<dyn Iterator<Item = (JobId, &Job, Option<usize>)> + '_> {
        let state = self.state();
        let named: Option<BTreeSet<JobId>> = match (filter.jobs.as_slice(), filter.users.as_slice()) {
            ([], []) => None,
            ([], users) => Some(users.iter().flat_map(|user| state.owned_by(user)).collect()),
            (jobs, _) => Some(jobs.iter().copied().filter(|job| state.jobs().contains_key(job)).collect()),
        };
        if let Some(named) = named {
            let mut named: Vec<JobId> = named.into_iter().collect();
            named
                .sort_by_cached_key(|job| (group_of(&state.jobs()[job]), state.demand(*job).map(|(key, _)| key), *job));
            return Box::new(named.into_iter().map(|job| (job, &state.jobs()[&job], None)));
        }
        let is_wanted =
            |states: &[JobState]| filter.states.is_empty() || states.iter().any(|state| filter.states.contains(state));
        let holding = is_wanted(&[JobState::Started, JobState::Ending, JobState::Ghost]).then(|| state.holding());
        let queued = is_wanted(&[JobState::RequestSent, JobState::Waiting]).then(|| state.queue().enumerate());
        let rest = is_wanted(&[JobState::Submitted, JobState::Held]).then(|| state.jobs().iter());
        let holding = holding.into_iter().flatten().map(|(job, entry)| (job, entry, None));
        let queued = queued.into_iter().flatten().map(|(idx, job)| (job, &state.jobs()[&job], Some(idx)));
        let rest = rest.into_iter().flatten().filter(|(_, entry)| group_of(entry) == ListGroup::NotEligible);
        Box::new(holding.chain(queued).chain(rest.map(|(job, entry)| (*job, entry, None))))
    }

    /// Returns the lines of the nodes that a filter selects, in the natural order of names where it asks for none.
    ///
    /// # Errors
    /// A node or a cluster that does not exist.
    pub(super) fn listed_nodes(&self, filter: &NodeFilter) -> Result<Vec<NodeLine>, Refusal> {
        let state = self.state();
        let clusters = clusters_named(state, &filter.clusters)?;
        let users: BTreeSet<&str> = filter.users.iter().map(String::as_str).collect();
        let states: BTreeSet<NodeState> = filter.states.iter().copied().collect();
        let is_of = |entry: &Node| {
            let owns = |job: &JobId| users.contains(state.jobs()[job].spec.owner.0.as_str());
            let is_here = clusters.is_empty() || clusters.contains(&entry.cluster);
            is_here && (users.is_empty() || entry.holders.iter().any(owns))
        };
        let named = match filter.names.as_slice() {
            [] => None,
            names => Some(rights::nodes_named(state, names)?),
        };
        let nodes: Box<dyn Iterator<Item = &Node>> = match &named {
            None => Box::new(state.nodes().values()),
            Some(named) => Box::new(named.iter().map(|node: &NodeId| &state.nodes()[node])),
        };
        let mut nodes: Vec<&Node> = nodes.filter(|entry| is_of(entry)).collect();
        nodes.sort_by(|one, other| natural::compare(&one.name, &other.name));
        let lines = nodes.into_iter().map(|entry| self.node_line(entry));
        let is_new = |line: &NodeLine| filter.since.is_none_or(|since| line.since >= since);
        let found = lines.filter(|line| is_new(line) && (states.is_empty() || states.contains(&line.state)));
        let (n_skipped, n_wanted) = page(filter.offset, filter.limit);
        if filter.sort.is_empty() {
            return Ok(found.skip(n_skipped).take(n_wanted).collect());
        }
        let mut found: Vec<NodeLine> = found.collect();
        let sort = distinct(&filter.sort);
        found.sort_by(|one, other| ordering(&sort, |column| compare_nodes(column, one, other)));
        Ok(found.into_iter().skip(n_skipped).take(n_wanted).collect())
    }
}

/// Started jobs and ghosts come first, then the queue, then jobs that are not eligible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ListGroup {
    Holds,
    Queued,
    NotEligible,
}

fn group_of(entry: &Job) -> ListGroup {
    match entry.phase {
        Phase::Started(_) | Phase::Ghost(_) => ListGroup::Holds,
        Phase::RequestSent | Phase::Waiting => ListGroup::Queued,
        Phase::Submitted { .. } => ListGroup::NotEligible,
    }
}

/// A filter with indexed lists: comparing a job takes few steps however long the lists are.
struct JobMatcher<'a> {
    jobs: BTreeSet<JobId>,
    users: BTreeSet<&'a str>,
    states: BTreeSet<JobState>,
    names: BTreeSet<&'a str>,
    accounts: BTreeSet<&'a str>,
    clusters: BTreeSet<ClusterId>,
    since: Option<Time>,
}

impl<'a> JobMatcher<'a> {
    fn of(state: &State, filter: &'a JobFilter) -> Result<JobMatcher<'a>, Refusal> {
        Ok(JobMatcher {
            jobs: filter.jobs.iter().copied().collect(),
            users: filter.users.iter().map(String::as_str).collect(),
            states: filter.states.iter().copied().collect(),
            names: filter.names.iter().map(String::as_str).collect(),
            accounts: filter.accounts.iter().map(String::as_str).collect(),
            clusters: clusters_named(state, &filter.clusters)?,
            since: filter.since,
        })
    }

    fn matches(&self, job: JobId, entry: &Job) -> bool {
        (self.jobs.is_empty() || self.jobs.contains(&job))
            && (self.users.is_empty() || self.users.contains(entry.spec.owner.0.as_str()))
            && (self.states.is_empty() || self.states.contains(&entry.state()))
            && (self.names.is_empty() || self.names.contains(entry.spec.labels.name.as_str()))
            && (self.accounts.is_empty() || self.accounts.contains(entry.spec.labels.account.as_str()))
            && self.since.is_none_or(|since| entry.submitted >= since)
            && (self.clusters.is_empty() || self.is_on_cluster(entry))
    }

    fn is_on_cluster(&self, entry: &Job) -> bool {
        let is_on = |request: &Request| request.nodes.keys().any(|cluster| self.clusters.contains(cluster));
        match &entry.phase {
            Phase::Submitted { .. } | Phase::RequestSent | Phase::Waiting => entry.spec.options.iter().any(is_on),
            Phase::Started(started) => is_on(&started.request),
            Phase::Ghost(ghost) => is_on(&ghost.request),
        }
    }
}

fn clusters_named(state: &State, names: &[String]) -> Result<BTreeSet<ClusterId>, Refusal> {
    names.iter().map(|name| admit::cluster(state, name)).collect()
}

fn page(offset: u64, limit: u32) -> (usize, usize) {
    let n_wanted = if limit == 0 { usize::MAX } else { limit as usize };
    (usize::try_from(offset).unwrap_or(usize::MAX), n_wanted)
}

/// Orders by the first column in which the two differ.
fn ordering<C: Copy>(sort: &[(C, Way)], compare: impl Fn(C) -> Ordering) -> Ordering {
    let mut by_column = sort.iter().map(|(column, way)| match way {
        Way::Up => compare(*column),
        Way::Down => compare(*column).reverse(),
    });
    by_column.find(|ordering| ordering.is_ne()).unwrap_or(Ordering::Equal)
}

/// Compares two jobs by the value that a column of their lines shows.
fn compare_jobs(
    column: JobColumn,
    published: &Published,
    now: Time,
    (one_job, one): (JobId, &Job),
    (other_job, other): (JobId, &Job),
) -> Ordering {
    let n_nodes = |job, entry: &Job| super::shown_request(published, job, entry).n_nodes();
    let n_tasks = |job, entry: &Job| entry.spec.tasks.total(n_nodes(job, entry));
    let wall = |job, entry: &Job| super::shown_request(published, job, entry).wall;
    let start = |job, entry: &Job| {
        let started = entry.started().map(|started| started.at);
        started.or_else(|| published.estimate(job, entry, now)).unwrap_or(Time::NEVER)
    };
    let end = |entry: &Job| super::until(entry).unwrap_or(Time::NEVER);
    match column {
        JobColumn::Job => one_job.cmp(&other_job),
        JobColumn::User => one.spec.owner.cmp(&other.spec.owner),
        JobColumn::Name => one.spec.labels.name.cmp(&other.spec.labels.name),
        JobColumn::State => one.state().cmp(&other.state()),
        JobColumn::Priority => one.spec.priority.cmp(&other.spec.priority),
        JobColumn::Nodes => n_nodes(one_job, one).cmp(&n_nodes(other_job, other)),
        JobColumn::Tasks => n_tasks(one_job, one).cmp(&n_tasks(other_job, other)),
        JobColumn::Wall => wall(one_job, one).cmp(&wall(other_job, other)),
        JobColumn::Submitted => one.submitted.cmp(&other.submitted),
        JobColumn::Start => start(one_job, one).cmp(&start(other_job, other)),
        JobColumn::End => end(one).cmp(&end(other)),
    }
}

fn compare_nodes(column: NodeColumn, one: &NodeLine, other: &NodeLine) -> Ordering {
    match column {
        NodeColumn::Node => natural::compare(&one.name, &other.name),
        NodeColumn::Cluster => one.cluster.cmp(&other.cluster),
        NodeColumn::State => one.state.cmp(&other.state),
        NodeColumn::Cpus => one.inventory.cpus.cmp(&other.inventory.cpus),
        NodeColumn::Memory => one.inventory.memory.cmp(&other.inventory.memory),
        NodeColumn::Speed => one.inventory.speed_milli.cmp(&other.inventory.speed_milli),
        NodeColumn::Jobs => one.jobs.len().cmp(&other.jobs.len()),
        NodeColumn::Since => one.since.cmp(&other.since),
    }
}
