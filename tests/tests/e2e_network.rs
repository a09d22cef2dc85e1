//! Three nodes with names and addresses of their own: jobs across them, and cables that are pulled.

use std::fs;
use std::time::Duration;

use rms_tests::network::Network;
use serde_json::Value;
use test_kit::{Deployment, NodeOptions, is_alive, wait_until};

const SOON: Duration = Duration::from_secs(40);

/// The server on node 0, the nodes `n1` and `n2` on the others. Fields drop in order: processes before nodes.
struct World {
    deployment: Deployment,
    network: Network,
}

impl World {
    fn start(config: &str) -> Option<World> {
        let network = Network::of_hosts(3)?;
        let enter = |node, name| network.enter(node, name);
        let words = |words: &[String]| words.iter().map(String::clone).collect::<Vec<_>>();
        let server = words(&enter(0, None));
        let server: Vec<&str> = server.iter().map(String::as_str).collect();
        let mut builder = Deployment::builder().server_at(network.ip(0), &server).config(config);
        for (node, name) in [(1, "n1"), (2, "n2")] {
            let wrapper = enter(node, Some(name));
            let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
            builder = builder.node(NodeOptions::new("a", name).wrapped(&wrapper));
        }
        Some(World { deployment: builder.start(), network })
    }

    fn node(&self, name: &str) -> Value {
        let nodes = self.deployment.rms(&["nodes", "--json"]).ok().json();
        let nodes = nodes["nodes"].as_array().expect("a list").clone();
        nodes.into_iter().find(|node| node["node"] == name).expect("it is known")
    }

    fn wait_for_node(&self, name: &str, state: &str) {
        wait_until(&format!("{name} to be {state}"), SOON, || (self.node(name)["state"] == state).then_some(()));
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.deployment.path().join(name)).unwrap_or_default()
    }
}

#[test]
fn jobs_span_nodes_that_have_their_own_names_and_addresses() {
    let Some(world) = World::start("") else { return };
    let output = world.deployment.rms(&["run", "-N", "2", "-n", "2", "sh", "-c", "echo $RMS_TASK_ID $(hostname)"]).ok();
    let mut lines: Vec<&str> = output.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0 n1", "1 n2"]);
    for (name, node) in [("n1", 1), ("n2", 2)] {
        let address = world.node(name)["address"].as_str().expect("a text").to_owned();
        assert!(address.starts_with(&format!("{}:", world.network.ip(node))), "{name} is told as {address}");
    }
    // From the first node of a job to the other, without ssh.
    let rsh = test_kit::binaries().dir.join("rms-rsh");
    let wrap = format!("{} n2 'hostname; id -u; exit 3'; echo code $?", rsh.display());
    let job = world.deployment.submit(&["-N", "2", "-o", "rsh.out", "--wrap", &wrap]);
    assert_eq!(world.deployment.wait_for_end(job)["outcome"]["word"], "completed");
    assert_eq!(world.text("rsh.out"), "n2\n0\ncode 3\n");
}

#[test]
fn long_a_cable_that_is_out_for_seconds_is_not_even_noticed() {
    let Some(world) = World::start("") else { return };
    let script = "for i in 1 2 3 4 5 6; do echo $i >> steps; sleep 1; done; exit 4";
    let job = world.deployment.submit(&["-N", "2", "--wrap", script]);
    wait_until("it to run", SOON, || world.text("steps").contains('2').then_some(()));
    world.network.connect(1, false);
    world.network.lose(2, 0, true);
    std::thread::sleep(Duration::from_secs(3));
    world.network.connect(1, true);
    world.network.lose(2, 0, false);
    let record = world.deployment.wait_for_end(job);
    assert_eq!((&record["outcome"]["code"], &record["run"]), (&4.into(), &1.into()), "{record}");
    assert_eq!(world.text("steps"), "1\n2\n3\n4\n5\n6\n");
    assert_eq!(world.node("n1")["state"], "idle");
}

#[test]
fn long_an_agent_whose_address_changes_stays_or_comes_back() {
    let Some(world) = World::start("") else { return };
    let job = world.deployment.submit(&["-N", "2", "--wrap", "sleep 3; exit 5"]);
    world.deployment.wait_for_state(job, "started");
    world.network.readdress(1);
    let record = world.deployment.wait_for_end(job);
    assert_eq!((&record["outcome"]["code"], &record["run"]), (&5.into(), &1.into()), "{record}");
    world.wait_for_node("n1", "idle");
    let output = world.deployment.rms(&["run", "-N", "2", "hostname"]).ok();
    assert!(output.stdout.contains("n1") && output.stdout.contains("n2"), "{output:?}");
}

