//! Applications with stages where jobs share nodes: the nodes of later stages are named, and no other job gets them.

use std::collections::BTreeMap;

use rms_api::answer::JobState;
use rms_api::call::{Nodes, Shape};
use rms_api::{Call, Refusal};
use rms_model::{ExpandLimit, Inventory, JobId, Span, Time};

use super::World;
use super::evolving::profile;
use super::sharing::shared;
use crate::state::job::Started;
use test_kit::{Dice, for_seeds};

impl World {
    /// Submits single-core tasks on `nodes` nodes, one on each, for `secs` seconds.
    fn small(&mut self, nodes: u32, secs: i64) -> JobId {
        self.submit_with(|submission| {
            submission.shapes = vec![Shape { nodes: Nodes::Count(nodes), wall: Some(Span::from_secs(secs)) }];
            submission.n_tasks = Some(nodes);
            submission.cpus_per_task = 1;
        })
    }

    /// Submits single-core tasks on one node for `secs` seconds.
    fn tasks(&mut self, n_tasks: u32, secs: i64) -> JobId {
        self.submit_with(|submission| {
            submission.shapes = vec![Shape { nodes: Nodes::Count(1), wall: Some(Span::from_secs(secs)) }];
            submission.n_tasks = Some(n_tasks);
            submission.cpus_per_task = 1;
        })
    }

    /// Ends jobs without stages a second before they must end.
    fn finish_due(&mut self) {
        let due = self.now + Span::from_secs(1);
        let is_due = |job: &JobId| {
            let entry = &self.rms.state().jobs()[job];
            let ends = |started: &Started| started.evolved.is_none() && started.at + started.request.wall <= due;
            entry.started().is_some_and(ends)
        };
        let jobs: Vec<JobId> = self.rms.state().jobs().keys().copied().filter(is_due).collect();
        jobs.into_iter().for_each(|job| self.finish_all(job));
    }

    fn named(&self, job: JobId) -> Vec<u32> {
        let started = self.rms.state().jobs()[&job].started().expect("it runs");
        started.row().iter().map(|node| node.0).collect()
    }
}

#[test]
fn a_small_job_runs_on_a_node_to_come_only_until_it_comes() {
    let mut world = shared(&[(4, 0), (4, 0), (4, 0)]);
    let grows = world.evolving("1x100s,3x50s,1x50s", ExpandLimit::NONE);
    let (short, long) = (world.small(2, 100), world.small(1, 101));
    world.until(1);
    assert_eq!((world.held(grows), world.named(grows)), (vec![1], vec![1, 2, 3]));
    assert_eq!((world.held(short), world.line(long).state), (vec![2, 3], JobState::Waiting));
    world.until(99);
    world.finish_all(short);
    assert_eq!(world.line(long).state, JobState::Waiting);
    world.until(100);
    assert_eq!(world.held(grows), [1, 2, 3]);
    world.until(150);
    assert_eq!((world.held(grows), world.held(long)), (vec![1], vec![2]));
}

/// Returns a cluster that is allocated by whole nodes, and an application on one of its four nodes that will need three.
fn growing_on_whole_nodes() -> (World, JobId) {
    let mut world = shared(&[(4, 0), (4, 0), (4, 0), (4, 0)]);
    world.set("allocation", "nodes");
    let job = world.submit_with(|submission| {
        submission.evolving = Some(profile("1x50s,3x80s", ExpandLimit::TWICE, false));
        submission.cpus_per_task = 1;
    });
    world.until(1);
    (world, job)
}

/// A change of the allocation applies to jobs that start from then on.
#[test]
fn stages_to_come_are_kept_when_their_cluster_is_shared_by_cores_from_now_on() {
    for n_tasks in [1, 4] {
        let (mut world, job) = growing_on_whole_nodes();
        world.set("allocation", "cores");
        assert_eq!(world.named(job).len(), 3);
        let small: Vec<JobId> = (0..5).map(|_| world.tasks(n_tasks, 300)).collect();
        world.until(2);
        let n_started = small.iter().filter(|job| !world.held(**job).is_empty()).count();
        assert_eq!(n_started, 4 / n_tasks as usize, "on the node that it will not need");
        world.until(50);
        assert_eq!(world.held(job).len(), 3);
        let grants = world.rms.state().jobs()[&job].grants();
        assert!(grants.is_empty(), "whole nodes: {grants:?}");
    }
}

/// The file of a server says `cores` from its next start on: no agent is connected then.
#[test]
fn stages_to_come_are_kept_when_a_server_starts_with_another_allocation() {
    let (mut world, job) = growing_on_whole_nodes();
    world.restart(0);
    world.set("allocation", "cores");
    assert_eq!(world.named(job).len(), 3);
    (1..=4).for_each(|idx| drop(world.comes_back(&format!("n{idx}"))));
    let small: Vec<JobId> = (0..5).map(|_| world.tasks(4, 300)).collect();
    world.until(50);
    let n_started = small.iter().filter(|job| !world.held(**job).is_empty()).count();
    assert_eq!((n_started, world.held(job).len()), (1, 3));
}

