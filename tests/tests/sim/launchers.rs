//! External launchers in a world where connections break and the server dies: they attach again, and nothing is lost.

use rms_api::desired::NodeExit;
use rms_model::{JobId, Outcome, Slice, Span};
use rms_sim::launcher::{Manner, Sizes, Then};
use rms_sim::story::{completed, ended, hours, mins, secs, started, waiting};
use rms_sim::{CrashPoint, Program, World, WorldBuilder, rigid};

fn cluster_of(n_nodes: u32) -> World {
    let mut world = WorldBuilder::default().cluster("a", n_nodes).build();
    world.after(secs(1));
    world
}

fn manner(least: u32, most: u32, then: Then) -> Manner {
    let sizes = Sizes { least, most };
    Manner { user: "ann".to_owned(), sizes, on_one: mins(30), adapts_in: Span::ZERO, slice: Slice::default(), then }
}

fn ten_seconds() -> Program {
    Program { runs: Some(secs(10)), exit: NodeExit::Exited { code: 0 }, ..Program::default() }
}

fn known(world: &World, launcher: usize) -> JobId {
    world.application_of(launcher).expect("it was told its number")
}

#[test]
fn a_launcher_launches_and_its_application_is_done_when_its_program_has_ended() {
    let mut world = cluster_of(4);
    let launcher = world.launcher(manner(1, 4, Then::Launches), ten_seconds());
    world.after(secs(1));
    let job = known(&world, launcher);
    world.expect(started(job));
    assert_eq!(world.alive_on("a4"), 1, "all four were free, so it took them");
    world.after(secs(15));
    world.expect(completed(job));
    world.expect_all_ended();
}

/// All four nodes are held for ten hours, as it seems, so the launcher asks for them after that. They are free after a
/// minute. It needs three seconds to see that; the ghost waits for it, and it is ahead of a batch job that needs three.
#[test]
fn a_slow_launcher_adapts_while_the_ghost_keeps_the_nodes() {
    let mut world = cluster_of(4);
    world.set("fair_start", "5s");
    let holder = world.submit(rigid(3, hours(10)).runs(secs(60)));
    let then = Then::Accepts { runs: secs(30), code: 0 };
    let other = world.submit(rigid(1, mins(20)).runs(mins(20)));
    let slow = Manner { adapts_in: secs(3), ..manner(1, 4, then) };
    let launcher = world.launcher(slow, Program::default());
    world.after(secs(10));
    let job = known(&world, launcher);
    world.expect(waiting(job));
    let before = world.line(job).expect("it waits").request.n_nodes();
    assert_eq!(before, 1, "one node, when the other job should have left");
    world.after(secs(53));
    world.expect(completed(holder));
    world.expect(waiting(job));
    world.after(secs(5));
    world.expect(started(job));
    assert_eq!(world.line(job).expect("it runs").request.n_nodes(), 3, "it saw the ghost and what comes after it");
    world.expect(started(other));
}

#[test]
fn the_death_of_the_server_at_any_step_of_a_launcher_is_healed_when_it_attaches() {
    let points = [
        CrashPoint::BeforeCommit,
        CrashPoint::AfterCommit,
        CrashPoint::AmidEffects(0),
        CrashPoint::AmidEffects(1),
        CrashPoint::AmidEffects(2),
    ];
    let ways = [Then::Launches, Then::Accepts { runs: secs(20), code: 0 }];
    for (point, then) in points.iter().flat_map(|point| ways.iter().map(move |then| (*point, then.clone()))) {
        for crash_after in [0, 1, 2, 3, 4, 5, 40, 5_000, 10_100, 20_000] {
            let mut world = cluster_of(2);
            let launcher = world.launcher(manner(2, 2, then.clone()), ten_seconds());
            world.after(Span::from_millis(crash_after));
            world.kill_server_in_next_step(point);
            world.after(secs(1));
            if !world.has_server() {
                world.restart_server();
            }
            world.after(mins(2));
            if !world.has_server() {
                world.restart_server();
                world.after(mins(2));
            }
            let job = known(&world, launcher);
            let outcome = world.history(job).map(|record| record.outcome.clone());
            assert_eq!(
                outcome,
                Some(Outcome::Completed),
                "{then:?}, {point:?} after {crash_after} ms\n{}",
                world.trace()
            );
        }
    }
}

#[test]
fn a_launcher_that_vanishes_gives_its_nodes_back_after_the_grace() {
    let mut world = cluster_of(2);
    let launcher = world.launcher(manner(2, 2, Then::Vanishes), Program::default());
    world.after(secs(1));
    let job = known(&world, launcher);
    let next = world.submit(rigid(2, hours(1)).runs(secs(5)));
    world.expect(waiting(next));
    // Until the server notices, and a minute of grace.
    world.after(secs(75));
    world.expect(ended(job, Outcome::LauncherLost));
    world.expect(completed(next));
    world.expect_all_ended();
}
