//! Jobs share a node by its cores: each keeps to its own, whoever is killed.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use rms_tests::apps::{Mpi, build};
use test_kit::{Deployment, NodeOptions, wait_until};

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

/// Prints the GPUs that a process was told.
const TOLD_GPUS: &str = "echo ${RMS_GPUS-unset}/${CUDA_VISIBLE_DEVICES-unset}/${ROCR_VISIBLE_DEVICES-unset}";

#[test]
fn a_step_is_told_no_gpu_that_its_job_has_given_back() {
    let options = ["--topology", "pack:1 core:8 pu:1", "--devices", "gpu:2"];
    let settings = "[settings]\nresched_timer = \"50ms\"\nkill_grace = \"1s\"\n";
    let deployment = Deployment::builder().node(NodeOptions::new("a", "a1").with(&options)).config(settings).start();
    deployment.rms(&["admin", "set", "allocation", "cores"]).ok();
    let text = format!(
        "cd {}\ntouch up\nwhile [ ! -e shrunk ]; do sleep 0.05; done\n{} run -n 1 sh -c '{TOLD_GPUS}'\n{TOLD_GPUS}\n",
        deployment.path().display(),
        deployment.rms_program().display()
    );
    let job = deployment.submit(&["-n", "1", "-t", "5m", "--gpus-per-node", "2", "-o", "told", "--wrap", &text]);
    wait_until("the job", SOON, || deployment.path().join("up").exists().then_some(()));
    deployment.rms(&["negotiate", &job.to_string(), "--shrink-gpus", "1"]).ok();
    fs::write(deployment.path().join("shrunk"), "").expect("written");
    let record = deployment.wait_for_end(job);
    let told = fs::read_to_string(deployment.path().join("told")).expect("its output");
    assert_eq!(record["outcome"]["word"], "completed", "{told}");
    assert_eq!(told, "0/0/0\n0,1/0,1/0,1\n", "its step, and the script, which began with both");
}

