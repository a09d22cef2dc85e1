//! What the server told is durable; what it did not live to tell happens after its restart, once.

use rms_api::Call;
use rms_model::{Outcome, Run};
use rms_sim::story::{completed, ended, hours, mins, secs, started};
use rms_sim::{CrashPoint, World, WorldBuilder, rigid, script, user};

fn cluster_of(n_nodes: u32) -> World {
    let mut world = WorldBuilder::default().cluster("a", n_nodes).build();
    world.after(secs(1));
    world
}

#[test]
fn a_submit_that_was_not_durable_was_not_acknowledged_and_is_not_there() {
    let mut world = cluster_of(1);
    world.kill_server_in_next_step(CrashPoint::BeforeCommit);
    world.submit_unheard(rigid(1, hours(1)));
    world.after(secs(5));
    assert!(!world.has_server());
    world.restart_server();
    world.after(secs(15));
    assert!(world.state().jobs().is_empty());
    // Its number was never told, so it is free.
    let job = world.submit(rigid(1, hours(1)).runs(secs(5)));
    world.after(secs(6));
    world.expect(completed(job));
    world.expect_all_ended();
}

#[test]
fn a_job_whose_start_was_durable_but_not_told_starts_once_after_the_restart() {
    for point in [CrashPoint::AfterCommit, CrashPoint::AmidEffects(1), CrashPoint::AmidEffects(3)] {
        let mut world = cluster_of(2);
        world.kill_server_in_next_step(point);
        world.submit_unheard(rigid(2, hours(1)).runs(mins(1)));
        world.after(secs(5));
        world.restart_server();
        world.after(mins(2));
        let job = world.last_job();
        world.expect(completed(job));
        assert_eq!(world.history(job).expect("it is done").run, Run(1));
        world.expect_all_ended();
    }
}

#[test]
fn the_death_of_the_server_at_any_step_of_a_job_changes_nothing_about_its_end() {
    let points = [CrashPoint::BeforeCommit, CrashPoint::AfterCommit, CrashPoint::AmidEffects(1)];
    for point in points {
        for moment in 0..12 {
            let mut world = cluster_of(3);
            world.set("fair_start", "2s");
            let exits = script(3, hours(1)).runs(secs(5)).starts_after(secs(2)).exits(9);
            let job = world.submit(exits);
            // Some of the steps: started, running, ended, ghost.
            world.after(secs(moment));
            world.kill_server_in_next_step(point);
            world.after(secs(20));
            world.restart_server();
            world.after(mins(3));
            world.expect(ended(job, Outcome::Failed { code: 9 }));
            world.expect_all_ended();
        }
    }
}

#[test]
fn a_server_that_dies_again_and_again_still_finishes_the_work() {
    let mut world = cluster_of(2);
    let jobs: Vec<_> = (0..4).map(|_| world.submit(rigid(1, hours(1)).runs(mins(2)).starts_after(secs(3)))).collect();
    for _ in 0..20 {
        world.after(secs(3));
        world.kill_server();
        world.after(secs(7));
        world.restart_server();
    }
    world.after(mins(10));
    for job in jobs {
        world.expect(completed(job));
    }
    world.expect_all_ended();
}

#[test]
fn while_the_disk_is_full_nothing_is_told_and_afterwards_everything() {
    let mut world = cluster_of(1);
    let running = world.submit(rigid(1, hours(1)).runs(mins(1)));
    world.after(secs(10));
    world.fill_disk(true);
    world.submit_unheard(rigid(1, hours(1)).runs(mins(1)));
    world.after(mins(2));
    // The first job has ended, and no one may know: nothing of that is durable, nothing new has started.
    assert!(world.history(running).is_none());
    assert_eq!(world.alive_on("a1"), 0);
    world.fill_disk(false);
    world.after(secs(2));
    world.expect(completed(running));
    let next = world.last_job();
    world.expect(started(next));
    world.after(mins(2));
    world.expect_all_ended();
}

#[test]
fn a_server_that_dies_with_a_full_disk_forgets_only_what_it_told_nobody() {
    let mut world = cluster_of(1);
    let running = world.submit(rigid(1, hours(1)).runs(mins(1)).exits(3));
    world.after(secs(10));
    world.fill_disk(true);
    world.after(mins(2));
    world.kill_server();
    world.fill_disk(false);
    world.restart_server();
    world.after(secs(15));
    world.expect(ended(running, Outcome::Failed { code: 3 }));
    world.expect_all_ended();
}

#[test]
fn a_wish_that_is_lost_with_its_link_is_told_again() {
    let mut world = cluster_of(1);
    let job = world.submit(rigid(1, hours(1)).runs(secs(5)));
    // The order is on its way for a millisecond.
    world.lose_link("a1");
    world.after(secs(5));
    assert_eq!(world.alive_on("a1"), 0);
    world.after(secs(20));
    world.expect(completed(job));
}

#[test]
fn a_wish_that_died_with_its_agent_is_told_to_the_next_one() {
    let mut world = cluster_of(1);
    let job = world.submit(rigid(1, hours(1)).runs(secs(5)));
    // The new agent is there before the server misses the old one.
    world.kill_agent("a1");
    world.restart_agent("a1");
    world.after(secs(6));
    world.expect(completed(job));
}

#[test]
fn a_report_that_is_lost_with_its_link_is_made_again() {
    let mut world = cluster_of(1);
    let job = world.submit(rigid(1, hours(1)).runs(secs(5)).exits(2));
    world.after(secs(5));
    world.partition(&["a1"]);
    world.after(secs(1));
    assert_eq!(world.alive_on("a1"), 0);
    world.lose_link("a1");
    world.heal();
    world.after(secs(20));
    world.expect(ended(job, Outcome::Failed { code: 2 }));
    world.expect_all_ended();
}

#[test]
fn a_cancel_of_a_queued_job_is_durable() {
    let mut world = cluster_of(1);
    world.submit(rigid(1, hours(1)));
    let job = world.submit(rigid(1, hours(1)));
    world.after(secs(1));
    world.cancel(job);
    world.bounce_server();
    world.expect(ended(job, Outcome::Cancelled { by: "root".to_owned() }));
    let call = world.on_job(&user("ann"), job, |select| Call::Hold { select });
    assert!(call.is_err());
}
