//! Agents that come back with something the server did not expect.

use rms_api::Call;
use rms_model::Outcome;
use rms_sim::story::{completed, ended, mins, secs, started};
use rms_sim::{WorldBuilder, rigid};

#[test]
fn a_node_that_was_removed_is_used_again_when_its_agent_comes_back() {
    let mut world = WorldBuilder::default().cluster("a", 1).build();
    world.after(secs(1));
    // The agent has acted on some generations before the node is removed.
    for _ in 0..5 {
        world.submit(rigid(1, mins(1)).runs(secs(1)));
        world.after(secs(2));
    }
    world.partition(&["a1"]);
    world.after(mins(2));
    world.admin(Call::Remove { nodes: vec!["a1".to_owned()] });
    world.heal();
    world.after(secs(30));
    let job = world.submit(rigid(1, mins(1)).runs(secs(1)));
    world.after(secs(10));
    world.expect(completed(job));
}

#[test]
fn a_node_that_returns_with_a_job_still_starting_ends_it_before_it_starts_another() {
    let mut world = WorldBuilder::default().cluster("a", 1).build();
    world.after(secs(1));
    let slow = world.submit(rigid(1, mins(10)).starts_after(mins(5)));
    let next = world.submit(rigid(1, mins(10)).runs(secs(5)));
    world.after(secs(1));
    world.partition(&["a1"]);
    world.after(mins(2));
    world.expect(ended(
        slow,
        Outcome::NodeLost { node: "a1".to_owned(), reason: "its agent did not come back".to_owned() },
    ));
    world.heal();
    // That no two jobs have processes at once is what the checkers look at.
    world.after(secs(30));
    world.expect(completed(next));
    world.expect_all_ended();
}

#[test]
fn a_job_that_is_still_starting_on_a_node_given_up_is_fenced_before_it_runs_again_elsewhere() {
    let mut world = WorldBuilder::default().cluster("a", 2).build();
    world.set("lost_policy", "requeue");
    world.after(secs(1));
    world.drain("a2");
    let job = world.submit(rigid(1, mins(10)).starts_after(mins(5)).requeue());
    world.after(secs(1));
    world.partition(&["a1"]);
    world.after(mins(2));
    world.heal();
    // That no node runs the old execution when the new one starts is what the checkers look at.
    world.after(secs(30));
    world.resume("a2");
    world.after(mins(6));
    world.expect(started(job));
    world.cancel(job);
    world.after(secs(30));
    world.expect_all_ended();
}
