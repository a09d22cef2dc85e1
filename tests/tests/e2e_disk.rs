//! The server's disk is full, read-only, damaged: nothing is promised that is not kept, and it says what is wrong.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::Duration;

use test_kit::{Deployment, Output, SmallDisk, binaries, wait_until};

const SOON: Duration = Duration::from_secs(30);

fn run_server(deployment: &Deployment) -> Output {
    let mut run = Command::new("timeout");
    run.arg("20").arg(&binaries().server).arg("run").arg("--dir").arg(deployment.server_dir());
    run.args(["--listen", "127.0.0.1:0"]);
    deployment.finish(run)
}

#[test]
fn long_a_full_disk_is_said_and_what_was_promised_is_kept() {
    let Some(disk) = SmallDisk::of_mib(16) else { return };
    let mut deployment = Deployment::builder().cluster("a", 1).server_dir(&disk.path().join("server")).start();
    let running = deployment.submit(&["--wrap", "sleep 5; exit 9"]);
    deployment.wait_for_state(running, "started");
    // Scripts large enough that no slack in the journal takes them.
    let script = deployment.script("big.sh", &format!("#!/bin/sh\n#RMS --hold\n#{}\ntrue\n", "x".repeat(200_000)));
    let mut promised = BTreeSet::from([deployment.submit(&[&script])]);
    let filler = disk.fill();
    let refused = loop {
        let output = deployment.rms(&["submit", "--json", &script]);
        if output.code != 0 {
            break output;
        }
        promised.insert(output.json()["job"].as_u64().expect("an id"));
        assert!(promised.len() < 100, "the disk does not fill");
    };
    let message = refused.fails(1).json()["error"]["message"].as_str().expect("a text").to_owned();
    assert!(message.contains("journal") && (message.contains("full") || message.contains("space")), "{message}");
    // It goes on saying so, at once, and the running job does not care.
    let again = deployment.rms(&["submit", &script]).fails(1);
    assert!(again.stderr.contains("journal"), "{again:?}");
    // Who waits for it needs no history.
    deployment.rms(&["wait", &running.to_string(), "--timeout", "500ms"]).fails(124);
    let waiting = promised.first().expect("a job").to_string();
    let explained = deployment.rms(&["explain", &waiting]).ok().stdout;
    assert!(explained.contains("no job starts now"), "{explained}");
    let listed = deployment.rms(&["queue"]).ok();
    assert!(listed.stderr.contains("no job starts now"), "{listed:?}");
    std::thread::sleep(Duration::from_secs(5));
    let waited = deployment.rms(&["wait", &running.to_string(), "--timeout", "1s"]);
    let is_unread = waited.code == 124 && waited.stderr.contains("how it ended cannot be read now");
    // It is in the history if that had some room left.
    assert!(is_unread || waited.code == 9, "{waited:?}");
    assert!(!waited.stderr.contains("they go on"), "{waited:?}");

    fs::remove_file(filler).expect("ours");
    wait_until("the server to take jobs again", SOON, || {
        let output = deployment.rms(&["submit", "--hold", "--json", "--wrap", "true"]);
        (output.code == 0).then(|| promised.insert(output.json()["job"].as_u64().expect("an id")))
    });
    let record = deployment.wait_for_end(running);
    assert_eq!(record["outcome"]["code"], 9, "its end was not lost: {record}");
    let kept = |deployment: &Deployment| {
        let queue = deployment.rms(&["queue", "--json"]).ok().json();
        let jobs = queue["jobs"].as_array().expect("a list").iter();
        jobs.filter_map(|line| line["job"].as_u64()).collect::<BTreeSet<u64>>()
    };
    let before = kept(&deployment);
    assert!(before.is_superset(&promised), "{promised:?} were promised, {before:?} are there");
    // What was under way when the disk filled may come true after all, and whoever asked for it was told so.
    let n_unpromised = before.difference(&promised).count();
    assert!(n_unpromised == 0 || message.contains("may still take effect"), "{message}");
    assert!(n_unpromised <= 1 && !again.stderr.contains("may still"), "{again:?}");
    deployment.kill_server();
    deployment.start_server();
    assert_eq!(kept(&deployment), before);
    drop(deployment);
}

#[test]
fn a_server_that_starts_on_a_full_disk_waits_for_room_and_says_so() {
    let Some(disk) = SmallDisk::of_mib(16) else { return };
    let mut deployment = Deployment::builder().cluster("a", 1).server_dir(&disk.path().join("server")).start();
    let job = deployment.submit(&["--hold", "--wrap", "true"]);
    deployment.kill_server();
    let filler = disk.fill();
    let log = deployment.path().join("server.log");
    let room = std::thread::spawn(move || {
        // It may have had enough in reserve.
        wait_until("the server to serve, or to say that it waits", SOON, || {
            let said = fs::read_to_string(&log).ok()?;
            (said.contains("the disk is full; free some space") || said.matches("serving").count() == 2).then_some(())
        });
        fs::remove_file(filler).expect("ours");
    });
    deployment.start_server();
    room.join().expect("it said so");
    assert!(deployment.queued(job).is_some(), "what it had promised is kept");
    drop(deployment);
}

#[test]
fn a_disk_that_cannot_be_written_stops_the_server_with_its_name() {
    let Some(disk) = SmallDisk::of_mib(16) else { return };
    let mut deployment = Deployment::builder().server_dir(&disk.path().join("server")).start();
    deployment.kill_server();
    disk.remount("ro");
    let said = run_server(&deployment).fails(1).stderr;
    assert!(said.contains(&*disk.path().join("server").to_string_lossy()) && said.contains("ead-only"), "{said}");
    disk.remount("rw");
    deployment.start_server();
    deployment.rms(&["queue"]).ok();
    drop(deployment);
}

