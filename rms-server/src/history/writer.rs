//! Writes the rows of the history behind the log, many at a time, on a thread of its own.
//!
//! Nothing waits for a row but who reads the history: what is not written when the server dies is in the log.

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

/// A handle on the thread. When the last one goes, the thread writes what it still has and ends.
#[derive(Clone, Debug)]
pub struct HistoryWriter {
    owner: Arc<Owner>,
}

#[derive(Debug)]
struct Owner {
    shared: Arc<Shared>,
    path: PathBuf,
    last_seq: u64,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Of the thread: there is something to do.
    wake: Condvar,
    /// Of those who wait for the thread.
    done: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    rows: Vec<Row>,
    /// The last fact that was put here, with a row or without.
    put_seq: u64,
    /// Rows that were put since the start, and those of them that are in the database.
    n_put: u64,
    n_written: u64,
    /// How many wait for the thread now: it does not gather rows then.
    n_waiting: u32,
    /// What is to be made durable, and what came of it.
    sync: Option<SyncOrder>,
    synced: Option<Result<(), HistoryError>>,
    failure: Option<Failure>,
    /// What is kept as of when: given anew now and then, and taken when there is nothing else to do.
    keep: Option<(Retention, Time)>,
    is_closed: bool,
}

/// The history is to be made durable.
#[derive(Clone, Copy, Debug)]
struct SyncOrder {
    /// The last fact that is accounted for then.
    until: u64,
    /// Once so many rows are written.
    n_rows: u64,
}

/// Why rows cannot be written now. It is tried again and again.
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
    /// Damage, or a failing disk: somebody has to do something about it.
    Broken,
}

impl Failure {
    fn of(error: &HistoryError) -> Failure {
        let cause = match error {
            HistoryError::Sqlite(error) => match (error.sqlite_error_code(), error.sqlite_error()) {
                (Some(ErrorCode::DiskFull), _) => Cause::Full,
                // The index beside the log of changes finds no space.
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
    fn is_hurried(&self) -> bool {
        self.n_waiting > 0 || self.sync.is_some() || self.is_closed || self.rows.len() >= MAX_GATHERED
    }

    /// What is to be made durable now. It comes before rows that were put since: they may never end.
    fn take_sync(&mut self) -> Option<SyncOrder> {
        self.sync.take_if(|sync| sync.n_rows <= self.n_written)
    }
}

/// How long rows are gathered for one transaction, and how many at most.
const PATIENCE: Duration = Duration::from_millis(200);
const MAX_GATHERED: usize = 1000;

/// Between two steps of pruning.
const PRUNE_PAUSE: Duration = Duration::from_millis(20);

/// Between two tries while the disk fails, and how often the log is told of it.
const BACKOFF: Duration = Duration::from_millis(250);
const REMINDER: Duration = Duration::from_secs(60);

/// So many rows may wait in memory for a history that fails.
const MAX_UNWRITTEN: usize = 50_000;

impl HistoryWriter {
    /// Makes an empty history beside a log.
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
        Ok(HistoryWriter { owner: Arc::new(Owner { shared, path, last_seq, thread: Some(thread) }) })
    }

    pub fn path(&self) -> &Path {
        &self.owner.path
    }

    /// The last fact that was accounted for when the history was opened.
    pub fn last_seq(&self) -> u64 {
        self.owner.last_seq
    }

    /// Takes what became of fact number `seq`.
    pub fn put(&self, row: Option<Row>, seq: u64) {
        let mut queue = self.owner.shared.lock();
        queue.put_seq = seq;
        let Some(row) = row else { return };
        queue.rows.push(row);
        queue.n_put += 1;
        // The thread sleeps while there are none, and gathers until there are many.
        if queue.rows.len() == 1 || queue.rows.len() == MAX_GATHERED {
            self.owner.shared.wake.notify_one();
        }
    }

    /// Forgets what need not be kept, when there is nothing else to do.
    pub fn keep(&self, retention: Retention, now: Time) {
        self.owner.shared.lock().keep = Some((retention, now));
        self.owner.shared.wake.notify_one();
    }

    /// Why rows cannot be written now.
    pub fn failure(&self) -> Option<Failure> {
        self.owner.shared.lock().failure.clone()
    }

    /// Why there is to be no new work: as long as rows cannot be written, they wait in memory.
    pub fn is_overdue(&self) -> bool {
        let queue = self.owner.shared.lock();
        queue.failure.is_some() && queue.rows.len() >= MAX_UNWRITTEN
    }

    /// Waits until all that was put so far is in the database.
    ///
    /// # Errors
    /// It cannot be written now.
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

    /// Makes the history durable, with all that the facts up to `seq` have made of it.
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

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the history's thread has panicked; the next start makes up for what it did not write");
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

    /// Sleeps until somebody wants something, or for so long.
    fn sleep<'a>(&self, queue: MutexGuard<'a, Queue>, at_most: Duration) -> MutexGuard<'a, Queue> {
        self.wake.wait_timeout(queue, at_most).expect("nobody panics with the queue in hand").0
    }

    /// The thread.
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
                if !queue.is_hurried() {
                    queue = self.sleep(queue, PATIENCE);
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
            } else if let Some((retention, now)) = queue.keep.take() {
                drop(queue);
                let has_more = prune(&mut conn, retention, now).unwrap_or_else(|error| {
                    tracing::warn!("the history was not pruned: {}", chain(&error));
                    false
                });
                queue = self.lock();
                if has_more && !queue.is_closed {
                    // Others have their turn before the next step.
                    queue.keep.get_or_insert((retention, now));
                    queue = self.sleep(queue, PRUNE_PAUSE);
                }
            } else {
                queue = self.wake.wait(queue).expect("nobody panics with the queue in hand");
            }
        }
    }

    /// Tries until it succeeds; false if the server ends before. The log still has the facts then.
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
                remind_at = Instant::now() + REMINDER;
            }
            queue.failure = Some(failure);
            // Who wants it durable must not wait for the disk's recovery.
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

/// One commit that waits for the disk brings all before it there: they lie in the same log of changes. No reader is in its
/// way, as it would be in that of a checkpoint.
fn sync(conn: &mut Connection, until: u64) -> Result<(), HistoryError> {
    conn.pragma_update(None, "synchronous", "FULL")?;
    let synced = advance(conn, until);
    conn.pragma_update(None, "synchronous", "NORMAL")?;
    synced
}

fn advance(conn: &mut Connection, until: u64) -> Result<(), HistoryError> {
    let transaction = conn.transaction()?;
    // A commit that changes nothing would wait for nothing.
    table::set_last_seq(&transaction, until ^ 1)?;
    table::set_last_seq(&transaction, until)?;
    Ok(transaction.commit()?)
}
