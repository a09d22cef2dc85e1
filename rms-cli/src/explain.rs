//! Explains in plain sentences why a job is in its state.

mod lacking;

use std::collections::BTreeSet;

use lacking::{shortage, too_few_have};
use negotiation::Phase;
use rms_api::answer::{Blocker, JobDetail, JobLine, JobState, Lenders, LicenceShortage, NeverGuest, Reason, Shortage};
use rms_api::negotiate::NegotiationLine;
use rms_model::{JobRecord, Outcome, Run, Span, Time, hostlist};

use crate::loans;
use crate::names::ClusterNames;
use crate::negotiations;
use crate::sizes;
use crate::stages;
use crate::stamp;
use crate::starts;
use rms_api::terms::{self, Allowed};

/// Returns why a job is not running, as a part of a sentence; `open` has the open negotiations that the caller may see.
pub fn reason(reason: &Reason, open: &[NegotiationLine], now: Time) -> String {
    match reason {
        Reason::Held { by } => format!("it is held by {by}; 'rms release' lets it start"),
        Reason::NotBefore { at } => {
            format!("it asked not to start before {} ({})", stamp::iso_secs(*at), stamp::ahead(*at, now))
        }
        Reason::NotPlanned { next_pass } => {
            format!(
                "nothing stands in its way but the time between two scheduling passes (resched_timer); the next one is \
                 due {}",
                stamp::ahead(*next_pass, now)
            )
        }
        Reason::NoRequest { until } => {
            let until = until.map_or(String::new(), |until| format!("; it is expected {}", stamp::ahead(until, now)));
            format!("its launcher has not requested nodes yet{until}")
        }
        Reason::AgentsExpected { cluster, n_nodes: 1, until } => format!(
            "its nodes are free, but the agent of 1 node of cluster {cluster} is away; others are used \
             {} if it is not back",
            stamp::ahead(*until, now)
        ),
        Reason::AgentsExpected { cluster, n_nodes, until } => format!(
            "its nodes are free, but the agents of {n_nodes} nodes of cluster {cluster} are away; others are used \
             {} if they are not back",
            stamp::ahead(*until, now)
        ),
        Reason::LauncherAway { since, until } => {
            let until = until.map_or(String::new(), |until| format!("; it ends as lost {}", stamp::ahead(until, now)));
            format!(
                "its launcher, which has to be told of the start, has not been connected since {}; \
                 it keeps its place in the queue{until}",
                stamp::clock(*since, now)
            )
        }
        Reason::BeyondDepth { depth, position } => format!(
            "it stands at place {position} of the queue, and only the first {depth} are planned; its turn comes as \
             those before it start"
        ),
        Reason::TooFewNodes { cluster, licence: Some(licence), .. } => {
            let LicenceShortage { name, wanted, total, .. } = &**licence;
            format!("it needs {wanted} of licence {name}, and cluster {cluster} has {total}; an admin can change that")
        }
        Reason::TooFewNodes { cluster, wanted, total, licence: None, .. } if total < wanted => format!(
            "it needs {}, and cluster {cluster} has {total}; 'rms update', or its launcher if it has one, changes what it \
             asks for",
            nodes(*wanted)
        ),
        Reason::TooFewNodes { cluster, wanted, lacking: Some(lacking), licence: None, .. } => {
            format!(
                "it needs {} of cluster {cluster}, but {}; 'rms nodes' shows what each node has",
                nodes(*wanted),
                too_few_have(lacking)
            )
        }
        Reason::TooFewNodes { cluster, wanted, usable, contiguous: true, licence: None, .. } => format!(
            "it needs {} of cluster {cluster} that follow one another, and of those that can be used now no more than \
             {usable} do; 'rms nodes' shows which are missing",
            nodes(*wanted)
        ),
        Reason::TooFewNodes { cluster, wanted, usable, total, licence: None, contiguous: false, lacking: None } => {
            format!(
                "it needs {} of cluster {cluster}, and only {usable} of its {total} can be used now and have what it asks \
             for; 'rms nodes' shows the others",
                nodes(*wanted)
            )
        }
        Reason::Behind { policy, job, until } => format!(
            "the policy {policy} starts nobody before job {job}, which stands in front of it and waits until {}",
            stamp::clock(*until, now)
        ),
        Reason::Blocked { cluster, until, by, licence: Some(licence), .. } => {
            let LicenceShortage { name, wanted, free, total } = &**licence;
            format!(
                "it needs {wanted} of licence {name} of cluster {cluster}, but until {} {}{}",
                stamp::clock(*until, now),
                free_of(*free, *total),
                list(by, |holder| licence_holder(holder, now))
            )
        }
        Reason::Blocked { cluster, until, by, neighbours, licence: None, .. } if !neighbours.is_empty() => format!(
            "it needs {} of cluster {cluster} that follow one another, and {} are the first that can be had, at {}{}",
            nodes(neighbours.len() as u32),
            hostlist::fold(neighbours),
            stamp::clock(*until, now),
            blockers(by, None, open, now)
        ),
        Reason::Blocked {
            cluster,
            wanted,
            capacity,
            busy,
            from,
            until,
            by,
            total,
            short,
            licence: None,
            lenders,
            ..
        } => {
            // Of a moment that is shorter than what is shown, only its time is told.
            let is_moment = until.since(*from) < Span::from_secs(1);
            let from = if *from <= now { "now".to_owned() } else { stamp::clock(*from, now) };
            let when = match is_moment {
                true => format!("at {}", stamp::clock(*until, now)),
                false => format!("from {from} until {}", stamp::clock(*until, now)),
            };
            let free = match (short, capacity.saturating_sub(*busy)) {
                (Some(short), _) => shortage(short, *wanted),
                (None, free) => free_of(free, *capacity),
            };
            let unusable = match total.saturating_sub(*capacity) {
                0 => String::new(),
                1 => " (1 more cannot be used now, or lacks what it asks for: 'rms nodes')".to_owned(),
                unusable => format!(" ({unusable} more cannot be used now, or lack what it asks for: 'rms nodes')"),
            };
            format!(
                "it needs {} of cluster {cluster}, but {when} {free}{unusable}{}{}",
                nodes(*wanted),
                blockers(by, short.as_deref().map(|short| part(short, *wanted)).as_deref(), open, now),
                lenders.as_ref().map(|lenders| no_lender(lenders, *wanted)).unwrap_or_default()
            )
        }
    }
}

