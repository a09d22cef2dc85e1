//! Measures what a server holds for each connected agent.

mod common;

use std::time::Duration;

use common::{Deployment, accept_link};
use rms_model::Role;
use rms_wire::Expect;

/// Returns the current memory of this process, in KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs is mounted");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("the kernel keeps it");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connected_agent_takes_little_memory() {
    const N_LINKS: u64 = 400;
    let deployment = Deployment::new("d1");
    let server = deployment.server();
    let address = server.local_addr().expect("bound");
    let agent = deployment.dialler(Role::Agent, "n1");
    let mut links = Vec::new();
    let mut before = 0;
    for n in 0..N_LINKS + 50 {
        // The first ones cause one-time allocations.
        if n == 50 {
            before = resident_kib();
        }
        let (up, down) = tokio::join!(agent.connect(address, Expect::server()), accept_link(&server));
        links.push((up.expect("it connects"), down));
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let kib_per_pair = (resident_kib() - before) / N_LINKS;
    println!("{kib_per_pair} KiB for both ends of a link");
    // 10,000 agents in 1 GiB leave 104 KiB for the server's end of each.
    assert!(kib_per_pair < 160, "{kib_per_pair} KiB for both ends of a link");
    assert!(links.iter().all(|(up, down)| !up.is_closed() && !down.is_closed()));
}

#[tokio::test]
async fn a_link_that_everybody_let_go_of_is_closed() {
    let deployment = Deployment::new("d1");
    let server = deployment.server();
    let address = server.local_addr().expect("bound");
    let agent = deployment.dialler(Role::Agent, "n1");
    let (up, down) = tokio::join!(agent.connect(address, Expect::server()), accept_link(&server));
    let channel = up.as_ref().expect("it connects").open().await.expect("open");
    drop(up);
    let still_up = tokio::time::timeout(Duration::from_millis(200), down.closed()).await;
    assert!(still_up.is_err(), "a channel keeps the link: {still_up:?}");
    drop(channel);
    let ended = tokio::time::timeout(Duration::from_secs(5), down.closed()).await;
    assert_eq!(ended.expect("it ends"), "the peer has let the link go");
}
