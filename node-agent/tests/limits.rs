//! The limits of jobs on a node (memory, and space in the spool), and the messages if they cannot be enforced.

mod common;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use common::{World, script, tasks};
use node_agent::cgroup::{CgroupMode, EnforcedResources, Kind, probe};
use node_agent::devices::DeviceFiles;
use node_agent::order::{Order, OwnDevices};
use rms_api::desired::{Aim, DesiredJob, NodeExit};
use rms_model::{Grant, JobId, Mebibytes, Run, Span};

/// Returns a node whose cgroups limit memory, and a program that allocates some. Returns `None`, and prints why, if
/// that is not possible.
async fn world_with_limits() -> Option<(World, String)> {
    let cgroups = probe(CgroupMode::Auto, "limber-memory-test", EnforcedResources::default()).expect("some or none");
    let can = cgroups.limits_memory();
    cgroups.remove();
    if !can {
        eprintln!("skipped: no memory cgroup that this user may make");
        return None;
    }
    let world = World::new(CgroupMode::Auto).await;
    let program = world.cwd().join("hostile");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile.c");
    let compiled = Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(source).status();
    assert!(compiled.is_ok_and(|status| status.success()), "a C compiler, as for the MPI programs");
    let program = program.display().to_string();
    Some((world, program))
}

#[tokio::test]
async fn a_job_gets_the_memory_that_it_asked_for_and_no_more() {
    let Some((mut world, program)) = world_with_limits().await else { return };
    let limited = |world: &World, mib: u32, limit: u64| {
        let mut launch = tasks(world, 1, &[&program, "eat", &mib.to_string()]);
        launch.memory = Mebibytes(limit);
        launch
    };
    let launch = limited(&world, 200, 64);
    world.submit(1, launch).await;
    let (exit, usage) = world.ended(1).await;
    assert_eq!(exit, NodeExit::OutOfMemory);
    assert!((48 << 10..80 << 10).contains(&usage.peak_memory_kib), "its peak is the limit: {usage:?}");
    world.forget(1).await;
    let launch = limited(&world, 40, 64);
    world.submit(2, launch).await;
    assert_eq!(world.ended(2).await.0, NodeExit::Exited { code: 0 });
    world.forget(2).await;
    // The next job of the same supervisor has no limit.
    let launch = limited(&world, 200, 0);
    world.submit(3, launch).await;
    assert_eq!(world.ended(3).await.0, NodeExit::Exited { code: 0 });
    world.forget(3).await;
    // A script that ignores the exit codes of its commands does not hide the kill.
    let mut launch = script(&world, &format!("{program} eat 200\necho done\n"));
    launch.memory = Mebibytes(64);
    world.submit(4, launch).await;
    assert_eq!(world.ended(4).await.0, NodeExit::OutOfMemory);
    // Kills in an earlier job do not count for a later one.
    world.forget(4).await;
    let mut launch = script(&world, "exit 3\n");
    launch.memory = Mebibytes(64);
    world.submit(5, launch).await;
    assert_eq!(world.ended(5).await.0, NodeExit::Exited { code: 3 });
    world.close().await;
}

/// The processes of a step that run out of memory are not those whose end ends the share.
#[tokio::test]
async fn memory_that_has_run_out_is_told_of_a_share_that_is_ended_by_an_order() {
    let Some((mut world, program)) = world_with_limits().await else { return };
    let cases = [
        (200, "exec sleep 1000", NodeExit::OutOfMemory),
        (200, "trap '' TERM; while :; do sleep 0.1; done", NodeExit::OutOfMemory),
        (20, "exec sleep 1000", NodeExit::Ordered),
    ];
    for (job, (mib, then, expected)) in (1..).zip(cases) {
        let mut launch = script(&world, &format!("{program} eat {mib}\necho fed > fed.{job}\n{then}\n"));
        launch.memory = Mebibytes(64);
        world.submit(job, launch).await;
        world.line_in(&format!("fed.{job}")).await;
        world.end(job, Span::from_millis(500)).await;
        assert_eq!(world.ended(job).await.0, expected, "{mib} MiB, then {then}");
        world.forget(job).await;
    }
    world.close().await;
}

#[tokio::test]
async fn without_a_memory_cgroup_nothing_is_limited_and_nothing_fails() {
    let cgroups = probe(CgroupMode::None, "limber-no-memory-test", EnforcedResources::default()).expect("none");
    assert!(cgroups.kind() == Kind::None && !cgroups.limits_memory());
    let mut world = World::new(CgroupMode::None).await;
    let mut launch = script(&world, "exit 0\n");
    launch.memory = Mebibytes(64);
    world.submit(1, launch).await;
    assert_eq!(world.ended(1).await.0, NodeExit::Exited { code: 0 });
    world.close().await;
}

