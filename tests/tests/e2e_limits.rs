//! What users and admins see of a node's limits: memory, CPUs, a spool that is full.

use std::fs;
use std::io::Write;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use test_kit::{Deployment, NodeOptions, wait_until};

const SOON: Duration = Duration::from_secs(30);

#[test]
fn long_a_node_whose_spool_is_full_is_drained_until_it_is_not() {
    let may_mount = Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|status| status.success());
    if !nix::unistd::geteuid().is_root() || !may_mount {
        eprintln!("skipped: only root can mount a small disk");
        return;
    }
    // The agent is called `node-agent run --dir DIR …`.
    let mount = "if [ \"$2\" = run ]; then mkdir -p \"$4/spool\"; mount -t tmpfs -o size=8m,mode=711 limber-test \"$4/spool\"; \
                 fi; exec \"$@\"";
    let small = NodeOptions::new("a", "a1").wrapped(&["unshare", "-m", "sh", "-c", mount, "sh"]);
    let deployment = Deployment::builder().node(small).node(NodeOptions::new("a", "a2")).start();
    let node = |name: &str| {
        let nodes = deployment.rms(&["nodes", "--json"]).ok().json();
        nodes["nodes"].as_array().expect("a list").iter().find(|node| node["node"] == name).expect("there").clone()
    };
    let inside =
        format!("/proc/{}/root{}/spool/filler", deployment.agent_pid("a1"), deployment.agent_dir("a1").display());
    let mut filler = fs::File::create(&inside).expect("the disk is ours");
    while filler.write_all(&[0; 1 << 14]).is_ok() {}
    drop(filler);
    let drained =
        wait_until("the node to be drained", SOON, || Some(node("a1")).filter(|node| node["state"] == "drained"));
    let reason = drained["reason"].to_string();
    assert!(reason.contains("spool") && reason.contains("full") && reason.contains("make room"), "{reason}");
    for _ in 0..4 {
        let ran = deployment.rms(&["run", "sh", "-c", "echo $RMS_NODE_NAME"]).ok();
        assert_eq!(ran.text(), "a2");
    }
    fs::remove_file(inside).expect("ours");
    wait_until("the node to be resumed", SOON, || (node("a1")["state"] == "idle").then_some(()));
    // What an admin has drained stays drained.
    deployment.rms(&["admin", "drain", "a1", "--reason", "fan"]).ok();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(node("a1")["reason"], "fan");
}

#[test]
fn long_memory_is_limited_and_who_asks_where_it_is_not_is_told() {
    let without = NodeOptions::new("b", "b1").with(&["--cgroup", "none"]);
    let deployment = Deployment::builder().cluster("a", 1).node(without).start();
    let told = deployment.rms(&["submit", "--mem", "64M", "-M", "b", "--wrap", "true"]).ok();
    assert!(told.stderr.contains("no limit on b1"), "{told:?}");
    let nodes = deployment.rms(&["nodes", "--json"]).ok().json();
    let limits = |name: &str| {
        let node = nodes["nodes"].as_array().expect("a list").iter().find(|node| node["node"] == name).expect("there");
        node["features"].to_string().contains("memory-limit")
    };
    assert!(!limits("b1"));
    if !limits("a1") {
        eprintln!("skipped: no memory cgroup that this user may make");
        return;
    }
    let quiet = deployment.rms(&["submit", "--mem", "64M", "-C", "memory-limit", "--wrap", "true"]).ok();
    assert!(!quiet.stderr.contains("warning"), "{quiet:?}");
    let eat = "import sys; x = bytearray(200 << 20); print('eaten')";
    let killed = deployment.rms(&["run", "-M", "a", "--mem", "64M", "python3", "-c", eat]).fails(137);
    assert!(killed.stderr.contains("out of memory on a1") && killed.stderr.contains("64 MiB"), "{killed:?}");
    let job = deployment.submit(&["-M", "a", "--mem", "64M", "--wrap", &format!("python3 -c \"{eat}\"; echo done")]);
    deployment.rms(&["wait", &job.to_string()]).fails(137);
    let record = deployment.wait_for_end(job);
    assert_eq!(record["outcome"]["word"], "out_of_memory", "{record}");
    assert!(record["peak_memory_kib"].as_u64().is_some_and(|kib| kib > 32 << 10 && kib < 80 << 10), "{record}");
    let shown = deployment.rms(&["show", &job.to_string()]).ok();
    assert!(shown.stdout.contains("out of memory on a1"), "{shown:?}");
    deployment.rms(&["run", "-M", "a", "--mem", "400M", "python3", "-c", eat]).ok();

    // The pages of the file that it has written stay there, and are not of the next job.
    let write = format!("head -c 100000000 /dev/zero > {}", deployment.path().join("zeros").display());
    deployment.rms(&["run", "-M", "a", "sh", "-c", &write]).ok();
    let small = deployment.submit(&["-M", "a", "--wrap", "true"]);
    let peak = deployment.wait_for_end(small)["peak_memory_kib"].as_u64();
    assert!(peak.is_some_and(|kib| kib < 32 << 10), "{peak:?} KiB");
}

