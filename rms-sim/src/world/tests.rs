//! Tests how the server reacts to the cost of passes, which take no time here.

use rms_api::answer::Reason;

use super::*;
use crate::story::{hours, secs};
use crate::work::rigid;

/// Returns the server's depth with 600 waiting jobs, its facts, and a reason.
fn run(walk_cost: Duration) -> (Option<u32>, Vec<Fact>, Option<Reason>) {
    let mut world = WorldBuilder::default().cluster("a", 1).walk_cost(walk_cost).build();
    world.after(secs(1));
    world.set("queue_depth", "auto");
    let jobs: Vec<JobId> = (0..600).map(|_| world.submit(rigid(1, hours(1)))).collect();
    for _ in 0..5 {
        world.after(secs(10));
        world.line(jobs[1]);
    }
    world.bounce_server();
    world.after(secs(20));
    let depth = world.server.as_ref().and_then(|server| server.state().depth());
    (depth, world.journal.facts().to_vec(), world.explain(jobs[599]))
}

/// The depth follows the reported times, the same way each time, and a restarted server begins with it.
#[test]
fn long_what_passes_are_said_to_cost_gives_the_same_depth_each_time() {
    let (depth, facts, reason) = run(Duration::from_micros(300));
    assert_eq!((depth, reason), (Some(250), Some(Reason::BeyondDepth { depth: 250, position: 599 })));
    let chosen: Vec<&Fact> = facts.iter().filter(|fact| matches!(fact, Fact::DepthChosen { .. })).collect();
    assert_eq!(chosen, [&Fact::DepthChosen { depth: 500 }, &Fact::DepthChosen { depth: 250 }]);
    assert_eq!(run(Duration::from_micros(300)).1, facts);
    assert_eq!(run(Duration::from_micros(1)).0, Some(1000), "all of the queue is considered");
}
