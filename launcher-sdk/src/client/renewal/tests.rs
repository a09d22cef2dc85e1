//! Tests of clients that stay connected while the CA changes.

use std::net::Ipv4Addr;
use std::sync::Arc;

use rms_api::answer::{JobChange, JobState};
use rms_model::error::chain;
use rms_model::{Identity, JobId, Outcome, Run, Span};
use rms_wire::tls::{Rotation, draw_serial};
use rms_wire::{Accepted, AnswerPart, Authority, Channel, ClientRequest, Followed, Revoked, Serve};
use tempfile::TempDir;

use super::*;
use crate::client::tests::{now, signed};

const JOB: JobId = JobId(7);

/// A server's endpoint with its CA, and a client directory.
struct Scene {
    dir: TempDir,
    authority: Authority,
    server: Endpoint,
}

impl Scene {
    fn new() -> Scene {
        let dir = tempfile::tempdir().expect("a directory");
        let authority = Authority::create(&dir.path().join("ca"), "d", now()).expect("an authority");
        let serve = Serve::Peers { roles: vec![Role::User], join: false, revoked: Revoked::new() };
        let server = signed(&authority, Role::Server, "server");
        let server = Endpoint::bind((Ipv4Addr::LOCALHOST, 0).into(), &server, serve).expect("a port");
        Scene { dir, authority, server }
    }

    /// Connects another client of ann. Returns it with the server's end of its link.
    async fn connect(&self) -> (Client, Link) {
        self.save();
        let address = self.server.local_addr().expect("it is bound").to_string();
        let (client, accepted) = tokio::join!(Client::connect_as(self.dir.path(), &address), self.server.accept());
        let Some(Accepted::Link(link)) = accepted else { panic!("no link: {accepted:?}") };
        (client.expect("it serves"), link)
    }

    /// Saves a new certificate for ann, as another process does.
    fn save(&self) {
        signed(&self.authority, Role::User, "ann").save(self.dir.path()).expect("a client directory");
    }

    /// Takes steps in the change to another CA, and restarts the server.
    fn change(&mut self, steps: &[Rotation], link: &Link) {
        let dir = self.dir.path().join("ca");
        steps.iter().for_each(|step| Authority::rotate(&dir, *step, now()).expect("the next step"));
        self.authority = Authority::load(&dir).expect("the authority");
        self.server.rotate(&signed(&self.authority, Role::Server, "server")).expect("TLS");
        link.close("the server is restarted");
    }

    /// Serves everything from now on: watched jobs have ended, and certificates are renewed.
    fn serve(self) -> TempDir {
        let authority = Arc::new(self.authority);
        tokio::spawn(async move {
            while let Some(Accepted::Link(link)) = self.server.accept().await {
                let authority = Arc::clone(&authority);
                tokio::spawn(async move {
                    while let Ok(channel) = link.accept().await {
                        tokio::spawn(answer(channel, Arc::clone(&authority)));
                    }
                });
            }
        });
        self.dir
    }
}

async fn answer(mut channel: Channel, authority: Arc<Authority>) {
    match channel.recv::<ClientRequest>().await {
        Ok(Some(ClientRequest::Watch(_))) => {
            let (nodes, outcome) = (Vec::new(), Some(Outcome::Completed));
            let change =
                JobChange { job: JOB, run: Run(1), state: JobState::Finished, nodes, outcome, submitted: None };
            for told in [Followed::Change(change), Followed::End] {
                channel.send(&told).await.expect("the client listens");
            }
        }
        Ok(Some(ClientRequest::Call(Call::Renew { csr, .. }))) => {
            let ann = Identity::new(Role::User, "ann").expect("a name");
            let until = now() + Span::from_hours(1);
            let chain = authority.sign(&csr, &ann, &draw_serial(), now(), until).expect("a certificate");
            let answer = Answer::Certificate { chain, ca: authority.ca_pem().to_owned() };
            channel.send(&AnswerPart::whole(Ok(answer))).await.expect("the client listens");
        }
        other => panic!("{other:?}"),
    }
    channel.finish();
}

async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(8), work).await.expect("soon")
}

const ALL: [Rotation; 3] = [Rotation::Begun, Rotation::Switched, Rotation::None];

#[tokio::test]
async fn who_waits_goes_on_with_the_certificate_that_another_command_has_got() {
    let mut scene = Scene::new();
    let (client, link) = scene.connect().await;
    let mut watch = client.watch(vec![JOB]);
    scene.change(&ALL, &link);
    scene.save();
    let _dir = scene.serve();
    let told = soon(watch.next()).await.expect("it goes on").expect("a change");
    assert_eq!(told.state, JobState::Finished);
}

#[tokio::test]
async fn whom_a_change_of_the_ca_has_left_behind_is_told_so_at_once() {
    let mut scene = Scene::new();
    let (client, link) = scene.connect().await;
    let mut watch = client.watch(vec![JOB]);
    scene.change(&ALL, &link);
    let _dir = scene.serve();
    let error = soon(watch.next()).await.expect_err("it trusts the old CA alone");
    assert!(chain(&error).contains("if its CA was changed, join again"), "{}", chain(&error));
}

#[tokio::test]
async fn who_waits_follows_a_change_of_the_ca_by_itself() {
    let mut scene = Scene::new();
    let (client, link) = scene.connect().await;
    let before = client.credentials();
    let mut watch = client.watch(vec![JOB]);
    scene.change(&[Rotation::Begun], &link);
    let dir = scene.serve();
    soon(watch.next()).await.expect("it goes on");
    let renewed = async {
        while client.credentials().serial() == before.serial() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon(renewed).await;
    let saved = Credentials::load(dir.path()).expect("credentials");
    assert_eq!(saved.authorities().len(), 2);
    assert_eq!(saved.serial(), client.credentials().serial());
}
