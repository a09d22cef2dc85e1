//! A peer that does not go on, in the middle of a frame: its channel is given up, and the link goes on.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::raw::Raw;
use common::{Deployment, LOOPBACK, accept_link};
use rms_model::Role;
use rms_wire::codec::{HEADER_BYTES, encode};
use rms_wire::link::Budget;
use rms_wire::{ClientCall, Endpoint, Hello, Input, Link, LinkError, Tuning};
use tokio::sync::Semaphore;

/// A server of little patience, its end of a link with a raw peer, and that peer.
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
        send.write_all(&encode(&Hello { software: "x".to_owned() }).expect("small")).await.expect("sent");
        receive.read_to_end(1000).await.expect("a welcome");
        connection
    };
    let (connection, link) = tokio::join!(greeting, accept_link(&server));
    (server, link, connection)
}

fn long() -> ClientCall {
    ClientCall::Watch { jobs: (1 << 40..(1 << 40) + 100_000).collect() }
}

#[tokio::test]
async fn half_a_frame_is_waited_for_and_then_its_channel_is_given_up() {
    let (_server, link, connection) = linked().await;
    // In the header, in a short payload, and in one that is long enough to be counted.
    let short = encode(&ClientCall::Watch { jobs: vec![1] }).expect("small");
    let long = encode(&long()).expect("it fits");
    for (frame, n_sent) in [(&short, 3), (&short, short.len() - 1), (&long, 50_000)] {
        let (mut send, _receive) = connection.open_bi().await.expect("a stream");
        send.write_all(&frame[..n_sent]).await.expect("sent");
        let mut channel = link.accept().await.expect("the link is up");
        let received = tokio::time::timeout(Duration::from_secs(10), channel.recv::<ClientCall>()).await;
        let error = received.expect("not for ever").expect_err("half a frame");
        assert!(matches!(error, LinkError::Unfinished { .. }), "{error}");
    }
    // The next one is whole, and what the others had of the memory is there for it.
    let (mut send, _receive) = connection.open_bi().await.expect("a stream");
    let receiving = async {
        let mut channel = link.accept().await.expect("the link is up");
        channel.recv::<ClientCall>().await
    };
    let (sent, received) = tokio::join!(send.write_all(&long), receiving);
    sent.expect("it is read");
    assert!(matches!(received, Ok(Some(ClientCall::Watch { .. }))), "{received:?}");
}

#[tokio::test]
async fn a_channel_on_which_nothing_begins_is_left_alone() {
    let (_server, link, connection) = linked().await;
    let frame = encode(&ClientCall::Watch { jobs: vec![1] }).expect("small");
    let (mut send, _receive) = connection.open_bi().await.expect("a stream");
    send.write_all(&frame).await.expect("sent");
    let mut channel = link.accept().await.expect("the link is up");
    channel.recv::<ClientCall>().await.expect("a frame").expect("a frame");
    let waited = tokio::time::timeout(Duration::from_millis(900), channel.recv::<ClientCall>()).await;
    assert!(waited.is_err(), "{waited:?}");
    send.write_all(&frame).await.expect("the channel is still there");
    assert!(channel.recv::<ClientCall>().await.expect("a frame").is_some());
}

#[tokio::test]
async fn who_does_not_read_loses_the_channel_but_input_waits_for_ever() {
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

/// Two channels with one budget, which one long frame takes as a whole.
#[tokio::test]
async fn frames_within_a_budget_wait_for_each_other_and_for_no_longer_than_they_may() {
    let (_server, link, connection) = linked().await;
    let frame = encode(&ClientCall::Watch { jobs: vec![1] }).expect("small");
    let part = Budget::kib_of(frame.len() - HEADER_BYTES, 8 << 20);
    let kib = Arc::new(Semaphore::new(part as usize));
    let budget = |patience| Budget { kib: Arc::clone(&kib), patience };
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
    let (_, held) = channels[0].recv_held::<ClientCall>().await.expect("a frame").expect("a frame");
    let refused = channels[1].recv_held::<ClientCall>().await.expect_err("there is no room");
    assert!(matches!(refused, LinkError::NoRoom), "{refused}");
    let waited = tokio::time::timeout(Duration::from_millis(500), channels[2].recv_held::<ClientCall>()).await;
    assert!(waited.is_err(), "longer than a frame may take to come, which counts from when there is room: {waited:?}");
    drop(held);
    assert!(channels[2].recv_held::<ClientCall>().await.expect("a frame").is_some());
    assert!(channels[1].recv_held::<ClientCall>().await.expect("it was not read").is_some(), "nothing was lost");
}
