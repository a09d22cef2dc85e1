//! A running job is notified that its nodes have changed: by its hostfile, by a signal, by a command.

mod common;

use std::sync::Arc;

use common::{World, script, tasks};
use node_agent::cgroup::CgroupMode;
use rms_api::desired::{Launch, LaunchNode, NodeExit};
use rms_model::{NodeId, OnResize};

/// Returns the launch on other nodes; the job is about to leave those with a minus: `t1 t2 -t3`.
fn on(launch: &Launch, generation: u32, nodes: &str) -> Launch {
    let mut changed = launch.clone();
    changed.generation = generation;
    let node = |(idx, name): (usize, &str)| LaunchNode {
        node: NodeId(idx as u32),
        name: name.trim_start_matches('-').to_owned(),
        departing: name.starts_with('-'),
        ..launch.nodes[0].clone()
    };
    changed.nodes = nodes.split(' ').enumerate().map(node).collect();
    changed
}

impl World {
    /// Changes the launch, as the server would.
    async fn change(&mut self, launch: Launch) {
        self.desired.jobs[0].launch = Arc::new(launch);
        self.desire().await;
    }

    /// Waits until a file has `n_lines` lines, and returns them.
    async fn lines(&self, name: &str, n_lines: usize) -> Vec<String> {
        let deadline = tokio::time::Instant::now() + common::PATIENCE;
        loop {
            let text = std::fs::read_to_string(self.cwd().join(name)).unwrap_or_default();
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            if lines.len() >= n_lines && text.ends_with('\n') {
                return lines;
            }
            assert!(tokio::time::Instant::now() < deadline, "{name} has {lines:?} and not {n_lines} lines");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
}

/// Prints what a process sees of its nodes.
const LOOK: &str = "echo $(cat $RMS_GENERATION_FILE): $(grep -v '^#' $RMS_HOSTFILE | cut -d' ' -f1) >> seen";

#[tokio::test]
async fn a_script_hears_by_a_signal_of_nodes_that_come_and_of_those_that_it_is_to_leave() {
    let mut world = World::new(CgroupMode::Auto).await;
    // The handler is set late; until then the signal would end the process. Its children are not notified.
    let text = format!(
        "sleep 0.3; look() {{ {LOOK}; }}; trap look USR1; echo up > up; while :; do sleep 100 & echo $! >> sleepers; wait $!; done"
    );
    let launch = Launch { on_resize: Some(OnResize::Signal(nix::libc::SIGUSR1)), ..script(&world, &text) };
    world.submit(1, launch.clone()).await;
    world.running(1).await;
    world.change(on(&launch, 2, "t1 t2 t3")).await;
    assert_eq!(world.lines("seen", 1).await, ["2: t1 t2 t3"]);
    world.change(on(&launch, 3, "t1 t2 -t3")).await;
    assert_eq!(world.lines("seen", 2).await[1], "3: t1 t2");
    // The job has left the node as announced, of which it is not notified.
    world.change(on(&launch, 4, "t1 t2")).await;
    world.change(on(&launch, 5, "t1")).await;
    assert_eq!(world.lines("seen", 3).await[2..], ["5: t1"]);
    let sleeper = world.lines("sleepers", 1).await[0].parse().expect("a pid");
    assert!(common::is_alive(sleeper), "the signal is for the script alone");
    world.close().await;
}

#[tokio::test]
async fn who_does_not_handle_the_signal_is_not_ended_by_it() {
    let mut world = World::new(CgroupMode::Auto).await;
    let launch = Launch {
        on_resize: Some(OnResize::Signal(nix::libc::SIGUSR1)),
        ..script(&world, "echo up > up; while [ ! -e go ]; do sleep 0.05; done; exit 5")
    };
    world.submit(1, launch.clone()).await;
    world.line_in("up").await;
    world.change(on(&launch, 2, "t1 t2")).await;
    std::fs::write(world.cwd().join("go"), "").expect("a file");
    assert_eq!(world.ended(1).await.0, NodeExit::Exited { code: 5 });
    world.close().await;
}

#[tokio::test]
async fn each_task_hears_by_the_signal() {
    let mut world = World::new(CgroupMode::Auto).await;
    let argv = [
        "sh",
        "-c",
        "trap 'echo heard > heard.$RMS_TASK_ID' USR1; echo up > up.$RMS_TASK_ID; while :; do sleep 0.05; done",
    ];
    let launch = Launch { on_resize: Some(OnResize::Signal(nix::libc::SIGUSR1)), ..tasks(&world, 2, &argv) };
    world.submit(1, launch.clone()).await;
    world.line_in("up.0").await;
    world.change(on(&launch, 2, "t1 t2")).await;
    world.line_in("heard.0").await;
    world.line_in("heard.1").await;
    world.close().await;
}

#[tokio::test]
async fn a_command_hears_of_the_newest_change_and_never_runs_twice_at_once() {
    let mut world = World::new(CgroupMode::Auto).await;
    // The first hook is slow; two more changes come meanwhile.
    let hook = format!(
        "mkdir busy || echo twice >> seen; {LOOK}; echo for $RMS_RESIZE_GENERATION of $RMS_JOB_ID on $RMS_NODELIST of $RMS_MALLEABLE_LEAST to $RMS_MALLEABLE_MOST; \
         while [ ! -e go ]; do sleep 0.02; done; rmdir busy; cat"
    );
    let launch = Launch { on_resize: Some(OnResize::Hook(hook)), least: 2, most: 8, ..script(&world, "sleep 1000") };
    world.submit(1, launch.clone()).await;
    world.running(1).await;
    world.change(on(&launch, 2, "t1 t2")).await;
    assert_eq!(world.lines("seen", 1).await, ["2: t1 t2"]);
    world.change(on(&launch, 3, "t1 t2 t3")).await;
    world.change(on(&launch, 4, "t1 t2 -t3")).await;
    std::fs::write(world.cwd().join("go"), "").expect("a file");
    assert_eq!(world.lines("seen", 2).await[1..], ["4: t1 t2"]);
    let output = world.lines("rms-1.out", 2).await;
    assert_eq!(
        output,
        ["for 2 of 1 on t[1-2] of 2 to 8", "for 4 of 1 on t[1-2] of 2 to 8"],
        "it writes to the job's output"
    );
    world.close().await;
}

#[tokio::test]
async fn a_command_that_fails_or_hangs_does_not_touch_the_job() {
    let mut world = World::new(CgroupMode::Auto).await;
    let hook = "[ $RMS_RESIZE_GENERATION = 2 ] && exit 7; echo $$ > hangs; trap '' TERM; while :; do sleep 1; done";
    let launch = Launch {
        on_resize: Some(OnResize::Hook(hook.to_owned())),
        ..script(&world, "while [ ! -e go ]; do sleep 0.05; done; exit 3")
    };
    world.submit(1, launch.clone()).await;
    world.running(1).await;
    world.change(on(&launch, 2, "t1 t2")).await;
    let output = world.lines("rms-1.out", 1).await;
    assert_eq!(output, ["rms: job 1: the command for generation 2 has ended with code 7"]);
    world.change(on(&launch, 3, "t1")).await;
    let hangs = world.line_in("hangs").await.parse().expect("a pid");
    std::fs::write(world.cwd().join("go"), "").expect("a file");
    assert_eq!(world.ended(1).await.0, NodeExit::Exited { code: 3 });
    assert!(!common::is_alive(hangs), "the job's end is its end");
    world.close().await;
}

#[tokio::test]
async fn an_agent_that_is_killed_tells_of_a_change_once_it_is_back() {
    let mut world = World::new(CgroupMode::Auto).await;
    let text = format!("look() {{ {LOOK}; }}; trap look USR1; echo up > up; while :; do sleep 0.05; done");
    let launch = Launch { on_resize: Some(OnResize::Signal(nix::libc::SIGUSR1)), ..script(&world, &text) };
    world.submit(1, launch.clone()).await;
    world.line_in("up").await;
    world.change(on(&launch, 2, "t1 t2")).await;
    world.lines("seen", 1).await;
    world.kill_agent().await;
    world.start_agent().await;
    world.change(on(&launch, 2, "t1 t2")).await;
    world.change(on(&launch, 3, "t1")).await;
    assert_eq!(world.lines("seen", 2).await, ["2: t1 t2", "3: t1"]);
    world.close().await;
}

#[tokio::test]
async fn a_node_that_is_to_be_left_runs_on_until_it_is_ended() {
    let mut world = World::new(CgroupMode::Auto).await;
    let launch = Launch {
        on_resize: Some(OnResize::Workers),
        ..tasks(
            &world,
            1,
            &[
                "sh",
                "-c",
                "trap 'echo last result >> results; exit 0' TERM; echo up > up; while :; do sleep 0.05; done",
            ],
        )
    };
    world.submit(1, launch.clone()).await;
    world.line_in("up").await;
    world.change(on(&launch, 2, "-t1 t2")).await;
    world.end(1, rms_model::Span::from_secs(10)).await;
    assert_eq!(world.ended(1).await.0, NodeExit::Ordered);
    assert_eq!(world.read("results"), "last result\n", "after TERM a worker may finish what it has begun");
    world.close().await;
}
