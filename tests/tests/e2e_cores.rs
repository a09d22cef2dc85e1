//! A running job gives cores of its nodes back and has them again: looked at from outside, on every thread of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use test_kit::{Deployment, NodeOptions, wait_until};

const SOON: Duration = Duration::from_secs(60);

/// Two nodes that count four CPUs each, however many this machine has.
fn deployment() -> Deployment {
    let node = |name: &str| NodeOptions::new("a", name).with(&["--topology", "pack:1 core:4 pu:1"]);
    let settings = "[settings]\nresched_timer = \"50ms\"\nkill_grace = \"1s\"\noffer_idle = \"never\"\n";
    Deployment::builder().node(node("a1")).node(node("a2")).config(settings).start()
}

/// A program with threads and processes that come and go.
fn restless_program(deployment: &Deployment) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("apps/threads.c");
    let program = deployment.path().join("threads");
    let compiled = Command::new("cc").arg("-pthread").arg("-o").arg(&program).arg(source).status();
    assert!(compiled.expect("a C compiler").success());
    program
}

/// Runs it on both nodes; what it is told to do next, it does on the second.
fn submit_restless(deployment: &Deployment) -> (u64, [u32; 2]) {
    let (program, dir) = (restless_program(deployment), deployment.path().display().to_string());
    let text = format!(
        "#!/bin/sh\ncd {dir}\n$OMPI_MCA_plm_rsh_agent a2 'cd {dir}; exec ./{0} > pid-a2' &\n./{0} > pid-a1 &\n\
         while [ ! -e look ]; do sleep 0.05; done\n\
         $OMPI_MCA_plm_rsh_agent a2 'grep Cpus_allowed_list /proc/self/status' > late\n\
         echo $(grep -v '^#' $RMS_HOSTFILE) >> late\n\
         $OMPI_MCA_plm_rsh_agent a2 'echo $RMS_CPUS_ON_NODE' >> late; mv late seen\nsleep 600\n",
        program.file_name().expect("a name").display(),
    );
    let script = deployment.script("restless.sh", &text);
    let job = deployment.submit(&["-N", "2", "-t", "10m", &script]);
    let pid = |node: &str| {
        let path = deployment.path().join(format!("pid-{node}"));
        wait_until(&format!("the program on {node}"), SOON, || fs::read_to_string(&path).ok()?.trim().parse().ok())
    };
    (job, [pid("a1"), pid("a2")])
}

/// The lists of CPUs of all threads of a process.
fn allowed(pid: u32) -> BTreeSet<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let status = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("status")).ok();
    let of_status = |status: String| {
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).map(str::trim);
        list.map(str::to_owned)
    };
    let lists: Vec<String> = threads.filter_map(Result::ok).filter_map(status).filter_map(of_status).collect();
    assert!(lists.len() >= 6, "{lists:?}");
    lists.into_iter().collect()
}

/// What a job has that has all of the machine, and what one has that has one core.
fn all_and_one() -> (String, String) {
    let status = fs::read_to_string("/proc/self/status").expect("this runs");
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a list").trim();
    let first = list.split([',', '-']).next().expect("a CPU");
    (list.to_owned(), first.to_owned())
}

fn expect_allowed(pid: u32, list: &str) {
    for _ in 0..50 {
        assert_eq!(allowed(pid), BTreeSet::from([list.to_owned()]));
    }
}

fn shown_cores(deployment: &Deployment, job: u64) -> Value {
    deployment.rms(&["show", &job.to_string(), "--json"]).ok().json()["cores"].clone()
}

#[test]
fn every_thread_of_a_job_is_on_the_cores_that_it_negotiated() {
    let deployment = deployment();
    let (job, pids) = submit_restless(&deployment);
    let (all, one) = all_and_one();
    let id = job.to_string();
    pids.iter().for_each(|pid| expect_allowed(*pid, &all));

    let told = deployment.rms(&["negotiate", &id, "--shrink-cores", "3"]).ok().stdout;
    assert_eq!(told, "3 cores a node fewer\n");
    pids.iter().for_each(|pid| expect_allowed(*pid, &one));
    let shown = deployment.rms(&["show", &id]).ok().stdout;
    assert!(shown.contains("a[1-2]: 1 of 4\n"), "{shown}");
    // What is started from now on begins there, and is told so.
    fs::write(deployment.path().join("look"), "").expect("a file");
    let seen = wait_until("what it saw", SOON, || fs::read_to_string(deployment.path().join("seen")).ok());
    assert_eq!(
        seen.lines().collect::<Vec<_>>(),
        [&*format!("Cpus_allowed_list:\t{one}"), "a1 slots=1 a2 slots=1", "1"]
    );

    let told =
        deployment.rms(&["negotiate", &id, "--grow-cores", "9", "--accept-at-least", "1", "--on", "a2", "--json"]);
    assert_eq!(told.ok().json()["cores"], 3, "it has no more");
    expect_allowed(pids[0], &one);
    expect_allowed(pids[1], &all);
    let refused = deployment.rms(&["negotiate", &id, "--grow-cores", "1", "--on", "a2"]).fails(1);
    assert!(refused.stderr.contains("there is nothing to give"), "{}", refused.stderr);
    let story = deployment.rms(&["negotiations", &id]).ok().stdout;
    assert!(story.contains("-3 cores on each node of a (holding 4)"), "{story}");
    assert!(story.contains("counters with +3 cores on 1 node of a (holding 1)"), "{story}");
    deployment.rms(&["cancel", &id]).ok();
}

#[test]
fn long_cores_wait_for_an_agent_that_is_away_and_for_a_server_that_is_started_again() {
    let mut deployment = deployment();
    let (job, pids) = submit_restless(&deployment);
    let (all, one) = all_and_one();
    let id = job.to_string();
    deployment.kill_agent("a2");
    let asking = deployment.command(&["negotiate", &id, "--shrink-cores", "3"]).spawn().expect("it starts");
    wait_until("the first node to be told", SOON, || {
        (shown_cores(&deployment, job)[0]["in_force"] == true).then_some(())
    });
    assert_eq!(shown_cores(&deployment, job)[1]["in_force"], false);
    expect_allowed(pids[0], &one);
    expect_allowed(pids[1], &all);
    deployment.kill_server();
    deployment.start_server();
    deployment.restart_agent("a2");
    wait_until("the second node to be told", SOON, || {
        (shown_cores(&deployment, job)[1]["in_force"] == true).then_some(())
    });
    expect_allowed(pids[1], &one);
    let mut asking = asking;
    asking.wait().expect("it ends with its server");
    // An agent that is started again finds the job as it left it.
    deployment.kill_agent("a1");
    deployment.restart_agent("a1");
    deployment.rms(&["negotiate", &id, "--grow-cores", "3"]).ok();
    pids.iter().for_each(|pid| expect_allowed(*pid, &all));
    deployment.rms(&["cancel", &id]).ok();
}
