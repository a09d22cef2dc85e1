//! The journal gives back what it was given, and never something else.

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rms_core::{Fact, State};
use rms_model::{ClusterId, Environment, JobId, Request, Settings, Span, Time};
use rms_server::journal::{Compaction, FactLog, OpenError, SnapshotPolicy};
use rusqlite::Connection;

use crate::golden::spec;
use crate::story::{facts, reopened, replayed, restored};

#[test]
fn what_was_appended_comes_back_in_order() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("journal.db");
    let mut log = FactLog::create(&path, SnapshotPolicy::default()).expect("a new journal");
    log.append(&facts(0..3)).expect("space");
    log.append(&facts(3..4)).expect("space");
    drop(log);
    let mut log = reopened(&path, SnapshotPolicy::default());
    assert_eq!(log.last_seq(), 4);
    log.append(&facts(4..10)).expect("space");
    drop(log);
    assert_eq!(replayed(&path).expect("a whole journal"), facts(0..10));
}

/// Talk is written without waiting for the disk, in its place between the others.
#[test]
fn what_was_only_noted_comes_back_in_its_place() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("journal.db");
    let mut log = FactLog::create(&path, SnapshotPolicy::default()).expect("a new journal");
    log.append(&facts(0..3)).expect("space");
    log.note(&facts(3..5)).expect("space");
    log.note(&facts(5..6)).expect("space");
    log.append(&facts(6..8)).expect("space");
    log.note(&facts(8..9)).expect("space");
    drop(log);
    assert_eq!(replayed(&path).expect("a whole journal"), facts(0..9));
}

#[test]
fn a_snapshot_and_the_facts_after_it_are_what_all_facts_would_have_been() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("journal.db");
    let policy = SnapshotPolicy { facts: 1000, bytes: u64::MAX };
    let mut log = FactLog::create(&path, policy).expect("a new journal");
    let mut n_snapshots = 0;
    for batch in 0..100 {
        log.append(&facts(batch * 100..(batch + 1) * 100)).expect("space");
        let Some(order) = log.due_compaction() else { continue };
        // While it is made aside, the journal goes on.
        let made = order.run(restored, |state| state).expect("a snapshot");
        log.adopt(&made).expect("space");
        n_snapshots += 1;
        assert_eq!(replayed(&path).expect("a whole journal"), facts(0..(batch + 1) * 100), "after batch {batch}");
    }
    assert!(n_snapshots > 1, "{n_snapshots}");
    drop(log);
    assert_eq!(replayed(&path).expect("a whole journal"), facts(0..10_000));
    // What the snapshots replaced is gone from the table, and so are the older snapshots.
    let conn = Connection::open(&path).expect("a database");
    let n_stored: u64 = conn.query_row("SELECT count(*) FROM facts", [], |row| row.get(0)).expect("a count");
    assert!(n_stored < 9000, "{n_stored} facts are still stored");
    let n_files = fs::read_dir(dir.path())
        .expect("a directory")
        .filter(|entry| entry.as_ref().expect("an entry").file_name().to_string_lossy().starts_with("snapshot."))
        .count();
    assert_eq!(n_files, 1);
}

#[test]
fn a_snapshot_that_was_made_and_never_adopted_changes_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("journal.db");
    let mut log = FactLog::create(&path, SnapshotPolicy { facts: 10, bytes: u64::MAX }).expect("a new journal");
    log.append(&facts(0..20)).expect("space");
    let order: Compaction = log.due_compaction().expect("more than ten facts");
    order.run(restored, |state| state).expect("a snapshot");
    drop(log);
    assert_eq!(replayed(&path).expect("a whole journal"), facts(0..20));
    assert!(!dir.path().join("snapshot.20").exists(), "a stray snapshot is cleared away");
}

/// The submission of a job with one of `n_environments` large environments.
fn submitted(job: u64, n_environments: u64) -> Fact {
    let mut spec = spec(Request::on_one(ClusterId(0), 1, Span::from_hours(1)));
    let value = format!("{}", job % n_environments).repeat(4000);
    spec.environment = Arc::new(Environment(vec![("LARGE".to_owned(), value)]));
    Fact::JobSubmitted { job: JobId(job), at: Time::from_secs(1), spec: Arc::new(spec), held: false }
}

#[test]
fn jobs_share_their_environments_on_the_disk_and_in_memory() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("journal.db");
    let policy = SnapshotPolicy { facts: 250, bytes: u64::MAX };
    let mut log = FactLog::create(&path, policy).expect("a new journal");
    let facts: Vec<Fact> = (1..=1000).map(|job| submitted(job, 3)).collect();
    for batch in facts.chunks(50) {
        log.append(batch).expect("space");
        if let Some(order) = log.due_compaction() {
            // Facts go on while it is made, and must not lean on what it replaces.
            let made = order.run(restored, |state| state).expect("a snapshot");
            log.adopt(&made).expect("space");
        }
    }
    drop(log);
    assert_eq!(replayed(&path).expect("a whole journal"), facts);
    let conn = Connection::open(&path).expect("a database");
    let n_large: u64 =
        conn.query_row("SELECT count(*) FROM facts WHERE length(body) > 4000", [], |row| row.get(0)).expect("a count");
    assert!(n_large <= 2 * 3, "{n_large} facts hold an environment of their own");

    let mut state = State::new(Settings::default());
    for fact in &facts[..9] {
        state.apply(fact).expect("a fact that fits");
    }
    let bytes = rmp_serde::to_vec_named(&state).expect("bytes");
    assert!(bytes.len() < 4 * 5000, "{} bytes for nine jobs with three environments", bytes.len());
    let mut read: State = rmp_serde::from_slice(&bytes).expect("a state");
    read.rebuild_index();
    assert_eq!(read, state);
    let environment = |job| &read.jobs()[&JobId(job)].spec.environment;
    assert!(Arc::ptr_eq(environment(1), environment(4)));
}

