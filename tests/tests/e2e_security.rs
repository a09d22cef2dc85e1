//! Strangers, liars and vandals against a live server: none gets in, and nobody else notices them.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rms_model::Role;
use rms_tests::harness::Deployment;
use rms_tests::hostile::{self, Forger, PATIENCE, ask, block_on, frame, last_words, raw, say_hello};
use rms_wire::tls::{ALPN, ALPN_JOIN};
use rms_wire::{Kind, Link};

/// A server alone, and an honest admin with a link to it.
struct Alone {
    deployment: Deployment,
    forger: Forger,
}

impl Alone {
    fn start() -> Alone {
        let deployment = Deployment::builder().start();
        let forger = Forger::of(deployment.server_dir());
        Alone { deployment, forger }
    }

    fn address(&self) -> SocketAddr {
        self.deployment.address()
    }

    async fn honest(&self) -> Link {
        let credentials = self.forger.credentials(Role::User, "honest");
        hostile::link(self.address(), &credentials).await.expect("an honest user gets in")
    }
}

#[test]
fn a_certificate_of_another_authority_gets_nobody_in() {
    let alone = Alone::start();
    let foreign = Forger::foreign(&alone.deployment.path().join("foreign"));
    block_on(async {
        for role in [Role::Admin, Role::User, Role::Agent] {
            let credentials = foreign.credentials(role, "root");
            let connection = raw(alone.address(), ALPN, Some(&credentials)).await;
            let words = match connection {
                Ok(connection) => last_words(&connection).await,
                Err(error) => error.to_string(),
            };
            assert!(words.contains("BadSignature") || words.contains("UnknownIssuer"), "{words}");
        }
        ask(&alone.honest().await).await;
    });
}

#[test]
fn an_expired_or_a_servers_certificate_gets_nobody_in() {
    let alone = Alone::start();
    block_on(async {
        for credentials in [alone.forger.expired(Role::Admin, "root"), alone.forger.credentials(Role::Server, "server")]
        {
            let who = credentials.identity().to_string();
            let connection = raw(alone.address(), ALPN, Some(&credentials)).await;
            if let Ok(connection) = connection {
                let words = last_words(&connection).await;
                assert!(words.contains("certificate") || words.contains("0x1"), "{who}: {words}");
            }
        }
        ask(&alone.honest().await).await;
    });
}

#[test]
fn without_a_certificate_there_is_only_the_join_protocol_and_it_answers_nothing_else() {
    let alone = Alone::start();
    block_on(async {
        // The ordinary protocol.
        let connection = raw(alone.address(), ALPN, None).await.expect("a TLS client believes itself connected");
        if let Ok((mut send, _receive)) = connection.open_bi().await {
            let _ = send.write_all(&frame(Kind::Hello.number(), 1, 0, b"")).await;
        }
        let words = last_words(&connection).await;
        assert!(words.contains("no certificate"), "{words}");
        // The join protocol does not take calls, nor a hello.
        for kind in [Kind::ClientCall, Kind::Hello, Kind::ToServer] {
            let connection = raw(alone.address(), ALPN_JOIN, None).await.expect("joining needs no certificate");
            let (mut send, mut receive) = connection.open_bi().await.expect("a channel");
            send.write_all(&frame(kind.number(), 1, 1, b"\0")).await.expect("sent");
            let words = last_words(&connection).await;
            assert!(words.contains("JoinRequest"), "{words}");
            assert!(receive.read_to_end(100).await.is_err(), "nothing is answered");
        }
        // No protocol, an unknown one, and another version.
        for alpn in [&b"h3"[..], b"limber/2", b"limber/1\0"] {
            let refused = tokio::time::timeout(PATIENCE, raw_or_nothing(alone.address(), alpn)).await;
            let error = refused.expect("an answer").expect_err("no protocol in common");
            assert!(error.contains("120") || error.contains("application protocol"), "{alpn:?}: {error}");
        }
        ask(&alone.honest().await).await;
    });
}

