//! Tests of the server's command line: what it creates, what it refuses, and its messages.

use std::fs;
use std::process::Output;

use nix::sys::signal::{Signal, kill};

use crate::deployment::{Server, command};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn expect_failure(output: &Output, expected: &str) {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains(expected), "{said}");
}

#[test]
fn two_servers_do_not_share_a_directory() {
    let server = Server::start();
    let second = command(&["run", "--listen", "127.0.0.1:0", "--dir"]).arg(server.path()).output().expect("a process");
    expect_failure(&second, &format!("is in use by the server with process id {}: stop that one first", server.pid()));
}

#[test]
fn nothing_is_made_over_what_is_there() {
    let server = Server::start();
    let again = command(&["init", "--dir"]).arg(server.path()).output().expect("a process");
    assert!(!again.status.success());
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::create_dir(dir.path().join("ca")).expect("a directory");
    let over = command(&["init", "--dir"]).arg(dir.path()).output().expect("a process");
    expect_failure(&over, "ca is there already");
}

#[test]
fn a_new_deployment_is_told_how_to_run_it_as_it_was_set_up() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let config = dir.path().join("rms-server.toml");
    fs::write(&config, "").expect("a file");
    let init = |name: &str, options: &[&str]| {
        let output = command(&["init", "--dir"]).arg(dir.path().join(name)).args(options).output().expect("a process");
        String::from_utf8(output.stdout).expect("text")
    };
    let config = config.to_str().expect("a plain name");
    let whole = init("a", &["--config", config, "--listen", "127.0.0.1:7300"]);
    let root = dir.path().display();
    assert!(whole.contains(&format!("run --dir {root}/a --config {config} --listen 127.0.0.1:7300\n")), "{whole}");
    let plain = init("b", &[]);
    assert!(plain.contains(&format!("run --dir {root}/b\n")), "{plain}");
}

#[test]
fn a_journal_of_another_format_is_refused_and_not_touched() {
    let mut server = Server::start();
    server.kill();
    let log = server.path().join("journal/log.1");
    let mut before = fs::read(&log).expect("a file");
    before[7] = b'9';
    fs::write(&log, &before).expect("a file");
    let run = command(&["run", "--listen", "127.0.0.1:0", "--dir"]).arg(server.path()).output().expect("a process");
    expect_failure(
        &run,
        "has journal format 9, and this server reads format 1: start the server version that wrote it",
    );
    assert_eq!(fs::read(&log).expect("a file"), before);
}

#[test]
fn a_directory_without_a_deployment_is_named() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let run = command(&["run", "--listen", "127.0.0.1:0", "--dir"]).arg(dir.path()).output().expect("a process");
    expect_failure(&run, "journal: make a new data directory with 'rms-server init'");
}

#[test]
fn a_term_signal_ends_it_in_order() {
    let mut server = Server::start();
    let address = fs::read_to_string(server.path().join("address")).expect("a file");
    assert_eq!(address.trim(), server.address.to_string());
    kill(server.pid(), Signal::SIGTERM).expect("a child of ours");
    assert!(server.wait().success());
    server.restart();
}

#[test]
fn a_wrong_configuration_is_pointed_at_before_anything_starts() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("bad.toml");
    fs::write(&file, "listen = \"0.0.0.0:7117\"\n\n[settings]\nlost_policy = \"shrug\"\n").expect("a file");
    let check = command(&["check-config"]).arg(&file).output().expect("a process");
    let expected = "bad.toml:4:15: 'shrug' is not a value of lost_policy: fail or requeue\n  \
                    |\n4 | lost_policy = \"shrug\"\n  |               ^^^^^^^";
    expect_failure(&check, expected);

    let printed = command(&["print-config"]).output().expect("a process");
    fs::write(&file, &printed.stdout).expect("a file");
    let check = command(&["check-config"]).arg(&file).output().expect("a process");
    assert!(check.status.success(), "{}", text(&check.stderr));
}
