//! Answers questions about jobs that are done, from the journal's history table, on a thread of its own.

use std::path::Path;
use std::thread;

use rms_model::{JobId, JobRecord, Time};
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

use crate::journal::{OpenError, open_reader};

/// Which jobs are wanted; an empty list or `None` means any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryQuery {
    pub owner: Option<String>,
    pub jobs: Vec<JobId>,
    /// Words of [`rms_model::Outcome::word`].
    pub outcomes: Vec<String>,
    pub name: Option<String>,
    /// Ended at this time or later.
    pub since: Option<Time>,
    /// Ended before this time.
    pub until: Option<Time>,
    pub limit: u32,
    pub offset: u32,
}

/// Why a question has no answer.
#[derive(Debug, Error)]
pub enum HistoryError {
    #[error("too many history queries are under way: try again in a moment")]
    Busy,
    #[error("the history cannot be read")]
    Sqlite(#[from] rusqlite::Error),
    #[error("the record of job {job} is unreadable")]
    Record { job: JobId, source: rmp_serde::decode::Error },
    #[error("the server is stopping")]
    Stopping,
}

/// A cheap handle on the history thread.
#[derive(Clone, Debug)]
pub struct History {
    questions: mpsc::Sender<Question>,
}

#[derive(Debug)]
struct Question {
    query: HistoryQuery,
    answer: oneshot::Sender<Result<Vec<JobRecord>, HistoryError>>,
}

/// Queries that wait for the thread. When it is full the next asker is refused at once: a long query delays other
/// history queries, and nothing else.
const MAX_WAITING: usize = 64;

/// The most records of one answer, whatever limit was asked for; more come with an offset.
pub const MAX_RECORDS: u32 = 10_000;

impl History {
    /// Starts the thread on a read-only connection. It ends with the last handle.
    ///
    /// # Errors
    /// The journal cannot be opened.
    pub fn start(journal: &Path) -> Result<History, OpenError> {
        let conn = open_reader(journal)?;
        let (questions, mut waiting) = mpsc::channel::<Question>(MAX_WAITING);
        let serve = move || {
            while let Some(question) = waiting.blocking_recv() {
                let records = select(&conn, &question.query);
                // An asker that has gone is no failure.
                let _ = question.answer.send(records);
            }
        };
        thread::Builder::new()
            .name("history".to_owned())
            .spawn(serve)
            .map_err(|source| OpenError::Read { path: journal.to_owned(), source })?;
        Ok(History { questions })
    }

    /// The records that match, the last that ended first.
    ///
    /// # Errors
    /// Too many questions at once, or an unreadable journal.
    pub async fn ask(&self, query: HistoryQuery) -> Result<Vec<JobRecord>, HistoryError> {
        let (answer, answered) = oneshot::channel();
        self.questions.try_send(Question { query, answer }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => HistoryError::Busy,
            mpsc::error::TrySendError::Closed(_) => HistoryError::Stopping,
        })?;
        answered.await.map_err(|_| HistoryError::Stopping)?
    }
}

fn select(conn: &Connection, query: &HistoryQuery) -> Result<Vec<JobRecord>, HistoryError> {
    let (sql, values) = sql_of(query);
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut records = Vec::new();
    while let Some(row) = rows.next()? {
        let job = JobId(row.get(0)?);
        let bytes = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        let record = rmp_serde::from_slice(bytes).map_err(|source| HistoryError::Record { job, source })?;
        records.push(record);
    }
    Ok(records)
}

