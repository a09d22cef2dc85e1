//! Jobs that would have to wait begin on CPUs that running ones lend, and these have them back (004).

use std::fs;
use std::time::Duration;

use rms_tests::harness::{Deployment, NodeOptions, wait_until};

const SOON: Duration = Duration::from_secs(60);

/// One node that counts two cores. The machine needs two CPUs for what is tested here.
fn deployment(allocation: &str) -> Deployment {
    let node = NodeOptions::new("a", "a1").with(&["--topology", "pack:1 core:2 pu:1"]);
    let settings = "[settings]\nresched_timer = \"50ms\"\nkill_grace = \"1s\"\npolicy = \"slowdown\"\n\
                    max_slowdown = \"infinite\"\n";
    let deployment = Deployment::builder().node(node).config(settings).start();
    deployment.rms(&["admin", "set", "allocation", allocation]).ok();
    deployment
}

/// A job that tells its process, and ends when a file of its name appears.
fn submit(deployment: &Deployment, name: &str, arguments: &[&str]) -> u64 {
    let dir = deployment.path().display();
    let text = format!(
        "#!/bin/sh\ncd {dir}\necho $$ > {name}.draft\nmv {name}.draft {name}.pid\n\
         while [ ! -e {name}.end ]; do sleep 0.1; done\n"
    );
    let script = deployment.script(&format!("{name}.sh"), &text);
    deployment.submit(&[&["-N", "1"], arguments, &[&script]].concat())
}

fn pid(deployment: &Deployment, name: &str) -> u32 {
    let path = deployment.path().join(format!("{name}.pid"));
    let text = wait_until(&format!("job {name}"), SOON, || fs::read_to_string(&path).ok());
    text.trim().parse().expect("a number")
}

fn end(deployment: &Deployment, name: &str, job: u64) {
    fs::write(deployment.path().join(format!("{name}.end")), "").expect("a file");
    assert_eq!(deployment.wait_for_end(job)["outcome"]["word"], "completed");
}

fn allowed(pid: u32) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(list.trim().to_owned())
}

/// Waits until a process may run there, and nowhere else.
fn wait_for_cpus(pid: u32, cpus: &str) {
    wait_until(&format!("process {pid} on CPUs {cpus}"), SOON, || allowed(pid).filter(|list| list == cpus));
}

fn show(deployment: &Deployment, job: u64) -> serde_json::Value {
    let text = deployment.rms(&["show", "--json", &job.to_string()]).ok().stdout;
    let shown: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    shown.as_array().and_then(|jobs| jobs.first()).cloned().unwrap_or(shown)
}

fn lends_and_has_back(allocation: &str) {
    let mut deployment = deployment(allocation);
    let owner = submit(&deployment, "owner", &["--share", "-n", "1", "-c", "2", "-t", "10m"]);
    let owner_pid = pid(&deployment, "owner");
    let all = allowed(owner_pid).expect("it runs");
    let guest = submit(&deployment, "guest", &["--share", "-n", "1", "-c", "2", "-t", "1m"]);
    let guest_pid = pid(&deployment, "guest");
    let of_owner = allowed(owner_pid).expect("it runs");
    let of_guest = allowed(guest_pid).expect("it runs");
    assert!(of_owner != of_guest && of_owner != all && of_guest != all, "{all}: {of_owner} and {of_guest}");
    let shown = show(&deployment, owner);
    assert_eq!(shown["sharing"]["lent"][0]["job"], guest, "{shown}");
    assert_eq!(show(&deployment, guest)["sharing"]["borrowed"][0]["node"], "a1");

    // Whoever is killed, each keeps to its own.
    deployment.kill_agent("a1");
    deployment.kill_server();
    deployment.start_server();
    deployment.restart_agent("a1");
    deployment.wait_for_state(guest, "started");
    assert_eq!((allowed(owner_pid), allowed(guest_pid)), (Some(of_owner), Some(of_guest)));

    end(&deployment, "guest", guest);
    wait_for_cpus(owner_pid, &all);
    let ended = show(&deployment, guest);
    assert!(ended["cpu_time_borrowed_s"].as_f64().is_some_and(|secs| secs > 0.0), "{ended}");
    end(&deployment, "owner", owner);
    let ended = show(&deployment, owner);
    assert!(ended["cpu_time_lent_s"].as_f64().is_some_and(|secs| secs > 0.0), "{ended}");
}

#[test]
fn an_owner_of_a_node_lends_cpus_and_has_them_back() {
    lends_and_has_back("nodes");
}

#[test]
fn an_owner_of_cores_lends_some_and_has_them_back() {
    lends_and_has_back("cores");
}

#[test]
fn a_guest_whose_mate_ends_first_has_the_node() {
    let deployment = deployment("nodes");
    let owner = submit(&deployment, "owner", &["--share", "-t", "10m"]);
    let all = allowed(pid(&deployment, "owner")).expect("it runs");
    let guest = submit(&deployment, "guest", &["--share", "-t", "1m"]);
    let guest_pid = pid(&deployment, "guest");
    end(&deployment, "owner", owner);
    wait_for_cpus(guest_pid, &all);
    end(&deployment, "guest", guest);
}

#[test]
fn nobody_lends_who_did_not_say_so() {
    let deployment = deployment("nodes");
    let owner = submit(&deployment, "owner", &["-t", "10m"]);
    let owner_pid = pid(&deployment, "owner");
    let all = allowed(owner_pid);
    let guest = submit(&deployment, "guest", &["--share", "-t", "1m"]);
    deployment.wait_for_state(guest, "waiting");
    assert_eq!(allowed(owner_pid), all);
    end(&deployment, "owner", owner);
    pid(&deployment, "guest");
    end(&deployment, "guest", guest);
}

#[test]
fn what_cannot_be_shared_is_refused() {
    let deployment = deployment("nodes");
    let script = deployment.script("job.sh", "#!/bin/sh\n");
    let refused = |arguments: &[&str], code: i32| {
        deployment.rms(&[&["submit", "-N", "1"], arguments, &[&script]].concat()).fails(code).stderr
    };
    assert!(refused(&["--share", "--exclusive"], 2).contains("cannot be used with"));
    assert!(refused(&["--share", "--min-cpus-per-node", "3"], 1).contains("3 CPUs"));
    assert!(refused(&["--share", "--malleable", "1-2", "--negotiable"], 1).contains("lends no CPUs"));
}
