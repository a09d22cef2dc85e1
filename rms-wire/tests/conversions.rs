//! Checks that values of the domain arrive unchanged, and that invalid ones are refused.

mod common;

use std::sync::Arc;

use common::domain;
use rms_api::call::Submission;
use rms_api::desired::{Desired, JobReport, JobStatus, NodeReport};
use rms_api::{Answer, Call, Refusal, Refused};
use rms_model::{JobId, Run, Span, Time, Work};
use rms_wire::codec::{decode_frame, encode};
use rms_wire::parts::{AnswerParts, DesiredParts, Malformed, ReportParts, answer_parts, desire_parts, report_parts};
use rms_wire::{AnswerPart, ClientRequest, Followed, Message, ToAgent, ToServer};

/// Encodes and decodes a message.
fn carried<M: Message>(message: &M) -> M {
    decode_frame(&encode(message).expect("within the limit")).expect("what was encoded can be decoded")
}

#[test]
fn every_call_arrives_as_it_was_made() {
    for mut call in domain::calls() {
        let received = carried(&ClientRequest::Call(call.clone()));
        // The server draws it, whatever a client sends.
        if let Call::Renew { serial, .. } = &mut call {
            serial.clear();
        }
        assert_eq!(received, ClientRequest::Call(call));
    }
}

#[test]
fn a_join_is_no_call() {
    let (token_id, serial) = ("abcd".to_owned(), "5e".to_owned());
    let (digest, key) = ([0; 32], [1; 32]);
    let join = Call::Join {
        token_id,
        digest,
        name: None,
        machine: None,
        is_agent: None,
        csr: Vec::new(),
        key,
        serial,
        replaces: None,
    };
    encode(&ClientRequest::Call(join)).expect_err("who joins has no certificate to call with");
}

fn received(parts: Vec<AnswerPart>) -> Answer {
    let n_parts = parts.len();
    let mut whole = AnswerParts::new();
    for (idx, part) in parts.iter().enumerate() {
        let AnswerPart { answer, last } = carried(part);
        match whole.push(answer.expect("an answer"), last).expect("it continues the others") {
            Some(answer) => {
                assert_eq!(idx + 1, n_parts, "only the last part completes it");
                return answer;
            }
            None => assert!(idx + 1 < n_parts, "the last part completes it"),
        }
    }
    panic!("no part was the last one");
}

#[test]
fn every_answer_arrives_as_it_was_given() {
    for answer in domain::answers() {
        assert_eq!(received(answer_parts(&answer).collect()), answer);
    }
}

#[test]
fn lists_of_any_length_arrive_whole_and_in_order() {
    let now = Time::from_secs(1);
    for n_jobs in [0, 1, 255, 256, 257, 1000] {
        let jobs: Vec<_> = (0..n_jobs).map(domain::job_line).collect();
        let answer = Answer::Queue { now, planned: now, jobs };
        let parts: Vec<AnswerPart> = answer_parts(&answer).collect();
        assert_eq!(parts.len() as u64, n_jobs.div_ceil(256).max(1));
        assert_eq!(received(parts), answer);

        let done: Vec<JobId> = (0..n_jobs).map(JobId).collect();
        let refused: Vec<_> = (0..n_jobs / 2).map(|job| (JobId(job), Refused::from(&Refusal::NoJobs))).collect();
        let answer = Answer::Jobs { done, refused };
        assert_eq!(received(answer_parts(&answer).collect()), answer);

        let answer = Answer::History((0..n_jobs).map(domain::record).collect());
        assert_eq!(received(answer_parts(&answer).collect()), answer);

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
    let queue = Answer::Queue { now, planned: now, jobs };
    let first = answer_parts(&queue).next().expect("a part").answer.expect("an answer");
    let mut parts = AnswerParts::new();
    assert_eq!(parts.push(first, false), Ok(None));
    assert_eq!(parts.push(Answer::Settings(Vec::new()), true), Err(Malformed::MixedParts));
}

#[test]
fn a_refusal_travels_as_a_word_and_a_sentence() {
    let part = AnswerPart::whole(Err(Refused::from(&Refusal::NoSuchJob(JobId(7)))));
    assert_eq!(carried(&part), part);
    let refused = part.answer.expect_err("it is refused");
    assert_eq!(refused.kind, "no_such_job");
    assert_eq!(refused.message, "there is no job 7 in the queue or running");
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
    let hello = ToServer::Hello(domain::hello());
    assert_eq!(carried(&hello), hello);
    let change = Followed::Change(domain::change());
    assert_eq!(carried(&change), change);
}

/// Breaks a valid submission and returns the decoding error.
fn refusal(spoil: impl FnOnce(&mut Submission)) -> String {
    let mut submission = domain::submission();
    spoil(&mut submission);
    let frame = encode(&ClientRequest::Call(Call::Submit(Box::new(submission)))).expect("within the limit");
    let error = decode_frame::<ClientRequest>(&frame).expect_err("it means nothing");
    std::error::Error::source(&error).expect("why").to_string()
}

#[test]
fn a_submission_that_means_nothing_is_refused() {
    let environment =
        |name: &str, value: &str| Arc::new(rms_model::Environment(vec![(name.to_owned(), value.to_owned())]));
    let cases = [
        (
            refusal(|submission| {
                submission.execution.work = Work::Script { script: "x".repeat(5 << 20), args: vec![] }
            }),
            "a script of 5242880 bytes; at most 4194304 are taken",
        ),
        (
            refusal(|submission| submission.execution.environment = environment("A", &"x".repeat(3 << 20))),
            "the environment is 3145731 bytes long, but at most 2097152 are taken",
        ),
        (
            refusal(|submission| submission.execution.environment = environment("A=B", "")),
            "'A=B' is no environment variable: its name is empty or holds '=', or it holds the character NUL",
        ),
        (refusal(|submission| submission.execution.cwd = "/tmp\0/x".to_owned()), "a text that holds the character NUL"),
        (refusal(|submission| submission.shapes[0].wall = Some(Span::from_secs(-1))), "a negative span, -1s"),
        (
            refusal(|submission| submission.constraint.features = ["a b".to_owned()].into()),
            "'a b' is not a name: use 1 to 64 letters, digits, '-', '_' or '.', starting with a letter, a digit or '_'",
        ),
    ];
    for (actual, expected) in cases {
        assert_eq!(actual, expected);
    }
}

#[test]
fn a_node_outside_of_the_job_is_refused() {
    let mut desired = domain::desired();
    desired.jobs[0].node_idx = 2;
    assert!(desires(desire_parts(&desired)).is_err());
}