/// Returns what a started job awaits of its launcher, as a part of a sentence.
pub fn awaited(reason: &Reason, now: Time) -> String {
    match reason {
        Reason::NoRequest { until } => {
            let until = until.map_or(String::new(), |until| {
                format!("; if it does not, the job is ended {} (start_timeout)", stamp::ahead(until, now))
            });
            format!("its launcher was told of the start and has neither launched nor accepted anything yet{until}")
        }
        Reason::LauncherAway { since, until } => {
            let until = until.map_or(String::new(), |until| {
                format!(
                    "; if it does not come back, the job ends as lost {} (launcher_grace)",
                    stamp::ahead(until, now)
                )
            });
            format!("its launcher has not been connected since {}{until}", stamp::clock(*since, now))
        }
        other => self::reason(other, &[], now),
    }
}

/// Returns why the job does not start on cores of running jobs.
fn no_lender(lenders: &Lenders, wanted: u32) -> String {
    let Lenders { ends_no_earlier, n_sharing, n_busy, n_slowed, n_larger, n_unfit, lacks_licence, never } = *lenders;
    match never {
        Some(NeverGuest::Profile) => {
            return "; a job with a profile never starts on lent cores: with --share it lends, in its last stage"
                .to_owned();
        }
        Some(NeverGuest::Clusters) => return "; a job on several clusters never starts on lent cores".to_owned(),
        None => {}
    }
    if ends_no_earlier {
        return "; on the cores that running jobs may lend (sharing_factor) it would end no earlier".to_owned();
    }
    if lacks_licence {
        return "; it starts on no lent cores either while a licence that it asks for is not free".to_owned();
    }
    if n_sharing == 0 {
        return "; no running job there shares its cores (--share)".to_owned();
    }
    let n_left = n_sharing.saturating_sub(n_busy + n_slowed + n_larger + n_unfit);
    let counts = [
        (
            n_busy,
            "cannot change now (sharing already, before the last stage, starting, ending or negotiating)".to_owned(),
        ),
        (n_slowed, "would be slowed down by more than max_slowdown allows".to_owned()),
        (n_larger, format!("with more than {}", nodes(wanted))),
        (
            n_unfit,
            "would end before it, lend so few cores that it ends no earlier, or lack what it asks for".to_owned(),
        ),
        (n_left, format!("could lend, but not exactly {} together, or a promised stage would be late", nodes(wanted))),
    ];
    let counts: Vec<String> =
        counts.into_iter().filter(|(count, _)| *count > 0).map(|(count, why)| format!("{count} {why}")).collect();
    format!("; no running job lends it cores; of those that share ({n_sharing}): {}", counts.join(", "))
}

