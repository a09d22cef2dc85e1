//! Tests of a server with newer clients and agents: it skips what they add, and reports what it cannot do.

use rms_api::call::{Query, Submission};
use rms_api::desired::JobStatus;
use rms_api::{Answer, Call};
use rms_model::{Generation, JobId, Run, Time};
use rms_wire::{AnswerPart, CallError, ClientRequest, Kind, Message};
use serde::{Deserialize, Serialize};

use crate::deployment::{Client, FakeAgent, Server, job, tell};

/// A request as a later version may define it.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum LaterRequest {
    Call(Box<LaterCall>),
    Dream { of: Vec<String> },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum LaterCall {
    Submit(Box<LaterSubmission>),
    Levitate { job: JobId, height: f64 },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct LaterSubmission {
    #[serde(flatten)]
    submission: Submission,
    mood: Option<String>,
    colours: Vec<(u8, u8, u8)>,
}

impl Message for LaterRequest {
    const KIND: Kind = Kind::ClientRequest;
}

#[derive(Debug, Serialize, Deserialize)]
enum LaterToServer {
    Report(LaterReport),
    Weather { degrees: i32 },
}

#[derive(Debug, Serialize, Deserialize)]
struct LaterReport {
    seen: Generation,
    jobs: Vec<LaterJobReport>,
    last: bool,
    heat: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct LaterJobReport {
    job: JobId,
    run: Run,
    status: JobStatus,
    energy: Option<u64>,
}

impl Message for LaterToServer {
    const KIND: Kind = Kind::ToServer;
}

async fn call(client: &Client, request: &LaterRequest) -> Result<Answer, String> {
    let mut channel = client.link.open().await.expect("a channel");
    channel.send(request).await.expect("a link");
    channel.finish();
    let part: AnswerPart = channel.recv().await.expect("the link is well").expect("an answer");
    part.answer.map_err(|refused| refused.kind)
}

#[test]
fn a_newer_client_is_served_and_hears_what_is_not_known() {
    tell(async {
        let server = Server::start();
        let credentials = server.agent_credentials("n1").await;
        let _agent = FakeAgent::connect(&credentials, server.address, Vec::new()).await;
        let ann = server.user("ann").await;
        let later = LaterSubmission { submission: job("later"), mood: None, colours: vec![(1, 2, 3)] };
        let submitted = call(&ann, &LaterRequest::Call(Box::new(LaterCall::Submit(Box::new(later))))).await;
        let Ok(Answer::Submitted { job }) = submitted else { panic!("{submitted:?}") };
        for unknown in [
            LaterRequest::Call(Box::new(LaterCall::Levitate { job, height: 2.5 })),
            LaterRequest::Dream { of: vec!["sheep".to_owned()] },
        ] {
            assert_eq!(call(&ann, &unknown).await, Err("malformed".to_owned()), "{unknown:?}");
        }
        // The same link serves known requests.
        let known = ann.link.call(&ClientRequest::Call(Call::Query(Query::Queue(Default::default())))).await;
        let Ok(Answer::Queue { jobs, .. }) = known else { panic!("{known:?}") };
        assert_eq!(jobs[0].labels.name, "later");
    });
}

#[test]
fn a_newer_agent_is_served_and_what_is_not_known_is_skipped() {
    tell(async {
        let server = Server::start();
        let credentials = server.agent_credentials("n1").await;
        let mut agent = FakeAgent::connect(&credentials, server.address, Vec::new()).await;
        let ann = server.user("ann").await;
        let job = ann.submit("steady").await;
        let run = agent.desired(|desired| !desired.jobs.is_empty()).await.jobs[0].run;
        agent.say(&LaterToServer::Weather { degrees: -3 }).await;
        let status = JobStatus::running(Time::EPOCH);
        let jobs = vec![LaterJobReport { job, run, status, energy: Some(7) }];
        let report = LaterReport { seen: Generation(1), jobs, last: true, heat: 40 };
        agent.say(&LaterToServer::Report(report)).await;
        // The agent was heard: a signal reaches its job.
        let signal = Call::Signal { select: rms_api::call::Select::Ids(vec![job]), signal: 10 };
        let done = ann.call(&signal).await.map_err(|error: CallError| error.to_string());
        let Ok(Answer::Jobs { done, refused }) = done else { panic!("{done:?}") };
        assert_eq!((done, refused), (vec![job], Vec::new()));
    });
}
