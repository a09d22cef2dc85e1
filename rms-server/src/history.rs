//! Answers queries about jobs that are done, on threads of its own.
//!
//! Queries for one job have a thread to themselves, so that long scans never delay them. Other queries are read page by
//! page, in turn by user, so that nobody waits longer than one page of each other user.

mod fair_queue;
mod prune;
mod table;
mod writer;

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rms_api::call::HistoryQuery;
use rms_api::filter::{RecordColumn, Way, distinct};
use rms_api::negotiate::NegotiationRecord;
use rms_model::{ClusterId, JobId, JobRecord};
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use thiserror::Error;
use tokio::sync::oneshot;

use self::fair_queue::FairSender;
use crate::open_error::OpenError;

pub use self::prune::Retention;
pub use self::table::Row;
pub use self::table::{check, copy, for_each, salvage};
pub use self::writer::{Cause, Failure, HistoryWriter};

/// One page of an answer: pages are read one by one, as fast as the caller takes them.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    query: HistoryQuery,
    /// The clusters that the query names.
    clusters: Vec<ClusterId>,
    /// The sort key of the last record of the page before.
    after: Option<Vec<Value>>,
    n_left: u64,
}

/// The records of one page, and the page after it.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    pub records: Vec<JobRecord>,
    pub next: Option<Page>,
}

impl Page {
    /// Returns the first page of an answer. A limit of 0 means no limit.
    pub fn first(query: HistoryQuery) -> Page {
        let n_left = if query.limit == 0 { u64::MAX } else { u64::from(query.limit) };
        Page { query, clusters: Vec::new(), after: None, n_left }
    }

    /// Sets the clusters that the query names.
    #[must_use]
    pub fn on(self, clusters: Vec<ClusterId>) -> Page {
        Page { clusters, ..self }
    }
}