fn nodes(count: u32) -> String {
    if count == 1 { "1 node".to_owned() } else { format!("{count} nodes") }
}

/// Returns which jobs have the nodes, or this part of them if nodes are shared, and for how long; of many, the first few.
fn blockers(by: &[Blocker], part: Option<&str>, open: &[NegotiationLine], now: Time) -> String {
    list(by, |blocker| self::blocker(blocker, part, open, now))
}

/// Returns what of the nodes is short.
fn part(short: &Shortage, wanted: u32) -> String {
    if short.with_cores >= wanted && short.with_memory < wanted {
        return "memory".to_owned();
    }
    if short.with_memory >= wanted && short.with_devices < wanted {
        let kinds: BTreeSet<&str> = short.each.devices.iter().filter_map(|(name, _)| name.split(':').next()).collect();
        return format!("{} devices", kinds.into_iter().collect::<Vec<_>>().join(" and "));
    }
    "cores".to_owned()
}

fn list(by: &[Blocker], say: impl Fn(&Blocker) -> String) -> String {
    if by.is_empty() {
        return String::new();
    }
    let mut names: Vec<String> = by.iter().take(MAX_BLOCKERS).map(say).collect();
    let n_more = by.len() - names.len();
    if n_more > 0 {
        names.push(format!("and {n_more} more"));
    }
    format!(": {}", names.join(", "))
}

fn free_of(free: u32, total: u32) -> String {
    match free {
        0 => format!("none of {total} is free"),
        1 => format!("only 1 of {total} is free"),
        free => format!("only {free} of {total} are free"),
    }
}

fn licence_holder(holder: &Blocker, now: Time) -> String {
    let until = if holder.until <= now { String::new() } else { format!(" until {}", stamp::short(holder.until, now)) };
    let has = match holder.state {
        JobState::Ending => ", which is being ended, has some".to_owned(),
        JobState::Started | JobState::Ghost | JobState::Finished => " has some".to_owned(),
        JobState::Submitted | JobState::Held | JobState::RequestSent | JobState::Waiting => {
            format!(" is planned before it, with some from {}", stamp::short(holder.from, now))
        }
    };
    format!("job {}{has}{until}", holder.job)
}

fn blocker(blocker: &Blocker, part: Option<&str>, open: &[NegotiationLine], now: Time) -> String {
    let Blocker { job, state, nodes: n_nodes, from, until, is_offer, is_promised } = blocker;
    let until = if *until <= now { String::new() } else { format!(" until {}", stamp::short(*until, now)) };
    // A job has some cores of a shared node, which leaves others.
    let (what, has) = match part {
        Some(part) => (format!("{part} of {}", nodes(*n_nodes)), "has"),
        None => (n_nodes.to_string(), "holds"),
    };
    let is_one = part.map_or(*n_nodes == 1, |part| part == "memory");
    let are = if is_one { "is" } else { "are" };
    if *is_offer {
        let standing = open.iter().find(|line| line.job == *job && !line.held.is_empty());
        return match standing {
            Some(line) => format!("{what} {are} {}", offer(line, now)),
            None => format!("{what} {are} kept for what is negotiated with job {job}"),
        };
    }
    match state {
        JobState::Ghost => format!("{what} {are} kept free as a ghost of job {job}{until}"),
        JobState::Started => format!("job {job} {has} {what}{until}"),
        JobState::Ending => format!("job {job}, which is being ended, {has} {what}{until}"),
        JobState::Submitted | JobState::Held | JobState::RequestSent | JobState::Waiting | JobState::Finished => {
            let from = if *from <= now { String::new() } else { format!(" from {}", stamp::short(*from, now)) };
            match is_promised {
                true => format!("{what} {are} promised to job {job}{from}{until}"),
                false => format!("job {job} is planned before it on {what}{from}{until}"),
            }
        }
    }
}

