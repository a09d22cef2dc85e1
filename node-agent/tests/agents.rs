//! Tests of whole agents as processes, with a server at the other end of a real link.

mod common;

use common::cluster::Cluster;
use rms_api::desired::NodeExit;
use rms_model::{Span, Work};
use rms_wire::{Credentials, Expect};

fn script(text: &str) -> Work {
    Work::Script { script: text.to_owned(), args: Vec::new() }
}

#[tokio::test]
async fn an_agent_says_hello_and_runs_what_is_desired() {
    let mut cluster = Cluster::new(&["n1"]).await;
    assert_eq!(cluster.agent("n1").hello.inventory.cpus, 4);
    cluster.submit(1, &["n1"], 1, |_| {}, script("#!/bin/sh\nexit 7\n")).await;
    assert_eq!(cluster.agent("n1").ended(1).await.0, NodeExit::Exited { code: 7 });
    cluster.close().await;
}

/// A message that a later server may send.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
enum LaterToAgent {
    Desire { generation: u64, job: Option<u64>, last: bool, colour: String },
    Weather { degrees: i32 },
}

impl rms_wire::Message for LaterToAgent {
    const KIND: rms_wire::Kind = rms_wire::Kind::ToAgent;
}

#[tokio::test]
async fn an_agent_skips_what_a_newer_server_tells_it_and_runs_its_jobs() {
    let mut cluster = Cluster::new(&["n1"]).await;
    cluster.submit(1, &["n1"], 1, |_| {}, script("#!/bin/sh\nwhile [ ! -e go ]; do sleep 0.01; done\nexit 5\n")).await;
    cluster.agent("n1").running(1).await;
    cluster.agent("n1").say(&LaterToAgent::Weather { degrees: 21 }).await;
    // Older than what the agent has seen, and with an additional field: nothing changes.
    let desire = LaterToAgent::Desire { generation: 0, job: None, last: true, colour: "red".to_owned() };
    cluster.agent("n1").say(&desire).await;
    std::fs::write(cluster.path().join("go"), "").expect("a file");
    assert_eq!(cluster.agent("n1").ended(1).await.0, NodeExit::Exited { code: 5 });
    cluster.close().await;
}

#[tokio::test]
async fn an_agent_that_is_killed_finds_its_job_again() {
    let mut cluster = Cluster::new(&["n1"]).await;
    cluster.submit(1, &["n1"], 1, |_| {}, script("#!/bin/sh\nwhile [ ! -e go ]; do sleep 0.01; done\nexit 5\n")).await;
    cluster.agent("n1").running(1).await;
    cluster.kill("n1").await;
    cluster.start("n1").await;
    std::fs::write(cluster.path().join("go"), "").expect("a file");
    assert_eq!(cluster.agent("n1").ended(1).await.0, NodeExit::Exited { code: 5 });
    cluster.close().await;
}

#[tokio::test]
async fn a_followed_job_is_heard_and_typed_to() {
    let mut cluster = Cluster::new(&["n1"]).await;
    let argv = ["sh", "-c", "cat; echo err-$RMS_TASK_ID >&2"].map(str::to_owned).to_vec();
    cluster.submit(1, &["n1"], 2, |launch| launch.execution.stdio.stream = true, Work::Tasks { argv }).await;
    let typed = vec![b'x'; 1_000_000];
    let written = cluster.agent("n1").follow(1, &typed).await;
    assert_eq!(written.get(&(0, false)), Some(&typed), "task 0 reads what is typed");
    assert_eq!(written.get(&(1, false)), None, "the other one reads nothing");
    assert_eq!(written.get(&(1, true)).map(Vec::as_slice), Some(&b"err-1\n"[..]));
    assert_eq!(cluster.agent("n1").ended(1).await.0, NodeExit::Exited { code: 0 });
    cluster.close().await;
}

/// The link to the server has only so many channels, and those of followers who leave a silent job are free again.
#[tokio::test]
async fn followers_who_leave_a_silent_job_keep_no_channels() {
    let mut cluster = Cluster::new(&["n1"]).await;
    let wait = ["sh", "-c", "while [ ! -e go ]; do sleep 0.05; done"].map(str::to_owned).to_vec();
    cluster.submit(1, &["n1"], 1, |launch| launch.execution.stdio.stream = true, Work::Tasks { argv: wait }).await;
    cluster.agent("n1").running(1).await;
    for _ in 0..1500 {
        cluster.agent("n1").begin_to_follow(1).await;
    }
    std::fs::write(cluster.path().join("go"), "").expect("a file");
    assert_eq!(cluster.agent("n1").follow(1, b"").await.len(), 0, "it is silent");
    cluster.close().await;
}

