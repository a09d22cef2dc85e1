//! Tests that the journal returns what was appended, and never anything else.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rms_core::{Config, Fact, Replay, Rms, State};
use rms_model::{ClusterId, Environment, JobId, Request, Settings, Span, Time};
use rms_server::journal::{Compaction, FactLog, RecoveryReport, SnapshotPolicy, recover};
use test_kit::any_seed;

use crate::samples::spec;
use crate::story::{copy_files, facts, reopened, replayed, restored};

#[test]
fn what_was_appended_comes_back_in_order() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("journal");
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

/// Noted facts are written without waiting for the disk, in order with the others.
#[test]
fn what_was_only_noted_comes_back_in_its_place() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("journal");
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
    let path = dir.path().join("journal");
    let policy = SnapshotPolicy { facts: 1000, bytes: u64::MAX };
    let mut log = FactLog::create(&path, policy).expect("a new journal");
    let mut n_snapshots = 0;
    for batch in 0..100 {
        log.append(&facts(batch * 100..(batch + 1) * 100)).expect("space");
        let Some(order) = log.due_compaction() else { continue };
        // The journal goes on while the snapshot is made.
        let made = order.run(restored, |state| state).expect("a snapshot");
        log.set_snapshot(&made);
        n_snapshots += 1;
        assert_eq!(replayed(&path).expect("a whole journal"), facts(0..(batch + 1) * 100), "after batch {batch}");
    }
    assert!(n_snapshots > 1, "{n_snapshots}");
    drop(log);
    assert_eq!(replayed(&path).expect("a whole journal"), facts(0..10_000));
    // Files that the snapshots replaced are removed, and so are the older snapshots.
    let names = names(&path);
    let snapshot: u64 = names[2].strip_prefix("snapshot.").and_then(|seq| seq.parse().ok()).expect("a snapshot");
    assert!(snapshot > 1000);
    assert_eq!(names, ["history.db".to_owned(), format!("log.{}", snapshot + 1), format!("snapshot.{snapshot}")]);
}

/// Returns the names of the files of a closed journal.
fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).expect("a directory");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A kill can come between any two steps of a snapshot.
#[test]
fn a_snapshot_that_was_begun_changes_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("journal");
    let policy = SnapshotPolicy { facts: 10, bytes: u64::MAX };
    let mut log = FactLog::create(&path, policy).expect("a new journal");
    log.append(&facts(0..20)).expect("space");
    let order: Compaction = log.due_compaction().expect("more than ten facts");
    let begun = dir.path().join("begun");
    copy_files(&path, &begun);
    log.append(&facts(20..30)).expect("space");
    order.run(restored, |state| state).expect("a snapshot");
    drop(log);
    assert_eq!(replayed(&begun).expect("a whole journal"), facts(0..20));
    assert_eq!(replayed(&path).expect("a whole journal"), facts(0..30));
    // The new segment was created, and the old one is not sealed yet.
    let old = begun.join("log.1");
    let bytes = fs::read(&old).expect("a file");
    assert!(bytes.len() < 100_000, "a file that is complete keeps no reserve: {} bytes", bytes.len());
    let seal = *batches(&bytes).last().expect("a seal");
    assert_eq!(seal, bytes.len() - 64, "nothing follows it");
    let mut unsealed = bytes.clone();
    unsealed[seal..].fill(0);
    fs::write(&old, &unsealed).expect("a file");
    assert_eq!(replayed(&begun).expect("a whole journal"), facts(0..20));
    // The old segment is sealed, and the new one is missing.
    fs::write(&old, &bytes).expect("a file");
    fs::remove_file(begun.join("log.21")).expect("a file");
    let error = replayed(&begun).expect_err("a missing file").to_string();
    assert!(error.contains("log.21, which continues"), "{error}");
}

/// Returns the submission of a job with one of `n_environments` large environments.
fn submitted(job: u64, n_environments: u64) -> Fact {
    let mut spec = spec(Request::on_one(ClusterId(0), 1, Span::from_hours(1)));
    let value = format!("{}", job % n_environments).repeat(4000);
    spec.execution.environment = Arc::new(Environment(vec![("LARGE".to_owned(), value)]));
    Fact::JobSubmitted { job: JobId(job), at: Time::from_secs(1), spec: Arc::new(spec), held: false }
}

