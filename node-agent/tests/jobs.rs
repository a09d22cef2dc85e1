//! Tests that jobs on a node start, write and end, with real processes of the user who runs the test.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{World, gone, is_alive, launch, script, tasks};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use node_agent::cgroup::CgroupMode;
use rms_api::desired::{Launch, NodeExit};
use rms_model::{Environment, Limits, Owner, Span, Work};

/// Runs one job to its end and returns its exit status.
async fn exit_of(world: &mut World, job: u64, launch: Launch) -> NodeExit {
    world.submit(job, launch).await;
    world.ended(job).await.0
}

async fn reason_of(world: &mut World, job: u64, launch: Launch) -> String {
    match exit_of(world, job, launch).await {
        NodeExit::NotStarted { reason, .. } => reason,
        other => panic!("it ended otherwise: {other:?}"),
    }
}

#[tokio::test]
async fn a_script_runs_and_its_exit_code_and_output_are_there() {
    let mut world = World::new(CgroupMode::Auto).await;
    let text = "#!/bin/sh\necho hello from $RMS_JOB_ID on $RMS_NODELIST\nexit 3\n";
    let launch = script(&world, text);
    world.submit(1, launch).await;
    assert_eq!(world.ended(1).await.0, NodeExit::Exited { code: 3 });
    assert_eq!(world.read("rms-1.out"), "hello from 1 on t1\n");
    world.close().await;
}

#[tokio::test]
async fn exits_are_told_as_they_were() {
    let mut world = World::new(CgroupMode::Auto).await;
    let signaled = script(&world, "kill -SEGV $$");
    assert_eq!(exit_of(&mut world, 1, signaled).await, NodeExit::Signaled { signal: 11 });
    let highest = tasks(&world, 3, &["sh", "-c", "exit $((RMS_TASK_ID * 4))"]);
    assert_eq!(exit_of(&mut world, 2, highest).await, NodeExit::Exited { code: 8 });
    let with_args = Work::Script { script: "exit $1".to_owned(), args: vec!["9".to_owned()] };
    let with_args = launch(&world.cwd(), with_args, 1);
    assert_eq!(exit_of(&mut world, 3, with_args).await, NodeExit::Exited { code: 9 });
    world.close().await;
}

#[tokio::test]
async fn what_cannot_start_says_why() {
    let mut world = World::new(CgroupMode::Auto).await;
    let mut no_cwd = script(&world, "true");
    no_cwd.execution.cwd = "/nowhere/at/all".to_owned();
    let reason = reason_of(&mut world, 1, no_cwd).await;
    assert!(reason.contains("the working directory /nowhere/at/all cannot be used here"), "{reason}");
    let no_user = Launch { owner: Owner("nobody-of-that-name".to_owned()), ..script(&world, "true") };
    let reason = reason_of(&mut world, 2, no_user).await;
    assert!(reason.contains("nobody-of-that-name"), "{reason}");
    let no_program = tasks(&world, 1, &["no-such-program"]);
    let reason = reason_of(&mut world, 3, no_program).await;
    assert!(reason.contains("'no-such-program': it is not found in PATH"), "{reason}");
    let no_interpreter = script(&world, "#!/no/such/python -u\nprint()\n");
    let reason = reason_of(&mut world, 6, no_interpreter).await;
    assert!(reason.contains("its first line names /no/such/python, which is not there"), "{reason}");
    let mut no_dir = script(&world, "true");
    no_dir.execution.stdio.output = Some("missing/out".to_owned());
    let reason = reason_of(&mut world, 4, no_dir).await;
    assert!(reason.contains("cannot open") && reason.contains("missing/out"), "{reason}");
    let mut no_input = script(&world, "true");
    no_input.execution.stdio.input = Some("missing".to_owned());
    let reason = reason_of(&mut world, 5, no_input).await;
    assert!(reason.contains("for input"), "{reason}");
    world.close().await;
}

#[tokio::test]
async fn an_output_that_cannot_be_opened_says_what_is_in_the_way() {
    let mut world = World::new(CgroupMode::Auto).await;
    std::os::unix::fs::symlink("loop", world.cwd().join("loop")).expect("a link");
    std::os::unix::fs::symlink("/proc/self/fd/1", world.cwd().join("own")).expect("a link");
    mkfifo(&world.cwd().join("fifo"), Mode::from_bits_truncate(0o600)).expect("a FIFO");
    let cases = [
        ("loop", "Too many levels of symbolic links"),
        ("own", "it leads to an open file of another process"),
        ("fifo", "it is a FIFO that nobody reads"),
    ];
    for (job, (name, why)) in (1..).zip(cases) {
        let mut launch = script(&world, "true");
        launch.execution.stdio.output = Some(name.to_owned());
        let reason = reason_of(&mut world, job, launch).await;
        assert!(reason.contains(&format!("{name} for output: {why}")), "{reason}");
    }
    world.close().await;
}

