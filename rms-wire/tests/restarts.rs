//! An endpoint is killed and another process takes its place: its peers notice by its knock, not by a heartbeat.

mod common;

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use common::{Deployment, LOOPBACK, accept_link};
use rms_model::Role;
use rms_wire::{Credentials, End, Endpoint, Expect, Link, Serve, Tuning};
use tokio::runtime::Runtime;

/// More links than QUIC would reset within this test's patience if it paused between resets.
const N_LINKS: usize = 300;

/// A process of these tests, which can be killed.
struct Process {
    runtime: Runtime,
    endpoint: Endpoint,
}

impl Process {
    fn start(listen: SocketAddr, credentials: &Credentials, serve: Serve, dir: &Path) -> Process {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let bind =
            async { Endpoint::bind_lasting(listen, credentials, serve, dir, Tuning::default()).expect("a free port") };
        let endpoint = runtime.block_on(bind);
        Process { runtime, endpoint }
    }

    /// Ends the process without notifying its peers.
    fn kill(self, links: Vec<Link>) {
        // Anything that they would still send needs the runtime.
        self.runtime.shutdown_timeout(Duration::from_secs(5));
        drop(links);
        drop(self.endpoint);
    }
}

/// Returns a peer that sends nothing on its own during this test.
fn quiet(deployment: &Deployment) -> Endpoint {
    let tuning = Tuning { keep_alive: Duration::from_secs(300), ..Tuning::default() };
    let credentials = deployment.credentials(Role::Agent, "n1");
    Endpoint::bind_tuned(LOOPBACK, &credentials, Serve::Nobody, tuning).expect("a free port")
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

#[test]
fn every_peer_of_a_killed_server_learns_at_once_that_it_is_back() {
    let deployment = Deployment::new("d1");
    let dir = tempfile::tempdir().expect("a directory");
    let first = deployment.credentials(Role::Server, "server");
    let server = Process::start(LOOPBACK, &first, deployment.serve_all(), dir.path());
    let address = server.endpoint.local_addr().expect("bound");
    let ours = runtime();
    let agent = ours.block_on(async { quiet(&deployment) });
    let (mut up, mut down) = (Vec::new(), Vec::new());
    for _ in 0..N_LINKS {
        let both = async { tokio::join!(agent.connect(address, Expect::server()), accept_link(&server.endpoint)) };
        let (one, other) = ours.block_on(both);
        up.push(one.expect("it connects"));
        down.push(other);
    }
    // A dropped endpoint runs to its end here, but a killed process leaves its files as they are.
    let left = tempfile::tempdir().expect("a directory");
    for file in ["links", "reset.key"] {
        std::fs::copy(dir.path().join(file), left.path().join(file)).expect("it is there");
    }
    server.kill(down);
    // Its certificate was renewed meanwhile: the next process still knows the links of its predecessor.
    let second = deployment.credentials(Role::Server, "server");
    let back = Instant::now();
    let _server = Process::start(address, &second, deployment.serve_all(), left.path());
    ours.block_on(async {
        for link in &up {
            let reason = tokio::time::timeout(Duration::from_secs(5), link.closed()).await;
            let reason = reason.unwrap_or_else(|_| panic!("not noticed for {:?}", back.elapsed()));
            assert_eq!(reason, "the peer has lost the connection (was it restarted?)");
            assert_eq!(link.end(), Some(End::Lost));
        }
    });
}

#[test]
fn who_waits_for_a_server_that_stopped_in_order_is_woken_when_it_is_back() {
    let deployment = Deployment::new("d1");
    let dir = tempfile::tempdir().expect("a directory");
    let credentials = deployment.credentials(Role::Server, "server");
    let server = Process::start(LOOPBACK, &credentials, deployment.serve_all(), dir.path());
    let address = server.endpoint.local_addr().expect("bound");
    let ours = runtime();
    let agent = ours.block_on(async { quiet(&deployment) });
    let both = async { tokio::join!(agent.connect(address, Expect::server()), accept_link(&server.endpoint)) };
    let (up, down) = ours.block_on(both);
    let up = up.expect("it connects");
    server.endpoint.close("the server is stopping");
    assert_eq!(ours.block_on(up.closed()), "the server is stopping");
    assert_eq!(up.end(), Some(End::Leaving));
    server.kill(vec![down]);
    // It pauses for long, as after many attempts.
    let pausing = ours.spawn(async move { agent.pause(Duration::from_secs(300)).await });
    std::thread::sleep(Duration::from_millis(100));
    let _server = Process::start(address, &credentials, deployment.serve_all(), dir.path());
    let woken = ours.block_on(async { tokio::time::timeout(Duration::from_secs(5), pausing).await });
    woken.expect("it is woken").expect("it does not panic");
}

/// Knocks are not orders: a forged one ends no link, and its sender gets no readable answer.
#[test]
fn a_forged_knock_ends_no_link() {
    let deployment = Deployment::new("d1");
    let dir = tempfile::tempdir().expect("a directory");
    let credentials = deployment.credentials(Role::Server, "server");
    let server = Process::start(LOOPBACK, &credentials, deployment.serve_all(), dir.path());
    let address = server.endpoint.local_addr().expect("bound");
    let ours = runtime();
    let agent = ours.block_on(async { quiet(&deployment) });
    let both = async { tokio::join!(agent.connect(address, Expect::server()), accept_link(&server.endpoint)) };
    let (up, down) = ours.block_on(both);
    let up = up.expect("it connects");
    let stranger = std::net::UdpSocket::bind(LOOPBACK).expect("a free port");
    stranger.set_read_timeout(Some(Duration::from_millis(200))).expect("a socket");
    let target = agent.local_addr().expect("bound");
    for _ in 0..100 {
        stranger.send_to(b"\x06limber knock 1", target).expect("sent");
    }
    assert!(stranger.recv_from(&mut [0; 100]).is_err(), "a stranger is answered nothing");
    assert_eq!((up.end(), down.end()), (None, None));
}
