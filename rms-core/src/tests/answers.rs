//! Queries about the queue agree, whichever query is used.

use rms_api::answer::{Answer, Reason};
use rms_api::call::{Nodes, Select, Shape, Submission};
use rms_api::{Call, Query};
use rms_model::{Identity, Mebibytes, Profile, Request, Role, Span, Time};

use super::World;
use super::sharing::shared;

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
            Answer::WouldStart { at, reason, now, .. } => {
                assert_eq!(now, Some(world.now), "the clock by which that is soon");
                (at, reason)
            }
            other => panic!("{other:?}"),
        }
    };
    let held = Some(Reason::Held { by: "root".to_owned() });
    assert_eq!(would_start(None, true), (None, held));
    assert_eq!(would_start(Some(late), false), (Some(late), Some(Reason::NotBefore { at: late })));
    let (at, reason) = would_start(Some(soon), false);
    assert!(at.is_some_and(|at| at > soon) && matches!(reason, Some(Reason::Blocked { .. })), "{running} runs");
}

#[test]
fn a_job_that_would_wait_is_told_the_same_as_one_that_waits() {
    let ask = |submission: &mut Submission, cores: u32, memory: u64, licences: u32| {
        (submission.n_tasks, submission.cpus_per_task) = (Some(1), cores);
        submission.constraint.memory = Mebibytes(memory);
        submission.resources.licences.add("matlab", licences);
    };
    let mut world = shared(&[(8, 0), (8, 0)]);
    world.set("licences@c", "matlab:2");
    for _ in 0..2 {
        world.submit_with(|submission| ask(submission, 1, 5000, 1));
    }
    for (memory, licences) in [(6000, 0), (0, 2)] {
        let mut submission = Submission { test_only: true, ..world.submission() };
        ask(&mut submission, 1, memory, licences);
        let Answer::WouldStart { at, reason, .. } = world.ask(Call::Submit(Box::new(submission))) else {
            panic!("no estimate")
        };
        let waits = world.submit_with(|submission| ask(submission, 1, memory, licences));
        let Answer::Detail { jobs, .. } = world.ask(Call::Query(Query::Explain(Select::Ids(vec![waits])))) else {
            panic!("no details")
        };
        let line = &jobs[0].line;
        let is_named = match &reason {
            Some(Reason::Blocked { short: Some(short), licence, .. }) => {
                licence.is_some() == (licences > 0) && (short.with_memory == 0) == (memory > 0)
            }
            _ => false,
        };
        assert!(is_named, "{reason:?}");
        assert_eq!((&at, &reason), (&line.estimate, &line.reason));
        world.ask(Call::Cancel { select: Select::Ids(vec![waits]) });
    }
}

/// The sizes do not affect each other, nor which of them is chosen.
#[test]
fn each_of_several_sizes_would_start_when_it_would_alone() {
    let shape = |nodes, secs| Shape { nodes: Nodes::Count(nodes), wall: Some(Span::from_secs(secs)) };
    let shapes: Vec<Shape> = [(1, 500), (2, 60), (3, 40), (4, 30)].map(|(nodes, secs)| shape(nodes, secs)).into();
    let ask = |world: &mut World, cpus_per_task: Option<u32>, shapes: &[Shape]| {
        let mut submission = Submission { test_only: true, shapes: shapes.to_vec(), ..world.submission() };
        if let Some(cpus) = cpus_per_task {
            (submission.n_tasks, submission.cpus_per_task) = (Some(4), cpus);
        }
        match world.ask(Call::Submit(Box::new(submission))) {
            Answer::WouldStart { request, at, sizes, .. } => (request, at, sizes),
            other => panic!("{other:?}"),
        }
    };
    let mut on_nodes = World::new();
    for name in ["n1", "n2", "n3", "n4"] {
        on_nodes.node(name, &[]);
    }
    on_nodes.submit(3, 100, &[]);
    let mut on_cores = shared(&[(8, 0), (8, 0), (8, 0), (8, 0)]);
    for n_tasks in [7, 8] {
        on_cores.submit_with(|submission| (submission.n_tasks, submission.cpus_per_task) = (Some(n_tasks), 1));
    }
    for policy in ["views", "fcfs", "easy", "conservative"] {
        for (world, cpus) in [(&mut on_nodes, None), (&mut on_cores, Some(2))] {
            world.set("policy", policy);
            let (chosen, at, sizes) = ask(world, cpus, &shapes);
            assert_eq!(sizes.len(), shapes.len(), "{policy}");
            for (shape, size) in shapes.iter().zip(&sizes) {
                let (request, at, none) = ask(world, cpus, std::slice::from_ref(shape));
                assert_eq!((&(request, at), none), (size, Vec::new()), "{policy}");
            }
            let end = |(request, at): &(Request, Option<Time>)| at.map(|at| at + request.wall);
            assert_eq!(sizes.iter().map(end).min(), Some(end(&(chosen, at))), "{policy}: the one that ends first");
        }
    }
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
