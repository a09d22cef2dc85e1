//! Applications that negotiate through the SDK, with real agents and processes, while what they talk through is killed.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use test_kit::{Deployment, example, wait_until};

const SOON: Duration = Duration::from_secs(40);

/// Fast enough for tests; nothing is offered but by the rule that a test names.
fn deployment(n_nodes: u32, offers: &str) -> Deployment {
    let settings = format!(
        "[settings]\nresched_timer = \"50ms\"\nfair_start = \"0s\"\nkill_grace = \"1s\"\noffer_idle = \"{offers}\"\n"
    );
    Deployment::builder().cluster("a", n_nodes).config(&settings).start()
}

fn log(deployment: &Deployment) -> String {
    fs::read_to_string(deployment.path().join("log")).unwrap_or_default()
}

/// Waits until the log has this line, so many times.
fn wait_for_line(deployment: &Deployment, line: &str, n_times: usize) {
    let n_lines = || log(deployment).lines().filter(|seen| *seen == line).count();
    wait_until(&format!("'{line}' in\n{}", log(deployment)), SOON, || (n_lines() >= n_times).then_some(()));
}

/// Submits a script that runs the example, again when it was killed, and logs what it tells.
fn submit_elastic(deployment: &Deployment, limits: &str, arguments: &str) -> u64 {
    submit_elastic_of(deployment, "1", limits, arguments)
}

fn submit_elastic_of(deployment: &Deployment, n_nodes: &str, limits: &str, arguments: &str) -> u64 {
    let program = example("elastic");
    let log = deployment.path().join("log");
    let text = format!(
        "#!/bin/sh\nuntil {} {arguments} >> {} 2>&1; do echo $? >> {1}; sleep 0.2; done\n",
        program.display(),
        log.display()
    );
    let script = deployment.script("elastic.sh", &text);
    deployment.submit(&["--nodes", n_nodes, "--malleable", limits, "--negotiable", "--time", "10m", &script])
}

fn stop(deployment: &Deployment, job: u64) {
    fs::write(deployment.path().join("stop"), "").expect("the directory is ours");
    let record = deployment.wait_for_end(job);
    assert_eq!(record["outcome"]["word"], "completed", "{record}");
}

/// The process of the example.
fn elastic_pid(deployment: &Deployment) -> i32 {
    let is_it = |pid: &i32| {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        comm.trim() == "elastic"
    };
    wait_until("the example to run", SOON, || deployment.pids().into_iter().find(is_it))
}

#[test]
fn long_a_malleable_program_takes_what_is_idle_and_gives_it_back_for_a_rigid_job() {
    let deployment = deployment(4, "equal_share");
    let job = submit_elastic(&deployment, "1-4", "1-4");
    wait_for_line(&deployment, "begins on a1", 1);
    wait_until("it to have all nodes", SOON, || log(&deployment).contains("grown to a1 a2 a3 a4").then_some(()));
    let nodes = fs::read_to_string(deployment.path().join("nodes")).expect("it was written");
    assert_eq!(nodes.lines().filter(|line| !line.starts_with('#')).count(), 4, "{nodes}");
    // (f) of 002: another job cannot start without two of them.
    let rigid = deployment.submit(&["--nodes", "2", "--time", "1m", "--wrap", "sleep 1"]);
    let record = deployment.wait_for_end(rigid);
    assert_eq!(record["outcome"]["word"], "completed", "{record}");
    assert!(log(&deployment).lines().any(|line| line.starts_with("leaves a")), "{}", log(&deployment));
    stop(&deployment, job);
}

#[test]
fn long_an_evolving_program_gets_what_it_asks_for_though_its_server_is_killed() {
    let mut deployment = deployment(3, "never");
    let job = submit_elastic(&deployment, "1-4", "1-4 grow 2");
    wait_for_line(&deployment, "got 2 more, as a1", 1);
    deployment.kill_server();
    deployment.start_server();
    // The same channel is no more; the shrink comes over the next one.
    let rigid = deployment.submit(&["--nodes", "1", "--time", "1m", "--wrap", "true"]);
    let record = deployment.wait_for_end(rigid);
    assert_eq!(record["outcome"]["word"], "completed", "{record}");
    stop(&deployment, job);
}

