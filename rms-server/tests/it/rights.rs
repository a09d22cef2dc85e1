//! Tests of rights and their duration: tokens, roles, owners, revocation, quotas.

use std::time::Duration;

use rms_api::Answer;
use rms_api::Call;
use rms_api::call::{CertificateSelect, Query, Select, TokenOrder};
use rms_api::desired::JobStatus;
use rms_model::token::TokenIdentity;
use rms_model::{Identity, JobId, Role, Run, Span, Time};
use rms_wire::tls::{Authority, Credentials, Rotation};
use rms_wire::{CallError, ClientRequest, Endpoint, Expect, Followed, Joiner, join, join_in};

use crate::deployment::{Client, FakeAgent, Server, command, report, tell};
use crate::node::Node;

fn refused(result: Result<Answer, CallError>) -> String {
    match result {
        Err(CallError::Refused(refused)) => refused.kind,
        other => panic!("not refused: {other:?}"),
    }
}

fn ids(job: JobId) -> Select {
    Select::Ids(vec![job])
}

#[test]
fn a_token_is_redeemed_once() {
    tell(async {
        let server = Server::start();
        let admin = server.admin().await;
        let ann = Identity { role: Role::User, name: "ann".to_owned() };
        let token = admin.token(TokenIdentity::Named(ann.clone()), None, server.address).await;
        let joined = join(server.address, &token, None).await.expect("a new token");
        assert_eq!(joined.credentials.identity(), &ann);
        let again = join(server.address, &token, None).await.expect_err("a used token");
        assert!(again.to_string().contains("the token is not valid"), "{again}");
    });
}

/// A first join has no older certificate to fall back on, so a lost answer must not use up its token.
#[test]
fn a_join_whose_answer_was_lost_is_repeated_with_the_same_key_and_no_other() {
    tell(async {
        let mut server = Server::start();
        let agent = TokenIdentity::Named(Identity { role: Role::Agent, name: "n1".to_owned() });
        let token = server.admin().await.token(agent, Some("a"), server.address).await;
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
        let lost = join_in(&ours, server.address, &token, Joiner::default()).await.expect("a new token");
        server.kill();
        server.restart();
        let error = join_in(&theirs, server.address, &token, Joiner::default()).await.expect_err("another key");
        assert!(error.to_string().contains("the token is not valid"), "{error}");
        let again = join_in(&ours, server.address, &token, Joiner::default()).await.expect("the same key");
        assert_eq!(again.credentials.serial(), lost.credentials.serial());
        assert_eq!(again.credentials.chain_pem(), lost.credentials.chain_pem(), "it is the same certificate");
        assert_eq!(again.cluster.as_deref(), Some("a"));
        FakeAgent::connect(&again.credentials, server.address, Vec::new()).await.desired(|_| true).await;
    });
}

