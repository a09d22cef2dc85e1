//! Tests which processes outlive which: agents, spawners and supervisors are killed under running jobs.

mod common;

use common::{PATIENCE, World, gone, is_alive, script};
use node_agent::cgroup::CgroupMode;
use node_agent::spool;
use rms_api::desired::NodeExit;
use rms_model::{JobId, Run, Span};
use test_kit::any_seed;

/// Runs until the file `go` is created.
const WAITS: &str = "echo $$ > pid; while [ ! -e go ]; do sleep 0.01; done; exit 5";

fn go(world: &World) {
    std::fs::write(world.cwd().join("go"), "").expect("a file");
}

#[tokio::test]
async fn a_job_outlives_its_agent_and_is_taken_over() {
    let mut world = World::new(CgroupMode::Auto).await;
    let launch = script(&world, WAITS);
    world.submit(1, launch).await;
    let pid = world.line_in("pid").await.parse().expect("a pid");
    world.kill_agent().await;
    world.start_agent().await;
    world.running(1).await;
    world.desire().await;
    assert!(is_alive(pid), "nothing happened to it");
    go(&world);
    assert_eq!(world.ended(1).await.0, NodeExit::Exited { code: 5 });
    world.close().await;
}

#[tokio::test]
async fn a_job_that_ends_while_the_agent_is_away_is_reported_with_its_real_code() {
    let mut world = World::new(CgroupMode::Auto).await;
    let launch = script(&world, WAITS);
    world.submit(1, launch).await;
    let pid = world.line_in("pid").await.parse().expect("a pid");
    world.kill_agent().await;
    go(&world);
    gone(pid).await;
    let entry_dir = world.spool().entry_dir(JobId(1), Run(1));
    while spool::read_result(&entry_dir, JobId(1), Run(1)).is_err() {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    world.start_agent().await;
    assert_eq!(world.ended(1).await.0, NodeExit::Exited { code: 5 });
    world.close().await;
}

#[tokio::test]
async fn wall_time_holds_while_the_agent_is_away() {
    let mut world = World::new(CgroupMode::Auto).await;
    let mut launch = script(&world, WAITS);
    launch.wall = Span::from_millis(400);
    launch.grace = Span::from_millis(100);
    world.submit(1, launch).await;
    let pid = world.line_in("pid").await.parse().expect("a pid");
    world.kill_agent().await;
    gone(pid).await;
    world.start_agent().await;
    assert_eq!(world.ended(1).await.0, NodeExit::WallTime);
    world.close().await;
}

async fn a_killed_supervisor_is_noticed(wanted: CgroupMode) {
    let mut world = World::new(wanted).await;
    let text = format!("setsid sh -c 'echo $$ > child; while :; do sleep 1; done' & {WAITS}");
    let launch = script(&world, &text);
    world.submit(1, launch).await;
    let pid: i32 = world.line_in("pid").await.parse().expect("a pid");
    let child: i32 = world.line_in("child").await.parse().expect("a pid");
    let entry = spool::read_entry(&world.spool().entry_dir(JobId(1), Run(1))).expect("an entry");
    node_agent::sys::kill(entry.supervisor, nix::libc::SIGKILL).expect("it lives");
    match world.ended(1).await.0 {
        NodeExit::Unsupervised { reason } => assert!(reason.contains("rms-supervisor"), "{reason}"),
        other => panic!("{other:?}"),
    }
    assert!(!is_alive(pid) && !is_alive(child), "the rest of the job is ended");
    world.close().await;
}

#[tokio::test]
async fn a_killed_supervisor_is_noticed_with_cgroups() {
    a_killed_supervisor_is_noticed(CgroupMode::Auto).await;
}

#[tokio::test]
async fn a_killed_supervisor_is_noticed_without_cgroups() {
    a_killed_supervisor_is_noticed(CgroupMode::None).await;
}

#[tokio::test]
async fn a_supervisor_killed_while_the_agent_is_away_is_noticed_too() {
    let mut world = World::new(CgroupMode::Auto).await;
    let launch = script(&world, WAITS);
    world.submit(1, launch).await;
    let pid: i32 = world.line_in("pid").await.parse().expect("a pid");
    world.kill_agent().await;
    let entry = spool::read_entry(&world.spool().entry_dir(JobId(1), Run(1))).expect("an entry");
    node_agent::sys::kill(entry.supervisor, nix::libc::SIGKILL).expect("it lives");
    gone(entry.supervisor).await;
    world.start_agent().await;
    assert!(matches!(world.ended(1).await.0, NodeExit::Unsupervised { .. }));
    assert!(!is_alive(pid));
    world.close().await;
}

#[tokio::test]
async fn after_a_reboot_what_ran_has_vanished() {
    let mut world = World::new(CgroupMode::Auto).await;
    world.kill_agent().await;
    let dir = world.spool().entry_dir(JobId(1), Run(1));
    std::fs::create_dir(&dir).expect("an entry");
    let launch = script(&world, WAITS);
    let desired = rms_api::desired::DesiredJob {
        job: JobId(1),
        run: Run(1),
        aim: rms_api::desired::Aim::Run,
        launch: std::sync::Arc::new(launch),
        node_idx: 0,
    };
    let entry = spool::Entry {
        order: world.setup().order(&desired),
        boot: "another boot".to_owned(),
        cgroup: node_agent::cgroup::Cgroup::none(),
        seat: "s".to_owned(),
        supervisor: 1,
    };
    std::fs::write(spool::entry_path(&dir), serde_json::to_vec(&entry).expect("JSON")).expect("written");
    world.start_agent().await;
    match world.ended(1).await.0 {
        NodeExit::Vanished { reason } => assert_eq!(reason, "the node was restarted"),
        other => panic!("{other:?}"),
    }
    world.close().await;
}

#[tokio::test]
async fn a_killed_spawner_is_replaced() {
    let mut world = World::new(CgroupMode::Auto).await;
    let launch = script(&world, WAITS);
    world.submit(1, launch).await;
    world.line_in("pid").await;
    let entry = spool::read_entry(&world.spool().entry_dir(JobId(1), Run(1))).expect("an entry");
    let parent = node_agent::supervisor::tree::parent_of(nix::unistd::Pid::from_raw(entry.supervisor));
    node_agent::sys::kill(parent.expect("the spawner").as_raw(), nix::libc::SIGKILL).expect("it lives");
    let launch = script(&world, "exit 4");
    world.submit(2, launch).await;
    assert_eq!(world.ended(2).await.0, NodeExit::Exited { code: 4 });
    go(&world);
    assert_eq!(world.ended(1).await.0, NodeExit::Exited { code: 5 }, "the other job did not notice");
    world.close().await;
}

/// Runs job 1 to its end and returns its supervisor. The server has not taken note of the result yet.
async fn first_supervisor(world: &mut World) -> i32 {
    let launch = script(world, WAITS);
    world.submit(1, launch).await;
    world.line_in("pid").await;
    let supervisor = spool::read_entry(&world.spool().entry_dir(JobId(1), Run(1))).expect("an entry").supervisor;
    go(world);
    assert_eq!(world.ended(1).await.0, NodeExit::Exited { code: 5 });
    supervisor
}

/// Starts job 2 and forgets job 1 in the same message, as a server does that gives the node to the next job.
async fn second_instead(world: &mut World) {
    world.desired.jobs.clear();
    let launch = script(world, "ls $(dirname $RMS_HOSTFILE) > files; exit 6");
    world.submit(2, launch).await;
    assert_eq!(world.ended(2).await.0, NodeExit::Exited { code: 6 });
    let first = world.spool().entry_dir(JobId(1), Run(1));
    let deadline = std::time::Instant::now() + PATIENCE;
    while first.exists() {
        assert!(std::time::Instant::now() < deadline, "what is forgotten goes");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_supervisor_goes_on_to_the_next_job_with_nothing_of_the_last() {
    let mut goes_on = false;
    // On a busy machine the supervisor may have written the result and ended before it gets the next job.
    for _ in 0..10 {
        let mut world = World::new(CgroupMode::None).await;
        let supervisor = first_supervisor(&mut world).await;
        second_instead(&mut world).await;
        let second = spool::read_entry(&world.spool().entry_dir(JobId(2), Run(1))).expect("an entry");
        assert_eq!(second.order.job, JobId(2));
        let files = world.read("files");
        let mut names: Vec<&str> = files.split_whitespace().filter(|name| *name != "result").collect();
        names.sort_unstable();
        assert_eq!(names, ["control.sock", "entry", "generation", "hosts.mpich", "hosts.openmpi", "script"]);
        world.close().await;
        goes_on = second.supervisor == supervisor;
        if goes_on {
            break;
        }
    }
    assert!(goes_on, "another supervisor is made for each job");
}

#[tokio::test]
async fn a_job_given_to_a_supervisor_that_dies_before_it_begins_is_given_to_another() {
    let mut world = World::new(CgroupMode::None).await;
    let supervisor = first_supervisor(&mut world).await;
    // A stopped supervisor receives nothing more, unless it has ended on its own, which is equally good.
    let _ended_already = node_agent::sys::kill(supervisor, nix::libc::SIGSTOP);
    let killed = tokio::spawn(async move {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        let _ended_already = node_agent::sys::kill(supervisor, nix::libc::SIGKILL);
    });
    second_instead(&mut world).await;
    killed.await.expect("it was killed");
    let second = spool::read_entry(&world.spool().entry_dir(JobId(2), Run(1))).expect("an entry");
    assert_ne!(second.supervisor, supervisor);
    world.close().await;
}

#[tokio::test]
async fn a_job_that_stops_its_supervisor_does_not_outlive_its_wall_time() {
    let mut world = World::new(CgroupMode::None).await;
    let mut launch = script(&world, "echo $$ > pid; kill -STOP $PPID; exec sleep 300");
    (launch.wall, launch.grace) = (Span::from_secs(1), Span::from_secs(1));
    world.submit(1, launch).await;
    let pid = world.line_in("pid").await.parse().expect("a pid");
    assert_eq!(world.ended(1).await.0, NodeExit::WallTime);
    gone(pid).await;
    world.close().await;
}

#[tokio::test]
async fn nothing_runs_twice_when_the_agent_dies_with_the_order() {
    let (mut dice, _replay) = any_seed("nothing_runs_twice");
    for _ in 0..10 {
        let mut world = World::new(CgroupMode::None).await;
        let launch = script(&world, "echo once >> runs; while [ ! -e go ]; do sleep 0.01; done");
        world.submit(1, launch).await;
        // At a random time: before the order is sent, while it is carried out, or afterwards.
        tokio::time::sleep(std::time::Duration::from_micros(dice.below(8192))).await;
        world.kill_agent().await;
        world.start_agent().await;
        world.desire().await;
        tokio::time::timeout(PATIENCE, world.line_in("runs")).await.expect("it runs");
        go(&world);
        assert_eq!(world.ended(1).await.0, NodeExit::Exited { code: 0 });
        assert_eq!(world.read("runs"), "once\n");
        world.close().await;
    }
}
