//! Jobs that would have to wait begin on CPUs that running ones lend, and these have them back (004).

use std::fs;
use std::time::Duration;

use rms_tests::openmp::{OpenMp, build_or_skip};
use test_kit::{Deployment, NodeOptions, wait_until};

const SOON: Duration = Duration::from_secs(60);

/// One node that counts two cores. The machine needs two CPUs for what is tested here.
fn deployment(allocation: &str) -> Deployment {
    deployment_of(allocation, "pack:1 core:2 pu:1")
}

fn deployment_of(allocation: &str, topology: &str) -> Deployment {
    let node = NodeOptions::new("a", "a1").with(&["--topology", topology]);
    let settings = "[settings]\nresched_timer = \"50ms\"\nkill_grace = \"1s\"\npolicy = \"slowdown\"\n\
                    max_slowdown = \"infinite\"\n";
    let deployment = Deployment::builder().node(node).config(settings).start();
    deployment.rms(&["admin", "set", "allocation", allocation]).ok();
    deployment
}

fn two_nodes() -> Deployment {
    let node = |name| NodeOptions::new("a", name).with(&["--topology", "pack:1 core:2 pu:1"]);
    let settings = "[settings]\nresched_timer = \"50ms\"\nkill_grace = \"1s\"\npolicy = \"slowdown\"\n\
                    max_slowdown = \"infinite\"\noffer_idle = \"never\"\n";
    Deployment::builder().node(node("a1")).node(node("a2")).config(settings).start()
}

/// A job that tells its process, and ends when a file of its name appears.
fn submit(deployment: &Deployment, name: &str, arguments: &[&str]) -> u64 {
    submit_on(deployment, name, 1, arguments)
}

fn submit_on(deployment: &Deployment, name: &str, n_nodes: u32, arguments: &[&str]) -> u64 {
    submit_with(deployment, name, &[&["-N", n_nodes.to_string().as_str()], arguments].concat())
}

