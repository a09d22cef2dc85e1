//! Commands over the server's local socket: all that they do over the network, as nobody else, and through restarts.

use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::net;
use test_kit::{Deployment, wait_until};

const SOON: Duration = Duration::from_secs(30);
/// Where no server is.
const NOWHERE: &str = "127.0.0.1:9";

/// From now on, who uses this client directory goes over that socket, or to that server over the network.
fn direct(client: &Path, server: &str, socket: &Path) {
    let text = format!("server = \"{server}\"\nsocket = \"{}\"\n", socket.display());
    fs::write(client.join("client.toml"), text).expect("the directory is ours");
}

/// A copy of the admin's client directory that knows the local socket alone.
fn socket_alone(deployment: &Deployment) -> PathBuf {
    let client = deployment.path().join("near");
    fs::create_dir(&client).expect("the directory is ours");
    for file in ["ca.pem", "cert.pem", "key.pem"] {
        fs::copy(deployment.client_dir().join(file), client.join(file)).expect("it is there");
    }
    direct(&client, NOWHERE, &deployment.server_dir().join("socket"));
    client
}

#[test]
fn long_jobs_are_submitted_shown_watched_and_negotiated_about_without_a_network() {
    let deployment = Deployment::of_nodes(2);
    let client = socket_alone(&deployment);
    let rms = |arguments: &[&str]| deployment.finish(deployment.command_as(&client, arguments));
    let text = rms(&["run", "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x"]).ok().stdout;
    assert_eq!(text.len(), 3_000_000);
    assert_eq!(rms(&["run", "sh", "-c", "exit 7"]).fails(7).code, 7);
    let job = rms(&["submit", "-q", "--malleable", "1-2", "--negotiable", "--time", "10m", "--wrap", "sleep 600"]).ok();
    let job = job.stdout.trim();
    deployment.wait_for_state(job.parse().expect("an id"), "started");
    let grown = rms(&["negotiate", job, "--time", "+5m", "--json"]);
    assert!(grown.code == 0 || grown.json()["error"]["kind"].is_string(), "{grown:?}");
    let mut wait = deployment.command_as(&client, &["wait", job]);
    let waiting = wait.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    rms(&["cancel", job]).ok();
    let ended = waiting.wait_with_output().expect("it ends");
    assert!(!ended.status.success(), "the job was cancelled");
    wait_until("the job to be history", SOON, || rms(&["history"]).ok().stdout.contains("cancelled").then_some(()));
    // The same words without the socket.
    fs::remove_file(deployment.server_dir().join("socket")).expect("it is there");
    assert!(rms(&["queue"]).fails(1).stderr.contains(NOWHERE));
}

#[test]
fn who_is_connected_over_the_socket_goes_on_after_a_restart_of_the_server() {
    let mut deployment = Deployment::of_nodes(1);
    let go = deployment.path().join("go");
    let script = format!("echo before; until test -e {}; do sleep 0.1; done; echo after; exit 3", go.display());
    let mut run = deployment.command(&["run", "sh", "-c", &script]);
    let run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    wait_until("the job to run", SOON, || {
        let queue = deployment.rms(&["queue", "--json"]).ok().json();
        (queue["jobs"][0]["state"] == "started").then_some(())
    });
    deployment.kill_server();
    deployment.start_server();
    // The socket of the one before was in its place.
    let near = socket_alone(&deployment);
    deployment.finish(deployment.command_as(&near, &["queue"])).ok();
    fs::write(&go, "").expect("the directory is ours");
    let output = run.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "before\nafter\n");
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn long_a_certificate_that_is_revoked_is_good_for_nothing_over_the_socket_either() {
    let deployment = Deployment::of_nodes(1);
    let ada = deployment.join_person("user", "root");
    direct(&ada, &deployment.address().to_string(), &deployment.server_dir().join("socket"));
    let mut run = deployment.command_as(&ada, &["run", "sleep", "60"]);
    let run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    wait_until("her job to run", SOON, || {
        let queue = deployment.rms(&["queue", "--json"]).ok().json();
        (queue["jobs"][0]["state"] == "started").then_some(())
    });
    deployment.rms(&["token", "revoke-certificate", "user/root"]).ok();
    let output = run.wait_with_output().expect("it ends");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("revoked"), "{output:?}");
    let refused = deployment.finish(deployment.command_as(&ada, &["queue"])).fails(1);
    assert!(refused.stderr.contains("revoked"), "{refused:?}");
    direct(&ada, NOWHERE, &deployment.server_dir().join("socket"));
    assert!(deployment.finish(deployment.command_as(&ada, &["queue"])).fails(1).stderr.contains(NOWHERE));
}

