//! When and where jobs start: FCFS with backfilling, sizes, clusters, constraints (001, §5.3.2 and Fig. 5).

use std::collections::BTreeSet;

use rms_api::Answer;
use rms_api::answer::{Blocker, JobState, Reason};
use rms_model::{Inventory, Mebibytes, Policy, Span, Time};
use rms_sim::story::{completed, hours, mins, secs, started, waiting};
use rms_sim::{World, WorldBuilder, moldable, rigid, spanning};

fn cluster_of(n_nodes: u32) -> World {
    let mut world = WorldBuilder::default().cluster("a", n_nodes).build();
    world.after(secs(1));
    world
}

#[test]
fn a_short_job_fills_the_gap_before_a_wide_one_and_a_long_one_does_not() {
    let mut world = cluster_of(4);
    let running = world.submit(rigid(2, hours(2)));
    let wide = world.submit(rigid(4, hours(1)));
    let short = world.submit(rigid(1, hours(1)).runs(mins(30)));
    let long = world.submit(rigid(1, hours(3)));
    world.after(secs(1));
    world.expect(started(running));
    world.expect(waiting(wide));
    world.expect(started(short));
    world.expect(waiting(long));
    let wide_starts = Time::from_secs(1) + hours(2);
    assert_eq!(world.estimate(wide), Some(wide_starts));
    assert_eq!(world.estimate(long), Some(wide_starts + hours(1)));
}

#[test]
fn a_job_that_ends_early_lets_the_next_one_start_early() {
    let mut world = cluster_of(4);
    let first = world.submit(rigid(4, hours(2)).runs(mins(5)));
    let second = world.submit(rigid(4, hours(2)));
    world.after(mins(4));
    world.expect(started(first));
    world.expect(waiting(second));
    world.after(mins(2));
    world.expect(completed(first));
    world.expect(started(second));
}

#[test]
fn a_backfilled_job_never_delays_the_one_before_it() {
    let mut world = cluster_of(3);
    world.submit(rigid(2, hours(1)));
    let wide = world.submit(rigid(3, hours(1)));
    world.after(secs(1));
    let promised = world.estimate(wide);
    for _ in 0..5 {
        world.submit(rigid(1, mins(50)));
        world.after(mins(1));
    }
    assert_eq!(world.estimate(wide), promised);
    world.after(mins(58));
    world.expect(started(wide));
}

#[test]
fn of_several_sizes_the_one_that_completes_first_is_taken() {
    let mut world = cluster_of(4);
    world.submit(rigid(3, hours(2)));
    // Four nodes in two hours would end in three, one node now ends in two and a half.
    let job = world.submit(moldable(&[(4, hours(1)), (1, mins(150))]));
    world.after(secs(1));
    world.expect(started(job));
    assert_eq!(world.line(job).expect("it runs").nodes.len(), 1);
}

#[test]
fn a_size_worth_waiting_for_is_waited_for() {
    let mut world = cluster_of(4);
    world.submit(rigid(3, mins(10)));
    let job = world.submit(moldable(&[(1, hours(4)), (4, hours(1))]));
    world.after(secs(1));
    world.expect(waiting(job));
    assert_eq!(world.estimate(job), Some(Time::from_secs(1) + mins(10)));
}

#[test]
fn of_sizes_that_complete_together_the_first_listed_is_taken() {
    let mut world = cluster_of(4);
    let job = world.submit(moldable(&[(2, hours(1)), (1, hours(1)), (4, hours(1))]));
    world.after(secs(1));
    assert_eq!(world.line(job).expect("it runs").nodes.len(), 2);
}

#[test]
fn a_job_over_two_clusters_starts_when_both_have_room() {
    let mut world = WorldBuilder::default().cluster("a", 2).cluster("b", 2).build();
    world.after(secs(1));
    world.submit(rigid(2, mins(10)).on("a").runs(mins(9)));
    world.submit(rigid(2, mins(30)).on("b").runs(mins(20)));
    let both = world.submit(spanning(&[("a", 1), ("b", 2)], hours(1)));
    world.after(mins(15));
    world.expect(waiting(both));
    world.after(mins(6));
    world.expect(started(both));
    assert_eq!(world.line(both).expect("it runs").nodes, ["a1", "b1", "b2"]);
}

#[test]
fn a_job_without_a_cluster_goes_where_it_completes_first() {
    let mut world = WorldBuilder::default().cluster("a", 1).cluster("b", 1).build();
    world.after(secs(1));
    world.submit(rigid(1, hours(1)).on("a"));
    let anywhere = world.submit(rigid(1, hours(1)));
    world.after(secs(1));
    world.expect(started(anywhere));
    assert_eq!(world.line(anywhere).expect("it runs").nodes, ["b1"]);
}

fn with_a_special_node() -> World {
    let plain = Inventory { cpus: 4, memory: Mebibytes(1000), ..Inventory::default() };
    let features = BTreeSet::from(["gpu".to_owned()]);
    let special = Inventory { features, memory: Mebibytes(9000), ..plain.clone() };
    let world = WorldBuilder::default().node("a", "special", special).node("a", "plain", plain);
    let mut world = world.build();
    world.after(secs(1));
    world
}

#[test]
fn a_plain_job_leaves_the_special_node_to_those_who_need_it() {
    let mut world = with_a_special_node();
    let plain = world.submit(rigid(1, hours(1)));
    let needs_gpu = world.submit(rigid(1, hours(1)).feature("gpu"));
    world.after(secs(1));
    assert_eq!(world.line(plain).expect("it runs").nodes, ["plain"]);
    assert_eq!(world.line(needs_gpu).expect("it runs").nodes, ["special"]);
}

