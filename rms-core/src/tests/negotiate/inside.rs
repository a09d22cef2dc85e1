//! Memory, devices and licences of running applications: given back, gained again, and checked beside what else is
//! negotiated.

use negotiation::{Direction, Ending, Item, Phase, Reason, Resource, SetRule, Terms};
use rms_api::call::{Nodes, Shape};
use rms_api::desired::{AgentHello, JobReport, JobStatus, NodeExit, NodeReport};
use rms_api::negotiate::{Ask, AskOutcome, Asked};
use rms_api::{Answer, Call};
use rms_model::{ClusterId, Devices, Grant, Inventory, JobId, Mebibytes, NodeId, OnResize, Outcome, Span, Usage};

use super::{Scene, malleable, nodes};
use crate::{Effect, Event};

fn hour() -> Span {
    Span::from_hours(1)
}

/// Creates shared nodes of four cores, 1,000 MiB and four GPUs, and five licences.
fn scene(n_nodes: u32) -> Scene {
    let mut scene = Scene::new(0);
    for number in 1..=n_nodes {
        let hello = AgentHello {
            cluster: "c".to_owned(),
            address: "127.0.0.1:1".to_owned(),
            inventory: Inventory {
                cores: 4,
                cpus: 4,
                memory: Mebibytes(1000),
                devices: "gpu:a100:4".parse().expect("devices"),
                ..Inventory::default()
            },
            trouble: None,
        };
        let report = NodeReport::default();
        scene.event(Event::AgentConnected { name: format!("n{number}"), hello, report });
    }
    scene.set("allocation", "cores");
    scene.set("licences@c", "matlab:5");
    scene
}

fn mins(count: i64) -> Span {
    Span::from_mins(count)
}

fn memory() -> Asked {
    Asked::Memory { cluster: None }
}

fn gpus() -> Asked {
    Asked::Devices { cluster: None, name: "gpu".to_owned() }
}

fn matlab() -> Asked {
    Asked::Licences { cluster: None, name: "matlab".to_owned() }
}

fn text(part: &Grant) -> String {
    let devices: Vec<String> = part.devices.iter().map(|(name, indices)| format!("{name} {indices}")).collect();
    format!("{} {}", part.memory.0, devices.join(",")).trim().to_owned()
}

impl Scene {
    /// Submits a job of one core on each of its nodes, which may have one to four of them.
    fn shares(&mut self, n_nodes: u32, memory: u64, gpus: u32, licences: u32, wall: Span) -> JobId {
        self.takes(n_nodes, 1, memory, gpus, licences, wall)
    }

    fn takes(&mut self, n_nodes: u32, cores: u32, memory: u64, gpus: u32, licences: u32, wall: Span) -> JobId {
        let mut submission = self.world.submission();
        submission.shapes = vec![Shape { nodes: Nodes::Count(n_nodes), wall: Some(wall) }];
        submission.n_tasks = Some(n_nodes);
        submission.cpus_per_task = cores;
        submission.constraint.memory = Mebibytes(memory);
        submission.resources.devices.add("gpu", gpus);
        submission.resources.licences.add("matlab", licences);
        submission.malleable = Some(malleable(1, 4, OnResize::Negotiates));
        match self.call(Call::Submit(Box::new(submission))) {
            Ok(Answer::Submitted { job }) => job,
            other => panic!("not submitted: {other:?}"),
        }
    }

    fn asks(&mut self, job: JobId, direction: Direction, what: Asked, quantity: u64) -> Option<AskOutcome> {
        let ticket = self.ask(job, Ask { what, ..nodes(direction, quantity, quantity) });
        self.outcome(ticket)
    }

    fn gives(&mut self, job: JobId, what: Asked, quantity: u64) -> bool {
        matches!(self.asks(job, Direction::Shrink, what, quantity), Some(AskOutcome::Ready { .. }))
    }

    fn gets(&mut self, job: JobId, what: Asked, quantity: u64) -> bool {
        matches!(self.asks(job, Direction::Grow, what, quantity), Some(AskOutcome::Ready { .. }))
    }

