//! What becomes of jobs when what stands between agent and processes dies, or has no room.

use rms_model::{Outcome, Span};
use rms_sim::story::{completed, hours, mins, secs, started};
use rms_sim::{World, WorldBuilder, rigid};

fn one_node() -> World {
    seeded(1)
}

fn seeded(seed: u64) -> World {
    let mut world = WorldBuilder::default().seed(seed).cluster("a", 1).build();
    world.after(secs(1));
    world
}

#[test]
fn a_supervisor_that_is_killed_takes_its_job_along_and_says_so() {
    let mut world = one_node();
    let job = world.submit(rigid(1, hours(1)));
    world.after(secs(10));
    assert_eq!(world.alive_on("a1"), 1);
    world.kill_supervisors("a1");
    let next = world.submit(rigid(1, hours(1)).runs(mins(1)));
    world.after(mins(2));
    let outcome = world.history(job).map(|record| record.outcome.clone());
    assert!(matches!(outcome, Some(Outcome::Unsupervised { .. })), "{outcome:?}");
    world.expect(completed(next));
    world.expect_all_ended();
}

#[test]
fn a_supervisor_that_is_killed_before_its_order_is_replaced() {
    let mut world = one_node();
    world.slow_down("a1", secs(1));
    let job = world.submit(rigid(1, hours(1)).runs(mins(1)));
    world.after(Span::from_millis(500));
    world.kill_supervisors("a1");
    world.after(secs(20));
    world.expect(started(job));
    assert_eq!(world.alive_on("a1"), 1);
    world.after(mins(2));
    world.expect(completed(job));
    world.expect_all_ended();
}

#[test]
fn an_order_of_an_agent_that_was_killed_meanwhile_is_performed_once() {
    // Whether the supervisor reads it is chance.
    for seed in 0..8 {
        let mut world = seeded(seed);
        world.slow_down("a1", secs(1));
        let job = world.submit(rigid(1, hours(1)).runs(mins(1)));
        world.after(Span::from_millis(500));
        world.kill_agent("a1");
        world.restart_agent("a1");
        world.after(mins(2));
        world.expect(completed(job));
        world.expect_all_ended();
    }
}

#[test]
fn jobs_go_on_without_a_spawner_and_others_start_with_the_next() {
    let mut world = one_node();
    let job = world.submit(rigid(1, hours(1)).runs(mins(1)));
    world.after(secs(10));
    world.kill_spawner("a1");
    world.after(mins(2));
    world.expect(completed(job));
    world.kill_spawner("a1");
    let next = world.submit(rigid(1, hours(1)).runs(mins(1)));
    world.after(mins(2));
    world.expect(completed(next));
    world.expect_all_ended();
}

#[test]
fn a_node_whose_disk_is_full_starts_nothing_until_there_is_room() {
    let mut world = one_node();
    world.fill_disk_of("a1", true);
    world.after(secs(1));
    let job = world.submit(rigid(1, hours(1)).runs(mins(1)));
    world.after(mins(10));
    assert_eq!((world.history(job), world.alive_on("a1")), (None, 0));
    world.fill_disk_of("a1", false);
    world.after(mins(3));
    world.expect(completed(job));
    world.expect_all_ended();
}
