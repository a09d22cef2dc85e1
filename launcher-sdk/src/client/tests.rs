//! Which errors a client has where no server is, and how long it looks for one.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rms_api::negotiate::Keeps;
use rms_model::error::chain;
use rms_model::{Role, Run, Span};
use rms_wire::codec::EncodeError;
use rms_wire::tls::draw_serial;
use rms_wire::{Accepted, AnswerPart, Authority, Kind, NewKey, Revoked, Serve};
use tempfile::TempDir;
use tokio::net::UdpSocket;

use super::*;
use crate::negotiator::{self, JobEnvironment, Negotiator};

/// Returns a certificate for an hour.
pub(super) fn signed(authority: &Authority, role: Role, name: &str) -> Credentials {
    let (key, identity) = (NewKey::generate().expect("a key"), Identity::new(role, name).expect("a name"));
    let (from, until) = (now() - Span::from_mins(1), now() + Span::from_hours(1));
    let chain = authority.sign(key.csr_der(), &identity, &draw_serial(), from, until).expect("a certificate");
    key.into_credentials(&chain, authority.ca_pem()).expect("credentials")
}

pub(super) fn now() -> Time {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    Time::from_millis(now.as_millis() as i64)
}

/// Returns a client directory, and the CA of its deployment.
fn ann() -> (TempDir, Authority) {
    let dir = tempfile::tempdir().expect("a directory");
    let authority = Authority::create(&dir.path().join("ca"), "d", now()).expect("an authority");
    signed(&authority, Role::User, "ann").save(dir.path()).expect("a client directory");
    (dir, authority)
}

async fn socket() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let address = socket.local_addr().expect("it is bound");
    (socket, address)
}

#[tokio::test]
async fn long_a_port_on_which_nothing_listens_is_told_from_one_that_is_silent() {
    let (dir, _authority) = ann();
    let (free, silent) = (socket().await, socket().await);
    drop(free.0);
    let connect = async |address: SocketAddr| {
        let error = Client::connect_as(dir.path(), &address.to_string()).await.expect_err("no server is there");
        chain(&error)
    };
    let (free, silent) = tokio::join!(connect(free.1), connect(silent.1));
    assert!(free.contains("nothing listens on this UDP port"), "{free}");
    assert!(silent.contains("no answer within"), "{silent}");
}

#[tokio::test]
async fn a_process_of_a_job_waits_for_a_silent_server_as_long_as_it_says() {
    let (dir, authority) = ann();
    signed(&authority, Role::Job, "1").save(dir.path()).expect("the credentials of a job");
    let (_silent, address) = socket().await;
    let environment = JobEnvironment {
        credentials: dir.path().to_owned(),
        server: address.to_string(),
        job: JobId(1),
        run: Run(1),
        patience: Duration::from_millis(500),
        keeps: Keeps::default(),
        survives_loss: false,
    };
    let begun = Instant::now();
    let error = Negotiator::connect_with(environment).await.expect_err("no server is there");
    assert!(matches!(error, negotiator::ConnectError::Unreachable { .. }), "{error:?}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn what_cannot_be_sent_is_refused_and_not_taken_for_a_broken_link() {
    let error = EncodeError::TooLong { kind: Kind::LauncherSays, length: 9_000_000, max: 8 << 20 };
    let error = CallError::from(LinkError::Encode(error));
    assert!(matches!(&error, CallError::Refused(refused) if refused.kind == "too_large"), "{error:?}");
    assert!(matches!(CallError::from(LinkError::ChannelReset), CallError::Interrupted(_)));
}

#[tokio::test]
async fn a_server_that_begins_to_listen_soon_is_found() {
    let (dir, authority) = ann();
    let (free, address) = socket().await;
    drop(free);
    let begun = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let serve = Serve::Peers { roles: vec![Role::User], join: false, revoked: Revoked::new() };
        let server = Endpoint::bind(address, &signed(&authority, Role::Server, "server"), serve).expect("it is free");
        server.accept().await.expect("it serves");
        server
    };
    let address = address.to_string();
    let (client, _server) = tokio::join!(Client::connect_as(dir.path(), &address), begun);
    client.expect("it was found in time");
}

