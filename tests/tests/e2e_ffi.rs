//! Programs in C and Fortran that grow and shrink through the C library, with real agents and processes.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use rms_tests::sdk::{Language, Linkage, sdk};
use test_kit::{Deployment, wait_until};

const SOON: Duration = Duration::from_secs(60);

/// Fast enough for tests; nothing is offered but by the rule that a test names.
fn deployment(n_nodes: u32, offers: &str) -> Deployment {
    let settings = format!(
        "[settings]\nresched_timer = \"50ms\"\nfair_start = \"0s\"\nkill_grace = \"1s\"\noffer_idle = \"{offers}\"\n"
    );
    Deployment::builder().cluster("a", n_nodes).config(&settings).start()
}

/// A program of `rms-ffi`, compiled into the deployment's directory.
fn compile(deployment: &Deployment, language: Language, source: &str, linkage: Linkage) -> Option<PathBuf> {
    let program = deployment.path().join("program");
    sdk().compile(language, source, linkage, &program).then_some(program)
}

/// Submits it as a job of one node that negotiates within these limits; what it prints goes to `log`.
fn submit(deployment: &Deployment, limits: &str, command: &str) -> u64 {
    let dir = deployment.path().display();
    let script = deployment.script("job.sh", &format!("#!/bin/sh\ncd {dir}\nexec {command} >> {dir}/log 2>&1\n"));
    deployment.submit(&["--nodes", "1", "--malleable", limits, "--negotiable", "--time", "10m", &script])
}

fn read(deployment: &Deployment, name: &str) -> String {
    fs::read_to_string(deployment.path().join(name)).unwrap_or_default()
}

fn wait_for(deployment: &Deployment, name: &str, part: &str) {
    wait_until(&format!("'{part}' in {name}"), SOON, || read(deployment, name).contains(part).then_some(()));
}

fn end_of(deployment: &Deployment, job: u64) -> String {
    let record = deployment.wait_for_end(job);
    assert_eq!(record["outcome"]["word"], "completed", "{record}\n{}", read(deployment, "log"));
    read(deployment, "log")
}

#[test]
fn long_a_c_program_takes_what_is_idle_and_gives_it_back_at_its_breakpoint() {
    let deployment = deployment(3, "equal_share");
    let Some(program) = compile(&deployment, Language::C, "examples/steps.c", Linkage::Shared) else { return };
    let dir = deployment.path().display();
    let piece = deployment.script(
        "piece.sh",
        &format!("#!/bin/sh\necho step $1: piece $2 of $3 on $RMS_NODE_NAME >> {dir}/pieces\nsleep 0.2\ntest ! -e {dir}/stop\n"),
    );
    let job = submit(&deployment, "1-3", &format!("{} 1000 {piece}", program.display()));
    wait_for(&deployment, "log", ": 3 nodes");
    wait_for(&deployment, "pieces", "piece 2 of 3 on a");
    // Another job needs one of them: the program leaves it between two steps, and no piece fails.
    let rigid = deployment.submit(&["--nodes", "1", "--time", "1m", "--wrap", "true"]);
    assert_eq!(deployment.wait_for_end(rigid)["outcome"]["word"], "completed");
    assert!(read(&deployment, "log").contains(": 2 nodes"), "{}", read(&deployment, "log"));
    assert!(!read(&deployment, "log").contains("has failed"), "{}", read(&deployment, "log"));
    deployment.rms(&["cancel", &job.to_string()]).ok();
    assert_eq!(deployment.wait_for_end(job)["outcome"]["word"], "cancelled");
}

#[test]
fn long_a_c_program_asks_for_nodes_and_time_by_poll_and_by_callback() {
    let deployment = deployment(3, "never");
    let Some(program) = compile(&deployment, Language::C, "tests/programs/evolve.c", Linkage::Static) else { return };
    let job = submit(&deployment, "1-3", &program.display().to_string());
    let log = end_of(&deployment, job);
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines[..2], ["holds a1", "asks a1"], "{log}");
    let came = ["came a2 a3", "came a3 a2"].contains(&lines[2]);
    assert!(came, "{log}");
    assert!(lines[3].starts_with("holds a1 a"), "{log}");
    assert_eq!(read(&deployment, "nodes").lines().filter(|line| line.contains("slots=")).count(), 3, "{log}");
    let left = lines[4].strip_prefix("leaves ").unwrap_or_else(|| panic!("{log}"));
    assert_eq!(lines[5], format!("left {left}"), "{log}");
    assert_eq!(lines[6].split_whitespace().count(), 3, "two nodes are held: {log}");
    assert_eq!(lines[7..], ["time: agreed, 60 s longer", "done"], "{log}");
}

#[test]
fn long_a_fortran_program_follows_its_nodes_though_its_server_is_killed() {
    let mut deployment = deployment(2, "equal_share");
    let source = "examples/malleable.f90";
    let Some(program) = compile(&deployment, Language::Fortran, source, Linkage::Shared) else { return };
    let endless = format!("env GFORTRAN_UNBUFFERED_ALL=1 {} 1000000", program.display());
    let job = submit(&deployment, "1-2", &endless);
    wait_for(&deployment, "log", "generation 1");
    deployment.kill_server();
    deployment.start_server();
    wait_for(&deployment, "log", ": 2 nodes\n  came  a2");
    deployment.rms(&["cancel", &job.to_string()]).ok();
    assert_eq!(deployment.wait_for_end(job)["outcome"]["word"], "cancelled");
}

#[test]
fn misuse_within_a_job_gives_errors_and_harms_nobody() {
    let deployment = deployment(2, "never");
    let source = "tests/programs/misuse.c";
    let Some(program) = compile(&deployment, Language::C, source, Linkage::Shared) else { return };
    let job = submit(&deployment, "1-2", &program.display().to_string());
    let log = end_of(&deployment, job);
    assert!(log.contains("of which 0 were taken wrongly"), "{log}");
}

#[test]
fn long_who_comes_late_to_its_breakpoint_finds_its_nodes_gone_and_a_second_session_replaces_the_first() {
    let settings = "[settings]\nresched_timer = \"50ms\"\nfair_start = \"0s\"\nkill_grace = \"1s\"\nrelease_grace = \
                    \"1s\"\noffer_idle = \"equal_share\"\n";
    let deployment = Deployment::builder().cluster("a", 2).config(settings).start();
    let source = "tests/programs/late.c";
    let Some(program) = compile(&deployment, Language::C, source, Linkage::Shared) else { return };
    let job = submit(&deployment, "1-2", &program.display().to_string());
    wait_for(&deployment, "log", "came a2");
    let rigid = deployment.submit(&["--nodes", "1", "--time", "1m", "--wrap", "true"]);
    assert_eq!(deployment.wait_for_end(rigid)["outcome"]["word"], "completed", "nobody waits for who never looks");
    fs::write(deployment.path().join("look"), "").expect("the directory is ours");
    let log = end_of(&deployment, job);
    assert!(log.contains("lost a2, 1 after it\n") && log.ends_with("done\n"), "{log}");
}
