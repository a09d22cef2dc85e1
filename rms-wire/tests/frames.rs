//! Checks that a peer with a valid certificate can achieve nothing with arbitrary bytes but the loss of its link.

mod common;

use common::raw::Raw;
use common::{Deployment, accept_link};
use quinn::Connection;
use rms_model::{JobId, Role, Run};
use rms_wire::codec::{EncodeError, Header, decode_frame, encode};
use rms_wire::{ClientRequest, FollowOrder, Hello, HelloAnswer, Input, Kind, Link, LinkError, Offset, Stream};

/// A receiver closes the link of a sender whose frame it cannot decode, and with it all other channels.
#[test]
fn what_its_receiver_would_not_decode_is_not_sent() {
    let order = |n_offsets: u32| FollowOrder {
        job: JobId(1),
        run: Run(1),
        from: (0..n_offsets).map(|task| Offset { node_idx: 0, task, stream: Stream::Out, offset: 1 << 40 }).collect(),
        is_over: false,
        submitted: None,
        input_from: None,
    };
    let (mut n_sent, mut n_refused) = (0, 0);
    for n_offsets in [0, 1000, 20_000, 65_536, 70_000, 75_000, 80_000, 100_000, 300_000] {
        match encode(&order(n_offsets)) {
            Ok(frame) => {
                decode_frame::<FollowOrder>(&frame).expect("it was sent");
                n_sent += 1;
                assert!(n_offsets < 100_000, "{n_offsets} offsets");
            }
            Err(EncodeError::TooMany { .. }) => {
                n_refused += 1;
                assert!(n_offsets > 65_536, "the streams of a job are followed, all {n_offsets}");
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(n_sent > 0 && n_refused > 0);
}

/// Returns a peer that was welcomed and may now send any bytes, and the server's link to it.
async fn welcomed(deployment: &Deployment) -> (Raw, Connection, Link) {
    let server = deployment.server();
    let raw = Raw::new();
    let address = server.local_addr().expect("bound");
    let credentials = deployment.credentials(Role::User, "mallory");
    let connection = raw.connect(address, b"limber/1", Some(&credentials)).await.expect("a valid certificate");
    let (mut send, mut receive) = connection.open_bi().await.expect("a stream");
    let hello = encode(&Hello { software: "evil 1.0".to_owned(), proof: None }).expect("small");
    send.write_all(&hello).await.expect("sent");
    let link = accept_link(&server).await;
    let welcome = receive.read_to_end(1000).await.expect("an answer");
    let welcome = rms_wire::codec::decode_frame::<HelloAnswer>(&welcome).expect("an answer");
    assert!(matches!(welcome, HelloAnswer::Welcome { .. }));
    (raw, connection, link)
}

/// Sends bytes as the first ones of a channel; returns the server's error and the reason that the peer gets.
async fn send(bytes: &[u8]) -> (LinkError, String) {
    let deployment = Deployment::new("d1");
    let (_raw, connection, link) = welcomed(&deployment).await;
    let (mut send, _receive) = connection.open_bi().await.expect("a stream");
    send.write_all(bytes).await.expect("sent");
    send.finish().expect("not finished before");
    let mut channel = link.accept().await.expect("a channel");
    let error = loop {
        match channel.recv::<ClientRequest>().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the bytes were taken for calls"),
            Err(error) => break error,
        }
    };
    assert!(link.is_closed(), "a violation ends the link");
    (error, connection.closed().await.to_string())
}

fn header(kind: u16, version: u16, length: u32) -> Vec<u8> {
    Header { kind, version, length }.to_bytes().to_vec()
}

fn watch() -> Vec<u8> {
    encode(&ClientRequest::Watch(rms_wire::Watch { jobs: [1, 2, 3].map(rms_model::JobId).to_vec() })).expect("small")
}

#[tokio::test]
async fn oversized_frames_are_refused_by_their_header_alone() {
    let (error, told) = send(&header(Kind::ClientRequest.number(), 1, 8 * 1024 * 1024 + 1)).await;
    assert_eq!(error.to_string(), "the peer sent ClientRequest of 8388609 bytes, but at most 8388608 are taken");
    assert!(told.contains("8388609 bytes"), "{told}");
    let (error, _) = send(&header(Kind::ClientRequest.number(), 1, u32::MAX)).await;
    assert!(error.to_string().contains("4294967295 bytes"), "{error}");
}

#[tokio::test]
async fn unknown_kinds_and_versions_are_refused() {
    let (error, _) = send(&header(999, 1, 0)).await;
    assert_eq!(error.to_string(), "the peer sent a frame of unknown kind 999");
    let (error, _) = send(&encode(&Input { bytes: Vec::new(), eof: true }).expect("small")).await;
    assert_eq!(error.to_string(), "the peer sent a frame of kind Input where ClientRequest was expected");
    let (error, _) = send(&header(Kind::ClientRequest.number(), 2, 3)).await;
    assert_eq!(error.to_string(), "the peer sent ClientRequest in version 2, but this program speaks version 1");
}

#[tokio::test]
async fn frames_that_are_cut_short_are_refused() {
    let whole = watch();
    for n_bytes in 1..whole.len() {
        let (error, _) = send(&whole[..n_bytes]).await;
        assert!(matches!(error, LinkError::CutShort), "{n_bytes} bytes: {error}");
    }
}

#[tokio::test]
async fn bytes_after_a_message_are_refused() {
    let mut frame = watch();
    frame.push(0);
    frame[4] += 1;
    let (error, told) = send(&frame).await;
    assert_eq!(error.to_string(), "the peer sent ClientRequest followed by 1 bytes that belong to nothing");
    assert!(told.contains("belong to nothing"), "{told}");
}

#[tokio::test]
async fn a_short_frame_cannot_ask_for_much_memory() {
    // Watch, with a list that claims to hold 2^32 - 1 ids.
    let payload = *b"\x81\xa5Watch\x81\xa4jobs\xdd\xff\xff\xff\xff\x01";
    let mut frame = header(Kind::ClientRequest.number(), 1, payload.len() as u32);
    frame.extend(payload);
    let (error, told) = send(&frame).await;
    assert!(matches!(error, LinkError::Decode(_)), "{error}");
    assert!(told.contains("that cannot be decoded"), "{told}");
}