/// It has said that it goes on without nodes that are lost. One is lost while the server is dead, and the process, which is
/// stopped, cannot say it again.
#[test]
fn long_what_a_program_said_of_losses_outlives_the_server() {
    let mut deployment = deployment(3, "never");
    deployment.rms(&["admin", "set", "node_lost_after", "1s"]).ok();
    let job = submit_elastic_of(&deployment, "3", "1-3", "1-3");
    wait_for_line(&deployment, "begins on a1 a2 a3", 1);
    let elastic = Pid::from_raw(elastic_pid(&deployment));
    kill(elastic, Signal::SIGSTOP).expect("it is ours");
    deployment.kill_server();
    deployment.kill_agent("a3");
    deployment.start_server();
    let is_lost = || deployment.rms(&["nodes", "--json"]).ok().stdout.contains("\"lost\"").then_some(());
    wait_until("the node to be lost", SOON, is_lost);
    assert_eq!(held(&deployment, job), ["a1", "a2"], "it goes on");
    kill(elastic, Signal::SIGCONT).expect("it is ours");
    wait_for_line(&deployment, "lost a3", 1);
    stop(&deployment, job);
    assert!(log(&deployment).contains("ends on a1 a2\n"), "{}", log(&deployment));
    deployment.restart_agent("a3");
}

#[test]
fn long_what_is_asked_while_the_server_is_away_is_said_when_it_is_back() {
    let mut deployment = deployment(2, "never");
    let gate = deployment.path().join("gate");
    let program = example("elastic");
    let log = deployment.path().join("log");
    // The shell waits for the gate, and the program begins without a server.
    let text = format!(
        "#!/bin/sh\nwhile [ ! -e {0} ]; do sleep 0.1; done\n{1} 1-2 grow 1 >> {2} 2>&1\n",
        gate.display(),
        program.display(),
        log.display()
    );
    let script = deployment.script("gated.sh", &text);
    let job = deployment.submit(&["--nodes", "1", "--malleable", "1-2", "--negotiable", "--time", "10m", &script]);
    deployment.wait_for_state(job, "started");
    wait_until("the key to be placed", SOON, || key_dir(&deployment, job).join("cert.pem").exists().then_some(()));
    deployment.kill_server();
    fs::write(&gate, "").expect("the directory is ours");
    // The program looks for the server meanwhile.
    elastic_pid(&deployment);
    deployment.start_server();
    wait_for_line(&deployment, "got 1 more, as a1", 1);
    stop(&deployment, job);
}

#[test]
fn a_program_that_is_killed_is_followed_by_another_one() {
    let deployment = deployment(2, "never");
    let job = submit_elastic(&deployment, "1-2", "1-2 grow 1");
    wait_for_line(&deployment, "got 1 more, as a1", 1);
    kill(Pid::from_raw(elastic_pid(&deployment)), Signal::SIGKILL).expect("it is ours");
    // The next one speaks for the same job, which has both nodes, and asks under a number of its own.
    wait_for_line(&deployment, "begins on a1 a2", 1);
    wait_until("an answer", SOON, || log(&deployment).contains("got nothing").then_some(()));
    stop(&deployment, job);
}

