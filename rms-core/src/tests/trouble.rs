//! Nodes that can start nothing, and processes that are no longer supervised.

use rms_api::Call;
use rms_api::answer::{Answer, JobState};
use rms_api::call::{Nodes, Query, Select, Shape, Submission};
use rms_api::desired::{AgentHello, JobReport, JobStatus, NodeExit, NodeReport};
use rms_model::{Identity, Inventory, Mebibytes, NodeAdmin, NodeId, NodeLink, Outcome, Role, Run, Span, Usage, Work};

use super::World;
use crate::Event;
use crate::effect::Effect;

fn troubled(world: &mut World, reason: Option<&str>) {
    let reason = reason.map(str::to_owned);
    world.event(Event::AgentTroubled { name: "n1".to_owned(), reason });
}

fn admin(world: &World, node: NodeId) -> NodeAdmin {
    world.rms.state().nodes()[&node].admin.clone()
}

#[test]
fn a_node_in_trouble_gets_no_jobs_until_it_is_well() {
    let mut world = World::new();
    let node = world.node("n1", &[]);
    troubled(&mut world, Some("its spool is full"));
    let NodeAdmin::Drain { reason, by, since: _ } = admin(&world, node) else { panic!("{:?}", admin(&world, node)) };
    assert_eq!((reason.as_str(), by.as_str()), ("its spool is full", "the node itself"));
    let job = world.submit(1, 60, &[]);
    assert_eq!(world.line(job).state, JobState::Waiting);
    // A restart of the server does not resume the node.
    world.restart(1);
    assert!(matches!(admin(&world, node), NodeAdmin::Drain { .. }));
    troubled(&mut world, None);
    assert_eq!(admin(&world, node), NodeAdmin::Enabled);
    world.now += Span::from_secs(60);
    world.event(Event::Tick);
}

#[test]
fn a_node_that_says_hello_in_trouble_gets_no_job_before_it_is_drained() {
    let mut world = World::new();
    let node = world.node("n1", &[]);
    world.event(Event::AgentGone { name: "n1".to_owned() });
    let job = world.submit(1, 60, &[]);
    let hello = AgentHello {
        cluster: "c".to_owned(),
        address: "127.0.0.1:1".to_owned(),
        inventory: Inventory::default(),
        trouble: Some("its spool is full".to_owned()),
    };
    world.event(Event::AgentConnected { name: "n1".to_owned(), hello, report: NodeReport::default() });
    assert_eq!(world.line(job).state, JobState::Waiting);
    assert!(matches!(admin(&world, node), NodeAdmin::Drain { by, .. } if by == "the node itself"));
    troubled(&mut world, None);
    assert_ne!(world.line(job).state, JobState::Waiting);
}

#[test]
fn what_an_admin_says_of_a_node_holds_before_what_it_says_itself() {
    let mut world = World::new();
    let node = world.node("n1", &[]);
    world.ask(Call::Drain { nodes: vec!["n1".to_owned()], reason: "fan".to_owned() });
    troubled(&mut world, Some("its spool is full"));
    troubled(&mut world, None);
    assert!(matches!(admin(&world, node), NodeAdmin::Drain { reason, .. } if reason == "fan"));
    // A resumed node that is still in trouble is drained again when it reports it again.
    world.ask(Call::Resume { nodes: vec!["n1".to_owned()] });
    troubled(&mut world, Some("its spool is full"));
    assert!(matches!(admin(&world, node), NodeAdmin::Drain { by, .. } if by == "the node itself"));
}

