//! Tests the path from a token to a certificate, and every way in which it must fail.

mod common;

use rms_api::Refused;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;

use common::raw::Raw;
use common::{Deployment, now};
use rms_model::{Identity, Role, Span};
use rms_wire::codec::encode;
use rms_wire::tls::{Authority, Peer, Rotation, draw_serial};
use rms_wire::token::digest;
use rms_wire::{
    Accepted, ClientRequest, Credentials, Endpoint, Expect, Hello, JoinError, NewKey, Serve, TokenText, join,
};

/// Serves one join of `token` as `identity`, and refuses other secrets.
async fn serve_one(deployment: Deployment, server: Endpoint, token: TokenText, identity: Identity) -> Deployment {
    let Some(Accepted::Join(joining)) = server.accept().await else { panic!("a join was expected") };
    let request = joining.request().clone();
    assert!(!format!("{request:?}").contains(&format!("{:?}", request.secret)), "secrets are not printed");
    if request.token_id != token.id() || digest(&request.secret) != token.digest() {
        joining.refuse(Refused::new("token_invalid", "the token is not valid")).await;
        return deployment;
    }
    let until = now() + Span::from_hours(1);
    let signed = deployment.authority.sign(&request.csr, &identity, &draw_serial(), now() - Span::from_mins(1), until);
    let ca = deployment.authority.ca_pem().to_owned();
    joining.grant(signed.expect("a usable request"), ca, Some("a".to_owned())).await;
    deployment
}

fn agent(name: &str) -> Identity {
    Identity::new(Role::Agent, name).expect("a name")
}

fn bound() -> (Deployment, Endpoint, SocketAddr, TokenText) {
    let deployment = Deployment::new("d1");
    let server = deployment.server();
    let address = server.local_addr().expect("bound");
    let token = TokenText::draw(&deployment.authority.fingerprint(), &address.to_string()).expect("well-formed");
    (deployment, server, address, token)
}

#[tokio::test]
async fn a_token_becomes_credentials_that_open_a_link() {
    let (deployment, server, address, token) = bound();
    let serving = tokio::spawn(serve_one(deployment, server.clone(), token.clone(), agent("n1")));
    let joined = join(address, &token, Some("n1")).await.expect("the token holds");
    assert_eq!(joined.credentials.identity().to_string(), "agent/n1");
    assert_eq!(joined.cluster.as_deref(), Some("a"));
    let deployment = serving.await.expect("served");

    // What was granted also works when loaded from the files.
    let dir = deployment.dir.path().join("agent");
    joined.credentials.save(&dir).expect("saved");
    let mode = std::fs::metadata(dir.join("key.pem")).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let loaded = Credentials::load(&dir).expect("loaded");
    let endpoint = Endpoint::bind(common::LOOPBACK, &loaded, Serve::Nobody).expect("a free port");
    let (up, down) = tokio::join!(endpoint.connect(address, Expect::server()), common::accept_link(&server));
    up.expect("the certificate is valid");
    assert_eq!(down.identity().to_string(), "agent/n1");
}

#[tokio::test]
async fn a_wrong_secret_is_refused_in_words() {
    let (deployment, server, address, token) = bound();
    let other = TokenText::draw(token.fingerprint(), token.address()).expect("well-formed");
    let serving = tokio::spawn(serve_one(deployment, server, token, agent("n1")));
    let error = join(address, &other, None).await.expect_err("it does not hold");
    let JoinError::Refused(refused) = error else { panic!("{error}") };
    assert_eq!(refused.kind, "token_invalid");
    serving.await.expect("served");
}

#[tokio::test]
async fn a_token_of_another_ca_is_never_shown_to_the_server() {
    let (_deployment, server, address, _) = bound();
    let foreign = Deployment::new("d1");
    let token = TokenText::draw(&foreign.authority.fingerprint(), &address.to_string()).expect("well-formed");
    let error = join(address, &token, None).await.expect_err("the CA is another");
    let JoinError::Link { source: error, .. } = error else { panic!("{error}") };
    assert!(error.to_string().contains("not the one that the token names"), "{error}");
    let came = tokio::time::timeout(std::time::Duration::from_millis(100), server.accept()).await;
    assert!(came.is_err(), "{came:?}");
}

#[tokio::test]
async fn a_token_that_is_older_than_a_change_of_the_ca_says_that_another_is_needed() {
    let mut deployment = Deployment::new("d1");
    let dir = deployment.dir.path().join("ca");
    let old = deployment.authority.fingerprint();
    for step in [Rotation::Begun, Rotation::Switched] {
        Authority::rotate(&dir, step, now()).expect("the next step");
    }
    deployment.authority = Authority::load(&dir).expect("it is there");
    let server = deployment.server();
    let address = server.local_addr().expect("bound");
    let token = TokenText::draw(&old, &address.to_string()).expect("well-formed");
    let serving = tokio::spawn(async move { server.accept().await.map(drop) });
    let error = join(address, &token, None).await.expect_err("the CA has changed");
    let JoinError::Link { source: error, .. } = error else { panic!("{error}") };
    assert!(error.to_string().contains("ask for a new token"), "{error}");
    serving.abort();
}