/// Returns what happens to the nodes that are held for a negotiation: `offered to job 105 until 09:51:40`.
pub fn offer(line: &NegotiationLine, now: Time) -> String {
    let until = line.until.map(|until| format!(" until {}", stamp::short(until, now))).unwrap_or_default();
    match line.phase {
        Phase::Idle | Phase::Offered(_) | Phase::Countered(_) => format!("offered to job {}{until}", line.job),
        Phase::Pledged
        | Phase::Leaving
        | Phase::Accepted
        | Phase::Committing
        | Phase::Failing
        | Phase::Applied
        | Phase::Ended(_) => format!("promised to job {}{until}", line.job),
    }
}

const MAX_BLOCKERS: usize = 5;

/// Returns one or two sentences about a job that is in the system; `shortage` says why no job starts now, if so.
pub fn detail(
    detail: &JobDetail,
    clusters: &ClusterNames,
    negotiations: &[NegotiationLine],
    allowed: &Allowed,
    shortage: Option<&str>,
    now: Time,
) -> String {
    let (line, ended_before) = (&detail.line, detail.ended_before.as_ref());
    let open: Vec<&NegotiationLine> =
        negotiations.iter().filter(|other| other.job == line.job && !other.phase.is_over()).collect();
    let open = open.as_slice();
    let job = format!("Job {} ({})", line.job, rms_model::plain::plain(&line.labels.name));
    let on = || rms_model::hostlist::fold(&line.nodes);
    let why = line.reason.as_ref().map(|why| reason(why, negotiations, now));
    match line.state {
        JobState::Submitted | JobState::Held | JobState::RequestSent | JobState::Waiting => {
            let (why, estimate) = starts::told(line, why, clusters, shortage, now);
            let before = if line.run.0 > 0 { format!(" {}", returned(line.run, ended_before)) } else { String::new() };
            format!("{job} waits: {why}.{before} {estimate}{}", sizes::sentence(line, open, now))
        }
        JobState::Started => {
            let since =
                line.started.map_or_else(String::new, |at| format!(", for {} now", stamp::brief(now.since(at))));
            let until = match stages::end(line) {
                Some(at) if at <= now => {
                    format!(
                        " Its wall time is over since {}: its nodes, which measure it, end it.",
                        stamp::clock(at, now)
                    )
                }
                Some(at) => format!(" Its wall time ends at {} ({}).", stamp::clock(at, now), stamp::ahead(at, now)),
                None => String::new(),
            };
            let changes = match &line.malleable {
                Some(_) => sizes::sentence(line, open, now),
                None => stages::sentence(line, now),
            };
            let broken = broken_terms(line, negotiations, allowed);
            let again = ended_before.map_or_else(String::new, |outcome| {
                format!(" This is its run {}: the one before was ended ({outcome}).", line.run)
            });
            let (waits_for_cpus, loans) = loans::sentences(detail.sharing.as_ref());
            let (runs_on, awaited) = match &line.reason {
                None if waits_for_cpus => ("has", String::new()),
                None => ("runs on", String::new()),
                Some(reason) => ("has", format!(" I{}.", &awaited(reason, now)[1..])),
            };
            format!("{job} {runs_on} {}{since}.{again}{awaited}{loans}{changes}{broken}{until}", on())
        }
        JobState::Ending => {
            let outcome = line.outcome.as_ref().map_or_else(String::new, |outcome| format!(": it was {outcome}"));
            format!("{job} is being ended on {}{outcome}. Its processes get TERM, and KILL after the grace time.", on())
        }
        JobState::Ghost => {
            let outcome = line.outcome.as_ref().map_or_else(String::new, |outcome| format!(" ({outcome})"));
            let until = line.until.map_or_else(String::new, |at| format!(" until {}", stamp::clock(at, now)));
            format!(
                "{job} has ended{outcome}. Its nodes stay reserved as a ghost{until}, so that every launcher gets its \
                 fair chance to ask for them."
            )
        }
        JobState::Finished => {
            let outcome = line.outcome.as_ref().map_or_else(String::new, |outcome| format!(": it was {outcome}"));
            format!("{job} has ended{outcome}.")
        }
    }
}

