//! Strangers, liars and vandals against a live server: none gets in, and nobody else notices them.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::Duration;

use rms_model::Role;
use rms_tests::hostile::{self, Alone, Forger, PATIENCE, ask, block_on, frame, last_words, raw, raw_here, say_hello};
use rms_wire::Kind;
use rms_wire::hello::HelloAnswer;
use rms_wire::tls::{ALPN, ALPN_JOIN};
use test_kit::Deployment;
use test_kit::Dice;

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
        for kind in [Kind::ClientRequest, Kind::Hello, Kind::ToServer] {
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
        let hello = rms_api::desired::AgentHello {
            cluster: "a".to_owned(),
            address: "127.0.0.1:9".to_owned(),
            inventory: rms_model::Inventory::default(),
            trouble: None,
        };
        let hello = rms_wire::codec::encode(&rms_wire::ToServer::Hello(hello)).expect("it fits");
        send.write_all(&hello).await.expect("sent");
        let words = last_words(&connection).await;
        assert!(words.contains("ToServer") && words.contains("ClientRequest"), "{words}");

        // An agent who asks as a user does.
        let agent = alone.forger.credentials(Role::Agent, "a1");
        let connection = raw(alone.address(), ALPN, Some(&agent)).await.expect("connected");
        say_hello(&connection).await;
        let (mut send, _receive) = connection.open_bi().await.expect("a channel");
        let call = rms_wire::ClientRequest::Call(rms_api::Call::Query(rms_api::Query::Status));
        send.write_all(&rms_wire::codec::encode(&call).expect("it fits")).await.expect("sent");
        let words = last_words(&connection).await;
        assert!(words.contains("ToServer") && words.contains("ClientRequest"), "{words}");
        ask(&alone.honest().await).await;
    });
}

/// Each of these is sent by a proven user on a fresh link; the server closes that link with these words in the
/// reason, and goes on serving the others.
fn frames_that_are_no_messages() -> [(&'static str, Vec<u8>, &'static str); 9] {
    let call = Kind::ClientRequest.number();
    let bulk = 8 << 20;
    [
        ("unknown kind", frame(9999, 1, 1, b"x"), "unknown kind 9999"),
        ("wrong kind", frame(Kind::Input.number(), 1, 1, b"x"), "ClientRequest was expected"),
        ("wrong version", frame(call, 7, 1, b"x"), "version 7"),
        ("oversized", frame(call, 1, bulk + 1, b"x"), "at most 8388608"),
        ("absurd", frame(call, 1, u32::MAX, b"x"), "at most 8388608"),
        ("truncated", frame(call, 1, 100, b"short"), CUT),
        ("half a header", frame(call, 1, 0, b"")[..5].to_vec(), CUT),
        ("trailing", frame(call, 1, 8, b"\xa6Server\0"), "belong to nothing"),
        // A list that says it has 2^32 - 1 entries.
        ("a bomb", frame(call, 1, 18, b"\x81\xa5Watch\x81\xa4jobs\xdd\xff\xff\xff\xff\0"), "cannot be decoded"),
    ]
}

const CUT: &str = "in the middle of a frame";

