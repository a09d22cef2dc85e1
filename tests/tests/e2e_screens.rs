//! What people see on their screens: times in their own zone, tables as wide as the terminal, and why a job waits.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Duration;

use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use test_kit::{Deployment, Output, wait_until};

/// As somebody whose clock shows that zone.
fn rms_at(deployment: &Deployment, zone: &str, arguments: &[&str]) -> Output {
    let mut command = deployment.command(arguments);
    command.env("TZ", zone);
    deployment.finish(command)
}

#[test]
fn times_are_local_unless_utc_is_asked_for() {
    let deployment = Deployment::of_nodes(1);
    // Half an hour beside the whole ones, so that no zone of the machine is taken for it.
    let zone = "TST-05:30";
    let submit = |arguments: &[&str]| {
        let arguments = [&["submit", "-q"], arguments, &["--wrap", "true"]].concat();
        let id = rms_at(&deployment, zone, &arguments).ok().text().parse::<u64>();
        id.expect("a bare id").to_string()
    };
    let begin = |job: &str, flags: &[&str]| {
        let shown = rms_at(&deployment, zone, &[flags, &["show", "--json", job]].concat()).ok().json();
        shown["begin"].as_str().expect("it has a begin").to_owned()
    };
    let local = submit(&["--begin", "2031-07-01T08:00"]);
    assert_eq!(begin(&local, &[]), "2031-07-01T08:00:00.000+05:30");
    assert_eq!(begin(&local, &["--utc"]), "2031-07-01T02:30:00.000Z");
    let utc = submit(&["--utc", "--begin", "2031-07-01T08:00"]);
    assert_eq!(begin(&utc, &["--utc"]), "2031-07-01T08:00:00.000Z");
    let elsewhere = submit(&["--begin", "2031-07-01T08:00-04:00"]);
    assert_eq!(begin(&elsewhere, &["--utc"]), "2031-07-01T12:00:00.000Z");
    let script = deployment.script("later.sh", "#!/bin/sh\n#SBATCH --begin=2031-07-01T08:00:00 --time=30\n");
    let written = rms_at(&deployment, zone, &["submit", "-q", &script]).ok().text().to_owned();
    assert_eq!(begin(&written, &[]), "2031-07-01T08:00:00.000+05:30");
    let shown = rms_at(&deployment, zone, &["show", "--json", &written]).ok().json();
    assert_eq!(shown["request"]["wall_ms"], 1_800_000, "a bare number of sbatch is minutes");

    let explained = rms_at(&deployment, zone, &["explain", &local]).ok().stdout;
    assert!(explained.contains("2031-07-01T08:00:00+05:30"), "{explained}");
    let lost = rms_at(&deployment, "Nowhere/Atall", &["queue", "-q"]).ok();
    assert!(lost.stderr.contains("TZ='Nowhere/Atall' names no time zone"), "{lost:?}");
    let refused = deployment.rms(&["submit", "--begin", "+60", "--wrap", "true"]);
    assert!(refused.code != 0 && refused.stderr.contains("write 60s, 60m or 60h"), "{refused:?}");
}

/// What a command shows on a terminal of so many columns, its standard error, too.
fn on_terminal(deployment: &Deployment, columns: u16, arguments: &[&str]) -> String {
    let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = openpty(Some(&size), None).expect("a terminal");
    let mut command = deployment.command(arguments);
    let end = || Stdio::from(pty.slave.try_clone().expect("another end"));
    command.env_remove("COLUMNS").env_remove("LINES").env("TZ", "UTC").stdout(end()).stderr(end());
    let mut child = command.spawn().expect("it starts");
    drop(command);
    drop(pty.slave);
    let mut shown = Vec::new();
    // Where the last writer has gone, a terminal ends with an error.
    let _ = std::fs::File::from(pty.master).read_to_end(&mut shown);
    child.wait().expect("it ends");
    String::from_utf8(shown).expect("text")
}

