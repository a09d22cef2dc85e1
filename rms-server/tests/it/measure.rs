//! Measures the cost of submits on one connection, of a restart with many queued jobs, and memory. Run by hand:
//! `cargo nextest run -p rms-server --run-ignored only measure --no-capture`, with `RMS_TEST_JOBS=100000`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rms_api::Answer;
use rms_api::Call;
use rms_api::call::Query;
use rms_model::Environment;

use crate::deployment::{FakeAgent, Server, job};

/// The number of concurrent calls on the connection.
const WINDOW: usize = 128;

#[test]
#[ignore = "a measurement, which takes its time"]
fn measure_submits_restart_and_memory() {
    let n_jobs: usize = std::env::var("RMS_TEST_JOBS").ok().and_then(|n| n.parse().ok()).unwrap_or(10_000);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut server = Server::start();
        println!("idle: {} KiB", rss_kib(&server));
        let credentials = server.agent_credentials("n1").await;
        let agent = FakeAgent::connect(&credentials, server.address, Vec::new()).await;
        let admin = Arc::new(server.admin().await);

        let mut submission = job("filler");
        let variable = |idx: usize| (format!("VARIABLE_{idx}"), "a value of a usual length, like a path".to_owned());
        submission.execution.environment = Arc::new(Environment((0..50).map(variable).collect()));
        let submit = Arc::new(Call::Submit(Box::new(submission)));
        let began = Instant::now();
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..n_jobs {
            if calls.len() >= WINDOW {
                calls.join_next().await.expect("a call").expect("no panic");
            }
            let (admin, submit) = (Arc::clone(&admin), Arc::clone(&submit));
            calls.spawn(async move { admin.call(&submit).await.expect("a possible job") });
        }
        while calls.join_next().await.is_some() {}
        let took = began.elapsed();
        println!("{n_jobs} submits: {took:?}, {:.0}/s", n_jobs as f64 / took.as_secs_f64());
        println!("with the jobs queued: {} KiB", rss_kib(&server));
        drop(agent);

        server.kill();
        let began = Instant::now();
        server.restart();
        println!("restart until it listens: {:?}", began.elapsed());
        let admin = server.admin().await;
        match admin.call(&Call::Query(Query::Status)).await.expect("a status") {
            Answer::Status(status) => {
                println!("restart until jobs are known: {:?}", began.elapsed());
                assert_eq!(status.n_submitted, n_jobs as u64);
            }
            other => panic!("{other:?}"),
        }
        // The snapshot that is due by now is made in the background.
        tokio::time::sleep(Duration::from_secs(1)).await;
        println!("after the restart: {} KiB", rss_kib(&server));
        for entry in std::fs::read_dir(server.path()).expect("a directory").flatten() {
            let n_bytes = entry.metadata().expect("a file").len();
            println!("  {:>12} {}", n_bytes, entry.file_name().to_string_lossy());
        }
    });
}

fn rss_kib(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("a process");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line");
    line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}