#[test]
fn frames_that_are_no_messages_cost_their_sender_the_link() {
    let alone = Alone::start();
    block_on(async {
        let honest = alone.honest().await;
        let user = alone.forger.credentials(Role::User, "vandal");
        for (what, bytes, expected) in frames_that_are_no_messages() {
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
    assert!(log.contains("protocol violation"), "the reason is logged:\n{log}");
}

/// A frame that has begun may take 20 s, and a second more for each 128 KiB.
#[test]
fn long_a_large_call_may_take_longer_than_its_beginning() {
    let alone = Alone::start();
    let script = format!("#!/bin/sh\n{}", "# nothing\n".repeat(240_000));
    let work = rms_model::Work::Script { script, args: Vec::new() };
    let shape = rms_api::call::Shape { nodes: rms_api::call::Nodes::Count(1), wall: None };
    let submission = rms_api::call::Submission::of(work, vec![shape]);
    let call = rms_wire::ClientRequest::Call(rms_api::Call::Submit(Box::new(submission)));
    let frame = rms_wire::codec::encode(&call).expect("it fits");
    block_on(async {
        let user = alone.forger.credentials(Role::User, "patient");
        let connection = raw(alone.address(), ALPN, Some(&user)).await.expect("connected");
        say_hello(&connection).await;
        let (mut send, mut receive) = connection.open_bi().await.expect("a channel");
        let begun = std::time::Instant::now();
        for piece in frame.chunks(frame.len().div_ceil(330)) {
            send.write_all(piece).await.expect("the server reads it");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(begun.elapsed() > Duration::from_secs(31), "that was quick");
        let _ = send.finish();
        let answer = receive.read_to_end(1 << 20).await.expect("an answer");
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.contains("no_nodes"), "it was read: {answer}");
    });
}

#[test]
fn over_the_local_socket_they_cost_the_same_and_half_a_frame_its_channel() {
    let alone = Alone::start();
    let socket = alone.deployment.server_dir().join("socket");
    let uid = nix::unistd::geteuid().as_raw();
    let user = alone.forger.credentials(Role::User, "vandal");
    let status = rms_wire::ClientRequest::Call(rms_api::Call::Query(rms_api::Query::Status));
    let status = rms_wire::codec::encode(&status).expect("it fits");
    for (what, bytes, expected) in frames_that_are_no_messages() {
        let (mut connection, answer) = raw_here(&socket, &user, uid);
        assert!(matches!(answer, HelloAnswer::Welcome { .. }), "{answer:?}");
        let mut channel = connection.open();
        channel.write_all(&bytes).expect("sent");
        channel.shutdown(Shutdown::Write).expect("it is open");
        if expected == CUT {
            channel.read_to_end(&mut Vec::new()).expect("the server ends it");
            let mut another = connection.open();
            another.write_all(&status).expect("sent");
            another.read_exact(&mut [0; 8]).expect("an answer");
        } else {
            let words = connection.last_words();
            assert!(words.contains(expected), "{what}: {words}");
        }
    }
    // Where channels are asked for, there is but one word.
    let (mut connection, _welcome) = raw_here(&socket, &user, uid);
    connection.say(b"\xff and more");
    assert_eq!(connection.last_words(), "");
    // Who wants more than there are waits, and holds nothing but a number.
    let (mut connection, _welcome) = raw_here(&socket, &user, uid);
    connection.say(&[1; 4096]);
    block_on(async { ask(&alone.honest().await).await });
    // A signature is good for processes of the user who made it alone.
    let (_, answer) = raw_here(&socket, &user, uid + 1);
    assert!(matches!(&answer, HelloAnswer::Denied { reason } if reason.contains("signature")), "{answer:?}");
}

#[test]
fn long_garbage_datagrams_are_dropped_while_a_job_runs_and_others_are_served() {
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
    let mut dice = Dice::new(1);
    let mut datagram = [0_u8; 1500];
    for round in 0..10_000_u32 {
        dice.fill(&mut datagram);
        // Some look like the beginning of a QUIC connection.
        if round % 3 == 0 {
            datagram[..6].copy_from_slice(&[0xC3, 0, 0, 0, 1, 20]);
        }
        let length = dice.below(1500) as usize;
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
        let command = format!("touch {}", marker.display());
        let exec =
            rms_wire::peer::Exec { job: rms_model::JobId(job), run: rms_model::Run(1), command, inherited: None };
        channel.send(&PeerOpen::Exec(exec)).await.expect("sent");
        // Without a certificate there is nothing at all, and no tokens are redeemed here.
        for alpn in [ALPN, ALPN_JOIN] {
            let refused = match raw(address, alpn, None).await {
                Ok(connection) => last_words(&connection).await,
                Err(error) => error.to_string(),
            };
            assert!(refused.contains("ertificate") || refused.contains("rotocol"), "{refused}");
        }
        // It might be a node of which word has not come yet, so it is kept waiting, but not beyond the job's end.
        deployment.rms(&["cancel", &job.to_string()]).ok();
        let answer = tokio::time::timeout(PATIENCE, channel.recv::<PeerExec>()).await.expect("an answer in time");
        let answer = answer.expect("an answer").expect("an answer");
        assert!(matches!(answer, PeerExec::Failed { .. }), "{answer:?}");
        assert!(!marker.exists(), "a command of a stranger has run");
    });
    deployment.wait_for_end(job);
}

/// An agent's socket is open to everybody on the node, for `rms-rsh`. Who is no process of a job gets a word, not a place.
#[test]
fn strangers_on_a_node_cannot_hold_its_agents_files() {
    let deployment = Deployment::of_nodes(1);
    let files = || std::fs::read_dir(format!("/proc/{}/fd", deployment.agent_pid("a1"))).expect("it runs").count();
    let before = files();
    // The path itself may be longer than the address of a socket can be.
    let dir = File::open(deployment.agent_dir("a1")).expect("it is there");
    let socket = format!("/proc/self/fd/{}/agent.sock", dir.as_raw_fd());
    let mut silent: Vec<UnixStream> =
        (0..200).map(|_| UnixStream::connect(&socket).expect("anybody may call")).collect();
    for stream in &mut silent {
        stream.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("the agent answers and closes");
        assert!(String::from_utf8_lossy(&answer).contains("are served here"), "{answer:?}");
    }
    // Each was closed before its end was read, so nothing has to be waited for.
    assert!(files() < before + 50, "the agent keeps {} files, of {before} before", files());
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
