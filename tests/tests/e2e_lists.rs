//! Lists are filtered, sorted and cut by the server: of what is in the system, of nodes, and of what has ended.

use serde_json::Value;
use test_kit::Deployment;

fn ids(deployment: &Deployment, arguments: &[&str]) -> Vec<u64> {
    let printed = deployment.rms(&[arguments, &["-q"]].concat()).ok().stdout;
    printed.lines().map(|line| line.parse().expect("a bare id")).collect()
}

fn names(deployment: &Deployment, arguments: &[&str]) -> Vec<String> {
    deployment.rms(&[arguments, &["-q"]].concat()).ok().stdout.lines().map(str::to_owned).collect()
}

#[test]
fn a_queue_shows_what_was_asked_for_in_the_order_that_was_asked_for() {
    let deployment = Deployment::of_nodes(2);
    let held = |name: &str, priority: &str| {
        deployment.submit(&["--hold", "-t", "10m", "-J", name, "--priority", priority, "--wrap", "true"])
    };
    let (low, high, other) = (held("cfd", "-9"), held("cfd", "-1"), held("nbody", "-5"));
    let runs = deployment.submit(&["-t", "10m", "-J", "cfd", "--wrap", "sleep 600"]);
    deployment.wait_for_state(runs, "started");
    assert_eq!(ids(&deployment, &["queue", "--name", "cfd", "--sort", "job"]), [low, high, runs]);
    assert_eq!(ids(&deployment, &["queue", "-t", "held", "--sort=-priority"]), [high, other, low]);
    assert_eq!(ids(&deployment, &["queue", "-t", "held", "--sort=-priority", "--limit", "2"]), [high, other]);
    assert_eq!(ids(&deployment, &["queue", "-t", "started", "--me"]), [runs]);
    assert_eq!(ids(&deployment, &["queue", "--user", "nobody-of-that-name"]), Vec::<u64>::new());
    assert_eq!(ids(&deployment, &["queue", "--since", "+1h"]), Vec::<u64>::new());
    let shown: Value = deployment.rms(&["show", "--name", "nbody", "--json"]).ok().json();
    assert_eq!(shown["jobs"][0]["job"], other, "{shown}");
    for (wrong, known) in [("--sort=colour", "priority"), ("--state=asleep", "waiting")] {
        let refused = deployment.rms(&["queue", wrong]).fails(2);
        assert!(refused.stderr.contains(known), "{refused:?}");
    }
}

#[test]
fn nodes_and_the_history_are_filtered_and_cut_too() {
    let deployment = Deployment::of_nodes(2);
    let first = deployment.submit(&["-t", "1m", "-J", "one", "--wrap", "true"]);
    deployment.wait_for_end(first);
    let second = deployment.submit(&["-t", "1m", "-J", "two", "--wrap", "false"]);
    deployment.wait_for_end(second);
    assert_eq!(ids(&deployment, &["history", "--sort", "job"]), [first, second]);
    assert_eq!(ids(&deployment, &["history", "--name", "two"]), [second]);
    assert_eq!(ids(&deployment, &["history", "--state", "completed"]), [first]);
    assert_eq!(ids(&deployment, &["history", "--limit", "1"]), [second], "the newest first");
    let runs = deployment.submit(&["-t", "10m", "--wrap", "sleep 600"]);
    deployment.wait_for_state(runs, "started");
    assert_eq!(names(&deployment, &["nodes"]).len(), 2);
    assert_eq!(names(&deployment, &["nodes", "--me"]).len(), 1);
    assert_eq!(names(&deployment, &["nodes", "--sort=-jobs", "--limit", "1"]), names(&deployment, &["nodes", "--me"]));
    assert_eq!(names(&deployment, &["nodes", "--state", "drained"]), Vec::<String>::new());
}