#[test]
fn tables_fit_the_terminal_and_nothing_is_cut_elsewhere() {
    let deployment = Deployment::of_nodes(3);
    let name = "計算-with-a-name-that-is-much-too-long-for-any-column-of-a-terminal-of-eighty-columns";
    deployment.submit(&["-N", "3", "-J", name, "--wrap", "sleep 600"]);
    deployment.submit(&["-N", "2", "-J", name, "--wrap", "true"]);
    for arguments in [&["queue"][..], &["nodes"], &["negotiations"], &["history"], &["token", "list"], &["budget"]] {
        for columns in [40, 80, 200] {
            let shown = on_terminal(&deployment, columns, arguments);
            for line in shown.lines() {
                // Of the characters here, those of the name take two columns each.
                let width =
                    line.chars().map(|c| if ('\u{4e00}'..='\u{9fff}').contains(&c) { 2 } else { 1 }).sum::<u16>();
                assert!(width <= columns, "{arguments:?} at {columns}: {width} columns: {line}");
            }
        }
    }
    assert!(on_terminal(&deployment, 80, &["queue"]).contains('…'));
    assert!(on_terminal(&deployment, 80, &["queue"]).contains("START UTC"));
    assert!(on_terminal(&deployment, 80, &["--wide", "queue"]).contains(name));
    assert!(deployment.rms(&["queue"]).ok().stdout.contains(name));
}

#[test]
fn last_is_the_newest_job_though_an_older_one_runs() {
    let deployment = Deployment::of_nodes(2);
    let older = deployment.submit(&["-N", "1", "--wrap", "sleep 600"]);
    let newer = deployment.submit(&["-N", "1", "--wrap", "true"]);
    deployment.wait_for_end(newer);
    let last = |verb: &str| deployment.rms(&[verb, "last", "-q"]).ok().text().to_owned();
    assert_eq!((last("show"), last("explain")), (newer.to_string(), newer.to_string()));
    let refused = deployment.rms(&["cancel", "last"]);
    assert!(refused.stderr.contains(&newer.to_string()), "{refused:?}");
    assert_eq!(deployment.queued(older).expect("it runs on")["state"], "started");
}

#[test]
fn long_who_waits_for_a_run_is_told_why_and_until_when() {
    let deployment = Deployment::of_nodes(1);
    let first = deployment.submit(&["-N", "1", "-t", "10m", "--wrap", "sleep 4"]);
    let told = deployment.rms(&["run", "-N", "1", "-t", "1m", "true"]).ok();
    let why = format!("job {first} holds 1 until");
    assert!(told.stderr.contains("waits until about") && told.stderr.contains(&why), "{told:?}");
    let again = deployment.submit(&["-N", "1", "-t", "10m", "--wrap", "sleep 4"]);
    let quiet = deployment.rms(&["-q", "run", "-N", "1", "-t", "1m", "true"]).ok();
    assert!(quiet.stderr.is_empty(), "{quiet:?}");
    deployment.wait_for_end(again);
}

#[test]
fn long_a_server_that_says_nothing_holds_no_signal_back() {
    let deployment = Deployment::of_nodes(1);
    let busy = deployment.submit(&["-N", "1", "-t", "10m", "--wrap", "sleep 600"]).to_string();
    let mut waiting = deployment.command(&["run", "-N", "1", "-t", "1m", "true"]);
    let mut waiting = waiting.stderr(Stdio::piped()).stdin(Stdio::null()).spawn().expect("it starts");
    let (sender, said) = std::sync::mpsc::channel();
    let mut errors = waiting.stderr.take().expect("it is piped");
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(n) = errors.read(&mut bytes)
            && n > 0
        {
            let _ = sender.send(String::from_utf8_lossy(&bytes[..n]).into_owned());
        }
    });
    let mut seen = String::new();
    let mut until = |words: &str| {
        while !seen.contains(words) {
            let more = said.recv_timeout(Duration::from_secs(10));
            seen += &more.unwrap_or_else(|_| panic!("'{words}' is not said: {seen}"));
        }
    };
    let interrupt = |pid: u32| kill(Pid::from_raw(pid as i32), Signal::SIGINT).expect("it lives");
    until("waits until about");
    let server = Pid::from_raw(deployment.server_pid());
    kill(server, Signal::SIGSTOP).expect("it lives");
    interrupt(waiting.id());
    until("Ctrl-C again kills it");
    // Neither the question why it waits nor the order to end it has an answer.
    interrupt(waiting.id());
    until("gets KILL");
    kill(server, Signal::SIGCONT).expect("it lives");
    assert_eq!(waiting.wait().expect("it ends").code(), Some(130));
    deployment.rms(&["cancel", &busy]).ok();
}