#[tokio::test]
async fn an_agent_cannot_play_the_server_for_a_joining_peer() {
    let deployment = Deployment::new("d1");
    let impostor = deployment.credentials(Role::Agent, "n1");
    let impostor = Endpoint::bind(common::LOOPBACK, &impostor, deployment.serve_all()).expect("a free port");
    let address = impostor.local_addr().expect("bound");
    let token = TokenText::draw(&deployment.authority.fingerprint(), &address.to_string()).expect("well-formed");
    let error = join(address, &token, None).await.expect_err("only the server may");
    let JoinError::Link { source: error, .. } = error else { panic!("{error}") };
    assert!(error.to_string().contains("agent/n1 answers where any server was expected"), "{error}");
}

/// An unreachable port fails at once; a silent peer is reported as such.
#[tokio::test]
async fn long_a_join_that_reaches_nobody_says_where_and_why() {
    let deployment = Deployment::new("d1");
    let try_at = async |address: SocketAddr| {
        let token = TokenText::draw(&deployment.authority.fingerprint(), &address.to_string()).expect("well-formed");
        let begun = std::time::Instant::now();
        let error = join(address, &token, None).await.expect_err("nobody is there");
        let said = format!("{error}: {}", std::error::Error::source(&error).expect("a reason"));
        assert!(said.starts_with(&format!("cannot join at {address}: ")), "{said}");
        (said, begun.elapsed())
    };
    let closed = std::net::UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port");
    let (said, took) = try_at(closed).await;
    assert!(said.contains("(refused)") && took < std::time::Duration::from_secs(3), "{said} after {took:?}");
    // A peer that receives everything and answers nothing.
    let deaf = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let (said, _) = try_at(deaf.local_addr().expect("bound")).await;
    assert!(said.contains("no answer within"), "{said}");
}

#[tokio::test]
async fn nothing_but_joining_is_served_without_a_certificate() {
    let (_deployment, server, address, _) = bound();
    let hello = encode(&Hello { software: "x".to_owned(), proof: None }).expect("small");
    let call = encode(&ClientRequest::Watch(rms_wire::Watch { jobs: vec![rms_model::JobId(1)] })).expect("small");
    for frame in [hello, call] {
        let raw = Raw::new();
        let connection = raw.connect(address, b"limber-join/1", None).await.expect("open to everybody");
        let (mut send, _receive) = connection.open_bi().await.expect("a stream");
        send.write_all(&frame).await.expect("sent");
        let closed = connection.closed().await.to_string();
        assert!(closed.contains("where JoinRequest was expected"), "{closed}");
    }
    let came = tokio::time::timeout(std::time::Duration::from_millis(100), server.accept()).await;
    assert!(came.is_err(), "{came:?}");
}

#[test]
fn the_authority_alone_decides_who_a_request_becomes() {
    let deployment = Deployment::new("d1");
    // A request that asks to be an admin and a CA.
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::default();
    let uri = "spiffe://d1/admin/mallory".try_into().expect("ASCII");
    params.subject_alt_names = vec![rcgen::SanType::URI(uri)];
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
    let csr = params.serialize_request(&key).expect("a request");
    let (from, until) = (now(), now() + Span::from_hours(1));
    let user = Identity::new(Role::User, "mallory").expect("a name");
    let signed = deployment.authority.sign(csr.der(), &user, "0a0b", from, until).expect("the key is its own");
    let credentials = Credentials::new(&key.serialize_pem(), &signed, deployment.authority.ca_pem());
    let credentials = credentials.expect("they belong together");
    assert_eq!(credentials.identity(), &user);
    assert_eq!(credentials.serial(), "0a0b");
    assert_eq!(credentials.expires().as_secs(), until.as_secs());

    let mut forged = csr.der().to_vec();
    let n_bytes = forged.len();
    forged[n_bytes - 1] ^= 1;
    for bad in [&forged[..], &[], &[0x30, 0x82, 0xff, 0xff], &vec![0x30; 100_000]] {
        assert!(deployment.authority.sign(bad, &user, "0a0b", from, until).is_err());
    }
    for serial in ["", "xyz", "abc", &"00".repeat(21)] {
        assert!(deployment.authority.sign(csr.der(), &user, serial, from, until).is_err(), "{serial}");
    }
    assert!(deployment.authority.sign(csr.der(), &user, "0a0b", until, from).is_err());
}

