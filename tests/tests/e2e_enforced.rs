//! What a job was given of a shared node is all that it gets: CPUs, memory, devices; and what a node says that cannot see to it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use test_kit::{Deployment, NodeOptions, wait_until};

const SOON: Duration = Duration::from_secs(60);
const SETTINGS: &str = "[settings]\nresched_timer = \"50ms\"\nkill_grace = \"1s\"\n";

/// A shared node `a1` with these options.
fn deployment(options: &[&str]) -> Deployment {
    let node = NodeOptions::new("a", "a1").with(options);
    let deployment = Deployment::builder().node(node).config(SETTINGS).start();
    deployment.rms(&["admin", "set", "allocation", "cores"]).ok();
    deployment
}

fn node(deployment: &Deployment) -> Value {
    deployment.rms(&["nodes", "a1", "--json"]).ok().json()["nodes"][0].clone()
}

/// Why the node has drained itself, once the reason has these words: at first it may be that its agent is away.
fn drained(deployment: &Deployment, words: &str) -> String {
    wait_until("the node to drain itself", SOON, || {
        node(deployment)["reason"].as_str().map(str::to_owned).filter(|reason| reason.contains(words))
    })
}

/// May this process make a cgroup of v1 with this controller? Says so where it may not.
fn has_v1(controller: &str) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let is_mounted = mounts.lines().any(|line| {
        let mut fields = line.split(' ').skip(2);
        fields.next() == Some("cgroup")
            && fields.next().is_some_and(|options| options.split(',').any(|o| o == controller))
    });
    let is_there = is_mounted && nix::unistd::geteuid().is_root();
    if !is_there {
        eprintln!("skipped: no cgroup of v1 with the controller {controller} that this user may make");
    }
    is_there
}

/// A script with these lines that leaves what it has written under this name, and runs on until `name.go` is there.
fn submit(deployment: &Deployment, name: &str, arguments: &[&str], lines: &str) -> u64 {
    let dir = deployment.path().display();
    let text = format!(
        "#!/bin/sh\ncd {dir}\n{{ {lines}\n}} > {name}.draft 2>&1\nmv {name}.draft {name}\n\
         while [ ! -e {name}.go ]; do sleep 0.05; done\n"
    );
    let script = deployment.script(&format!("{name}.sh"), &text);
    deployment.submit(&[&["-t", "10m", "-n", "1"], arguments, &[&script]].concat())
}

/// What the job of this name has written.
fn said(deployment: &Deployment, name: &str) -> Vec<String> {
    let path = deployment.path().join(name);
    let text = wait_until(&format!("job {name}"), SOON, || fs::read_to_string(&path).ok());
    text.lines().map(str::to_owned).collect()
}

fn release(deployment: &Deployment, name: &str, job: u64) -> Value {
    fs::write(deployment.path().join(format!("{name}.go")), "").expect("written");
    deployment.wait_for_end(job)
}

#[test]
fn no_program_leaves_the_cpus_of_its_job() {
    if !has_v1("cpuset") {
        return;
    }
    let mut deployment = deployment(&["--topology", "core:2"]);
    assert_eq!(node(&deployment)["unenforced"], serde_json::json!([]));
    let look = "taskset -cp 0,1 $$ > /dev/null 2>&1\ngrep Cpus_allowed_list /proc/self/status | cut -f2\n\
                dir=/sys/fs/cgroup/cpuset$(grep :cpuset: /proc/self/cgroup | cut -d: -f3)\ncat $dir/cpuset.cpus\necho $dir";
    let jobs = ["one", "two"].map(|name| submit(&deployment, name, &[], look));
    let [one, two] = ["one", "two"].map(|name| said(&deployment, name));
    assert!(one[0] == one[1] && two[0] == two[1] && one[0] != two[0], "{one:?} {two:?}");
    assert!(one[0].parse::<u32>().is_ok() && two[0].parse::<u32>().is_ok(), "{one:?} {two:?}");

    // The cpusets outlive the agent, and go with the jobs.
    deployment.kill_agent("a1");
    deployment.restart_agent("a1");
    for (name, (job, said)) in ["one", "two"].into_iter().zip(jobs.into_iter().zip([&one, &two])) {
        assert_eq!(fs::read_to_string(Path::new(&said[2]).join("cpuset.cpus")).expect("there").trim(), said[0]);
        assert_eq!(release(&deployment, name, job)["outcome"]["word"], "completed");
    }
    // Whoever has the whole node has all of it again, whichever supervisor serves him.
    let all = "grep Cpus_allowed_list /proc/self/status | cut -f2";
    let wanted = said_by_agent(deployment.agent_pid("a1"));
    for name in ["three", "four", "five"] {
        let job = submit(&deployment, name, &["--exclusive"], all);
        assert_eq!(said(&deployment, name), std::slice::from_ref(&wanted));
        release(&deployment, name, job);
    }
    let parent = PathBuf::from(&one[2]);
    let parent = parent.parent().expect("the agent's own").to_owned();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(deployment.agent_pid("a1")), nix::sys::signal::Signal::SIGTERM)
        .expect("it runs");
    wait_until("the agent's cpuset to be gone", SOON, || (!parent.exists()).then_some(()));
}