    fn why_not(&mut self, job: JobId, direction: Direction, what: Asked, quantity: u64) -> Option<Reason> {
        match self.asks(job, direction, what, quantity) {
            Some(AskOutcome::Failed { reason, .. }) => Some(reason),
            Some(AskOutcome::Ready { .. }) | None => None,
        }
    }

    /// Returns the memory and GPUs that no other job may have, node by node.
    fn rest(&self, job: JobId) -> Vec<String> {
        let state = self.world.rms.state();
        let part = |node: &NodeId| state.jobs()[&job].part_of(*node, &state.nodes()[node].inventory);
        let nodes = state.jobs()[&job].nodes().iter();
        nodes.map(|node| part(node).map_or("all".to_owned(), |part| text(&part))).collect()
    }

    /// Returns the same as the agents are told.
    fn rest_told(&mut self, job: JobId) -> Vec<String> {
        let desired = self.world.rms.context.desired(NodeId(self.held(job)[0]));
        let launch = &desired.jobs.iter().find(|wanted| wanted.job == job).expect("it runs there").launch;
        launch.nodes.iter().map(|node| node.grant.as_ref().map_or("all".to_owned(), text)).collect()
    }

    fn n_licences_of(&self, job: JobId) -> u32 {
        self.world.rms.state().jobs()[&job].licences_on(ClusterId(0)).count("matlab")
    }

    /// Returns the licences that a job is shown to have, of each cluster.
    fn licences_shown(&mut self, job: JobId) -> Vec<String> {
        self.world.detail(job).licences.values().map(Devices::to_string).collect()
    }
}

#[test]
fn who_gives_back_more_than_it_has_is_told_how_much_it_has_where() {
    let mut scene = scene(2);
    let job = scene.shares(2, 800, 1, 2, hour());
    let mut check = |what: Asked, quantity: u64, expected: &str| {
        let ask = Ask { what, ..nodes(Direction::Shrink, quantity, quantity) };
        let refused = scene.call(Call::Negotiate { job, ask }).expect_err("it has less");
        assert_eq!(refused.to_string(), format!("job {job} cannot give back {expected}"));
    };
    check(memory(), 1024, "1024 MiB of memory: it has 800 MiB of memory on each of n[1-2]");
    check(Asked::Cores { cluster: None }, 2, "2 cores: it has 1 core on each of n[1-2]");
    check(gpus(), 2, "2 gpu: it has 1 gpu on each of n[1-2]");
    check(matlab(), 3, "3 licences of matlab: it has 2 licences of matlab of cluster c");
    check(Asked::Nodes { cluster: None }, 3, "3 nodes: it has 2 nodes of cluster c");

    let fewer = Ask { what: memory(), nodes: vec!["n2".to_owned()], ..nodes(Direction::Shrink, 300, 300) };
    let ticket = scene.ask(job, fewer);
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { .. })));
    let ask = Ask { what: memory(), ..nodes(Direction::Shrink, 600, 600) };
    let refused = scene.call(Call::Negotiate { job, ask }).expect_err("it has less").to_string();
    assert_eq!(refused, format!("job {job} cannot give back 600 MiB of memory: it has 500 MiB of memory on node n2"));
}

#[test]
fn memory_that_is_given_back_serves_others_at_once() {
    ["views", "fcfs", "easy", "conservative"].into_iter().for_each(memory_serves_others);
}

fn memory_serves_others(policy: &str) {
    let mut scene = scene(2);
    scene.set("policy", policy);
    let job = scene.shares(2, 800, 0, 0, hour());
    let guest = scene.shares(2, 500, 0, 0, hour());
    assert!(!scene.is_started(guest));
    assert!(scene.gives(job, memory(), 300));
    assert!(scene.is_started(guest));
    assert_eq!((scene.rest(job), scene.rest_told(job)), (vec!["500".to_owned(); 2], vec!["500".to_owned(); 2]));
    assert_eq!(scene.why_not(job, Direction::Grow, memory(), 1), Some(Reason::NoResources));
    scene.cancel(guest);
    assert!(scene.gets(job, memory(), 500));
    assert_eq!(scene.rest(job), ["1000", "1000"]);
    scene.is_durable();
}