#[test]
fn a_second_ctrl_c_kills_at_once_what_does_not_want_to_end() {
    let deployment = Deployment::of_nodes(1);
    deployment.rms(&["admin", "set", "kill_grace", "10m"]).ok();
    let mut run = deployment.command(&["run", "sh", "-c", "trap '' TERM; echo runs; sleep 600"]);
    let run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
    let mut run = run.spawn().expect("it starts");
    let mut first = [0; 5];
    run.stdout.as_mut().expect("it is piped").read_exact(&mut first).expect("its task writes");
    let interrupt = || kill(Pid::from_raw(run.id() as i32), Signal::SIGINT).expect("it lives");
    interrupt();
    let is_ending = || deployment.rms(&["queue", "--json"]).ok().stdout.contains("ending").then_some(());
    wait_until("the job to be ended", Duration::from_secs(10), is_ending);
    // The change to `ending` has to come to `rms run`, too.
    std::thread::sleep(Duration::from_millis(500));
    interrupt();
    let done = run.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.code() == Some(130) && said.contains("gets KILL"), "{said}");
    assert!(!said.contains("not all of its output"), "{said}");
}

#[test]
fn long_a_third_ctrl_c_leaves_a_job_whose_node_does_not_answer() {
    let mut deployment = Deployment::of_nodes(1);
    let mut run = deployment.command(&["run", "sh", "-c", "echo runs; sleep 600"]);
    let run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
    let mut run = run.spawn().expect("it starts");
    let mut first = [0; 5];
    run.stdout.as_mut().expect("it is piped").read_exact(&mut first).expect("its task writes");
    deployment.kill_agent("a1");
    for _ in 0..3 {
        kill(Pid::from_raw(run.id() as i32), Signal::SIGINT).expect("it lives");
        // It hears of what came of the last one.
        std::thread::sleep(Duration::from_secs(1));
    }
    let done = run.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.code() == Some(130) && said.contains("is still being ended"), "{said}");
    deployment.restart_agent("a1");
}

#[test]
fn what_was_promised_to_others_is_called_that() {
    let deployment = Deployment::of_nodes(2);
    deployment.rms(&["admin", "set", "policy", "conservative"]).ok();
    let wall = |mins: &str| deployment.submit(&["-N", "2", "-t", mins, "--wrap", "sleep 600"]);
    let (_runs, first, second) = (wall("10m"), wall("20m"), wall("30m"));
    deployment.wait_for_state(second, "waiting");
    let explained = deployment.rms(&["explain", &second.to_string()]).ok().stdout.replace('\n', " ");
    assert!(explained.contains(&format!("2 are promised to job {first}")), "{explained}");
    assert!(!explained.contains("planned before it"), "{explained}");
}

