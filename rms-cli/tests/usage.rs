//! Tests the response to wrong input: the message, its place, the remedy, and exit code 2.

use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Runs `rms` without a cluster.
fn rms(args: &[&str], input: &str) -> Output {
    let home = tempfile::tempdir().expect("a directory");
    let mut child = Command::new(env!("CARGO_BIN_EXE_rms"))
        .args(args)
        .env_clear()
        .env("HOME", home.path())
        .current_dir(home.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("rms starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    // A command that refuses its flags does not read its input.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().expect("rms ends")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Each line of the table: arguments, and what the message must contain.
#[test]
fn wrong_flags_are_named_with_what_to_write() {
    let table: &[(&[&str], &str)] = &[
        (&["qeue"], "'queue'"),
        (&["submit"], "SCRIPT"),
        (&["submit", "--wrap", "true", "job.sh"], "--wrap"),
        (&["submit", "-N", "x", "--wrap", "true"], "write 4, 1-16"),
        (&["submit", "-N", "4-1", "--wrap", "true"], "backwards"),
        (&["submit", "-N", "0", "--wrap", "true"], "at least one node"),
        (&["submit", "-N", "1-1000", "--wrap", "true"], "give a step"),
        (&["submit", "-n", "0", "--wrap", "true"], "at least 1"),
        (&["submit", "-n", "4294967296", "--wrap", "true"], "at most 4294967295"),
        (&["submit", "-t", "soon", "--wrap", "true"], "write 90s, 1h30m"),
        (&["submit", "--shapes", "2x", "--wrap", "true"], "is not a duration"),
        (&["submit", "--shapes", "2x1h", "-N", "2", "--wrap", "true"], "cannot be used with"),
        (&["submit", "-N", "1-4", "--amdahl", "1.5", "-t", "1h", "--wrap", "true"], "from 0 to 1, like 0.95"),
        (&["submit", "-N", "1-4", "--amdahl", "0.5", "--downey", "8,1", "--wrap", "true"], "cannot be used with"),
        (&["submit", "--malleable", "x", "--wrap", "true"], "write 2-8"),
        (&["submit", "--malleable", "5-7:pow2", "--wrap", "true"], "no size that is a power of two"),
        (&["submit", "--malleable", "2-8", "--profile", "2x1h", "--wrap", "true"], "cannot be used with"),
        (&["submit", "--malleable", "2-8", "--shapes", "2x1h", "--wrap", "true"], "cannot be used with"),
        (&["submit", "--malleable", "2-8", "--workers", "--negotiable", "true"], "cannot be used with"),
        (&["submit", "--malleable", "2-8", "--on-resize", "mail", "--wrap", "true"], "write signal:USR1"),
        (&["submit", "--malleable", "2-8", "--speedup", "2", "--workers", "true"], "like 1:1,2:1.9,4:3.4"),
        (&["submit", "--malleable", "2-8", "--workers", "-"], "not from the standard input"),
        (&["negotiate", "7"], "--grow"),
        (&["negotiate", "--grow", "2"], "not inside of one"),
        (&["negotiate", "7", "--shrink", "2", "--nodes", "a1"], "names 1 nodes"),
        (&["resize-done", "7"], "--generation 3"),
        (&["negotiations", "all"], "name one job, like 7"),
        (&["admin", "negotiation", "force", "7", "x"], "like r1 or a2"),
        (&["plan", "-N", "1-4", "-t", "1h", "--downey", "0.5,1"], "like 12,0.5"),
        (&["submit", "--mem", "much", "--wrap", "true"], "write 512M"),
        (&["submit", "-C", "a|b", "--wrap", "true"], "alternatives"),
        (&["submit", "--wrap", " "], "--wrap is empty"),
        (&["submit", "/nowhere/job.sh"], "/nowhere/job.sh cannot be read"),
        (&["submit", "/"], "cannot be read"),
        (&["run"], "COMMAND"),
        (&["run", ""], "empty"),
        (&["cancel"], "JOBS"),
        (&["cancel", "x"], "write ids like 7"),
        (&["cancel", "9-5"], "backwards"),
        (&["cancel", "1-99999999999"], "name fewer"),
        (&["priority", "7"], "<N>"),
        (&["priority", "7", "high"], "invalid value 'high'"),
        (&["submit", "--priority", "TOP", "--wrap", "true"], "write a whole number, like -10"),
        (&["submit", "-N", "-1", "--wrap", "true"], "'-1' is no number of nodes"),
        (&["submit", "--mem", "-5", "--wrap", "true"], "write 512M"),
        (&["cancel", "7", "--signal", "NOPE"], "write a signal like USR1"),
        (&["wait", "7", "--timeout", "x"], "is not a duration"),
        (&["logs", "1-3"], "one job at a time"),
        (&["history", "--since", "someday"], "--since: 'someday' is not a time"),
        (&["history", "--since", "-60"], "'60' has no unit: write 60s, 60m or 60h"),
        (&["submit", "--shapes", "2x30", "--wrap", "true"], "'30' has no unit: write 30s, 30m or 30h"),
        (&["submit", "--profile", "2x30", "--wrap", "true"], "stage 1: '30' has no unit"),
        (&["admin", "set", "fair_start", "10"], "'10' has no unit: write 10s, 10m or 10h"),
        (&["wait", "7", "--timeout", "10"], "'10' has no unit"),
        (&["queue", "--watch=10"], "'10' has no unit"),
        (&["view", "--span", "10"], "'10' has no unit"),
        (&["token", "create", "--role", "agent", "--ttl", "10"], "'10' has no unit"),
        (&["negotiate", "7", "--extend", "10"], "'10' has no unit"),
        (&["sim", "tune", "x", "--fair-start", "10"], "'10' has no unit: write 10s, 10m or 10h"),
        (&["sim", "tune", "x", "--timer", "1"], "'1' has no unit"),
        (&["sim", "tune", "x", "--adaptation", "1"], "'1' has no unit"),
        (&["sim", "gain", "--pause", "1"], "'1' has no unit"),
        (&["sim", "swf", "x.swf", "--nodes", "4", "--interval", "30"], "'30' has no unit"),
        (&["sim", "swf", "x.swf", "--nodes", "4", "--wall-unit", "30"], "'30' has no unit"),
        (&["history", "--state", "great"], "completed"),
        (&["view", "--job", "x"], "name one job, like 7"),
        (&["nodes", "a[1-"], "not a list of nodes"),
        (&["submit", "-w", "a/b", "x.sh"], "--nodelist <NODES>': 'a/b' is not a name"),
        (&["submit", "-x", "a1,a/b", "x.sh"], "--exclude <NODES>': 'a/b' is not a name"),
        (&["submit", "-C", "a/b", "x.sh"], "--constraint <FEATURES>': 'a/b' is not a name"),
        (&["up", "--clusters", "a"], "write a:4"),
        (&["up", "--nodes", "0"], "at least one node"),
        (&["up", "--nodes", "2000"], "at most 1000"),
        (&["up", "--nodes", "2", "--clusters", "a:2"], "cannot be used with"),
        (&["up", "--listen", "here"], "invalid"),
        (&["token", "create", "--role", "king"], "write server, agent, user or admin"),
        (&["token", "create", "--role", "user"], "--name"),
        (&["token", "create", "--role", "agent"], "--cluster"),
        (&["token", "create", "--role", "server"], "rms-server init"),
        (&["token", "create", "--role", "admin"], "a token for role admin names a person"),
        (&["token", "create", "--role", "agent", "--cluster", "a/b"], "--cluster: 'a/b' is not a name"),
        (&["token", "create", "--role", "user", "--name", "ada", "--address", "foo"], "write host:port"),
        (&["token", "revoke-certificate", "ada"], "role/name"),
        (&["join", "lmb1.nonsense"], "not a join token"),
        (&["admin", "set", "fair_strat", "1s"], "fair_start"),
        (&["admin", "set", "lost_policy", "shrug"], "fail or requeue"),
        (&["admin", "drain", "a1"], "--reason"),
        (&["queue", "--state", "gone"], "waiting"),
        (&["queue", "--watch=often"], "is not a duration"),
        (&["queue", "-P", "-q"], "cannot be used with"),
        (&["sim", "swf", "x.swf"], "--nodes"),
        (&["sim", "swf", "x.swf", "--nodes", "0"], "0 is not in"),
        (
            &["sim", "swf", "x.swf", "--nodes", "4", "--policy", "lifo"],
            "write views, fcfs, easy, conservative or slowdown",
        ),
        (&["sim", "swf", "x.swf", "--nodes", "4", "--field", "size"], "allocated"),
        (&["sim", "swf", "x.swf", "--nodes", "4", "--interval", "often"], "is not a duration"),
        (&["sim", "offline", "--tests", "0"], "at least one test"),
        (&["sim", "replay"], "<JOURNAL>"),
        (&["sim", "sd"], "<--trace <FILE>|--cirne <WORKLOAD>>"),
        (&["sim", "sd", "--cirne", "w1", "--against", "easy,easy"], "--against names easy twice"),
        (&["sim", "sd", "--cirne", "w1", "--trace", "x.swf", "--nodes", "4"], "cannot be used with"),
        (&["admin", "set", "policy", "lifo"], "views, fcfs, easy, conservative or slowdown"),
        // Habits from other systems.
        (&["sbatch", "job.sh"], "'rms submit'"),
        (&["squeue"], "'rms queue'"),
        (&["submit", "--partition=fast", "job.sh"], "--clusters"),
        (&["submit", "-p", "fast", "job.sh"], "--clusters"),
        (&["submit", "--array=1-3", "job.sh"], "submit one job for each index"),
        (&["submit", "--mail-user", "x", "job.sh"], "leave it out"),
        (&["run", "--gpus-per-task=1", "hostname"], "--gpus-per-node"),
        (&["run", "--gres=gpu:x:y:1", "hostname"], "gpu:a100:2"),
        (&["run", "--gpus", "a100", "hostname"], "with a type a100:2"),
        (&["run", "--hint=quick", "hostname"], "nomultithread"),
        (&["submit", "--pack", "--spread", "--wrap", "true"], "cannot be used with"),
        (&["submit", "--mem=1G", "--mem-per-cpu=1G", "--wrap", "true"], "cannot be used with"),
        (&["update", "7", "gpus=x"], "with a type a100:2"),
        (&["run", "--pty", "bash"], "--stdin"),
        (&["cancel", "-u", "ada"], "user:NAME"),
        (&["queue", "-j", "7"], "rms show 7"),
        // An unknown flag is not taken as the program.
        (&["run", "--lable", "hostname"], "'--label'"),
        (&["run", "-N2", "-Z", "hostname"], "'-Z'"),
    ];
    for (args, part) in table {
        let output = rms(args, "");
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "rms {args:?}: {message}");
        assert!(message.contains(part), "rms {args:?} does not say '{part}':\n{message}");
        assert!(output.stdout.is_empty(), "rms {args:?} writes to standard output");
    }
}

#[test]
fn with_json_even_usage_errors_are_one_value() {
    for args in
        [&["--json", "cancel", "x"][..], &["cancel", "--json"], &["submit", "--json", "-N", "x", "--wrap", "true"]]
    {
        let output = rms(args, "");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one value");
        assert_eq!(value["error"]["kind"], "usage", "{value}");
        assert!(value["error"]["message"].is_string() && value["error"].get("hint").is_some(), "{value}");
        assert!(output.stderr.is_empty());
    }
}

#[test]
fn flags_may_have_their_values_glued_on_and_a_program_keeps_its_own() {
    for args in [&["run", "-N2", "-n4", "ls", "-l", "--all"][..], &["run", "-l", "-N2", "--", "ls", "-N2"]] {
        let output = rms(args, "");
        let message = text(&output.stderr);
        assert!(message.contains("belongs to no cluster"), "rms {args:?} was not understood:\n{message}");
    }
}

#[test]
fn scripts_are_checked_line_by_line() {
    let table = [
        ("", "is empty"),
        ("echo hello\n", "stdin:1: "),
        ("#!/bin/sh\n#RMS --nodez 4\n", "stdin:2: "),
        ("#!/bin/sh\n\n#RMS -N 4 -t never\n", "stdin:3: "),
        ("#!/bin/sh\n#SBATCH --array=1-10\n", "stdin:2: option --array is not supported"),
        ("#!/bin/sh\n#SBATCH --frobnicate\n", "stdin:2: option --frobnicate is not known"),
        ("#!/bin/sh\n#RMS -J 'open\n", "stdin:2: a quote is not closed"),
        ("#!/bin/sh\n\0", "binary"),
    ];
    for (script, part) in table {
        let output = rms(&["submit", "-"], script);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{script:?}: {message}");
        assert!(message.contains(part), "{script:?} does not say '{part}':\n{message}");
    }
}

#[test]
fn what_is_ignored_in_a_script_is_said() {
    let output = rms(&["submit", "-"], "#!/bin/sh\n#SBATCH --mail-type=END\ntrue\n#RMS -N 2\n");
    let message = text(&output.stderr);
    assert!(
        message.contains("warning: stdin:2: option --mail-type END is kept as a comment only: no mail is sent"),
        "{message}"
    );
    assert!(message.contains("warning: stdin:4: this #RMS line is ignored"), "{message}");
}

#[test]
fn without_a_cluster_every_verb_says_how_to_get_one() {
    for args in
        [&["queue"][..], &["run", "true"], &["submit", "--wrap", "true"], &["nodes"], &["cancel", "1"], &["view"]]
    {
        let output = rms(args, "");
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {message}");
        assert!(message.contains("rms up") && message.contains("rms join"), "{args:?}: {message}");
    }
    let output = rms(&["wait", "1"], "");
    assert_eq!(output.status.code(), Some(125), "the system failed, not the job");
}

#[test]
fn help_and_version_are_answers() {
    for args in [&["--help"][..], &["help", "submit"], &["submit", "--help"], &["--version"]] {
        let output = rms(args, "");
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(!output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_rms"))
        .args(["submit", "--help"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("rms starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("rms ends");
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
}

#[test]
fn down_without_a_cluster_says_so_and_does_nothing() {
    let output = rms(&["down"], "");
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("no cluster of 'rms up'"));
}

#[cfg(unix)]
#[test]
fn arguments_that_are_no_text_do_not_panic() {
    use std::os::unix::ffi::OsStrExt;
    let odd = std::ffi::OsStr::from_bytes(b"\xff\xfe");
    for args in [vec![odd], vec!["submit".as_ref(), odd], vec!["cancel".as_ref(), odd]] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_rms")).args(&args).stdin(Stdio::null()).output().expect("rms runs");
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", text(&output.stderr));
    }
}

#[test]
fn shells_complete_what_there_is_and_every_verb_has_a_page() {
    let dir = tempfile::tempdir().expect("a directory");
    let rms = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_rms")).args(arguments).output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    for shell in ["bash", "zsh", "fish"] {
        let script = rms(&["completion", shell]);
        assert!(script.contains("negotiations") && script.contains("cpus-per-task"), "{shell}: {script}");
    }
    rms(&["man", dir.path().to_str().expect("text")]);
    for (page, says) in
        [("rms.1", "rms up"), ("rms-submit.1", "cpus\\-per\\-task"), ("rms-admin-set.1", "rms admin set")]
    {
        let text = std::fs::read_to_string(dir.path().join(page)).expect(page);
        assert!(text.contains(says), "{page}: {text}");
    }
}

/// A lock that the caller of `rms up` holds must not be held by the cluster.
#[test]
fn the_processes_of_a_cluster_inherit_the_standard_streams_alone() {
    let script =
        "exec 8>/dev/null; exec \"$1\" detach sh -c 'for fd in 0 1 2 8; do [ -e /proc/self/fd/$fd ] && echo $fd; done'";
    let output = Command::new("sh").args(["-c", script, "sh", env!("CARGO_BIN_EXE_rms")]).output().expect("sh starts");
    assert_eq!(text(&output.stdout), "0\n1\n2\n", "{}", text(&output.stderr));
}