#[test]
fn who_has_given_memory_back_runs_out_of_what_it_has_left() {
    let mut scene = scene(1);
    let job = scene.shares(1, 800, 0, 0, hour());
    assert!(scene.gives(job, memory(), 300));
    let (run, at) = (scene.world.rms.state().jobs()[&job].run, scene.world.now);
    let status = JobStatus::Ended { at, exit: NodeExit::OutOfMemory, usage: Usage::default() };
    let report = NodeReport { jobs: vec![JobReport { job, run, status }], ..NodeReport::default() };
    let effects = scene.world.event(Event::AgentReported { name: "n1".to_owned(), report });
    let outcome = effects.into_iter().find_map(|effect| match effect {
        Effect::Announce(change) if change.job == job => change.outcome,
        _other => None,
    });
    assert_eq!(outcome, Some(Outcome::OutOfMemory { node: "n1".to_owned(), limit: Mebibytes(500) }));
}

/// Its tasks needed all cores, so nobody else could use the rest of its node.
#[test]
fn who_gives_back_cores_of_a_node_that_it_filled_keeps_what_it_asked_for() {
    let mut scene = scene(1);
    let job = scene.takes(1, 4, 300, 0, 0, hour());
    let other = scene.takes(1, 1, 600, 2, 0, hour());
    assert!(!scene.is_started(other));
    assert!(scene.gets(job, memory(), 100));
    assert_eq!((scene.rest(job), scene.rest_told(job)), (vec!["400".to_owned()], vec!["400".to_owned()]));
    assert!(scene.gives(job, Asked::Cores { cluster: None }, 2));
    assert!(scene.is_started(other));
    assert_eq!(scene.rest(other), ["600 gpu:a100 0-1"]);

    let mut scene = self::scene(1);
    let job = scene.takes(1, 4, 300, 0, 0, hour());
    let other = scene.takes(1, 1, 600, 2, 0, hour());
    let ask = Ask { what: gpus(), ..nodes(Direction::Shrink, 1, 1) };
    assert!(scene.call(Call::Negotiate { job, ask }).is_err(), "it never had any");
    assert!(scene.gives(job, Asked::Cores { cluster: None }, 2));
    assert!(scene.is_started(other));
    assert_eq!((scene.rest(job), scene.rest_told(job)), (vec!["300".to_owned()], vec!["300".to_owned()]));
}

#[test]
fn devices_that_are_given_back_serve_others_at_once() {
    let mut scene = scene(1);
    let job = scene.shares(1, 10, 3, 0, hour());
    let guest = scene.shares(1, 10, 2, 0, hour());
    assert!(!scene.is_started(guest));
    assert!(scene.gives(job, gpus(), 2));
    assert!(scene.is_started(guest));
    assert_eq!(
        (scene.rest(job).join(""), scene.rest(guest).join("")),
        ("10 gpu:a100 0".into(), "10 gpu:a100 1-2".into())
    );
    assert!(scene.gets(job, Asked::Devices { cluster: None, name: "gpu:a100".to_owned() }, 1));
    assert_eq!(
        (scene.rest(job).join(""), scene.rest_told(job).join("")),
        ("10 gpu:a100 0,3".into(), "10 gpu:a100 0,3".into())
    );
    // All GPUs may be given back, and there are only four.
    assert!(scene.gives(job, gpus(), 2));
    assert_eq!(scene.rest(job), ["10"]);
    assert_eq!(scene.why_not(job, Direction::Grow, gpus(), 5), Some(Reason::NoResources));
    scene.is_durable();
}

#[test]
fn licences_that_are_given_back_serve_others_at_once() {
    let mut scene = scene(1);
    let job = scene.shares(1, 10, 0, 4, hour());
    let guest = scene.shares(1, 10, 0, 3, hour());
    assert!(!scene.is_started(guest));
    assert!(scene.gives(job, matlab(), 2));
    assert!(scene.is_started(guest));
    assert_eq!((scene.n_licences_of(job), scene.n_licences_of(guest)), (2, 3));
    assert_eq!(scene.why_not(job, Direction::Grow, matlab(), 1), Some(Reason::NoResources));
    scene.cancel(guest);
    assert!(scene.gets(job, matlab(), 3));
    // A job that had none may get some.
    scene.gives(job, matlab(), 5);
    let other = scene.shares(1, 10, 0, 0, hour());
    assert!(scene.gets(other, matlab(), 1) && !scene.gets(job, matlab(), 5) && scene.gets(job, matlab(), 4));
    scene.is_durable();
}

