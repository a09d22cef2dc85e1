//! Measures the cost of a job beyond the bare fork and exec of its program. Not a test: run it with `--ignored
//! --nocapture`.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{World, me, tasks};
use nix::sys::resource::{UsageWho, getrusage};
use node_agent::cgroup::CgroupMode;
use node_agent::supervisor::tree;
use rms_model::Owner;

const N_JOBS: u64 = 300;

fn own_cpu(who: UsageWho) -> Duration {
    let usage = getrusage(who).expect("usage");
    let micros = |time: nix::sys::time::TimeVal| (time.tv_sec() * 1_000_000 + time.tv_usec()) as u64;
    Duration::from_micros(micros(usage.user_time()) + micros(usage.system_time()))
}

/// Returns the CPU time of all descendants of this process, and of the children that they have reaped.
fn tree_cpu() -> Duration {
    let ticks = |pid: nix::unistd::Pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned()).unwrap_or_default();
        fields.split(' ').skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum::<u64>()
    };
    Duration::from_millis(10 * tree::descendants(nix::unistd::getpid()).into_iter().map(ticks).sum::<u64>())
}

fn per_job(what: &str, wall: Duration, cpu: Duration) {
    let n = N_JOBS as u32;
    println!("{what}: {:?} and {:?} of CPU a job", wall / n, cpu / n);
}

#[tokio::test]
#[ignore = "a measurement"]
async fn a_job_beside_fork_and_exec() {
    let (since, before) = (Instant::now(), own_cpu(UsageWho::RUSAGE_CHILDREN));
    for _ in 0..N_JOBS {
        Command::new("/bin/true").status().expect("true");
    }
    per_job("fork, exec, wait", since.elapsed(), own_cpu(UsageWho::RUSAGE_CHILDREN) - before);

    // Processes of another user have a copy of the memory until they are executed.
    let is_root = nix::unistd::geteuid().is_root();
    let owners = [me()].into_iter().chain(is_root.then(|| "games".to_owned()));
    for (owner, wanted) in owners.flat_map(|owner| [(owner.clone(), CgroupMode::Auto), (owner, CgroupMode::None)]) {
        let mut world = World::new(wanted).await;
        std::fs::set_permissions(world.cwd(), std::fs::Permissions::from_mode(0o755)).expect("it is ours");
        let true_of = |world: &World| {
            let mut launch = tasks(world, 1, &["/bin/true"]);
            launch.execution.stdio.output = Some("/dev/null".to_owned());
            launch.owner = Owner(owner.clone());
            launch
        };
        let warm = true_of(&world);
        world.submit(1_000_000, warm).await;
        world.ended(1_000_000).await;
        world.forget(1_000_000).await;
        let (since, agent, below) = (Instant::now(), own_cpu(UsageWho::RUSAGE_SELF), tree_cpu());
        for job in 1..=N_JOBS {
            let launch = true_of(&world);
            world.submit(job, launch).await;
            world.ended(job).await;
            world.forget(job).await;
        }
        let agent = own_cpu(UsageWho::RUSAGE_SELF) - agent;
        per_job(&format!("{owner}, {wanted:?}: agent"), since.elapsed(), agent);
        per_job(&format!("{owner}, {wanted:?}: supervisor and job"), since.elapsed(), tree_cpu() - below);
        world.close().await;
    }
}