#[test]
fn a_job_waits_for_the_node_with_enough_memory_while_others_pass() {
    let mut world = with_a_special_node();
    let first = world.submit(rigid(1, hours(1)).memory(Mebibytes(5000)));
    let second = world.submit(rigid(1, hours(1)).memory(Mebibytes(5000)));
    let small = world.submit(rigid(1, hours(5)));
    world.after(secs(1));
    world.expect(started(first));
    world.expect(waiting(second));
    world.expect(started(small));
    assert_eq!(world.estimate(second), Some(Time::from_secs(1) + hours(1)));
}

#[test]
fn an_explanation_names_the_blocking_step_and_who_holds_it() {
    let mut world = cluster_of(4);
    let running = world.submit(rigid(3, hours(2)));
    let wide = world.submit(rigid(4, hours(1)));
    let behind = world.submit(rigid(2, hours(1)));
    world.after(mins(1));
    let (start, now) = (Time::from_secs(1), world.now());
    let blocked = |busy, from, until, wanted, by| Reason::Blocked {
        cluster: "a".to_owned(),
        wanted,
        capacity: 4,
        busy,
        from,
        until,
        by,
        total: 4,
        short: None,
        licence: None,
        neighbours: Vec::new(),
        lenders: None,
    };
    let holds = |job, state, nodes, from, until| Blocker {
        job,
        state,
        nodes,
        from,
        until,
        is_offer: false,
        is_promised: false,
    };
    let runs = holds(running, JobState::Started, 3, start, start + hours(2));
    let by = vec![runs.clone()];
    assert_eq!(world.explain(wide), Some(blocked(3, now, start + hours(2), 4, by)));
    // Each for as long as it has them, over all of the time that they are too few.
    let by = vec![runs, holds(wide, JobState::Waiting, 4, start + hours(2), start + hours(3))];
    assert_eq!(world.explain(behind), Some(blocked(3, now, start + hours(3), 2, by)));
    assert_eq!(world.explain(running), None);
}

#[test]
fn an_explanation_names_the_policy_where_that_keeps_a_job_waiting() {
    let mut world = cluster_of(4);
    world.set("policy", "fcfs");
    let running = world.submit(rigid(3, hours(2)));
    let wide = world.submit(rigid(4, hours(1)));
    let small = world.submit(rigid(1, mins(10)));
    world.after(mins(1));
    world.expect(started(running));
    let until = Time::from_secs(1) + hours(2);
    // A node is free for it, and would be for as long as it needs one.
    assert_eq!(world.explain(small), Some(Reason::Behind { policy: Policy::Fcfs, job: wide, until }));
    assert!(matches!(world.explain(wide), Some(Reason::Blocked { .. })));
    world.set("policy", "easy");
    world.after(secs(1));
    world.expect(started(small));
    // Too long for the gap before the reservation of the first one that waits.
    let long = world.submit(rigid(1, hours(3)));
    world.after(mins(20));
    let Some(Reason::Blocked { by, from, .. }) = world.explain(long) else { panic!("{:?}", world.explain(long)) };
    assert_eq!((by[0].job, by[0].state, from), (wide, JobState::Waiting, until));
    assert_eq!(by.len(), 1, "the one that runs leaves a node for it: {by:?}");
}

#[test]
fn a_job_that_only_the_timer_delays_says_when_the_next_pass_is() {
    let mut world = cluster_of(2);
    world.set("resched_timer", "30s");
    world.submit(rigid(1, hours(1)));
    let second = world.submit(rigid(1, hours(1)));
    world.after(secs(1));
    let Some(Reason::NotPlanned { next_pass }) = world.explain(second) else { panic!("{:?}", world.explain(second)) };
    assert!(next_pass > world.now() && next_pass <= world.now() + secs(30), "{next_pass:?}");
    world.after(next_pass.since(world.now()));
    world.after(secs(1));
    world.expect(started(second));
}

#[test]
fn a_job_that_is_too_large_for_today_says_so_and_starts_when_nodes_are_back() {
    let mut world = cluster_of(4);
    world.drain("a4");
    let job = world.submit(rigid(4, hours(1)));
    world.after(secs(1));
    let reason = Reason::TooFewNodes {
        cluster: "a".to_owned(),
        wanted: 4,
        usable: 3,
        total: 4,
        licence: None,
        contiguous: false,
        lacking: None,
    };
    assert_eq!(world.explain(job), Some(reason));
    // It keeps nobody from starting.
    let small = world.submit(rigid(3, mins(5)).runs(secs(5)));
    world.after(secs(1));
    world.expect(started(small));
    world.resume("a4");
    world.after(secs(10));
    world.expect(started(job));
}

#[test]
fn a_test_says_when_a_job_would_start_and_submits_nothing() {
    let mut world = cluster_of(2);
    world.submit(rigid(1, hours(1)));
    world.after(secs(1));
    let would = |world: &mut World, n_nodes: u32| match world.try_submit(rigid(n_nodes, mins(5)).test_only()) {
        Ok(Answer::WouldStart { at, .. }) => at,
        other => panic!("not an estimate: {other:?}"),
    };
    let now = world.now();
    assert_eq!(would(&mut world, 1), Some(now));
    assert_eq!(would(&mut world, 2), Some(Time::from_secs(1) + hours(1)));
    world.after(Span::from_secs(1));
    assert_eq!(world.state().jobs().len(), 1);
}