#[test]
fn a_running_job_is_shown_the_licences_that_it_has_now() {
    let mut scene = scene(1);
    let job = scene.shares(1, 10, 0, 4, hour());
    let without = scene.shares(1, 10, 0, 0, hour());
    assert_eq!((scene.licences_shown(job), scene.licences_shown(without)), (vec!["matlab:4".to_owned()], Vec::new()));
    assert!(scene.gives(job, matlab(), 1) && scene.gets(without, matlab(), 1));
    assert_eq!(scene.licences_shown(job), ["matlab:3"]);
    assert_eq!(scene.licences_shown(without), ["matlab:1"]);
    // One that has given all back is shown to have none, and not what it asked for.
    assert!(scene.gives(job, matlab(), 3));
    assert_eq!(scene.licences_shown(job), [""]);
    let waits = scene.shares(1, 10, 0, 5, hour());
    assert!(!scene.is_started(waits) && scene.licences_shown(waits).is_empty());
}

/// The agents of all nodes are told about each change, and what earlier ones gave back is no longer at stake.
#[test]
fn cores_that_were_given_back_stay_with_others_when_something_else_changes() {
    let cores_of = |node: &str| Ask {
        what: Asked::Cores { cluster: None },
        nodes: vec![node.to_owned()],
        ..nodes(Direction::Shrink, 1, 1)
    };
    let changes = [
        Ask { what: memory(), ..nodes(Direction::Shrink, 100, 100) },
        Ask { what: memory(), ..nodes(Direction::Grow, 100, 100) },
        Ask { what: gpus(), ..nodes(Direction::Shrink, 1, 1) },
        Ask { what: gpus(), ..nodes(Direction::Grow, 1, 1) },
        cores_of("n2"),
    ];
    for change in changes {
        let mut scene = scene(2);
        let job = scene.takes(2, 3, 500, 1, 0, hour());
        let asked = scene.ask(job, cores_of("n1"));
        assert!(matches!(scene.outcome(asked), Some(AskOutcome::Ready { .. })));
        // The other node has one core left, which is taken first.
        let [_, neighbour] = [1, 1].map(|cores| scene.guest(1, cores, hour()));
        assert_eq!((scene.parts(job).join(" "), scene.parts(neighbour)), ("0-1 0-2".into(), vec!["2".to_owned()]));
        scene.disconnect(&["n2"]);
        let asked = scene.ask(job, change.clone());
        assert_eq!(scene.outcome(asked), None, "{change:?}");
        assert_eq!(scene.parts(job).join(" "), "0-1 0-2", "{change:?}");
        scene.reconnect(&["n2"]);
        let has = if change.what == memory() || change.what == gpus() { "0-1 0-2" } else { "0-1 0-1" };
        assert_eq!(scene.parts(job).join(" "), has, "{change:?}");
        let next = scene.guest(1, 1, hour());
        assert_eq!((scene.held(next), scene.parts(next)), (vec![1], vec!["3".to_owned()]), "{change:?}");
        scene.cancel(job);
        let last = scene.guest(1, 2, hour());
        assert_eq!(scene.parts(last), ["0-1"], "{change:?}");
        scene.is_durable();
    }
}