#[test]
fn a_refusal_names_the_term_and_a_list_the_end_of_what_is_asked_for() {
    let deployment = Deployment::of_nodes(2);
    let flags = ["-N", "1", "-t", "10m", "--malleable", "1-2", "--on-resize", "signal:USR1"];
    let submit = |more: &[&str]| deployment.submit(&[&flags[..], more].concat());
    let job = submit(&["--wrap", "trap '' USR1; while :; do sleep 1; done"]).to_string();
    deployment.wait_for_state(job.parse().expect("a number"), "started");
    // The idle node is offered to it.
    let held = wait_until("it to have both nodes", Duration::from_secs(10), || {
        let shown = deployment.rms(&["show", "--json", &job]).ok().json();
        let line = if shown["jobs"].is_array() { &shown["jobs"][0] } else { &shown };
        line["nodes"].as_array().map(Vec::len).filter(|held| *held == 2)
    });
    let refused = deployment.rms(&["negotiate", &job, "--shrink", &held.to_string()]);
    assert_eq!(refused.code, 1, "{refused:?}");
    let term = format!("nodes: {held} fewer proposed, at most {} of {held} allowed: its first node stays", held - 1);
    assert!(refused.stderr.contains("a policy forbids it") && refused.stderr.contains(&term), "{refused:?}");
    let story = deployment.rms(&["negotiations", &job]).ok().stdout;
    assert!(story.contains(&term), "{story}");
    let listed = deployment.rms(&["negotiations", &job, "--json"]).ok().json();
    let broken =
        listed["negotiations"].as_array().into_iter().flatten().filter_map(|line| line["broken_terms"].as_str());
    assert!(broken.into_iter().any(|broken| broken == format!("{term} to its end")), "{listed}");

    // The server asks for a node that does not come: the list says until when it waits for that.
    deployment.submit(&["-N", "1", "-t", "1m", "--wrap", "true"]);
    wait_until("the list to show it", Duration::from_secs(10), || {
        let shown = deployment.rms(&["--utc", "queue"]).ok().stdout;
        let line = shown.lines().find(|line| line.trim_start().starts_with(&job))?;
        line.contains(": -1 until ").then_some(())
    });
}

/// What the guide says of Ctrl-C: these commands end, the job goes on.
#[test]
fn ctrl_c_ends_who_looks_on_and_not_the_job() {
    let deployment = Deployment::of_nodes(1);
    let job = deployment.submit(&["-N", "1", "-t", "10m", "--wrap", "while :; do echo tick; sleep 0.2; done"]);
    deployment.wait_for_state(job, "started");
    let id = job.to_string();
    for arguments in [&["logs", "-f", &id][..], &["wait", &id], &["queue", "-w"]] {
        let mut command = deployment.command(arguments);
        let mut looking = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut output = looking.stdout.take().expect("it is piped");
        if arguments[0] != "wait" {
            output.read_exact(&mut [0; 1]).expect("it shows something");
        } else {
            std::thread::sleep(Duration::from_millis(500));
        }
        kill(Pid::from_raw(looking.id() as i32), Signal::SIGINT).expect("it lives");
        let ended = wait_until("its end", Duration::from_secs(5), || looking.try_wait().expect("it is ours"));
        drop(output);
        let is_by_ctrl_c = matches!((ended.code(), ended.signal()), (Some(0 | 130), None) | (None, Some(2)));
        assert!(is_by_ctrl_c, "{arguments:?}: {ended:?}");
        assert_eq!(deployment.queued(job).expect("it is listed")["state"], "started", "{arguments:?}");
    }
    deployment.rms(&["cancel", &id]).ok();
}

#[test]
fn sentences_are_broken_between_words_on_a_terminal() {
    let deployment = Deployment::of_nodes(2);
    let name = "計算-with-a-name-that-is-long";
    let submit =
        |mins: &str| deployment.submit(&["-N", "2", "-J", name, "-t", mins, "--wrap", "sleep 600"]).to_string();
    let (_, _, last) = (submit("10m"), submit("20m"), submit("30m"));
    for arguments in [&["explain", &last][..], &["show", &last], &["admin", "status"], &["token", "list"]] {
        let whole = deployment.rms(arguments).ok().stdout;
        let shown = on_terminal(&deployment, 80, arguments);
        for line in shown.lines() {
            // Two characters of the name take two columns each.
            let width = line.chars().count() + 2 * line.matches("計算").count();
            assert!(width <= 80, "{arguments:?}: {width} columns: {line}");
        }
        assert!(!shown.contains('…'), "nothing has to be cut: {shown}");
        let words = |text: &str| text.split_whitespace().count();
        assert!(words(&shown).abs_diff(words(&whole)) <= 2, "nothing is lost: {shown} {whole}");
    }
}
