//! Deletes jobs that ended long ago and frees their disk space, in small steps so that readers and writers need not
//! wait.

use rms_model::{Span, Time};
use rusqlite::{Connection, params};

/// Which jobs the history keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// How long jobs are kept after their end; `None` = without limit.
    pub max_age: Option<Span>,
    /// How many of the newest jobs are kept; `None` = all.
    pub max_jobs: Option<u64>,
}

/// Takes one step, and returns whether there is more to do.
///
/// # Errors
/// A full or failing disk; the step may be retried.
pub fn prune(conn: &mut Connection, retention: Retention, now: Time) -> rusqlite::Result<bool> {
    let too_old = match retention.max_age {
        Some(keep) => forget(conn, "ended < ?1", (now - keep).as_millis())?,
        None => 0,
    };
    let too_many = match retention.max_jobs.and_then(|most| i64::try_from(most).ok()) {
        // Finding the oldest job that stays reads the index alone.
        Some(most) => {
            let oldest = "ended < (SELECT ended FROM history ORDER BY ended DESC LIMIT 1 OFFSET ?1 - 1)";
            forget(conn, oldest, most)?
        }
        None => 0,
    };
    let is_shrunk = give_back(conn)?;
    Ok(too_old == STEP || too_many == STEP || is_shrunk)
}

fn forget(conn: &mut Connection, condition: &str, value: i64) -> rusqlite::Result<usize> {
    let transaction = conn.transaction()?;
    let oldest = format!("SELECT job FROM history WHERE {condition} ORDER BY ended LIMIT {STEP}");
    transaction.execute(&format!("DELETE FROM negotiations WHERE job IN ({oldest})"), params![value])?;
    let n_jobs = transaction.execute(&format!("DELETE FROM history WHERE job IN ({oldest})"), params![value])?;
    transaction.commit()?;
    Ok(n_jobs)
}

/// Returns free pages to the file system; some are kept for new rows.
fn give_back(conn: &Connection) -> rusqlite::Result<bool> {
    let n_free = || -> rusqlite::Result<u64> { conn.pragma_query_value(None, "freelist_count", |row| row.get(0)) };
    let before = n_free()?;
    if before <= KEPT_PAGES {
        return Ok(false);
    }
    let mut give = conn.prepare(&format!("PRAGMA incremental_vacuum({STEP_PAGES})"))?;
    let mut rows = give.query([])?;
    // Each row is a page.
    while rows.next()?.is_some() {}
    let after = n_free()?;
    Ok(after < before && after > KEPT_PAGES)
}

/// Jobs, and pages of 4 KiB, per step: some milliseconds.
const STEP: usize = 200;
const STEP_PAGES: u64 = 256;
/// One MiB of free pages is kept.
const KEPT_PAGES: u64 = 256;

#[cfg(test)]
mod tests {
    use rms_model::{ClusterId, JobId, JobRecord, Labels, Owner, Request};

    use super::*;
    use crate::history::{Row, table};

    fn done(job: u64) -> Row {
        let at = Time::from_secs(1000 * job as i64);
        let record = JobRecord {
            // So that the file has a size.
            labels: Labels::named("x".repeat(2000)),
            started: Some(at),
            n_tasks: 1,
            cpus_per_task: 1,
            nodes: vec!["n1".to_owned()],
            ..JobRecord::of(
                JobId(job),
                Owner("ann".to_owned()),
                Request::on_one(ClusterId(0), 1, Span::from_hours(1)),
                at,
            )
        };
        Row { record, negotiations: Vec::new() }
    }

    /// Returns the jobs that are left, and the sizes of the file before and after.
    fn kept(retention: Retention, n_jobs: u64, now: Time) -> (Vec<u64>, u64, u64) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("history.db");
        table::create(&path).expect("a new history");
        let mut conn = table::open_writer(&path).expect("a history");
        (1..=n_jobs).try_for_each(|job| table::insert(&conn, &done(job))).expect("space on the disk");
        let size = |conn: &Connection| {
            conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("nobody reads");
            std::fs::metadata(&path).expect("a file").len()
        };
        let before = size(&conn);
        let mut n_steps = 0;
        while prune(&mut conn, retention, now).expect("space on the disk") {
            n_steps += 1;
            assert!(n_steps < 10_000, "it comes to an end");
        }
        let after = size(&conn);
        let mut jobs = conn.prepare("SELECT job FROM history ORDER BY job").expect("a table");
        let jobs = jobs.query_map([], |row| row.get(0)).expect("rows").map(|job| job.expect("a number")).collect();
        (jobs, before, after)
    }

    #[test]
    fn what_is_too_old_or_too_many_goes_and_the_file_shrinks() {
        let now = Time::from_secs(1000 * 1500);
        let by_age = Retention { max_age: Some(Span::from_secs(1000 * 100)), max_jobs: None };
        let (jobs, before, after) = kept(by_age, 1500, now);
        assert_eq!(jobs, (1400..=1500).collect::<Vec<u64>>());
        assert!(after < before / 2, "{before} bytes became {after}");
        let (jobs, ..) = kept(Retention { max_age: None, max_jobs: Some(7) }, 1500, now);
        assert_eq!(jobs, (1494..=1500).collect::<Vec<u64>>());
        let (jobs, ..) = kept(Retention { max_age: Some(Span::from_secs(3000)), max_jobs: Some(1000) }, 50, now);
        assert_eq!(jobs, [] as [u64; 0]);
        assert_eq!(kept(Retention::default(), 20, now).0.len(), 20, "without a bound nothing goes");
        assert_eq!(kept(Retention { max_age: None, max_jobs: Some(50) }, 20, now).0.len(), 20);
    }
}