#[test]
fn memory_that_runs_out_in_a_step_on_another_node_is_the_outcome_of_its_job() {
    let deployment = Deployment::builder().cluster("a", 2).start();
    let nodes = deployment.rms(&["nodes", "--json"]).ok().json();
    if !nodes["nodes"].to_string().contains("memory-limit") {
        eprintln!("skipped: no memory cgroup that this user may make");
        return;
    }
    let eat = "import sys; x = bytearray(200 << 20); print('eaten')";
    for then in ["exit 0", "exit 9"] {
        let rms = deployment.rms_program().display();
        let text = format!("#!/bin/sh\n{rms} run -w a2 -n 1 python3 -c \"{eat}\"\n{then}\n");
        let job = deployment.submit(&["-N", "2", "--mem", "64M", &deployment.script("job.sh", &text)]);
        let record = deployment.wait_for_end(job);
        assert_eq!(record["outcome"]["word"], "out_of_memory", "{then}: {record}");
        let shown = deployment.rms(&["show", &job.to_string()]).ok();
        assert!(shown.stdout.contains("out of memory on a2"), "{shown:?}");
    }
}

#[test]
fn more_tasks_than_cpus_are_refused_unless_they_may_share_them() {
    let node = |name: &str| NodeOptions::new("a", name).with(&["--topology", "pack:1 core:2 pu:1"]);
    let deployment = Deployment::builder().node(node("a1")).node(node("a2")).start();
    for arguments in [
        ["-N", "2", "--tasks-per-node=128"].as_slice(),
        &["-N", "2", "-n", "1000"],
        &["-N", "1", "-n", "3"],
        &["-c", "64"],
        &["-N", "1", "--tasks-per-node=2", "-c", "2"],
    ] {
        let refused = deployment.rms(&[&["submit"], arguments, &["--wrap", "true"]].concat()).fails(1);
        assert!(refused.stderr.contains("has 2 CPUs") && refused.stderr.contains("--overcommit"), "{refused:?}");
    }
    deployment.rms(&["submit", "-N", "2", "--tasks-per-node=128", "--overcommit", "--wrap", "true"]).ok();
    let tasks = deployment.rms(&["run", "-N", "1", "-n", "5", "-O", "sh", "-c", "echo x"]).ok();
    assert_eq!(tasks.stdout.lines().count(), 5, "{tasks:?}");
    let spread = deployment.rms(&["run", "-n", "4", "sh", "-c", "echo $RMS_NODE_NAME"]).ok();
    let on = |name: &str| spread.stdout.lines().filter(|line| *line == name).count();
    assert_eq!((on("a1"), on("a2")), (2, 2), "without -N there are nodes for all of them: {spread:?}");
}