#[test]
fn a_node_that_has_drained_itself_is_resumed_by_nobody_else() {
    let mut world = World::new();
    let [node, other] = ["n1", "n2"].map(|name| world.node(name, &[]));
    let why = "its kernel does not enforce memory, which must_enforce in agent.toml demands";
    let by_itself =
        |world: &World| matches!(admin(world, node), NodeAdmin::Drain { by, .. } if by == "the node itself");
    let resume = |world: &mut World| {
        let nodes = ["n2", "n1"].map(str::to_owned).to_vec();
        let root = Identity { role: Role::Admin, name: "root".to_owned() };
        world.ask_as(root, Call::Resume { nodes }).map(drop).map_err(|refusal| refusal.to_string())
    };
    troubled(&mut world, Some(why));
    world.ask(Call::Drain { nodes: vec!["n2".to_owned()], reason: "fan".to_owned() });
    let refused = resume(&mut world).expect_err("it can still start nothing");
    assert_eq!(refused, format!("node n1 cannot be resumed, as it has drained itself: {why}; nothing was changed"));
    assert!(by_itself(&world) && admin(&world, other) != NodeAdmin::Enabled, "nothing is resumed");

    // The drain of an admin, and a restart, change nothing of it.
    let out: [fn(Vec<String>) -> Call; 2] = [
        |nodes| Call::Drain { nodes, reason: "fan".to_owned() },
        |nodes| Call::Down { nodes, reason: "smoke".to_owned() },
    ];
    for call in out {
        world.ask(call(vec!["n1".to_owned()]));
        assert!(!by_itself(&world));
        resume(&mut world).expect("the admin takes back what an admin has said");
        assert!(by_itself(&world) && admin(&world, other) == NodeAdmin::Enabled, "{:?}", admin(&world, node));
    }
    world.restart(1);
    resume(&mut world).expect_err("it has not said that it is well");
    troubled(&mut world, None);
    assert_eq!(admin(&world, node), NodeAdmin::Enabled);
    world.ask(Call::Drain { nodes: vec!["n1".to_owned()], reason: "fan".to_owned() });
    resume(&mut world).expect("it is well");
    assert_eq!(admin(&world, node), NodeAdmin::Enabled);
}

#[test]
fn a_node_that_is_named_twice_is_one_node() {
    let mut world = World::new();
    let [first, second] = ["n1", "n2"].map(|name| world.node(name, &[]));
    let twice = ["n1", "n2", "n1"].map(str::to_owned).to_vec();
    world.ask(Call::Drain { nodes: twice.clone(), reason: "fan".to_owned() });
    for name in ["n1", "n2"] {
        world.event(Event::AgentGone { name: name.to_owned() });
    }
    world.ask(Call::Remove { nodes: twice });
    assert!([first, second].iter().all(|node| !world.rms.state().nodes().contains_key(node)));
}

/// Returns the outcome of a job that ended this way on its only node.
fn outcome(world: &mut World, exit: NodeExit, change: impl FnOnce(&mut Submission)) -> Option<Outcome> {
    let job = world.submit_with(change);
    let status = JobStatus::Ended { at: world.now, exit, usage: Usage::default() };
    let report = NodeReport { jobs: vec![JobReport { job, run: Run(1), status }], ..NodeReport::default() };
    let effects = world.event(Event::AgentReported { name: "n1".to_owned(), report });
    effects.into_iter().find_map(|effect| match effect {
        Effect::Announce(change) if change.job == job => change.outcome,
        _other => None,
    })
}

#[test]
fn an_end_has_its_own_words() {
    let check = |exit: NodeExit, expected: Outcome| {
        let mut world = World::new();
        world.node("n1", &[]);
        let ended = outcome(&mut world, exit, |job| job.constraint.memory = Mebibytes(64));
        assert_eq!(ended, Some(expected));
    };
    let node = "n1".to_owned();
    check(NodeExit::OutOfMemory, Outcome::OutOfMemory { node: node.clone(), limit: Mebibytes(64) });
    let reason = "its supervisor was killed".to_owned();
    check(NodeExit::Unsupervised { reason: reason.clone() }, Outcome::Unsupervised { node, reason });
    let reason = "too much output".to_owned();
    check(NodeExit::Violated { reason }, Outcome::Violation { reason: "too much output (on n1)".to_owned() });
}

/// Returns the outcome of a job on two nodes whose shares ended this way, that of its script first.
fn outcome_of_two(is_cancelled: bool, of_script: NodeExit, of_other: NodeExit) -> Option<Outcome> {
    let mut world = World::new();
    for name in ["n1", "n2"] {
        world.node(name, &[]);
    }
    let job = world.submit_with(|job| {
        job.shapes = vec![Shape { nodes: Nodes::Count(2), wall: Some(Span::from_secs(60)) }];
        job.execution.work = Work::Script { script: "true".to_owned(), args: Vec::new() };
        job.constraint.memory = Mebibytes(64);
    });
    let state = world.rms.state();
    assert_eq!(state.jobs()[&job].script_node(), state.node_named("n1"));
    if is_cancelled {
        world.ask(Call::Cancel { select: Select::Ids(vec![job]) });
    }
    let mut told = Vec::new();
    for (name, exit) in [("n1", of_script), ("n2", of_other)] {
        let status = JobStatus::Ended { at: world.now, exit, usage: Usage::default() };
        let report = NodeReport { jobs: vec![JobReport { job, run: Run(1), status }], ..NodeReport::default() };
        told.extend(world.event(Event::AgentReported { name: name.to_owned(), report }));
    }
    told.into_iter().find_map(|effect| match effect {
        Effect::Announce(change) if change.job == job && change.state != JobState::Ending => change.outcome,
        _other => None,
    })
}