#[test]
fn an_authority_is_made_once_and_its_key_is_its_owners() {
    let deployment = Deployment::new("d1");
    let dir = deployment.dir.path().join("ca");
    let mode = std::fs::metadata(dir.join("ca.key")).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(rms_wire::Authority::create(&dir, "d2", now()).is_err(), "it would replace the CA");
    let again = rms_wire::Authority::load(&dir).expect("it is there");
    assert_eq!(again.fingerprint(), deployment.authority.fingerprint());
    assert_eq!(again.deployment(), "d1");
}

#[test]
fn a_rotation_that_was_cut_short_leaves_old_or_new_credentials() {
    let deployment = Deployment::new("d1");
    let dir = deployment.dir.path().join("client");
    let (old, new) = (deployment.credentials(Role::User, "alice"), deployment.credentials(Role::User, "alice"));
    let file = |name: &str| dir.join(name);
    let key_of = |credentials: &Credentials| {
        let aside = tempfile::tempdir().expect("a temporary directory");
        credentials.save(aside.path()).expect("saved");
        std::fs::read_to_string(aside.path().join("key.pem")).expect("a file")
    };
    // Interrupted before the certificate was replaced: the old credentials hold.
    old.save(&dir).expect("saved");
    std::fs::write(file("key.next.pem"), key_of(&new)).expect("written");
    assert_eq!(Credentials::load(&dir).expect("old").serial(), old.serial());
    // Interrupted after it: the new ones hold, and the key is moved into place.
    std::fs::write(file("cert.pem"), new.chain_pem()).expect("written");
    assert_eq!(Credentials::load(&dir).expect("new").serial(), new.serial());
    assert!(!file("key.next.pem").exists());
    assert_eq!(Credentials::load(&dir).expect("new").serial(), new.serial());
    // Not interrupted.
    old.save(&dir).expect("saved");
    assert_eq!(Credentials::load(&dir).expect("old").serial(), old.serial());
    assert_eq!(std::fs::metadata(file("key.pem")).expect("a file").permissions().mode() & 0o777, 0o600);
}

#[test]
fn credentials_that_do_not_belong_together_are_refused() {
    let (ours, theirs) = (Deployment::new("d1"), Deployment::new("d2"));
    let key = NewKey::generate().expect("a key");
    let alice = ours.credentials(Role::User, "alice");
    let error = key.into_credentials(&alice.chain_pem(), ours.authority.ca_pem()).expect_err("another key");
    assert_eq!(error.to_string(), "key and certificate do not belong together");
    let key = NewKey::generate().expect("a key");
    let error = key.into_credentials(&alice.chain_pem(), theirs.authority.ca_pem()).expect_err("another CA");
    assert_eq!(error.to_string(), "the certificate is of deployment d1, the CA of d2");
    let key = NewKey::generate().expect("a key");
    assert!(key.into_credentials("", ours.authority.ca_pem()).is_err());
    assert!(Peer::of(&rustls_pki_types::CertificateDer::from(vec![1, 2, 3])).is_err());
}

#[test]
fn a_token_reads_back_and_tampering_shows() {
    let deployment = Deployment::new("d1");
    for address in ["127.0.0.1:6818", "head.example.org:6818", "[::1]:6818"] {
        let token = TokenText::draw(&deployment.authority.fingerprint(), address).expect("well-formed");
        let text = token.to_string();
        assert_eq!(text.parse::<TokenText>().as_ref(), Ok(&token), "{text}");
        assert_eq!(format!(" {text}\n").parse::<TokenText>().as_ref(), Ok(&token), "as people paste it");
        assert_eq!(token.address(), address);
        assert!(!format!("{token:?}").contains(text.split('.').nth(2).expect("a secret")), "secrets are not printed");
        // Any other character in the token makes it another token, or none.
        let n_token = text.find('@').expect("an address");
        for idx in 0..n_token {
            let mut tampered = text.clone().into_bytes();
            tampered[idx] = if tampered[idx] == b'a' { b'b' } else { b'a' };
            let tampered = String::from_utf8(tampered).expect("ASCII");
            if let Ok(other) = tampered.parse::<TokenText>() {
                assert_ne!(other, token, "{tampered}");
            }
        }
        for n_kept in 0..text.len() - address.len() {
            assert!(text[..n_kept].parse::<TokenText>().is_err(), "{n_kept} characters");
        }
    }
    for text in ["", "@", "lmb1", "lmb1.a.b.c@h:1", "lmb2.a.b.c@h:1", "lmb1.a.b.c@h", "lmb1.a.b.c@h:0", "lmb1....@h:1"]
    {
        let error = text.parse::<TokenText>().expect_err(text);
        assert!(error.to_string().starts_with("this is not a join token: "), "{error}");
    }
}