/// Writes a journal of ten facts, damages it, and expects to be told so.
fn check_damage(damage: impl FnOnce(&Connection), expected: &str) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("journal.db");
    let mut log = FactLog::create(&path, SnapshotPolicy::default()).expect("a new journal");
    log.append(&facts(0..10)).expect("space");
    drop(log);
    damage(&Connection::open(&path).expect("a database"));
    let error = replayed(&path).expect_err("a damaged journal").to_string();
    assert!(error.contains(expected), "{error}");
    assert!(error.contains("journal.db"), "the file is named: {error}");
}

#[test]
fn damage_is_found_and_named() {
    let run = |sql: &'static str| move |conn: &Connection| conn.execute_batch(sql).expect("a statement");
    check_damage(run("DELETE FROM facts WHERE seq = 5"), "facts 5 to 5 are missing");
    check_damage(run("DELETE FROM facts WHERE seq > 7"), "facts 8 to 10 are missing");
    check_damage(run("DELETE FROM facts"), "facts 1 to 10 are missing");
    check_damage(run("UPDATE facts SET body = x'00' WHERE seq = 3"), "fact 3 does not match its checksum");
    check_damage(run("UPDATE head SET snapshot_seq = 99"), "its snapshot is newer than its last fact");
    check_damage(run("PRAGMA user_version = 7"), "has journal format 7, and this server reads format 1");
    check_damage(run("PRAGMA application_id = 7"), "is not a journal of this program");
}

#[test]
fn a_fact_of_a_newer_server_is_not_passed_over() {
    let damage = |conn: &Connection| {
        use rms_server::journal::Chain;
        let body = rmp_serde::to_vec_named(&std::collections::BTreeMap::from([("JobTeleported", 1)])).expect("bytes");
        let read = |row: &rusqlite::Row<'_>| row.get::<_, Vec<u8>>(0);
        let chain = conn.query_row("SELECT chain FROM facts WHERE seq = 9", [], read).expect("a row");
        let chain = Chain::from_stored(&chain).expect("a chain").then(None, &body);
        conn.execute("UPDATE facts SET body = ?1, chain = ?2 WHERE seq = 10", (&body, &chain.0[..])).expect("a row");
    };
    check_damage(damage, "fact 10 is unreadable (unknown variant `JobTeleported`");
}

#[test]
fn garbage_in_the_file_is_an_error_and_no_panic() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("journal.db");
    fs::write(&path, "no database at all, just some text that is long enough to have a header of its own".repeat(9))
        .expect("a file");
    assert!(matches!(replayed(&path), Err(OpenError::Foreign { .. })));
    fs::remove_file(&path).expect("a file");
    assert!(matches!(replayed(&path), Err(OpenError::Missing { .. })));

    let mut log = FactLog::create(&path, SnapshotPolicy::default()).expect("a new journal");
    log.append(&facts(0..2000)).expect("space");
    drop(log);
    let n_bytes = fs::metadata(&path).expect("a file").len();
    // Each page in turn is overwritten: found, or of no consequence, but never a wrong answer.
    for page in 1..n_bytes / 4096 {
        let copy = dir.path().join("copy.db");
        fs::copy(&path, &copy).expect("a copy");
        let file = fs::OpenOptions::new().write(true).open(&copy).expect("a file");
        file.write_all_at(&[0xa5; 4096], page * 4096).expect("a page");
        match replayed(&copy) {
            Ok(found) => assert_eq!(found, facts(0..2000), "page {page}"),
            Err(error) => assert!(error.to_string().contains("copy.db"), "page {page}: {error}"),
        }
    }
}

#[test]
fn a_damaged_snapshot_is_named() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("journal.db");
    let mut log = FactLog::create(&path, SnapshotPolicy { facts: 10, bytes: u64::MAX }).expect("a new journal");
    log.append(&facts(0..20)).expect("space");
    let made = log.due_compaction().expect("more than ten facts").run(restored, |state| state).expect("a snapshot");
    log.adopt(&made).expect("space");
    drop(log);
    let snapshot = dir.path().join("snapshot.20");
    let whole = fs::read(&snapshot).expect("a snapshot");
    for (n_kept, flip) in
        [(3, None), (whole.len() - 1, None), (whole.len(), Some(whole.len() / 2)), (whole.len(), Some(9))]
    {
        let mut bytes = whole[..n_kept].to_vec();
        if let Some(idx) = flip {
            bytes[idx] ^= 1;
        }
        fs::write(&snapshot, bytes).expect("a file");
        let error = replayed(&path).expect_err("a damaged snapshot").to_string();
        assert!(error.contains("snapshot.20 is damaged"), "{error}");
    }
    fs::remove_file(&snapshot).expect("a file");
    assert!(replayed(&path).expect_err("no snapshot").to_string().contains("snapshot.20"));
}