#[test]
fn jobs_share_their_environments_on_the_disk_and_in_memory() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("journal");
    let policy = SnapshotPolicy { facts: 250, bytes: u64::MAX };
    let mut log = FactLog::create(&path, policy).expect("a new journal");
    let facts: Vec<Fact> = (1..=1000).map(|job| submitted(job, 3)).collect();
    for batch in facts.chunks(50) {
        log.append(batch).expect("space");
        if let Some(order) = log.due_compaction() {
            // Facts are appended meanwhile, and must not refer to what the snapshot replaces.
            let made = order.run(restored, |state| state).expect("a snapshot");
            log.set_snapshot(&made);
        }
    }
    drop(log);
    assert_eq!(replayed(&path).expect("a whole journal"), facts);
    let written = |name: &String| {
        let bytes = fs::read(path.join(name)).expect("a file");
        bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
    };
    let n_bytes: usize = names(&path).iter().filter(|name| name.starts_with("log")).map(written).sum();
    assert!(n_bytes < 400_000, "{n_bytes} bytes: each environment stands there more than once");

    let mut replay = Replay::of(State::new(Settings::default()));
    for fact in &facts[..9] {
        replay.follow(fact).expect("a fact that fits");
    }
    let state = replay.into_state();
    let bytes = rmp_serde::to_vec_named(&state).expect("bytes");
    assert!(bytes.len() < 4 * 5000, "{} bytes for nine jobs with three environments", bytes.len());
    let mut read: State = rmp_serde::from_slice(&bytes).expect("a state");
    read.rebuild_index();
    assert_eq!(read, state);
    let environment = |job| &read.jobs()[&JobId(job)].spec.execution.environment;
    assert!(Arc::ptr_eq(environment(1), environment(4)));
}

/// Writes a journal of ten appends, damages one of its files, and expects this error.
fn check_damage(name: &str, damage: impl FnOnce(&mut Vec<u8>), expected: &str) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("journal");
    drop(ten_appends(&path));
    let file = path.join(name);
    let mut bytes = fs::read(&file).expect("a file");
    damage(&mut bytes);
    fs::write(&file, &bytes).expect("a file");
    let error = replayed(&path).expect_err("a damaged journal").to_string();
    assert!(error.contains(expected), "{error}");
    assert!(error.contains(name), "the file is named: {error}");
    assert_eq!(fs::read(&file).expect("a file"), bytes, "it is left for whoever can repair it");
}

fn ten_appends(path: &Path) -> FactLog {
    let mut log = FactLog::create(path, SnapshotPolicy::default()).expect("a new journal");
    for number in 0..10 {
        log.append(&facts(number..number + 1)).expect("space");
    }
    log
}

/// Returns where the batches of the file begin.
fn batches(bytes: &[u8]) -> Vec<usize> {
    bytes.windows(4).enumerate().filter(|(_, window)| window == b"LMBF").map(|(at, _)| at).collect()
}

#[test]
fn damage_is_found_and_named() {
    let log = "log.1";
    // The end of the last append: it was acknowledged, which the mark shows.
    check_damage(log, |bytes| bytes.truncate(batches(bytes)[9] + 70), "facts 10 to 10 do not match their checksum");
    check_damage(log, |bytes| bytes.truncate(batches(bytes)[7]), "facts 8 to 10 do not match");
    check_damage(log, |bytes| bytes.truncate(4096), "facts 1 to 10 do not match");
    check_damage(log, |bytes| bytes.truncate(100), "its first page does not match");
    check_damage(
        log,
        |bytes| {
            let at = batches(bytes)[2] + 80;
            bytes[at] ^= 1;
        },
        "facts 3 to 10 do not match",
    );
    // Even if both marks are older, the batches after the damage show that it was durable.
    let old_marks = |bytes: &mut Vec<u8>| {
        let (second, third) = (batches(bytes)[1], batches(bytes)[2]);
        bytes[third + 80] ^= 1;
        let mut mark = [1_u64.to_le_bytes(), (second as u64).to_le_bytes()].concat();
        let digest = ring::digest::digest(&ring::digest::SHA256, &mark);
        mark.extend_from_slice(&digest.as_ref()[..16]);
        bytes[512..544].copy_from_slice(&mark);
        bytes[1024..1056].copy_from_slice(&mark);
    };
    check_damage(log, old_marks, "facts 3 to 9 do not match");
    check_damage(log, |bytes| bytes[500..1100].fill(0), "both of its marks are damaged");
    check_damage(log, |bytes| bytes[9] ^= 1, "its first page does not match");
    check_damage(log, |bytes| bytes[0] ^= 1, "is not a journal of this program");
    check_damage(log, |bytes| bytes[7] = b'7', "has journal format 7, and this server reads format 1");
    check_damage("history.db", |bytes| bytes.truncate(10), "history.db");
}