#[tokio::test]
async fn an_input_from_a_fifo_waits_for_its_writer() {
    let mut world = World::new(CgroupMode::Auto).await;
    let fifo = world.cwd().join("fifo");
    mkfifo(&fifo, Mode::from_bits_truncate(0o600)).expect("a FIFO");
    let of_fifo = |world: &World| {
        let mut launch = script(world, "cat");
        launch.execution.stdio.input = Some("fifo".to_owned());
        launch
    };
    let launch = of_fifo(&world);
    world.submit(1, launch).await;
    // The supervisor serves others meanwhile.
    let other = script(&world, "exit 3");
    assert_eq!(exit_of(&mut world, 2, other).await, NodeExit::Exited { code: 3 });
    std::thread::spawn(move || std::fs::write(fifo, "late\n"));
    assert_eq!(world.ended(1).await.0, NodeExit::Exited { code: 0 });
    assert_eq!(world.read("rms-1.out"), "late\n");

    let launch = of_fifo(&world);
    world.submit(3, launch).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    world.end(3, Span::from_secs(600)).await;
    assert_eq!(world.ended(3).await.0, NodeExit::Ordered, "TERM is enough");
    world.close().await;
}

#[tokio::test]
async fn streams_go_where_the_patterns_say() {
    let mut world = World::new(CgroupMode::Auto).await;
    std::fs::write(world.cwd().join("in"), "read me\n").expect("a file");
    let mut patterned = tasks(&world, 2, &["sh", "-c", "cat; echo out $RMS_TASK_ID; echo err >&2"]);
    patterned.execution.stdio.input = Some("in".to_owned());
    patterned.execution.stdio.output = Some("%x-%j-%N-%n-%2t.out".to_owned());
    patterned.execution.stdio.error = Some("%u.err".to_owned());
    assert_eq!(exit_of(&mut world, 7, patterned).await, NodeExit::Exited { code: 0 });
    assert_eq!(world.read("story-7-t1-0-00.out"), "read me\nout 0\n");
    assert_eq!(world.read("story-7-t1-0-01.out"), "read me\nout 1\n");
    assert_eq!(world.read(&format!("{}.err", common::me())), "err\nerr\n", "two tasks share one file");
    let mut appended = script(&world, "echo more");
    appended.execution.stdio.output = Some("story-7-t1-0-00.out".to_owned());
    appended.execution.stdio.append = true;
    exit_of(&mut world, 8, appended).await;
    assert_eq!(world.read("story-7-t1-0-00.out"), "read me\nout 0\nmore\n");
    world.close().await;
}

#[tokio::test]
async fn limits_umask_and_environment_are_the_submitters() {
    let mut world = World::new(CgroupMode::Auto).await;
    let text = "echo $(ulimit -n) $(umask) ${SLURM_JOB_ID-none} ${PMI_RANK-none} $MINE $RMS_NTASKS $RMS_CPUS_ON_NODE\n\
                readlink /proc/$$/fd/0; ls -C -w 0 /proc/$$/fd; true";
    let mut launch = script(&world, text);
    launch.execution.limits = Limits { open_files: Some(123), ..Limits::default() };
    launch.execution.umask = 0o027;
    let variables = [("PATH", "/usr/bin:/bin"), ("MINE", "yes"), ("SLURM_JOB_ID", "5"), ("PMI_RANK", "0")];
    let owned = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    launch.execution.environment = Arc::new(Environment(owned.to_vec()));
    assert_eq!(exit_of(&mut world, 1, launch).await, NodeExit::Exited { code: 0 });
    let output = world.read("rms-1.out");
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines[..2], ["123 0027 none none yes 1 2", "/dev/null"]);
    let fds: Vec<&str> = lines[2].split_whitespace().collect();
    // The shell keeps the script open under a descriptor of its own.
    let leaked = fds.iter().filter(|fd| fd.parse::<u32>().is_ok_and(|fd| (3..10).contains(&fd))).count();
    assert_eq!(leaked, 0, "no file of ours is open in a job: {fds:?}");
    world.close().await;
}