fn submit_with(deployment: &Deployment, name: &str, arguments: &[&str]) -> u64 {
    let dir = deployment.path().display();
    let text = format!(
        "#!/bin/sh\ncd {dir}\necho $$ > {name}.draft\nmv {name}.draft {name}.pid\n\
         while [ ! -e {name}.end ]; do sleep 0.1; done\n"
    );
    let script = deployment.script(&format!("{name}.sh"), &text);
    deployment.submit(&[arguments, &[&script]].concat())
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

/// Lender and guest each run a step with as many tasks and CPUs as their jobs asked for.
fn steps_ask_for_all(allocation: &str, flags: &[&str], step: &str, expected: &str) {
    let deployment = deployment(allocation);
    let dir = deployment.path().display().to_string();
    let submit = |name: &str, wall: &str| {
        let text = format!(
            "#!/bin/sh\ncd {dir}\necho $$ > {name}.draft; mv {name}.draft {name}.pid\nuntil [ -e go ]; do sleep 0.1; done\n\
             {} run {step} sh -c 'echo $RMS_CPUS_PER_TASK' > {name}.step 2>&1\n\
             until [ -e guest.step ] && [ -e owner.step ]; do sleep 0.1; done\n",
            deployment.rms_program().display()
        );
        let script = deployment.script(&format!("{name}.sh"), &text);
        deployment.submit(&[&["-N", "1", "--share", "-t", wall], flags, &[&script]].concat())
    };
    let owner = submit("owner", "10m");
    let owner_pid = pid(&deployment, "owner");
    let all = allowed(owner_pid).expect("it runs");
    let guest = submit("guest", "1m");
    pid(&deployment, "guest");
    assert!(allowed(owner_pid).is_some_and(|cpus| cpus != all), "it has lent some of {all}");
    fs::write(deployment.path().join("go"), "").expect("a file");
    for (name, job) in [("owner", owner), ("guest", guest)] {
        deployment.wait_for_end(job);
        let told = fs::read_to_string(deployment.path().join(format!("{name}.step"))).expect("a file");
        assert_eq!(told, expected, "{name}");
    }
}

#[test]
fn steps_of_lender_and_guest_may_ask_for_what_their_jobs_asked_for() {
    steps_ask_for_all("cores", &["-n", "1", "-c", "2"], "-n 1 -c 2", "2\n");
}

#[test]
fn steps_of_jobs_that_asked_for_whole_nodes_may_ask_for_all_cpus_of_them() {
    steps_ask_for_all("nodes", &[], "-n 2", "1\n1\n");
}

/// Each of two tasks that are bound to a CPU of their own shares the one that is left while the other one is lent, and
/// has its own one back.
#[test]
fn tasks_that_are_bound_have_their_own_cpus_back() {
    let deployment = deployment("cores");
    let dir = deployment.path().display();
    let text = format!(
        "#!/bin/sh\ncd {dir}\nexec {} run -n 2 -c 1 sh -c 'echo $$ > t.$RMS_TASK_ID; mv t.$RMS_TASK_ID t$RMS_TASK_ID.pid; \
         until [ -e owner.end ]; do sleep 0.1; done'\n",
        deployment.rms_program().display()
    );
    let script = deployment.script("owner.sh", &text);
    let owner = deployment.submit(&["--share", "-n", "1", "-c", "2", "-t", "10m", &script]);
    let tasks = ["t0", "t1"].map(|task| pid(&deployment, task));
    let of_tasks = || tasks.map(|task| allowed(task).expect("it runs"));
    let first = of_tasks();
    assert_ne!(first[0], first[1], "each has one of its own");
    for guest in ["one", "other"] {
        let job = submit(&deployment, guest, &["--share", "-n", "1", "-c", "2", "-t", "1m"]);
        let of_guest = allowed(pid(&deployment, guest)).expect("it runs");
        let left = first.iter().find(|cpu| **cpu != of_guest).expect("one is left");
        tasks.iter().for_each(|task| wait_for_cpus(*task, left));
        end(&deployment, guest, job);
        tasks.iter().zip(&first).for_each(|(task, cpu)| wait_for_cpus(*task, cpu));
    }
    end(&deployment, "owner", owner);
}

/// Returns a number of a process, by its place behind the name and the state.
fn stat(pid: i64, place: usize) -> i64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let (_, rest) = stat.rsplit_once(')').expect("it has a name");
    rest.split_whitespace().nth(place).and_then(|number| number.parse().ok()).expect("a number")
}

/// Returns the CPU time that a process itself has used.
fn cpu_time(pid: i64) -> Duration {
    let ticks = stat(pid, 11) + stat(pid, 12);
    Duration::from_millis(10 * u64::try_from(ticks).expect("not negative"))
}

/// Returns the CPU time of looking once at each process that has ended and that nobody has waited for.
fn walk_over_the_dead() -> Duration {
    let is_dead = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "));
    let entries = fs::read_dir("/proc").expect("it is there").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let dead: Vec<i32> = pids.filter(is_dead).collect();
    let own = i64::from(std::process::id());
    let before = cpu_time(own);
    let n_seen = (0..4).map(|_| dead.iter().filter(|pid| is_dead(pid)).count()).sum::<usize>();
    assert!(n_seen > 1000, "the mate leaves thousands");
    (cpu_time(own) - before) / 4
}

#[test]
fn long_a_mate_that_forks_and_never_waits_costs_its_supervisor_little() {
    let deployment = deployment("nodes");
    let Some(program) = build_or_skip(OpenMp::Gnu, "unreaped") else { return };
    let owner = deployment.submit(&["-N", "1", "--share", "-t", "10m", "--wrap", &program.display().to_string()]);
    deployment.wait_for_state(owner, "started");
    // Thousands of dead children by then.
    std::thread::sleep(Duration::from_secs(8));
    let of_owner = masks(&deployment, &owner.to_string());
    let first = of_owner[0]["processes"][0]["pid"].as_i64().expect("it runs");
    let supervisor = stat(first, 1);
    // Not the time that it takes, which depends on what else the machine does, nor one on all machines.
    let walk = walk_over_the_dead();
    let before = cpu_time(supervisor);
    let guest = submit(&deployment, "guest", &["--share", "-t", "1m"]);
    pid(&deployment, "guest");
    // One walk, and eleven if the dead are moved, too.
    let used = cpu_time(supervisor) - before;
    assert!(used < 6 * walk, "its supervisor used {used:?} until the guest began; a walk takes {walk:?}");
    let walk = walk_over_the_dead();
    let before = cpu_time(supervisor);
    deployment.rms(&["cancel", &owner.to_string()]).ok();
    deployment.wait_for_end(owner);
    // Three, and more with a walk over the dead for each signal.
    let used = cpu_time(supervisor) - before;
    assert!(used < 6 * walk, "its supervisor used {used:?} to end; a walk takes {walk:?}");
    end(&deployment, "guest", guest);
}