#[test]
fn a_missing_or_damaged_journal_is_named_and_left_alone() {
    let mut deployment = Deployment::of_nodes(1);
    for _ in 0..3 {
        deployment.submit(&["--hold", "--wrap", "true"]);
    }
    deployment.kill_server();
    let journal = deployment.server_dir().join("journal");
    let log = journal.join("log.1");
    let away = deployment.server_dir().join("away");

    fs::rename(&journal, &away).expect("ours");
    let said = run_server(&deployment).fails(1).stderr;
    assert!(said.contains("journal"), "{said}");
    assert!(!journal.exists(), "no empty journal takes the place of a lost one");
    fs::rename(&away, &journal).expect("ours");

    let whole = fs::read(&log).expect("it is there");
    let mut garbled = whole.clone();
    garbled.iter_mut().skip(4096).for_each(|byte| *byte = 0xA5);
    for damaged in [&b""[..], b"this is no log, but it is long enough to be looked at", &whole[..5000], &garbled] {
        fs::write(&log, damaged).expect("ours");
        let said = run_server(&deployment).fails(1).stderr;
        assert!(said.contains("log.1"), "{said}");
        assert_eq!(fs::read(&log).expect("it is there"), damaged, "it is left for whoever can repair it");
    }
    fs::write(&log, &whole).expect("ours");
    deployment.start_server();
    assert_eq!(deployment.rms(&["queue", "--json"]).ok().json()["jobs"].as_array().map(Vec::len), Some(3));
}

#[test]
fn credentials_that_are_missing_or_mixed_up_are_named() {
    let mut deployment = Deployment::builder().start();
    deployment.kill_server();
    let dir = deployment.server_dir().to_path_buf();
    let check = |path: &str, with: Option<&[u8]>| {
        let path = dir.join(path);
        let whole = fs::read(&path).expect("it is there");
        match with {
            Some(bytes) => fs::write(&path, bytes).expect("ours"),
            None => fs::remove_file(&path).expect("ours"),
        }
        let said = run_server(&deployment).fails(1).stderr;
        fs::write(&path, whole).expect("ours");
        said
    };
    for path in ["ca/ca.pem", "ca/ca.key", "server/cert.pem", "server/key.pem"] {
        let said = check(path, None);
        assert!(said.contains(path), "without {path}: {said}");
        let said = check(path, Some(b"nonsense"));
        assert!(!said.contains("panicked"), "with nonsense in {path}: {said}");
    }
    let other = fs::read(dir.join("admin/key.pem")).expect("it is there");
    let said = check("server/key.pem", Some(&other));
    assert!(said.contains("do not belong together"), "{said}");
    deployment.start_server();
}

/// A node that takes every job and starts none would swallow the whole queue.
#[test]
fn long_a_node_whose_spool_was_deleted_makes_a_new_one_and_runs_jobs() {
    let deployment = Deployment::of_nodes(1);
    let (begun, spared) = (deployment.path().join("begun"), deployment.path().join("spared"));
    let script = format!("touch {}; sleep 1; touch {}", begun.display(), spared.display());
    let running = deployment.submit(&["--wrap", &script]);
    wait_until("the script to begin", SOON, || begun.exists().then_some(()));
    fs::remove_dir_all(deployment.agent_dir("a1").join("spool")).expect("it is there");
    deployment.wait_for_end(running);
    assert!(spared.exists(), "what runs is not ended by that");
    let after = deployment.rms(&["run", "echo", "here"]);
    assert_eq!((after.code, after.stdout.as_str()), (0, "here\n"), "{}", after.stderr);
    let log = deployment.log_text("a1");
    assert!(log.contains("the spool was deleted; created it again"), "{log}");
}

#[test]
fn long_a_job_that_ends_on_a_full_node_without_an_agent_keeps_its_result() {
    let Some(disk) = SmallDisk::of_mib(16) else { return };
    let mut deployment = Deployment::with_node_on(&disk);
    let (begun, go) = (deployment.path().join("begun"), deployment.path().join("go"));
    let script = format!("touch {}; while [ ! -e {} ]; do sleep 0.1; done; exit 3", begun.display(), go.display());
    let job = deployment.submit(&["--wrap", &script]);
    wait_until("the job to begin", SOON, || begun.exists().then_some(()));

    deployment.kill_agent("a1");
    disk.fill();
    fs::write(&go, "").expect("it is on another disk");
    std::thread::sleep(Duration::from_secs(1));
    deployment.restart_agent("a1");
    let outcome = deployment.wait_for_end(job)["outcome"].clone();
    assert_eq!((&outcome["word"], &outcome["code"]), (&"failed".into(), &3.into()), "{outcome}");
    drop(deployment);
}

#[test]
fn long_a_node_with_a_read_only_spool_stays_drained_until_it_can_be_written() {
    let Some(disk) = SmallDisk::of_mib(16) else { return };
    let deployment = Deployment::with_node_on(&disk);
    let state = || deployment.rms(&["nodes", "--json"]).ok().json()["nodes"][0].clone();
    disk.cover_read_only();
    let drained = wait_until("the node to drain itself", SOON, || {
        let node = state();
        node.to_string().contains("read-only").then_some(node)
    });
    assert!(drained.to_string().contains("remount"), "it says what to do: {drained}");
    let job = deployment.submit(&["--requeue", "--wrap", "exit 4"]);
    std::thread::sleep(Duration::from_secs(5));
    assert_ne!(deployment.queued(job).expect("it waits")["state"], "started", "no run is used up");
    disk.uncover();
    let record = deployment.wait_for_end(job);
    assert_eq!((&record["outcome"]["code"], &record["run"]), (&4.into(), &1.into()), "{record}");
    drop(deployment);
}
