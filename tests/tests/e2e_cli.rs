//! Values that a living server must refuse, readers that go away, and what a person and a program are told.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::{Duration, Instant};

use test_kit::{Deployment, NodeOptions, Output};

/// Runs the command for a person and for a program: the same code, and the words in both answers.
fn refuse(deployment: &Deployment, arguments: &[&str], code: i32, words: &[&str]) {
    let plain = deployment.rms(arguments).fails(code);
    assert!(plain.stdout.is_empty(), "errors go to standard error: {plain:?}");
    let mut with_json = vec!["--json"];
    with_json.extend(arguments);
    let output = deployment.rms(&with_json).fails(code);
    let error = &output.json()["error"];
    assert!(error["kind"].is_string() && error["message"].is_string(), "{output:?}");
    for word in words {
        assert!(plain.stderr.contains(word), "{arguments:?} does not say '{word}': {}", plain.stderr);
        assert!(error.to_string().contains(word), "{arguments:?} does not say '{word}' in {error}");
    }
    assert!(!plain.stderr.contains("panicked"), "{plain:?}");
    assert!(plain.stderr.len() < 2000, "a long mistake makes no long message: {}", plain.stderr.len());
    assert!(!plain.stderr.contains('\u{1b}'), "what was typed does not steer the terminal: {plain:?}");
}

#[test]
fn long_what_the_server_refuses_is_said_with_what_would_be_right() {
    let deployment = Deployment::builder()
        .node(NodeOptions::new("a", "a1").with(&["--topology", "pack:1 core:4 pu:1"]))
        .node(NodeOptions::new("a", "a2").with(&["--topology", "pack:1 core:4 pu:1"]))
        .start();
    let cases: &[(&[&str], i32, &[&str])] = &[
        (&["submit", "-N", "3", "--wrap", "true"], 1, &["3", "cluster a has 2"]),
        (&["submit", "-N", "4294967295", "--wrap", "true"], 1, &["4294967295"]),
        (&["submit", "-n", "9", "-c", "1", "-N", "2", "--wrap", "true"], 1, &["4 CPUs"]),
        (&["submit", "-c", "4294967295", "--wrap", "true"], 1, &["4294967295", "4 CPUs"]),
        (&["submit", "-t", "2000d", "--wrap", "true"], 1, &["2000d", "longest"]),
        (&["submit", "-M", "b", "--wrap", "true"], 1, &["'b'", "a"]),
        (&["submit", "-C", "gpu", "--wrap", "true"], 1, &["gpu"]),
        (&["submit", "--mem", "900T", "--wrap", "true"], 1, &["cluster a has 0"]),
        (&["submit", "-J", "evil\u{1b}[2J", "--wrap", "true"], 1, &["control characters"]),
        (&["run", "-O", "-n", "1000000", "-N", "1", "true"], 1, &["4096 tasks"]),
        (&["cancel", "999"], 1, &["999"]),
        (&["show", "999"], 1, &["999"]),
        (&["explain", "999"], 1, &["999"]),
        (&["logs", "999"], 1, &["999"]),
        (&["hold", "18446744073709551615"], 1, &["18446744073709551615"]),
        (&["view", "--job", "999"], 1, &["999"]),
        (&["nodes", "zz1"], 1, &["zz1"]),
        (&["admin", "drain", "zz1", "--reason", "x"], 1, &["zz1", "rms nodes"]),
        (&["admin", "set", "max_wall", "0s"], 2, &["longer than zero"]),
        (&["token", "create", "--role", "user", "--name", "ada", "--ttl", "1000d"], 1, &["30 days"]),
        (&["token", "create", "--role", "user", "--name", "a b"], 2, &["a b"]),
        (&["token", "revoke", "nosuch"], 1, &["nosuch", "rms token list"]),
        (&["token", "revoke-certificate", "user/nobody-here"], 1, &["rms token certificates"]),
        (&["cancel", "18446744073709551616"], 2, &["18446744073709551616"]),
        (&["cancel", "-1"], 2, &["-1"]),
        (&["submit", "-n", "-1", "--wrap", "true"], 2, &["-1"]),
        (&["submit", "-N", "99999999999999999999", "--wrap", "true"], 2, &["99999999999999999999"]),
        (&["submit", "-t", "99999999999999999999d", "--wrap", "true"], 2, &["99999999999999999999d"]),
        (&["submit", "-t", "-5m", "--wrap", "true"], 2, &["-5"]),
        (&["submit", "--priority", "9999999999", "--wrap", "true"], 2, &["9999999999"]),
        (&["cancel", "\u{1b}[2J"], 2, &["names no jobs"]),
    ];
    for (arguments, code, words) in cases {
        refuse(&deployment, arguments, *code, words);
    }
    let long = "x".repeat(100_000);
    refuse(&deployment, &["submit", "-J", &long, "--wrap", "true"], 1, &["not 100000"]);
    refuse(&deployment, &["cancel", &long], 2, &["names no jobs"]);
    refuse(&deployment, &["token", "revoke", &long], 1, &["no token"]);
    refuse(&deployment, &["submit", "-o", &long, "--wrap", "true"], 1, &["a file name"]);
    // 'wait' tells the system's failures from the job's.
    refuse(&deployment, &["wait", "999"], 125, &["999"]);
    refuse(&deployment, &["wait", "last"], 125, &["you have had no job yet"]);
    assert_eq!(deployment.rms(&["queue", "--json"]).ok().json()["jobs"].as_array().map(Vec::len), Some(0));
}

