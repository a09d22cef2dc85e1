//! Launchers that are silent or gone: what they hold is given back in time.

use rms_api::answer::Reason;
use rms_api::call::{Nodes, Shape};

use super::*;

#[test]
fn an_application_that_never_requests_is_ended_in_time() {
    let mut launchers = Launchers::new();
    launchers.set("request_timeout", "10s");
    let (silent, held) = (launchers.subscribe(), launchers.subscribe());
    launchers.admin(Call::Hold { select: rms_api::call::Select::Ids(vec![held]) });
    launchers.after(9);
    assert_eq!(launchers.state(silent), Some(JobState::Submitted));
    launchers.after(1);
    assert!(matches!(launchers.ended(silent), Some(Outcome::Violation { .. })));
    assert_eq!(launchers.state(held), Some(JobState::Held), "a hold is not its launcher's fault");
    launchers.admin(Call::Release { select: rms_api::call::Select::Ids(vec![held]) });
    let line = launchers.world.line(held);
    let until = Some(launchers.world.now + Span::from_secs(10));
    assert_eq!(line.reason, Some(rms_api::answer::Reason::NoRequest { until }));
    launchers.set("request_timeout", "0s");
    launchers.after(1_000_000);
    assert_eq!(launchers.state(held), Some(JobState::Submitted), "zero is for ever");
}

#[test]
fn a_start_that_is_not_answered_is_taken_back() {
    let mut launchers = Launchers::new();
    launchers.set("start_timeout", "5s");
    let mute = launchers.waiting(on_a(4, 100));
    let next = launchers.waiting(on_a(4, 100));
    launchers.after(4);
    assert_eq!(launchers.state(mute), Some(JobState::Started));
    launchers.after(1);
    let outcome = launchers.ended(mute);
    assert!(matches!(outcome, Some(Outcome::Violation { .. })), "{outcome:?}");
    assert_eq!(launchers.grant(next).answer_until, launchers.world.now + Span::from_secs(5));
    launchers.accept(next, 1);
    launchers.after(50);
    assert_eq!(launchers.state(next), Some(JobState::Started));
}

/// Time with a connection adds up: one that comes again and again keeps its nodes no longer than one that stays.
#[test]
fn a_launcher_that_comes_again_and_again_is_awaited_no_longer() {
    let mut launchers = Launchers::new();
    launchers.set("start_timeout", "5s");
    launchers.set("request_timeout", "5s");
    let (mute, silent) = (launchers.waiting(on_a(4, 100)), launchers.subscribe());
    let came_again = |launchers: &mut Launchers| {
        for job in [mute, silent] {
            launchers.ann(LauncherCall::Attach { job }).expect("it is there");
        }
    };
    launchers.after(2);
    came_again(&mut launchers);
    assert_eq!(launchers.grant(mute).answer_until, launchers.world.now + Span::from_secs(3));
    for job in [mute, silent] {
        launchers.event(Event::LauncherGone { job });
    }
    launchers.after(20);
    assert_eq!([mute, silent].map(|job| launchers.state(job)), [Some(JobState::Started), Some(JobState::Submitted)]);
    came_again(&mut launchers);
    launchers.after(2);
    came_again(&mut launchers);
    assert_eq!([mute, silent].map(|job| launchers.state(job)), [Some(JobState::Started), Some(JobState::Submitted)]);
    launchers.after(1);
    assert!(matches!(launchers.ended(mute), Some(Outcome::Violation { .. })));
    assert!(matches!(launchers.ended(silent), Some(Outcome::Violation { .. })));
}

/// 001: an application is killed with its launcher, after a grace period in which the launcher may come back.
#[test]
fn a_lost_launcher_takes_its_application_with_it() {
    let mut launchers = Launchers::new();
    let (accepted, launched) = (launchers.waiting(on_a(4, 1000)), launchers.waiting(on_b(1, 1000)));
    let (waits, silent) = (launchers.waiting(on_a(4, 100)), launchers.subscribe());
    launchers.accept(accepted, 1);
    launchers.ann(LauncherCall::Launch { job: launched, tag: Tag(1), launch: program() }).expect("it is taken");
    for job in [accepted, launched, waits, silent] {
        launchers.event(Event::LauncherGone { job });
    }
    launchers.after(59);
    assert_eq!(launchers.state(accepted), Some(JobState::Started));
    launchers.ann(LauncherCall::Attach { job: silent }).expect("in time");
    launchers.after(1);
    assert_eq!(launchers.ended(accepted), Some(Outcome::LauncherLost));
    assert_eq!(launchers.ended(waits), Some(Outcome::LauncherLost));
    assert_eq!(launchers.state(launched), Some(JobState::Ending), "its processes are ended first");
    assert_eq!(launchers.state(silent), Some(JobState::Submitted));
    launchers.world.finish(launched);
    assert_eq!(launchers.state(launched), None);
}

