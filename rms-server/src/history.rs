//! Answers questions about jobs that are done, from the journal's history table, on a thread of its own.

use std::path::Path;
use std::thread;

use rms_core::negotiate::contract::NegotiationRecord;
use rms_model::{JobId, JobRecord, Time};
use rms_wire::HistoryQuery;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

use crate::journal::{OpenError, open_reader};

/// One page of an answer: pages are read one by one, as fast as the asker takes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    query: HistoryQuery,
    /// Where the page before it ended.
    before: Option<Place>,
    n_left: u64,
}

/// A place in the order of the answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    ended: Time,
    job: JobId,
}

/// The records of one page, and the page after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub records: Vec<JobRecord>,
    pub next: Option<Page>,
}

impl Page {
    /// Where an answer begins. A limit of 0 is none.
    pub fn first(query: HistoryQuery) -> Page {
        let n_left = if query.limit == 0 { u64::MAX } else { u64::from(query.limit) };
        Page { query, before: None, n_left }
    }
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
enum Question {
    Page { page: Page, answer: oneshot::Sender<Result<Found, HistoryError>> },
    Negotiations { job: JobId, answer: oneshot::Sender<Result<Vec<NegotiationRecord>, HistoryError>> },
}

/// Queries that wait for the thread. When it is full the next asker is refused at once: a long query delays other
/// history queries, and nothing else.
const MAX_WAITING: usize = 64;

/// The records of one page: so many are in memory at once for each asker.
const PAGE_RECORDS: u64 = 1000;

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
                // An asker that has gone is no failure.
                match question {
                    Question::Page { page, answer } => drop(answer.send(select(&conn, page))),
                    Question::Negotiations { job, answer } => drop(answer.send(negotiations(&conn, job))),
                }
            }
        };
        thread::Builder::new()
            .name("history".to_owned())
            .spawn(serve)
            .map_err(|source| OpenError::Read { path: journal.to_owned(), source })?;
        Ok(History { questions })
    }

    /// The records of a page, the last that ended first.
    ///
    /// # Errors
    /// Too many questions at once, or an unreadable journal.
    pub async fn ask(&self, page: Page) -> Result<Found, HistoryError> {
        let (answer, answered) = oneshot::channel();
        self.put(Question::Page { page, answer })?;
        answered.await.map_err(|_| HistoryError::Stopping)?
    }

    /// What a job that is done has negotiated, the oldest first.
    ///
    /// # Errors
    /// As [`History::ask`].
    pub async fn negotiations(&self, job: JobId) -> Result<Vec<NegotiationRecord>, HistoryError> {
        let (answer, answered) = oneshot::channel();
        self.put(Question::Negotiations { job, answer })?;
        answered.await.map_err(|_| HistoryError::Stopping)?
    }

    fn put(&self, question: Question) -> Result<(), HistoryError> {
        self.questions.try_send(question).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => HistoryError::Busy,
            mpsc::error::TrySendError::Closed(_) => HistoryError::Stopping,
        })
    }

    /// The record of one job, if it is done.
    ///
    /// # Errors
    /// As [`History::ask`].
    pub async fn of_job(&self, job: JobId) -> Result<Option<JobRecord>, HistoryError> {
        let query = HistoryQuery { jobs: vec![job], limit: 1, ..HistoryQuery::default() };
        Ok(self.ask(Page::first(query)).await?.records.pop())
    }
}

fn negotiations(conn: &Connection, job: JobId) -> Result<Vec<NegotiationRecord>, HistoryError> {
    let mut statement = conn.prepare_cached("SELECT records FROM negotiations WHERE job = ?1")?;
    let mut rows = statement.query([i64::try_from(job.0).unwrap_or(-1)])?;
    let Some(row) = rows.next()? else { return Ok(Vec::new()) };
    let bytes = row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?;
    rmp_serde::from_slice(bytes).map_err(|source| HistoryError::Record { job, source })
}

fn select(conn: &Connection, page: Page) -> Result<Found, HistoryError> {
    let n_wanted = page.n_left.min(PAGE_RECORDS);
    let (sql, values) = sql_of(&page, n_wanted);
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut records: Vec<JobRecord> = Vec::new();
    while let Some(row) = rows.next()? {
        let job = JobId(row.get(0)?);
        let bytes = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        let record = rmp_serde::from_slice(bytes).map_err(|source| HistoryError::Record { job, source })?;
        records.push(record);
    }
    let n_left = page.n_left - records.len() as u64;
    let may_be_more = records.len() as u64 == n_wanted && n_left > 0;
    let before = records.last().map(|record| Place { ended: record.ended, job: record.job });
    let next = if may_be_more { Some(Page { before, n_left, ..page }) } else { None };
    Ok(Found { records, next })
}

