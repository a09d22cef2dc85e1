//! Jobs share a node by its cores: each keeps to its own, whoever is killed.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use rms_tests::harness::{Deployment, NodeOptions, wait_until};

const SOON: Duration = Duration::from_secs(60);

/// A node that counts two cores. The machine needs two CPUs for what is tested here.
fn deployment() -> Deployment {
    let node = NodeOptions::new("a", "a1").with(&["--topology", "pack:1 core:2 pu:1"]);
    let settings = "[settings]\nresched_timer = \"50ms\"\nkill_grace = \"1s\"\n";
    let deployment = Deployment::builder().node(node).config(settings).start();
    deployment.rms(&["admin", "set", "allocation", "cores"]).ok();
    deployment
}

/// A job of so many tasks that says where it runs and what it was told, and runs on.
fn submit(deployment: &Deployment, name: &str, arguments: &[&str]) -> u64 {
    let text = format!(
        "#!/bin/sh\ncd {}\n{{ grep Cpus_allowed_list /proc/self/status | cut -f2\n\
         echo $RMS_CPUS_ON_NODE $SLURM_CPUS_ON_NODE\necho $(grep -v '^#' $RMS_HOSTFILE)\n\
         $OMPI_MCA_plm_rsh_agent a1 'grep Cpus_allowed_list /proc/self/status' | cut -f2\n\
         echo $$; }} > {name}.draft\nmv {name}.draft {name}\nexec sleep 600\n",
        deployment.path().display()
    );
    let script = deployment.script(&format!("{name}.sh"), &text);
    deployment.submit(&[&["-t", "10m", "--slurm-env"], arguments, &[&script]].concat())
}

struct Seen {
    cpus: String,
    pid: u32,
}

/// Waits for what the job of this name has seen: one core, in all that it was told.
fn seen(deployment: &Deployment, name: &str) -> Seen {
    let path = deployment.path().join(name);
    let text = wait_until(&format!("job {name}"), SOON, || fs::read_to_string(&path).ok());
    let [cpus, told, hostfile, remote, pid] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
    assert_eq!((told, hostfile, remote), ("1 1", "a1 slots=1", cpus), "{text}");
    Seen { cpus: cpus.to_owned(), pid: pid.parse().expect("a number") }
}

fn allowed(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.expect("a list").trim().to_owned()
}

#[test]
fn two_jobs_side_by_side_have_cores_of_their_own_and_a_third_waits() {
    let mut deployment = deployment();
    let jobs = ["one", "two"].map(|name| submit(&deployment, name, &["-n", "1"]));
    let [one, two] = ["one", "two"].map(|name| seen(&deployment, name));
    let cpus: BTreeSet<&str> = [&one, &two].map(|seen| &*seen.cpus).into();
    assert!(cpus.len() == 2 && cpus.iter().all(|cpu| cpu.parse::<u32>().is_ok()), "{cpus:?}");

    let third = submit(&deployment, "three", &["-n", "1"]);
    deployment.kill_agent("a1");
    deployment.restart_agent("a1");
    for (job, seen) in jobs.iter().zip([&one, &two]) {
        assert_eq!(allowed(seen.pid), seen.cpus);
        deployment.wait_for_state(*job, "started");
    }
    deployment.wait_for_state(third, "waiting");

    deployment.rms(&["cancel", &jobs[0].to_string()]).ok();
    let three = seen(&deployment, "three");
    assert_eq!(three.cpus, one.cpus, "what the first one had");
    assert_eq!(allowed(two.pid), two.cpus);
    for job in [jobs[1], third] {
        deployment.rms(&["cancel", &job.to_string()]).ok();
    }
}

#[test]
fn gpus_of_a_shared_node_are_given_once() {
    let options = ["--topology", "pack:1 core:8 pu:1", "--devices", "gpu:a100:2"];
    let node = NodeOptions::new("a", "a1").with(&options);
    let settings = "[settings]\nresched_timer = \"50ms\"\nkill_grace = \"1s\"\n";
    let deployment = Deployment::builder().node(node).config(settings).start();
    deployment.rms(&["admin", "set", "allocation", "cores"]).ok();
    let submit = |name: &str, arguments: &[&str]| {
        let text = format!(
            "#!/bin/sh\ncd {}\necho \"$RMS_GPUS/$CUDA_VISIBLE_DEVICES/${{ROCR_VISIBLE_DEVICES-unset}}\" > {name}.draft\n\
             mv {name}.draft {name}\nexec sleep 600\n",
            deployment.path().display()
        );
        let script = deployment.script(&format!("{name}.sh"), &text);
        deployment.submit(&[&["-t", "10m", "-n", "1"], arguments, &[&script]].concat())
    };
    let told = |name: &str| {
        let path = deployment.path().join(name);
        wait_until(&format!("job {name}"), SOON, || fs::read_to_string(&path).ok()).trim().to_owned()
    };
    let one = submit("one", &["--gpus-per-node", "1"]);
    let two = submit("two", &["--gpus", "a100:1"]);
    assert_eq!((told("one"), told("two")), ("0/0/0".to_owned(), "1/1/1".to_owned()));
    let three = submit("three", &["--gres", "gpu:1"]);
    let plain = submit("plain", &[]);
    assert_eq!(told("plain"), "//");
    deployment.wait_for_state(three, "waiting");
    deployment.rms(&["cancel", &two.to_string()]).ok();
    assert_eq!(told("three"), "1/1/1");
    let script = deployment.script("more.sh", "#!/bin/sh\n");
    let refused = deployment.rms(&["submit", "-n", "1", "--gpus-per-node", "3", &script]).fails(1);
    assert!(refused.stderr.contains("gpu:a100:2"), "{}", refused.stderr);
    for job in [one, three, plain] {
        deployment.rms(&["cancel", &job.to_string()]).ok();
    }
}