#[test]
fn an_admin_may_let_processes_run_on_without_their_launcher() {
    let mut launchers = Launchers::new();
    launchers.set("launcher_policy", "run");
    launchers.set("launcher_grace", "0s");
    let (accepted, launched) = (launchers.waiting(on_a(4, 1000)), launchers.waiting(on_b(1, 1000)));
    launchers.accept(accepted, 1);
    launchers.ann(LauncherCall::Launch { job: launched, tag: Tag(1), launch: program() }).expect("it is taken");
    launchers.event(Event::LauncherGone { job: launched });
    launchers.event(Event::LauncherGone { job: accepted });
    launchers.after(0);
    assert_eq!(launchers.state(accepted), None, "who knows whether its nodes are used");
    assert_eq!(launchers.state(launched), Some(JobState::Started));
    launchers.ann(LauncherCall::Attach { job: launched }).expect("it may come back");
    assert_eq!(launchers.grant(launched).tag, Tag(1));
    launchers.finish(launched, 1, 0);
    assert_eq!(launchers.state(launched), Some(JobState::Ending));
}

/// After a restart all launchers are away, and none is ended for the time in which it could not connect.
#[test]
fn a_restart_of_the_server_is_not_held_against_launchers() {
    let mut launchers = Launchers::new();
    let started = launchers.waiting(on_a(4, 100_000));
    let (waits, silent) = (launchers.waiting(on_a(2, 100)), launchers.subscribe());
    launchers.world.restart(7200);
    for (cluster, n_nodes) in [("a", 4), ("b", 2)] {
        (1..=n_nodes).for_each(|idx| launchers.joins(cluster, &format!("{cluster}{idx}"), plain()));
    }
    launchers.after(59);
    launchers.told.clear();
    for job in [started, waits, silent] {
        launchers.ann(LauncherCall::Attach { job }).expect("in time");
    }
    let grant = launchers.grant(started);
    assert_eq!(grant.answer_until, launchers.world.now + Span::from_secs(60), "it could not answer before");
    launchers.accept(started, 1);
    let change = launchers.change(silent);
    assert_eq!(change.clusters.len(), 2, "it is told everything");
    assert_eq!(launchers.changes(waits).len(), 1);
    launchers.after(100);
    assert_eq!(launchers.state(waits), Some(JobState::Waiting));
    assert_eq!(launchers.state(silent), Some(JobState::Submitted));
}

/// Nodes on which no agent supervises a process can still be lost.
#[test]
fn an_application_whose_node_is_lost_is_ended_though_nothing_of_it_runs_there() {
    let mut launchers = Launchers::new();
    let job = launchers.waiting(on_b(2, 1000));
    launchers.accept(job, 1);
    launchers.event(Event::AgentGone { name: "b2".to_owned() });
    launchers.after(60);
    assert_eq!(
        launchers.ended(job),
        Some(Outcome::NodeLost { node: "b2".to_owned(), reason: "its agent did not come back".to_owned() })
    );
}