/// Returns a client of a server that gives each call the same answer, once it is known to be this one.
async fn answered(call: Call, answer: Answer) -> (Client, TempDir) {
    let (dir, authority) = ann();
    let serve = Serve::Peers { roles: vec![Role::User], join: false, revoked: Revoked::new() };
    let identity = signed(&authority, Role::Server, "server");
    let server = Endpoint::bind((Ipv4Addr::LOCALHOST, 0).into(), &identity, serve).expect("a port");
    let address = server.local_addr().expect("it is bound").to_string();
    tokio::spawn(async move {
        let Some(Accepted::Link(link)) = server.accept().await else { panic!("no link") };
        while let Ok(mut channel) = link.accept().await {
            let asked = channel.recv::<ClientRequest>().await.expect("a call");
            assert_eq!(asked, Some(ClientRequest::Call(call.clone())));
            channel.send(&AnswerPart::whole(Ok(answer.clone()))).await.expect("the client listens");
            channel.finish();
        }
    });
    (Client::connect_as(dir.path(), &address).await.expect("it serves"), dir)
}

#[tokio::test]
async fn a_server_that_closes_every_link_is_not_flooded_with_new_ones() {
    let (dir, authority) = ann();
    let serve = Serve::Peers { roles: vec![Role::User], join: false, revoked: Revoked::new() };
    let identity = signed(&authority, Role::Server, "server");
    let server = Endpoint::bind((Ipv4Addr::LOCALHOST, 0).into(), &identity, serve).expect("a port");
    let address = server.local_addr().expect("it is bound").to_string();
    let n_links = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&n_links);
    tokio::spawn(async move {
        while let Some(Accepted::Link(link)) = server.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            // Nobody waits for it: the client dials another one.
            drop(link.accept().await);
            link.close("it does not like calls");
        }
    });
    let client = Client::connect_as(dir.path(), &address).await.expect("it serves");
    let asked = tokio::time::timeout(Duration::from_secs(1), client.queue()).await;
    assert!(asked.is_err(), "it tries on: {asked:?}");
    let mut watched = client.watch(vec![JobId(1)]);
    let told = tokio::time::timeout(Duration::from_secs(1), watched.next()).await;
    assert!(told.is_err(), "it tries on: {told:?}");
    let n_links = n_links.load(Ordering::SeqCst);
    assert!(n_links < 40, "{n_links} links");
}

#[tokio::test]
async fn a_client_with_the_certificate_of_a_node_is_told_so() {
    let (dir, authority) = ann();
    signed(&authority, Role::Agent, "a1").save(dir.path()).expect("the credentials of an agent");
    let error = Client::connect_as(dir.path(), "127.0.0.1:1").await.expect_err("it is no client");
    assert!(chain(&error).contains("is that of agent/a1: a client needs one of a user"), "{}", chain(&error));
}

#[tokio::test]
async fn refusals_of_single_jobs_are_returned() {
    let jobs = Select::Ids(vec![JobId(1), JobId(2)]);
    let refused = vec![(JobId(2), Refused { kind: "wrong_state".to_owned(), message: "it has ended".to_owned() })];
    let answer = Answer::Jobs { done: vec![JobId(1)], refused: refused.clone() };
    let (client, _dir) = answered(Call::Cancel { select: jobs.clone() }, answer).await;
    assert_eq!(client.cancel(jobs).await.expect("an answer"), JobsDone { done: vec![JobId(1)], refused });
}

#[tokio::test]
async fn an_order_about_all_is_not_answered_job_by_job() {
    let call = Call::Resume { nodes: vec!["n1".to_owned()] };
    let (client, _dir) = answered(call.clone(), Answer::Done).await;
    client.resume(vec!["n1".to_owned()]).await.expect("it is done");
    let (client, _dir) = answered(call, Answer::Jobs { done: Vec::new(), refused: Vec::new() }).await;
    let answer = client.resume(vec!["n1".to_owned()]).await;
    assert!(matches!(answer, Err(CallError::Unexpected)), "{answer:?}");
}
