//! A cluster's own past, run again: what the history says beside what the replay gives, and what it leaves out.

use std::time::Duration;

use test_kit::{Deployment, wait_until};

#[test]
fn long_a_replay_stands_beside_what_really_happened() {
    let deployment = Deployment::of_nodes(2);
    // The second waits for the first, the third for the second; one is cancelled as it waits, one while it runs.
    let jobs: Vec<u64> = (0..3).map(|_| deployment.submit(&["-N", "2", "-t", "1m", "--wrap", "sleep 1.5"])).collect();
    let waiting = deployment.submit(&["-N", "2", "-t", "1m", "--wrap", "true"]).to_string();
    deployment.rms(&["cancel", &waiting]).ok();
    jobs.iter().for_each(|job| drop(deployment.wait_for_end(*job)));
    let cancelled = deployment.submit(&["-t", "1m", "--wrap", "sleep 600"]);
    deployment.wait_for_state(cancelled, "started");
    deployment.rms(&["cancel", &cancelled.to_string()]).ok();
    deployment.wait_for_end(cancelled);
    let running = deployment.submit(&["-t", "10m", "--wrap", "sleep 600"]);
    deployment.wait_for_state(running, "started");

    let journal = deployment.server_dir().display().to_string();
    let replay = |form: &[&str]| deployment.rms(&[&["sim", "replay", &journal], form].concat());
    // The history is written behind the log.
    let found = wait_until("four jobs in the past", Duration::from_secs(10), || {
        Some(replay(&["--json"]).ok().json()).filter(|found| found["jobs"] == 4)
    });
    assert_eq!(found["real"]["jobs"], 4, "{found}");
    let skipped = &found["not_compared"];
    for (what, count) in [
        ("cancelled_before_start", 1),
        ("cancelled_while_running", 1),
        ("still_running", 1),
        ("still_waiting", 0),
        ("resized", 0),
    ] {
        assert_eq!(skipped[what], count, "{what}: {found}");
    }
    // What the history says of each job, added up by hand.
    let time = |job: u64, what: &str| {
        let record = deployment.record(job).expect("it is history");
        let text = record[what].as_str().expect("a time").to_owned();
        text.parse::<jiff::Timestamp>().expect("ISO 8601").as_millisecond() as f64 / 1000.0
    };
    let all = [jobs[0], jobs[1], jobs[2], cancelled];
    let mean_wait = all.iter().map(|job| time(*job, "started") - time(*job, "submitted")).sum::<f64>() / 4.0;
    let near = |value: &serde_json::Value, expected: f64| (value.as_f64().expect("a number") - expected).abs() < 0.002;
    assert!(near(&found["real"]["mean_wait_s"], mean_wait), "{mean_wait}: {found}");
    let begin = all.iter().map(|job| time(*job, "submitted")).fold(f64::INFINITY, f64::min);
    let end = all.iter().map(|job| time(*job, "ended")).fold(0.0, f64::max);
    assert!(near(&found["real"]["makespan_s"], end - begin), "{found}");
    let replayed = found["mean_wait_s"].as_f64().expect("a number");
    assert!(near(&found["difference"]["mean_wait_s"], replayed - mean_wait), "{found}");
    assert!((replayed - mean_wait).abs() < 1.0, "the same settings tell nearly the same story: {found}");
    let starts = &found["starts"];
    let n_starts = ["earlier", "later", "alike"].iter().filter_map(|which| starts[which].as_u64()).sum::<u64>();
    assert_eq!(n_starts, 4, "{found}");

    let shown = replay(&[]).ok().stdout;
    let flat = shown.replace('\n', " ");
    for words in ["REAL", "REPLAY", "DIFFERENCE", "1 cancelled before they started", "1 still running"] {
        assert!(flat.contains(words), "'{words}': {shown}");
    }
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    // Fewer jobs at once: the replay starts somebody later than he did.
    let other = replay(&["--set", "resched_timer=30s", "--json"]).ok().json();
    assert!(other["difference"]["mean_wait_s"].as_f64() > Some(5.0), "{other}");
    assert_eq!(other["real"], found["real"], "the past stays as it was");
}