#[tokio::test]
async fn long_output_beyond_the_quota_of_the_spool_ends_its_job() {
    let mut world = World::new(CgroupMode::Auto).await;
    world.kill_agent().await;
    world.spool_quota = Some(1 << 20);
    world.start_agent().await;
    let mut launch = script(&world, "head -c 100000 /dev/zero; sleep 3; exit 4\n");
    launch.execution.stdio.stream = true;
    world.submit(1, launch).await;
    assert_eq!(world.ended(1).await.0, NodeExit::Exited { code: 4 }, "less is none of our business");
    let mut launch = script(&world, "head -c 4000000 /dev/zero; sleep 1000\n");
    (launch.execution.stdio.stream, launch.grace) = (true, Span::from_millis(100));
    world.submit(2, launch).await;
    let (exit, _) = world.ended(2).await;
    let NodeExit::Violated { reason } = &exit else { panic!("{exit:?}") };
    assert!(reason.contains("spool_quota_mib = 1"), "{reason}");
    world.close().await;
}

#[tokio::test]
async fn a_job_whose_supervisor_is_killed_says_so() {
    let mut world = World::new(CgroupMode::Auto).await;
    let launch = script(&world, "echo $PPID > supervisor; sleep 1000\n");
    world.submit(1, launch).await;
    let pid = world.line_in("supervisor").await.parse().expect("a pid");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).expect("ours");
    let (exit, _) = world.ended(1).await;
    let NodeExit::Unsupervised { reason } = &exit else { panic!("{exit:?}") };
    assert!(reason.contains("rms-supervisor") && reason.contains("killed"), "{reason}");
    world.close().await;
}

#[tokio::test]
async fn a_start_that_fails_says_whose_fault_it_was() {
    let mut world = World::new(CgroupMode::Auto).await;
    let launch = tasks(&world, 1, &["/nowhere/at/all"]);
    world.submit(1, launch).await;
    let (exit, _) = world.ended(1).await;
    let NodeExit::NotStarted { reason, .. } = &exit else { panic!("{exit:?}") };
    assert!(!reason.contains("the node is at fault"), "{reason}");
    // A file is in the place of the next job's entry.
    std::fs::write(world.spool().entry_dir(JobId(2), Run(1)), "").expect("ours");
    let launch = script(&world, "true\n");
    world.submit(2, launch).await;
    let (exit, _) = world.ended(2).await;
    let NodeExit::NotStarted { reason, .. } = &exit else { panic!("{exit:?}") };
    assert!(reason.contains("the node is at fault"), "{reason}");
    world.close().await;
}

/// The numbers of a job's devices must denote the files that it was started with.
#[tokio::test]
async fn a_job_keeps_the_files_of_its_devices_when_the_list_of_them_changes() {
    let world = World::new(CgroupMode::None).await;
    let with = |names: &[&str]| {
        let file = |name: &&str| vec![Path::new("/dev").join(name)];
        let mut setup = world.setup();
        setup.devices = DeviceFiles([("fpga".to_owned(), names.iter().map(file).collect())].into());
        setup.inventory.devices = setup.devices.counts();
        setup
    };
    let before = with(&["null", "zero", "full"]);
    let order_with = |numbers: &[u32]| {
        let mut launch = script(&world, "sleep 1000");
        let devices = [("fpga".to_owned(), numbers.iter().copied().collect())].into();
        launch.nodes[0].grant = Some(Grant { devices, ..Grant::default() });
        before.order(&DesiredJob { job: JobId(1), run: Run(1), aim: Aim::Run, launch: Arc::new(launch), node_idx: 0 })
    };
    let cases: [(&[u32], &[&str], bool); 10] = [
        (&[1], &["null", "zero", "full"], false),
        (&[1], &["null", "zero"], false),
        (&[1], &["random", "zero", "full"], false),
        (&[1], &["zero", "null", "full"], true),
        (&[0, 1], &["zero", "null", "full"], true),
        (&[2], &["zero", "null", "full"], false),
        (&[1], &["null", "full"], true),
        (&[0], &["zero", "full"], true),
        (&[2], &["null", "zero"], true),
        // A file that is gone for a while makes a trouble of its own.
        (&[1], &["null", "gone", "full"], false),
    ];
    for (numbers, now, is_other) in cases {
        let order = order_with(numbers);
        assert_eq!(with(now).exceeds_node(&order), is_other, "{numbers:?} of {now:?}");
        let kept = serde_json::to_string(&order).expect("as in the spool");
        assert_eq!(serde_json::from_str::<Order>(&kept).expect("it is read again"), order);
        // An agent before this version kept no files.
        let mut old = order;
        old.devices.iter_mut().for_each(|own| *own = OwnDevices { gpus: own.gpus.clone(), ..OwnDevices::default() });
        let is_missing = numbers.iter().any(|number| *number as usize >= now.len());
        assert_eq!(with(now).exceeds_node(&old), is_missing, "{numbers:?} of {now:?}");
    }
}
