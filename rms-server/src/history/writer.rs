//! Writes the rows of the history after the log, many at a time, on a thread of its own.
//!
//! Only readers of the history wait for a row. Rows that are not written when the server dies are rebuilt from the log.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rms_model::Time;
use rusqlite::ffi::SQLITE_IOERR_SHMSIZE;
use rusqlite::{Connection, ErrorCode};

use super::prune::{Retention, prune};
use super::table::Row;
use super::{HistoryError, table};
use crate::open_error::OpenError;
use rms_model::error::chain;

/// A handle on the thread. When the last one is dropped, the thread writes the rows that are left and ends.
#[derive(Clone, Debug)]
pub struct HistoryWriter {
    owner: Arc<WriterThread>,
}

#[derive(Debug)]
struct WriterThread {
    shared: Arc<Shared>,
    path: PathBuf,
    last_seq: u64,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Wakes the thread: there is work.
    wake: Condvar,
    /// Wakes callers that wait for the thread.
    done: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    rows: Vec<Row>,
    /// The last fact that was put, with or without a row.
    put_seq: u64,
    /// Rows that were put since the start, and how many of them are in the database.
    n_put: u64,
    n_written: u64,
    /// Callers that wait for the thread now: it does not gather rows while there are any.
    n_waiting: u32,
    /// A pending sync, and the result of the last one.
    sync: Option<SyncOrder>,
    synced: Option<Result<(), HistoryError>>,
    failure: Option<Failure>,
    /// A pending pruning, and the time it is relative to: ordered now and then, and run when there is nothing else to
    /// do.
    prune: Option<(Retention, Time)>,
    is_closed: bool,
}

/// An order to make the history durable.
#[derive(Clone, Copy, Debug)]
struct SyncOrder {
    /// The last fact that the history covers then.
    until: u64,
    /// The sync runs once this many rows are written.
    n_rows: u64,
}

/// Why rows cannot be written now. The write is retried until it succeeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub reason: String,
    pub cause: Cause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The disk is full.
    Full,
    /// Another program uses the file.
    InUse,
    /// Damage, or a failing disk: an admin has to act.
    Broken,
}

impl Failure {
    fn of(error: &HistoryError) -> Failure {
        let cause = match error {
            HistoryError::Sqlite(error) => match (error.sqlite_error_code(), error.sqlite_error()) {
                (Some(ErrorCode::DiskFull), _) => Cause::Full,
                // There is no space for the shared-memory index of the WAL.
                (_, Some(error)) if error.extended_code == SQLITE_IOERR_SHMSIZE => Cause::Full,
                (Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked), _) => Cause::InUse,
                _other => Cause::Broken,
            },
            _other => Cause::Broken,
        };
        Failure { reason: chain(error), cause }
    }
}

impl Queue {
    fn is_flush_due(&self) -> bool {
        self.n_waiting > 0 || self.sync.is_some() || self.is_closed || self.rows.len() >= MAX_BATCH_ROWS
    }

    /// Takes the sync that is due. It comes before rows that were put later: they may never stop coming.
    fn take_sync(&mut self) -> Option<SyncOrder> {
        self.sync.take_if(|sync| sync.n_rows <= self.n_written)
    }
}

/// How long rows are gathered for one transaction, and the number of rows that ends the wait early.
const GATHER_TIME: Duration = Duration::from_millis(200);
const MAX_BATCH_ROWS: usize = 1000;

/// The time between two steps of pruning.
const PRUNE_PAUSE: Duration = Duration::from_millis(20);

/// The time between two attempts while the disk fails, and between two log lines about it.
const BACKOFF: Duration = Duration::from_millis(250);
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// How many rows may wait in memory while the history cannot be written.
const MAX_BACKLOG: usize = 50_000;