#[test]
fn secrets_signals_and_cancels_belong_to_the_owner_and_to_admins() {
    tell(async {
        let server = Server::start();
        let credentials = server.agent_credentials("n1").await;
        let _agent = FakeAgent::connect(&credentials, server.address, Vec::new()).await;
        let (ann, bob, admin) = (server.user("ann").await, server.user("bob").await, server.admin().await);
        let job = ann.submit("ann's").await;
        let show = Call::Query(Query::Job(ids(job)));
        let environment = async |client: &Client| match client.call(&show).await.expect("a job") {
            Answer::Detail { jobs, .. } => jobs[0].spec.execution.environment.0.clone(),
            other => panic!("{other:?}"),
        };
        assert!(!environment(&ann).await.is_empty());
        assert!(!environment(&admin).await.is_empty());
        assert!(environment(&bob).await.is_empty(), "bob reads ann's secrets");

        for call in [Call::Cancel { select: ids(job) }, Call::Signal { select: ids(job), signal: 9 }] {
            match bob.call(&call).await.expect("an answer") {
                Answer::Jobs { done, refused } => {
                    assert!(done.is_empty(), "{call:?}");
                    assert_eq!(refused[0].1.kind, "not_your_job");
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(refused(bob.call(&Call::Query(Query::Tokens)).await), "not_allowed");
        let set = Call::Set { key: "fair_start".to_owned(), value: "1h".to_owned() };
        assert_eq!(refused(bob.call(&set).await), "not_allowed");
        assert_eq!(admin.call(&set).await.expect("an admin may"), Answer::Done);
    });
}

#[test]
fn a_revoked_certificate_loses_its_link_at_once_and_for_ever() {
    tell(async {
        let mut server = Server::start();
        let ann = Identity { role: Role::User, name: "ann".to_owned() };
        let admin = server.admin().await;
        let token = admin.token(TokenIdentity::Named(ann.clone()), None, server.address).await;
        let credentials = join(server.address, &token, None).await.expect("a new token").credentials;
        let client = Client::connect(&credentials, server.address).await;
        client.speak().await;

        let revoke = Call::RevokeCertificate { which: CertificateSelect::Identity(ann), jobs: None };
        assert_eq!(admin.call(&revoke).await.expect("an admin may"), Answer::Done);
        assert_eq!(client.link.closed().await, "the certificate is revoked");
        expect_unwelcome(&credentials, &server).await;
        // A restart does not forget it either.
        server.kill();
        server.restart();
        expect_unwelcome(&credentials, &server).await;
    });
}

#[test]
fn agents_are_told_what_is_revoked_at_once_and_when_they_come() {
    tell(async {
        let mut server = Server::start();
        let admin = server.admin().await;
        let stays = server.agent_credentials("n1").await;
        let goes = server.agent_credentials("n2").await;
        let mut there = FakeAgent::connect(&stays, server.address, Vec::new()).await;

        let n2 = Identity { role: Role::Agent, name: "n2".to_owned() };
        let revoke = Call::RevokeCertificate { which: CertificateSelect::Identity(n2), jobs: None };
        assert_eq!(admin.call(&revoke).await.expect("an admin may"), Answer::Done);
        assert_eq!(there.revoked().await, [goes.serial()]);

        let late = server.agent_credentials("n3").await;
        let mut late = FakeAgent::appear(&late, server.address, Vec::new()).await;
        assert_eq!(late.revoked().await, [goes.serial()]);
        server.kill();
        server.restart();
        let mut again = FakeAgent::appear(&stays, server.address, Vec::new()).await;
        assert_eq!(again.revoked().await, [goes.serial()]);
    });
}

async fn expect_unwelcome(credentials: &Credentials, server: &Server) {
    let endpoint = Endpoint::dial(credentials).expect("a socket");
    assert!(endpoint.connect(server.address, Expect::server()).await.is_err());
}

#[test]
fn one_agent_has_one_link_and_the_newest_counts() {
    tell(async {
        let server = Server::start();
        let credentials = server.agent_credentials("n1").await;
        let mut older = FakeAgent::connect(&credentials, server.address, Vec::new()).await;
        older.desired(|_| true).await;
        let mut newer = FakeAgent::connect(&credentials, server.address, Vec::new()).await;
        assert_eq!(older.link.closed().await, "the agent has connected anew");
        newer.desired(|_| true).await;
        let ann = server.user("ann").await;
        let job = ann.submit("after").await;
        let desired = newer.desired(|desired| !desired.jobs.is_empty()).await;
        let running = JobStatus::running(Time::from_secs(1));
        newer.report(vec![report(job, desired.jobs[0].run, running)]).await;
        match ann.call(&Call::Query(Query::Nodes(Default::default()))).await.expect("nodes") {
            Answer::Nodes { nodes, .. } => assert_eq!(nodes[0].state.word(), "busy"),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn an_agent_that_is_refused_takes_its_older_link_with_it() {
    tell(async {
        let server = Server::start();
        let credentials = server.agent_credentials("n1").await;
        let older = FakeAgent::connect(&credentials, server.address, Vec::new()).await;
        let moved = FakeAgent::appear_in("elsewhere", &credentials, server.address, Vec::new()).await;
        older.link.closed().await;
        let reason = moved.link.closed().await;
        assert!(reason.contains("belongs to cluster a"), "{reason}");
        let ann = server.user("ann").await;
        match ann.call(&Call::Query(Query::Nodes(Default::default()))).await.expect("nodes") {
            Answer::Nodes { nodes, .. } => assert_eq!(nodes[0].state.word(), "away"),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_user_has_only_so_many_links() {
    tell(async {
        let mut server = Server::start();
        server.kill();
        let config = server.path().join("rms-server.toml");
        std::fs::write(&config, "[limits]\nlinks_per_user = 2\n").expect("a file");
        server.restart();
        let (first, _second) = (server.admin().await, server.admin().await);
        let reason = match server.try_admin().await {
            Ok(third) => third.link.closed().await,
            Err(error) => error.to_string(),
        };
        assert!(reason.contains("has 2 connections already"), "{reason}");
        // A place that was released can be taken.
        first.link.close("done");
        drop(first);
        loop {
            // The place is free once the server has noticed the end of the link.
            let Ok(next) = server.try_admin().await else { continue };
            if next.call(&Call::Query(Query::Status)).await.is_ok() {
                break;
            }
        }
    });
}

#[test]
fn certificates_are_renewed_over_the_link_that_they_made() {
    tell(async {
        let server = Server::start();
        let ann = server.user("ann").await;
        let key = rms_wire::tls::NewKey::generate().expect("a key");
        let call = Call::Renew { csr: key.csr_der().to_vec(), serial: String::new(), renews: None };
        let Answer::Certificate { chain, ca } = ann.call(&call).await.expect("a renewal") else {
            panic!("no certificate")
        };
        let renewed = key.into_credentials(&chain, &ca).expect("credentials");
        assert_eq!(renewed.identity().to_string(), "user/ann");
        Client::connect(&renewed, server.address).await.speak().await;
    });
}

#[test]
fn an_admin_is_certified_while_the_server_is_stopped_and_everything_else_stays() {
    tell(async {
        let mut server = Server::start();
        let ada = Identity { role: Role::User, name: "ada".to_owned() };
        let token = server.admin().await.token(TokenIdentity::Named(ada), None, server.address).await;
        let certify = |dir: &std::path::Path| command(&["admin", "bob", "--dir"]).arg(dir).output().expect("a process");
        let too_early = certify(&server.path());
        assert!(!too_early.status.success(), "the server runs");
        let first = Credentials::load(&server.path().join("admin")).expect("the admin");
        // As if it had expired. The last one cannot be revoked.
        let revoke =
            Call::RevokeCertificate { which: CertificateSelect::Serial(first.serial().to_owned()), jobs: None };
        assert_eq!(refused(server.admin().await.call(&revoke).await), "last_admin");
        let eve = Identity { role: Role::Admin, name: "eve".to_owned() };
        let token_of_eve = server.admin().await.token(TokenIdentity::Named(eve), None, server.address).await;
        join(server.address, &token_of_eve, None).await.expect("a new token");
        server.admin().await.call(&revoke).await.ok();
        server.kill();
        std::fs::remove_dir_all(server.path().join("admin")).expect("it is there");

        let certified = certify(&server.path());
        assert!(certified.status.success(), "{}", String::from_utf8_lossy(&certified.stderr));
        server.restart();
        let bob = server.admin().await;
        assert!(matches!(bob.call(&Call::RevokeToken { id: token.id().to_owned() }).await, Ok(Answer::Done)));
        assert!(Client::try_connect(&first, server.address).await.is_err(), "what was revoked stays so");
        let issued = Credentials::load(&server.path().join("admin")).expect("the admin");
        assert_eq!(issued.identity().to_string(), "admin/bob");
        // Otherwise nobody could revoke it by name.
        let listed = bob.call(&Call::Query(Query::Certificates)).await.expect("an admin may");
        assert!(format!("{listed:?}").contains(issued.serial()), "{listed:?}");
        server.kill();
        server.restart();
        server.admin().await;
    });
}

#[test]
fn no_token_is_made_between_a_switch_to_another_ca_and_the_restart() {
    tell(async {
        let server = Server::start();
        let admin = server.admin().await;
        let ann = || TokenIdentity::Named(Identity { role: Role::User, name: "ann".to_owned() });
        let order = |id: &str, ca: Option<String>| {
            let ttl = Span::from_hours(1);
            Call::CreateToken(TokenOrder {
                id: id.to_owned(),
                digest: [0; 32],
                identity: ann(),
                cluster: None,
                ttl,
                ca,
            })
        };
        let authority = server.path().join("ca");
        let own = Authority::load(&authority).expect("the authority").fingerprint();
        Authority::rotate(&authority, Rotation::Begun, Time::from_secs(1_700_000_000)).expect("the first step");
        admin.call(&order("t1", Some(own.clone()))).await.expect("it signs until the switch");
        assert_eq!(refused(admin.call(&order("t2", Some("other".to_owned()))).await), "ca_changed");
        Authority::rotate(&authority, Rotation::Switched, Time::from_secs(1_700_000_000)).expect("the second step");
        for ca in [Some(own), None] {
            assert_eq!(refused(admin.call(&order("t3", ca)).await), "ca_switched");
        }
    });
}

#[test]
fn a_request_that_cannot_be_signed_leaves_nothing_behind() {
    tell(async {
        let server = Server::start();
        let (ann, admin) = (server.user("ann").await, server.admin().await);
        let n_certificates = async || match admin.call(&Call::Query(Query::Certificates)).await {
            Ok(Answer::Certificates(certificates)) => certificates.len(),
            other => panic!("{other:?}"),
        };
        let before = n_certificates().await;
        let renew = Call::Renew { csr: vec![1, 2, 3], serial: String::new(), renews: None };
        assert_eq!(refused(ann.call(&renew).await), "malformed");
        assert_eq!(n_certificates().await, before);
    });
}

/// Starts a new job; returns it with a certificate of its processes.
async fn started(user: &Client, nodes: &[Node]) -> (JobId, Credentials) {
    let job = user.submit("j").await;
    let node = loop {
        match nodes.iter().find(|node| node.has(job)) {
            Some(node) => break node,
            None => tokio::time::sleep(Duration::from_millis(2)).await,
        }
    };
    (job, node.certify(job, Run(1)).await.expect("it is there"))
}

/// All jobs of an owner share one quota, so that many jobs use no more than one, and none of the quota of the owner's
/// own commands.
#[test]
fn all_jobs_of_one_owner_have_one_share_of_the_server() {
    tell(async {
        let server = Server::start();
        let mut nodes = Vec::new();
        for name in ["n1", "n2", "n3"] {
            nodes.push(Node::start(&server.agent_credentials(name).await, server.address).await);
        }
        let (ann, bob) = (server.user("ann").await, server.user("bob").await);
        let watch = async |client: &Client, job: JobId| {
            let mut channel = client.link.open().await.expect("a link");
            channel.send(&ClientRequest::Watch(rms_wire::Watch { jobs: vec![job] })).await.expect("a link");
            let is_watched = match channel.recv::<Followed>().await {
                Ok(Some(Followed::Change(_))) => true,
                Ok(Some(Followed::Refused(refused))) if refused.kind == "too_many" => false,
                other => panic!("{other:?}"),
            };
            (channel, is_watched)
        };
        let (hoarding, credentials) = started(&ann, &nodes).await;
        let mut open = Vec::new();
        for _ in 0..2 {
            let client = Client::connect(&credentials, server.address).await;
            for _ in 0..56 {
                let (channel, is_watched) = watch(&client, hoarding).await;
                assert!(is_watched, "{} were", open.len());
                open.push((channel, client.link.clone()));
            }
        }
        let client = Client::connect(&credentials, server.address).await;
        assert!(!watch(&client, hoarding).await.1, "a job takes all that its owner may have");
        let (second, credentials) = started(&ann, &nodes).await;
        let client = Client::connect(&credentials, server.address).await;
        assert!(!watch(&client, second).await.1, "another job of hers has no share of its own");
        assert!(watch(&ann, second).await.1, "but she herself has one");
        let (others, credentials) = started(&bob, &nodes).await;
        let client = Client::connect(&credentials, server.address).await;
        assert!(watch(&client, others).await.1, "and so have the jobs of another");
    });
}

/// Beside one link for each execution, all jobs of an owner have as many links together as the owner.
#[test]
fn jobs_of_one_owner_have_so_many_links_together_and_one_for_each() {
    tell(async {
        let mut server = Server::start();
        server.kill();
        std::fs::write(server.path().join("rms-server.toml"), "[limits]\nlinks_per_user = 4\n").expect("a file");
        server.restart();
        let mut nodes = Vec::new();
        for name in ["n1", "n2", "n3"] {
            nodes.push(Node::start(&server.agent_credentials(name).await, server.address).await);
        }
        let ann = server.user("ann").await;
        let mut links = Vec::new();
        let mut connect = async |credentials: &Credentials| {
            // A client may be welcomed before it is rejected.
            let Ok(client) = Client::try_connect(credentials, server.address).await else { return false };
            let is_served = client.call(&Call::Query(Query::Queue(Default::default()))).await.is_ok();
            links.push(client);
            is_served
        };
        let (_, first) = started(&ann, &nodes).await;
        for _ in 0..4 {
            assert!(connect(&first).await);
        }
        assert!(!connect(&first).await, "one job has four");
        let (_, second) = started(&ann, &nodes).await;
        let (_, third) = started(&ann, &nodes).await;
        assert!(connect(&second).await && connect(&second).await, "three and one further are four");
        assert!(!connect(&second).await, "there are no more");
        assert!(connect(&third).await, "but one for each");
        assert!(!connect(&third).await);
    });
}

/// The answer to a second join is lost: the holder's certificate stays valid until the newer one is used.
#[test]
fn a_certificate_is_good_until_somebody_comes_with_the_one_that_takes_its_place() {
    tell(async {
        let mut server = Server::start();
        let first = server.agent_credentials("n1").await;
        let lost = server.agent_credentials("n1").await;
        let mut agent = FakeAgent::connect(&first, server.address, Vec::new()).await;
        assert!(agent.link.end().is_none(), "its certificate is as good as before");
        // After a restart the server still knows that it has not been used.
        let second = server.agent_credentials("n1").await;
        server.kill();
        server.restart();
        agent = FakeAgent::connect(&first, server.address, Vec::new()).await;
        agent.desired(|_| true).await;
        rms_wire::come_with(server.address, &second).await;
        agent.link.closed().await;
        // The link ends when there is a newer one, and the certificate a moment later.
        let is_good = async |credentials: &Credentials| {
            let endpoint = Endpoint::dial(credentials).expect("a socket");
            endpoint.connect(server.address, Expect::server()).await.is_ok()
        };
        while is_good(&first).await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        expect_unwelcome(&lost, &server).await;
        FakeAgent::connect(&second, server.address, Vec::new()).await.desired(|_| true).await;
    });
}

#[test]
fn a_users_certificate_is_good_until_its_successor_is_used() {
    tell(async {
        let server = Server::start();
        let admin = server.admin().await;
        let ann = Identity { role: Role::User, name: "ann".to_owned() };
        let token = async || admin.token(TokenIdentity::Named(ann.clone()), None, server.address).await;
        let first = join(server.address, &token().await, None).await.expect("a new token").credentials;
        let elsewhere = join(server.address, &token().await, None).await.expect("a new token").credentials;
        let token = token().await;
        let dir = tempfile::tempdir().expect("a temporary directory");
        let again =
            join_in(dir.path(), server.address, &token, Joiner { replaces: Some(first.serial()), ..Joiner::default() });
        let again = again.await.expect("a new token").credentials;
        let before = Client::connect(&first, server.address).await;
        before.speak().await;
        Client::connect(&again, server.address).await.speak().await;
        assert_eq!(before.link.closed().await, "the certificate is revoked");
        Client::connect(&elsewhere, server.address).await.speak().await;
    });
}