async fn raw_or_nothing(address: SocketAddr, alpn: &[u8]) -> Result<quinn::Connection, String> {
    raw(address, alpn, None).await.map_err(|error| error.to_string())
}

#[test]
fn one_role_cannot_speak_for_another() {
    let alone = Alone::start();
    block_on(async {
        // A user who speaks as an agent does.
        let user = alone.forger.credentials(Role::User, "a1");
        let connection = raw(alone.address(), ALPN, Some(&user)).await.expect("connected");
        say_hello(&connection).await;
        let (mut send, _receive) = connection.open_bi().await.expect("a channel");
        let hello = rms_wire::to_server::AgentHello {
            cluster: "a".to_owned(),
            address: "127.0.0.1:9".to_owned(),
            inventory: inventory(),
        };
        let hello = rms_wire::codec::encode(&rms_wire::ToServer::Hello(hello)).expect("it fits");
        send.write_all(&hello).await.expect("sent");
        let words = last_words(&connection).await;
        assert!(words.contains("ToServer") && words.contains("ClientCall"), "{words}");

        // An agent who asks as a user does.
        let agent = alone.forger.credentials(Role::Agent, "a1");
        let connection = raw(alone.address(), ALPN, Some(&agent)).await.expect("connected");
        say_hello(&connection).await;
        let (mut send, _receive) = connection.open_bi().await.expect("a channel");
        let call = rms_wire::ClientCall::Query(rms_wire::call::Query::Status);
        send.write_all(&rms_wire::codec::encode(&call).expect("it fits")).await.expect("sent");
        let words = last_words(&connection).await;
        assert!(words.contains("ToServer") && words.contains("ClientCall"), "{words}");
        ask(&alone.honest().await).await;
    });
}

fn inventory() -> rms_wire::vocabulary::Inventory {
    rms_wire::vocabulary::Inventory {
        sockets: 1,
        numa_nodes: 1,
        cores: 4,
        cpus: 4,
        memory_mib: 1024,
        speed_milli: 1000,
        features: Vec::new(),
    }
}

/// Each of these is sent by a proven user on a fresh link; the server closes that link with these words in the
/// reason, and goes on serving the others.
#[test]
fn frames_that_are_no_messages_cost_their_sender_the_link() {
    let alone = Alone::start();
    let call = Kind::ClientCall.number();
    let bulk = 8 << 20;
    let cases: [(&str, Vec<u8>, &str); 9] = [
        ("unknown kind", frame(9999, 1, 1, b"x"), "unknown kind 9999"),
        ("wrong kind", frame(Kind::Input.number(), 1, 1, b"x"), "ClientCall was expected"),
        ("wrong version", frame(call, 7, 1, b"x"), "version 7"),
        ("oversized", frame(call, 1, bulk + 1, b"x"), "at most 8388608"),
        ("absurd", frame(call, 1, u32::MAX, b"x"), "at most 8388608"),
        ("truncated", frame(call, 1, 100, b"short"), "in the middle of a frame"),
        ("half a header", frame(call, 1, 0, b"")[..5].to_vec(), "in the middle of a frame"),
        ("trailing", frame(call, 1, 3, &[6, 0, 0]), "belong to nothing"),
        // A vector that says it has 2^60 entries.
        ("a bomb", frame(call, 1, 12, &[1, 0, 253, 0, 0, 0, 0, 0, 0, 0, 16, 0]), "cannot be decoded"),
    ];
    block_on(async {
        let honest = alone.honest().await;
        let user = alone.forger.credentials(Role::User, "vandal");
        for (what, bytes, expected) in cases {
            let connection = raw(alone.address(), ALPN, Some(&user)).await.expect("connected");
            say_hello(&connection).await;
            let (mut send, _receive) = connection.open_bi().await.expect("a channel");
            send.write_all(&bytes).await.expect("sent");
            let _ = send.finish();
            let words = last_words(&connection).await;
            assert!(words.contains(expected), "{what}: {words}");
            ask(&honest).await;
        }
    });
    let log = alone.deployment.log_text("server");
    assert!(log.contains("breaks the rules"), "the reason is logged:\n{log}");
}