#[tokio::test]
async fn a_job_without_end_meets_its_wall_time() {
    let mut world = World::new(CgroupMode::Auto).await;
    let mut launch = script(&world, "trap '' TERM; echo $$ > pid; while :; do sleep 1; done");
    launch.wall = Span::from_millis(300);
    launch.grace = Span::from_millis(200);
    assert_eq!(exit_of(&mut world, 1, launch).await, NodeExit::WallTime);
    assert!(!is_alive(world.read("pid").trim().parse().expect("a pid")));
    let mut polite = script(&world, "trap 'echo bye; exit 0' TERM; sleep 60 & wait");
    polite.wall = Span::from_millis(200);
    polite.grace = Span::from_mins(1);
    assert_eq!(exit_of(&mut world, 2, polite).await, NodeExit::WallTime);
    assert_eq!(world.read("rms-2.out"), "bye\n", "it was asked before it was killed");
    world.close().await;
}

/// Leaves its session, its parent and its process group, and ignores TERM.
const RUNAWAY: &str = "setsid sh -c 'trap \"\" TERM HUP INT; (echo $$ > runaway; while :; do sleep 1; done) & wait' &\n\
                       while [ ! -s runaway ]; do sleep 0.01; done\n";

async fn nobody_escapes(wanted: CgroupMode) {
    let mut world = World::new(wanted).await;
    let leaves = script(&world, &format!("{RUNAWAY} exit 0"));
    assert_eq!(exit_of(&mut world, 1, leaves).await, NodeExit::Exited { code: 0 });
    assert!(!is_alive(world.read("runaway").trim().parse().expect("a pid")), "the job ends with its script");

    std::fs::remove_file(world.cwd().join("runaway")).expect("it was written");
    let stays = script(&world, &format!("trap '' TERM; {RUNAWAY} echo $$ > main; while :; do sleep 1; done"));
    world.submit(2, stays).await;
    world.line_in("main").await;
    world.end(2, Span::from_millis(200)).await;
    assert_eq!(world.ended(2).await.0, NodeExit::Overstayed, "it was asked, and had to be killed");
    assert!(!is_alive(world.read("runaway").trim().parse().expect("a pid")));
    world.close().await;
}

#[tokio::test]
async fn nobody_escapes_from_a_cgroup() {
    nobody_escapes(CgroupMode::Auto).await;
}

#[tokio::test]
async fn nobody_escapes_without_a_cgroup() {
    nobody_escapes(CgroupMode::None).await;
}

#[tokio::test]
async fn a_signal_reaches_the_tasks() {
    let mut world = World::new(CgroupMode::Auto).await;
    let argv = ["sh", "-c", "trap 'exit 6' USR1; echo up > up.$RMS_TASK_ID; while :; do sleep 0.05; done"];
    let launch = tasks(&world, 2, &argv);
    world.submit(1, launch).await;
    world.line_in("up.0").await;
    world.line_in("up.1").await;
    world.signal(1, nix::libc::SIGUSR1).await;
    assert_eq!(world.ended(1).await.0, NodeExit::Exited { code: 6 });
    world.close().await;
}

async fn usage_is_counted(wanted: CgroupMode) {
    let mut world = World::new(wanted).await;
    // The work is done by two grandchildren, so that the tree uses more than its largest process.
    let text = "sh -c 'dd if=/dev/zero of=/dev/null bs=64M count=8 2>/dev/null; \
                i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'";
    let launch = script(&world, text);
    world.submit(1, launch).await;
    let (exit, usage) = world.ended(1).await;
    assert_eq!(exit, NodeExit::Exited { code: 0 });
    assert!(usage.cpu > Span::from_millis(20) && usage.cpu < Span::from_mins(1), "{usage:?}");
    assert!((60 << 10..1 << 20).contains(&usage.peak_memory_kib), "{usage:?}");
    let launch = script(&world, "true");
    world.submit(2, launch).await;
    let (_, next) = world.ended(2).await;
    assert!(next.cpu < usage.cpu && next.peak_memory_kib < usage.peak_memory_kib, "counted anew: {next:?}");
    world.close().await;
}

#[tokio::test]
async fn usage_is_counted_by_the_cgroup() {
    usage_is_counted(CgroupMode::Auto).await;
}

#[tokio::test]
async fn usage_is_counted_without_a_cgroup() {
    usage_is_counted(CgroupMode::None).await;
}

