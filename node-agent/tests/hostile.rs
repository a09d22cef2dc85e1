//! Malicious users against an agent that runs as root: whatever their processes do, a job ends when it should.

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{PATIENCE, World, script, tasks};
use nix::unistd::User;
use node_agent::cgroup::{CgroupMode, EnforcedResources, probe};
use rms_api::desired::{Launch, NodeExit};
use rms_model::{Owner, Span};

/// A user of the system whose processes belong to no other test: each test uses a different one.
struct Villain {
    world: World,
    user: User,
    program: PathBuf,
}

impl Villain {
    /// Returns `None`, and prints why, if this cannot be tested here.
    async fn new(name: &str, wanted: CgroupMode) -> Option<Villain> {
        let user = User::from_name(name).ok().flatten();
        let (Some(user), true) = (user, nix::unistd::geteuid().is_root()) else {
            eprintln!("skipped: this needs root, and a user called {name}");
            return None;
        };
        let world = World::new(wanted).await;
        let program = world.cwd().join("hostile");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile.c");
        let compiled = Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(source).status();
        assert!(compiled.is_ok_and(|status| status.success()), "a C compiler, as for the MPI programs");
        fs::set_permissions(world.cwd(), fs::Permissions::from_mode(0o777)).expect("it is ours");
        Some(Villain { world, user, program })
    }

    fn owned(&self, mut launch: Launch) -> Launch {
        launch.owner = Owner(self.user.name.clone());
        launch
    }

    fn script(&self, text: &str) -> Launch {
        self.owned(script(&self.world, text))
    }

    /// Starts the program as the user, outside of every job.
    fn outside(&self, arguments: &[&str]) -> Outside {
        let mut command = Command::new(&self.program);
        command.args(arguments).uid(self.user.uid.as_raw()).gid(self.user.gid.as_raw());
        Outside(command.stdout(Stdio::piped()).spawn().expect("it starts"))
    }

    /// Checks that the job ended soon, whatever its processes did.
    async fn ended(&mut self, job: u64) -> NodeExit {
        let since = Instant::now();
        let (exit, _) = self.world.ended(job).await;
        assert!(since.elapsed() < PATIENCE / 2, "it took {:?}", since.elapsed());
        exit
    }
}

struct Outside(Child);

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the OOM score of this test, which all its children inherit.
fn own_score() -> i32 {
    fs::read_to_string("/proc/self/oom_score_adj").expect("readable").trim().parse().expect("a number")
}

const GRACE: Span = Span::from_millis(200);

#[tokio::test]
async fn long_a_process_that_is_stopped_before_it_is_executed_holds_up_nothing() {
    let Some(mut villain) = Villain::new("games", CgroupMode::Auto).await else { return };
    let _stopper = villain.outside(&["stop", "60"]);
    // Searching a long PATH, though not one too long to execute with, gives the stopper time; by then the process has
    // become the user.
    let path = "/nowhere:".repeat(14_000) + "/usr/bin:/bin";
    let mut launch = villain.owned(tasks(&villain.world, 2, &["sleep", "1000"]));
    launch.execution.environment = std::sync::Arc::new(rms_model::Environment(vec![("PATH".to_owned(), path)]));
    launch.grace = GRACE;
    launch.wall = Span::from_millis(500);
    villain.world.submit(1, launch.clone()).await;
    assert_eq!(villain.ended(1).await, NodeExit::WallTime);
    launch.wall = Span::from_mins(5);
    villain.world.submit(2, launch.clone()).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    villain.world.end(2, GRACE).await;
    let exit = villain.ended(2).await;
    assert!(matches!(exit, NodeExit::Ordered | NodeExit::Overstayed), "{exit:?}");
    // Also with a script, whose window is short: some of these are hit.
    for job in 10..20 {
        let mut launch = villain.script("#!/bin/sh\nsleep 1000\n");
        (launch.grace, launch.wall) = (GRACE, Span::from_millis(200));
        villain.world.submit(job, launch).await;
        assert_eq!(villain.ended(job).await, NodeExit::WallTime);
    }
    villain.world.close().await;
}

#[tokio::test]
async fn long_a_job_whose_processes_are_traced_ends() {
    let Some(mut villain) = Villain::new("lp", CgroupMode::Auto).await else { return };
    let mut launch = villain.script("#!/bin/sh\necho $$ > pid; sleep 1000\n");
    launch.grace = GRACE;
    villain.world.submit(1, launch).await;
    let pid = villain.world.line_in("pid").await;
    let mut tracer = villain.outside(&["trace", &pid, "60"]);
    let mut said = [0; 6];
    std::io::Read::read_exact(tracer.0.stdout.as_mut().expect("piped"), &mut said).expect("it may trace its own");
    villain.world.end(1, GRACE).await;
    let exit = villain.ended(1).await;
    assert!(matches!(exit, NodeExit::Ordered | NodeExit::Overstayed), "{exit:?}");
    // The next job is not affected by what is left of this one.
    villain.world.forget(1).await;
    let next = villain.script("#!/bin/sh\nexit 7\n");
    villain.world.submit(2, next).await;
    assert_eq!(villain.ended(2).await, NodeExit::Exited { code: 7 });
    drop(tracer);
    villain.world.close().await;
}

