//! What seeds of the sweeps have broken, reduced to stories.

use negotiation::{Direction, Phase, Side};
use rms_api::negotiate::Ask;
use rms_core::Fact;
use rms_model::{ExpandLimit, OnResize, Outcome, Sizes, Span};
use rms_sim::application::{Manner, Want};
use rms_sim::story::{completed, ended, hours, mins, secs};
use rms_sim::work::evolving;
use rms_sim::{WorldBuilder, rigid, user};

use super::negotiation::{cluster_of, grow, n_nodes, phase_of, r, shrink};

/// Seed 3280 of the negotiations.
#[test]
fn an_application_whose_supervisors_have_waited_long_enough_for_a_server_is_over() {
    let mut world = WorldBuilder::default().cluster("a", 2).build();
    world.after(secs(1));
    let job = world.submit(evolving(&[(2, secs(10)), (1, secs(5))], ExpandLimit::TWICE));
    world.after(secs(5));
    world.kill_server();
    // Its first stage may last for twice its time, and a grace; then its second would have been over, too.
    world.after(mins(2));
    assert_eq!((world.alive_on("a1"), world.alive_on("a2")), (0, 0));
    world.restart_server();
    world.after(secs(30));
    world.expect(ended(job, Outcome::WallTime));
    world.expect_all_ended();
}

/// Seed 4474 of the negotiations.
#[test]
fn what_was_lent_is_taken_back_from_one_that_needs_it() {
    let mut world = cluster_of(8);
    let job = world.submit(rigid(6, hours(1)).malleable((4, 8), Sizes::Any, OnResize::Workers));
    world.after(secs(2));
    world.negotiate(&user("ann"), job, shrink(5));
    world.after(secs(5));
    assert_eq!(n_nodes(&mut world, job), 1, "its user may ask for less than it would keep by itself");
    world.negotiate(&user("ann"), job, Ask { duration: Some(secs(10)), ..grow(6, 2) });
    world.after(secs(5));
    assert_eq!(n_nodes(&mut world, job), 7);
    world.after(mins(1));
    assert_eq!(n_nodes(&mut world, job), 1);
}

/// Seed 2232 of the faults: whoever waits for nodes is not given up before the agents could connect to a new server.
#[test]
fn a_stage_that_is_late_soon_after_the_server_was_started_still_begins() {
    let mut world = WorldBuilder::default().cluster("a", 3).build();
    for (key, value) in [("fair_start", "0s"), ("kill_grace", "1s"), ("release_grace", "0s"), ("node_lost_after", "2m")]
    {
        world.set(key, value);
    }
    world.bounce_server();
    let fills = world.submit(rigid(2, secs(20)));
    let grows = world.submit(evolving(&[(1, secs(21)), (3, secs(10))], ExpandLimit::NONE));
    world.after(secs(18));
    world.partition(&["a1", "a2"]);
    world.after(secs(8));
    world.heal();
    world.after(secs(2));
    world.expect(ended(fills, Outcome::WallTime));
    assert_eq!(n_nodes(&mut world, grows), 3);
    world.after(mins(1));
    world.expect(ended(grows, Outcome::WallTime));
    world.expect_all_ended();
}

/// Seed 5647 of the negotiations: the time in which it had to leave is over before it hears that its word was taken.
#[test]
fn what_is_accepted_while_the_disk_is_full_comes_about_when_it_is_not() {
    let mut world = cluster_of(4);
    world.set("release_grace", "5s");
    world.set("shrink_for", "queue");
    let thinks = Manner { thinks: secs(10), ..Manner::between(1, 4) };
    let job = world.submit(rigid(4, hours(1)).negotiates(thinks));
    world.after(secs(2));
    let next = world.submit(rigid(2, mins(1)).runs(secs(10)));
    world.after(secs(5));
    world.fill_disk(true);
    world.after(secs(30));
    assert_eq!(phase_of(&world, job, r(1)), Some((Phase::Offered(Side::Rms), None)));
    world.fill_disk(false);
    world.after(secs(30));
    assert_eq!(n_nodes(&mut world, job), 2);
    world.expect(completed(next));
}

/// Seed 1623 of the negotiations: two nodes are held until the application's end, and delay nobody. What was said about them
/// is written long before it is synced, and by then that end is over.
#[test]
fn what_is_held_delays_nobody_by_the_plan_of_its_time() {
    for fills_disk in [false, true] {
        let mut world = cluster_of(7);
        let wants = Want { valid_for: secs(20), ..Want::nodes(Direction::Grow, secs(30), 6) };
        let thinks = Manner { thinks: mins(5), ..Manner::between(1, 8).wants(wants) };
        let grows = world.submit(rigid(2, secs(40)).negotiates(thinks));
        world.submit(rigid(2, secs(43)));
        let waits = world.submit(rigid(5, mins(1)).runs(secs(10)));
        world.after(secs(25));
        world.fill_disk(fills_disk);
        world.after(Span::from_millis(15_500));
        world.fill_disk(false);
        world.after(secs(1));
        assert!(world.facts().iter().any(|fact| matches!(fact, Fact::NodesHeld { nodes, .. } if nodes.len() == 3)));
        world.after(mins(2));
        world.expect(ended(grows, Outcome::WallTime));
        world.expect(completed(waits));
    }
}