/// Returns which terms prevent an open negotiation, or prevented the latest one.
fn broken_terms(line: &JobLine, negotiations: &[NegotiationLine], allowed: &Allowed) -> String {
    let of_job = || negotiations.iter().filter(|other| other.job == line.job);
    let open = of_job().filter(|other| !other.phase.is_over());
    let mut text = String::new();
    for open in open {
        if let Some(broken) = terms::against_before(&open.record) {
            text +=
                &format!(" The proposal that stands in {} breaks a term of the other end: {broken}.", open.record.id);
        }
    }
    let last = of_job().max_by_key(|other| other.record.opened).filter(|last| last.phase.is_over());
    if let Some((last, broken)) = last.and_then(|last| Some((last, terms::broken(&last.record, &last.owner, allowed)?)))
    {
        text +=
            &format!(" The last negotiation, {}, was {}: {broken}.", last.record.id, negotiations::word(last.phase));
    }
    text
}

/// Returns the same for a job in the history.
pub fn record(record: &JobRecord) -> String {
    let job = format!("Job {} ({})", record.job, rms_model::plain::plain(&record.labels.name));
    let ended = stamp::iso_secs(record.ended);
    match record.started {
        Some(_) if matches!(record.outcome, Outcome::NotStarted { .. }) => {
            format!("{job} ended at {ended}: {}.", record.outcome)
        }
        Some(started) => {
            let ran = stamp::brief(record.ended.since(started));
            let on = rms_model::hostlist::fold(&record.nodes);
            format!("{job} ended at {ended}: {}. It ran for {ran} on {on}.", record.outcome)
        }
        None if record.run.0 > 0 => format!(
            "{job} ended at {ended} without having started again: {}. {}",
            record.outcome,
            returned(record.run, record.former_runs.last().map(|former| &former.outcome))
        ),
        None => format!("{job} ended at {ended} without having started: {}.", record.outcome),
    }
}