#[tokio::test]
async fn long_who_forks_hides_and_ignores_is_ended() {
    for (job, (name, wanted)) in (1..).zip([("news", CgroupMode::Auto), ("uucp", CgroupMode::None)]) {
        let Some(mut villain) = Villain::new(name, wanted).await else { return };
        let program = villain.program.display().to_string();
        for (step, mode) in (0..).zip(["storm 300", "hide", "hide & exec sleep 1000"]) {
            let job = 10 * job + step;
            let mut launch = villain.script(&format!("#!/bin/sh\n{program} {mode}\nsleep 1000\n"));
            (launch.grace, launch.wall) = (GRACE, Span::from_millis(800));
            villain.world.submit(job, launch).await;
            assert_eq!(villain.ended(job).await, NodeExit::WallTime, "{mode} with {wanted:?}");
        }
        let uid = villain.user.uid.as_raw();
        let alive = || {
            let entries = fs::read_dir("/proc").expect("readable").flatten();
            let is_process = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
            let processes = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_process));
            processes.filter(|process| process.metadata().is_ok_and(|metadata| metadata.uid() == uid)).count()
        };
        assert_eq!(alive(), 0, "something of the jobs is left with {wanted:?}");
        villain.world.close().await;
    }
}

#[tokio::test]
async fn a_job_is_killed_before_its_supervisor_when_memory_runs_out() {
    let mut world = World::new(CgroupMode::Auto).await;
    let launch = script(&world, "cat /proc/self/oom_score_adj > own; cat /proc/$PPID/oom_score_adj > supervisor\n");
    world.submit(1, launch).await;
    assert_eq!(world.ended(1).await.0, NodeExit::Exited { code: 0 });
    let score = |name: &str| world.read(name).trim().parse::<i32>().expect("a number");
    assert_eq!(score("own"), 500);
    // CAP_SYS_RESOURCE, which root lacks in some containers.
    let status = fs::read_to_string("/proc/self/status").expect("readable");
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("every Linux tells them");
    let may_protect = u64::from_str_radix(capabilities.trim(), 16).expect("a number") >> 24 & 1 == 1;
    assert_eq!(score("supervisor"), if may_protect { -1000 } else { own_score() });
    world.close().await;
}

#[tokio::test]
async fn an_input_is_opened_by_the_job_itself() {
    let Some(mut villain) = Villain::new("man", CgroupMode::Auto).await else { return };
    let mut launch = villain.script("#!/bin/sh\nhead -c 1000 > read\n");
    launch.execution.stdio.input = Some("/proc/self/status".to_owned());
    villain.world.submit(1, launch).await;
    assert_eq!(villain.ended(1).await, NodeExit::Exited { code: 0 });
    let uids = format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}", uid = villain.user.uid);
    let read = villain.world.read("read");
    assert!(read.contains(&uids), "{read}");
    // Files that only root may read are not read for a user, and a file that is not the job's own is not used for
    // output.
    for (job, (input, output)) in (2..).zip([
        (Some("/proc/1/environ"), None),
        (Some("/proc/self/fd/3"), None),
        (None, Some("/proc/self/fd/2")),
        (None, Some("/dev/stdout")),
    ]) {
        let mut launch = villain.script("#!/bin/sh\ncat\n");
        launch.execution.stdio.input = input.map(str::to_owned);
        launch.execution.stdio.output = output.map(str::to_owned);
        villain.world.submit(job, launch).await;
        let exit = villain.ended(job).await;
        let NodeExit::NotStarted { reason, .. } = &exit else { panic!("{exit:?}") };
        assert!(reason.contains(input.or(output).unwrap_or_default()), "{reason}");
    }
    villain.world.close().await;
}

#[tokio::test]
async fn a_job_may_open_its_standard_streams_by_name() {
    let Some(mut villain) = Villain::new("mail", CgroupMode::Auto).await else { return };
    let mut launch =
        villain.script("#!/bin/sh\necho one >> /dev/stdout; echo two >> /dev/stderr; echo three > /dev/fd/2\n");
    launch.execution.stdio.stream = true;
    villain.world.submit(1, launch).await;
    assert_eq!(villain.ended(1).await, NodeExit::Exited { code: 0 });
    villain.world.close().await;
}

#[tokio::test]
async fn what_an_agent_locks_no_user_can_lock() {
    let Some(villain) = Villain::new("proxy", CgroupMode::Auto).await else { return };
    let cgroups =
        probe(CgroupMode::Auto, "limber-lock-test/n1-00000001", EnforcedResources::default()).expect("some or none");
    let claim = cgroups.claim().expect("it is ours");
    drop(claim);
    for dir in cgroups.dirs() {
        let path = dir.display().to_string();
        let locked = villain.outside(&["lock", &path]).0.wait().expect("it ends");
        assert!(!locked.success(), "{path} can be locked by anybody");
    }
    cgroups.remove();
    villain.world.close().await;
}