/// The server still has the file, and would write to nowhere.
#[test]
fn a_log_that_is_deleted_under_the_server_is_made_anew() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("journal");
    let mut log = ten_appends(&path);
    fs::remove_file(path.join("log.1")).expect("it is there");
    log.append(&facts(10..12)).expect("space");
    log.append(&facts(12..13)).expect("space");
    drop(log);
    assert_eq!(replayed(&path).expect("a whole journal"), facts(0..13));
    // Without its directory it cannot be, and nothing is acknowledged.
    let mut log = reopened(&path, SnapshotPolicy::default());
    let elsewhere = dir.path().join("elsewhere");
    fs::remove_file(path.join("log.1")).expect("it is there");
    fs::rename(&path, &elsewhere).expect("the same file system");
    log.append(&facts(13..14)).expect_err("there is no place for it");
    fs::rename(&elsewhere, &path).expect("the same file system");
    log.append(&facts(13..14)).expect("space");
    drop(log);
    assert_eq!(replayed(&path).expect("a whole journal"), facts(0..14));
}

/// A write that a kill or a power failure cut short is not damage: it was never acknowledged.
#[test]
fn a_write_that_was_cut_short_is_dropped() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("journal");
    let mut log = ten_appends(&path);
    let file = path.join("log.1");
    let before = fs::read(&file).expect("a file");
    log.append(&facts(10..40)).expect("space");
    drop(log);
    let after = fs::read(&file).expect("a file");
    let begin = *batches(&after).last().expect("eleven batches");
    // The mark is written after the sync.
    for n_written in [1, 63, 64, 65, 300, after.len() - begin - 1] {
        let mut torn = before.clone();
        torn.resize(after.len(), 0);
        let end = (begin + n_written).min(after.len());
        torn[begin..end].copy_from_slice(&after[begin..end]);
        if end < after.len() {
            fs::write(&file, &torn).expect("a file");
            let found = replayed(&path).expect("a whole journal");
            assert!(found == facts(0..10) || found == facts(0..40), "{n_written}: {} facts", found.len());
        }
    }
    let mut log = reopened(&path, SnapshotPolicy::default());
    let n_facts = log.last_seq();
    log.append(&facts(n_facts..50)).expect("space");
    drop(log);
    assert_eq!(replayed(&path).expect("a whole journal"), facts(0..50));
}

#[test]
fn a_fact_of_a_newer_server_is_not_passed_over() {
    // The fake digest has the same length as the real one, so that no length changes.
    let damage = |bytes: &mut Vec<u8>| {
        let at = batches(bytes)[9];
        let name = b"JobHeld";
        let found = bytes[at..].windows(name.len()).position(|window| window == name).expect("a name");
        bytes[at + found..at + found + name.len()].copy_from_slice(b"JobHeal");
        let n_bytes = u32::from_le_bytes(bytes[at + 4..at + 8].try_into().expect("four")) as usize;
        let mut digested = bytes[at..at + 48].to_vec();
        digested.extend_from_slice(&bytes[at + 64..at + 64 + n_bytes]);
        let digest = ring::digest::digest(&ring::digest::SHA256, &digested);
        bytes[at + 48..at + 64].copy_from_slice(&digest.as_ref()[..16]);
    };
    check_damage("log.1", damage, "fact 10 is unreadable (unknown variant `JobHeal`");
}

