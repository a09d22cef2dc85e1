//! What the domain says arrives as it was said, and what means nothing is refused.

mod common;

use common::domain;
use rms_api::answer::JobChange;
use rms_api::desired::AgentHello;
use rms_api::desired::{Desired, JobReport, JobStatus, NodeReport};
use rms_api::{Answer, Call, Refusal};
use rms_model::{JobId, Profile, Run, Time};
use rms_wire::call::{self, ClientCall};
use rms_wire::codec::{decode_frame, encode};
use rms_wire::convert::{
    DesiredParts, Malformed, ReportParts, answer_parts, client_call, desire_parts, history_parts, report_parts,
};
use rms_wire::reply::ReplyParts;
use rms_wire::to_server::ToServer;
use rms_wire::{ClientAnswer, ClientRequest, Message, Refused, Reply, ToAgent, vocabulary};

/// Through bytes and back.
fn carried<M: Message>(message: &M) -> M {
    decode_frame(&encode(message).expect("within the limit")).expect("what was encoded can be decoded")
}

#[test]
fn every_call_arrives_as_it_was_made() {
    for call in domain::calls().into_iter().chain(domain::later_calls()) {
        let sent = client_call(&call).expect("it is no join");
        let received = ClientRequest::parse(carried(&sent), || "5e".to_owned());
        assert_eq!(received, Ok(ClientRequest::Call(call)));
    }
}

#[test]
fn a_join_is_no_call() {
    let (token_id, serial) = ("abcd".to_owned(), "5e".to_owned());
    let join = Call::Join { token_id, digest: [0; 32], name: None, csr: Vec::new(), serial, replaces: None };
    assert_eq!(client_call(&join), None);
}

fn received(parts: Vec<ClientAnswer>) -> Reply {
    let n_parts = parts.len();
    let mut whole = ReplyParts::new();
    for (idx, part) in parts.iter().enumerate() {
        let so_far = whole.push(carried(part)).expect("it parses");
        match so_far {
            Some(reply) => {
                assert_eq!(idx + 1, n_parts, "only the last part completes it");
                return reply;
            }
            None => assert!(idx + 1 < n_parts, "the last part completes it"),
        }
    }
    panic!("no part was the last one");
}

/// What a client should read of an answer.
fn expected(answer: Answer) -> Reply {
    match answer {
        Answer::Done => Reply::Done,
        Answer::Submitted { job } => Reply::Submitted { job },
        Answer::WouldStart { request, at, reason } => Reply::WouldStart { request, at, reason },
        Answer::Jobs { done, refused } => {
            let refused = refused.iter().map(|(job, refusal)| (*job, Refused::from(refusal))).collect();
            Reply::Jobs { done, refused }
        }
        Answer::Queue { now, jobs } => Reply::Queue { now, jobs },
        Answer::Detail { now, jobs } => Reply::Detail { now, jobs },
        Answer::Nodes { now, nodes, clusters } => Reply::Nodes { now, nodes, clusters },
        Answer::View(view) => Reply::View(view),
        Answer::Settings(settings) => Reply::Settings(settings),
        Answer::Audit(changes) => Reply::Audit(changes),
        Answer::Tokens(tokens) => Reply::Tokens(tokens),
        Answer::Certificates(certificates) => Reply::Certificates(certificates),
        Answer::Status(status) => Reply::Status(status),
        Answer::Negotiated(outcome) => Reply::Negotiated(outcome),
        Answer::Negotiations { now, lines } => Reply::Negotiations { now, lines },
        Answer::Budgets(users) => Reply::Budgets(users),
    }
}

#[test]
fn every_answer_arrives_as_it_was_given() {
    for answer in domain::answers().into_iter().chain(domain::later_answers()) {
        let reply = received(answer_parts(&Ok(answer.clone())).collect());
        assert_eq!(reply, expected(answer));
    }
}

#[test]
fn lists_of_any_length_arrive_whole_and_in_order() {
    let now = Time::from_secs(1);
    for n_jobs in [0, 1, 255, 256, 257, 1000] {
        let jobs: Vec<_> = (0..n_jobs).map(domain::job_line).collect();
        let answer = Answer::Queue { now, jobs };
        let parts: Vec<ClientAnswer> = answer_parts(&Ok(answer.clone())).collect();
        assert_eq!(parts.len() as u64, n_jobs.div_ceil(256).max(1));
        assert_eq!(received(parts), expected(answer));

        let done: Vec<JobId> = (0..n_jobs).map(JobId).collect();
        let refused: Vec<_> = (0..n_jobs / 2).map(|job| (JobId(job), Refusal::NoJobs)).collect();
        let answer = Answer::Jobs { done, refused };
        assert_eq!(received(answer_parts(&Ok(answer.clone())).collect()), expected(answer));

        let records: Vec<_> = (0..n_jobs).map(domain::record).collect();
        assert_eq!(received(history_parts(&records).collect()), Reply::History(records));

        let status = |job| JobStatus::running(Time::from_secs(job));
        let report = |job| JobReport { job: JobId(job), run: Run(1), status: status(job as i64) };
        let report = NodeReport { seen: rms_model::Generation(3), jobs: (0..n_jobs).map(report).collect() };
        assert_eq!(reported(report_parts(&report)), Ok(Some(report)));
    }
}

#[test]
fn parts_of_different_answers_do_not_mix() {
    let now = Time::from_secs(1);
    let jobs = (0..300).map(domain::job_line).collect();
    let queue: Vec<ClientAnswer> = answer_parts(&Ok(Answer::Queue { now, jobs })).collect();
    let settings: Vec<ClientAnswer> = answer_parts(&Ok(Answer::Settings(Vec::new()))).collect();
    let mut parts = ReplyParts::new();
    assert_eq!(parts.push(queue[0].clone()), Ok(None));
    assert_eq!(parts.push(settings[0].clone()), Err(Malformed::MixedParts));
}

