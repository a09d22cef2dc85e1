//! What seeds of the sweeps have broken, reduced to stories.

use rms_core::negotiate::contract::Ask;
use rms_model::{ExpandLimit, OnResize, Outcome, Sizes};
use rms_sim::WorldBuilder;
use rms_sim::rigid;
use rms_sim::story::{ended, hours, mins, secs, user};
use rms_sim::work::evolving;

use super::negotiation::{cluster_of, grow, n_hosts, shrink};

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
    assert_eq!(n_hosts(&mut world, job), 1, "its user may ask for less than it would keep by itself");
    world.negotiate(&user("ann"), job, Ask { duration: Some(secs(10)), ..grow(6, 2) });
    world.after(secs(5));
    assert_eq!(n_hosts(&mut world, job), 7);
    world.after(mins(1));
    assert_eq!(n_hosts(&mut world, job), 1);
}