#[test]
fn json_follows_wherever_it_stands() {
    let deployment = Deployment::of_nodes(1);
    let job = deployment.submit(&["--hold", "--wrap", "true"]).to_string();
    let picture = deployment.path().join("view.svg");
    for arguments in [
        &["show", &job, "--json"][..],
        &["explain", &job, "--json"],
        &["nodes", "--json"],
        &["queue", "--json"],
        &["view", "--json"],
        &["view", "--json", "--svg", "-"],
        &["view", "--json", "--svg", &picture.to_string_lossy()],
        &["admin", "show", "--json"],
        &["admin", "set", "fair_start", "0s", "--json"],
        &["admin", "status", "--json"],
        &["token", "list", "--json"],
        &["cancel", &job, "--json"],
        &["history", &job, "--json"],
        &["wait", &job, "--json"],
    ] {
        let output = deployment.rms(arguments);
        assert!(output.json().is_object() || output.json().is_array(), "{output:?}");
        assert!(output.json().get("error").is_none(), "{output:?}");
    }
    let refused = deployment.rms(&["cancel", "998,999", "--json"]).fails(1).json();
    let of_each = refused["refused"].as_array().expect("a list").iter().map(|refused| &refused["job"]);
    assert_eq!(of_each.collect::<Vec<_>>(), [998, 999], "{refused}");
    assert_eq!((&refused["error"]["kind"], &refused["done"]), (&"no_such_job".into(), &serde_json::json!([])));
}

/// `rms queue | head -1` is no failure worth a word.
#[test]
fn a_reader_that_goes_away_is_no_reason_to_complain() {
    let deployment = Deployment::of_nodes(1);
    for _ in 0..3 {
        deployment.submit(&["--hold", "--wrap", "true"]);
    }
    for arguments in [&["queue"][..], &["queue", "--json"], &["nodes"], &["--help"], &["admin", "show"]] {
        let mut command = deployment.command(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        drop(child.stdout.take());
        let mut said = String::new();
        child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
        child.wait().expect("it ends");
        assert!(said.is_empty(), "{arguments:?}: {said}");
    }
    // A program whose output nobody wants any more ends; the job may not stay.
    let mut command = deployment.command(&["run", "sh", "-c", "while echo y; do sleep 0.05; done"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    assert_eq!(lines.next().expect("a line").expect("text"), "y");
    drop(lines);
    let start = Instant::now();
    while child.try_wait().expect("our child").is_none() {
        assert!(start.elapsed() < Duration::from_secs(10), "rms run goes on for nobody");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn long_a_server_that_is_away_is_named_soon() {
    let mut deployment = Deployment::builder().start();
    let address = deployment.address().to_string();
    deployment.kill_server();
    let start = Instant::now();
    let output: Output = deployment.rms(&["queue", "--json"]).fails(1);
    let said = output.json()["error"].to_string();
    assert!(said.contains(&address) && said.contains("nothing listens on this UDP port"), "{said}");
    assert!(start.elapsed() < Duration::from_secs(12), "it took {:?}", start.elapsed());
}