/// Only the shape of the query enters the text; whatever a client named is bound as a value.
fn sql_of(page: &Page, n_wanted: u64) -> (String, Vec<Value>) {
    let HistoryQuery { user, states, since, until, jobs, name, limit: _, offset } = &page.query;
    let mut conditions: Vec<String> = Vec::new();
    let mut values: Vec<Value> = Vec::new();
    let mut any_of = |column: &str, wanted: Vec<Value>| {
        if !wanted.is_empty() {
            conditions.push(format!("{column} IN ({})", vec!["?"; wanted.len()].join(", ")));
            values.extend(wanted);
        }
    };
    any_of("owner", user.iter().map(|user| Value::from(user.clone())).collect());
    any_of("outcome", states.iter().map(|state| Value::from(state.clone())).collect());
    any_of("name", name.iter().map(|name| Value::from(name.clone())).collect());
    if !jobs.is_empty() {
        // One value for all of them, because there can be more than SQLite binds. An id beyond its integers names
        // no job.
        conditions.push("job IN (SELECT value FROM json_each(?))".to_owned());
        let ids: Vec<String> = jobs.iter().map(|job| i64::try_from(job.0).unwrap_or(-1).to_string()).collect();
        values.push(Value::from(format!("[{}]", ids.join(","))));
    }
    for (condition, time) in [("ended >= ?", since), ("ended < ?", until)] {
        if let Some(time) = time {
            conditions.push(condition.to_owned());
            values.push(Value::from(time.as_millis()));
        }
    }
    if let Some(Place { ended, job }) = page.before {
        conditions.push("(ended, job) < (?, ?)".to_owned());
        values.push(Value::from(ended.as_millis()));
        values.push(Value::from(i64::try_from(job.0).unwrap_or(i64::MAX)));
    }
    let filter = if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) };
    // Later pages begin where the one before ended.
    let n_skipped = if page.before.is_some() { 0 } else { i64::try_from(*offset).unwrap_or(i64::MAX) };
    values.push(Value::from(i64::try_from(n_wanted).unwrap_or(i64::MAX)));
    values.push(Value::from(n_skipped));
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
            evolution: None,
        };
        Fact::JobDone { record: Box::new(record), ghost_until: at(20), negotiations: Vec::new() }
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
        let found = runtime.block_on(history.ask(Page::first(query))).expect("an answer");
        assert_eq!(found.next, None);
        let found: Vec<u64> = found.records.iter().map(|record| record.job.0).collect();
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
        check(HistoryQuery { user: Some("ann".to_owned()), ..any() }, &[4, 3, 1]);
        check(HistoryQuery { name: Some("cfd".to_owned()), ..any() }, &[4, 2, 1]);
        check(HistoryQuery { states: vec!["failed".to_owned()], ..any() }, &[3, 2]);
        check(HistoryQuery { jobs: vec![JobId(2), JobId(4), JobId(u64::MAX)], ..any() }, &[4, 2]);
        check(
            HistoryQuery { since: Some(Time::from_secs(2020)), until: Some(Time::from_secs(4020)), ..any() },
            &[3, 2],
        );
        check(HistoryQuery { user: Some("ann' OR 1 --".to_owned()), ..any() }, &[]);
    }

    #[test]
    fn a_long_answer_comes_in_pages_without_gap_or_repetition() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("journal.db");
        let mut log = FactLog::create(&path, SnapshotPolicy::default()).expect("a new journal");
        let facts: Vec<Fact> = (1..=2500).map(|job| done(job, "ann", "cfd", Outcome::Completed)).collect();
        log.append(&facts).expect("space on the disk");
        let conn = open_reader(&path).expect("a readable journal");
        let mut page = Some(Page::first(HistoryQuery { limit: 2200, offset: 100, ..HistoryQuery::default() }));
        let mut jobs = Vec::new();
        while let Some(wanted) = page {
            let found = select(&conn, wanted).expect("an answer");
            assert!(found.records.len() <= PAGE_RECORDS as usize);
            jobs.extend(found.records.iter().map(|record| record.job.0));
            page = found.next;
        }
        assert_eq!(jobs, (201..=2400).rev().collect::<Vec<u64>>());
    }

    /// An agent says what its jobs used; whatever it says, the journal must go on.
    #[test]
    fn a_record_with_more_memory_than_the_table_can_hold_is_kept() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("journal.db");
        let mut log = FactLog::create(&path, SnapshotPolicy::default()).expect("a new journal");
        let mut fact = done(1, "ann", "cfd", Outcome::Completed);
        if let Fact::JobDone { record, .. } = &mut fact {
            record.usage.peak_memory_kib = u64::MAX;
        }
        log.append(&[fact]).expect("space on the disk");
        let found = select(&open_reader(&path).expect("a readable journal"), Page::first(any())).expect("an answer");
        assert_eq!(found.records[0].usage.peak_memory_kib, u64::MAX);
    }

    #[test]
    fn as_many_jobs_can_be_named_as_a_question_holds() {
        check(HistoryQuery { jobs: (3..65_539).map(JobId).collect(), ..any() }, &[4, 3]);
    }

    #[test]
    fn an_offset_and_a_limit_cut_a_part_out_each_other() {
        check(HistoryQuery { limit: 3, ..any() }, &[4, 3, 2]);
        check(HistoryQuery { limit: 3, offset: 3, ..any() }, &[1]);
    }
}
