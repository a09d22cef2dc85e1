//! Says in plain sentences why a job is where it is.

use rms_core::effect::{Blocker, JobLine, JobState, Reason};
use rms_core::negotiate::contract::NegotiationLine;
use rms_model::{JobRecord, Time};

use crate::names::ClusterNames;
use crate::sizes;
use crate::stages;
use crate::stamp;

/// Why a job is not running, as the part of a sentence.
pub fn reason(reason: &Reason, now: Time) -> String {
    match reason {
        Reason::Held { by } => format!("it is held by {by}; 'rms release' lets it start"),
        Reason::NotBefore { at } => {
            format!("it asked not to start before {} ({})", stamp::iso_secs(*at), ahead(*at, now))
        }
        Reason::NotPlanned { next_pass } => {
            format!("the scheduler has not looked at it yet; its next pass is due {}", ahead(*next_pass, now))
        }
        Reason::NoRequest { until } => {
            let until = until.map_or(String::new(), |until| format!("; it is expected {}", ahead(until, now)));
            format!("its launcher has not requested hosts yet{until}")
        }
        Reason::AgentsExpected { cluster, n_nodes, until } => format!(
            "its nodes are free, but the agents of {n_nodes} nodes of cluster {cluster} have not come back since the server \
             was restarted; the server waits for them until {}, then others are used",
            ahead(*until, now)
        ),
        Reason::LauncherAway { since, until } => {
            let until = until.map_or(String::new(), |until| format!("; it ends as lost {}", ahead(until, now)));
            format!(
                "its nodes are free, but its launcher, which has to be told of the start, has not been connected since {}; \
                 it keeps its place in the queue{until}",
                stamp::short(*since, now)
            )
        }
        Reason::BeyondDepth { depth, position } => format!(
            "it stands at place {position} of the queue, and only the first {depth} are planned; its turn comes as \
             those before it start"
        ),
        Reason::TooFewHosts { cluster, wanted, usable, total } => format!(
            "it needs {} of cluster {cluster}, and only {usable} of its {total} can be used now; 'rms nodes' shows \
             which are missing",
            hosts(*wanted)
        ),
        Reason::Blocked { cluster, wanted, capacity, busy, from, until, by } => {
            let from = if *from <= now { "now".to_owned() } else { stamp::clock(*from, now) };
            let free = match capacity.saturating_sub(*busy) {
                0 => format!("none of {capacity} is free"),
                1 => format!("only 1 of {capacity} is free"),
                free => format!("only {free} of {capacity} are free"),
            };
            format!(
                "it needs {} of cluster {cluster}, but from {from} until {} {free}{}",
                hosts(*wanted),
                stamp::clock(*until, now),
                blockers(by)
            )
        }
    }
}

fn hosts(count: u32) -> String {
    if count == 1 { "1 host".to_owned() } else { format!("{count} hosts") }
}

fn ahead(at: Time, now: Time) -> String {
    if at <= now { "at once".to_owned() } else { format!("in {}", stamp::brief(at.since(now))) }
}

/// Who holds the hosts; of many, the first few.
fn blockers(by: &[Blocker]) -> String {
    if by.is_empty() {
        return String::new();
    }
    let name = |blocker: &Blocker| {
        let what = match blocker.state {
            JobState::Ghost => " (a ghost)",
            JobState::Started | JobState::Ending => "",
            JobState::Submitted | JobState::Held | JobState::RequestSent | JobState::Waiting | JobState::Finished => {
                " (planned before it)"
            }
        };
        format!("job {} holds {}{what}", blocker.job, blocker.hosts)
    };
    let mut names: Vec<String> = by.iter().take(MAX_BLOCKERS).map(name).collect();
    let n_more = by.len() - names.len();
    if n_more > 0 {
        names.push(format!("and {n_more} more jobs hold the rest"));
    }
    format!(": {}", names.join(", "))
}

