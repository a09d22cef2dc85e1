//! Floods, misers and hoarders: what one peer may take of the server is bounded, so that others get theirs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rms_api::call::Submission;
use rms_model::{Role, Span, Work};
use rms_tests::hostile::{self, Alone, Forger, ask, block_on, last_words, raw, say_hello};
use rms_wire::Kind;
use rms_wire::tls::{ALPN, ALPN_JOIN};
use test_kit::Deployment;

/// Connections that finish TLS and then say nothing, more than the server works on at once, again and again.
#[test]
fn long_silent_connections_do_not_keep_honest_ones_out() {
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
fn long_a_flood_of_joins_is_slowed_down_and_then_over() {
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

/// One byte a second is not a hello.
#[test]
fn long_a_hello_that_trickles_in_is_given_up() {
    let alone = Alone::start();
    block_on(async {
        let user = alone.forger.credentials(Role::User, "slow");
        let connection = raw(alone.address(), ALPN, Some(&user)).await.expect("connected");
        let (mut send, _receive) = connection.open_bi().await.expect("a channel");
        let hello =
            rms_wire::codec::encode(&rms_wire::Hello { software: "x".repeat(100), proof: None }).expect("it fits");
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
                // Later links of one identity are allowed fewer.
                let opened = tokio::time::timeout(Duration::from_millis(100), link.open_bi()).await;
                let Ok(opened) = opened else { break };
                let (mut send, receive) = opened.expect("a channel");
                // Half of a header, and never the rest.
                send.write_all(&Kind::ClientRequest.number().to_le_bytes()).await.expect("sent");
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

/// A certificate can be renewed, but not hoarded: the server remembers each until it expires.
#[test]
fn certificates_are_not_hoarded() {
    use rms_api::{Answer, Call};
    use rms_wire::{CallError, ClientRequest, NewKey};

    let alone = Alone::start();
    block_on(async {
        let link = alone.honest().await;
        let mut n_renewed = 0;
        let refused = loop {
            let key = NewKey::generate().expect("a key");
            match link
                .call(&ClientRequest::Call(Call::Renew {
                    csr: key.csr_der().to_vec(),
                    serial: String::new(),
                    renews: None,
                }))
                .await
            {
                Ok(Answer::Certificate { .. }) => n_renewed += 1,
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

/// Each is well-formed, and cheap to send.
#[test]
fn requests_that_are_cheap_to_send_are_cheap_to_refuse() {
    use rms_api::call::{Query, Select};
    use rms_api::{Answer, Call};
    use rms_wire::{CallError, ClientRequest, Watch};

    let deployment = Deployment::of_nodes(1);
    let forger = Forger::of(deployment.server_dir());
    block_on(async {
        let honest = hostile::link(deployment.address(), &forger.credentials(Role::User, "honest")).await;
        let honest = honest.expect("an honest user gets in");
        let vandal = hostile::link(deployment.address(), &forger.credentials(Role::User, "vandal")).await;
        let vandal = vandal.expect("a certificate is a certificate");

        // Tasks that need no CPU, so none is missing: a fork bomb.
        let one = rms_api::call::Shape { nodes: rms_api::call::Nodes::Count(1), wall: None };
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
            job.execution.work = Work::Script { script, args: Vec::new() };
            job.hold = true;
        });
        let Ok(Answer::Submitted { job }) = vandal.call(&large).await else { panic!("it is a job") };
        let often = ClientRequest::Call(Call::Query(Query::Job(Select::Ids(vec![job; 50_000]))));
        let Ok(Answer::Detail { jobs, .. }) = vandal.call(&often).await else { panic!("it may ask") };
        assert_eq!(jobs.len(), 1);
        let more = ClientRequest::Watch(Watch { jobs: (0..200_000).map(rms_model::JobId).collect() });
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

/// Every kind of silence at once, more than there are places for: newcomers with a certificate get in at once.
#[test]
fn long_silence_of_every_kind_keeps_nobody_out_and_takes_little_memory() {
    let alone = Alone::start();
    let mute = alone.forger.credentials(Role::User, "mute");
    let before = alone.deployment.server_resident_kib();
    // Half-open: these have sent the first packet, and their process is gone.
    let half = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    half.block_on(async {
        let endpoint = quinn::Endpoint::client(([127, 0, 0, 1], 0).into()).expect("a port");
        let begun: Vec<_> =
            (0..300).map(|_| hostile::raw_from(&endpoint, alone.address(), ALPN_JOIN, None).expect("sent")).collect();
        tokio::time::sleep(Duration::from_millis(5)).await;
        std::mem::forget(begun);
    });
    drop(half);
    block_on(async {
        let endpoint = quinn::Endpoint::client(([127, 0, 0, 1], 0).into()).expect("a port");
        let mut silent = Vec::new();
        for idx in 0..800 {
            // Nothing; a certificate and no hello.
            let (alpn, credentials) = if idx % 4 == 0 { (ALPN, Some(&mute)) } else { (ALPN_JOIN, None) };
            let connecting = hostile::raw_from(&endpoint, alone.address(), alpn, credentials).expect("sent");
            silent.push(tokio::spawn(async move {
                if let Ok(connection) = connecting.await {
                    connection.closed().await;
                }
            }));
        }
        let mut worst = Duration::ZERO;
        for _ in 0..10 {
            let start = Instant::now();
            ask(&alone.honest().await).await;
            worst = worst.max(start.elapsed());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // In milliseconds on a machine that is idle; the queue that there was took seconds.
        assert!(worst < Duration::from_secs(2), "a newcomer got in after {worst:?}");
        let grown = alone.deployment.server_resident_kib().saturating_sub(before);
        assert!(grown < 64 << 10, "the server holds {grown} KiB for them");
        silent.into_iter().for_each(|task| task.abort());
    });
}

/// One user, many links, many questions whose answers are long, and nothing is read.
#[test]
fn long_answers_that_nobody_reads_take_little_memory() {
    const N_JOBS: usize = 40;
    let deployment = Deployment::of_nodes(1);
    let forger = Forger::of(deployment.server_dir());
    let alone = Alone { deployment, forger };
    let greedy = alone.forger.credentials(Role::User, "greedy");
    block_on(async {
        let link = hostile::link(alone.address(), &greedy).await.expect("it gets in");
        for _ in 0..N_JOBS {
            let large = submission(|job| {
                let script = "#".repeat(1 << 20) + "\ntrue";
                job.execution.work = Work::Script { script, args: Vec::new() };
                job.hold = true;
            });
            link.call(&large).await.expect("it is a job");
        }
        let before = alone.deployment.server_resident_kib();
        let all = rms_wire::ClientRequest::Call(rms_api::Call::Query(rms_api::Query::Job(rms_api::call::Select::All)));
        let all = rms_wire::codec::encode(&all).expect("it fits");
        let mut unread = Vec::new();
        for _ in 0..8 {
            let connection = raw(alone.address(), ALPN, Some(&greedy)).await.expect("connected");
            say_hello(&connection).await;
            for _ in 0..16 {
                let (mut send, receive) = connection.open_bi().await.expect("a channel");
                send.write_all(&all).await.expect("sent");
                send.finish().expect("not finished yet");
                unread.push((send, receive));
            }
            unread.push(connection.open_bi().await.expect("a channel"));
        }
        // All of them together would be 5 GiB.
        let mut grown = 0;
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            grown = grown.max(alone.deployment.server_resident_kib().saturating_sub(before));
        }
        assert!(grown < 64 << 10, "the server holds {grown} KiB for answers that nobody reads");
        ask(&alone.honest().await).await;
        drop(unread);
    });
}

/// Large frames that begin on every channel of many links, and do not end.
#[test]
fn long_frames_that_do_not_end_take_little_memory() {
    let alone = Alone::start();
    let miser = alone.forger.credentials(Role::User, "miser");
    block_on(async {
        let frame = Arc::new(hostile::frame(Kind::ClientRequest.number(), 1, 8 << 20, &vec![0; 7 << 20]));
        let before = alone.deployment.server_resident_kib();
        let mut begun = Vec::new();
        for _ in 0..16 {
            let connection = raw(alone.address(), ALPN, Some(&miser)).await.expect("connected");
            say_hello(&connection).await;
            for _ in 0..32 {
                let Ok(opened) = tokio::time::timeout(Duration::from_millis(200), connection.open_bi()).await else {
                    break;
                };
                let (mut send, receive) = opened.expect("a channel");
                let frame = Arc::clone(&frame);
                begun.push(tokio::spawn(async move {
                    let _ = send.write_all(&frame).await;
                    std::future::pending::<()>().await;
                    drop((send, receive));
                }));
            }
            begun.push(tokio::spawn(async move { drop(connection.closed().await) }));
        }
        let mut grown = 0;
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            grown = grown.max(alone.deployment.server_resident_kib().saturating_sub(before));
        }
        assert!(grown < 64 << 10, "the server holds {grown} KiB for frames that do not end");
        ask(&alone.honest().await).await;
        begun.into_iter().for_each(|task| task.abort());
    });
}

fn submission(change: impl FnOnce(&mut Submission)) -> rms_wire::ClientRequest {
    let mut submission = test_kit::submission(1, Span::from_mins(1));
    change(&mut submission);
    rms_wire::ClientRequest::Call(rms_api::Call::Submit(Box::new(submission)))
}
