//! What is said of jobs whose run is over or was not their first.

use rms_model::CpuLoans;

use super::*;
use crate::{stamp, starts};

fn found(live: Vec<JobLine>, ended: Vec<JobRecord>) -> Found {
    Found { now: NOW, live: live.into_iter().map(detail).collect(), ended }
}

fn explained(found: Found) -> String {
    let (clusters, allowed) = (clusters(), Allowed::default());
    let answer =
        explain::ExplainAnswer { found, clusters, negotiations: Vec::new(), allowed, away: Vec::new(), shortage: None };
    answer.text().split_whitespace().collect::<Vec<_>>().join(" ")
}

fn shown(found: Found) -> String {
    show_answer(found).text()
}

#[test]
fn a_job_whose_wall_time_is_over_is_being_ended() {
    let over = || JobLine { until: Some(NOW - Span::from_secs(5)), ..started() };
    let text = explained(found(vec![over()], Vec::new()));
    assert!(text.contains("Its wall time is over since 12:29:55 UTC: its nodes, which measure it, end it."), "{text}");
    let text = shown(found(vec![over()], Vec::new()));
    assert!(text.contains("(over: its nodes end it)"), "{text}");
    assert!(!shown(found(vec![started()], Vec::new())).contains("over"), "it has time left");
}

#[test]
fn a_job_that_waits_again_has_run_before() {
    let again = JobLine { run: Run(2), ..held() };
    let text = explained(found(vec![again], Vec::new()));
    assert!(text.contains("Its run 2 was ended, and it returned to the queue."), "{text}");
    assert!(!explained(found(vec![first_run(held())], Vec::new())).contains("run"), "it has not run yet");
    let cancelled =
        |run| JobRecord { run, started: None, outcome: Outcome::Cancelled { by: "ada".into() }, ..record() };
    let text = explained(found(Vec::new(), vec![cancelled(Run(1))]));
    assert!(text.contains("without having started again: cancelled by ada. Its run 1 was ended"), "{text}");
    let text = explained(found(Vec::new(), vec![cancelled(Run(0))]));
    assert!(text.ends_with("without having started: cancelled by ada."), "{text}");
}

#[test]
fn what_ended_the_last_run_is_told_of_a_job_that_waits_or_runs_again() {
    let again = |line: JobLine| {
        let ended_before = Some(Outcome::NodeLost { node: "a7".to_owned(), reason: String::new() });
        let detail = JobDetail { ended_before, ..detail(JobLine { run: Run(3), ..line }) };
        Found { now: NOW, live: vec![detail], ended: Vec::new() }
    };
    let text = explained(again(held()));
    assert!(text.contains("Its run 3 was ended (node a7 lost), and it returned to the queue."), "{text}");
    let text = explained(again(started()));
    assert!(text.contains("This is its run 3: the one before was ended (node a7 lost)."), "{text}");
    let run = |found: Found| {
        let text = shown(found);
        text.lines().find_map(|line| Some(line.trim().strip_prefix("run ")?.trim().to_owned()))
    };
    assert_eq!(run(again(held())).as_deref(), Some("3 (ended: node a7 lost)"));
    assert_eq!(run(again(started())).as_deref(), Some("3 (the one before ended: node a7 lost)"));
    let json = show_answer(again(held())).json();
    assert_eq!(json["ended_before"]["word"], "node_lost", "{json}");
}

#[test]
fn the_runs_before_the_last_are_listed_and_what_they_used_counts() {
    let former = FormerRun {
        run: Run(1),
        started: NOW - Span::from_mins(130),
        ended: NOW - Span::from_mins(120),
        outcome: Outcome::NodeLost { node: "a7".to_owned(), reason: String::new() },
        nodes: vec!["a7".to_owned()],
        usage: Usage { cpu: Span::from_secs(10), peak_memory_kib: 99_999 },
        core_time: 600_000,
        loans: Some(CpuLoans { lent: 4000, borrowed: 1000 }),
    };
    let ended = JobRecord { run: Run(2), former_runs: vec![former], ..record() };
    let text = shown(found(Vec::new(), vec![ended.clone()]));
    assert!(text.contains("1 ran for 10m on a7 (10m of a core): node a7 lost"), "{text}");
    assert!(text.contains("99999 KiB"), "{text}");
    let job = show_answer(found(Vec::new(), vec![ended.clone()])).json();
    assert_eq!((&job["granted"]["core_seconds"], &job["cpu_ms"]), (&3000.0.into(), &600_000.into()), "{job}");
    assert_eq!(job["former_runs"][0]["core_seconds"], 600.0, "{job}");
    assert_eq!(job["former_runs"][0]["cpu_time_lent_s"], 4.0, "{job}");
    assert_eq!((&job["cpu_time_lent_s"], &job["cpu_time_borrowed_s"]), (&4.0.into(), &1.0.into()), "{job}");
    let not_again = JobRecord { started: None, granted: None, usage: Usage::default(), ..ended };
    let job = show_answer(found(Vec::new(), vec![not_again])).json();
    assert_eq!((&job["granted"]["core_seconds"], &job["granted"]["cores"]), (&600.0.into(), &0.into()), "{job}");
}

#[test]
fn the_input_of_a_job_is_shown() {
    let mut detail = detail(started());
    Arc::make_mut(&mut detail.spec).execution.stdio.input = Some("input.dat".to_owned());
    let text = shown(Found { now: NOW, live: vec![detail], ended: Vec::new() });
    assert!(text.contains("input.dat"), "{text}");
}

#[test]
fn no_job_is_about_to_start_while_the_disk_of_the_server_is_full() {
    let shortage = Some("no space is left for the journal /j: no new work is accepted until some is freed".to_owned());
    let reason = Some(Reason::NotPlanned { next_pass: NOW });
    let ready = JobLine { reason, estimate: Some(NOW), state: JobState::Waiting, ..first_run(held()) };
    let lines = vec![ready, first_run(held())];
    let queue = queue::QueueAnswer {
        queue: Queue { now: NOW, planned: NOW, jobs: lines.clone() },
        clusters: clusters(),
        negotiations: Vec::new(),
        is_filtered: false,
        shortage: shortage.clone(),
    };
    check_form("queue_shortage", &queue, Form::Text);
    let explained = explain::ExplainAnswer {
        found: found(lines, Vec::new()),
        clusters: clusters(),
        negotiations: Vec::new(),
        allowed: Allowed::default(),
        away: Vec::new(),
        shortage,
    };
    check_form("explain_shortage", &explained, Form::Text);
}

#[test]
fn a_job_with_a_begin_starts_then_at_the_earliest() {
    let reason = Some(Reason::NotBefore { at: NOW + Span::from_mins(5) });
    let late = JobLine { reason, estimate: None, state: JobState::Waiting, ..first_run(held()) };
    let column = |line: &JobLine| starts::column(line, |time| stamp::short(time, NOW));
    assert_eq!(column(&late), ">=12:35:00");
    assert_eq!(column(&JobLine { estimate: Some(NOW), ..late.clone() }), "~12:30:00");
    let text = explained(found(vec![late], Vec::new()));
    assert!(text.ends_with(" at 12:35:00 UTC at the earliest."), "{text}");
}
