//! Links over a local socket: the same identities, channels and ends as over the network, and no way around them.

mod common;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{Deployment, accept_link, now};
use rms_api::{Answer, Call, Query};
use rms_model::{Role, Span};
use rms_wire::link::dial_local;
use rms_wire::{AnswerPart, CallError, ClientRequest, Credentials, End, Endpoint, Link, LinkError};

/// A server that also listens at a local socket.
struct Here {
    deployment: Deployment,
    server: Endpoint,
    dir: tempfile::TempDir,
}

impl Here {
    fn start() -> Here {
        let deployment = Deployment::new("d1");
        let server = deployment.server();
        // A path that would be too long for a socket address.
        let dir = tempfile::Builder::new().prefix(&"long".repeat(30)).tempdir().expect("a directory");
        let here = Here { deployment, server, dir };
        here.server.listen_local(&here.socket()).expect("the directory is ours");
        here
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    async fn dial(&self, credentials: &Credentials) -> Result<Link, LinkError> {
        dial_local(&self.socket(), credentials).await
    }

    /// Returns both ends of a link of a user.
    async fn link(&self, name: &str) -> (Link, Link) {
        let credentials = self.deployment.credentials(Role::User, name);
        let (up, down) = tokio::join!(self.dial(&credentials), accept_link(&self.server));
        (up.expect("the user is welcome"), down)
    }

    async fn denied(&self, credentials: &Credentials) -> String {
        match self.dial(credentials).await {
            Err(LinkError::Denied { reason }) => reason,
            other => panic!("{other:?}"),
        }
    }
}

fn ask() -> ClientRequest {
    ClientRequest::Call(Call::Query(Query::Settings))
}

async fn asked(link: &Link) -> Result<Answer, CallError> {
    link.call(&ask()).await
}

/// Answers the next call of a link.
async fn answer(link: &Link) {
    let mut channel = link.accept().await.expect("a channel");
    assert_eq!(channel.recv::<ClientRequest>().await.expect("a call"), Some(ask()));
    channel.send(&AnswerPart::whole(Ok(Answer::Settings(Vec::new())))).await.expect("the user reads");
    channel.finish();
}

#[tokio::test]
async fn a_user_is_who_the_certificate_says_calls_and_reads_why_the_link_ends() {
    let here = Here::start();
    let credentials = here.deployment.credentials(Role::User, "alice");
    let (up, down) = tokio::join!(here.dial(&credentials), accept_link(&here.server));
    let up = up.expect("she is welcome");
    assert_eq!((down.identity().to_string().as_str(), down.serial()), ("user/alice", credentials.serial()));
    assert!(!up.wants_renewal(&credentials), "she trusts the CAs that the server trusts");
    for _ in 0..3 {
        let (asked, ()) = tokio::join!(asked(&up), answer(&down));
        assert_eq!(asked.expect("an answer"), Answer::Settings(Vec::new()));
    }
    down.close("removed by alice");
    assert_eq!((up.closed().await, up.end()), ("removed by alice".to_owned(), Some(End::Closed)));
    assert!(matches!(up.open().await, Err(LinkError::Closed { reason }) if reason == "removed by alice"));
    let (up, down) = here.link("alice").await;
    drop(up);
    assert_eq!(down.closed().await, "the peer has let the link go");
    let (up, _down) = here.link("alice").await;
    here.server.close("an upgrade");
    assert_eq!((up.closed().await, up.end()), ("an upgrade".to_owned(), Some(End::Leaving)));
    assert!(here.server.accept().await.is_none(), "a closed endpoint accepts nobody");
    here.server.wait_idle().await;
}

#[tokio::test]
async fn channels_beyond_those_that_a_link_may_have_wait_for_others_to_end() {
    let here = Here::start();
    let (up, down) = here.link("alice").await;
    let mut open = Vec::new();
    for _ in 0..8 {
        open.push(up.open().await.expect("a channel"));
    }
    let more = up.open();
    tokio::pin!(more);
    assert!(tokio::time::timeout(Duration::from_millis(50), &mut more).await.is_err(), "there are eight");
    let ended = async {
        drop(open.pop());
        // The server keeps a channel until it notices that the channel has ended.
        let mut accepted = Vec::new();
        for _ in 0..8 {
            accepted.push(down.accept().await.expect("it was opened"));
        }
        let last = accepted.pop();
        let (_, mut receiver) = last.expect("there are eight").split();
        assert_eq!(receiver.recv::<ClientRequest>().await.expect("a clean end"), None);
        drop(receiver);
        accepted
    };
    let (more, _accepted) = tokio::join!(more, ended);
    more.expect("one has ended");
}

#[tokio::test]
async fn who_is_revoked_expired_foreign_or_no_person_gets_no_link() {
    let here = Here::start();
    let (up, _down) = here.link("alice").await;
    let revoked = here.deployment.credentials(Role::User, "eve");
    here.deployment.revoked.insert(revoked.serial());
    assert!(here.denied(&revoked).await.contains("evoked"));
    let (from, until) = (now() - Span::from_hours(2), now() - Span::from_mins(1));
    let expired = here.deployment.credentials_for(Role::User, "eve", from, until);
    assert!(here.denied(&expired).await.contains("xpired"));
    let foreign = Deployment::new("d1").credentials(Role::User, "eve");
    assert!(here.denied(&foreign).await.contains("not accepted"));
    // As over the network, it is not a valid certificate for a client.
    assert!(here.denied(&here.deployment.credentials(Role::Server, "server")).await.contains("not accepted"));
    for (role, name) in [(Role::Agent, "n1"), (Role::Job, "7.1")] {
        let reason = here.denied(&here.deployment.credentials(role, name)).await;
        assert!(reason.contains("only user or admin may connect here"), "{reason}");
    }
    assert!(!up.is_closed());
}

#[tokio::test]
async fn a_link_ends_when_its_certificate_is_revoked() {
    let here = Here::start();
    let (up, down) = here.link("alice").await;
    here.deployment.revoked.insert(down.serial());
    assert_eq!(up.closed().await, "the certificate is revoked");
}

#[tokio::test]
async fn a_channel_ends_with_the_link_and_one_that_is_given_up_costs_nothing_else() {
    let here = Here::start();
    let (up, down) = here.link("alice").await;
    let mut given_up = up.open().await.expect("a channel");
    let taken = down.accept().await.expect("it was opened");
    given_up.send(&ask()).await.expect("sent");
    drop(given_up);
    let (_sender, mut taken) = taken.split();
    assert_eq!(taken.recv_required::<ClientRequest>().await.expect("whole"), ask());
    // Here the receiver cannot tell whether it was finished or reset.
    assert!(matches!(taken.recv_required::<ClientRequest>().await, Err(LinkError::ChannelReset)));
    assert!(!up.is_closed() && !down.is_closed());
    let waiting = asked(&up);
    let closing = async {
        let _channel = down.accept().await.expect("a call");
        down.close("going");
    };
    let (asked, ()) = tokio::join!(waiting, closing);
    assert!(matches!(asked, Err(CallError::Link(LinkError::Closed { reason })) if reason == "going"));
}

#[tokio::test]
async fn silence_keeps_nobody_out() {
    let here = Here::start();
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(connect(&here.socket()).await);
    }
    let (up, down) = here.link("alice").await;
    let (asked, ()) = tokio::join!(asked(&up), answer(&down));
    asked.expect("an answer");
}