/// The CPUs that an agent may use.
fn said_by_agent(pid: i32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a list").trim().to_owned()
}

/// Device files of the machine under other names, or `None` where this user may make none.
fn device_files(dir: &Path) -> Option<[PathBuf; 3]> {
    let files = ["gpu0", "gpu1", "gpu2"].map(|name| dir.join(name));
    // Nobody needs them: full, random and urandom, from which only shells of other systems read.
    for (file, minor) in files.iter().zip(["7", "8", "9"]) {
        let made = Command::new("mknod").arg(file).args(["c", "1", minor]).status().expect("mknod runs");
        let can_read = made.success() && fs::File::open(file).is_ok();
        if !can_read {
            eprintln!("skipped: no device files can be made in {}", dir.display());
            return None;
        }
        fs::set_permissions(file, fs::Permissions::from_mode(0o666)).expect("ours");
        chown(file, Some(0), Some(0)).expect("ours");
    }
    Some(files)
}

/// Has the node declare its devices with their files, from now on.
fn declare(deployment: &mut Deployment, devices: &str) {
    deployment.kill_agent("a1");
    let path = deployment.agent_dir("a1").join("agent.toml");
    let text = fs::read_to_string(&path).expect("a join writes it");
    fs::write(&path, format!("{text}\n[devices]\n{devices}\n")).expect("written");
    deployment.restart_agent("a1");
}

/// Who can open which of these files.
fn tries(files: &[PathBuf]) -> String {
    let paths: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    format!(
        "for f in {}; do head -c 1 $f > /dev/null 2>&1 && echo open || echo closed; done\n\
         echo \"$RMS_GPUS/$CUDA_VISIBLE_DEVICES/$ROCR_VISIBLE_DEVICES\"",
        paths.join(" ")
    )
}

#[test]
fn long_no_program_opens_the_devices_of_other_jobs() {
    let mut deployment = deployment(&["--topology", "core:8"]);
    let Some(files) = device_files(deployment.path()).filter(|_| has_v1("devices")) else { return };
    let [one, two, three] = files.each_ref().map(|file| file.display());
    declare(&mut deployment, &format!("\"gpu:a\" = [\"{one}\", [\"{two}\"]]\n\"gpu:b\" = [\"{three}\"]\nfpga = 1"));
    wait_until("the node's devices", SOON, || {
        (node(&deployment)["devices"] == serde_json::json!({"fpga": 1, "gpu:a": 2, "gpu:b": 1})).then_some(())
    });
    assert_eq!(node(&deployment)["unenforced"], serde_json::json!(["devices"]), "nobody knows the file of the fpga");
    let lines = tries(&files);
    let first = submit(&deployment, "first", &["--gpus-per-node", "a:1"], &lines);
    assert_eq!(said(&deployment, "first"), ["open", "closed", "closed", "0/0/0"]);
    let second = submit(&deployment, "second", &["--gpus-per-node", "b:1"], &lines);
    // What the kernel hides of GPUs decides how libraries number them, and not that of the fpga.
    assert_eq!(said(&deployment, "second"), ["closed", "closed", "open", "2/0/0"]);
    let plain = submit(&deployment, "plain", &[], &lines);
    assert_eq!(said(&deployment, "plain"), ["closed", "closed", "closed", "//"]);
    for (name, job) in [("first", first), ("second", second), ("plain", plain)] {
        release(&deployment, name, job);
    }
    // A supervisor serves one after the other.
    for name in ["whole1", "whole2", "whole3"] {
        let job = submit(&deployment, name, &["--exclusive"], &lines);
        assert_eq!(said(&deployment, name)[..3], ["open", "open", "open"]);
        release(&deployment, name, job);
    }
}