#[test]
fn no_process_of_a_job_on_several_nodes_is_told_the_gpus_of_others() {
    let node = |name| NodeOptions::new("a", name).with(&["--topology", "pack:1 core:8 pu:1", "--devices", "gpu:4"]);
    let settings = "[settings]\nresched_timer = \"50ms\"\nkill_grace = \"1s\"\n";
    let deployment = Deployment::builder().node(node("a1")).node(node("a2")).config(settings).start();
    deployment.rms(&["admin", "set", "allocation", "cores"]).ok();
    let other = ["-n", "1", "-t", "5m", "--gpus-per-node", "2", "--wrap", "sleep 600"];
    let other = deployment.submit(&other);
    deployment.wait_for_state(other, "started");
    let (rms, show) =
        (deployment.rms_program().display(), deployment.script("show.sh", &format!("#!/bin/sh\n{TOLD_GPUS}\n")));
    let mut text =
        format!("{show} > script; $OMPI_MCA_plm_rsh_agent a2 {show} > remote; {rms} run -N 2 -n 2 -l {show} > step\n");
    if let Some(mpirun) = Mpi::Mpich.mpirun() {
        text.push_str(&format!("{} -n 2 -ppn 1 {show} > mpich\n", mpirun.display()));
    }
    if let Some(mpirun) = Mpi::OpenMpi.mpirun() {
        let mpirun = format!("exec {} -n 2 --map-by node {show}", mpirun.display());
        text.push_str(&format!("{rms} run -N 1 -n 1 sh -c '{mpirun}' > openmpi\n"));
    }
    let text = format!("cd {}\n{text}", deployment.path().display());
    let options = ["-N", "2", "-n", "4", "-t", "5m", "--gpus-per-node", "2", "-o", "output", "--wrap", &text];
    let job = deployment.submit(&options);
    let record = deployment.wait_for_end(job);
    let output = fs::read_to_string(deployment.path().join("output")).expect("its output");
    assert_eq!(record["outcome"]["word"], "completed", "{output}");
    let told = |name: &str| {
        let text = fs::read_to_string(deployment.path().join(name)).unwrap_or_default();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    let mut here_and_there = ["0,1/0,1/0,1", "2,3/2,3/2,3"];
    let is_other_here = told("step").first().is_some_and(|line| line.ends_with(here_and_there[1]));
    if is_other_here {
        here_and_there.reverse();
    }
    let [here, there] = here_and_there;
    assert_eq!(told("step"), [format!("0: {here}"), format!("1: {there}")], "{output}");
    assert_eq!(told("remote"), [there]);
    assert_eq!(told("script"), ["unset//"], "its numbers are those of another job on one of the nodes");
    if Mpi::Mpich.mpirun().is_some() {
        assert_eq!(told("mpich").len(), 2, "{output}");
        assert!(told("mpich").iter().all(|line| line.ends_with("//")), "it hands on what the script has");
    }
    if Mpi::OpenMpi.mpirun().is_some() {
        assert_eq!(told("openmpi"), ["0,1/0,1/0,1", "2,3/2,3/2,3"], "{output}");
    }
    deployment.rms(&["cancel", &other.to_string()]).ok();
}

#[test]
fn each_task_has_cpus_of_its_own_among_those_of_its_job() {
    let deployment = deployment();
    let output = deployment.rms(&["run", "-n", "2", "-c", "1", "grep", "Cpus_allowed_list", "/proc/self/status"]).ok();
    let cpus: BTreeSet<&str> = output.stdout.lines().filter_map(|line| line.split('\t').nth(1)).collect();
    assert!(cpus.len() == 2 && cpus.iter().all(|cpu| cpu.trim().parse::<u32>().is_ok()), "{}", output.stdout);
    // A step that takes all of its job, and one that does not.
    let look = "grep Cpus_allowed_list /proc/self/status | cut -f2";
    let rms = deployment.rms_program().display();
    let wrap = format!("{rms} run -n 2 sh -c \"{look}\"; echo -; {rms} run -n 1 sh -c \"{look}\"; {look}");
    let job = deployment.submit(&["-n", "2", "-o", "steps", "--wrap", &wrap]);
    assert_eq!(deployment.wait_for_end(job)["outcome"]["word"], "completed");
    let text = fs::read_to_string(deployment.path().join("steps")).expect("its output");
    let (tasks, rest) = text.split_once("-\n").expect("two steps");
    let cpus: BTreeSet<&str> = tasks.lines().collect();
    let rest: Vec<&str> = rest.lines().collect();
    assert!(cpus.len() == 2 && cpus.iter().all(|cpu| cpu.parse::<u32>().is_ok()), "{text}");
    assert!(rest.len() == 2 && rest[0] == rest[1] && !cpus.contains(rest[0]), "{text}");
}

/// Two jobs of one core each start ranks by this `mpirun` at the same time, more than they have CPUs.
fn check_mpi_jobs_keep_apart(mpi: Mpi) {
    let hello = build(mpi, "hello").expect("it compiles");
    let (Some(hello), Some(mpirun)) = (hello, mpi.mpirun()) else {
        eprintln!("SKIPPED: {} is not installed; `cargo xtask setup` installs it", mpi.name());
        return;
    };
    let deployment = deployment();
    let (mpirun, dir) = (mpirun.display(), deployment.path().display());
    let more = if mpi == Mpi::OpenMpi { "--oversubscribe" } else { "" };
    let submit = |name: &str, other: &str| {
        // Each waits for the other one's ranks.
        let rank = format!(
            "grep Cpus_allowed_list /proc/self/status | cut -f2 > {dir}/{name}.$$; touch {dir}/{name}.up; \
             while [ ! -e {dir}/{other}.up ]; do sleep 0.05; done"
        );
        let rank = deployment.script(&format!("{name}.rank"), &format!("#!/bin/sh\n{rank}\n"));
        let wrap = format!(
            "{mpirun} {more} -n 2 {rank} && {mpirun} {more} -n 2 {} && echo $(grep -v '^#' $RMS_HOSTFILE)",
            hello.display()
        );
        deployment.submit(&["-n", "1", "-t", "5m", "-o", &format!("{name}.out"), "--wrap", &wrap])
    };
    let jobs = [submit("one", "two"), submit("two", "one")];
    let cpus = ["one", "two"].map(|name| {
        let job = jobs[usize::from(name == "two")];
        let record = deployment.wait_for_end(job);
        let output = fs::read_to_string(deployment.path().join(format!("{name}.out"))).expect("its output");
        assert_eq!(record["outcome"]["word"], "completed", "{output}");
        assert!(output.contains("a1 slots=1"), "{output}");
        let entries = fs::read_dir(deployment.path()).expect("ours").flatten().map(|entry| entry.path());
        let is_rank = |path: &std::path::PathBuf| {
            path.file_stem().is_some_and(|stem| stem == name)
                && path.extension().is_some_and(|pid| pid.to_string_lossy().parse::<u32>().is_ok())
        };
        let seen: Vec<String> =
            entries.filter(is_rank).map(|path| fs::read_to_string(path).expect("written")).collect();
        assert!(seen.len() == 2 && seen[0] == seen[1], "{seen:?}");
        seen[0].trim().to_owned()
    });
    assert!(cpus[0] != cpus[1] && cpus.iter().all(|cpu| cpu.parse::<u32>().is_ok()), "{cpus:?}");
}

#[test]
fn long_two_jobs_of_open_mpi_on_one_node_keep_to_their_cores() {
    check_mpi_jobs_keep_apart(Mpi::OpenMpi);
}

#[test]
fn two_jobs_of_mpich_on_one_node_keep_to_their_cores() {
    check_mpi_jobs_keep_apart(Mpi::Mpich);
}
