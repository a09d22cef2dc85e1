//! What jobs do on a node: start, write, end; real processes of the user who runs the test.

mod common;

use common::{World, script};
use node_agent::cgroup::Wanted;
use rms_core::desired::NodeExit;

#[tokio::test]
async fn a_script_runs_and_its_exit_code_and_output_are_there() {
    let mut world = World::new(Wanted::Auto).await;
    let launch = script(&world, "#!/bin/sh\necho hello from $RMS_JOB_ID on $RMS_NODELIST\nexit 3\n");
    world.submit(1, launch).await;
    world.running(1).await;
    assert_eq!(world.ended(1).await.0, NodeExit::Exited { code: 3 });
    assert_eq!(world.read("rms-1.out"), "hello from 1 on t1\n");
    world.close().await;
}
