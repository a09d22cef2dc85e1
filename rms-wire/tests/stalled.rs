//! A peer that stalls in the middle of a frame loses the channel, but not the link.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::raw::Raw;
use common::{Deployment, LOOPBACK, accept_link};
use rms_api::Call;
use rms_model::{Identity, JobId, Role};
use rms_wire::codec::{HEADER_BYTES, Header, encode};
use rms_wire::link::Budget;
use rms_wire::{ClientRequest, Endpoint, Hello, Input, Link, LinkError, Tuning, Watch};
use tokio::sync::Semaphore;

/// Returns a server with short time-outs, its end of a link with a raw peer, and that peer.
async fn linked() -> (Endpoint, Link, quinn::Connection) {
    let deployment = Deployment::new("d1");
    let credentials = deployment.credentials(Role::Server, "server");
    let tuning = Tuning { frame: Duration::from_millis(300), ..Tuning::default() };
    let server = Endpoint::bind_tuned(LOOPBACK, &credentials, deployment.serve_all(), tuning).expect("a free port");
    let user = deployment.credentials(Role::User, "alice");
    let raw = Raw::new();
    let address = server.local_addr().expect("bound");
    let greeting = async {
        let connection = raw.connect(address, b"limber/1", Some(&user)).await.expect("a valid certificate");
        let (mut send, mut receive) = connection.open_bi().await.expect("a stream");
        send.write_all(&encode(&Hello { software: "x".to_owned(), proof: None }).expect("small")).await.expect("sent");
        receive.read_to_end(1000).await.expect("a welcome");
        connection
    };
    let (connection, link) = tokio::join!(greeting, accept_link(&server));
    (server, link, connection)
}

fn long() -> ClientRequest {
    ClientRequest::Call(Call::Set { key: "motd".to_owned(), value: "7".repeat(600_000) })
}

#[tokio::test]
async fn long_half_a_frame_is_waited_for_and_then_its_channel_is_given_up() {
    let (_server, link, connection) = linked().await;
    // Stalls in the header, in a short payload, and in one that is long enough to be counted.
    let short = encode(&ClientRequest::Watch(Watch { jobs: vec![JobId(1)] })).expect("small");
    let long = encode(&long()).expect("it fits");
    for (frame, n_sent) in [(&short, 3), (&short, short.len() - 1), (&long, 20_000)] {
        let (mut send, _receive) = connection.open_bi().await.expect("a stream");
        send.write_all(&frame[..n_sent]).await.expect("sent");
        let mut channel = link.accept().await.expect("the link is up");
        let received = tokio::time::timeout(Duration::from_secs(10), channel.recv::<ClientRequest>()).await;
        let error = received.expect("not for ever").expect_err("half a frame");
        assert!(matches!(error, LinkError::Unfinished { .. }), "{error}");
    }
    // The next frame is complete, and gets the memory that the others had reserved.
    let (mut send, _receive) = connection.open_bi().await.expect("a stream");
    let receiving = async {
        let mut channel = link.accept().await.expect("the link is up");
        channel.recv::<ClientRequest>().await
    };
    let (sent, received) = tokio::join!(send.write_all(&long), receiving);
    sent.expect("it is read");
    assert!(matches!(received, Ok(Some(ClientRequest::Call(_)))), "{:?}", received.err());
}

#[tokio::test]
async fn a_channel_on_which_nothing_begins_is_left_alone() {
    let (_server, link, connection) = linked().await;
    let frame = encode(&ClientRequest::Watch(Watch { jobs: vec![JobId(1)] })).expect("small");
    let (mut send, _receive) = connection.open_bi().await.expect("a stream");
    send.write_all(&frame).await.expect("sent");
    let mut channel = link.accept().await.expect("the link is up");
    channel.recv::<ClientRequest>().await.expect("a frame").expect("a frame");
    let waited = tokio::time::timeout(Duration::from_millis(900), channel.recv::<ClientRequest>()).await;
    assert!(waited.is_err(), "{waited:?}");
    send.write_all(&frame).await.expect("the channel is still there");
    assert!(channel.recv::<ClientRequest>().await.expect("a frame").is_some());
}

#[tokio::test]
async fn long_who_does_not_read_loses_the_channel_but_input_waits_for_ever() {
    let (_server, link, connection) = linked().await;
    let mut unread = link.open().await.expect("the link is up");
    let sending = async {
        loop {
            if let Err(error) = unread.send(&long()).await {
                return error;
            }
        }
    };
    let error = tokio::time::timeout(Duration::from_secs(30), sending).await.expect("not for ever");
    assert!(matches!(error, LinkError::Unread { .. }), "{error}");
    let mut input = link.open().await.expect("the link is up");
    let sending = async {
        loop {
            let bytes = vec![0; 60_000];
            input.send(&Input { bytes, eof: false }).await.expect("a job may read its input tomorrow");
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(2), sending).await.is_err());
    assert!(!link.is_closed());
    drop(connection);
}

