//! Tests that processes on a node that their job has left get some time to end on their own.

mod common;

use std::time::Duration;

use common::{World, launch, script};
use node_agent::cgroup::CgroupMode;
use rms_api::desired::NodeExit;
use rms_model::{Span, Work};

const HOUR: Span = Span::from_hours(1);

/// Ends when it may, like ranks that finalize, and reports if it got TERM.
const FINALIZES: &str = "trap 'echo told > told; exit 1' TERM; echo up > up\n\
    while [ ! -e go ]; do sleep 0.02; done; echo done > done";

impl World {
    fn was_told(&self) -> bool {
        self.cwd().join("told").exists()
    }
}

#[tokio::test]
async fn who_ends_by_itself_is_not_told_to_and_the_node_is_free_at_once() {
    let mut world = World::new(CgroupMode::Auto).await;
    let launch = script(&world, FINALIZES);
    world.submit(1, launch).await;
    world.running(1).await;
    world.line_in("up").await;
    world.end_after(HOUR, 1, HOUR).await;
    // Long enough for a TERM that is sent too early to take effect; on a slow machine the test passes without noticing.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!world.was_told());
    std::fs::write(world.cwd().join("go"), "").expect("written");
    assert_eq!(world.ended(1).await.0, NodeExit::Ordered, "nobody waits for the hour to be over");
    assert_eq!((world.line_in("done").await.as_str(), world.was_told()), ("done", false));
    world.close().await;
}

#[tokio::test]
async fn who_stays_is_told_once_the_while_is_over_and_killed_after_the_grace() {
    let mut world = World::new(CgroupMode::Auto).await;
    let polite = script(&world, FINALIZES);
    world.submit(1, polite).await;
    world.line_in("up").await;
    world.end_after(Span::from_millis(200), 1, HOUR).await;
    assert_eq!(world.ended(1).await.0, NodeExit::Ordered);
    assert!(world.was_told());
    let deaf = script(&world, "trap '' TERM; echo deaf > deaf; while :; do sleep 1; done");
    world.submit(2, deaf).await;
    world.line_in("deaf").await;
    world.end_after(Span::from_millis(200), 2, Span::from_millis(200)).await;
    assert_eq!(world.ended(2).await.0, NodeExit::Overstayed);
    world.close().await;
}

#[tokio::test]
async fn a_job_that_is_ended_while_it_leaves_is_waited_for_no_longer() {
    let mut world = World::new(CgroupMode::Auto).await;
    let launch = script(&world, FINALIZES);
    world.submit(1, launch).await;
    world.line_in("up").await;
    world.end_after(HOUR, 1, HOUR).await;
    world.end(1, HOUR).await;
    assert_eq!(world.ended(1).await.0, NodeExit::Ordered);
    assert!(world.was_told());
    world.close().await;
}

#[tokio::test]
async fn a_node_where_nothing_runs_is_free_without_any_wait() {
    let mut world = World::new(CgroupMode::Auto).await;
    let launch = launch(&world.cwd(), Work::Nodes, 1);
    world.submit(1, launch).await;
    world.running(1).await;
    world.end_after(HOUR, 1, HOUR).await;
    assert_eq!(world.ended(1).await.0, NodeExit::Ordered);
    world.close().await;
}
