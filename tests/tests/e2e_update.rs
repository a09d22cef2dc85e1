//! What was said of a job is changed while it waits and while it runs, outlives the server, and is refused as a whole.

use serde_json::Value;
use test_kit::Deployment;

fn shown(deployment: &Deployment, job: u64) -> Value {
    deployment.rms(&["show", &job.to_string(), "--json"]).ok().json()
}

fn field(shown: &Value, key: &str) -> String {
    shown[key].as_str().map_or_else(|| shown[key].to_string(), str::to_owned)
}

#[test]
fn a_job_that_waits_is_changed_as_a_whole_and_outlives_the_server() {
    let mut deployment = Deployment::of_nodes(2);
    let script = deployment.script("job.sh", "#!/bin/sh\necho $RMS_NNODES $RMS_JOB_NAME\n");
    let job = deployment.submit(&["--hold", "-t", "10m", "-o", "out", &script]);
    let id = job.to_string();
    deployment.rms(&["update", &id, "time=+1h", "name=x", "account=y", "nodes=2", "priority=-3"]).ok();
    let check = |deployment: &Deployment| {
        let shown = shown(deployment, job);
        let told = ["name", "account", "priority"].map(|key| field(&shown, key));
        assert_eq!(told, ["x", "y", "-3"], "{shown}");
        let text = deployment.rms(&["show", &id]).ok().stdout;
        assert!(text.contains("1h10m") && text.contains("a:2"), "{text}");
    };
    check(&deployment);
    // One thing that is impossible, and nothing is changed.
    let refused = deployment.rms(&["update", &id, "name=z", "nodes=3", "time=1m"]).fails(1);
    assert!(refused.stderr.contains("cluster a has 2"), "{refused:?}");
    deployment.rms(&["update", &id, "name=z", "constraint=gpu"]).fails(1);
    let refused = deployment.rms(&["update", &id, "time=40000d"]).fails(1);
    assert!(refused.stderr.contains("longer than the longest allowed, 36600d"), "an admin's longest: {refused:?}");
    deployment.rms(&["update", &id, "name=z", "wings=2"]).fails(2);
    check(&deployment);
    deployment.kill_server();
    deployment.start_server();
    check(&deployment);
    deployment.rms(&["update", &id, "NumNodes=1", "hold=no"]).ok();
    let record = deployment.wait_for_end(job);
    assert_eq!((field(&record, "name"), field(&record, "account")), ("x".to_owned(), "y".to_owned()), "{record}");
    assert_eq!(record["nodes"].as_array().map(Vec::len), Some(1), "{record}");
}

#[test]
fn limits_a_profile_and_the_environment_are_changed_while_a_job_waits() {
    let mut deployment = Deployment::of_nodes(2);
    let script = deployment.script("job.sh", "#!/bin/sh\necho $RMS_NNODES $LEVEL$OLD\n");
    let job = deployment.submit(&["--hold", "-t", "10m", "--export", "ALL,OLD=1", "-o", "out", &script]);
    let id = job.to_string();
    let refused = deployment.rms(&["update", &id, "export=ALL,LEVEL=2", "profile=1x1m,3x1m"]).fails(1);
    assert!(refused.stderr.contains("2 in cluster a"), "what would be possible: {refused:?}");
    let refused = deployment.rms(&["update", &id, "malleable=2-8"]).fails(1);
    assert!(refused.stderr.contains("must learn that its nodes have changed"), "{refused:?}");
    deployment.rms(&["update", &id, "malleable=1-2", "on-resize=signal:USR1", "export=ALL,LEVEL=3"]).ok();
    let malleable = field(&shown(&deployment, job), "malleable");
    assert!(malleable.contains("\"most\":2"), "{malleable}");
    deployment.kill_server();
    deployment.start_server();
    deployment.rms(&["update", &id, "profile=2x1m"]).ok();
    let text = deployment.rms(&["show", &id]).ok().stdout;
    assert!(text.contains("2 x 1m") && !text.contains("malleable"), "{text}");
    deployment.rms(&["release", &id]).ok();
    assert_eq!(deployment.wait_for_end(job)["outcome"]["word"], "completed");
    let out = std::fs::read_to_string(deployment.path().join("out")).expect("it ran");
    assert_eq!(out, "2 3\n", "the old environment is gone, and the refused one never came");
}

#[test]
fn a_begin_time_is_put_off_and_taken_back() {
    let deployment = Deployment::of_nodes(1);
    let blocker = deployment.submit(&["-t", "10m", "--wrap", "sleep 600"]);
    let job = deployment.submit(&["-t", "1m", "--wrap", "true"]);
    let id = job.to_string();
    let refused = deployment.rms(&["update", &blocker.to_string(), "time=40000d"]).fails(1);
    assert!(refused.stderr.contains("longer than the longest allowed, 36600d"), "{refused:?}");
    deployment.rms(&["update", &id, "begin=now+1h"]).ok();
    assert_eq!(field(&shown(&deployment, job), "state"), "submitted");
    deployment.rms(&["cancel", &blocker.to_string()]).ok();
    deployment.rms(&["update", &id, "begin=now"]).ok();
    assert_eq!(deployment.wait_for_end(job)["outcome"]["word"], "completed");
}

#[test]
fn long_a_job_that_runs_is_given_more_time_which_outlives_the_server() {
    let mut deployment = Deployment::of_nodes(1);
    let longer = deployment.submit(&["-t", "4s", "--wrap", "sleep 8"]);
    let id = longer.to_string();
    deployment.wait_for_state(longer, "started");
    deployment.rms(&["update", &id, "time=+1m", "name=longer"]).ok();
    let refused = deployment.rms(&["update", &id, "nodes=1", "name=z"]).fails(1);
    assert!(refused.stderr.contains("while it runs"), "{refused:?}");
    deployment.rms(&["update", &id, "time=0s"]).fails(1);
    deployment.kill_server();
    deployment.start_server();
    let record = deployment.wait_for_end(longer);
    assert_eq!((&record["outcome"]["word"], &record["name"]), (&"completed".into(), &"longer".into()), "{record}");
    let shorter = deployment.submit(&["-t", "10m", "--wrap", "sleep 600"]);
    deployment.wait_for_state(shorter, "started");
    deployment.rms(&["update", &shorter.to_string(), "TimeLimit=3s"]).ok();
    assert_eq!(deployment.wait_for_end(shorter)["outcome"]["word"], "timeout");
}