/// The processes of one node may still use what is given back, and the negotiation may fail.
#[test]
fn nothing_is_free_before_the_agents_of_all_nodes_have_said_so() {
    let mut scene = scene(2);
    let job = scene.shares(2, 800, 3, 0, hour());
    scene.disconnect(&["n2"]);
    assert_eq!(scene.asks(job, Direction::Shrink, memory(), 300), None);
    let guest = scene.shares(1, 500, 0, 0, hour());
    assert_eq!((scene.is_started(guest), scene.rest(job)), (false, vec!["800 gpu:a100 0-2".into(); 2]));
    assert_eq!(scene.why_not(job, Direction::Grow, gpus(), 1), Some(Reason::NoResources));
    scene.reconnect(&["n2"]);
    assert_eq!((scene.is_started(guest), scene.rest(job)), (true, vec!["500 gpu:a100 0-2".into(); 2]));
    // What an earlier change gave back stays with the job that uses it now.
    scene.disconnect(&["n1"]);
    assert_eq!(scene.asks(job, Direction::Shrink, gpus(), 1), None);
    assert_eq!(scene.rest(job), vec!["500 gpu:a100 0-2".to_owned(); 2]);
    scene.reconnect(&["n1"]);
    assert_eq!(scene.rest(job), vec!["500 gpu:a100 0-1".to_owned(); 2]);
    scene.is_durable();
}

#[test]
fn a_node_that_cannot_do_it_fails_it_everywhere() {
    let mut scene = scene(2);
    let job = scene.shares(2, 800, 3, 0, hour());
    scene.stubborn.insert("n2".to_owned());
    assert_eq!(scene.why_not(job, Direction::Shrink, memory(), 300), Some(Reason::Lost));
    assert_eq!(scene.rest_told(job), vec!["800 gpu:a100 0-2".to_owned(); 2]);
    scene.stubborn.clear();
    scene.node_joins("n2");
    scene.is_durable();
}

#[test]
fn what_cannot_be_is_refused_with_its_reason() {
    let mut scene = scene(1);
    let job = scene.shares(1, 800, 1, 1, hour());
    assert_eq!(scene.why_not(job, Direction::Shrink, memory(), 800), Some(Reason::Policy));
    let refused = |scene: &mut Scene, what, quantity| {
        let ticket = scene.ask(job, Ask { what, ..nodes(Direction::Shrink, quantity, quantity) });
        scene.refusal(ticket).map(|refusal| refusal.to_string()).unwrap_or_default()
    };
    assert!(refused(&mut scene, gpus(), 2).contains("it has 1 gpu on node n1"));
    assert!(refused(&mut scene, matlab(), 2).contains("it has 1 licence of matlab"));
    let badly_named = Asked::Licences { cluster: None, name: "a b".to_owned() };
    let ticket = scene.ask(job, Ask { what: badly_named, ..nodes(Direction::Grow, 1, 1) });
    assert!(scene.refusal(ticket).is_some_and(|refusal| refusal.to_string().contains("named like gpu:a100")));
    // What does not exist is not merely missing now.
    for (what, known) in [
        (
            Asked::Devices { cluster: None, name: "gpu:h100".to_owned() },
            "no node has a device 'gpu:h100'; known devices: gpu:a100:4",
        ),
        (Asked::Licences { cluster: None, name: "ansys".to_owned() }, "'ansys'"),
    ] {
        let ticket = scene.ask(job, Ask { what, wait: hour(), ..nodes(Direction::Grow, 1, 1) });
        let said = scene.refusal(ticket).map(|refusal| refusal.to_string()).unwrap_or_default();
        assert!(said.contains(known), "{said}");
    }
    // Waiting is useless for a request for more than exists.
    for (what, quantity) in [(memory(), 201), (gpus(), 4), (matlab(), 5)] {
        let ticket = scene.ask(job, Ask { what, wait: hour(), ..nodes(Direction::Grow, quantity, quantity) });
        assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Failed { reason: Reason::NoResources, .. })));
    }
    // Without a limit there is nothing to change.
    let unlimited = scene.shares(1, 0, 0, 0, hour());
    assert_eq!(scene.why_not(unlimited, Direction::Grow, memory(), 100), Some(Reason::Policy));
    // Where a node belongs to one job, all its resources do.
    scene.set("allocation", "nodes");
    assert_eq!(scene.why_not(job, Direction::Grow, memory(), 100), Some(Reason::Policy));
}

