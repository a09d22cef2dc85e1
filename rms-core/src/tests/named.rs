//! Jobs that name nodes to use or to avoid: where and when they start.

use std::collections::{BTreeMap, BTreeSet};

use rms_api::Call;
use rms_api::answer::{JobState, Reason};
use rms_api::call::update::Changes;
use rms_api::call::{Nodes, Select, Shape, Submission};
use rms_model::{ExpandLimit, Identity, Inventory, JobId, NodeId, OnResize, Outcome, Role, Span, Time};
use test_kit::{Dice, for_seeds};

use super::evolving::profile;
use super::negotiate::malleable;
use super::{NullJournal, World};
use crate::Event;

const POLICIES: [&str; 5] = ["views", "fcfs", "easy", "conservative", "slowdown"];

fn names<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.map(str::to_owned).into()
}

/// Creates nodes n1, n2 and so on, of four cores, allocated as wholes or by cores.
fn world(policy: &str, allocation: &str, n_nodes: u32) -> World {
    let mut world = World::new();
    world.set("policy", policy);
    world.set("allocation", allocation);
    for number in 1..=n_nodes {
        world.joins(&format!("n{number}"), Inventory { cores: 4, cpus: 4, ..Inventory::default() }, Vec::new());
    }
    world
}

impl World {
    fn with_names(&mut self, n_nodes: u32, secs: i64, change: impl FnOnce(&mut Submission)) -> JobId {
        self.submit_with(|submission| {
            submission.shapes = vec![Shape { nodes: Nodes::Count(n_nodes), wall: Some(Span::from_secs(secs)) }];
            submission.n_tasks = Some(n_nodes);
            submission.cpus_per_task = 4;
            change(submission);
        })
    }

    fn on<const N: usize>(&mut self, n_nodes: u32, secs: i64, nodelist: [&str; N]) -> JobId {
        self.with_names(n_nodes, secs, |submission| submission.constraint.nodelist = names(nodelist))
    }

    fn node_names(&self, job: JobId) -> Vec<String> {
        let state = self.rms.state();
        let mut names = state.node_names(state.jobs().get(&job).expect("it is in the system").nodes());
        names.sort_unstable();
        names
    }

    fn estimate(&mut self, job: JobId) -> i64 {
        let now = self.now;
        self.line(job).estimate.expect("it is planned").since(now).as_millis() / 1000
    }
}

#[test]
fn a_job_has_nodes_that_it_names_and_none_that_it_excludes() {
    for (policy, allocation) in POLICIES.iter().flat_map(|policy| [(*policy, "nodes"), (*policy, "cores")]) {
        let mut world = world(policy, allocation, 5);
        let both = world.on(2, 100, ["n2", "n5"]);
        assert_eq!(world.node_names(both), ["n2", "n5"], "{policy} {allocation}");
        let one = world.on(1, 100, ["n2", "n4", "n5"]);
        assert_eq!(world.node_names(one), ["n4"], "{policy} {allocation}: of its three the free one");
        let not = world.with_names(1, 100, |submission| submission.constraint.exclude = names(["n1"]));
        assert_eq!(world.node_names(not), ["n3"], "{policy} {allocation}");
        // A node is free, but not one of these.
        let waits = world.on(1, 50, ["n2"]);
        assert_eq!((world.node_names(waits).len(), world.estimate(waits)), (0, 100), "{policy} {allocation}");
        let behind = world.on(1, 50, ["n1", "n2"]);
        let expected: &[&str] = if policy == "fcfs" { &[] } else { &["n1"] };
        assert_eq!(world.node_names(behind), expected, "{policy} {allocation}");
        world.now += Span::from_secs(100);
        world.ends(both);
        world.event(Event::Tick);
        assert_eq!(world.node_names(waits), ["n2"], "{policy} {allocation}");
    }
}