/// Two channels share one budget, all of which one long frame takes.
#[tokio::test]
async fn frames_within_a_budget_wait_for_each_other_and_for_no_longer_than_they_may() {
    let (_server, link, connection) = linked().await;
    let frame = encode(&ClientRequest::Watch(Watch { jobs: vec![JobId(1)] })).expect("small");
    let part = Budget::kib_of(frame.len() - HEADER_BYTES, 8 << 20);
    let kib = Arc::new(Semaphore::new(part as usize));
    let budget = |patience| Budget { kib: Arc::clone(&kib), most: u32::MAX, patience };
    let mut channels = Vec::new();
    let mut streams = Vec::new();
    for patience in [None, Some(Duration::from_millis(50)), None] {
        let (mut send, receive) = connection.open_bi().await.expect("a stream");
        send.write_all(&frame).await.expect("sent");
        let (_sender, mut receiver) = link.accept().await.expect("the link is up").split();
        receiver.within(budget(patience));
        channels.push(receiver);
        streams.push((send, receive, _sender));
    }
    let (_, held) = channels[0].recv_held::<ClientRequest>().await.expect("a frame").expect("a frame");
    let refused = channels[1].recv_held::<ClientRequest>().await.expect_err("there is no room");
    assert!(matches!(refused, LinkError::NoRoom), "{refused}");
    let waited = tokio::time::timeout(Duration::from_millis(500), channels[2].recv_held::<ClientRequest>()).await;
    assert!(waited.is_err(), "longer than a frame may take to come, which counts from when there is room: {waited:?}");
    drop(held);
    assert!(channels[2].recv_held::<ClientRequest>().await.expect("a frame").is_some());
    assert!(channels[1].recv_held::<ClientRequest>().await.expect("it was not read").is_some(), "nothing was lost");
}

/// Links of several peers that count for one identity, as those of a user's jobs do, hold no more large frames than
/// one.
#[tokio::test]
async fn long_who_counts_for_another_holds_of_his_share() {
    let deployment = Deployment::new("d1");
    let server = deployment.server();
    let address = server.local_addr().expect("bound");
    let raw = Raw::new();
    let (mut connections, mut links) = (Vec::new(), Vec::new());
    for (name, owner) in [("1.1", "ann"), ("2.1", "ann"), ("3.1", "bob")] {
        let job = deployment.credentials(Role::Job, name);
        let greeting = async {
            let connection = raw.connect(address, b"limber/1", Some(&job)).await.expect("a valid certificate");
            let (mut send, mut receive) = connection.open_bi().await.expect("a stream");
            send.write_all(&encode(&Hello { software: "x".to_owned(), proof: None }).expect("small"))
                .await
                .expect("sent");
            receive.read_to_end(1000).await.expect("a welcome");
            connection
        };
        let (connection, link) = tokio::join!(greeting, accept_link(&server));
        link.count_for(&Identity { role: Role::Job, name: owner.to_owned() });
        connections.push(connection);
        links.push(link);
    }
    // A frame of 8 MiB is announced, more than all jobs of one owner may hold, but does not arrive.
    let (mut send, _receive) = connections[0].open_bi().await.expect("a stream");
    let header = Header { kind: 20, version: 1, length: 8 << 20 };
    send.write_all(&header.to_bytes()).await.expect("sent");
    send.write_all(&[0; 20_000]).await.expect("sent");
    let mut channel = links[0].accept().await.expect("the link is up");
    let begun = tokio::spawn(async move { drop(channel.recv::<ClientRequest>().await) });
    tokio::time::sleep(Duration::from_millis(200)).await;
    for (idx, is_read) in [(1, false), (2, true)] {
        let (mut send, _receive) = connections[idx].open_bi().await.expect("a stream");
        let frame = encode(&long()).expect("it fits");
        let sending = tokio::spawn(async move { send.write_all(&frame).await });
        let mut channel = links[idx].accept().await.expect("the link is up");
        let received = tokio::time::timeout(Duration::from_secs(2), channel.recv::<ClientRequest>()).await;
        assert_eq!(received.is_ok(), is_read, "link {idx}: {received:?}");
        sending.abort();
    }
    begun.abort();
}
