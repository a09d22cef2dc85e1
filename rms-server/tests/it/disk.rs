//! Tests of a full disk: nothing is acknowledged that is not durable, and work goes on once there is space.

use rms_api::Answer;
use std::fs;
use std::io::Write as _;

use rms_api::Call;
use rms_api::call::{Query, Select};
use rms_api::desired::{JobStatus, NodeExit};
use rms_model::{JobId, Outcome, Time, Usage};
use rms_server::journal::{AppendError, FactLog, SnapshotPolicy};
use rms_wire::{CallError, ClientRequest, Followed};
use test_kit::SmallDisk;

use crate::deployment::{FakeAgent, Server, job, report, tell};
use crate::story::{facts, replayed};

#[test]
fn a_full_disk_refuses_appends_until_there_is_space_and_loses_nothing() {
    let Some(dir) = SmallDisk::of_mib(6) else { return };
    let path = dir.path().join("journal");
    fs::write(dir.path().join("ballast"), vec![0; 3 * 1024 * 1024]).expect("half the disk");
    let mut log = FactLog::create(&path, SnapshotPolicy::default()).expect("a new journal");
    let mut n_durable = 0;
    let error = loop {
        match log.append(&facts(n_durable..n_durable + 100)) {
            Ok(()) => n_durable += 100,
            Err(error) => break error,
        }
        assert!(n_durable < 100_000, "the disk never filled up");
    };
    assert!(matches!(error, AppendError::Full { .. }), "{error}");
    assert!(error.to_string().contains("no space is left for the journal"), "{error}");
    // Still full: appends fail, and the log has not changed.
    assert!(log.append(&facts(n_durable..n_durable + 100)).is_err());
    assert_eq!(log.last_seq(), n_durable);

    fs::remove_file(dir.path().join("ballast")).expect("a ballast");
    log.append(&facts(n_durable..n_durable + 100)).expect("space again");
    drop(log);
    assert_eq!(replayed(&path).expect("a whole journal"), facts(0..n_durable + 100));
}

/// The journal's reserve stays in the segment that is written.
#[test]
fn no_file_is_begun_that_would_have_no_reserve() {
    let Some(dir) = SmallDisk::of_mib(6) else { return };
    let path = dir.path().join("journal");
    let policy = SnapshotPolicy { facts: 10, bytes: u64::MAX };
    let mut log = FactLog::create(&path, policy).expect("a new journal");
    log.append(&facts(0..20)).expect("space");
    let mut ballast = fs::File::create(dir.path().join("ballast")).expect("a file");
    while ballast.write_all(&[0; 16 * 1024]).is_ok() {}
    assert_eq!(log.shortage(), None);
    // There is space for the first page of another segment, and for no more.
    ballast.set_len(ballast.metadata().expect("a file").len() - 200 * 1024).expect("some space");
    assert!(log.due_compaction().is_none());
    assert!(!path.join("log.21").exists() && !path.join("log.partial").exists());
    log.append(&facts(20..30)).expect("the reserve");
    drop(log);
    assert_eq!(replayed(&path).expect("a whole journal"), facts(0..30));
}

#[test]
fn long_a_server_on_a_full_disk_says_so_acknowledges_nothing_and_recovers() {
    let Some(dir) = SmallDisk::of_mib(6) else { return };
    tell(async {
        let mut server = Server::start_in(&dir.path().join("server"));
        let ballast = server.path().join("ballast");
        let admin = server.admin().await;
        let (n1, n2) = (server.agent_credentials("n1").await, server.agent_credentials("n2").await);
        let mut first = FakeAgent::connect(&n1, server.address, Vec::new()).await;
        let busy = admin.submit("first").await;
        let run = first.desired(|desired| !desired.jobs.is_empty()).await.jobs[0].run;
        fs::write(&ballast, vec![0; 3 * 1024 * 1024]).expect("half the disk");
        let mut acknowledged = Vec::new();
        let refused = loop {
            match admin.call(&Call::Submit(Box::new(job("filler")))).await {
                Ok(Answer::Submitted { job }) => acknowledged.push(job),
                Err(CallError::Refused(refused)) => break refused,
                other => panic!("{other:?}"),
            }
            assert!(acknowledged.len() < 100_000, "the disk never filled up");
        };
        assert_eq!(refused.kind, "journal_failing");
        assert!(refused.message.contains("no space is left for the journal"), "{}", refused.message);
        // Queries, cancels and drains still work in the reserve, and agents connect and report.
        match admin.call(&Call::Query(Query::Queue(Default::default()))).await.expect("a queue") {
            Answer::Queue { jobs, .. } => assert_eq!(jobs.len(), acknowledged.len() + 1),
            other => panic!("{other:?}"),
        }
        let mut watch = admin.link.open().await.expect("a channel");
        watch.send(&ClientRequest::Watch(rms_wire::Watch { jobs: vec![busy] })).await.expect("a link");
        match watch.recv::<Followed>().await.expect("a link").expect("a frame") {
            Followed::Change(change) => assert_eq!(change.job, busy),
            other => panic!("{other:?}"),
        }
        let cancelled = acknowledged.pop().expect("there is one");
        let select = Select::Ids(vec![cancelled]);
        admin.call(&Call::Cancel { select }).await.expect("it is cancelled");
        let drain = Call::Drain { nodes: vec!["n1".to_owned()], reason: "the server's disk is full".to_owned() };
        admin.call(&drain).await.expect("it is drained");
        admin.call(&Call::Resume { nodes: vec!["n1".to_owned()] }).await.expect("it is resumed");
        assert!(matches!(admin.call(&Call::Submit(Box::new(job("more")))).await, Err(CallError::Refused(_))));
        let mut second = FakeAgent::appear(&n2, server.address, Vec::new()).await;
        let ended = JobStatus::Ended { at: Time::EPOCH, exit: NodeExit::Exited { code: 5 }, usage: Usage::default() };
        first.report(vec![report(busy, run, ended)]).await;

        fs::remove_file(&ballast).expect("a ballast");
        // Whatever was reported meanwhile takes effect once it can be written, without a further call.
        second.desired(|desired| !desired.jobs.is_empty()).await;
        first.desired(|desired| desired.jobs.iter().any(|job| job.job != busy)).await;
        let after = admin.submit("after").await;
        server.kill();
        server.restart();
        assert_eq!(server.admin().await.history_of(busy).await.outcome, Outcome::Failed { code: 5 });
        match server.admin().await.call(&Call::Query(Query::Queue(Default::default()))).await.expect("a queue") {
            Answer::Queue { jobs, .. } => {
                let known: Vec<JobId> = jobs.iter().map(|line| line.job).collect();
                assert!(acknowledged.iter().chain([&after]).all(|job| known.contains(job)));
                // The rejected submission may have been kept in memory, and nothing else.
                assert!(known.len() <= acknowledged.len() + 2, "{} of {}", known.len(), acknowledged.len());
            }
            other => panic!("{other:?}"),
        }
    });
}
