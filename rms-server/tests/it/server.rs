//! Whole lives of jobs, agents and users, against a real server process over real links.

use rms_core::desired::{JobStatus, NodeExit};
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
        let running = report(first, run, JobStatus::Running { since: Time::from_secs(1) });
        agent.report(vec![running.clone()]).await;

        server.kill();
        server.restart();
        // It ends while the agent is on its way back.
        let usage = Usage { cpu: Span::from_secs(3), peak_memory_kib: 77 };
        let ended = JobStatus::Ended { at: Time::from_secs(2), exit: NodeExit::Exited { code: 4 }, usage };
        let mut agent = FakeAgent::connect(&credentials, server.address, vec![report(first, run, ended)]).await;

        let admin = server.admin().await;
        let record = admin.history_of(first).await;
        assert_eq!(record.outcome, Outcome::Failed { code: 4 });
        assert_eq!(record.usage, usage);
        assert_eq!(record.owner.0, "ann");
        assert_eq!(record.nodes, ["n1"]);
        // The second one has kept its place, and gets the node now.
        let desired = agent.desired(|desired| desired.jobs.iter().any(|job| job.job == second)).await;
        assert!(desired.jobs.iter().all(|job| job.job == second), "{desired:?}");
    });
}