#[tokio::test]
async fn a_socket_that_others_could_have_put_there_is_not_spoken_with() {
    let here = Here::start();
    let credentials = here.deployment.credentials(Role::User, "alice");
    let set_mode = |mode| {
        std::fs::set_permissions(here.dir.path(), std::fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    for mode in [0o777, 0o1777, 0o720] {
        set_mode(mode);
        assert!(matches!(here.dial(&credentials).await, Err(LinkError::Local { .. })), "{mode:o}");
        assert!(here.server.listen_local(&here.dir.path().join("other")).is_err(), "{mode:o}");
    }
    set_mode(0o755);
    let (up, _down) = tokio::join!(here.dial(&credentials), accept_link(&here.server));
    up.expect("nobody else can write there");
}

#[tokio::test]
async fn the_server_of_another_deployment_is_not_taken_for_ours() {
    let here = Here::start();
    let elsewhere = Deployment::new("d1").credentials(Role::User, "alice");
    assert!(here.dial(&elsewhere).await.is_err());
    std::fs::remove_file(here.socket()).expect("it is ours");
    assert!(matches!(here.dial(&elsewhere).await, Err(LinkError::Local { .. })), "nobody listens");
}

async fn connect(socket: &Path) -> tokio::net::UnixStream {
    let short = tempfile::tempdir().expect("a directory");
    let link = short.path().join("s");
    std::os::unix::fs::symlink(socket, &link).expect("a link");
    tokio::net::UnixStream::connect(link).await.expect("it listens")
}