#[test]
fn long_a_program_on_one_cluster_gets_nodes_of_two_or_none() {
    let settings =
        "[settings]\nresched_timer = \"50ms\"\nfair_start = \"0s\"\nkill_grace = \"1s\"\noffer_idle = \"never\"\n";
    let mut deployment = Deployment::builder().cluster("a", 2).cluster("b", 2).config(settings).start();
    // Another job has one of the nodes that it wants: it gets none of them.
    let other = deployment.submit(&["-M", "b", "--nodes", "1", "--time", "10m", "--wrap", "sleep 600"]);
    deployment.wait_for_state(other, "started");
    let program = example("elastic");
    let log_path = deployment.path().join("log");
    let text = format!("#!/bin/sh\n{0} 1-4 grow a:1,b:2 >> {1} 2>&1 &\nwait\n", program.display(), log_path.display());
    let script = deployment.script("both.sh", &text);
    let wishes = ["-M", "a", "--nodes", "1", "--malleable", "1-4", "--negotiable", "--time", "10m", script.as_str()];
    let job = deployment.submit(&wishes);
    wait_for_line(&deployment, "begins on a1", 1);
    wait_for_phase(&deployment, job, "offered");
    assert_eq!(held(&deployment, job), ["a1"]);
    deployment.rms(&["cancel", &other.to_string()]).ok();
    wait_for_line(&deployment, "got 3 more, as a1", 1);
    assert_eq!(held(&deployment, job), ["a1", "a2", "b1", "b2"]);
    deployment.kill_server();
    deployment.start_server();
    // Whoever needs nodes of one cluster gets them back from there.
    let waiting = deployment.submit(&["-M", "b", "--nodes", "2", "--time", "1m", "--wrap", "true"]);
    let record = deployment.wait_for_end(waiting);
    assert_eq!(record["outcome"]["word"], "completed", "{record}");
    assert!(
        log(&deployment).lines().any(|line| ["leaves b1 b2", "leaves b2 b1"].contains(&line)),
        "{}",
        log(&deployment)
    );
    stop(&deployment, job);
}

/// The nodes of a job that runs, sorted.
fn held(deployment: &Deployment, job: u64) -> Vec<String> {
    let line = deployment.queued(job).unwrap_or_else(|| panic!("job {job} is in the queue"));
    let nodes = line["nodes"].as_array().into_iter().flatten();
    let mut nodes: Vec<String> = nodes.filter_map(|node| node.as_str().map(str::to_owned)).collect();
    nodes.sort();
    nodes
}

/// Lets an agent hear and do nothing, for less time than it takes to be missed.
fn freeze(deployment: &Deployment, name: &str, signal: Signal) {
    kill(Pid::from_raw(deployment.agent_pid(name)), signal).expect("it is ours");
}

/// The supervisor that serves it again has the result of its first stay.
#[test]
fn a_job_that_has_returned_to_a_node_lives_on_when_the_agent_there_is_killed() {
    let mut deployment = deployment(2, "never");
    let job = deployment.submit(&["-N", "1", "--negotiable", "-t", "10m", "--wrap", "sleep 600"]);
    deployment.wait_for_state(job, "started");
    let id = job.to_string();
    for (how, nodes) in [("--grow", &["a1", "a2"][..]), ("--shrink", &["a1"]), ("--grow", &["a1", "a2"])] {
        deployment.rms(&["negotiate", &id, how, "1"]).ok();
        wait_until("its nodes", SOON, || (held(&deployment, job) == nodes).then_some(()));
    }
    deployment.kill_agent("a2");
    deployment.restart_agent("a2");
    deployment.rms(&["negotiate", &id, "--shrink", "1"]).ok();
    wait_until("its node", SOON, || (held(&deployment, job) == ["a1"]).then_some(()));
    // What the agent has found is reported before another job has run there.
    deployment.rms(&["run", "-w", "a2", "-t", "1m", "true"]).ok();
    assert_eq!(held(&deployment, job), ["a1"]);
    deployment.rms(&["cancel", &id]).ok();
    deployment.wait_for_end(job);
}