#[test]
fn garbage_datagrams_are_dropped_while_a_job_runs_and_others_are_served() {
    let deployment = Deployment::of_nodes(1);
    let forger = Forger::of(deployment.server_dir());
    let nodes = deployment.rms(&["nodes", "--json"]).ok().json();
    let agent: SocketAddr = nodes["nodes"][0]["address"].as_str().expect("a text").parse().expect("an address");
    let job = deployment.command(&["run", "sh", "-c", "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.2; done"]);
    block_on(async {
        let honest = hostile::link(deployment.address(), &forger.credentials(Role::User, "honest")).await;
        let honest = honest.expect("an honest user gets in");
        let mut job = job;
        let job = job.stdout(Stdio::piped()).spawn().expect("it starts");
        let vandals = [deployment.address(), agent].map(|victim| std::thread::spawn(move || throw_garbage(victim)));
        let mut worst = Duration::ZERO;
        while vandals.iter().any(|vandal| !vandal.is_finished()) {
            worst = worst.max(ask(&honest).await);
        }
        assert!(worst < Duration::from_secs(5), "an honest call took {worst:?}");
        let output = job.wait_with_output().expect("it ends");
        assert!(output.status.success());
        assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n2\n3\n4\n5\n6\n7\n8\n");
    });
}

fn throw_garbage(victim: SocketAddr) {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let mut rng: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut datagram = [0_u8; 1500];
    for round in 0..10_000_u32 {
        for byte in &mut datagram {
            rng ^= rng << 13;
            rng ^= rng >> 7;
            rng ^= rng << 17;
            *byte = rng as u8;
        }
        // Some look like the beginning of a QUIC connection.
        if round % 3 == 0 {
            datagram[..6].copy_from_slice(&[0xC3, 0, 0, 0, 1, 20]);
        }
        let length = (rng >> 20) as usize % 1500;
        // A full socket buffer drops it, which is as good.
        let _ = socket.send_to(&datagram[..length], victim);
    }
}

/// Agents listen too: for the agents of nodes that share a job with theirs, and for nobody else.
#[test]
fn an_agents_port_serves_only_agents_and_only_within_their_jobs() {
    use rms_wire::{Endpoint, Expect, LinkError, PeerExec, PeerOpen};

    let deployment = Deployment::of_nodes(1);
    let forger = Forger::of(deployment.server_dir());
    let job = deployment.submit(&["--wrap", "sleep 1000"]);
    deployment.wait_for_state(job, "started");
    let nodes = deployment.rms(&["nodes", "--json"]).ok().json();
    let address: SocketAddr = nodes["nodes"][0]["address"].as_str().expect("a text").parse().expect("an address");
    block_on(async {
        for role in [Role::User, Role::Admin] {
            let person = Endpoint::dial(&forger.credentials(role, "root")).expect("a port");
            let refused = person.connect(address, Expect::agent("a1")).await;
            assert!(matches!(&refused, Err(LinkError::Denied { .. })), "{role:?}: {refused:?}");
        }
        let stranger = Endpoint::dial(&forger.credentials(Role::Agent, "a9")).expect("a port");
        let link = stranger.connect(address, Expect::agent("a1")).await.expect("it is an agent");
        let mut channel = link.open().await.expect("a channel");
        let marker = deployment.path().join("intruder");
        let argv = vec![format!("touch {}", marker.display())];
        let exec = rms_wire::peer::Exec { job, run: 1, argv, environment: Vec::new(), cwd: "/".to_owned() };
        channel.send(&PeerOpen::Exec(exec)).await.expect("sent");
        let answer = channel.recv::<PeerExec>().await.expect("an answer").expect("an answer");
        assert!(matches!(&answer, PeerExec::Failed { reason } if reason.contains("a9")), "{answer:?}");
        assert!(!marker.exists());
        // Without a certificate there is nothing at all, and no tokens are redeemed here.
        for alpn in [ALPN, ALPN_JOIN] {
            let refused = match raw(address, alpn, None).await {
                Ok(connection) => last_words(&connection).await,
                Err(error) => error.to_string(),
            };
            assert!(refused.contains("ertificate") || refused.contains("rotocol"), "{refused}");
        }
    });
    deployment.rms(&["cancel", &job.to_string()]).ok();
    deployment.wait_for_end(job);
}

