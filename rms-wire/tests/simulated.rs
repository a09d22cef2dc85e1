//! Links on a network that loses, delays, reorders and cuts, in virtual time.

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use common::simnet::{Network, Sent};
use common::{Deployment, accept_link, now};
use rms_model::{Role, Span};
use rms_wire::{Backoff, Credentials, End, Endpoint, Expect, Input, Link, Receiver, Sender, Serve, Tuning};
use tokio::time::{Instant, sleep, timeout};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

struct World {
    network: Network,
    deployment: Deployment,
    server: Endpoint,
    server_address: SocketAddr,
}

/// Returns credentials that outlive hours of virtual time.
fn long_lived(deployment: &Deployment, role: Role, name: &str) -> Credentials {
    deployment.credentials_for(role, name, now() - Span::from_mins(1), now() + Span::from_hours(24 * 30))
}

fn tuning(n: u8) -> Tuning {
    Tuning { seed: Some([n; 32]), ..Tuning::default() }
}

impl World {
    fn new(seed: u64) -> World {
        let network = Network::new(seed);
        let deployment = Deployment::new("d1");
        let credentials = long_lived(&deployment, Role::Server, "server");
        let server = Endpoint::bind_on(network.socket(1), &credentials, deployment.serve_all(), tuning(1));
        let server = server.expect("an endpoint");
        let server_address = server.local_addr().expect("bound");
        World { network, deployment, server, server_address }
    }

    fn agent(&self, n: u8) -> Endpoint {
        let credentials = long_lived(&self.deployment, Role::Agent, &format!("n{n}"));
        Endpoint::bind_on(self.network.socket(n), &credentials, Serve::Nobody, tuning(n)).expect("an endpoint")
    }

    async fn link(&self, agent: &Endpoint) -> (Link, Link) {
        let connecting = agent.connect(self.server_address, Expect::server());
        let (up, down) = tokio::join!(connecting, accept_link(&self.server));
        (up.expect("it connects"), down)
    }
}

/// Returns the sender of a channel and the receiver at its far end.
async fn channel(up: &Link, down: &Link) -> (Sender, Receiver) {
    let mut opened = up.open().await.expect("the link is up");
    opened.send(&numbered(u64::MAX)).await.expect("the link is up");
    let mut accepted = down.accept().await.expect("the link is up");
    accepted.recv::<Input>().await.expect("a frame");
    // The other halves are dropped: these channels go one way.
    (opened.split().0, accepted.split().1)
}

fn numbered(n: u64) -> Input {
    Input { bytes: n.to_le_bytes().to_vec(), eof: false }
}

/// Sends numbered frames, `pause` apart, and expects all of them in order at the other end.
async fn carry(up: &Link, down: &Link, n_frames: u64, pause: Duration) {
    let (mut sender, mut receiver) = channel(up, down).await;
    let sending = async {
        for n in 0..n_frames {
            sender.send(&numbered(n)).await.expect("the link holds");
            sleep(pause).await;
        }
        sender.finish();
    };
    let receiving = async {
        let mut n_received = 0;
        while let Some(input) = receiver.recv::<Input>().await.expect("the link holds") {
            assert_eq!(input, numbered(n_received), "in order, none twice, none missing");
            n_received += 1;
        }
        assert_eq!(n_received, n_frames);
    };
    tokio::join!(sending, receiving);
}

#[tokio::test(start_paused = true)]
async fn frames_arrive_in_order_over_a_network_that_loses_and_reorders() {
    let world = World::new(11);
    world.network.disturb(0.1, ms(1)..=ms(80));
    let (up, down) = world.link(&world.agent(2)).await;
    carry(&up, &down, 500, ms(20)).await;
    let trace = world.network.trace();
    let n_lost = trace.iter().filter(|sent| sent.arrives.is_none()).count();
    assert!(n_lost * 20 > trace.len(), "{n_lost} of {} were lost: too few to prove anything", trace.len());
    let was_overtaken = |two: &[&Sent]| two[0].to == two[1].to && two[0].arrives > two[1].arrives;
    let arrived: Vec<&Sent> = trace.iter().filter(|sent| sent.arrives.is_some()).collect();
    assert!(arrived.windows(2).any(was_overtaken), "nothing was reordered");
}