#[test]
fn a_refusal_travels_as_a_word_and_a_sentence() {
    let parts: Vec<ClientAnswer> = answer_parts(&Err(Refusal::NoSuchJob(JobId(7)))).collect();
    let [ClientAnswer::Refused(refused)] = parts.as_slice() else { panic!("{parts:?}") };
    assert_eq!(refused.kind, "no_such_job");
    assert_eq!(refused.message, "there is no job 7 in the queue or running");
    assert_eq!(carried(&parts[0]), parts[0]);
}

fn desires(parts: Vec<ToAgent>) -> Result<Option<Desired>, Malformed> {
    let mut whole = DesiredParts::new();
    let mut so_far = None;
    for part in parts {
        assert_eq!(so_far, None, "only the last part completes it");
        let ToAgent::Desire(part) = carried(&part) else { panic!("{part:?}") };
        so_far = whole.push(part)?;
    }
    Ok(so_far)
}

fn reported(parts: Vec<ToServer>) -> Result<Option<NodeReport>, Malformed> {
    let mut whole = ReportParts::new();
    let mut so_far = None;
    for part in parts {
        assert_eq!(so_far, None, "only the last part completes it");
        let ToServer::Report(part) = carried(&part) else { panic!("{part:?}") };
        so_far = whole.push(part)?;
    }
    Ok(so_far)
}

#[test]
fn a_desired_state_arrives_whole() {
    let desired = domain::desired();
    assert_eq!(desires(desire_parts(&desired)), Ok(Some(desired)));
    let nothing = Desired { generation: rms_model::Generation(9), jobs: Vec::new() };
    assert_eq!(desires(desire_parts(&nothing)), Ok(Some(nothing)));
}

#[test]
fn parts_of_two_generations_do_not_mix() {
    let desired = domain::desired();
    let mut parts = desire_parts(&desired);
    let later = Desired { generation: rms_model::Generation(78), ..desired };
    parts[1] = desire_parts(&later).swap_remove(1);
    assert_eq!(desires(parts), Err(Malformed::MixedGenerations { first: 77, later: 78 }));
}

#[test]
fn what_an_agent_says_arrives_as_it_was_said() {
    let report = domain::report();
    assert_eq!(reported(report_parts(&report)), Ok(Some(report)));
    let hello = domain::hello();
    let ToServer::Hello(sent) = carried(&ToServer::Hello((&hello).into())) else { panic!("it was a hello") };
    assert_eq!(AgentHello::try_from(sent), Ok(hello));
    let change = domain::change();
    assert_eq!(JobChange::try_from(vocabulary::JobChange::from(&change)), Ok(change));
}

/// Changes a good submission and says why it is refused.
fn refusal(spoil: impl FnOnce(&mut call::Submission)) -> String {
    let mut submission = call::Submission::from(&domain::submission());
    spoil(&mut submission);
    let parsed = ClientRequest::parse(ClientCall::Submit(Box::new(submission)), String::new);
    parsed.expect_err("it means nothing").to_string()
}

#[test]
fn a_submission_that_means_nothing_is_refused() {
    let cases = [
        (
            refusal(|submission| {
                submission.work = vocabulary::Work::Script { script: "x".repeat(5 << 20), args: vec![] }
            }),
            "the script is 5242880 bytes long, but at most 4194304 are taken",
        ),
        (
            refusal(|submission| submission.environment[0].value = "x".repeat(3 << 20)),
            "the environment is 3145741 bytes long, but at most 2097152 are taken",
        ),
        (
            refusal(|submission| submission.environment[0].name = "A=B".to_owned()),
            "an environment variable holds a character that it cannot",
        ),
        (
            refusal(|submission| submission.cwd = "/tmp\0/x".to_owned()),
            "the working directory holds a character that it cannot",
        ),
        (refusal(|submission| submission.shapes[0].wall = Some(-1)), "a wall time is a negative span of -1 ms"),
        (
            refusal(|submission| submission.constraint.features = vec!["a b".to_owned()]),
            "a feature has an unusable name",
        ),
    ];
    for (actual, expected) in cases {
        assert_eq!(actual, expected);
    }
    let many = |submission: &mut call::Submission| submission.shapes = vec![submission.shapes[0].clone(); 257];
    assert_eq!(refusal(many), "the sizes of a job has 257 entries, but at most 256 are taken");
}

#[test]
fn a_host_outside_of_the_job_is_refused() {
    let mut desired = domain::desired();
    desired.jobs[0].host_idx = 2;
    assert!(desires(desire_parts(&desired)).is_err());
}

#[test]
fn a_profile_that_is_no_function_of_time_is_refused() {
    let steps = |steps: &[(i64, i64)]| {
        let steps = steps.iter().map(|(from, hosts)| vocabulary::Step { from: *from, hosts: *hosts }).collect();
        Profile::try_from(vocabulary::Profile { steps })
    };
    assert_eq!(steps(&[]), Ok(Profile::new()));
    assert!(steps(&[(1, 2), (5, 0)]).is_ok());
    for bad in [
        &[(1, 2)][..],
        &[(1, 0)],
        &[(5, 2), (1, 0)],
        &[(1, 2), (1, 0)],
        &[(1, 2), (2, 2), (3, 0)],
        &[(0, 0), (1, 2), (2, 0)],
        &[(i64::MIN, 2), (i64::MAX, 0)],
    ] {
        assert!(steps(bad).is_err(), "{bad:?}");
    }
}
