//! Tests that a journal can be read while its server writes it.

use std::path::Path;
use std::sync::Arc;

use rms_core::{Config, Fact, Rms, State};
use rms_model::{ClusterId, Inventory, JobId, JobRecord, Labels, NodeId, NodeLink, Owner, Request, Run, Span, Time};
use rms_server::journal::{FactLog, Past, SnapshotPolicy, backup, recover};

use crate::samples::spec;
use crate::story::copy_files;

fn at(secs: i64) -> Time {
    Time::from_secs(secs)
}

/// Returns the facts of a cluster of one node, and of one job that ran on it for 20 s.
fn facts() -> Vec<Fact> {
    let (cluster, node, job, run) = (ClusterId(0), NodeId(1), JobId(1), Run(1));
    let request = Request::on_one(cluster, 1, Span::from_mins(1));
    let record = JobRecord {
        run,
        labels: Labels::named("cfd"),
        eligible: at(11),
        started: Some(at(12)),
        ended: at(32),
        n_tasks: 1,
        nodes: vec!["a1".to_owned()],
        ..JobRecord::of(job, Owner("ann".to_owned()), request.clone(), at(10))
    };
    vec![
        Fact::ClusterAdded { cluster, name: "a".to_owned() },
        Fact::NodeJoined {
            node,
            cluster,
            name: "a1".to_owned(),
            inventory: Inventory::default(),
            address: String::new(),
            at: at(1),
        },
        Fact::NodeLinkChanged { node, link: NodeLink::Connected { since: at(1) } },
        Fact::JobSubmitted { job, at: at(10), spec: Arc::new(spec(request.clone())), held: false },
        Fact::RequestSent { job, at: at(11) },
        Fact::JobStarted { job, run, at: at(12), request, nodes: vec![node], grants: Default::default() },
        Fact::JobDone { record: Box::new(record), ghost_until: at(32), negotiations: Vec::new(), told: None },
    ]
}

#[test]
fn the_past_is_read_while_it_is_written_and_nothing_is_changed() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("journal");
    let mut log = FactLog::create(&path, SnapshotPolicy::default()).expect("a new journal");
    log.append(&facts()).expect("space");
    let past = Past::read(&path).expect("a journal");
    assert_eq!(
        past.records.iter().map(|record| (record.job, record.started)).collect::<Vec<_>>(),
        [(JobId(1), Some(at(12)))]
    );
    assert_eq!(past.state.nodes().values().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["a1"]);
    assert!(past.specs.contains_key(&JobId(1)));
    log.append(&[Fact::NodeLinkChanged { node: NodeId(1), link: NodeLink::Away { since: at(40) } }]).expect("space");
    drop(log);
    let copy = dir.path().join("copy");
    copy_files(&path, &copy);
    assert_eq!(Past::read(&copy).expect("a copy").records, past.records);
    assert!(Past::read(&dir.path().join("none")).is_err());
}

/// A backup is made while the server writes, creates new segments and removes old ones.
#[test]
fn a_backup_of_a_running_journal_is_whole() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (path, to) = (dir.path().join("journal"), dir.path().join("backup"));
    let policy = SnapshotPolicy { facts: 2, bytes: u64::MAX };
    let mut log = FactLog::create(&path, policy).expect("a new journal");
    let facts = facts();
    log.append(&facts[..3]).expect("space");
    let order = log.due_compaction().expect("more than two facts");
    log.append(&facts[3..6]).expect("space");
    backup(&path, &to).expect("a whole copy");
    let restore = |snapshot: Option<State>, facts: &mut dyn Iterator<Item = Fact>| {
        Rms::restore(Config::default(), snapshot, facts)
    };
    log.set_snapshot(&order.run(restore, Rms::state).expect("a snapshot"));
    log.append(&facts[6..]).expect("space");
    assert!(Past::read(&to).expect("a copy").records.is_empty());
    assert!(backup(&path, &to).is_err(), "a backup is not written over");
    let later = dir.path().join("later");
    backup(&path, &later).expect("a whole copy");
    assert_eq!(Past::read(&later).expect("a copy").records, Past::read(&path).expect("a journal").records);
    assert_eq!(Past::read(&later).expect("a copy").records.len(), 1);
}

/// The log no longer contains the ends of these jobs.
#[test]
fn of_a_damaged_history_all_is_kept_that_can_be_read() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("journal");
    let mut log = FactLog::create(&path, SnapshotPolicy { facts: 2, bytes: u64::MAX }).expect("a new journal");
    let mut facts = facts();
    let (Fact::JobSubmitted { spec, .. }, Some(Fact::JobDone { record, ghost_until, negotiations, told })) =
        (facts[3].clone(), facts.last().cloned())
    else {
        panic!("{facts:?}");
    };
    let job = JobId(2);
    let record = Box::new(JobRecord { job, started: None, nodes: Vec::new(), ..*record });
    facts.push(Fact::JobSubmitted { job, at: at(33), spec, held: false });
    facts.push(Fact::JobDone { record, ghost_until, negotiations, told });
    log.append(&facts).expect("space");
    let restore = |snapshot: Option<State>, facts: &mut dyn Iterator<Item = Fact>| {
        Rms::restore(Config::default(), snapshot, facts)
    };
    let order = log.due_compaction().expect("more than two facts");
    log.set_snapshot(&order.run(restore, Rms::state).expect("a snapshot"));
    drop(log);
    let known = |path: &Path| {
        Past::read(path).map(|past| past.records.into_iter().map(|record| record.job.0).collect::<Vec<_>>())
    };
    assert_eq!(known(&path).expect("a whole journal"), [1, 2]);

    let damage = |how: &str| {
        let conn = rusqlite::Connection::open(path.join("history.db")).expect("it is there");
        conn.execute(how, []).expect("one record");
    };
    damage("UPDATE history SET record = zeroblob(40) WHERE job = 1");
    let found = recover(&path, false).expect("the log is whole");
    assert!(found.problems[0].contains("the record of job 1 is damaged"), "{found:?}");
    assert!(known(&path).is_err(), "asking changes nothing");
    recover(&path, true).expect("the log is whole");
    assert_eq!(known(&path).expect("a whole journal"), [2]);
    assert!(path.join("damaged.history.db").exists());

    std::fs::write(path.join("history.db"), "").expect("writable");
    let found = recover(&path, true).expect("the log is whole");
    assert!(found.problems[0].contains("history.db is not a journal of this program"), "{found:?}");
    assert!(known(&path).expect("a whole journal").is_empty());
}

/// Reading certificates does not require reading years of jobs.
#[test]
fn the_state_is_read_without_the_history() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("journal");
    let mut log = FactLog::create(&path, SnapshotPolicy::default()).expect("a new journal");
    log.append(&facts()).expect("space");
    let state = Past::read(&path).expect("a whole journal").state;
    drop(log);
    std::fs::remove_file(path.join("history.db")).expect("a file");
    assert_eq!(Past::state(&path).expect("a whole log"), state);
    assert!(Past::read(&path).is_err());
}