#[test]
fn long_a_guest_lends_to_another_that_is_inside_the_owner_once_it_ends() {
    for allocation in ["nodes", "cores"] {
        // More cores than the machine may have: what is looked at is who has which of them.
        let mut deployment = deployment_of(allocation, "pack:1 core:8 pu:1");
        deployment.rms(&["admin", "set", "max_sharers", "3"]).ok();
        let share = |name: &str, wall: &str| {
            let job = submit(&deployment, name, &["--share", "-n", "1", "-c", "8", "-t", wall]);
            pid(&deployment, name);
            job
        };
        let (owner, guest, inner) = (share("owner", "60m"), share("guest", "20m"), share("inner", "5m"));
        let lender = |deployment: &Deployment, job| show(deployment, job)["sharing"]["borrowed"][0]["job"].clone();
        let cores = |deployment: &Deployment, job| show(deployment, job)["sharing"]["borrowed"][0]["cores"].clone();
        assert_eq!((lender(&deployment, guest), lender(&deployment, inner)), (owner.into(), guest.into()));
        assert_eq!(
            (cores(&deployment, guest), cores(&deployment, inner)),
            ("4-7".into(), "6-7".into()),
            "{allocation}"
        );

        deployment.kill_agent("a1");
        deployment.kill_server();
        deployment.start_server();
        deployment.restart_agent("a1");
        deployment.wait_for_state(guest, "started");
        end(&deployment, "guest", guest);
        assert_eq!(
            (lender(&deployment, inner), cores(&deployment, inner)),
            (owner.into(), "6-7".into()),
            "{allocation}"
        );
        assert_eq!(show(&deployment, owner)["sharing"]["lent"][0]["job"], inner);
        end(&deployment, "owner", owner);
        assert_eq!(lender(&deployment, inner), serde_json::Value::Null, "{allocation}: the node is its own");
        end(&deployment, "inner", inner);
    }
}

/// What `rms masks` tells of the jobs of node a1.
fn masks(deployment: &Deployment, of: &str) -> Vec<serde_json::Value> {
    let told = deployment.rms(&["masks", of, "--json"]).ok().json();
    let nodes = told["nodes"].as_array().expect("a list");
    assert_eq!((nodes.len(), &nodes[0]["node"], &nodes[0]["silent"]), (1, &"a1".into(), &serde_json::Value::Null));
    nodes[0]["jobs"].as_array().expect("a list").clone()
}

fn actual_of(job: &serde_json::Value, pid: u32) -> Option<&str> {
    job["processes"].as_array()?.iter().find(|process| process["pid"] == pid)?["actual"].as_str()
}