#[test]
fn stages_wait_for_nodes_that_nobody_has_anything_of() {
    let mut world = shared(&[(4, 0), (4, 0), (4, 0)]);
    world.set("release_grace", "0s");
    // Enough cores are free in total, but on no node all of them.
    let small: Vec<JobId> = [300, 60, 100].into_iter().map(|secs| world.small(1, secs)).collect();
    let spread: Vec<_> = small.iter().flat_map(|job| world.held(*job)).collect();
    assert_eq!(spread, [1, 1, 1], "the fullest node is taken first");
    let other = world.small(3, 50);
    let job = world.evolving("1x40s,2x10s,3x10s", ExpandLimit::TWICE);
    world.until(1);
    assert_eq!(world.held(other), [1, 2, 3]);
    // The third node comes at second 300, and the stage before it lasts twice as long as requested.
    assert_eq!(world.starts(job), [Some(240), Some(280)]);
}

#[test]
fn it_leaves_the_nodes_that_came_last() {
    let mut world = shared(&[(4, 0), (4, 0), (4, 0), (4, 0)]);
    let job = world.evolving("4x10s,2x20s", ExpandLimit::NONE);
    world.until(1);
    let free = |names: &[&str]| Call::FreeNodes { job, nodes: names.iter().map(|name| (*name).to_owned()).collect() };
    let refused = world.try_ask(free(&["n2"]));
    assert!(matches!(&refused, Err(Refusal::WrongState { hint, .. }) if hint.contains("came last")), "{refused:?}");
    world.try_ask(free(&["n4"])).expect("it came last");
    let next = world.small(1, 100);
    world.until(20);
    assert_eq!((world.held(job), world.held(next)), (vec![1, 2], vec![3]));
}

#[test]
fn a_node_to_come_that_is_drained_gives_way_to_another() {
    let mut world = shared(&[(4, 0), (4, 0), (4, 0)]);
    let job = world.evolving("1x10s,2x10s", ExpandLimit::NONE);
    world.until(1);
    assert_eq!(world.named(job), [1, 2]);
    world.ask(Call::Drain { nodes: vec!["n2".to_owned()], reason: "fans".to_owned() });
    world.until(10);
    assert_eq!((world.held(job), world.named(job)), (vec![1, 3], vec![1, 3]));
}

#[test]
fn an_application_goes_on_when_its_cluster_is_given_away_otherwise() {
    for (before, after) in [("nodes", "cores"), ("cores", "nodes")] {
        let mut world = shared(&[(4, 0), (4, 0), (4, 0)]);
        world.set("allocation", before);
        let job = world.evolving("1x10s,2x10s,3x10s", ExpandLimit::NONE);
        let waits = world.evolving("3x10s", ExpandLimit::NONE);
        world.until(5);
        world.set("allocation", after);
        world.until(10);
        assert_eq!(world.held(job), [1, 2], "from {before} to {after}");
        world.until(20);
        assert_eq!(world.held(job), [1, 2, 3], "from {before} to {after}");
        world.until(31);
        assert_eq!(world.held(waits), [1, 2, 3], "from {before} to {after}");
    }
}

#[test]
fn a_row_is_forgotten_where_other_nodes_came_meanwhile() {
    let mut world = shared(&[(4, 0), (4, 0), (4, 0), (4, 0)]);
    let job = world.evolving("1x10s,2x10s,3x10s", ExpandLimit::NONE);
    world.until(1);
    assert_eq!(world.named(job), [1, 2, 3]);
    world.set("allocation", "nodes");
    let other = world.submit(1, 100, &[]);
    world.until(10);
    assert_eq!((world.held(other), world.held(job), world.named(job)), (vec![2], vec![1, 3], vec![]));
    world.set("allocation", "cores");
    world.until(20);
    assert_eq!((world.held(job), world.named(job)), (vec![1, 3, 4], vec![1, 3, 4]));
}