/// What is free until the job's end may be planned for others after it.
#[test]
fn what_comes_with_more_time_is_checked_for_that_time() {
    for (longer, is_granted) in [(mins(10), true), (mins(40), false)] {
        let mut scene = scene(1);
        let job = scene.shares(1, 200, 0, 1, hour());
        // The waiting job starts in 90 minutes, when the third has ended.
        let _third = scene.shares(1, 500, 0, 0, mins(90));
        let waits = scene.shares(1, 700, 0, 4, mins(60));
        assert!(!scene.is_started(waits));
        scene.attach(job).expect("it may");
        let both = |scene: &Scene| {
            let state = scene.world.rms.state();
            let wall = state.jobs()[&job].started().expect("it runs").request.wall.as_millis().unsigned_abs();
            let millis = longer.as_millis().unsigned_abs();
            let exactly = |resource, held, quantity| {
                let item = Item::up_to(resource, held, quantity);
                Item { terms: Terms::exactly(item.quantity), ..item }
            };
            let memory = exactly(Resource::Memory(ClusterId(0)), 200, 300);
            vec![memory, exactly(Resource::Time, wall, millis)]
        };
        let (now, items) = (scene.world.now, both(&scene));
        let opened = scene.app(job).dialogues.open(now, Direction::Grow, vec![SetRule::All], items, mins(5));
        let (id, output) = opened.expect("it may open one");
        scene.speak(job, output);
        let is_applied = scene.app_phase(job, id) == Phase::Applied;
        assert_eq!(is_applied, is_granted, "{longer} longer: {:?}", scene.app_phase(job, id));
        scene.is_durable();
    }
}

/// Cores, memory and licences in one negotiation, ready together.
#[test]
fn several_of_them_are_one_negotiation() {
    let mut scene = scene(2);
    let job = scene.shares(2, 200, 0, 3, hour());
    scene.attach(job).expect("it may");
    scene.disconnect(&["n2"]);
    let items = vec![
        Item::up_to(Resource::Licences(ClusterId(0), "matlab".to_owned()), 3, 2),
        Item::up_to(Resource::Memory(ClusterId(0)), 200, 100),
    ];
    let open = |scene: &mut Scene, direction, items| {
        let now = scene.world.now;
        let opened = scene.app(job).dialogues.open(now, direction, vec![SetRule::All], items, mins(5));
        let (id, output) = opened.expect("it may open one");
        scene.speak(job, output);
        id
    };
    let id = open(&mut scene, Direction::Shrink, items);
    assert_eq!(scene.app_phase(job, id), Phase::Accepted);
    assert_eq!((scene.n_licences_of(job), scene.rest(job)), (3, vec!["200".to_owned(); 2]), "not yet");
    scene.reconnect(&["n2"]);
    assert_eq!(scene.app_phase(job, id), Phase::Applied);
    assert_eq!((scene.n_licences_of(job), scene.rest(job)), (1, vec!["100".to_owned(); 2]));
    let items = vec![
        Item::up_to(Resource::Cores(ClusterId(0)), 1, 2),
        Item::up_to(Resource::Memory(ClusterId(0)), 100, 900),
        Item::up_to(Resource::Devices(ClusterId(0), "gpu".to_owned()), 0, 2),
        Item::up_to(Resource::Licences(ClusterId(0), "matlab".to_owned()), 1, 4),
    ];
    let id = open(&mut scene, Direction::Grow, items);
    assert_eq!(scene.app_phase(job, id), Phase::Applied);
    assert_eq!((scene.n_licences_of(job), scene.rest(job)), (5, vec!["1000 gpu:a100 0-1".to_owned(); 2]));
    let holding = scene.app(job).holding_at_ready.clone().expect("it was told");
    let held: Vec<_> = holding.nodes.iter().map(|node| (node.cpus, node.memory.0, node.devices.to_string())).collect();
    assert_eq!(held, vec![(3, 1000, "gpu:a100:2".to_owned()); 2]);
    assert_eq!(holding.licences[&ClusterId(0)].count("matlab"), 5);
    scene.is_durable();
}

