//! Tests of mask queries: agents report the CPUs of processes, and no caller waits for agents that do not answer.

use std::time::{Duration, Instant};

use rms_api::masks::{MaskOrder, MasksOf, NodeMasks, ProcessMask, ProcessOf, SeenMasks};
use rms_api::{Answer, Call, Query};
use rms_model::{Indices, JobId, Run};
use rms_wire::{Kind, MasksAsked, MasksSeen, ToServer};

use crate::deployment::{Client, FakeAgent, Server, report, tell};

async fn start(server: &Server, client: &Client) -> (FakeAgent, JobId, Run) {
    let credentials = server.agent_credentials("n1").await;
    let mut agent = FakeAgent::connect(&credentials, server.address, Vec::new()).await;
    let job = client.submit("masked").await;
    let run = agent.desired(|desired| !desired.jobs.is_empty()).await.jobs[0].run;
    let running = rms_api::desired::JobStatus::running(rms_model::Time::EPOCH);
    agent.report(vec![report(job, run, running)]).await;
    (agent, job, run)
}

async fn masks(client: &Client, of: MasksOf) -> NodeMasks {
    match client.call(&Call::Query(Query::Masks(of))).await.expect("masks") {
        Answer::Masks { now: _, mut nodes } => nodes.remove(0),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_older_agent_is_not_asked_and_its_link_stays() {
    tell(async {
        let server = Server::start();
        let ann = server.user("ann").await;
        let (agent, job, _) = start(&server, &ann).await;
        let told = masks(&ann, MasksOf::Job(job)).await;
        assert!(told.silent.as_ref().is_some_and(|reason| reason.contains("upgrade")), "{told:?}");
        assert_eq!((told.jobs[0].of.job, &told.jobs[0].seen), (job, &None));
        assert!(!agent.link.is_closed());
    });
}

#[test]
fn long_an_agent_that_does_not_answer_costs_seconds() {
    tell(async {
        let server = Server::start();
        let ann = server.user("ann").await;
        let (mut agent, job, _) = start(&server, &ann).await;
        agent.say(&ToServer::Serves { kinds: vec![Kind::MasksAsked.number()] }).await;
        let began = Instant::now();
        let told = masks(&ann, MasksOf::Job(job)).await;
        assert!(told.silent.as_ref().is_some_and(|reason| reason.starts_with("no answer from node n1")), "{told:?}");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        assert!(!agent.link.is_closed());
    });
}

#[test]
fn what_an_agent_sees_is_told_and_orders_reach_it() {
    tell(async {
        let server = Server::start();
        let (ann, bob) = (server.user("ann").await, server.user("bob").await);
        let (mut agent, job, run) = start(&server, &ann).await;
        agent.say(&ToServer::Serves { kinds: vec![Kind::MasksAsked.number()] }).await;
        let process = ProcessMask {
            pid: 7,
            program: "sol\x1bve".to_owned(),
            n_threads: 1,
            cpus: Indices::below(2),
            ..ProcessMask::default()
        };
        let seen = SeenMasks { processes: vec![process], n_processes: 1, ..SeenMasks::default() };
        let link = agent.link.clone();
        let answering = tokio::spawn(async move {
            let mut orders = Vec::new();
            for _ in 0..3 {
                let mut channel = link.accept().await.expect("a channel");
                let asked = channel.recv::<MasksAsked>().await.expect("a link").expect("a question");
                assert_eq!((asked.jobs.len(), asked.jobs[0].job), (1, job));
                let refused = asked.order.is_some().then(|| rms_api::Refused::new("not_its_cpus", "no"));
                orders.push(asked.order);
                channel.send(&MasksSeen { jobs: vec![(job, run, seen.clone())], refused }).await.expect("a link");
                channel.finish();
            }
            orders
        });
        let program = |told: &NodeMasks| told.jobs[0].seen.as_ref().map(|seen| seen.processes[0].program.clone());
        assert_eq!(program(&masks(&ann, MasksOf::Job(job)).await).as_deref(), Some("solve"));
        assert_eq!(program(&masks(&bob, MasksOf::Node("n1".to_owned())).await).as_deref(), Some(""));
        let order = MaskOrder { node: None, process: ProcessOf::Pid(7), cpus: Indices::below(1) };
        let set = Call::SetMask { job, order: order.clone() };
        let refused = |answer: Result<Answer, rms_wire::CallError>| match answer {
            Err(rms_wire::CallError::Refused(refused)) => refused.kind,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(bob.call(&set).await), "not_your_job");
        assert_eq!(refused(ann.call(&set).await), "not_its_cpus");
        let waiting = ann.submit("waiting").await;
        assert_eq!(refused(ann.call(&Call::SetMask { job: waiting, order: order.clone() }).await), "wrong_state");
        assert_eq!(answering.await.expect("it answers"), [None, None, Some(order)]);
    });
}