/// Why a query has no answer.
#[derive(Debug, Error)]
pub enum HistoryError {
    #[error("the newest records cannot be written to the history now ({}), so it cannot be read: an admin finds more in the server's log", .0.reason)]
    NotWritten(Failure),
    #[error("the query takes longer than {} s: narrow it with --since, --user or a job", MAX_PAGE_TIME.as_secs())]
    TooLong,
    #[error("the history cannot be used")]
    Sqlite(#[source] rusqlite::Error),
    #[error("the record of job {job} is damaged: it does not match its checksum; a backup may have it")]
    Damaged { job: JobId },
    #[error("the record of job {job} is unreadable; was it written by a newer server?")]
    Record { job: JobId, source: rmp_serde::decode::Error },
    #[error("a record cannot be encoded")]
    Encode(#[from] rmp_serde::encode::Error),
    #[error("the server is stopping")]
    Stopping,
}

impl From<rusqlite::Error> for HistoryError {
    fn from(source: rusqlite::Error) -> HistoryError {
        match source.sqlite_error_code() {
            Some(rusqlite::ErrorCode::OperationInterrupted) => HistoryError::TooLong,
            Some(_) | None => HistoryError::Sqlite(source),
        }
    }
}

/// A handle on the threads; cheap to clone.
#[derive(Clone, Debug)]
pub struct History {
    /// Pages of long answers.
    scans: Arc<FairSender<Query>>,
    /// Queries for one job.
    lookups: Arc<FairSender<Query>>,
    writer: HistoryWriter,
    read_failure: ReadFailure,
}

/// Why the last query could not read the file, if it could not.
type ReadFailure = Arc<Mutex<Option<String>>>;

#[derive(Debug)]
enum Query {
    Page { page: Box<Page>, answer: oneshot::Sender<Result<Found, HistoryError>> },
    Negotiations { job: JobId, answer: oneshot::Sender<Result<Vec<NegotiationRecord>, HistoryError>> },
}

/// The most records of one page, and so the most in memory for each caller.
const PAGE_RECORDS: u64 = 1000;

/// How long the search for one page may take.
const MAX_PAGE_TIME: Duration = Duration::from_secs(10);

impl History {
    /// Starts the threads, on read-only connections beside the writer's. They end when the last handle is dropped.
    ///
    /// # Errors
    /// The history cannot be opened.
    pub fn start(writer: &HistoryWriter) -> Result<History, OpenError> {
        let read_failure = ReadFailure::default();
        let scans = serve("history-scans", writer, &read_failure)?;
        let lookups = serve("history-lookups", writer, &read_failure)?;
        check_in_background(writer)?;
        Ok(History { scans, lookups, writer: writer.clone(), read_failure })
    }

    /// Returns the records of a page, the last job that ended first.
    ///
    /// # Errors
    /// The query takes too long, or the history cannot be read or written: without the newest records it is incomplete.
    pub async fn ask(&self, user: &str, page: Page) -> Result<Found, HistoryError> {
        let (answer, answered) = oneshot::channel();
        let is_lookup = page.query.jobs.len() == 1;
        let fair_queue = if is_lookup { &self.lookups } else { &self.scans };
        fair_queue.put(user, Query::Page { page: Box::new(page), answer });
        answered.await.map_err(|_| HistoryError::Stopping)?
    }

    /// Returns the negotiations of a job that is done, the oldest first.
    ///
    /// # Errors
    /// As [`History::ask`].
    pub async fn negotiations(&self, user: &str, job: JobId) -> Result<Vec<NegotiationRecord>, HistoryError> {
        let (answer, answered) = oneshot::channel();
        self.lookups.put(user, Query::Negotiations { job, answer });
        answered.await.map_err(|_| HistoryError::Stopping)?
    }

    /// Returns the record of one job, if it is done.
    ///
    /// # Errors
    /// As [`History::ask`].
    pub async fn of_job(&self, user: &str, job: JobId) -> Result<Option<JobRecord>, HistoryError> {
        let query = HistoryQuery { jobs: vec![job], limit: 1, ..HistoryQuery::default() };
        Ok(self.ask(user, Page::first(query)).await?.records.pop())
    }

    /// Returns why the records of jobs that end now are not written, or why the last query could not read the file.
    pub fn failure(&self) -> Option<String> {
        let read = || self.read_failure.lock().expect("nobody panics with the failure in hand").clone();
        let unwritten = |reason| format!("cannot be written: {reason}; new records wait in the log");
        self.writer.failure().map(|failure| unwritten(failure.reason)).or_else(read)
    }
}

/// Starts a thread that answers queries, in turn by user.
fn serve(name: &str, writer: &HistoryWriter, failure: &ReadFailure) -> Result<Arc<FairSender<Query>>, OpenError> {
    let mut conn = table::open_reader(writer.path())?;
    let fair_queue = Arc::new(FairSender::new());
    let (queries, writer, failure) = (fair_queue.receiver(), writer.clone(), Arc::clone(failure));
    let path = writer.path().to_owned();
    let serve = move || {
        while let Some(query) = queries.next() {
            // Jobs that ended before the query was put are part of the answer.
            let written = writer.wait_until_written();
            let begun = Instant::now();
            // Called after every 10,000 steps of SQLite's virtual machine.
            let is_too_long = move || begun.elapsed() > MAX_PAGE_TIME;
            if let Err(error) = conn.progress_handler(10_000, Some(is_too_long)) {
                tracing::warn!(%error, "a history query has no limit");
            }
            // The caller may have gone.
            match query {
                Query::Page { page, answer } => {
                    let found = select_all(&conn, *page, written);
                    note_failure(&failure, found.as_ref().err());
                    drop(answer.send(found));
                }
                // Negotiations were written with the record of their job, which the caller has seen.
                Query::Negotiations { job, answer } => {
                    let found = table::negotiations(&conn, job);
                    note_failure(&failure, found.as_ref().err());
                    drop(answer.send(found));
                }
            }
        }
    };
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(serve);
    spawned.map_err(|source| OpenError::Read { path, source })?;
    Ok(fair_queue)
}

/// Records that the file could not be read, or that it could again, for the log and the server's status.
fn note_failure(failure: &ReadFailure, error: Option<&HistoryError>) {
    let reason = match error {
        Some(HistoryError::Sqlite(source)) => Some(format!("cannot be read: {source}")),
        // The file is fine, or one record is not.
        Some(_) | None => None,
    };
    let mut known = failure.lock().expect("nobody panics with the failure in hand");
    match &reason {
        Some(reason) if known.is_none() => tracing::error!("the history {reason}"),
        None if known.is_some() => tracing::info!("the history can be read again"),
        Some(_) | None => {}
    }
    *known = reason;
}

/// Checks the file with SQLite in the background, and logs damage: rows are checked when they are read, the rest here.
fn check_in_background(writer: &HistoryWriter) -> Result<(), OpenError> {
    let path = writer.path().to_owned();
    let conn = table::open_reader(&path)?;
    let check = {
        let path = path.clone();
        move || match table::quick_check(&conn) {
            Ok(None) => {}
            Ok(Some(problem)) => tracing::error!(path = %path.display(), "the history is damaged: {problem}"),
            Err(error) => tracing::error!(path = %path.display(), "the history cannot be checked: {error}"),
        }
    };
    let spawned = thread::Builder::new().name("history-check".to_owned()).spawn(check);
    spawned.map(|_| ()).map_err(|source| OpenError::Read { path, source })
}

/// Selects the records of a page. Unwritten records matter, unless the query is for one job and it is found.
fn select_all(conn: &Connection, page: Page, written: Result<(), HistoryError>) -> Result<Found, HistoryError> {
    let is_lookup = page.query.jobs.len() == 1;
    let found = select(conn, page)?;
    let is_whole = is_lookup && !found.records.is_empty();
    if is_whole { Ok(found) } else { written.map(|()| found) }
}

fn select(conn: &Connection, page: Page) -> Result<Found, HistoryError> {
    let n_wanted = page.n_left.min(PAGE_RECORDS);
    let order = order(&page.query);
    let (sql, values) = sql_of(&page, &order, n_wanted);
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut records: Vec<JobRecord> = Vec::new();
    let mut last = None;
    while let Some(row) = rows.next()? {
        records.push(table::record(row)?);
        if records.len() as u64 == n_wanted {
            let of_order = N_SELECTED..N_SELECTED + order.len();
            last = Some(of_order.map(|idx| row.get(idx)).collect::<rusqlite::Result<Vec<Value>>>()?);
        }
    }
    let n_left = page.n_left - records.len() as u64;
    let next = last.filter(|_| n_left > 0).map(|last| Page { after: Some(last), n_left, ..page });
    Ok(Found { records, next })
}

/// Returns the sort key of an answer: it is unique to each record, and never null.
fn order(query: &HistoryQuery) -> Vec<(&'static str, Way)> {
    let rest = [(RecordColumn::Ended, Way::Down), (RecordColumn::Job, Way::Down)];
    let all: Vec<(RecordColumn, Way)> = query.sort.iter().copied().chain(rest).collect();
    distinct(&all).into_iter().map(|(column, way)| (expression(column), way)).collect()
}

fn expression(column: RecordColumn) -> &'static str {
    match column {
        RecordColumn::Job => "job",
        RecordColumn::User => "owner",
        RecordColumn::Name => "name",
        RecordColumn::State => "outcome",
        RecordColumn::Submitted => "submitted",
        RecordColumn::Started => "ifnull(started, -1)",
        RecordColumn::Ended => "ended",
        RecordColumn::Ran => "ifnull(ended - started, -1)",
        RecordColumn::Cpu => "cpu_ms",
        RecordColumn::Memory => "peak_kib",
    }
}

/// Returns the condition for records that come after one with this sort key.
fn after_condition(order: &[(&'static str, Way)], after: &[Value]) -> (String, Vec<Value>) {
    if order.iter().all(|(_, way)| *way == Way::Down) {
        // An index has this order.
        let columns: Vec<&str> = order.iter().map(|(column, _)| *column).collect();
        let marks = vec!["?"; columns.len()].join(", ");
        return (format!("({}) < ({marks})", columns.join(", ")), after.to_vec());
    }
    let mut values = Vec::new();
    // Equal in the first columns, and after it in the next.
    let branch = |idx: usize| {
        let equal = order[..idx].iter().map(|(column, _)| format!("{column} = ?"));
        let (column, way) = order[idx];
        let comparison = match way {
            Way::Up => ">",
            Way::Down => "<",
        };
        values.extend(after[..=idx].iter().cloned());
        equal.chain([format!("{column} {comparison} ?")]).collect::<Vec<_>>().join(" AND ")
    };
    let branches: Vec<String> = (0..order.len()).map(branch).collect();
    (format!("({})", branches.join(" OR ")), values)
}

/// Columns that are selected before those of the sort key.
const N_SELECTED: usize = 3;

/// Returns the SQL and its values. Only the shape of the query enters the text; everything from a client is bound.
fn sql_of(page: &Page, order: &[(&'static str, Way)], n_wanted: u64) -> (String, Vec<Value>) {
    let HistoryQuery { users, states, since, until, jobs, names, accounts, clusters: _, sort: _, limit: _, offset } =
        &page.query;
    let mut conditions: Vec<String> = Vec::new();
    let mut values: Vec<Value> = Vec::new();
    for (column, wanted) in [("owner", users), ("outcome", states), ("name", names)] {
        match wanted.as_slice() {
            [] => {}
            // With one owner, the index provides the order, too.
            [only] => {
                conditions.push(format!("{column} = ?"));
                values.push(Value::from(only.clone()));
            }
            several => {
                // One value for all of them, because there can be more than SQLite can bind.
                conditions.push(format!("{column} IN (SELECT value FROM json_each(?))"));
                values.push(Value::from(serde_json::json!(several).to_string()));
            }
        }
    }
    if !jobs.is_empty() {
        // An id beyond SQLite's integers names no job.
        conditions.push("job IN (SELECT value FROM json_each(?))".to_owned());
        let ids: Vec<i64> = jobs.iter().map(|job| i64::try_from(job.0).unwrap_or(-1)).collect();
        values.push(Value::from(serde_json::json!(ids).to_string()));
    }
    if !accounts.is_empty() {
        // An unreadable record may be one of them, which is told when it is read.
        conditions.push("ifnull(account_of(record) IN (SELECT value FROM json_each(?)), 1)".to_owned());
        values.push(Value::from(serde_json::json!(accounts).to_string()));
    }
    if !page.clusters.is_empty() {
        conditions.push("EXISTS (SELECT 1 FROM json_each(?) WHERE instr(clusters, value) > 0)".to_owned());
        let clusters: Vec<String> = page.clusters.iter().map(|cluster| table::cluster_pattern(*cluster)).collect();
        values.push(Value::from(serde_json::json!(clusters).to_string()));
    }
    for (condition, time) in [("ended >= ?", since), ("ended < ?", until)] {
        if let Some(time) = time {
            conditions.push(condition.to_owned());
            values.push(Value::from(time.as_millis()));
        }
    }
    if let Some(after) = &page.after {
        let (condition, of_it) = after_condition(order, after);
        conditions.push(condition);
        values.extend(of_it);
    }
    let filter = if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) };
    // Later pages begin where the one before ended.
    let n_skipped = if page.after.is_some() { 0 } else { i64::try_from(*offset).unwrap_or(i64::MAX) };
    values.push(Value::from(i64::try_from(n_wanted).unwrap_or(i64::MAX)));
    values.push(Value::from(n_skipped));
    let columns: String = order.iter().map(|(column, _)| format!(", {column}")).collect();
    let ways = order.iter().map(|(column, way)| match way {
        Way::Up => format!("{column} ASC"),
        Way::Down => format!("{column} DESC"),
    });
    let ways: Vec<String> = ways.collect();
    let sql = format!(
        "SELECT job, record, digest{columns} FROM history{filter} ORDER BY {} LIMIT ? OFFSET ?",
        ways.join(", ")
    );
    (sql, values)
}
#[cfg(test)]
mod tests {
    use rms_api::filter::column;
    use rms_core::Fact;
    use rms_model::{FormerRun, Labels, Outcome, Owner, Request, Run, Span, Time, Usage};

    use super::table::open_reader;
    use super::*;
    use crate::journal::{FactLog, SnapshotPolicy};

    /// Job 2 ran before.
    fn done(job: u64, owner: &str, name: &str, outcome: Outcome) -> Fact {
        let at = |secs| Time::from_secs(1000 * job as i64 + secs);
        let former = FormerRun {
            run: Run(1),
            started: at(1),
            ended: at(9),
            outcome: Outcome::NodeLost { node: "n1".to_owned(), reason: String::new() },
            nodes: vec!["n1".to_owned()],
            usage: Usage { cpu: Span::from_secs(8), peak_memory_kib: 1024 },
            core_time: 8000,
            loans: None,
        };
        let record = JobRecord {
            labels: Labels { account: if job > 2 { "lab".to_owned() } else { String::new() }, ..Labels::named(name) },
            started: Some(at(10)),
            ended: at(20),
            n_tasks: 1,
            cpus_per_task: 1,
            nodes: vec!["n1".to_owned()],
            outcome,
            former_runs: if job == 2 { vec![former] } else { Vec::new() },
            ..JobRecord::of(
                JobId(job),
                Owner(owner.to_owned()),
                Request::on_one(ClusterId(0), 1, Span::from_hours(1)),
                at(0),
            )
        };
        Fact::JobDone { record: Box::new(record), ghost_until: at(20), negotiations: Vec::new(), told: None }
    }

    fn check(query: HistoryQuery, expected: &[u64]) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("journal");
        let mut log = FactLog::create(&path, SnapshotPolicy::default()).expect("a new journal");
        log.append(&[
            done(1, "ann", "cfd", Outcome::Completed),
            done(2, "bob", "cfd", Outcome::Failed { code: 3 }),
            done(3, "ann", "mesh", Outcome::Failed { code: 1 }),
            done(4, "ann", "cfd", Outcome::Cancelled { by: "ann".to_owned() }),
        ])
        .expect("space on the disk");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let history = History::start(log.history()).expect("a readable journal");
        let found = runtime.block_on(history.ask("ann", Page::first(query))).expect("an answer");
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
        check(HistoryQuery { users: vec!["ann".to_owned()], ..any() }, &[4, 3, 1]);
        check(HistoryQuery { names: vec!["cfd".to_owned()], ..any() }, &[4, 2, 1]);
        check(HistoryQuery { accounts: vec!["lab".to_owned(), "x".to_owned()], ..any() }, &[4, 3]);
        check(HistoryQuery { accounts: vec![String::new()], ..any() }, &[2, 1]);
        check(HistoryQuery { states: vec!["failed".to_owned()], ..any() }, &[3, 2]);
        check(
            HistoryQuery { users: vec!["bob".to_owned(), "eve".to_owned(), "ann".to_owned()], limit: 2, ..any() },
            &[4, 3],
        );
        check(HistoryQuery { jobs: vec![JobId(2), JobId(4), JobId(u64::MAX)], ..any() }, &[4, 2]);
        check(
            HistoryQuery { since: Some(Time::from_secs(2020)), until: Some(Time::from_secs(4020)), ..any() },
            &[3, 2],
        );
        check(HistoryQuery { users: vec!["ann' OR 1 --".to_owned()], ..any() }, &[]);
    }

    #[test]
    fn records_are_selected_by_where_they_were() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut log = new_log(&dir);
        let facts = (1..=14).map(|job| {
            let mut fact = done(job, "ann", "cfd", Outcome::Completed);
            if let Fact::JobDone { record, .. } = &mut fact {
                let on = |cluster| (ClusterId(cluster), 1);
                record.request.nodes = [on(job as u16), on(100)].into_iter().take(1 + job as usize % 2).collect();
            }
            fact
        });
        log.append(&facts.collect::<Vec<_>>()).expect("space on the disk");
        log.history().wait_until_written().expect("a disk");
        let conn = open_reader(&table::path_of(&dir.path().join("journal"))).expect("a readable history");
        let on = |clusters: &[u16]| {
            let page = Page::first(any()).on(clusters.iter().copied().map(ClusterId).collect());
            let found = select(&conn, page).expect("an answer");
            found.records.iter().map(|record| record.job.0).collect::<Vec<u64>>()
        };
        assert_eq!((on(&[1]), on(&[4, 11])), (vec![1], vec![11, 4]));
        assert_eq!(on(&[100]), [13, 11, 9, 7, 5, 3, 1]);
    }

    #[test]
    fn answers_are_sorted_by_what_was_asked_for() {
        let sort = |words: &[&str]| {
            let sort = words.iter().map(|word| column(word).expect("a column")).collect();
            HistoryQuery { sort, ..any() }
        };
        check(sort(&["job"]), &[1, 2, 3, 4]);
        check(sort(&["user", "name"]), &[4, 1, 3, 2]);
        check(sort(&["-user", "job"]), &[2, 1, 3, 4]);
        // What its former run used counts.
        check(sort(&["-cpu", "job"]), &[2, 1, 3, 4]);
        check(sort(&["-memory", "job"]), &[2, 1, 3, 4]);
        // Cancelled, completed, failed, failed.
        check(HistoryQuery { limit: 2, offset: 1, ..sort(&["state"]) }, &[1, 3]);
    }

    #[test]
    fn a_long_answer_comes_in_pages_without_gap_or_repetition() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("journal");
        let mut log = FactLog::create(&path, SnapshotPolicy::default()).expect("a new journal");
        let facts: Vec<Fact> = (1..=2500).map(|job| done(job, "ann", "cfd", Outcome::Completed)).collect();
        log.append(&facts).expect("space on the disk");
        log.history().wait_until_written().expect("a disk");
        let conn = open_reader(&table::path_of(&path)).expect("a readable history");
        let all = |sort: &[&str]| {
            let sort = sort.iter().map(|word| column(word).expect("a column")).collect();
            let query = HistoryQuery { limit: 2200, offset: 100, sort, ..HistoryQuery::default() };
            let mut page = Some(Page::first(query));
            let mut jobs = Vec::new();
            while let Some(wanted) = page {
                let found = select(&conn, wanted).expect("an answer");
                assert!(found.records.len() <= PAGE_RECORDS as usize);
                jobs.extend(found.records.iter().map(|record| record.job.0));
                page = found.next;
            }
            jobs
        };
        let newest: Vec<u64> = (201..=2400).rev().collect();
        assert_eq!(all(&[]), newest);
        // Equal in all of these.
        assert_eq!(all(&["user", "-ran", "cpu"]), newest);
        assert_eq!(all(&["-name", "submitted"]), (101..=2300).collect::<Vec<u64>>());
    }

