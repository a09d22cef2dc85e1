//! A running job gets fewer and more CPUs: all of its threads run on those, and the agent reports it.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{World, script};
use nix::unistd::Pid;
use node_agent::cgroup::CgroupMode;
use node_agent::supervisor::tree::descendants;
use node_agent::topology::cpulist::CpuSet;
use node_agent::topology::{cpus_of, own_cpus};
use rms_api::desired::{Launch, NodeExit};

/// Returns the same launch with `cpus` of the two CPUs that the node counts.
fn with_cpus(launch: &Launch, generation: u32, cpus: u32) -> Launch {
    let mut changed = Launch { generation, ..launch.clone() };
    changed.nodes[0].cpus = cpus;
    changed
}

/// Builds a program with threads and processes that come and go.
fn restless_program(dir: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/apps/threads.c");
    let program = dir.join("threads");
    let compiled = Command::new("cc").arg("-pthread").arg("-o").arg(&program).arg(source).status();
    assert!(compiled.expect("a C compiler").success());
    program
}

/// Returns the masks of all threads of a process and of its descendants.
fn masks_below(root: Pid) -> Vec<CpuSet> {
    let processes = descendants(root).into_iter().chain([root]);
    let threads = processes.flat_map(|process| {
        let entries = std::fs::read_dir(format!("/proc/{process}/task"));
        entries.into_iter().flatten().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
    });
    threads.filter_map(|thread| cpus_of(Pid::from_raw(thread)).ok()).collect()
}

/// Checks that all processes soon run on these CPUs, and that those do which start within a while. A thread that was
/// being created meanwhile is found later.
fn keeps_to(root: Pid, cpus: &CpuSet) {
    let start = Instant::now();
    while !masks_below(root).iter().all(|mask| mask == cpus) {
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", masks_below(root));
    }
    for _ in 0..100 {
        let masks = masks_below(root);
        assert!(masks.len() >= 6, "{masks:?}");
        assert!(masks.iter().all(|mask| mask == cpus), "{masks:?}");
    }
}

async fn threads_follow(wanted: CgroupMode, has_list: bool) {
    let all = own_cpus().expect("an affinity");
    let one: CpuSet = all.iter().copied().take(1).collect();
    let mut world = World::new(wanted).await;
    if has_list {
        world.kill_agent().await;
        world.mask = Some(all.clone());
        world.start_agent().await;
    }
    let program = restless_program(&world.cwd());
    let launch = script(&world, &format!("exec {} > pid", program.display()));
    world.submit(1, launch.clone()).await;
    world.running(1).await;
    let pid = Pid::from_raw(world.line_in("pid").await.parse().expect("a pid"));
    keeps_to(pid, &all);

    world.change(1, with_cpus(&launch, 2, 1)).await;
    assert!(world.confined(1, 2).await);
    keeps_to(pid, &one);
    // The next agent starts with the current state.
    world.kill_agent().await;
    world.start_agent().await;
    assert!(world.confined(1, 2).await, "the supervisor knows");
    world.change(1, with_cpus(&launch, 3, 2)).await;
    assert!(world.confined(1, 3).await);
    keeps_to(pid, &all);
    world.close().await;
}

#[tokio::test]
async fn all_threads_of_a_running_job_follow_its_cpus() {
    threads_follow(CgroupMode::None, false).await;
}

#[tokio::test]
async fn all_threads_of_a_running_job_follow_its_cpus_in_a_cgroup() {
    threads_follow(CgroupMode::Auto, false).await;
}

#[tokio::test]
async fn all_threads_of_a_running_job_follow_its_cpus_in_a_cpuset() {
    threads_follow(CgroupMode::Auto, true).await;
}

/// The next job gets all CPUs again, because a supervisor serves many jobs.
#[tokio::test]
async fn the_next_job_has_all_cpus_again() {
    let all = own_cpus().expect("an affinity");
    let mut world = World::new(CgroupMode::Auto).await;
    world.kill_agent().await;
    world.mask = Some(all.clone());
    world.start_agent().await;
    let first = script(&world, "echo up > up; while [ ! -e go ]; do sleep 0.02; done; nproc");
    world.submit(1, first.clone()).await;
    world.line_in("up").await;
    world.change(1, with_cpus(&first, 2, 1)).await;
    assert!(world.confined(1, 2).await);
    std::fs::write(world.cwd().join("go"), "").expect("a file");
    assert_eq!(world.ended(1).await.0, NodeExit::Exited { code: 0 });
    assert_eq!(world.read("rms-1.out"), "1\n", "what is started later begins on one");
    world.forget(1).await;
    let next = script(&world, "nproc; echo $RMS_CPUS_ON_NODE");
    world.submit(2, next).await;
    assert_eq!(world.ended(2).await.0, NodeExit::Exited { code: 0 });
    assert_eq!(world.read("rms-2.out"), format!("{}\n2\n", all.len()));
    world.close().await;
}

impl World {
    /// Changes the launch, as the server would.
    async fn change(&mut self, job: u64, launch: Launch) {
        let wanted = self.desired.jobs.iter_mut().find(|wanted| wanted.job.0 == job).expect("it was submitted");
        wanted.launch = Arc::new(launch);
        self.desire().await;
    }

    /// Waits for the report of a generation; returns whether the job's processes are confined to their CPUs.
    async fn confined(&mut self, job: u64, generation: u32) -> bool {
        use rms_api::desired::JobStatus;
        loop {
            match self.next(job).await.status {
                JobStatus::Running { generation: heard, is_confined, .. } if heard >= generation => return is_confined,
                JobStatus::Running { .. } | JobStatus::Starting => {}
                JobStatus::Ended { exit, .. } => panic!("it has ended: {exit:?}"),
            }
        }
    }
}