#[test]
fn long_a_partition_that_heals_costs_nothing() {
    let Some(world) = World::start("") else { return };
    let job = world.deployment.submit(&["--wrap", "echo run >> runs; hostname > where; sleep 25; exit 6"]);
    wait_until("it to run", SOON, || world.text("where").contains('n').then_some(()));
    let name = world.text("where").trim().to_owned();
    let node = if name == "n1" { 1 } else { 2 };
    // One direction is enough to be away.
    world.network.lose(node, 0, true);
    world.wait_for_node(&name, "away");
    assert_eq!(world.deployment.queued(job).expect("it is kept")["state"], "started");
    world.network.lose(node, 0, false);
    wait_until("the node to be back", SOON, || (world.node(&name)["state"] != "away").then_some(()));
    let record = world.deployment.wait_for_end(job);
    assert_eq!((&record["outcome"]["code"], &record["run"]), (&6.into(), &1.into()), "{record}");
    assert_eq!(world.text("runs"), "run\n");
}

#[test]
fn long_a_partition_that_lasts_moves_the_job_and_fences_the_old_one() {
    let config = "[settings]\nnode_lost_after = \"2s\"\nlost_policy = \"requeue\"";
    let Some(world) = World::start(config) else { return };
    let script = "echo start $RMS_RUN $$ $(hostname) >> runs; sleep 1000";
    let job = world.deployment.submit(&["--requeue", "--wrap", script]);
    let fixed = world.deployment.submit(&["--wrap", "hostname >> fixed; sleep 1000"]);
    wait_until("both to run", SOON, || {
        (!world.text("runs").is_empty() && !world.text("fixed").is_empty()).then_some(())
    });
    let runs = world.text("runs");
    let words: Vec<&str> = runs.split_whitespace().collect();
    let (pid, name): (i32, &str) = (words[2].parse().expect("a pid"), words[3]);
    let node = if name == "n1" { 1 } else { 2 };

    world.network.connect(node, false);
    world.wait_for_node(name, "lost");
    let line = world.deployment.queued(job).expect("it waits again");
    assert_ne!(line["state"], "started", "the other node is taken: {line}");
    assert!(is_alive(pid), "nobody can end the first run yet");
    world.deployment.rms(&["cancel", &fixed.to_string()]).ok();
    wait_until("the second run", SOON, || world.text("runs").contains("start 2").then_some(()));

    world.network.connect(node, true);
    wait_until("the first run to be fenced", SOON, || (!is_alive(pid)).then_some(()));
    wait_until("its node to be back", SOON, || (world.node(name)["state"] == "idle").then_some(()));
    let line = world.deployment.queued(job).expect("the second run lives");
    assert_eq!((&line["state"], &line["run"]), (&"started".into(), &2.into()), "{line}");
    world.deployment.rms(&["cancel", &job.to_string()]).ok();
    let record = world.deployment.wait_for_end(job);
    assert_eq!((&record["outcome"]["word"], &record["run"]), (&"cancelled".into(), &2.into()), "{record}");
    assert_eq!(world.text("runs").matches("start").count(), 2);
}

#[test]
fn long_a_lost_node_fails_jobs_that_may_not_run_again() {
    let Some(world) = World::start("[settings]\nnode_lost_after = \"1s\"") else { return };
    let job = world.deployment.submit(&["-N", "2", "--wrap", "echo $$ > pid; sleep 1000"]);
    wait_until("it to run", SOON, || world.text("pid").ends_with('\n').then_some(()));
    world.network.connect(2, false);
    let record = world.deployment.wait_for_end(job);
    assert_eq!(record["outcome"]["word"], "node_lost", "{record}");
    assert!(record["outcome"].to_string().contains("n2"), "{record}");
    let pid: i32 = world.text("pid").trim().parse().expect("a pid");
    assert!(!is_alive(pid), "what could be reached was ended");
    world.network.connect(2, true);
    world.wait_for_node("n2", "idle");
}