#[test]
fn a_node_that_is_held_stays_in_its_row_though_it_has_lost_a_feature() {
    let mut world = World::new();
    world.set("allocation", "cores");
    let inventory = |features: &[&str]| Inventory {
        features: features.iter().map(|feature| (*feature).to_owned()).collect(),
        ..Inventory::default()
    };
    for name in ["n1", "n2", "n3", "n4"] {
        world.joins(name, inventory(&["fast"]), Vec::new());
    }
    let job = world.submit_with(|submission| {
        submission.evolving = Some(profile("2x10s,3x10s", ExpandLimit::NONE, false));
        submission.constraint.features = ["fast".to_owned()].into();
    });
    world.until(1);
    assert_eq!(world.named(job), [1, 2, 3]);
    world.joins("n2", inventory(&[]), Vec::new());
    world.ask(Call::Drain { nodes: vec!["n3".to_owned()], reason: "fans".to_owned() });
    world.until(10);
    assert_eq!((world.held(job), world.named(job)), (vec![1, 2, 4], vec![1, 2, 4]));
    world.rms.state().check().expect("in order");
}

/// Applications with stages take as much of each node as their tasks need, and share the nodes with any job.
#[test]
fn stages_take_slices_of_their_nodes() {
    let mut world = shared(&[(4, 0), (4, 0), (4, 0)]);
    world.set("release_grace", "0s");
    let of_two = |world: &mut World, text: &str| {
        world.submit_with(|submission| {
            submission.evolving = Some(profile(text, ExpandLimit::NONE, false));
            (submission.cpus_per_task, submission.n_tasks) = (2, None);
        })
    };
    let first = of_two(&mut world, "1x100s,3x50s,1x50s");
    let second = of_two(&mut world, "3x100s,1x100s");
    // Two nodes have two cores left throughout, the other one none before both have ended.
    let (wide, long) = (world.small(3, 100), world.small(2, 150));
    world.until(1);
    assert_eq!((world.held(first), world.held(second)), (vec![1], vec![1, 2, 3]));
    assert_eq!((world.line(wide).state, world.held(long)), (JobState::Waiting, vec![2, 3]));
    assert_eq!(world.line(wide).estimate, Some(Time::from_secs(1_000_200)));
    world.until(100);
    assert_eq!((world.held(first), world.held(second)), (vec![1, 2, 3], vec![1]));
    let state = world.rms.state();
    let cores = |job: JobId| state.jobs()[&job].grants().values().map(|grant| grant.cores.len()).collect::<Vec<_>>();
    assert_eq!((cores(first), cores(second)), (vec![2, 2, 2], vec![2]));
    state.check().expect("in order");
}

/// No job stays longer than it may, so each stage begins when it was promised at the start.
#[test]
fn stages_begin_when_that_was_promised_whoever_else_comes() {
    begin_when_promised(6);
}

#[test]
fn long_stages_begin_when_that_was_promised_whoever_else_comes() {
    begin_when_promised(60);
}

fn begin_when_promised(n_seeds: u64) {
    for_seeds("stages_begin_when_that_was_promised_whoever_else_comes", n_seeds, |dice| {
        let n_nodes = dice.number(2, 5);
        let nodes: Vec<(u32, u32)> = (0..n_nodes).map(|_| (dice.number(1, 4), 0)).collect();
        let mut world = shared(&nodes);
        world.set("release_grace", "0s");
        world.set("policy", ["views", "fcfs", "easy", "conservative"][dice.number(0, 3) as usize]);
        let mut promised: BTreeMap<JobId, Vec<Time>> = BTreeMap::new();
        for step in 0..60 {
            if dice.chance(60) {
                some_job(&mut world, dice, n_nodes);
            }
            world.until(step * 5 + 4);
            world.finish_due();
            world.until(step * 5 + 5);
            let state = world.rms.state();
            for (job, started) in state.jobs().iter().filter_map(|(job, entry)| Some((*job, entry.started()?))) {
                let Some(evolved) = &started.evolved else { continue };
                let starts: Vec<Time> = evolved.course.legs.iter().map(|leg| leg.start).collect();
                let known = promised.entry(job).or_insert_with(|| starts.clone());
                assert!(known.ends_with(&starts), "job {job}: {known:?} became {starts:?}");
                assert!(evolved.course.next_change() > world.now, "job {job} is late at {:?}", world.now);
            }
        }
        assert!(!promised.is_empty());
    });
}

fn some_job(world: &mut World, dice: &mut Dice, n_nodes: u32) {
    let secs = i64::from(dice.number(1, 12)) * 5;
    if dice.chance(50) {
        world.small(dice.number(1, n_nodes), secs);
        return;
    }
    let stage = |dice: &mut Dice| format!("{}x{}s", dice.number(1, n_nodes), dice.number(1, 8) * 5);
    let stages: Vec<String> = (0..dice.number(1, 4)).map(|_| stage(dice)).collect();
    let limit = if dice.chance(50) { ExpandLimit::NONE } else { ExpandLimit::TWICE };
    // Half of the jobs have their nodes alone.
    let cpus_per_task = dice.number(0, 1);
    world.submit_with(|submission| {
        submission.evolving = Some(profile(&stages.join(","), limit, false));
        submission.cpus_per_task = cpus_per_task;
    });
}
