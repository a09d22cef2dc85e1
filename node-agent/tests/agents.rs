//! Whole agents as processes, with a server on the other end of a real link.

mod common;

use common::cluster::Cluster;
use rms_core::desired::NodeExit;
use rms_model::Work;

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
    cluster.submit(1, &["n1"], 2, |launch| launch.stdio.stream = true, Work::Tasks { argv }).await;
    let typed = vec![b'x'; 1_000_000];
    let written = cluster.agent("n1").follow(1, &typed).await;
    assert_eq!(written.get(&(0, false)), Some(&typed), "task 0 reads what is typed");
    assert_eq!(written.get(&(1, false)), None, "the other one reads nothing");
    assert_eq!(written.get(&(1, true)).map(Vec::as_slice), Some(&b"err-1\n"[..]));
    assert_eq!(cluster.agent("n1").ended(1).await.0, NodeExit::Exited { code: 0 });
    cluster.close().await;
}