impl HistoryWriter {
    /// Creates an empty history beside a log.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn create(journal: &Path) -> Result<(), OpenError> {
        table::create(&table::path_of(journal))
    }

    /// Opens the history of a journal, and starts the thread.
    ///
    /// # Errors
    /// A missing or damaged file.
    pub fn start(journal: &Path) -> Result<HistoryWriter, OpenError> {
        let path = table::path_of(journal);
        let conn = table::open_writer(&path)?;
        let last_seq = table::last_seq(&conn).map_err(|source| OpenError::from_sqlite(&path, source))?;
        let shared = Arc::new(Shared::default());
        shared.lock().put_seq = last_seq;
        let thread = thread::Builder::new()
            .name("history-writer".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || shared.serve(conn)
            })
            .map_err(|source| OpenError::Write { path: path.clone(), source })?;
        Ok(HistoryWriter { owner: Arc::new(WriterThread { shared, path, last_seq, thread: Some(thread) }) })
    }

    pub fn path(&self) -> &Path {
        &self.owner.path
    }

    /// Returns the last fact that the history covered when it was opened.
    pub fn last_seq(&self) -> u64 {
        self.owner.last_seq
    }

    /// Puts the row, if any, of fact number `seq`.
    pub fn put(&self, row: Option<Row>, seq: u64) {
        let mut queue = self.owner.shared.lock();
        queue.put_seq = seq;
        let Some(row) = row else { return };
        queue.rows.push(row);
        queue.n_put += 1;
        // The thread sleeps while there are no rows, and gathers until there are many.
        if queue.rows.len() == 1 || queue.rows.len() == MAX_BATCH_ROWS {
            self.owner.shared.wake.notify_one();
        }
    }

    /// Orders a pruning of the history, for when there is nothing else to do.
    pub fn prune(&self, retention: Retention, now: Time) {
        self.owner.shared.lock().prune = Some((retention, now));
        self.owner.shared.wake.notify_one();
    }

    /// Returns why rows cannot be written now.
    pub fn failure(&self) -> Option<Failure> {
        self.owner.shared.lock().failure.clone()
    }

    /// Returns whether too many rows wait in memory for a history that cannot be written: no new work is accepted then.
    pub fn is_backlogged(&self) -> bool {
        let queue = self.owner.shared.lock();
        queue.failure.is_some() && queue.rows.len() >= MAX_BACKLOG
    }

    /// Waits until all rows that were put so far are in the database.
    ///
    /// # Errors
    /// The history cannot be written now.
    pub fn wait_until_written(&self) -> Result<(), HistoryError> {
        let shared = &self.owner.shared;
        let mut queue = shared.lock();
        let n_rows = queue.n_put;
        queue.n_waiting += 1;
        shared.wake.notify_one();
        let mut queue = shared.wait_while(queue, |queue| queue.n_written < n_rows && queue.failure.is_none());
        queue.n_waiting -= 1;
        match &queue.failure {
            Some(failure) if queue.n_written < n_rows => Err(HistoryError::NotWritten(failure.clone())),
            Some(_) | None => Ok(()),
        }
    }

    /// Makes the history durable, with the rows of all facts up to `seq`.
    ///
    /// # Errors
    /// A full or failing disk.
    pub fn sync(&self, seq: u64) -> Result<(), HistoryError> {
        let shared = &self.owner.shared;
        let mut queue = shared.lock();
        queue.sync = Some(SyncOrder { until: seq, n_rows: queue.n_put });
        shared.wake.notify_one();
        let mut queue = shared.wait_while(queue, |queue| queue.synced.is_none());
        queue.synced.take().expect("it was waited for")
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the history's thread has panicked; the next start writes the rows that are missing");
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("nobody panics with the queue in hand")
    }

    fn wait_while<'a>(
        &self,
        queue: MutexGuard<'a, Queue>,
        goes_on: impl FnMut(&mut Queue) -> bool,
    ) -> MutexGuard<'a, Queue> {
        self.done.wait_while(queue, goes_on).expect("nobody panics with the queue in hand")
    }

    /// Sleeps until there is work, or for `at_most`.
    fn sleep<'a>(&self, queue: MutexGuard<'a, Queue>, at_most: Duration) -> MutexGuard<'a, Queue> {
        self.wake.wait_timeout(queue, at_most).expect("nobody panics with the queue in hand").0
    }

    /// Runs the thread.
    fn serve(&self, mut conn: Connection) {
        let mut queue = self.lock();
        loop {
            if let Some(order) = queue.take_sync() {
                drop(queue);
                let synced = sync(&mut conn, order.until);
                queue = self.lock();
                queue.synced = Some(synced);
                self.done.notify_all();
            } else if !queue.rows.is_empty() {
                if !queue.is_flush_due() {
                    queue = self.sleep(queue, GATHER_TIME);
                }
                let (rows, seq) = (std::mem::take(&mut queue.rows), queue.put_seq);
                drop(queue);
                let is_written = self.write_until_done(&mut conn, &rows, seq);
                queue = self.lock();
                if !is_written {
                    return;
                }
                queue.n_written += rows.len() as u64;
                self.done.notify_all();
            } else if queue.is_closed {
                return;
            } else if let Some((retention, now)) = queue.prune.take() {
                drop(queue);
                let has_more = prune(&mut conn, retention, now).unwrap_or_else(|error| {
                    tracing::warn!("the history was not pruned: {}", chain(&error));
                    false
                });
                queue = self.lock();
                if has_more && !queue.is_closed {
                    // Other work comes before the next step.
                    queue.prune.get_or_insert((retention, now));
                    queue = self.sleep(queue, PRUNE_PAUSE);
                }
            } else {
                queue = self.wake.wait(queue).expect("nobody panics with the queue in hand");
            }
        }
    }

    /// Retries until the write succeeds; returns false if the server stops first. The log still has the facts then.
    fn write_until_done(&self, conn: &mut Connection, rows: &[Row], seq: u64) -> bool {
        let mut remind_at = Instant::now();
        loop {
            let Err(error) = write(conn, rows, seq) else {
                if self.lock().failure.take().is_some() {
                    tracing::info!("the history can be written again");
                }
                return true;
            };
            let mut queue = self.lock();
            let failure = Failure::of(&error);
            if Instant::now() >= remind_at {
                tracing::error!("the history cannot be written: {}", failure.reason);
                remind_at = Instant::now() + LOG_INTERVAL;
            }
            queue.failure = Some(failure);
            // A caller of `sync` must not wait until the disk recovers.
            if queue.sync.take().is_some() {
                queue.synced = Some(Err(error));
            }
            self.done.notify_all();
            if queue.is_closed {
                return false;
            }
            drop(self.sleep(queue, BACKOFF));
        }
    }
}

fn write(conn: &mut Connection, rows: &[Row], seq: u64) -> Result<(), HistoryError> {
    let transaction = conn.transaction()?;
    rows.iter().try_for_each(|row| table::insert(&transaction, row))?;
    table::set_last_seq(&transaction, seq)?;
    Ok(transaction.commit()?)
}

/// Makes all earlier commits durable with one commit that waits for the disk: they are in the same WAL. Readers do not
/// block it, as they would block a checkpoint.
fn sync(conn: &mut Connection, until: u64) -> Result<(), HistoryError> {
    conn.pragma_update(None, "synchronous", "FULL")?;
    let synced = advance(conn, until);
    conn.pragma_update(None, "synchronous", "NORMAL")?;
    synced
}

fn advance(conn: &mut Connection, until: u64) -> Result<(), HistoryError> {
    let transaction = conn.transaction()?;
    // A commit without changes would not wait for the disk.
    table::set_last_seq(&transaction, until ^ 1)?;
    table::set_last_seq(&transaction, until)?;
    Ok(transaction.commit()?)
}
