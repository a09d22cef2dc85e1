//! What people see on their screens: times in their own zone, tables as wide as the terminal, and why a job waits.

use std::io::Read;
use std::process::Stdio;

use nix::pty::{Winsize, openpty};
use rms_tests::harness::{Deployment, Output};

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
    let refused = deployment.rms(&["submit", "--begin", "now+60", "--wrap", "true"]);
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
fn who_waits_for_a_run_is_told_why_and_until_when() {
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
