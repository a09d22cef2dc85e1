//! Queries about the queue agree, whichever query is used.

use rms_api::answer::{Answer, JobState, Reason};
use rms_api::call::{Nodes, Select, Shape, Submission};
use rms_api::{Call, Query};
use rms_model::{Identity, Malleable, Mebibytes, OnResize, Profile, Request, Role, Sizes, Span, Speedup, Time};

use test_kit::for_seeds;

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
fn the_command_that_resizes_a_job_is_read_by_its_owner_alone() {
    let mut world = World::new();
    world.node("n1", &[]);
    let on_resize = OnResize::Hook("./resize.sh --token=secret".to_owned());
    let sizes = (Sizes::Any, Speedup::default());
    let malleable = Malleable { least: 1, most: 2, sizes: sizes.0, on_resize, speedup: sizes.1, survives_loss: None };
    let job = world.submit_with(|submission| submission.malleable = Some(malleable));
    let mut read_by = |name: &str| {
        let who = Identity::new(Role::User, name).expect("a plain name");
        match world.ask_as(who, Call::Query(Query::Job(Select::Ids(vec![job])))).expect("all may look") {
            Answer::Detail { mut jobs, .. } => jobs.remove(0).spec.malleable.clone().expect("it is").on_resize,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(read_by("root"), OnResize::Hook("./resize.sh --token=secret".to_owned()));
    assert_eq!(read_by("bob"), OnResize::Hook("./resize.sh".to_owned()));
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
    world.ask(Call::Cancel { select: Select::Ids(vec![running]) });
    world.node("n2", &[]);
    let submission = Submission { test_only: true, begin: Some(world.now), ..world.submission() };
    let Answer::WouldStart { at, reason, .. } = world.ask(Call::Submit(Box::new(submission))) else {
        panic!("no estimate")
    };
    assert_eq!((at, reason), (Some(world.now), None), "its begin is not what it waits for");
}

/// What is free now may be planned for others at its begin.
#[test]
fn a_job_would_start_after_its_begin_where_others_leave_it_room() {
    let mut world = World::new();
    for name in ["n1", "n2", "n3", "n4"] {
        world.node(name, &[]);
    }
    let begin = world.now + Span::from_secs(10);
    let shapes = |nodes, secs| vec![Shape { nodes: Nodes::Count(nodes), wall: Some(Span::from_secs(secs)) }];
    world.submit(1, 8, &[]);
    let blocker = world.submit(4, 20, &[]);
    for policy in ["views", "fcfs", "easy", "conservative"] {
        world.set("policy", policy);
        let applicant = Submission { test_only: true, shapes: shapes(2, 5), begin: Some(begin), ..world.submission() };
        let Answer::WouldStart { at, reason, .. } = world.ask(Call::Submit(Box::new(applicant))) else {
            panic!("no estimate")
        };
        assert_eq!(at, Some(world.now + Span::from_secs(28)), "{policy}: behind job {blocker}");
        assert!(matches!(reason, Some(Reason::Blocked { .. } | Reason::Behind { .. })), "{policy}: {reason:?}");
    }
}

/// An estimate is that of the queue which the job would join: at its priority, and with the policy's order.
#[test]
fn a_job_would_start_when_the_queue_says_once_it_is_there() {
    for_seeds("a_job_would_start_when_the_queue_says", 12, |dice| {
        for policy in ["views", "fcfs", "easy", "conservative", "slowdown"] {
            let mut on_nodes = World::new();
            for name in ["n1", "n2", "n3", "n4"] {
                on_nodes.node(name, &[]);
            }
            let on_cores = shared(&[(8, 0), (8, 0), (8, 0), (8, 0)]);
            for (mut world, cpus) in [(on_nodes, 1), (on_cores, 8)] {
                world.set("policy", policy);
                for _ in 0..10 {
                    let (nodes, secs) = (1 + dice.below(4) as u32, 60 * (1 + dice.below(60) as i64));
                    let mut submission = world.submission();
                    submission.shapes = vec![Shape { nodes: Nodes::Count(nodes), wall: Some(Span::from_secs(secs)) }];
                    submission.priority = dice.below(3) as i32;
                    submission.n_tasks = Some(nodes);
                    submission.cpus_per_task = 1 + dice.below(cpus) as u32;
                    let asked = Submission { test_only: true, ..submission.clone() };
                    let Answer::WouldStart { at, .. } = world.ask(Call::Submit(Box::new(asked))) else {
                        panic!("no estimate")
                    };
                    let job = world.submit_with(|own| *own = submission);
                    let line = world.line(job);
                    let expected = if line.state == JobState::Started { Some(world.now) } else { line.estimate };
                    assert_eq!(at, expected, "{policy}, job {job}");
                }
            }
        }
    });
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

#[test]
fn a_job_that_is_only_tested_meets_the_limits_of_its_user() {
    let mut world = World::new();
    world.node("n1", &[]);
    world.set("job_limit", "1");
    let mut submit = |test_only: bool| {
        let submission = Submission { test_only, ..world.submission() };
        let ada = Identity::new(Role::User, "ada").expect("a plain name");
        world.ask_as(ada, Call::Submit(Box::new(submission)))
    };
    assert!(matches!(submit(true), Ok(Answer::WouldStart { .. })));
    submit(false).expect("it is the first one");
    for test_only in [false, true] {
        let refused = submit(test_only).expect_err("one is the limit");
        assert!(matches!(refused, rms_api::Refusal::JobLimit { used: 1, max: 1 }), "{test_only}: {refused}");
    }
}
