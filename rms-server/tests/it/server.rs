//! Tests of complete lives of jobs, agents and users, against a real server process over real links.

use rms_api::Answer;
use rms_api::Call;
use rms_api::call::Query;
use rms_api::desired::{JobStatus, NodeExit};
use rms_model::{Outcome, Span, Time, Usage};

use crate::deployment::{FakeAgent, Server, report, tell};

#[test]
fn a_job_runs_through_a_crash_of_the_server_and_its_history_tells_how_it_ended() {
    tell(async {
        let mut server = Server::start();
        let credentials = server.agent_credentials("n1").await;
        let mut agent = FakeAgent::connect(&credentials, server.address, Vec::new()).await;
        let ann = server.user("ann").await;
        let first = ann.submit("first").await;
        let second = ann.submit("second").await;

        let desired = agent.desired(|desired| !desired.jobs.is_empty()).await;
        assert_eq!(desired.jobs[0].job, first);
        let run = desired.jobs[0].run;
        let running = report(first, run, JobStatus::running(Time::from_secs(1)));
        agent.report(vec![running.clone()]).await;

        server.kill();
        server.restart();
        // The job ends while the agent is disconnected.
        let usage = Usage { cpu: Span::from_secs(3), peak_memory_kib: 77 };
        let ended = JobStatus::Ended { at: Time::from_secs(2), exit: NodeExit::Exited { code: 4 }, usage };
        let mut agent = FakeAgent::connect(&credentials, server.address, vec![report(first, run, ended)]).await;

        let admin = server.admin().await;
        let record = admin.history_of(first).await;
        assert_eq!(record.outcome, Outcome::Failed { code: 4 });
        assert_eq!(record.usage, usage);
        assert_eq!(record.owner.0, "ann");
        assert_eq!(record.nodes, ["n1"]);
        // The second job kept its place, and gets the node now.
        let desired = agent.desired(|desired| desired.jobs.iter().any(|job| job.job == second)).await;
        assert!(desired.jobs.iter().all(|job| job.job == second), "{desired:?}");
    });
}

#[test]
fn a_restart_from_a_snapshot_knows_what_one_from_all_facts_would_know() {
    tell(async {
        let mut server = Server::start();
        server.kill();
        std::fs::write(server.path().join("rms-server.toml"), "[journal]\nsnapshot_facts = 50\n").expect("a file");
        server.restart();
        let credentials = server.agent_credentials("n1").await;
        let _agent = FakeAgent::connect(&credentials, server.address, Vec::new()).await;
        let ann = server.user("ann").await;
        let mut submitted = Vec::new();
        while !has_snapshot(&server) {
            submitted.push(ann.submit(&format!("job-{}", submitted.len())).await);
            assert!(submitted.len() < 10_000, "no snapshot is ever made");
        }
        // Further jobs that only facts after the snapshot contain.
        submitted.push(ann.submit("last").await);
        let before = queue(&server).await;
        server.kill();
        server.restart();
        let after = queue(&server).await;
        assert_eq!(before, after);
        let jobs: Vec<_> = after.into_iter().map(|(job, _)| job).collect();
        assert_eq!(jobs, submitted);
    });
}

fn has_snapshot(server: &Server) -> bool {
    let entries = std::fs::read_dir(server.path().join("journal")).expect("a directory").flatten();
    entries.map(|entry| entry.file_name()).any(|name| {
        let name = name.to_string_lossy().into_owned();
        name.strip_prefix("snapshot.").is_some_and(|seq| seq.parse::<u64>().is_ok())
    })
}

async fn queue(server: &Server) -> Vec<(rms_model::JobId, String)> {
    match server.admin().await.call(&Call::Query(Query::Queue(Default::default()))).await.expect("a queue") {
        Answer::Queue { jobs, .. } => jobs.into_iter().map(|line| (line.job, line.labels.name)).collect(),
        other => panic!("{other:?}"),
    }
}
