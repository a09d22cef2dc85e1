//! Measures what field names cost: bytes and time of messages on hot paths, compared with a fixed layout.
//!
//! `cargo bench -p rms-wire --bench encodings` prints the table in `docs/experiments.md`.

#![expect(clippy::disallowed_methods, reason = "both encodings are measured without their limits")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::hint::black_box;
use std::time::{Duration, Instant};

use common::{domain, launching, negotiating};
use rms_api::desired::{Desired, JobReport, JobStatus, NodeReport};
use rms_api::{Answer, Call};
use rms_model::{Environment, JobId, Run, Time};
use rms_wire::codec::{HEADER_BYTES, decode_frame, encode};
use rms_wire::parts::{desire_parts, notice_parts, report_parts};
use rms_wire::{AnswerPart, Chunk, ClientRequest, Message, NegotiatorSays, Spooled, Stream};
use serde::de::DeserializeOwned;

fn main() {
    println!("{:34} {:>21} {:>21} {:>21}", "", "bytes", "written, us", "read, us");
    println!(
        "{:34} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "message", "names", "fixed", "names", "fixed", "names", "fixed"
    );
    let status = JobStatus::running(Time::from_secs(1_700_000_000));
    let one = NodeReport { jobs: vec![JobReport { job: JobId(7), run: Run(1), status }], ..NodeReport::default() };
    row("Report of one job", &report_parts(&one)[0]);
    row("Report of a dozen", &report_parts(&domain::report())[0]);
    let whole = domain::desired();
    let few = Desired { jobs: whole.jobs[..1].to_vec(), ..whole };
    row("Desire of one job", &desire_parts(&few)[0]);
    let mut submission = domain::submission();
    let variable = |idx| (format!("VARIABLE_{idx}"), "a value of some thirty characters".to_owned());
    submission.execution.environment = std::sync::Arc::new(Environment((0..40).map(variable).collect()));
    row("Submit, 40 variables", &ClientRequest::Call(Call::Submit(Box::new(submission))));
    row("Submitted", &AnswerPart::whole(Ok(Answer::Submitted { job: JobId(7) })));
    let jobs = (0..50).map(domain::job_line).collect();
    row("Queue of 50 lines", &AnswerPart::whole(Ok(Answer::Queue { now: Time::EPOCH, planned: Time::EPOCH, jobs })));
    for notice in launching::notices().iter().take(1) {
        row("a launcher's notice", &notice_parts(notice)[0]);
    }
    let said = negotiating::calls().into_iter().next_back().expect("there are some");
    row("a negotiator's word", &NegotiatorSays { seq: 9, call: said });
    let bytes = vec![7; 4096];
    let chunk = Chunk { node_idx: 0, task: 0, stream: Stream::Out, offset: 1 << 20, bytes };
    row("4 KiB of output (fixed on the wire)", &Spooled::Chunk(chunk));
}

fn row<M: Message>(name: &str, message: &M) {
    let frame = encode(message).expect("within the limit");
    let (named, fixed) = (rmp_serde::to_vec_named(message).expect("it can be written"), write_fixed(message));
    let is_fixed = frame.len() - HEADER_BYTES == fixed.len() && frame[HEADER_BYTES..] == fixed;
    let write_names = time(|| drop(black_box(rmp_serde::to_vec_named(black_box(message)))));
    let write_layout = time(|| drop(black_box(write_fixed(black_box(message)))));
    // Decoded as in production: a named payload is weighed first.
    let read_names = match is_fixed {
        true => time(|| drop(black_box(rmp_serde::from_slice::<M>(black_box(&named))))),
        false => time(|| drop(black_box(decode_frame::<M>(black_box(&frame))))),
    };
    // A message that omits fields cannot be decoded without names.
    let can_be_read = read_fixed::<M>(&fixed).is_some_and(|read| write_fixed(&read) == fixed);
    let read_layout = can_be_read.then(|| time(|| drop(black_box(read_fixed::<M>(black_box(&fixed))))));
    let read_layout = read_layout.map_or("-".to_owned(), |micros| format!("{micros:.2}"));
    println!(
        "{name:34} {:>10} {:>10} {write_names:>10.2} {write_layout:>10.2} {read_names:>10.2} {read_layout:>10}",
        named.len(),
        fixed.len()
    );
}

fn write_fixed<M: Message>(message: &M) -> Vec<u8> {
    bincode::serde::encode_to_vec(message, bincode::config::standard()).expect("it can be written")
}

fn read_fixed<M: DeserializeOwned>(bytes: &[u8]) -> Option<M> {
    let read = bincode::serde::decode_from_slice(bytes, bincode::config::standard());
    read.ok().filter(|(_, n_bytes)| *n_bytes == bytes.len()).map(|(message, _)| message)
}

/// Returns the microseconds of one call: the minimum over several rounds, since other load only adds time.
fn time(mut work: impl FnMut()) -> f64 {
    let mut least = Duration::MAX;
    for _ in 0..30 {
        let begun = Instant::now();
        for _ in 0..ROUND {
            work();
        }
        least = least.min(begun.elapsed());
    }
    least.as_secs_f64() * 1e6 / f64::from(ROUND)
}

const ROUND: u32 = 300;
