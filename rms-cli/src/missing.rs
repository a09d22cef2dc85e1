//! Reports which output of a job is missing: of which node, from which byte of which stream, and why.

use std::time::Duration;

use launcher_sdk::{Missing, Stream};
use rms_model::{JobId, Span};
use serde_json::{Value, json};

use crate::failure::Exit;
use crate::output::{self, Form};

/// Returns the exit code for missing output. It replaces only success, as any other exit code is more specific.
pub fn exit(exit: Exit) -> Exit {
    if exit == Exit::OK { Exit::OUTPUT_MISSING } else { exit }
}

pub fn tell(job: JobId, missing: &[Missing]) {
    tell_lost(job, missing);
    output::warn(&format!("     'rms logs {job}' shows what its nodes still have"));
}

/// Reports missing output without a hint at `rms logs`.
pub fn tell_lost(job: JobId, missing: &[Missing]) {
    for one in missing {
        output::warn(&format!("rms: output of job {job} is missing: {}", words(one)));
    }
}

pub fn tell_away(job: JobId, node: &str, at_most: Duration, form: Form) {
    if form == Form::Text {
        let at_most = Span::from_secs(i64::try_from(at_most.as_secs()).unwrap_or(i64::MAX));
        output::warn(&format!(
            "rms: job {job} has ended, and node {node}, which has output of it, is away; waiting for it for {at_most} \
             at most (Ctrl-C ends the waiting)"
        ));
    }
}

fn words(missing: &Missing) -> String {
    let Missing { node, reason, from, is_unknown: _ } = missing;
    let mut places: Vec<String> =
        from.iter().take(MAX_TOLD).map(|from| place(from.task, from.stream, from.offset)).collect();
    if from.len() > MAX_TOLD {
        places.push("…".to_owned());
    }
    let places = if places.is_empty() { "all that it has".to_owned() } else { places.join(", ") };
    format!("node {node}: {reason}; missing is: {places}")
}

fn place(task: u32, stream: Stream, offset: u64) -> String {
    format!("{} of task {task} from byte {offset} on", name(stream))
}

fn name(stream: Stream) -> &'static str {
    match stream {
        Stream::Out => "stdout",
        Stream::Err => "stderr",
    }
}

pub fn to_json(missing: &[Missing]) -> Value {
    let of_stream =
        |from: &launcher_sdk::Offset| json!({"task": from.task, "stream": name(from.stream), "from": from.offset});
    let one = |missing: &Missing| {
        let streams: Vec<Value> = missing.from.iter().map(of_stream).collect();
        json!({"node": missing.node, "reason": missing.reason, "streams": streams})
    };
    missing.iter().map(one).collect()
}

/// The maximum number of nodes listed. The others are in the same state, and `--json` has them all.
const MAX_TOLD: usize = 8;

#[cfg(test)]
mod tests {
    use launcher_sdk::Offset;

    use super::*;

    #[test]
    fn missing_output_is_named_by_node_stream_and_byte() {
        let from = vec![Offset { node_idx: 0, task: 3, stream: Stream::Out, offset: 4096 }];
        let mut missing =
            Missing { node: "a1".to_owned(), reason: "its disk was full".to_owned(), from, is_unknown: false };
        assert_eq!(words(&missing), "node a1: its disk was full; missing is: stdout of task 3 from byte 4096 on");
        let expected = json!([{"node": "a1", "reason": "its disk was full",
            "streams": [{"task": 3, "stream": "stdout", "from": 4096}]}]);
        assert_eq!(to_json(std::slice::from_ref(&missing)), expected);
        missing.from.clear();
        assert_eq!(words(&missing), "node a1: its disk was full; missing is: all that it has");
        assert_eq!((exit(Exit::OK), exit(Exit(3))), (Exit::OUTPUT_MISSING, Exit(3)));
    }
}