#[tokio::test(start_paused = true)]
async fn a_quiet_link_is_kept_alive_for_hours() {
    let world = World::new(12);
    let (up, down) = world.link(&world.agent(2)).await;
    sleep(secs(6 * 3600)).await;
    assert!(!up.is_closed() && !down.is_closed());
    carry(&up, &down, 3, ms(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_short_partition_is_survived() {
    let world = World::new(13);
    let agent = world.agent(2);
    let (up, down) = world.link(&agent).await;
    let address = agent.local_addr().expect("bound");
    let cutting = async {
        for _ in 0..5 {
            sleep(secs(5)).await;
            world.network.cut_off(address);
            sleep(secs(5)).await;
            world.network.heal(address);
        }
    };
    tokio::join!(carry(&up, &down, 300, ms(200)), cutting);
    assert!(!up.is_closed() && !down.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_long_partition_ends_the_link_on_both_sides_after_the_idle_time() {
    let world = World::new(14);
    let agent = world.agent(2);
    let (up, down) = world.link(&agent).await;
    sleep(secs(60)).await;
    world.network.cut_off(agent.local_addr().expect("bound"));
    let cut = Instant::now();
    let (up_reason, up_took) = async { (up.closed().await, cut.elapsed()) }.await;
    let (down_reason, down_took) = async { (down.closed().await, cut.elapsed()) }.await;
    for (reason, took) in [(up_reason, up_took), (down_reason, down_took)] {
        assert_eq!(reason, "the peer has not been heard of for too long");
        // The last sign of life is at most one heartbeat older than the cut.
        assert!(secs(8) < took && took < secs(13), "{took:?}");
    }
    // Who is told of the end by one of its channels closes the link, too.
    up.close("the server has ended the control channel");
    assert_eq!(up.closed().await, "the peer has not been heard of for too long");
    assert_eq!(up.end(), Some(End::Lost));
}

/// What the agent sends still arrives: it must not pass for a sign of life once the agent has given up.
#[tokio::test(start_paused = true)]
async fn an_agent_that_hears_nothing_tells_the_server_within_the_idle_time() {
    let world = World::new(17);
    let agent = world.agent(2);
    let (up, down) = world.link(&agent).await;
    let (mut sender, _receiver) = channel(&down, &up).await;
    sleep(secs(60)).await;
    world.network.deafen(agent.local_addr().expect("bound"));
    let cut = Instant::now();
    sender.send(&numbered(0)).await.expect("the server knows nothing of it");
    assert_eq!(down.closed().await, "nothing from here arrives there");
    let took = cut.elapsed();
    assert!(secs(8) < took && took < secs(15), "{took:?}");
    assert_eq!(up.closed().await, "the peer has not been heard of for too long");
    assert_eq!(up.end(), Some(End::Lost));
}

#[tokio::test(start_paused = true)]
async fn an_agent_comes_back_after_a_partition_with_growing_patience() {
    let world = World::new(15);
    let agent = world.agent(2);
    let (up, _down) = world.link(&agent).await;
    let address = agent.local_addr().expect("bound");
    world.network.cut_off(address);
    up.closed().await;
    let mut backoff = Backoff::seeded(ms(100), secs(10), 15);
    let mut delays = Vec::new();
    let server = world.server_address.to_string();
    let expect = Expect::server();
    let returning = agent.connect_patiently(&server, &expect, &mut backoff, |_, delay| delays.push(delay));
    let healing = async {
        sleep(secs(300)).await;
        world.network.heal(address);
        let healed = Instant::now();
        let down = accept_link(&world.server).await;
        (down, healed.elapsed())
    };
    let (up, (down, took)) = tokio::join!(returning, healing);
    assert!(took < secs(21), "one attempt and one delay at most, but it took {took:?}");
    assert!(delays.len() > 8, "{delays:?}");
    assert!(delays.windows(2).take(5).all(|two| two[0] < two[1]), "they grow: {delays:?}");
    assert!(delays.iter().all(|delay| *delay <= secs(10)), "and have an end: {delays:?}");
    carry(&up, &down, 10, ms(10)).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_gone_is_noticed_and_found_again() {
    let world = World::new(16);
    let agent = world.agent(2);
    let (up, _down) = world.link(&agent).await;
    world.server.close("the server stops");
    let reason = timeout(secs(1), up.closed()).await.expect("it says goodbye");
    assert_eq!(reason, "the server stops");
    assert!(world.server.accept().await.is_none(), "a closed endpoint accepts nobody");
    world.server.wait_idle().await;
    // The next server at the same address.
    let credentials = world.deployment.credentials(Role::Server, "server");
    let server = Endpoint::bind_on(world.network.socket(1), &credentials, world.deployment.serve_all(), tuning(3));
    let server = server.expect("an endpoint");
    let (up, down) = tokio::join!(agent.connect(world.server_address, Expect::server()), accept_link(&server));
    carry(&up.expect("it connects"), &down, 3, ms(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_killed_says_so_when_it_is_back() {
    let world = World::new(19);
    let agent = world.agent(2);
    let (up, _down) = world.link(&agent).await;
    sleep(secs(60)).await;
    // The same credentials at the same address; the previous server is silent from now on.
    let credentials = world.server.credentials();
    let serve = world.deployment.serve_all();
    let server = Endpoint::bind_on(world.network.socket(1), &credentials, serve, tuning(4)).expect("an endpoint");
    let restarted = Instant::now();
    assert_eq!(up.closed().await, "the peer has lost the connection (was it restarted?)");
    assert!(restarted.elapsed() < secs(4), "at the next heartbeat, not after {:?}", restarted.elapsed());
    let (up, down) = tokio::join!(agent.connect(world.server_address, Expect::server()), accept_link(&server));
    carry(&up.expect("it connects"), &down, 3, ms(1)).await;
}

/// Runs five agents with loss, reordering and a partition for five virtual minutes.
async fn eventful(seed: u64) -> Vec<Sent> {
    let world = World::new(seed);
    world.network.disturb(0.05, ms(1)..=ms(30));
    let mut links = Vec::new();
    for n in 2..7 {
        let agent = world.agent(n);
        let (up, down) = world.link(&agent).await;
        links.push((agent, up, down));
    }
    let (agent, up, down) = &links[0];
    carry(up, down, 100, ms(50)).await;
    let address = agent.local_addr().expect("bound");
    world.network.cut_off(address);
    assert!(!up.closed().await.is_empty());
    world.network.heal(address);
    let (up, down) = world.link(agent).await;
    carry(&up, &down, 100, ms(50)).await;
    sleep(secs(270)).await;
    for (agent, up, _) in &links[1..] {
        assert!(!up.is_closed(), "{:?}", agent.credentials());
    }
    world.network.trace()
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    // Timers that are due together run in an order that depends on the age of the runtime: each run has its own.
    let run = |seed| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.expect("a runtime").block_on(eventful(seed))
    };
    let (first, again) = (run(17), run(17));
    assert!(first.len() > 1000, "{} datagrams", first.len());
    let differs = first.iter().zip(&again).position(|(one, other)| one != other);
    if let Some(nth) = differs {
        panic!("datagram {nth}: {:?} and {:?}", first[nth], again[nth]);
    }
    assert_eq!(first.len(), again.len());
    assert_ne!(run(18), first, "another seed gives another trace");
}