#[tokio::test]
async fn a_hundred_and_twenty_eight_tasks_run_on_one_node() {
    let mut world = World::new(CgroupMode::Auto).await;
    let mut launch = tasks(&world, 128, &["sh", "-c", "echo $RMS_TASK_ID/$RMS_LOCAL_ID of $PMI_SIZE"]);
    launch.execution.stdio.output = Some("all".to_owned());
    assert_eq!(exit_of(&mut world, 1, launch).await, NodeExit::Exited { code: 0 });
    let mut lines: Vec<String> = world.read("all").lines().map(str::to_owned).collect();
    lines.sort();
    let mut expected: Vec<String> = (0..128).map(|task| format!("{task}/{task} of 128")).collect();
    expected.sort();
    assert_eq!(lines, expected);
    world.close().await;
}

#[tokio::test]
async fn what_the_server_has_is_forgotten() {
    let mut world = World::new(CgroupMode::Auto).await;
    let launch = script(&world, "true");
    exit_of(&mut world, 1, launch).await;
    assert_eq!(world.spool().entries().expect("readable").len(), 1);
    world.forget(1).await;
    let again = script(&world, "echo $RMS_JOB_ID");
    assert_eq!(exit_of(&mut world, 2, again).await, NodeExit::Exited { code: 0 });
    let left: Vec<u64> = world.spool().entries().expect("readable").into_iter().map(|(job, _, _)| job.0).collect();
    assert_eq!(left, [2]);
    world.close().await;
}

#[tokio::test]
async fn what_is_not_desired_is_killed_at_once() {
    let mut world = World::new(CgroupMode::Auto).await;
    let launch = script(&world, "trap '' TERM; echo $$ > pid; while :; do sleep 1; done");
    world.submit(1, launch).await;
    let pid = world.line_in("pid").await.parse().expect("a pid");
    world.forget(1).await;
    gone(pid).await;
    world.close().await;
}

async fn jobs_keep_to_the_mask(wanted: CgroupMode) {
    let mut world = World::new(wanted).await;
    world.kill_agent().await;
    world.mask = Some([0].into());
    world.start_agent().await;
    let launch = script(&world, "nproc; taskset -p -c 0-63 $$ > /dev/null; nproc");
    assert_eq!(exit_of(&mut world, 1, launch).await, NodeExit::Exited { code: 0 });
    let output = world.read("rms-1.out");
    assert!(output.starts_with("1\n"), "{output}");
    if world.setup().cgroups.has_cpuset() {
        assert_eq!(output, "1\n1\n", "a cpuset cannot be undone from inside");
    }
    world.close().await;
}

#[tokio::test]
async fn jobs_keep_to_the_mask_in_a_cpuset() {
    jobs_keep_to_the_mask(CgroupMode::Auto).await;
}

#[tokio::test]
async fn jobs_keep_to_the_mask_without_cgroups() {
    jobs_keep_to_the_mask(CgroupMode::None).await;
}

/// Only root can run jobs of other users.
#[tokio::test]
async fn a_job_runs_as_its_owner_and_with_no_more_rights() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let Some(nobody) =
        nix::unistd::User::from_name("nobody").ok().flatten().filter(|_| nix::unistd::geteuid().is_root())
    else {
        eprintln!("skipped: the tests do not run as root");
        return;
    };
    let mut world = World::new(CgroupMode::Auto).await;
    let open = |name: &str, mode| {
        let dir = world.cwd().join(name);
        std::fs::create_dir_all(&dir).expect("a directory");
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(mode)).expect("its mode");
        dir
    };
    open("", 0o755);
    let theirs = open("theirs", 0o777);
    let ours = open("ours", 0o755);
    let as_nobody = |cwd: &std::path::Path, text: &str| {
        let work = Work::Script { script: text.to_owned(), args: Vec::new() };
        Launch { owner: Owner("nobody".to_owned()), ..launch(cwd, work, 1) }
    };
    let text = "#!/bin/sh\nid -un; grep -E '^(Uid|CapEff|CapPrm)' /proc/self/status; head -c 1 $RMS_HOSTFILE; kill $PPID; true";
    let launch = as_nobody(&theirs, text);
    assert_eq!(exit_of(&mut world, 1, launch).await, NodeExit::Exited { code: 0 });
    let output = world.read("theirs/rms-1.out");
    let uid = nobody.uid;
    let rights =
        format!("nobody\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n#");
    assert!(output.starts_with(&rights), "{output}");
    assert_eq!(std::fs::metadata(theirs.join("rms-1.out")).expect("a file").uid(), uid.as_raw(), "the file is theirs");
    let forbidden = as_nobody(&ours, text);
    let reason = reason_of(&mut world, 2, forbidden).await;
    assert!(reason.contains("cannot open") && reason.contains("Permission denied"), "{reason}");
    world.close().await;
}