/// Returns that a job which returned to the queue has run before, and why that run ended, if it is known.
fn returned(run: Run, outcome: Option<&Outcome>) -> String {
    let why = outcome.map_or_else(String::new, |outcome| format!(" ({outcome})"));
    format!("Its run {run} was ended{why}, and it returned to the queue.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rms_api::answer::{Lacking, Required};
    use rms_model::{JobId, Mebibytes, Slice};

    #[test]
    fn where_nodes_are_shared_the_resource_that_is_short_is_named() {
        let check = |counts: [u32; 3], said: &str, has: &str| {
            let each = Slice { cores: 8, memory: Mebibytes(65536), devices: "gpu:2".parse().expect("two") };
            let [with_cores, with_memory, with_devices] = counts;
            let short = Shortage { each, with_cores, with_memory, with_devices };
            assert_eq!((shortage(&short, 2).as_str(), part(&short, 2).as_str()), (said, has));
        };
        check([0, 0, 0], "no node has 8 free cores", "cores");
        check([1, 1, 1], "only 1 node has 8 free cores", "cores");
        check([3, 1, 1], "3 nodes have 8 free cores, but only 1 of them 64 GiB", "memory");
        check([3, 0, 0], "3 nodes have 8 free cores, but none of them 64 GiB", "memory");
        check([3, 2, 1], "3 nodes have 8 free cores, but only 1 of them gpu:2", "gpu devices");
        check([4, 3, 2], "2 nodes have free what it takes, but not for all of its wall time", "cores");
    }

    #[test]
    fn a_blocked_job_names_who_holds_the_nodes() {
        let now = Time::from_secs(0);
        let blocked = Reason::Blocked {
            cluster: "a".into(),
            wanted: 4,
            capacity: 4,
            busy: 3,
            from: now,
            until: Time::from_secs(600),
            by: vec![
                holds(3, JobState::Started, 2, 0, 600),
                holds(4, JobState::Ghost, 1, 0, 30),
                holds(5, JobState::Waiting, 3, 30, 600),
                Blocker { is_offer: true, ..holds(6, JobState::Started, 1, 0, 900) },
            ],
            total: 6,
            short: None,
            licence: None,
            neighbours: Vec::new(),
            lenders: None,
        };
        assert_eq!(
            reason(&blocked, &[], now),
            "it needs 4 nodes of cluster a, but from now until 00:10:00 UTC only 1 of 4 is free (2 more cannot be used \
             now, or lack what it asks for: 'rms nodes'): job 3 holds 2 until 00:10:00, 1 is kept free as a ghost of job 4 until \
             00:00:30, job 5 is planned before it on 3 from 00:00:30 until 00:10:00, 1 is kept for what is negotiated \
             with job 6"
        );
        let promised = Blocker { is_promised: true, ..holds(5, JobState::Waiting, 3, 30, 600) };
        assert_eq!(blocker(&promised, None, &[], now), "3 are promised to job 5 from 00:00:30 until 00:10:00");
        let behind = Reason::Behind { policy: rms_model::Policy::Fcfs, job: JobId(3), until: Time::from_secs(600) };
        assert_eq!(
            reason(&behind, &[], now),
            "the policy fcfs starts nobody before job 3, which stands in front of it and waits until 00:10:00 UTC"
        );
    }

    #[test]
    fn where_nodes_are_shared_a_job_has_cores_of_them() {
        let told = |blocker: Blocker| self::blocker(&blocker, Some("cores"), &[], Time::from_secs(0));
        assert_eq!(told(holds(15, JobState::Started, 4, 0, 600)), "job 15 has cores of 4 nodes until 00:10:00");
        assert_eq!(
            told(holds(5, JobState::Waiting, 1, 30, 600)),
            "job 5 is planned before it on cores of 1 node from 00:00:30 until 00:10:00"
        );
        let memory = self::blocker(&holds(4, JobState::Ghost, 2, 0, 30), Some("memory"), &[], Time::from_secs(0));
        assert_eq!(memory, "memory of 2 nodes is kept free as a ghost of job 4 until 00:00:30");
        let ghost = told(holds(4, JobState::Ghost, 1, 0, 30));
        assert_eq!(ghost, "cores of 1 node are kept free as a ghost of job 4 until 00:00:30");
    }

    #[test]
    fn what_is_missing_for_a_moment_has_no_span() {
        let at = Time::from_secs(60);
        let moment = Reason::Blocked {
            cluster: "a".into(),
            wanted: 3,
            capacity: 3,
            busy: 2,
            from: at,
            until: at + Span::from_millis(1),
            by: Vec::new(),
            total: 3,
            short: None,
            licence: None,
            lenders: None,
            neighbours: Vec::new(),
        };
        assert_eq!(
            reason(&moment, &[], Time::from_secs(0)),
            "it needs 3 nodes of cluster a, but at 00:01:00 UTC only 1 of 3 is free"
        );
    }

    #[test]
    fn a_job_that_may_run_on_lent_cores_is_told_why_it_does_not() {
        let none = Lenders::default();
        let check = |lenders: Lenders, said: &str| assert_eq!(no_lender(&lenders, 2), said);
        check(none.clone(), "; no running job there shares its cores (--share)");
        let late = Lenders { ends_no_earlier: true, n_sharing: 3, ..none.clone() };
        let evolving = Lenders { never: Some(NeverGuest::Profile), ..none.clone() };
        check(evolving, "; a job with a profile never starts on lent cores: with --share it lends, in its last stage");
        check(late, "; on the cores that running jobs may lend (sharing_factor) it would end no earlier");
        check(
            Lenders { n_sharing: 9, n_busy: 1, n_slowed: 2, n_larger: 3, n_unfit: 2, ..none },
            "; no running job lends it cores; of those that share (9): 1 cannot change now (sharing already, before \
             the last stage, starting, ending or negotiating), 2 would be slowed down by more than max_slowdown allows, 3 \
             with more than 2 nodes, 2 would end before it, lend so few cores that it ends no earlier, or lack what it asks for, 1 could lend, \
             but not exactly 2 nodes together, or a promised stage would be late",
        );
    }

    #[test]
    fn a_job_that_lacks_a_licence_is_told_who_has_it() {
        let now = Time::from_secs(0);
        let blocked = |free, by| Reason::Blocked {
            cluster: "a".into(),
            wanted: 1,
            capacity: 4,
            busy: 1,
            from: now,
            until: Time::from_secs(600),
            by,
            total: 4,
            short: None,
            licence: Some(Box::new(LicenceShortage { name: "matlab".to_owned(), wanted: 2, free, total: 2 })),
            neighbours: Vec::new(),
            lenders: None,
        };
        let by = vec![
            holds(3, JobState::Started, 1, 0, 600),
            holds(4, JobState::Ending, 1, 0, 900),
            holds(5, JobState::Waiting, 1, 900, 1200),
        ];
        assert_eq!(
            reason(&blocked(0, by), &[], now),
            "it needs 2 of licence matlab of cluster a, but until 00:10:00 UTC none of 2 is free: job 3 has some until \
             00:10:00, job 4, which is being ended, has some until 00:15:00, job 5 is planned before it, with some from \
             00:15:00 until 00:20:00"
        );
        let said = reason(&blocked(1, Vec::new()), &[], now);
        assert!(said.ends_with("only 1 of 2 is free"), "{said}");
    }

    #[test]
    fn a_job_that_wants_neighbours_is_told_for_which_it_waits_or_how_many_there_are() {
        let now = Time::from_secs(0);
        let blocked = Reason::Blocked {
            cluster: "a".into(),
            wanted: 3,
            capacity: 3,
            busy: 1,
            from: now,
            until: Time::from_secs(600),
            by: vec![holds(3, JobState::Started, 1, 0, 600)],
            total: 6,
            short: None,
            licence: None,
            neighbours: ["a9", "a10", "a11"].map(str::to_owned).to_vec(),
            lenders: None,
        };
        assert_eq!(
            reason(&blocked, &[], now),
            "it needs 3 nodes of cluster a that follow one another, and a[9-11] are the first that can be had, at \
             00:10:00 UTC: job 3 holds 1 until 00:10:00"
        );
        let (cluster, licence, contiguous) = ("a".to_owned(), None, true);
        let few = Reason::TooFewNodes { cluster, wanted: 3, usable: 2, total: 6, licence, contiguous, lacking: None };
        assert_eq!(
            reason(&few, &[], now),
            "it needs 3 nodes of cluster a that follow one another, and of those that can be used now no more than 2 do; \
             'rms nodes' shows which are missing"
        );
        let (cluster, licence) = ("a".to_owned(), None);
        let few = Reason::TooFewNodes { cluster, wanted: 5, usable: 4, total: 4, licence, contiguous, lacking: None };
        assert_eq!(
            reason(&few, &[], now),
            "it needs 5 nodes, and cluster a has 4; 'rms update', or its launcher if it has one, changes what it asks for"
        );
    }

    #[test]
    fn what_usable_nodes_lack_is_named() {
        let few = |required, n_nodes, among, unusable: &[&str]| {
            let unusable = unusable.iter().map(|name| (*name).to_owned()).collect();
            let unknown = if n_nodes == 0 && among == 4 { vec!["a9".to_owned()] } else { Vec::new() };
            let lacking = Some(Box::new(Lacking { required, n_nodes, among, unusable, unknown }));
            let (cluster, licence, contiguous) = ("a".to_owned(), None, false);
            let few =
                Reason::TooFewNodes { cluster, wanted: 3, usable: n_nodes, total: 5, licence, contiguous, lacking };
            reason(&few, &[], Time::EPOCH)
        };
        assert_eq!(
            few(Required::Memory(Mebibytes(64 * 1024)), 1, 4, &[]),
            "it needs 3 nodes of cluster a, but of 4 candidates that can be used now, only 1 has 64 GiB of memory; 'rms \
             nodes' shows what each node has"
        );
        assert!(few(Required::Cpus(8), 0, 3, &[]).contains("none has 8 CPUs;"));
        assert!(few(Required::Devices("gpu:2".parse().expect("devices")), 2, 3, &[]).contains("only 2 have gpu:2;"));
        assert!(few(Required::Names, 2, 3, &[]).contains("only 2 are among those that it names"));
        let drained = few(Required::Names, 0, 4, &["a3", "a4"]);
        assert!(
            drained.contains("--exclude); a[3-4] would do, but cannot be used now; there is no node a9; 'rms nodes'"),
            "{drained}"
        );
    }

    fn holds(job: u64, state: JobState, nodes: u32, from: i64, until: i64) -> Blocker {
        let (from, until) = (Time::from_secs(from), Time::from_secs(until));
        Blocker { job: JobId(job), state, nodes, from, until, is_offer: false, is_promised: false }
    }
}