#[test]
fn with_control_groups_of_version_2_a_program_in_the_kernel_closes_the_devices_of_other_jobs() {
    let mut deployment = deployment(&["--topology", "core:8", "--cgroup", "v2"]);
    let Some(files) = device_files(deployment.path()) else { return };
    let [one, two, three] = files.each_ref().map(|file| file.display());
    declare(&mut deployment, &format!("gpu = [\"{one}\", \"{two}\", \"{three}\"]"));
    let log = wait_until("the agent", SOON, || Some(deployment.log_text("a1")).filter(|log| log.contains("starting")));
    if let Some(refused) = log.lines().find(|line| line.contains("refuses the program") || line.contains("mounted")) {
        eprintln!("skipped: {refused}");
        return;
    }
    wait_until("the node's devices", SOON, || (node(&deployment)["devices"]["gpu"] == 3).then_some(()));
    let unenforced = node(&deployment)["unenforced"].to_string();
    assert!(!unenforced.contains("devices"), "{unenforced}");
    let lines = tries(&files);
    // It looks again when it was told that what it has has changed.
    let again = format!("{lines}\nmv first.draft first.was; exec > first.draft 2>&1\ntouch up\n");
    let again = format!("{again}while [ ! -e changed ]; do sleep 0.05; done\n{lines}");
    let first = submit(&deployment, "first", &["--gpus-per-node", "2"], &again);
    wait_until("the first job", SOON, || deployment.path().join("up").exists().then_some(()));
    let was = fs::read_to_string(deployment.path().join("first.was")).expect("written");
    assert_eq!(was, "open\nopen\nclosed\n0,1/0,1/0,1\n");
    // Its supervisor outlives the agent, and replaces the program.
    deployment.kill_agent("a1");
    deployment.restart_agent("a1");
    let shrunk = deployment.rms(&["negotiate", &first.to_string(), "--shrink-gres", "gpu:1"]).ok().stdout;
    assert_eq!(shrunk, "1 gpu a node fewer\n");
    let second = submit(&deployment, "second", &["--gpus-per-node", "1"], &lines);
    let open = said(&deployment, "second")[..3].iter().position(|line| line == "open").expect("it has one");
    fs::write(deployment.path().join("changed"), "").expect("written");
    let first_has = said(&deployment, "first")[..3].to_vec();
    assert_eq!(first_has.iter().filter(|line| *line == "open").count(), 1, "{first_has:?}, {open}");
    assert_eq!(first_has[open], "closed", "{first_has:?}");
    for (name, job) in [("first", first), ("second", second)] {
        assert_eq!(release(&deployment, name, job)["outcome"]["word"], "completed");
    }
}

#[test]
fn long_a_device_that_vanishes_drains_its_node_and_harms_nobody() {
    let mut deployment = deployment(&["--topology", "core:8"]);
    let Some(files) = device_files(deployment.path()) else { return };
    let [one, two, _] = files.each_ref().map(|file| file.display().to_string());
    declare(&mut deployment, &format!("gpu = [\"{one}\", \"{two}\"]"));
    wait_until("the node's devices", SOON, || (node(&deployment)["devices"]["gpu"] == 2).then_some(()));
    let runs = submit(&deployment, "runs", &["--gpus", "1"], "echo up");
    said(&deployment, "runs");

    let away = deployment.path().join("away");
    fs::rename(&two, &away).expect("ours");
    let reason = drained(&deployment, &two);
    assert!(reason.contains("bring the device back") && reason.contains("agent.toml"), "{reason}");
    let waits = submit(&deployment, "waits", &["--gpus", "1"], "echo up");
    deployment.wait_for_state(waits, "waiting");
    // No job slips in when the agent comes back.
    deployment.kill_agent("a1");
    deployment.restart_agent("a1");
    std::thread::sleep(Duration::from_secs(2));
    deployment.wait_for_state(waits, "waiting");
    assert_eq!(node(&deployment)["state"], "draining");
    assert_eq!(release(&deployment, "runs", runs)["outcome"]["word"], "completed");

    fs::rename(&away, &two).expect("ours");
    assert_eq!(said(&deployment, "waits"), ["up"]);
    release(&deployment, "waits", waits);
}