#[test]
fn what_was_agreed_comes_about_though_the_server_is_killed_before_it_is_ready() {
    let mut deployment = deployment(2, "never");
    freeze(&deployment, "a2", Signal::SIGSTOP);
    let job = submit_elastic(&deployment, "1-2", "1-2 grow 1");
    wait_for_line(&deployment, "begins on a1", 1);
    wait_for_phase(&deployment, job, "committing");
    deployment.kill_server();
    deployment.start_server();
    freeze(&deployment, "a2", Signal::SIGCONT);
    wait_for_line(&deployment, "got 1 more, as a1", 1);
    stop(&deployment, job);
}

#[test]
fn what_a_killed_program_had_agreed_is_rolled_back_and_agreed_anew() {
    let deployment = deployment(2, "never");
    freeze(&deployment, "a2", Signal::SIGSTOP);
    let job = submit_elastic(&deployment, "1-2", "1-2 grow 1");
    wait_for_phase(&deployment, job, "committing");
    kill(Pid::from_raw(elastic_pid(&deployment)), Signal::SIGKILL).expect("it is ours");
    wait_until("the next one", SOON, || log(&deployment).contains("137").then_some(()));
    freeze(&deployment, "a2", Signal::SIGCONT);
    // Whether the first agreement fails or has come about, no node is lost and the talk ends.
    wait_until("an answer", SOON, || {
        let log = log(&deployment);
        let is_over = log.contains("got 1 more, as a2") || log.contains("got nothing");
        is_over.then_some(())
    });
    stop(&deployment, job);
}

fn wait_for_phase(deployment: &Deployment, job: u64, phase: &str) {
    wait_until(phase, SOON, || {
        let shown = deployment.rms(&["negotiations", &job.to_string()]);
        shown.stdout.contains(phase).then_some(())
    });
}

fn key_dir(deployment: &Deployment, job: u64) -> PathBuf {
    // Whichever node it runs on.
    let nodes = ["a1", "a2", "a3", "a4"];
    let dirs = nodes.map(|node| deployment.agent_dir(node).join(format!("spool/keys/{job}.1")));
    dirs.iter().find(|dir| dir.exists()).unwrap_or(&dirs[0]).clone()
}

#[test]
fn keys_are_for_the_jobs_user_on_each_of_its_nodes_and_go_with_it() {
    let mut deployment = deployment(2, "never");
    let job = submit_elastic(&deployment, "1-2", "1-2 grow 1");
    wait_for_line(&deployment, "got 1 more, as a1", 1);
    let dirs = ["a1", "a2"].map(|node| deployment.agent_dir(node).join(format!("spool/keys/{job}.1")));
    let own = fs::metadata(deployment.path()).expect("it is ours").uid();
    for dir in &dirs {
        wait_until("a key on each node", SOON, || dir.join("cert.pem").exists().then_some(()));
        let mode = |path: &PathBuf| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
        assert_eq!((mode(dir), mode(&dir.join("key.pem"))), (0o700, 0o600));
        assert_eq!(fs::metadata(dir).expect("it is there").uid(), own);
    }
    // An agent that is killed places a new one.
    let before = fs::read_to_string(dirs[1].join("cert.pem")).expect("it is there");
    deployment.kill_agent("a2");
    deployment.restart_agent("a2");
    wait_until("another certificate on a2", SOON, || {
        fs::read_to_string(dirs[1].join("cert.pem")).is_ok_and(|now| now != before).then_some(())
    });
    stop(&deployment, job);
    wait_until("the keys to be gone", SOON, || dirs.iter().all(|dir| !dir.exists()).then_some(()));
}

#[test]
fn a_job_that_does_not_negotiate_is_told_how_to() {
    let deployment = deployment(1, "never");
    let program = example("elastic");
    let job = deployment.submit(&["--time", "1m", "--wrap", &format!("{} 1-2 2> log", program.display())]);
    let record = deployment.wait_for_end(job);
    assert_eq!(record["outcome"]["word"], "failed", "{record}");
    assert!(log(&deployment).contains("--malleable"), "{}", log(&deployment));
}