/// Whatever happens to one file, either everything acknowledged is there, or the server reports that it is not.
#[test]
fn long_random_damage_never_loses_anything_in_silence() {
    let (mut dice, _replay) = any_seed("random_damage");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("journal");
    let policy = SnapshotPolicy { facts: 60, bytes: u64::MAX };
    let mut log = FactLog::create(&path, policy).expect("a new journal");
    let mut last = 0;
    while last < 200 {
        let n_facts = 1 + dice.below(8);
        log.append(&facts(last..last + n_facts)).expect("space");
        last += n_facts;
        if last < 150
            && let Some(order) = log.due_compaction()
        {
            log.set_snapshot(&order.run(restored, |state| state).expect("a snapshot"));
        }
    }
    // A second segment that no snapshot has replaced.
    drop(log.due_compaction());
    log.append(&facts(last..last + 5)).expect("space");
    last += 5;
    drop(log);
    let log_files: Vec<String> = names(&path).into_iter().filter(|name| name != "history.db").collect();
    let mut n_refused = 0;
    for round in 0..300 {
        let copy = dir.path().join(format!("copy{round}"));
        copy_files(&path, &copy);
        let name = dice.one_of(&log_files);
        let file = copy.join(&name);
        let mut bytes = fs::read(&file).expect("a file");
        // Nothing was written after its last byte that is not zero.
        let n_written = bytes.iter().rposition(|byte| *byte != 0).expect("it was written") + 1;
        let (begin, length) = (dice.below(n_written as u64) as usize, dice.number(1, 1999) as usize);
        let end = bytes.len().min(begin + length);
        let what = dice.below(4);
        match what {
            0 => bytes.truncate(begin),
            1 => bytes[begin..end].fill(0),
            2 => bytes[begin..end].iter_mut().for_each(|byte| *byte ^= 0x5a),
            _ => drop(bytes.drain(begin..end)),
        }
        fs::write(&file, bytes).expect("a file");
        if dice.below(20) == 0 {
            fs::remove_file(&file).expect("a file");
        }
        match replayed(&copy) {
            Ok(found) => {
                let n_found = found.len();
                assert!(found == facts(0..last), "round {round}: {name}, {what}, {begin}..{end}: {n_found} facts");
            }
            Err(_) => n_refused += 1,
        }
        fs::remove_dir_all(&copy).expect("ours");
    }
    assert!(n_refused > 100, "{n_refused}");
}

/// Without a backup, an admin can go on with the intact part.
#[test]
fn a_damaged_journal_is_recovered_up_to_the_damage() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("journal");
    drop(FactLog::create(&path, SnapshotPolicy::default()).expect("a new journal"));
    let mut log = reopened(&path, SnapshotPolicy::default());
    let facts: Vec<Fact> = (1..=10).map(|job| submitted(job, 1)).collect();
    for fact in &facts {
        log.append(std::slice::from_ref(fact)).expect("space");
    }
    drop(log);
    assert_eq!(
        recover(&path, false).expect("a whole journal"),
        RecoveryReport { last_seq: 10, problems: vec![], history: None }
    );
    let file = path.join("log.1");
    let mut bytes = fs::read(&file).expect("a file");
    let at = batches(&bytes)[6] + 90;
    bytes[at] ^= 1;
    fs::write(&file, &bytes).expect("a file");
    let loss = recover(&path, false).expect("a part of it is whole");
    assert!(loss.last_seq == 6 && loss.problems[0].contains("facts 7 to 10"), "{loss:?}");
    assert!(replayed(&path).is_err(), "asking changes nothing");
    recover(&path, true).expect("a part of it is whole");
    assert_eq!(replayed(&path).expect("a whole journal"), facts[..6]);
    assert_eq!(fs::read(path.join("damaged.log.1")).expect("a file"), bytes, "what was damaged is kept");
    let mut log = reopened(&path, SnapshotPolicy::default());
    log.append(&facts[6..]).expect("space");
    drop(log);
    assert_eq!(replayed(&path).expect("a whole journal"), facts);
    // A lost history is rebuilt as far as the log goes.
    fs::remove_file(path.join("history.db")).expect("a file");
    assert!(replayed(&path).expect_err("no history").to_string().contains("history.db is damaged: it is missing"));
    let loss = recover(&path, true).expect("the log is whole");
    assert!(loss.history.is_none() && loss.problems[0].contains("it is missing"), "{loss:?}");
    assert_eq!(replayed(&path).expect("a whole journal"), facts);
}