    /// The journal must go on, whatever usage an agent reports.
    #[test]
    fn a_record_with_more_memory_than_the_table_can_hold_is_kept() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("journal");
        let mut log = FactLog::create(&path, SnapshotPolicy::default()).expect("a new journal");
        let mut fact = done(1, "ann", "cfd", Outcome::Completed);
        if let Fact::JobDone { record, .. } = &mut fact {
            record.usage.peak_memory_kib = u64::MAX;
        }
        log.append(&[fact]).expect("space on the disk");
        log.history().wait_until_written().expect("a disk");
        let conn = open_reader(&table::path_of(&path)).expect("a readable history");
        let found = select(&conn, Page::first(any())).expect("an answer");
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

    fn new_log(dir: &tempfile::TempDir) -> FactLog {
        FactLog::create(&dir.path().join("journal"), SnapshotPolicy::default()).expect("a new journal")
    }

    /// Opens the database as another program would.
    fn other(log: &FactLog) -> Connection {
        Connection::open(log.history().path()).expect("a database")
    }

    /// A job that ended but is not in the database is not "no such job", and damage of the history is no full disk.
    #[test]
    fn a_history_that_cannot_be_written_says_so_and_work_goes_on() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut log = new_log(&dir);
        log.append(&[done(1, "ann", "cfd", Outcome::Completed)]).expect("space on the disk");
        log.history().wait_until_written().expect("a disk");
        let trigger = "CREATE TRIGGER broken BEFORE INSERT ON history BEGIN SELECT RAISE(ABORT, 'a bad page'); END";
        other(&log).execute_batch(trigger).expect("a trigger");
        log.append(&[done(2, "ann", "cfd", Outcome::Completed)]).expect("space on the disk");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let history = History::start(log.history()).expect("a readable journal");
        let of_job = |job| runtime.block_on(history.of_job("ann", JobId(job)));
        assert!(matches!(of_job(1), Ok(Some(_))), "it was written before");
        let error = of_job(2).expect_err("it is not written");
        assert!(matches!(&error, HistoryError::NotWritten(failure) if failure.cause == Cause::Broken), "{error:?}");
        assert!(error.to_string().contains("a bad page"), "{error}");
        let all = runtime.block_on(history.ask("ann", Page::first(any())));
        assert!(matches!(all, Err(HistoryError::NotWritten(_))), "a list without it would be wrong: {all:?}");
        assert_eq!(log.shortage(), None);
        assert!(history.failure().is_some());
        other(&log).execute_batch("DROP TRIGGER broken").expect("no trigger");
        while history.failure().is_some() {
            thread::sleep(Duration::from_millis(20));
        }
        assert!(matches!(of_job(2), Ok(Some(_))));
    }

    #[test]
    fn a_history_that_cannot_be_read_says_so_until_it_can() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut log = new_log(&dir);
        log.append(&[done(1, "ann", "cfd", Outcome::Completed)]).expect("space on the disk");
        log.history().sync(1).expect("a disk");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let history = History::start(log.history()).expect("a readable journal");
        let of_job = |job| runtime.block_on(history.of_job("ann", JobId(job)));
        assert!(matches!(of_job(1), Ok(Some(_))) && history.failure().is_none());
        other(&log).execute_batch("ALTER TABLE history RENAME TO elsewhere").expect("nobody writes");
        assert!(of_job(1).is_err());
        let failure = history.failure().expect("the query has failed");
        assert!(failure.starts_with("cannot be read: "), "{failure}");
        other(&log).execute_batch("ALTER TABLE elsewhere RENAME TO history").expect("nobody writes");
        assert!(matches!(of_job(1), Ok(Some(_))));
        assert_eq!(history.failure(), None);
    }

    /// A long read does not delay syncing the history: snapshots of the journal wait for the sync.
    #[test]
    fn a_reader_keeps_nobody_from_making_the_history_durable() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut log = new_log(&dir);
        log.append(&[done(1, "ann", "cfd", Outcome::Completed)]).expect("space on the disk");
        log.history().wait_until_written().expect("a disk");
        let reader = other(&log);
        let n_jobs = "BEGIN; SELECT count(*) FROM history;";
        reader.execute_batch(n_jobs).expect("a snapshot of the database");
        reader.query_row("SELECT count(*) FROM history", [], |row| row.get::<_, i64>(0)).expect("a number");
        log.append(&[done(2, "ann", "cfd", Outcome::Completed)]).expect("space on the disk");
        log.history().sync(2).expect("nobody is in the way");
        let seen: i64 = reader.query_row("SELECT count(*) FROM history", [], |row| row.get(0)).expect("a number");
        assert_eq!(seen, 1, "it still reads what was there");
        assert_eq!(table::last_seq(&other(&log)), Ok(2));
    }

    /// A sync covers the jobs that had ended when it was ordered, however fast more jobs end.
    #[test]
    fn rows_that_come_later_are_not_waited_for() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let log = new_log(&dir);
        let writer = log.history();
        let other = other(&log);
        let trigger =
            "CREATE TRIGGER later BEFORE INSERT ON history WHEN NEW.job = 2 BEGIN SELECT RAISE(ABORT, 'no'); END";
        other.execute_batch(trigger).expect("a trigger");
        let row = |job| Row::of(&done(job, "ann", "cfd", Outcome::Completed));
        other.execute_batch("BEGIN IMMEDIATE").expect("nobody writes");
        writer.put(row(1), 1);
        thread::scope(|scope| {
            let synced = scope.spawn(|| writer.sync(1));
            // The first row is on its way, and waits for the other program, when the second one comes.
            thread::sleep(Duration::from_millis(500));
            writer.put(row(2), 2);
            other.execute_batch("COMMIT").expect("it has changed nothing");
            synced.join().expect("no panic").expect("what had ended is durable");
        });
        other.execute_batch("DROP TRIGGER later").expect("no trigger");
    }

    #[test]
    fn many_who_wait_for_their_jobs_are_all_answered() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut log = new_log(&dir);
        let facts: Vec<Fact> = (1..=300).map(|job| done(job, "ann", "cfd", Outcome::Completed)).collect();
        log.append(&facts).expect("space on the disk");
        let history = History::start(log.history()).expect("a readable journal");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let n_found = runtime.block_on(async {
            let mut asking = tokio::task::JoinSet::new();
            for job in 1..=300 {
                let history = history.clone();
                asking.spawn(async move { history.of_job("ann", JobId(job)).await });
            }
            asking.join_all().await.into_iter().filter(|found| matches!(found, Ok(Some(_)))).count()
        });
        assert_eq!(n_found, 300);
    }
}