#[test]
fn nobody_behind_takes_the_only_node_that_a_job_waits_for() {
    for (policy, allocation) in
        ["easy", "conservative"].iter().flat_map(|policy| [(*policy, "nodes"), (*policy, "cores")])
    {
        let mut world = world(policy, allocation, 3);
        let holder = world.on(1, 100, ["n1"]);
        // It waits for n1 and n2.
        let waits = world.on(2, 100, ["n1", "n2"]);
        let long = world.on(1, 500, ["n2"]);
        assert_eq!(world.node_names(long).len(), 0, "{policy} {allocation}: n2 is kept");
        let short = world.on(1, 50, ["n2"]);
        assert_eq!(world.node_names(short), ["n2"], "{policy} {allocation}: it is over in time");
        let any = world.with_names(1, 500, |_| {});
        assert_eq!(world.node_names(any), ["n3"], "{policy} {allocation}");
        assert_eq!(world.estimate(waits), 100, "{policy} {allocation}");
        world.now += Span::from_secs(100);
        world.ends(holder);
        world.ends(short);
        world.event(Event::Tick);
        assert_eq!(world.node_names(waits), ["n1", "n2"], "{policy} {allocation}");
    }
}

#[test]
fn names_hold_together_with_neighbours_and_growth() {
    for allocation in ["nodes", "cores"] {
        let mut world = world("easy", allocation, 6);
        let job = world.with_names(2, 100, |submission| {
            submission.constraint.exclude = names(["n2", "n4"]);
            submission.resources.contiguous = true;
        });
        assert_eq!(world.node_names(job), ["n5", "n6"], "{allocation}: all others have a gap");
        let grows = world.submit_with(|submission| {
            submission.shapes = vec![Shape { nodes: Nodes::Count(1), wall: Some(Span::from_secs(100)) }];
            submission.malleable = Some(malleable(1, 6, OnResize::Negotiates));
            submission.cpus_per_task = 1;
            submission.constraint.nodelist = names(["n1", "n3", "n5"]);
        });
        assert_eq!(world.node_names(grows), ["n1"], "{allocation}");
        let state = world.rms.state();
        let cluster = state.nodes().values().next().expect("there are nodes").cluster;
        let free: Vec<String> = state.node_names(&crate::plan::free_for(state, grows, cluster, 6));
        assert_eq!(free, ["n3"], "{allocation}");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let mut world = world("easy", "nodes", 3);
    let refused = world.refused(|submission| submission.constraint.nodelist = names(["n1", "n9"]));
    assert_eq!(refused, "there is no node 'n9'; 'rms nodes' lists them");
    let refused = world.refused(|submission| submission.constraint.exclude = names(["x"]));
    assert_eq!(refused, "there is no node 'x'; 'rms nodes' lists them");
    let refused = world.refused(|submission| {
        submission.shapes = vec![Shape { nodes: Nodes::Count(3), wall: None }];
        submission.constraint.nodelist = names(["n1", "n2"]);
    });
    assert_eq!(refused, "3 nodes among n[1-2] are needed, but cluster c has 2");
    let refused = world.refused(|submission| submission.constraint.exclude = names(["n1", "n2", "n3"]));
    assert_eq!(refused, "1 node without n[1-3] is needed, but cluster c has 0");
    let refused = world.refused(|submission| {
        submission.evolving = Some(profile("1x50s,3x50s", ExpandLimit::NONE, false));
        submission.constraint.nodelist = names(["n1", "n2"]);
    });
    assert!(refused.contains("2 in cluster c among n[1-2]"), "{refused}");
    let refused = world.refused(|submission| {
        submission.constraint.nodelist = (0..1025).map(|number| format!("n{number}")).collect();
    });
    assert!(refused.contains("1024 nodes"), "{refused}");
}

#[test]
fn names_are_changed_while_a_job_waits() {
    let mut world = world("conservative", "cores", 2);
    let first = world.on(1, 100, ["n1"]);
    let job = world.on(1, 50, ["n1"]);
    assert_eq!(world.estimate(job), 100);
    let update = |world: &mut World, changes| {
        let who = Identity::new(Role::Admin, "root").expect("a plain name");
        world.ask_as(who, Call::Update { select: Select::Ids(vec![job]), changes: Box::new(changes) })
    };
    let refusal = update(&mut world, Changes { nodelist: Some(names(["n3"])), ..Changes::default() });
    assert!(format!("{refusal:?}").contains("n3"), "{refusal:?}");
    update(&mut world, Changes { nodelist: Some(names(["n2"])), ..Changes::default() }).expect("it is allowed");
    world.event(Event::Tick);
    assert_eq!(world.node_names(job), ["n2"]);
    let refusal = update(&mut world, Changes { exclude: Some(names(["n1"])), ..Changes::default() });
    assert!(format!("{refusal:?}").contains("wrong_state"), "only while it waits: {refusal:?}");
    let last = world.on(1, 50, ["n1"]);
    world.ask(Call::Drain { nodes: vec!["n1".to_owned()], reason: "fan".to_owned() });
    world.ends(first);
    world.event(Event::Tick);
    assert_eq!(world.line(last).state, JobState::Waiting);
    assert!(
        matches!(world.line(last).reason, Some(Reason::TooFewNodes { wanted: 1, usable: 0, .. })),
        "{:?}",
        world.line(last).reason
    );
}

/// Random jobs with names under `conservative`: each runs for its wall time, and none starts later than promised.
#[test]
fn promises_are_kept_to_jobs_that_name_nodes() {
    keeps_promises(40);
}

#[test]
fn long_promises_are_kept_to_jobs_that_name_nodes() {
    keeps_promises(500);
}

fn keeps_promises(n_seeds: u64) {
    for_seeds("promises_are_kept_to_jobs_that_name_nodes", n_seeds, |dice| {
        let allocation = dice.one_of(&["nodes", "cores"]);
        let n_nodes = dice.number(2, 5);
        let mut world = world("conservative", allocation, n_nodes);
        let mut ends: BTreeMap<JobId, Time> = BTreeMap::new();
        let mut first_promises: BTreeMap<JobId, Time> = BTreeMap::new();
        for _ in 0..40 {
            if dice.chance(60) {
                submit_some(dice, &mut world, n_nodes, allocation);
            } else {
                let promise = world.rms.state().next_promise(world.now);
                let next = ends.values().copied().chain(promise).min().unwrap_or(world.now);
                world.now = next.clamp(world.now, world.now + Span::from_secs(dice.number(1, 30).into()));
            }
            let due: Vec<JobId> = ends.iter().filter(|(_, end)| **end <= world.now).map(|(job, _)| *job).collect();
            for job in due {
                ends.remove(&job);
                let run = world.rms.state().jobs()[&job].run;
                // Those that end now end before the next plan.
                let done = Event::ApplicationDone { job, run, outcome: Outcome::Completed };
                let Ok(_) = world.rms.handle(world.now, done).commit(&mut NullJournal);
            }
            world.event(Event::Tick);
            let state = world.rms.state();
            for (job, entry) in state.jobs() {
                if let Some(started) = entry.started() {
                    let promised = first_promises.get(job).copied().unwrap_or(Time::NEVER);
                    assert!(started.at <= promised, "{job} starts at {:?}, promised {promised:?}", started.at);
                    let is_allowed = |node: &NodeId| entry.spec.constraint.allows(&state.nodes()[node].name);
                    assert!(entry.nodes().iter().all(is_allowed), "{entry:?}");
                    ends.entry(*job).or_insert(started.at + started.request.wall);
                } else if let Some(promise) = &entry.promised {
                    first_promises.entry(*job).or_insert(promise.at);
                }
            }
        }
    });
}

fn submit_some(dice: &mut Dice, world: &mut World, n_nodes: u32, allocation: &str) {
    let all = (1..=n_nodes).map(|number| format!("n{number}"));
    let [percent, percent_not] = dice.one_of(&[[0, 0], [50, 0], [50, 20], [0, 30]]);
    // Where nodes are allocated whole, jobs that only exclude some are planned by counts, as those with features are.
    let percent_not = if allocation == "nodes" && percent == 0 { 0 } else { percent_not };
    let nodelist: BTreeSet<String> = all.clone().filter(|_| dice.chance(percent)).collect();
    let exclude: BTreeSet<String> = all.filter(|_| dice.chance(percent_not)).collect();
    let n_allowed = match nodelist.is_empty() {
        true => n_nodes as usize - exclude.len(),
        false => nodelist.difference(&exclude).count(),
    };
    if n_allowed > 0 {
        let secs = i64::from(dice.number(1, 8)) * 10;
        let cpus = dice.number(1, 4);
        let is_contiguous = n_allowed == n_nodes as usize && dice.chance(30);
        world.with_names(dice.number(1, n_allowed as u32), secs, |submission| {
            submission.cpus_per_task = cpus;
            submission.resources.contiguous = is_contiguous;
            (submission.constraint.nodelist, submission.constraint.exclude) = (nodelist, exclude);
        });
    }
}
