//! Queries about the queue agree, whichever query is used.

use rms_api::answer::{Answer, Reason};
use rms_api::call::{Select, Submission};
use rms_api::{Call, Query};
use rms_model::{Identity, Profile, Role, Span};

use super::World;

#[test]
fn each_job_beyond_the_depth_is_told_its_own_place() {
    let mut world = World::new();
    world.node("n1", &[]);
    world.set("queue_depth", "1");
    let jobs: Vec<_> = (0..4).map(|_| world.submit(1, 60, &[])).collect();
    let place = |position| Some(Reason::BeyondDepth { depth: 1, position });
    // The first has started, so the second is the head of the queue.
    assert_eq!(world.line(jobs[0]).reason, None);
    assert!(matches!(world.line(jobs[1]).reason, Some(Reason::Blocked { .. })));
    assert_eq!(world.line(jobs[2]).reason, place(2));
    assert_eq!(world.line(jobs[3]).reason, place(3));
    let Answer::Detail { jobs: details, .. } = world.ask(Call::Query(Query::Explain(Select::All))) else {
        panic!("no details");
    };
    let reasons: Vec<_> = details.into_iter().map(|detail| detail.line.reason).collect();
    assert_eq!(reasons[2..], [place(2), place(3)]);
    let mut would_start = |priority| {
        let who = Identity::new(Role::Admin, "root").expect("a plain name");
        let submission = Submission { test_only: true, priority, ..world.submission() };
        match world.ask_as(who, Call::Submit(Box::new(submission))).expect("it is possible") {
            Answer::WouldStart { at, reason, .. } => (at.is_some(), reason),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(would_start(0), (false, place(4)));
    assert!(would_start(1).0, "it would be the first of the queue");
}

#[test]
fn a_job_would_start_neither_held_nor_before_its_begin() {
    let mut world = World::new();
    world.node("n1", &[]);
    let running = world.submit(1, 60, &[]);
    let (soon, late) = (world.now + Span::from_secs(30), world.now + Span::from_secs(90));
    let mut would_start = |begin, hold| {
        let who = Identity::new(Role::Admin, "root").expect("a plain name");
        let submission = Submission { test_only: true, begin, hold, ..world.submission() };
        match world.ask_as(who, Call::Submit(Box::new(submission))).expect("it is possible") {
            Answer::WouldStart { at, reason, .. } => (at, reason),
            other => panic!("{other:?}"),
        }
    };
    let held = Some(Reason::Held { by: "root".to_owned() });
    assert_eq!(would_start(None, true), (None, held));
    assert_eq!(would_start(Some(late), false), (Some(late), Some(Reason::NotBefore { at: late })));
    let (at, reason) = would_start(Some(soon), false);
    assert!(at.is_some_and(|at| at > soon) && matches!(reason, Some(Reason::Blocked { .. })), "{running} runs");
}

/// The view shows what the started job holds for its minute, and the first of the queue after it; not what is behind
/// the second.
#[test]
fn a_waiting_job_sees_what_is_before_it_and_nothing_else() {
    let mut world = World::new();
    world.node("n1", &[]);
    let jobs: Vec<_> = (0..4).map(|_| world.submit(1, 60, &[])).collect();
    let Answer::View(view) = world.ask(Call::Query(Query::View { job: Some(jobs[2]) })) else { panic!("no view") };
    let pairs = |profile: &Profile| profile.pairs_from(world.now);
    assert_eq!(pairs(&view.clusters[0].started), [(Span::from_secs(60), 1)]);
    assert_eq!(pairs(&view.clusters[0].planned), [(Span::from_secs(60), 0), (Span::from_secs(60), 1)]);
}
