//! Agents that come back with something the server did not expect.

use rms_core::Call;
use rms_sim::story::{completed, mins, secs};
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