#[test]
fn a_node_without_cgroups_starts_jobs_and_says_what_it_cannot_keep_them_to() {
    let mut deployment = deployment(&["--topology", "core:2", "--cgroup", "none"]);
    let job = submit(&deployment, "job", &["--mem", "64M"], "echo up");
    assert_eq!(said(&deployment, "job"), ["up"]);
    assert_eq!(node(&deployment)["unenforced"], serde_json::json!(["cpus", "memory"]));
    let text = deployment.rms(&["nodes", "a1"]).ok().stdout;
    assert!(text.contains("UNENFORCED") && text.contains("cpus,memory"), "{text}");
    assert!(!deployment.rms(&["nodes"]).ok().stdout.contains("UNENFORCED"));
    let log = deployment.log_text("a1");
    assert_eq!(log.matches("does not keep jobs to what they have").count(), 2, "{log}");
    assert_eq!(release(&deployment, "job", job)["outcome"]["word"], "completed");

    deployment.kill_agent("a1");
    let path = deployment.agent_dir("a1").join("agent.toml");
    let text = fs::read_to_string(&path).expect("a join writes it");
    fs::write(&path, format!("{text}\nmust_enforce = [\"memory\"]\n")).expect("written");
    deployment.restart_agent("a1");
    let reason = drained(&deployment, "must_enforce");
    assert!(reason.contains("does not enforce memory"), "{reason}");
}

/// Compiles a program that eats so many MiB.
fn eater(deployment: &Deployment) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../node-agent/tests/hostile.c");
    let program = deployment.path().join("hostile");
    let compiled = Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(source).status();
    assert!(compiled.is_ok_and(|status| status.success()), "a C compiler, as for the MPI programs");
    program.display().to_string()
}

#[test]
fn who_takes_more_memory_than_given_ends_and_the_neighbour_does_not() {
    if !has_v1("memory") {
        return;
    }
    let deployment = deployment(&["--topology", "core:2", "--memory-mib", "1024"]);
    let eats = eater(&deployment);
    let lines = format!("{eats} eat 60\necho fed");
    let neighbour = submit(&deployment, "neighbour", &["--mem", "256M"], &lines);
    assert_eq!(said(&deployment, "neighbour"), ["eaten", "fed"]);
    let greedy = submit(&deployment, "greedy", &["--mem", "96M"], &format!("{eats} eat 400\n{eats} eat 400\necho fed"));
    said(&deployment, "greedy");
    let record = release(&deployment, "greedy", greedy);
    assert_eq!(record["outcome"]["word"], "out_of_memory", "{record}");
    let peak = record["usage"]["peak_memory_kib"].as_u64().or(record["peak_memory_kib"].as_u64());
    assert!(peak.is_some_and(|kib| (64 << 10..112 << 10).contains(&kib)), "{record}");
    let record = release(&deployment, "neighbour", neighbour);
    assert_eq!(record["outcome"]["word"], "completed", "{record}");
}

#[test]
fn long_limits_of_memory_follow_what_is_negotiated_and_others_have_the_rest() {
    if !has_v1("memory") {
        return;
    }
    let deployment = deployment(&["--topology", "core:4", "--memory-mib", "1024"]);
    let eats = eater(&deployment);
    let when_told = |name: &str| format!("while [ ! -e {name}.eat ]; do sleep 0.05; done\n{eats} eat 200\necho fed");
    let tell = |name: &str| fs::write(deployment.path().join(format!("{name}.eat")), "").expect("written");
    let negotiate = |job: u64, change: &[&str]| {
        let job = job.to_string();
        deployment.rms(&[&["negotiate", &job][..], change].concat()).ok().stdout
    };
    let shrinks = submit(&deployment, "shrinks", &["--mem", "600M"], &when_told("shrinks"));
    let grows = submit(&deployment, "grows", &["--mem", "100M"], &when_told("grows"));
    let waits = submit(&deployment, "waits", &["--mem", "500M"], "echo here");
    deployment.wait_for_state(shrinks, "started");
    deployment.wait_for_state(waits, "waiting");
    assert_eq!(negotiate(shrinks, &["--shrink-memory", "500M"]), "500 MiB a node less\n");
    assert_eq!(said(&deployment, "waits"), ["here"]);
    assert_eq!(negotiate(grows, &["--grow-memory", "1G", "--accept-at-least", "200M"]), "324 MiB more a node\n");
    tell("grows");
    assert_eq!(said(&deployment, "grows"), ["eaten", "fed"]);
    tell("shrinks");
    said(&deployment, "shrinks");
    let outcome = |name: &str, job: u64| release(&deployment, name, job)["outcome"]["word"].clone();
    assert_eq!(outcome("shrinks", shrinks), "out_of_memory");
    assert_eq!((outcome("grows", grows), outcome("waits", waits)), ("completed".into(), "completed".into()));
}

/// Has the agent start anew with these lines in its configuration.
/// Removes what a job has left in shared memory, whatever becomes of the test.
struct LeftOver(PathBuf);

