//! Finds jobs wherever they are: in the system, or in the history if they have ended.

use launcher_sdk::{CallError, Client, HistoryQuery};
use rms_api::answer::{JobDetail, JobLine, JobState};
use rms_api::call::Select;
use rms_api::filter::JobFilter;
use rms_model::{JobId, JobRecord, Time};

use crate::failure::Failure;
use crate::select::One;

/// The jobs found, each in one place only.
#[derive(Clone, Debug)]
pub struct Found {
    pub now: Time,
    pub live: Vec<JobDetail>,
    pub ended: Vec<JobRecord>,
}

impl Found {
    pub fn ids(&self) -> impl Iterator<Item = JobId> {
        let live = self.live.iter().map(|detail| detail.line.job);
        live.chain(self.ended.iter().map(|record| record.job))
    }
}

/// Finds the selected jobs; for `all` and `user:NAME` only those that are still in the system.
///
/// # Errors
/// A job does not exist, or a call fails.
pub async fn jobs(client: &Client, select: Select) -> Result<Found, Failure> {
    match select {
        Select::Ids(ids) => by_ids(client, ids).await,
        Select::Last => by_ids(client, vec![last(client).await?]).await,
        select @ (Select::All | Select::User(_)) => Ok(live(client, select).await?),
    }
}

/// Finds the jobs in the system that a filter selects, in its order.
///
/// # Errors
/// A cluster does not exist, or the call fails.
pub async fn listed(client: &Client, filter: JobFilter) -> Result<Found, CallError> {
    let details = client.jobs_of(filter).await?;
    Ok(Found { now: details.now, live: details.jobs, ended: Vec::new() })
}

async fn by_ids(client: &Client, ids: Vec<JobId>) -> Result<Found, Failure> {
    match live(client, Select::Ids(ids.clone())).await {
        Err(CallError::Refused(refused)) if is_gone(&refused.kind) => {}
        whole => return Ok(whole?),
    }
    let queue = client.queue_of(JobFilter { jobs: ids.clone(), ..JobFilter::default() }).await?;
    let is_live = |job: &JobId| queue.jobs.iter().any(|line| line.job == *job);
    let (in_system, gone): (Vec<JobId>, Vec<JobId>) = ids.into_iter().partition(is_live);
    let mut found = Found { now: queue.now, live: Vec::new(), ended: Vec::new() };
    let mut missing = gone;
    for job in in_system {
        match live(client, Select::Ids(vec![job])).await {
            Ok(one) => found.live.extend(one.live),
            // The job ended during the search.
            Err(CallError::Refused(refused)) if is_gone(&refused.kind) => missing.push(job),
            Err(error) => return Err(error.into()),
        }
    }
    if !missing.is_empty() {
        found.ended = ended(client, &missing).await?;
    }
    missing.retain(|job| !found.ended.iter().any(|record| record.job == *job));
    match missing.first() {
        None => Ok(found),
        Some(job) => {
            Err(Failure::new("no_such_job", format!("there is no job {job}, neither in the queue nor in the history"))
                .hint("'rms queue' and 'rms history' list them"))
        }
    }
}

/// Returns the records of those of these jobs that have ended.
///
/// # Errors
/// A call fails.
pub async fn ended(client: &Client, jobs: &[JobId]) -> Result<Vec<JobRecord>, CallError> {
    // A query that names no job selects every job.
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let mut records = client.history(HistoryQuery { jobs: jobs.to_vec(), ..HistoryQuery::default() }).await?;
    records.sort_by_key(|record| (record.job, record.run));
    Ok(records)
}

async fn live(client: &Client, select: Select) -> Result<Found, CallError> {
    let details = client.jobs(select).await?;
    Ok(Found { now: details.now, live: details.jobs, ended: Vec::new() })
}

/// Replaces `last` by the id of that job, for calls that change something: among the jobs in the system alone, an older
/// one could be the last.
///
/// # Errors
/// Those of [`last`].
pub async fn resolve(client: &Client, select: Select) -> Result<Select, Failure> {
    match select {
        Select::Last => Ok(Select::Ids(vec![last(client).await?])),
        select @ (Select::Ids(_) | Select::All | Select::User(_)) => Ok(select),
    }
}

/// # Errors
/// Those of [`last`].
pub async fn one(client: &Client, which: One) -> Result<JobId, Failure> {
    match which {
        One::Job(job) => Ok(job),
        One::Last => last(client).await,
    }
}

/// Returns the caller's newest job, whether it is in the system or has ended; for a process with the credentials of a
/// job, that job.
///
/// # Errors
/// The caller has had no job, or a call fails.
pub async fn last(client: &Client) -> Result<JobId, Failure> {
    if let Some((own, _)) = client.identity().as_job() {
        return Ok(own);
    }
    let in_system = match live(client, Select::Last).await {
        Ok(found) => found.live.first().map(|detail| detail.line.job),
        Err(CallError::Refused(refused)) if is_gone(&refused.kind) => None,
        Err(error) => return Err(error.into()),
    };
    let users = vec![client.identity().name.clone()];
    let all_ended = HistoryQuery { users, limit: 1, ..HistoryQuery::default() };
    let query = match in_system {
        // Only newer jobs matter, and there are few, as ids are assigned in order.
        Some(job) => {
            let newest = client.status().await?.n_submitted;
            let from = (job.0 + 1).max(newest.saturating_sub(MAX_NEWER));
            HistoryQuery { jobs: (from..=newest).map(JobId).collect(), limit: 0, ..all_ended }
        }
        None => HistoryQuery { limit: MAX_NEWER as u32, ..all_ended },
    };
    // A query that names no job selects every job.
    let has_newer = in_system.is_none() || !query.jobs.is_empty();
    let ended = if has_newer { client.history(query).await? } else { Vec::new() };
    let newest = ended.iter().map(|record| record.job).max().max(in_system);
    newest.ok_or_else(|| {
        Failure::new("no_jobs", "you have had no job yet").hint("submit one with 'rms submit' or 'rms run'")
    })
}

/// The newest job is searched among this many jobs that ended last or were submitted last.
const MAX_NEWER: u64 = 1000;

/// Returns why no job starts now, if so and if any of these jobs waits. A server that cannot say it says nothing.
pub async fn shortage<'a>(client: &Client, mut lines: impl Iterator<Item = &'a JobLine>) -> Option<String> {
    let waits = lines.any(|line| match line.state {
        JobState::Submitted | JobState::Held | JobState::RequestSent | JobState::Waiting => true,
        JobState::Started | JobState::Ending | JobState::Ghost | JobState::Finished => false,
    });
    if waits { client.status().await.ok()?.shortage } else { None }
}

/// Returns whether a refusal means that the job is no longer in the system.
pub fn is_gone(kind: &str) -> bool {
    kind == "no_such_job" || kind == "no_jobs"
}