#[test]
fn memory_that_ran_out_on_any_node_is_the_outcome_of_a_job_that_ended_by_itself() {
    let check = |of_script: NodeExit, of_other: NodeExit, expected: Outcome| {
        assert_eq!(outcome_of_two(false, of_script, of_other), Some(expected));
    };
    let out_of_memory = Outcome::OutOfMemory { node: "n2".to_owned(), limit: Mebibytes(64) };
    check(NodeExit::Exited { code: 0 }, NodeExit::OutOfMemory, out_of_memory.clone());
    check(NodeExit::Exited { code: 137 }, NodeExit::OutOfMemory, out_of_memory.clone());
    check(NodeExit::Signaled { signal: 13 }, NodeExit::OutOfMemory, out_of_memory);
    check(NodeExit::Exited { code: 0 }, NodeExit::Ordered, Outcome::Completed);
    check(NodeExit::WallTime, NodeExit::OutOfMemory, Outcome::WallTime);
    let cancelled = outcome_of_two(true, NodeExit::Ordered, NodeExit::OutOfMemory);
    assert_eq!(cancelled, Some(Outcome::Cancelled { by: "root".to_owned() }));
}

#[test]
fn a_job_that_may_run_again_waits_if_its_node_is_at_fault_but_not_forever() {
    let unsupervised = NodeExit::Unsupervised { reason: "its supervisor was killed".to_owned() };
    for exit in [NodeExit::at_fault("no space left on device"), unsupervised] {
        for (requeue, n_runs) in [(None, 1), (Some(false), 1), (Some(true), 3)] {
            let mut world = World::new();
            world.node("n1", &[]);
            let job = world.submit_with(|job| job.requeue = requeue);
            for run in 1..=n_runs {
                assert_eq!(world.rms.state().jobs()[&job].run, Run(run), "{requeue:?}, {exit:?}");
                let status = JobStatus::Ended { at: world.now, exit: exit.clone(), usage: Usage::default() };
                let report =
                    NodeReport { jobs: vec![JobReport { job, run: Run(run), status }], ..NodeReport::default() };
                world.event(Event::AgentReported { name: "n1".to_owned(), report });
            }
            assert!(!world.rms.state().jobs().contains_key(&job), "{requeue:?}, {exit:?}");
        }
    }
}

#[test]
fn a_job_that_returned_to_the_queue_says_why_its_last_run_ended() {
    let mut world = World::new();
    world.node("n1", &[]);
    let job = world.submit_with(|job| job.requeue = Some(true));
    let ended_before = |world: &mut World| match world.ask(Call::Query(Query::Job(Select::Ids(vec![job])))) {
        Answer::Detail { mut jobs, .. } => jobs.remove(0).ended_before,
        other => panic!("no details: {other:?}"),
    };
    assert_eq!(ended_before(&mut world), None);
    world.event(Event::AgentGone { name: "n1".to_owned() });
    while !matches!(world.rms.state().nodes()[&NodeId(1)].link, NodeLink::Lost { .. }) {
        world.now += Span::from_secs(10);
        world.event(Event::Tick);
    }
    assert_eq!(world.line(job).state, JobState::Waiting);
    let lost = Some(Outcome::NodeLost { node: "n1".to_owned(), reason: "its agent did not come back".to_owned() });
    assert_eq!(ended_before(&mut world), lost);
    world.restart(1);
    world.node("n2", &[]);
    assert_eq!((world.line(job).state, world.line(job).run), (JobState::Started, Run(2)));
    assert_eq!(ended_before(&mut world), lost, "its second run still tells why there is one");
}

#[test]
fn the_limit_of_memory_is_that_of_the_node_wherever_it_came_from() {
    for allocation in ["nodes", "cores"] {
        let mut world = World::new();
        world.set("allocation", allocation);
        let inventory = Inventory { cores: 4, cpus: 4, memory: Mebibytes(1000), ..Inventory::default() };
        world.joins("n1", inventory, Vec::new());
        let ended = outcome(&mut world, NodeExit::OutOfMemory, |job| {
            (job.n_tasks, job.cpus_per_task, job.resources.memory_per_cpu) = (Some(3), 1, Mebibytes(32));
        });
        let expected = Outcome::OutOfMemory { node: "n1".to_owned(), limit: Mebibytes(96) };
        assert_eq!(ended, Some(expected), "{allocation}");
    }
}
