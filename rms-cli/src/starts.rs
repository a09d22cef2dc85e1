//! What is said of the start of a waiting job.

use rms_api::answer::{JobLine, Reason};
use rms_model::Time;
use rms_model::plain::plain;

use crate::names::ClusterNames;
use crate::stamp;

/// Returns why the job waits, as a part of a sentence, and a sentence about its start. `why` is its own reason;
/// `shortage` says why no job starts now, if so.
pub fn told(
    line: &JobLine,
    why: Option<String>,
    clusters: &ClusterNames,
    shortage: Option<&str>,
    now: Time,
) -> (String, String) {
    match (why, shortage) {
        (Some(why), Some(shortage)) if !is_ready(line) => (why, format!("Besides, {}. {BY_ITSELF}", none(shortage))),
        (_, Some(shortage)) => (none(shortage), BY_ITSELF.to_owned()),
        (why, None) => {
            let why = why.unwrap_or_else(|| "the scheduler has found a place for it".to_owned());
            (why, estimate(line, clusters, now))
        }
    }
}

const BY_ITSELF: &str = "An admin has to see to it; then the server goes on by itself.";

/// Returns that no job starts now, as a part of a sentence, with the server's reason.
pub fn none(shortage: &str) -> String {
    format!("no job starts now: {}", plain(shortage))
}

/// Returns whether nothing but the next pass of the scheduler stands in the way of a waiting job.
pub fn is_ready(line: &JobLine) -> bool {
    matches!(line.reason, None | Some(Reason::NotPlanned { .. }))
}

fn estimate(line: &JobLine, clusters: &ClusterNames, now: Time) -> String {
    let size = clusters.nodes(&line.request);
    match (line.estimate, earliest(line)) {
        (Some(at), _) if at <= now => format!("It is about to start on {size}."),
        (Some(at), _) => {
            let at_text = stamp::clock(at, now);
            format!("By the present plan it starts on {size} at {at_text} ({}).", stamp::ahead(at, now))
        }
        (None, Some(at)) => format!("It starts on {size} at {} at the earliest.", stamp::clock(at, now)),
        (None, None) => "There is no start estimate yet.".to_owned(),
    }
}

/// Returns the time before which the job asked not to start, if it waits for that.
fn earliest(line: &JobLine) -> Option<Time> {
    match &line.reason {
        Some(Reason::NotBefore { at }) => Some(*at),
        _other => None,
    }
}

/// Returns the start of a job in a column, with `~` before an estimate and `>=` before the earliest time.
pub fn column(line: &JobLine, time: impl Fn(Time) -> String) -> String {
    match (line.started, line.estimate, earliest(line)) {
        (Some(started), _, _) => time(started),
        (None, Some(estimate), _) => format!("~{}", time(estimate)),
        (None, None, Some(at)) => format!(">={}", time(at)),
        (None, None, None) => "-".to_owned(),
    }
}