impl Drop for LeftOver {
    fn drop(&mut self) {
        let _was_never_there = fs::remove_file(&self.0);
    }
}

#[test]
fn what_a_job_leaves_in_shared_memory_is_not_taken_from_the_next_one() {
    if !has_v1("memory") {
        return;
    }
    let deployment = deployment(&["--topology", "core:1"]);
    let name = deployment.path().file_name().expect("a name").to_string_lossy().into_owned();
    let file = LeftOver(Path::new("/dev/shm").join(name));
    let leave = format!("head -c 64M /dev/zero > {}", file.0.display());
    let job = deployment.submit(&["-t", "10m", "--wrap", &leave]);
    assert_eq!(deployment.wait_for_end(job)["outcome"]["word"], "completed");
    assert_eq!(fs::metadata(&file.0).map(|left| left.len()).ok(), Some(64 << 20));
    // Each supervisor that there is serves one of them.
    for _ in 0..4 {
        let next = deployment.submit(&["-t", "10m", "--mem", "40M", "--wrap", "head -c 20M /dev/zero | tail -c 1"]);
        assert_eq!(deployment.wait_for_end(next)["outcome"]["word"], "completed");
    }
}

/// In v1, pages of files that one job has written are charged to its cgroup until the kernel needs them.
#[test]
fn the_peak_of_a_job_is_its_own_after_one_that_has_written_a_large_file() {
    if !has_v1("memory") {
        return;
    }
    let deployment = deployment(&["--topology", "core:1"]);
    let eats = eater(&deployment);
    for _ in 0..3 {
        let writes = deployment.submit(&["-t", "10m", "--wrap", "head -c 150M /dev/zero > big"]);
        assert_eq!(deployment.wait_for_end(writes)["outcome"]["word"], "completed");
        let next = deployment.submit(&["-t", "10m", "--mem", "100M", "--wrap", &format!("{eats} eat 60")]);
        let record = deployment.wait_for_end(next);
        let peak = record["usage"]["peak_memory_kib"].as_u64().or(record["peak_memory_kib"].as_u64());
        assert!(peak.is_some_and(|kib| (58 << 10..80 << 10).contains(&kib)), "{record}");
    }
}

fn configure(deployment: &mut Deployment, base: &str, lines: &str) {
    deployment.kill_agent("a1");
    fs::write(deployment.agent_dir("a1").join("agent.toml"), format!("{base}\n{lines}\n")).expect("written");
    deployment.restart_agent("a1");
}

#[test]
fn long_a_node_that_comes_back_with_less_waits_for_those_who_have_more() {
    let mut deployment = deployment(&[]);
    let base = fs::read_to_string(deployment.agent_dir("a1").join("agent.toml")).expect("a join writes it");
    configure(&mut deployment, &base, "topology = 'core:4'\nmemory_mib = 1000\ndevices = 'gpu:2'");
    let cores_are = |deployment: &Deployment, cores: u32| {
        wait_until("the node's cores", SOON, || (node(deployment)["cores"] == cores).then_some(()));
    };
    cores_are(&deployment, 4);
    let wide = submit(&deployment, "wide", &["-c", "3", "--mem", "500M", "--gpus", "2"], "echo up");
    let small = submit(&deployment, "small", &["--mem", "100M"], "echo up");
    assert_eq!([said(&deployment, "wide"), said(&deployment, "small")], [["up"], ["up"]]);

    for less in [
        "topology = 'core:2'\nmemory_mib = 1000\ndevices = 'gpu:2'",
        "topology = 'core:4'\nmemory_mib = 200\ndevices = 'gpu:1'",
    ] {
        configure(&mut deployment, &base, less);
        let reason = drained(&deployment, "began when this node had more");
        assert!(reason.contains(&format!("job {wide}")), "{reason}");
        assert_eq!((&node(&deployment)["cores"], &node(&deployment)["memory_mib"]), (&4.into(), &1000.into()));
    }
    let waits = submit(&deployment, "waits", &[], "echo $RMS_CPUS_ON_NODE");
    assert_eq!(release(&deployment, "small", small)["outcome"]["word"], "completed");
    deployment.wait_for_state(waits, "waiting");
    assert_eq!(release(&deployment, "wide", wide)["outcome"]["word"], "completed");
    assert_eq!(said(&deployment, "waits"), ["1"]);
    let now = node(&deployment);
    assert_eq!(
        (&now["memory_mib"], &now["devices"], &now["state"]),
        (&200.into(), &serde_json::json!({"gpu": 1}), &"busy".into())
    );
    release(&deployment, "waits", waits);
}