/// 001: a start is sent to the launcher; an unreachable launcher keeps its place within its grace period.
#[test]
fn who_cannot_be_told_is_not_started_and_keeps_its_place_for_its_grace() {
    for policy in ["views", "fcfs", "easy", "conservative"] {
        let mut launchers = Launchers::new();
        launchers.set("policy", policy);
        launchers.set("start_timeout", "0s");
        let holder = launchers.waiting(on_a(4, 100));
        launchers.accept(holder, 1);
        let (absent, behind) = (launchers.waiting(on_a(4, 50)), launchers.waiting(on_a(3, 50)));
        launchers.event(Event::LauncherGone { job: absent });
        let is_said = |launchers: &mut Launchers| {
            let reason = launchers.world.line(absent).reason;
            assert!(matches!(reason, Some(Reason::LauncherAway { until: Some(_), .. })), "{policy}: {reason:?}");
        };
        launchers.after(1);
        is_said(&mut launchers);
        launchers.finish(holder, 1, 0);
        launchers.after(29);
        assert_eq!(launchers.state(absent), Some(JobState::Waiting), "{policy}");
        assert_eq!(launchers.state(behind), Some(JobState::Waiting), "{policy}: it does not overtake");
        is_said(&mut launchers);
        launchers.ann(LauncherCall::Attach { job: absent }).expect("in time");
        launchers.after(1);
        assert_eq!(launchers.grant(absent).tag, Tag(1), "{policy}: it is told now");
        launchers.finish(absent, 1, 0);
        launchers.after(1);
        assert_eq!(launchers.state(behind), Some(JobState::Started), "{policy}");
    }
}

/// The first waiting application could start at once, so the reservation is that of the job behind it.
#[test]
fn no_arrival_delays_the_job_behind_an_application_whose_launcher_is_away() {
    let mut launchers = Launchers::new();
    launchers.set("policy", "easy");
    let submit = |launchers: &mut Launchers, n_nodes, wall_secs| {
        launchers.world.submit_with(|submission| {
            submission.shapes = vec![Shape { nodes: Nodes::Count(n_nodes), wall: Some(Span::from_secs(wall_secs)) }];
            submission.clusters = vec!["a".to_owned()];
        })
    };
    submit(&mut launchers, 2, 100);
    let short = launchers.waiting(on_a(2, 10));
    launchers.accept(short, 1);
    let absent = launchers.waiting(on_a(1, 50));
    launchers.event(Event::LauncherGone { job: absent });
    launchers.after(1);
    let head = submit(&mut launchers, 4, 10);
    launchers.finish(short, 1, 0);
    launchers.after(1);
    assert_eq!(launchers.state(absent), Some(JobState::Waiting));
    let arrivals = [submit(&mut launchers, 1, 1000), submit(&mut launchers, 1, 1000)];
    for job in [absent, head].into_iter().chain(arrivals) {
        assert_eq!(launchers.state(job), Some(JobState::Waiting), "job {job}");
    }
}

#[test]
fn a_launcher_that_stays_away_gives_its_place_to_the_next_after_its_grace() {
    let mut launchers = Launchers::new();
    let holder = launchers.waiting(on_a(4, 100));
    launchers.accept(holder, 1);
    let (absent, behind) = (launchers.waiting(on_a(4, 50)), launchers.waiting(on_a(3, 50)));
    launchers.event(Event::LauncherGone { job: absent });
    launchers.finish(holder, 1, 0);
    launchers.after(60);
    assert_eq!(launchers.state(absent), None);
    assert_eq!(launchers.state(behind), Some(JobState::Started));
}

#[test]
fn who_waits_for_the_launcher_of_a_started_application_is_told() {
    let mut launchers = Launchers::new();
    launchers.set("start_timeout", "5s");
    launchers.set("launcher_policy", "run");
    let (mute, launched) = (launchers.waiting(on_a(4, 100)), launchers.waiting(on_b(1, 1000)));
    launchers.after(1);
    let line = launchers.world.line(mute);
    assert_eq!(line.reason, Some(Reason::NoRequest { until: line.started.map(|at| at + Span::from_secs(5)) }));
    launchers.ann(LauncherCall::Launch { job: launched, tag: Tag(1), launch: program() }).expect("it is taken");
    assert_eq!(launchers.world.line(launched).reason, None);
    for job in [mute, launched] {
        launchers.event(Event::LauncherGone { job });
    }
    let now = launchers.world.now;
    let away = Reason::LauncherAway { since: now, until: Some(now + Span::from_secs(60)) };
    assert_eq!(launchers.world.line(mute).reason, Some(away.clone()));
    assert_eq!(launchers.world.line(launched).reason, None, "it runs on without its launcher");
    launchers.set("launcher_policy", "end");
    assert_eq!(launchers.world.line(launched).reason, Some(away));
    launchers.after(60);
    assert_eq!(launchers.ended(mute), Some(Outcome::LauncherLost));
}