/// Another user of the machine, who reaches a socket outside of the data directory, is who the certificate says; and speaks
/// with no socket that somebody else has put in its place.
#[test]
fn long_another_user_comes_over_the_socket_of_the_machine_and_meets_no_impostor() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can start commands of other users");
        return;
    }
    const ADA: u32 = 61_001;
    let public = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().expect("a directory");
    let socket = public.path().join("server.sock");
    let deployment = Deployment::builder().config(&format!("socket = \"{}\"\n", socket.display())).start();
    let joined = deployment.join_person("user", "ada");
    let ada = public.path().join("ada");
    fs::create_dir(&ada).expect("the directory is ours");
    for file in ["ca.pem", "cert.pem", "key.pem"] {
        fs::copy(joined.join(file), ada.join(file)).expect("it is there");
        chown(ada.join(file), Some(ADA), Some(ADA)).expect("we are root");
    }
    direct(&ada, NOWHERE, &socket);
    chown(&ada, Some(ADA), Some(ADA)).expect("we are root");
    let rms = public.path().join("rms");
    fs::copy(deployment.rms_program(), &rms).expect("it is there");
    let status = || {
        let mut command = std::process::Command::new(&rms);
        command.args(["token", "list"]).env_clear().env("RMS_DIR", &ada).current_dir("/").uid(ADA).gid(ADA);
        command.output().expect("it starts")
    };
    let said = status();
    let text = String::from_utf8_lossy(&said.stderr).into_owned();
    // She is let in, and is no admin.
    assert!(text.contains("admin") && !text.contains(NOWHERE), "{text}");
    // Whoever else may write there could have put the socket there.
    for (owner, mode) in [(None, 0o777), (Some(ADA + 1), 0o755)] {
        chown(public.path(), owner, None).expect("we are root");
        fs::set_permissions(public.path(), Permissions::from_mode(mode)).expect("we are root");
        // The server is root, whom everybody believes; an impostor is not.
        let impostor = owner.map(|_| impostor(&socket, ADA + 2));
        let said = status();
        assert!(String::from_utf8_lossy(&said.stderr).contains(NOWHERE), "{said:?}");
        let n_heard = impostor.map_or(0, |impostor| impostor.join().expect("it has heard all"));
        assert_eq!(n_heard, 0, "she has shown her certificate to somebody else");
    }
}

/// Has that user listen there, and answers how many bytes the first client has sent to it.
fn impostor(socket: &Path, uid: u32) -> JoinHandle<usize> {
    fs::remove_file(socket).expect("we are root");
    let listening = net::socket(net::AddressFamily::UNIX, net::SocketType::STREAM, None).expect("a socket");
    net::bind(&listening, &net::SocketAddrUnix::new(socket).expect("a short path")).expect("we are root");
    fs::set_permissions(socket, Permissions::from_mode(0o666)).expect("we are root");
    let (ready, listens) = mpsc::channel();
    let listen = move || {
        // The kernel names whoever has called this, of whatever process.
        rustix::thread::set_thread_uid(rustix::fs::Uid::from_raw(uid)).expect("we are root");
        net::listen(&listening, 8).expect("it is bound");
        ready.send(()).expect("it is waited for");
        let (mut who, _) = UnixListener::from(listening).accept().expect("somebody comes");
        // As the server begins. Who has gone already reads nothing.
        let _ = who.write_all(&[7; 32]);
        let mut said = Vec::new();
        who.read_to_end(&mut said).map_or(0, |_| said.len())
    };
    let listening = std::thread::spawn(listen);
    listens.recv().expect("it listens");
    listening
}