/// The snapshot is enough to go on from, whatever happened to the log after it.
#[test]
fn long_a_journal_without_a_log_is_recovered_up_to_its_snapshot() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 4] = [
        ("missing", |log| fs::remove_file(log).expect("a file")),
        ("empty", |log| fs::write(log, "").expect("a file")),
        ("cut off", |log| fs::write(log, &fs::read(log).expect("a file")[..300]).expect("a file")),
        ("foreign", |log| fs::write(log, vec![7; 9000]).expect("a file")),
    ];
    let policy = SnapshotPolicy { facts: 10, bytes: u64::MAX };
    let restore = |snapshot: Option<State>, facts: &mut dyn Iterator<Item = Fact>| {
        Rms::restore(Config::default(), snapshot, facts)
    };
    let jobs = |range: std::ops::Range<u64>| range.map(|job| submitted(job, 1)).collect::<Vec<Fact>>();
    let known = |path: &Path| {
        let (log, restored) = FactLog::open(path, policy, restore).map_err(|error| error.to_string())?;
        Ok::<_, String>((log, restored.expect("sound facts").state().jobs().len()))
    };
    for (what, damage) in damages {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("journal");
        let mut log = FactLog::create(&path, policy).expect("a new journal");
        log.append(&jobs(1..21)).expect("space");
        let made = log.due_compaction().expect("more than ten facts").run(restore, Rms::state).expect("a snapshot");
        log.set_snapshot(&made);
        log.append(&jobs(21..26)).expect("space");
        drop(log);
        damage(&path.join("log.21"));
        assert!(known(&path).is_err(), "{what}");
        for is_confirmed in [false, true] {
            let found = recover(&path, is_confirmed).expect(what);
            assert!(found.last_seq == 20 && found.problems.len() == 1, "{what}: {found:?}");
        }
        assert_eq!(recover(&path, false).expect(what).problems, Vec::<String>::new(), "{what}");
        let (mut log, n_jobs) = known(&path).expect(what);
        log.append(&jobs(21..24)).expect("space");
        drop(log);
        assert_eq!((n_jobs, known(&path).expect(what).1), (20, 23), "{what}");
        // Without the snapshot nothing is left, and no further recovery is suggested.
        for file in ["snapshot.20", "log.21"] {
            fs::write(path.join(file), "").expect("a file");
        }
        let refused = recover(&path, false).expect_err("nothing is left").to_string();
        assert!(refused.contains("only a backup helps"), "{refused}");
    }
}

#[test]
fn a_damaged_snapshot_is_named() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("journal");
    let mut log = FactLog::create(&path, SnapshotPolicy { facts: 10, bytes: u64::MAX }).expect("a new journal");
    log.append(&facts(0..20)).expect("space");
    let made = log.due_compaction().expect("more than ten facts").run(restored, |state| state).expect("a snapshot");
    log.set_snapshot(&made);
    drop(log);
    let snapshot = path.join("snapshot.20");
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
    assert!(replayed(&path).expect_err("no snapshot").to_string().contains("facts 1 to 20 are missing"));
}

/// A failed snapshot is due again at once, not only after as much growth again.
#[test]
fn a_snapshot_that_failed_is_still_due() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let policy = SnapshotPolicy { facts: 10, bytes: u64::MAX };
    let mut log = FactLog::create(&dir.path().join("journal"), policy).expect("a new journal");
    log.append(&facts(0..20)).expect("space");
    assert!(log.due_compaction().is_some() && log.due_compaction().is_none());
    log.snapshot_failed();
    log.append(&facts(20..21)).expect("space");
    assert!(log.due_compaction().is_some());
}

/// A segment that was abandoned while it was created may remain on a failing disk: the one before it goes on.
#[test]
fn a_file_that_was_given_up_is_passed_over() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (path, given_up) = (dir.path().join("journal"), dir.path().join("given-up"));
    let policy = SnapshotPolicy { facts: 10, bytes: u64::MAX };
    let mut log = FactLog::create(&path, policy).expect("a new journal");
    log.append(&facts(0..10)).expect("space");
    copy_files(&path, &given_up);
    let _order = reopened(&given_up, policy).due_compaction().expect("ten facts");
    log.append(&facts(10..20)).expect("space");
    fs::copy(given_up.join("log.11"), path.join("log.11")).expect("a copy");
    drop(log);
    assert_eq!(replayed(&path).expect("a whole journal"), facts(0..20));
    let mut log = reopened(&path, policy);
    let order = log.due_compaction().expect("twenty facts");
    log.append(&facts(20..30)).expect("space");
    copy_files(&path, &given_up.join("again"));
    order.run(restored, |state| state).expect("a snapshot");
    drop(log);
    assert_eq!(replayed(&path).expect("a whole journal"), facts(0..30));
    assert!(!path.join("log.11").exists(), "the snapshot replaces it");
    // It does not replace a missing segment.
    let again = given_up.join("again");
    fs::remove_file(again.join("log.21")).expect("a file");
    let error = replayed(&again).expect_err("a missing file").to_string();
    assert!(error.contains("log.21, which continues"), "{error}");
}

/// Left by a server that was killed while it wrote a snapshot, perhaps because the snapshot filled the disk.
#[test]
fn what_is_half_written_goes_at_the_next_start() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("journal");
    drop(ten_appends(&path));
    let partial = ["snapshot.partial", "log.partial"].map(|name| path.join(name));
    for file in &partial {
        fs::write(file, [0; 10_000]).expect("a file");
    }
    drop(reopened(&path, SnapshotPolicy::default()));
    assert!(partial.iter().all(|file| !file.exists()));
}