#[tokio::test]
async fn an_agent_that_is_told_to_stop_leaves_its_jobs_alone() {
    let mut cluster = Cluster::new(&["n1"]).await;
    cluster.submit(1, &["n1"], 1, |_| {}, script("#!/bin/sh\nwhile [ ! -e go ]; do sleep 0.01; done\nexit 5\n")).await;
    cluster.agent("n1").running(1).await;
    let process = &mut cluster.agent("n1").process;
    node_agent::sys::kill(process.id() as i32, nix::libc::SIGTERM).expect("it runs");
    assert!(process.wait().expect("it is our child").success());
    std::fs::write(cluster.path().join("go"), "").expect("a file");
    cluster.start("n1").await;
    assert_eq!(cluster.agent("n1").ended(1).await.0, NodeExit::Exited { code: 5 });
    cluster.close().await;
}

#[tokio::test]
async fn an_idle_agent_that_is_told_to_stop_leaves_no_cgroup() {
    let mut cluster = Cluster::new(&["n1"]).await;
    cluster.submit(1, &["n1"], 1, |_| {}, script("exit 0")).await;
    cluster.end(1).await;
    let process = &mut cluster.agent("n1").process;
    node_agent::sys::kill(process.id() as i32, nix::libc::SIGTERM).expect("it runs");
    process.wait().expect("it is our child");
    let left = cluster.cgroup_of("n1");
    assert!(!left.exists(), "{}", left.display());
}

fn has_processes(cgroup: &std::path::Path) -> bool {
    let seats = std::fs::read_dir(cgroup).into_iter().flatten().flatten();
    let processes = |seat: std::fs::DirEntry| std::fs::read_to_string(seat.path().join("cgroup.procs"));
    seats.map(processes).any(|pids| pids.is_ok_and(|pids| !pids.is_empty()))
}

#[tokio::test]
async fn an_agent_that_starts_clears_the_cgroups_of_one_that_was_killed() {
    let mut cluster = Cluster::new(&["n1", "n2"]).await;
    for (job, node) in [(1, "n1"), (2, "n2")] {
        cluster.submit(job, &[node], 1, |_| {}, script("exit 0")).await;
        cluster.agent(node).ended(job).await;
    }
    let (killed, living) = (cluster.cgroup_of("n1"), cluster.cgroup_of("n2"));
    // On a machine without v1 there is nothing to check here; the decision itself has a test of its own.
    let has_v1 = living.exists();
    cluster.kill("n1").await;
    let deadline = std::time::Instant::now() + common::PATIENCE;
    while has_processes(&killed) {
        assert!(std::time::Instant::now() < deadline, "its idle supervisors live on");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(killed.exists(), has_v1, "nobody was left to remove it");
    cluster.start("n3").await;
    assert!(!killed.exists(), "{}", killed.display());
    assert_eq!(living.exists(), has_v1);
    cluster.agents.remove("n1");
    cluster.close().await;
}

#[tokio::test]
async fn long_a_certificate_is_renewed_before_it_expires() {
    let mut cluster = Cluster::new(&[]).await;
    cluster.life = Span::from_secs(5);
    cluster.start("n1").await;
    let dir = cluster.agent_dir("n1").join("credentials");
    let old = Credentials::load(&dir).expect("credentials").expires();
    cluster.renew("n1").await;
    let deadline = std::time::Instant::now() + common::PATIENCE;
    while Credentials::load(&dir).expect("credentials at every instant").expires() <= old {
        assert!(std::time::Instant::now() < deadline, "the new certificate is not kept");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    cluster.close().await;
}

#[tokio::test]
async fn a_peer_whose_certificate_is_revoked_loses_its_link_and_gets_no_other() {
    let mut cluster = Cluster::new(&["n1"]).await;
    let address = cluster.agent("n1").hello.address.parse().expect("an address");
    let (honest, _) = cluster.peer("n2");
    let (stolen, serial) = cluster.peer("n3");
    let honest = honest.connect(address, Expect::agent("n1")).await.expect("a peer");
    let link = stolen.connect(address, Expect::agent("n1")).await.expect("not yet revoked");

    cluster.agent("n1").revoked(&["4a01", &serial, "4a02"]).await;
    let reason = tokio::time::timeout(common::PATIENCE, link.closed()).await.expect("it is closed in time");
    assert_eq!(reason, "the certificate is revoked");
    let again = stolen.connect(address, Expect::agent("n1")).await.expect_err("it is known to be revoked");
    assert_eq!(again.to_string(), "denied: our certificate is revoked");
    assert!(!honest.is_closed(), "others keep theirs");
    cluster.close().await;
}

#[tokio::test]
async fn two_agents_do_not_share_a_directory() {
    let mut cluster = Cluster::new(&["n1"]).await;
    let second = std::process::Command::new(env!("CARGO_BIN_EXE_node-agent"))
        .args(["run", "--server", "127.0.0.1:1", "--dir"])
        .arg(cluster.agent_dir("n1"))
        .output()
        .expect("it runs");
    assert_eq!(second.status.code(), Some(1));
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(said.contains("another agent uses"), "{said}");
    assert_eq!(said.lines().filter(|line| line.starts_with("node-agent: ")).count(), 1, "{said}");
    cluster.submit(1, &["n1"], 1, |_| {}, script("exit 0")).await;
    assert_eq!(cluster.agent("n1").ended(1).await.0, NodeExit::Exited { code: 0 });
    cluster.close().await;
}