#[test]
fn masks_are_told_as_they_are_meant_and_as_they_are() {
    let deployment = deployment("nodes");
    let owner = submit(&deployment, "owner", &["--share", "-t", "10m"]);
    let owner_pid = pid(&deployment, "owner");
    let all = allowed(owner_pid).expect("it runs");
    let guest = submit(&deployment, "guest", &["--share", "-t", "1m"]);
    let guest_pid = pid(&deployment, "guest");
    let (of_owner, of_guest) = (allowed(owner_pid).expect("it runs"), allowed(guest_pid).expect("it runs"));

    let jobs = masks(&deployment, "a1");
    for (job, pid, cpus) in [(&jobs[0], owner_pid, &of_owner), (&jobs[1], guest_pid, &of_guest)] {
        assert_eq!((&job["intended"], &job["actual"]), (&cpus.as_str().into(), &cpus.as_str().into()), "{job}");
        assert_eq!(actual_of(job, pid), Some(cpus.as_str()), "{job}");
    }
    assert_eq!((&jobs[0]["lent"][0]["job"], &jobs[1]["borrowed"][0]["job"]), (&guest.into(), &owner.into()));
    assert_eq!(masks(&deployment, &owner.to_string())[0]["job"], owner);
    let text = deployment.rms(&["masks", "a1"]).ok().stdout;
    assert!(text.contains(&format!("job {owner} lends cores")) && text.contains("since"), "{text}");

    // Others see masks, and neither programs nor a way to set one.
    let bob = deployment.join_person("user", "bob");
    let by_bob = |arguments: &[&str]| deployment.finish(deployment.command_as(&bob, arguments));
    let seen = by_bob(&["masks", &owner.to_string(), "--json"]).ok().json();
    assert_eq!(seen["nodes"][0]["jobs"][0]["processes"][0]["program"], "", "{seen}");
    let (job, pid) = (owner.to_string(), owner_pid.to_string());
    let refused = |arguments: &[&str]| deployment.rms(arguments).fails(1).stderr;
    let by_another = by_bob(&["masks", &job, "--set", &of_owner, "--pid", &pid]).fails(1).stderr;
    assert!(by_another.contains("belongs to"), "{by_another}");

    // What cannot be is refused with what can.
    let elsewhere = refused(&["masks", &job, "--set", &of_guest, "--pid", &pid]);
    assert!(
        elsewhere.contains("not those of job") && elsewhere.contains(&format!("name some of {of_owner}")),
        "{elsewhere}"
    );
    let beyond = refused(&["masks", &job, "--set", "4000", "--pid", &pid]);
    assert!(beyond.contains("node a1 has no CPUs 4000") && beyond.contains(&of_owner), "{beyond}");
    let other_job = refused(&["masks", &job, "--set", &of_owner, "--pid", &guest_pid.to_string()]);
    assert!(other_job.contains("has no process") && other_job.contains(&format!("rms masks {job}")), "{other_job}");
    assert!(refused(&["masks", &job, "--set", &of_owner, "--task", "7"]).contains("no process of task 7"));
    let elsewhere = refused(&["masks", &job, "--set", &of_owner, "--pid", &pid, "--node", "b1"]);
    assert!(elsewhere.contains("it runs on a1"), "{elsewhere}");
    assert!(refused(&["masks", "999"]).contains("no job 999") && refused(&["masks", "b1"]).contains("no node 'b1'"));
    assert!(deployment.rms(&["masks", &job, "--set", "2-1", "--pid", &pid]).fails(2).stderr.contains("backwards"));
    assert_eq!(allowed(owner_pid), Some(of_owner.clone()));

    // With all CPUs of its own again, its process is put on one of them, and back.
    end(&deployment, "guest", guest);
    wait_for_cpus(owner_pid, &all);
    deployment.rms(&["masks", &job, "--set", &of_owner, "--pid", &pid]).ok();
    assert_eq!(allowed(owner_pid), Some(of_owner.clone()));
    let jobs = masks(&deployment, &job);
    assert_eq!((&jobs[0]["intended"], actual_of(&jobs[0], owner_pid)), (&all.as_str().into(), Some(of_owner.as_str())));
    deployment.rms(&["masks", &job, "--set", "all", "--pid", &pid]).ok();
    assert_eq!(allowed(owner_pid), Some(all));
    end(&deployment, "owner", owner);
    assert!(refused(&["masks", &job]).contains("no job"), "it has ended");
}