const MAX_BLOCKERS: usize = 5;

/// One sentence or two about a job that is in the system.
pub fn line(line: &JobLine, clusters: &ClusterNames, open: &[&NegotiationLine], now: Time) -> String {
    let job = format!("Job {} ({})", line.job, crate::table::plain(&line.name));
    let on = || rms_model::hostlist::fold(&line.nodes);
    let why = line.reason.as_ref().map(|why| reason(why, now));
    match line.state {
        JobState::Submitted | JobState::Held | JobState::RequestSent | JobState::Waiting => {
            let why = why.unwrap_or_else(|| "the scheduler has found a place for it".to_owned());
            let size = clusters.hosts(&line.request);
            let estimate = match line.estimate {
                Some(at) if at <= now => format!("It is about to start on {size}."),
                Some(at) => {
                    let at_text = stamp::clock(at, now);
                    format!("By the present plan it starts on {size} at {at_text} ({}).", ahead(at, now))
                }
                None => "No start can be told yet.".to_owned(),
            };
            format!("{job} waits: {why}. {estimate}{}", sizes::sentence(line, open, now))
        }
        JobState::Started => {
            let since =
                line.started.map_or_else(String::new, |at| format!(", for {} now", stamp::brief(now.since(at))));
            let until = line.until.map_or_else(String::new, |at| {
                format!(" Its wall time ends at {} ({}).", stamp::clock(at, now), ahead(at, now))
            });
            let changes = match &line.malleable {
                Some(_) => sizes::sentence(line, open, now),
                None => stages::sentence(line, now),
            };
            format!("{job} runs on {}{since}.{changes}{until}", on())
        }
        JobState::Ending => {
            let outcome = line.outcome.as_ref().map_or_else(String::new, |outcome| format!(": it was {outcome}"));
            format!("{job} is being ended on {}{outcome}. Its processes get TERM, and KILL after the grace time.", on())
        }
        JobState::Ghost => {
            let outcome = line.outcome.as_ref().map_or_else(String::new, |outcome| format!(" ({outcome})"));
            let until = line.until.map_or_else(String::new, |at| format!(" until {}", stamp::clock(at, now)));
            format!(
                "{job} has ended{outcome}. Its hosts stay reserved as a ghost{until}, so that every launcher gets its \
                 fair chance to ask for them."
            )
        }
        JobState::Finished => {
            let outcome = line.outcome.as_ref().map_or_else(String::new, |outcome| format!(": it was {outcome}"));
            format!("{job} has ended{outcome}.")
        }
    }
}

/// The same of a job that is history.
pub fn record(record: &JobRecord) -> String {
    let job = format!("Job {} ({})", record.job, crate::table::plain(&record.name));
    let ended = stamp::iso_secs(record.ended);
    match record.started {
        Some(started) => {
            let ran = stamp::brief(record.ended.since(started));
            let on = rms_model::hostlist::fold(&record.nodes);
            format!("{job} ended at {ended}: {}. It ran for {ran} on {on}.", record.outcome)
        }
        None => format!("{job} ended at {ended} without having started: {}.", record.outcome),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rms_model::JobId;

    #[test]
    fn a_blocked_job_names_who_holds_the_hosts() {
        let now = Time::from_secs(0);
        let blocked = Reason::Blocked {
            cluster: "a".into(),
            wanted: 4,
            capacity: 4,
            busy: 3,
            from: now,
            until: Time::from_secs(600),
            by: vec![
                Blocker { job: JobId(3), state: JobState::Started, hosts: 2 },
                Blocker { job: JobId(4), state: JobState::Ghost, hosts: 1 },
            ],
        };
        assert_eq!(
            reason(&blocked, now),
            "it needs 4 hosts of cluster a, but from now until 00:10:00 UTC only 1 of 4 is free: job 3 holds 2, job 4 holds 1 \
             (a ghost)"
        );
    }
}