/// A growth that fails on one node is rolled back on all.
#[test]
fn what_fails_in_part_is_taken_back_as_a_whole() {
    let mut scene = scene(2);
    let job = scene.shares(2, 200, 0, 1, hour());
    scene.attach(job).expect("it may");
    scene.stubborn.insert("n2".to_owned());
    let items = vec![
        Item::up_to(Resource::Licences(ClusterId(0), "matlab".to_owned()), 1, 2),
        Item::up_to(Resource::Devices(ClusterId(0), "gpu".to_owned()), 0, 1),
        Item::up_to(Resource::Memory(ClusterId(0)), 200, 100),
    ];
    let now = scene.world.now;
    let opened = scene.app(job).dialogues.open(now, Direction::Grow, vec![SetRule::All], items, mins(5));
    let (id, output) = opened.expect("it may open one");
    scene.speak(job, output);
    assert_eq!(scene.app_phase(job, id), Phase::Ended(Ending::Failed));
    assert_eq!((scene.n_licences_of(job), scene.rest_told(job)), (1, vec!["200".to_owned(); 2]));
    scene.stubborn.clear();
    scene.node_joins("n2");
    assert_eq!(scene.rest(job), vec!["200".to_owned(); 2]);
    scene.is_durable();
}

/// The job's cores were a part of the node before, and are that part again.
#[test]
fn cores_that_do_not_come_are_not_had() {
    let mut scene = scene(1);
    let job = scene.shares(1, 200, 0, 0, hour());
    scene.stubborn.insert("n1".to_owned());
    assert_eq!(scene.why_not(job, Direction::Grow, Asked::Cores { cluster: None }, 2), Some(Reason::Lost));
    scene.stubborn.clear();
    scene.node_joins("n1");
    assert_eq!(scene.parts(job), ["0"]);
    assert!(scene.gets(job, Asked::Cores { cluster: None }, 3));
    assert!(!scene.gets(job, Asked::Cores { cluster: None }, 1) && scene.gives(job, Asked::Cores { cluster: None }, 3));
    assert_eq!(scene.parts(job), ["0"]);
    scene.is_durable();
}

/// A new node is shared as the others are, and other jobs may have the rest of it.
#[test]
fn malleable_jobs_take_slices_of_the_nodes_that_come() {
    let mut scene = scene(2);
    let job = scene.shares(1, 400, 1, 0, hour());
    let guest = scene.shares(1, 400, 1, 0, hour());
    assert_eq!((scene.held(job), scene.held(guest)), (vec![1], vec![1]));
    let ticket = scene.ask(job, nodes(Direction::Grow, 1, 1));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { .. })), "{:?}", scene.outcome(ticket));
    assert_eq!((scene.held(job), scene.rest(job)), (vec![1, 2], vec!["400 gpu:a100 0".to_owned(); 2]));
    assert_eq!((scene.rest_told(job), scene.parts(job)), (scene.rest(job), vec!["0".to_owned(); 2]));
    let other = scene.shares(1, 500, 2, 0, hour());
    assert_eq!((scene.held(other), scene.rest(other)), (vec![2], vec!["500 gpu:a100 1-2".to_owned()]));
    let ticket = scene.ask(job, nodes(Direction::Shrink, 1, 1));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { .. })));
    assert_eq!((scene.held(job), scene.rest(job)), (vec![1], vec!["400 gpu:a100 0".to_owned()]));
    assert!(scene.world.rms.state().jobs()[&job].grants().len() == 1, "nothing of the node that it has left");
    // The rest of the node has room for another such part, but not for two.
    let ticket = scene.ask(job, nodes(Direction::Grow, 2, 1));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { quantity: 1, .. })));
    scene.is_durable();
}

/// An offer is held, and is free again when it is declined.
#[test]
fn slices_that_are_offered_are_kept_for_it_alone() {
    let mut scene = scene(2);
    let job = scene.shares(1, 600, 0, 0, hour());
    scene.attach(job).expect("it may");
    scene.set("offer_idle", "equal_share");
    let offered: Vec<_> = scene.world.rms.state().jobs()[&job].promised_nodes().collect();
    assert_eq!(offered, [NodeId(2)]);
    let guest = scene.shares(1, 500, 0, 0, hour());
    assert!(!scene.is_started(guest), "there is room for its memory on neither");
    let small = scene.shares(1, 400, 0, 0, hour());
    assert!(scene.is_started(small), "beside what is kept");
    scene.set("offer_idle", "never");
    scene.after(mins(30));
    assert!(scene.is_started(guest) && scene.world.rms.state().jobs()[&job].grants().len() == 1);
    scene.is_durable();
}