#[test]
fn long_masks_of_a_node_without_its_agent_are_told_as_they_are_meant() {
    let mut deployment = deployment("nodes");
    let owner = submit(&deployment, "owner", &["--share", "-t", "10m"]);
    let owner_pid = pid(&deployment, "owner").to_string();
    deployment.kill_agent("a1");
    let told = deployment.rms(&["masks", "a1", "--json"]).ok().json();
    let node = &told["nodes"][0];
    assert!(node["silent"].as_str().is_some_and(|reason| reason.contains("no answer from node a1")), "{told}");
    assert_eq!((&node["jobs"][0]["job"], &node["jobs"][0]["actual"]), (&owner.into(), &serde_json::Value::Null));
    let set = deployment.rms(&["masks", &owner.to_string(), "--set", "0", "--pid", &owner_pid]).fails(1).stderr;
    assert!(set.contains("no answer from node a1"), "{set}");
    deployment.restart_agent("a1");
    wait_until("the agent answers", SOON, || {
        let told = deployment.rms(&["masks", "a1", "--json"]).ok().json();
        told["nodes"][0]["jobs"][0]["actual"].is_string().then_some(())
    });
    end(&deployment, "owner", owner);
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

/// One after the other: what is lent is not negotiated about, and what is not lent is.
#[test]
fn a_malleable_job_lends_cpus_and_changes_its_size_when_it_has_them_back() {
    let deployment = two_nodes();
    let owner = submit_on(&deployment, "owner", 2, &["--share", "--malleable", "1-2", "--negotiable", "-t", "10m"]);
    let owner_pid = pid(&deployment, "owner");
    let all = allowed(owner_pid).expect("it runs");
    let guest = submit_on(&deployment, "guest", 2, &["--share", "-t", "1m"]);
    pid(&deployment, "guest");
    assert!(allowed(owner_pid).is_some_and(|cpus| cpus != all), "it has lent some of {all}");

    let job = owner.to_string();
    for change in [["--shrink", "1"], ["--shrink-cores", "1"], ["--extend", "5m"]] {
        let refused = deployment.rms(&[&["negotiate", &job][..], &change].concat()).fails(1).stderr;
        assert!(refused.contains("it lends or borrows CPUs at present (--share)"), "{refused}");
    }
    end(&deployment, "guest", guest);
    wait_for_cpus(owner_pid, &all);
    deployment.rms(&["negotiate", &job, "--shrink", "1"]).ok();
    assert_eq!(show(&deployment, owner)["nodes"], serde_json::json!(["a1"]));
    end(&deployment, "owner", owner);
}

#[test]
fn long_a_job_with_a_profile_lends_cpus_in_its_last_stage() {
    let deployment = two_nodes();
    let owner = submit_with(&deployment, "owner", &["--share", "--profile", "1x5s,2x10m"]);
    let owner_pid = pid(&deployment, "owner");
    let all = allowed(owner_pid).expect("it runs");
    let guest = submit_on(&deployment, "guest", 2, &["--share", "-t", "1m"]);
    assert_eq!(show(&deployment, owner)["stages"]["number"], 1);
    deployment.wait_for_state(guest, "waiting");
    pid(&deployment, "guest");
    assert_eq!(show(&deployment, owner)["stages"]["number"], 2);
    assert!(allowed(owner_pid).is_some_and(|cpus| cpus != all), "it has lent some of {all}");
    let refused = deployment.rms(&["evolve", &owner.to_string(), "--profile", "2x1m,1x1m"]).fails(1).stderr;
    assert!(refused.contains("it lends CPUs at present (--share)"), "{refused}");
    end(&deployment, "guest", guest);
    wait_for_cpus(owner_pid, &all);
    deployment.rms(&["evolve", &owner.to_string(), "--profile", "2x1m,1x1m"]).ok();
    end(&deployment, "owner", owner);
}

#[test]
fn what_cannot_be_shared_is_refused() {
    let deployment = deployment("nodes");
    let script = deployment.script("job.sh", "#!/bin/sh\n");
    let refused = |arguments: &[&str], code: i32| {
        deployment.rms(&[&["submit", "-N", "1"], arguments, &[&script]].concat()).fails(code).stderr
    };
    assert!(refused(&["--share", "--exclusive"], 2).contains("cannot be used with"));
    assert!(refused(&["--share", "--min-cpus-per-node", "3"], 1).contains("keeping 3 CPUs on each node"));
}