/// Only the shape of the query enters the text; whatever a client named is bound as a value.
fn sql_of(query: &HistoryQuery) -> (String, Vec<Value>) {
    let HistoryQuery { owner, jobs, outcomes, name, since, until, limit, offset } = query;
    let mut conditions: Vec<String> = Vec::new();
    let mut values: Vec<Value> = Vec::new();
    let mut any_of = |column: &str, wanted: Vec<Value>| {
        if !wanted.is_empty() {
            conditions.push(format!("{column} IN ({})", vec!["?"; wanted.len()].join(", ")));
            values.extend(wanted);
        }
    };
    any_of("owner", owner.iter().map(|owner| Value::from(owner.clone())).collect());
    // An id beyond SQLite's integers names no job.
    any_of("job", jobs.iter().map(|job| Value::from(i64::try_from(job.0).unwrap_or(-1))).collect());
    any_of("outcome", outcomes.iter().map(|outcome| Value::from(outcome.clone())).collect());
    any_of("name", name.iter().map(|name| Value::from(name.clone())).collect());
    for (condition, time) in [("ended >= ?", since), ("ended < ?", until)] {
        if let Some(time) = time {
            conditions.push(condition.to_owned());
            values.push(Value::from(time.as_millis()));
        }
    }
    let filter = if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) };
    values.push(Value::from((*limit).min(MAX_RECORDS)));
    values.push(Value::from(*offset));
    (format!("SELECT job, record FROM history{filter} ORDER BY ended DESC, job DESC LIMIT ? OFFSET ?"), values)
}

#[cfg(test)]
mod tests {
    use rms_core::Fact;
    use rms_model::{ClusterId, Outcome, Owner, Request, Run, Span, Usage};

    use super::*;
    use crate::journal::{FactLog, SnapshotPolicy};

    fn done(job: u64, owner: &str, name: &str, outcome: Outcome) -> Fact {
        let at = |secs| Time::from_secs(1000 * job as i64 + secs);
        let record = JobRecord {
            job: JobId(job),
            run: Run(1),
            name: name.to_owned(),
            owner: Owner(owner.to_owned()),
            submitted: at(0),
            eligible: at(0),
            started: Some(at(10)),
            ended: at(20),
            request: Request::on_one(ClusterId(0), 1, Span::from_hours(1)),
            n_tasks: 1,
            cpus_per_task: 1,
            nodes: vec!["n1".to_owned()],
            outcome,
            usage: Usage::default(),
        };
        Fact::JobDone { record: Box::new(record), ghost_until: at(20) }
    }

    fn check(query: HistoryQuery, expected: &[u64]) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("journal.db");
        let mut log = FactLog::create(&path, SnapshotPolicy::default()).expect("a new journal");
        log.append(&[
            done(1, "ann", "cfd", Outcome::Completed),
            done(2, "bob", "cfd", Outcome::Failed { code: 3 }),
            done(3, "ann", "mesh", Outcome::Failed { code: 1 }),
            done(4, "ann", "cfd", Outcome::Cancelled { by: "ann".to_owned() }),
        ])
        .expect("space on the disk");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let history = History::start(&path).expect("a readable journal");
        let records = runtime.block_on(history.ask(query)).expect("an answer");
        let found: Vec<u64> = records.iter().map(|record| record.job.0).collect();
        assert_eq!(found, expected);
    }

    fn any() -> HistoryQuery {
        HistoryQuery { limit: 100, ..HistoryQuery::default() }
    }

    #[test]
    fn the_last_that_ended_comes_first() {
        check(any(), &[4, 3, 2, 1]);
    }

    #[test]
    fn jobs_are_selected_by_what_is_known_of_them() {
        check(HistoryQuery { owner: Some("ann".to_owned()), ..any() }, &[4, 3, 1]);
        check(HistoryQuery { name: Some("cfd".to_owned()), ..any() }, &[4, 2, 1]);
        check(HistoryQuery { outcomes: vec!["failed".to_owned()], ..any() }, &[3, 2]);
        check(HistoryQuery { jobs: vec![JobId(2), JobId(4), JobId(u64::MAX)], ..any() }, &[4, 2]);
        check(
            HistoryQuery { since: Some(Time::from_secs(2020)), until: Some(Time::from_secs(4020)), ..any() },
            &[3, 2],
        );
        check(HistoryQuery { owner: Some("ann' OR 1 --".to_owned()), ..any() }, &[]);
    }

    #[test]
    fn pages_follow_each_other() {
        check(HistoryQuery { limit: 3, ..any() }, &[4, 3, 2]);
        check(HistoryQuery { limit: 3, offset: 3, ..any() }, &[1]);
    }
}
