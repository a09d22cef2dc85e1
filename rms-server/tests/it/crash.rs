//! A process that is killed between or within commits loses nothing that it acknowledged.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rms_server::journal::{FactLog, SnapshotPolicy};

use crate::story::{facts, reopened, replayed, restored};

const PATH_VARIABLE: &str = "RMS_TEST_JOURNAL";
const POLICY: SnapshotPolicy = SnapshotPolicy { facts: 300, bytes: u64::MAX };

#[test]
fn long_killed_in_the_middle_of_commits_nothing_acknowledged_is_lost() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("journal");
    drop(FactLog::create(&path, POLICY).expect("a new journal"));
    let mut n_before = 0;
    for round in 0..8_u64 {
        // In some rounds the writer may not have opened the journal yet; in the others it has, however busy the machine
        // is.
        let counted = if round < 4 { Counted::FromStart } else { Counted::FromFirstCommit };
        let n_acknowledged = append_until_killed(&path, counted, Duration::from_millis(40 + 17 * round));
        let found = replayed(&path).expect("a whole journal");
        assert!(found.len() as u64 >= n_acknowledged.max(n_before), "round {round}: {n_acknowledged} acknowledged");
        assert_eq!(found, facts(0..found.len() as u64), "round {round}: only what was appended, in order");
        n_before = found.len() as u64;
    }
    assert!(n_before > 0, "no round got as far as one commit");
}

/// The event from which the life of a writer is measured.
enum Counted {
    FromStart,
    FromFirstCommit,
}

/// Starts a writer, kills it, and returns how many facts it had acknowledged by then.
fn append_until_killed(path: &Path, counted: Counted, after: Duration) -> u64 {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "crash::child_appends_for_ever", "--ignored", "--nocapture"])
        .env(PATH_VARIABLE, path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let stdout = child.stdout.take().expect("a pipe");
    let (has_committed, commits) = mpsc::channel();
    let reader = thread::spawn(move || {
        let lines = BufReader::new(stdout).lines().map_while(Result::ok);
        let numbers = lines.filter_map(|line| line.strip_prefix("durable ").and_then(|n| n.parse().ok()));
        // Only the first acknowledgement is awaited.
        let tell = |_: &u64| {
            let _nobody_waits_any_more = has_committed.send(());
        };
        numbers.inspect(tell).max().unwrap_or(0)
    });
    match counted {
        Counted::FromStart => {}
        Counted::FromFirstCommit => commits.recv().expect("it commits until it is killed"),
    }
    thread::sleep(after);
    child.kill().expect("a living child");
    child.wait().expect("a dead child");
    reader.join().expect("the reader")
}

#[test]
#[ignore = "the child of long_killed_in_the_middle_of_commits_nothing_acknowledged_is_lost"]
fn child_appends_for_ever() {
    let Some(path) = std::env::var_os(PATH_VARIABLE) else { return };
    let mut log = reopened(Path::new(&path), POLICY);
    loop {
        let first = log.last_seq();
        log.append(&facts(first..first + 1 + first % 30)).expect("space");
        println!("durable {}", log.last_seq());
        if let Some(order) = log.due_compaction() {
            let made = order.run(restored, |state| state).expect("a snapshot");
            log.set_snapshot(&made);
        }
    }
}
