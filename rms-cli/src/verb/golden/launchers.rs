//! The answers about started jobs whose launchers have launched nothing yet.

use rms_api::answer::Reason;

use super::*;

fn show(live: Vec<JobDetail>) -> show::ShowAnswer {
    show_answer(Found { now: NOW, live, ended: Vec::new() })
}

#[test]
fn a_silent_or_absent_launcher_of_a_started_job_is_named() {
    let check = |reason: Reason, kind: &str, explained: &str, shown: &str| {
        let detail = detail(JobLine { reason: Some(reason), ..started() });
        let found = Found { now: NOW, live: vec![detail.clone()], ended: Vec::new() };
        let (clusters, allowed) = (clusters(), Allowed::default());
        let answer = explain::ExplainAnswer {
            found,
            clusters,
            negotiations: Vec::new(),
            allowed,
            away: Vec::new(),
            shortage: None,
        };
        let text = answer.text().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.starts_with(explained), "{text}");
        assert_eq!(answer.json()["jobs"][0]["reason"]["kind"], kind);
        let answer = show(vec![detail]);
        assert!(answer.text().contains(shown), "{}", answer.text());
        assert!(!answer.text().contains("waits because"), "{}", answer.text());
        assert_eq!(answer.json()["reason"]["kind"], kind);
    };
    let until = Some(NOW + Span::from_secs(30));
    check(
        Reason::NoRequest { until },
        "no_launch",
        "Job 3 (nbody) has a[1-2], for 10m now. Its launcher was told of the start and has neither launched nor \
         accepted anything yet; if it does not, the job is ended in 30s (start_timeout). Its wall time",
        "its launcher was told of the start and has",
    );
    check(
        Reason::LauncherAway { since: NOW - Span::from_secs(30), until },
        "launcher_away",
        "Job 3 (nbody) has a[1-2], for 10m now. Its launcher has not been connected since 12:29:30 UTC; if it does not \
         come back, the job ends as lost in 30s (launcher_grace). Its wall time",
        "its launcher has not been connected since",
    );
}

#[test]
fn a_slice_is_shown_as_its_cores_on_each_node() {
    let mut detail = detail(JobLine { cpus_per_task: 2, ..started() });
    let spec = Arc::make_mut(&mut detail.spec);
    spec.execution = Execution::from(Work::Nodes);
    (spec.cpus_per_task, spec.resources.one_thread_a_core) = (2, true);
    let text = show(vec![detail]).text();
    assert!(text.contains("2 cores on each"), "{text}");
    assert!(!text.contains("one thread") && !text.contains("tasks"), "{text}");
}