#[test]
fn a_number_that_cannot_be_written_is_said_elsewhere() {
    let deployment = Deployment::of_nodes(1);
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("every Linux has it");
    let mut submit = deployment.command(&["submit", "-q", "--wrap", "true"]);
    let output = submit.stdout(full).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("job 1 was submitted"), "{said}");
}

#[test]
fn a_cluster_that_cannot_be_brought_up_leaves_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let up = dir.path().join("up");
    for wrong in [["--topology", "nonsense"], ["--listen", "192.0.2.1"]] {
        let mut command = Command::new(&test_kit::binaries().rms);
        command.arg("up").arg("--dir").arg(&up).args(["--nodes", "1"]).args(wrong).env("HOME", dir.path());
        let output = command.output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && !said.is_empty(), "{wrong:?}: {said}");
        let left: Vec<_> = fs::read_dir(&up).into_iter().flatten().flatten().collect();
        assert!(left.is_empty(), "{wrong:?} leaves {left:?}");
    }
    let pids = test_kit::Reaper::new(&up).pids();
    assert!(pids.is_empty(), "{pids:?}");
}

/// `rms down` removes what is there under these names.
#[test]
fn no_cluster_is_made_where_files_have_the_names_of_its_own() {
    for (name, file) in [("logs", "logs/mine"), ("agents", "agents/notes"), ("client.toml", "client.toml")] {
        let dir = tempfile::tempdir().expect("a directory");
        let _reaper = test_kit::Reaper::new(dir.path());
        let file = dir.path().join(file);
        fs::create_dir_all(file.parent().expect("below the directory")).expect("made");
        fs::write(&file, "mine").expect("written");
        let mut command = Command::new(&test_kit::binaries().rms);
        command.arg("up").arg("--dir").arg(dir.path()).args(["--nodes", "1"]).env("HOME", dir.path());
        let output = command.output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{name}: {said}");
        assert!(said.contains(&format!("{name} is there, but no cluster of 'rms up'")), "{said}");
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "mine");
    }
}

/// Its certificate is revoked, so that it needs a new one.
#[test]
fn a_node_that_was_removed_comes_back_with_rms_up() {
    let dir = tempfile::Builder::new().prefix("limber-test-").tempdir().expect("a directory");
    let _reaper = test_kit::Reaper::new(dir.path());
    let up = dir.path().join("up");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&test_kit::binaries().rms);
        command.args(arguments).env("RMS_DIR", &up).env("HOME", dir.path()).output().expect("it runs")
    };
    let rms = |arguments: &[&str]| {
        let output = run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let bring_up = || rms(&["up", "--dir", &up.to_string_lossy(), "--nodes", "2"]);
    bring_up();
    let ledger = fs::read_to_string(up.join("up.json")).expect("a ledger");
    let ledger: serde_json::Value = serde_json::from_str(&ledger).expect("JSON");
    let node = &ledger["nodes"][1];
    let (name, pid) = (node["name"].as_str().expect("a name"), node["process"]["pid"].as_i64().expect("it runs"));
    kill(Pid::from_raw(pid as i32), Signal::SIGKILL).expect("it is there");
    rms(&["admin", "drain", name, "--reason", "test"]);
    wait_until("the agent to be missed", SOON, || run(&["admin", "remove", name]).status.success().then_some(()));
    bring_up();
    assert_eq!(rms(&["run", "-N", "2", "echo", "here"]), "here\nhere\n");
    rms(&["down"]);
}

#[test]
fn variables_that_are_no_text_reach_the_job() {
    use std::os::unix::ffi::OsStringExt;
    let deployment = Deployment::of_nodes(1);
    let mut run = deployment.command(&["run", "sh", "-c", "printf %s \"$ODD\" | od -An -tx1"]);
    run.env("ODD", std::ffi::OsString::from_vec(b"caf\xe9-\xff\xf4\x8f\xbe\x80".to_vec()));
    let output = deployment.finish(run).ok();
    assert_eq!(output.text().split_whitespace().collect::<String>(), "636166e92dfff48fbe80", "{output:?}");
}