/// Connections that finish TLS and then say nothing, more than the server works on at once, again and again.
#[test]
fn silent_connections_do_not_keep_honest_ones_out() {
    let alone = Alone::start();
    block_on(async {
        let honest = alone.honest().await;
        let endpoint = quinn::Endpoint::client(([127, 0, 0, 1], 0).into()).expect("a port");
        let mut silent = Vec::new();
        for _ in 0..600 {
            let connecting = hostile::raw_from(&endpoint, alone.address(), ALPN_JOIN, None).expect("sent");
            silent.push(tokio::spawn(async move {
                if let Ok(connection) = connecting.await {
                    connection.closed().await;
                }
            }));
        }
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert!(ask(&honest).await < Duration::from_secs(2), "a link that is up does not feel them");
        let start = Instant::now();
        ask(&alone.honest().await).await;
        assert!(start.elapsed() < Duration::from_secs(5), "a newcomer got in after {:?}", start.elapsed());
        silent.into_iter().for_each(|task| task.abort());
    });
}

/// Guesses at tokens, many at once: they are slowed down, and nobody with a certificate feels it.
#[test]
fn a_flood_of_joins_is_slowed_down_and_then_over() {
    let alone = Alone::start();
    let created = alone.deployment.rms(&["token", "create", "--role", "user", "--name", "ada", "--json"]).ok().json();
    let good: rms_wire::TokenText = created["token"].as_str().expect("a text").parse().expect("a token");
    block_on(async {
        let honest = alone.honest().await;
        let address = alone.address();
        let mut guesses = Vec::new();
        for _ in 0..200 {
            let guess = rms_wire::TokenText::draw(good.fingerprint(), good.address()).expect("a token");
            guesses.push(tokio::spawn(async move { rms_wire::join(address, &guess, None).await }));
        }
        let mut worst = Duration::ZERO;
        let mut n_busy = 0;
        for guess in guesses {
            worst = worst.max(ask(&honest).await);
            let refused = guess.await.expect("it ends").expect_err("a guess").to_string();
            n_busy += usize::from(refused.contains("too many peers are joining"));
        }
        assert!(n_busy > 50, "only {n_busy} of 200 guesses were told to wait");
        assert!(worst < Duration::from_secs(3), "an honest call took {worst:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
        rms_wire::join(address, &good, None).await.expect("the right token still holds");
    });
}

/// A certificate can be renewed, but not hoarded: the server remembers each until it expires.
#[test]
fn certificates_are_not_hoarded() {
    use rms_wire::{CallError, ClientCall, NewKey, Reply};

    let alone = Alone::start();
    block_on(async {
        let link = alone.honest().await;
        let mut n_renewed = 0;
        let refused = loop {
            let key = NewKey::generate().expect("a key");
            match link.call(&ClientCall::Renew { csr: key.csr_der().to_vec() }).await {
                Ok(Reply::Certificate { .. }) => n_renewed += 1,
                Err(CallError::Refused(refused)) if refused.kind == "busy" => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Err(CallError::Refused(refused)) => break refused,
                other => panic!("neither yes nor no: {other:?}"),
            }
            assert!(n_renewed < 200, "nothing bounds them");
        };
        assert!(n_renewed >= 8, "a few machines of one person are no hoard: {n_renewed}");
        assert_eq!(refused.kind, "too_many_certificates", "{refused:?}");
        assert!(refused.message.contains("revoke-certificate"), "{refused:?}");
    });
}

/// One byte a second is not a hello.
#[test]
fn a_hello_that_trickles_in_is_given_up() {
    let alone = Alone::start();
    block_on(async {
        let user = alone.forger.credentials(Role::User, "slow");
        let connection = raw(alone.address(), ALPN, Some(&user)).await.expect("connected");
        let (mut send, _receive) = connection.open_bi().await.expect("a channel");
        let hello = rms_wire::codec::encode(&rms_wire::Hello { software: "x".repeat(100) }).expect("it fits");
        let start = Instant::now();
        for byte in hello {
            if send.write_all(&[byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        let words = last_words(&connection).await;
        assert!(start.elapsed() < Duration::from_secs(14), "given up after {:?}: {words}", start.elapsed());
        ask(&alone.honest().await).await;
    });
}

/// Calls that are opened and never asked, as many as the link allows, harm only their own link.
#[test]
fn calls_that_never_say_what_they_want_block_nobody_else() {
    let alone = Alone::start();
    block_on(async {
        let honest = alone.honest().await;
        let user = alone.forger.credentials(Role::User, "mute");
        let mut links = Vec::new();
        for _ in 0..4 {
            let link = raw(alone.address(), ALPN, Some(&user)).await.expect("connected");
            say_hello(&link).await;
            let mut calls = Vec::new();
            for _ in 0..255 {
                let (mut send, receive) = link.open_bi().await.expect("a channel");
                // Half of a header, and never the rest.
                send.write_all(&Kind::ClientCall.number().to_le_bytes()).await.expect("sent");
                calls.push((send, receive));
            }
            links.push((link, calls));
        }
        for _ in 0..50 {
            assert!(ask(&honest).await < Duration::from_secs(2));
        }
        ask(&alone.honest().await).await;
        drop(links);
    });
}

#[test]
fn a_user_can_have_only_so_many_links() {
    let deployment = Deployment::builder().config("[limits]\nlinks_per_user = 5").start();
    let forger = Forger::of(deployment.server_dir());
    block_on(async {
        let greedy = forger.credentials(Role::User, "greedy");
        let mut links = Vec::new();
        for _ in 0..5 {
            links.push(hostile::link(deployment.address(), &greedy).await.expect("within the limit"));
        }
        // It may be welcomed first.
        let refused = match hostile::link(deployment.address(), &greedy).await {
            Ok(sixth) => sixth.closed().await,
            Err(error) => error.to_string(),
        };
        assert!(refused.contains("links_per_user"), "{refused}");
        let other = forger.credentials(Role::User, "other");
        ask(&hostile::link(deployment.address(), &other).await.expect("others get in")).await;
        links.pop().expect("five").close("enough");
        tokio::time::sleep(Duration::from_millis(200)).await;
        ask(&hostile::link(deployment.address(), &greedy).await.expect("a place is free again")).await;
    });
}

/// The server gives no tickets, so there is nothing to send early data with.
#[test]
fn early_data_is_never_accepted() {
    let alone = Alone::start();
    block_on(async {
        let user = alone.forger.credentials(Role::User, "replay");
        let mut tls = hostile::careless(Some(&user));
        tls.alpn_protocols = vec![ALPN.to_vec()];
        let tls = quinn::crypto::rustls::QuicClientConfig::try_from(tls).expect("TLS 1.3");
        let config = quinn::ClientConfig::new(std::sync::Arc::new(tls));
        let endpoint = quinn::Endpoint::client(([127, 0, 0, 1], 0).into()).expect("a port");
        for round in 0..3 {
            let connecting = endpoint.connect_with(config.clone(), alone.address(), "limber").expect("an address");
            let connection = match connecting.into_0rtt() {
                Ok(_) => panic!("round {round}: the client could send early data"),
                Err(connecting) => connecting.await.expect("connected"),
            };
            say_hello(&connection).await;
            // Tickets would come after the handshake.
            tokio::time::sleep(Duration::from_millis(100)).await;
            connection.close(0_u32.into(), b"");
        }
    });
}

/// Each is well-formed, and cheap to send.
#[test]
fn requests_that_are_cheap_to_send_are_cheap_to_refuse() {
    use rms_wire::call::{Query, Select};
    use rms_wire::{CallError, ClientCall, Reply};

    let deployment = Deployment::of_nodes(1);
    let forger = Forger::of(deployment.server_dir());
    block_on(async {
        let honest = hostile::link(deployment.address(), &forger.credentials(Role::User, "honest")).await;
        let honest = honest.expect("an honest user gets in");
        let vandal = hostile::link(deployment.address(), &forger.credentials(Role::User, "vandal")).await;
        let vandal = vandal.expect("a certificate is a certificate");

        // Tasks that need no CPU, so none is missing: a fork bomb.
        let one = rms_wire::call::Shape { nodes: rms_wire::call::Nodes::Count(1), wall: None };
        let bomb = submission(|job| {
            (job.cpus_per_task, job.n_tasks) = (0, Some(1_000_000));
            job.shapes = vec![one.clone()];
        });
        let refused = vandal.call(&bomb).await;
        assert!(matches!(&refused, Err(CallError::Refused(r)) if r.message.contains("4096 tasks")), "{refused:?}");

        // Thousands of times the same cluster, for each of many sizes.
        let start = Instant::now();
        let many = submission(|job| {
            job.clusters = vec!["a".to_owned(); 100_000];
            job.shapes = vec![one.clone(); 200];
        });
        let refused = vandal.call(&many).await;
        assert!(matches!(&refused, Err(CallError::Refused(_))), "{refused:?}");
        // The same large job, told as often as it is asked for.
        let large = submission(|job| {
            let script = "#".repeat(2 << 20) + "\ntrue";
            job.work = rms_wire::vocabulary::Work::Script { script, args: Vec::new() };
            job.hold = true;
        });
        let Ok(Reply::Submitted { job }) = vandal.call(&large).await else { panic!("it is a job") };
        let often = ClientCall::Query(Query::Job(Select::Ids(vec![job.0; 50_000])));
        let Ok(Reply::Detail { now: _, jobs }) = vandal.call(&often).await else { panic!("it may ask") };
        assert_eq!(jobs.len(), 1);
        let more = ClientCall::Watch { jobs: (0..200_000).collect() };
        let refused = vandal.call(&more).await;
        assert!(refused.is_err(), "{refused:?}");
        assert!(start.elapsed() < Duration::from_secs(10), "all that took {:?}", start.elapsed());
        ask(&honest).await;
    });
    let status = std::fs::read_to_string(format!("/proc/{}/status", deployment.server_pid())).expect("it lives");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    let peak_kib: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(peak_kib < 400 << 10, "the server took {peak_kib} KiB");
}

fn submission(change: impl FnOnce(&mut rms_wire::call::Submission)) -> rms_wire::ClientCall {
    let mut submission = rms_wire::call::Submission {
        name: "x".to_owned(),
        work: rms_wire::vocabulary::Work::Tasks { argv: vec!["true".to_owned()] },
        n_tasks: None,
        cpus_per_task: 1,
        cwd: "/tmp".to_owned(),
        environment: Vec::new(),
        umask: 0o022,
        stdio: rms_wire::vocabulary::Stdio { input: None, output: None, error: None, append: false, stream: false },
        limits: rms_wire::vocabulary::Limits {
            open_files: None,
            core_bytes: None,
            stack_bytes: None,
            locked_bytes: None,
            processes: None,
            address_space_bytes: None,
        },
        shapes: Vec::new(),
        clusters: Vec::new(),
        constraint: rms_wire::vocabulary::Constraint { features: Vec::new(), memory_mib: 0, cpus: 0 },
        priority: 0,
        hold: false,
        requeue: false,
        begin: None,
        comment: String::new(),
        test_only: false,
    };
    change(&mut submission);
    rms_wire::ClientCall::Submit(Box::new(submission))
}
