//! Links between honest peers over loopback: handshakes, calls, streams, ends.

mod common;

use std::time::Duration;

use common::{Deployment, accept_link};
use rms_api::{Answer, Call, Query, Refusal, Refused};
use rms_model::Role;
use rms_wire::parts::answer_parts;
use rms_wire::{AnswerPart, CallError, ClientRequest, Endpoint, Expect, Input, LinkError, Outbox};

#[tokio::test]
async fn an_agent_is_welcomed_and_both_ends_know_each_other() {
    let deployment = Deployment::new("d1");
    let server = deployment.server();
    let agent = deployment.dialler(Role::Agent, "n1");
    let address = server.local_addr().expect("bound");
    let (up, down) = tokio::join!(agent.connect(address, Expect::server()), accept_link(&server));
    let up = up.expect("the server is there");
    assert_eq!(up.identity().to_string(), "server/server");
    assert_eq!(down.identity().to_string(), "agent/n1");
    assert_eq!(down.serial(), agent.credentials().serial());
    down.close("removed by alice");
    assert_eq!(up.closed().await, "removed by alice");
    assert_eq!(down.closed().await, "removed by alice");
    assert!(matches!(up.open().await, Err(LinkError::Closed { reason }) if reason == "removed by alice"));
}

#[tokio::test]
async fn a_call_is_answered_in_parts_or_refused() {
    let deployment = Deployment::new("d1");
    let server = deployment.server();
    let user = deployment.dialler(Role::User, "alice");
    let address = server.local_addr().expect("bound");
    tokio::spawn(async move {
        let link = accept_link(&server).await;
        while let Ok(mut channel) = link.accept().await {
            let request = channel.recv::<ClientRequest>().await.expect("a call").expect("a call");
            let answer = match request {
                ClientRequest::Call(Call::Query(Query::Settings)) => {
                    Ok(Answer::Settings((0..1000).map(|n| (n.to_string(), String::new())).collect()))
                }
                request => {
                    assert!(matches!(request, ClientRequest::Call(Call::Query(Query::Status))), "{request:?}");
                    Err(Refused::from(&Refusal::NoJobs))
                }
            };
            let parts: Vec<AnswerPart> = match answer {
                Ok(answer) => answer_parts(&answer).collect(),
                Err(refused) => vec![AnswerPart::whole(Err(refused))],
            };
            for part in parts {
                channel.send(&part).await.expect("the user reads");
            }
        }
    });
    let link = user.connect(address, Expect::server()).await.expect("the server is there");
    let settings = link.call(&ClientRequest::Call(Call::Query(Query::Settings))).await;
    let Ok(Answer::Settings(settings)) = settings else { panic!("{settings:?}") };
    assert_eq!(settings.len(), 1000);
    assert!(settings.iter().enumerate().all(|(n, (key, _))| *key == n.to_string()), "in order");
    let refused = link.call(&ClientRequest::Call(Call::Query(Query::Status))).await;
    let Err(CallError::Refused(refused)) = refused else { panic!("{refused:?}") };
    assert_eq!((refused.kind.as_str(), refused.message.as_str()), ("no_jobs", "you have no job in the system"));
}

#[tokio::test]
async fn receiving_can_be_cancelled_in_the_middle_of_a_frame() {
    let deployment = Deployment::new("d1");
    let server = deployment.server();
    let user = deployment.dialler(Role::User, "alice");
    let address = server.local_addr().expect("bound");
    let (up, down) = tokio::join!(user.connect(address, Expect::server()), accept_link(&server));
    let up = up.expect("the server is there");
    let sent = ClientRequest::Call(Call::Set { key: "motd".to_owned(), value: "7".repeat(900_000) });
    let mut outgoing = up.open().await.expect("open");
    let expected = sent.clone();
    let sending = tokio::spawn(async move {
        for _ in 0..3 {
            outgoing.send(&sent).await.expect("the server reads");
        }
        outgoing.finish();
        outgoing
    });
    let (_sender, mut receiver) = down.accept().await.expect("opened").split();
    let mut n_received = 0;
    let mut n_cancelled = 0;
    loop {
        tokio::select! {
            biased;
            call = receiver.recv::<ClientRequest>() => match call.expect("whole frames") {
                Some(call) => {
                    assert_eq!(call, expected);
                    n_received += 1;
                }
                None => break,
            },
            () = tokio::task::yield_now() => n_cancelled += 1,
        }
    }
    assert_eq!(n_received, 3);
    assert!(n_cancelled > 0, "nothing was cancelled, so nothing was tested");
    drop(sending.await.expect("sent"));
}

#[tokio::test]
async fn a_dropped_endpoint_frees_its_port() {
    let deployment = Deployment::new("d1");
    let credentials = deployment.credentials(Role::Server, "server");
    let server = deployment.server();
    let address = server.local_addr().expect("bound");
    let bind = || Endpoint::bind(address, &credentials, deployment.serve_all());
    assert!(bind().is_err(), "the port is taken");
    drop(server);
    let freed = async {
        while bind().is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), freed).await.expect("the port is free again");
}

#[tokio::test]
async fn a_peer_that_does_not_read_loses_its_link() {
    let deployment = Deployment::new("d1");
    let server = deployment.server();
    let user = deployment.dialler(Role::User, "alice");
    let address = server.local_addr().expect("bound");
    let (up, down) = tokio::join!(user.connect(address, Expect::server()), accept_link(&server));
    let up = up.expect("the server is there");
    let (sender, _receiver) = down.open().await.expect("open").split();
    let outbox = Outbox::new(sender, 8);
    let input = Input { bytes: vec![0; 60_000], eof: false };
    let full = loop {
        if let Err(error) = outbox.push(&input) {
            break error;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    assert!(full.to_string().contains("does not read"), "{full}");
    assert!(up.closed().await.contains("8 frames were waiting"));
}

#[tokio::test]
async fn long_stalled_channels_do_not_block_the_others() {
    let deployment = Deployment::new("d1");
    let server = deployment.server();
    let user = deployment.dialler(Role::User, "alice");
    let address = server.local_addr().expect("bound");
    let (up, down) = tokio::join!(user.connect(address, Expect::server()), accept_link(&server));
    let up = up.expect("the server is there");
    let mut stalled = Vec::new();
    for _ in 0..100 {
        let mut channel = up.open().await.expect("open");
        stalled.push(tokio::spawn(async move {
            // More than a channel's window: this waits forever, since nobody reads.
            channel.send(&ClientRequest::Call(Call::Set { key: "motd".to_owned(), value: "7".repeat(900_000) })).await
        }));
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut live = up.open().await.expect("open");
    live.send(&Input { bytes: vec![1], eof: true }).await.expect("it goes out");
    let mut channels = Vec::new();
    for _ in 0..=100 {
        channels.push(down.accept().await.expect("opened"));
    }
    let mut last = channels.pop().expect("101 channels");
    let input = tokio::time::timeout(Duration::from_secs(5), last.recv::<Input>()).await.expect("it arrives");
    assert_eq!(input.expect("a frame").expect("a frame").bytes, [1]);
}
