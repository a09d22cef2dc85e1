//! Jobs through real processes: submit, run, wait, look at what they left.

use std::fs;
use std::time::Duration;

use test_kit::{Builder, Deployment, NodeOptions, is_alive, wait_until};

const SOON: Duration = Duration::from_secs(20);

fn two_nodes() -> Builder {
    Deployment::builder().cluster("a", 2)
}

#[test]
fn a_script_runs_once_on_the_first_node_and_leaves_output_and_history() {
    let deployment = two_nodes().start();
    let script = deployment.script(
        "job.sh",
        "#!/bin/sh\n#RMS -N 2 -J greet\necho hello from $RMS_NODELIST ${RMS_NODE_NAME-on no node} of $RMS_NNODES\n",
    );
    let job = deployment.submit(&[&script]);
    let record = deployment.wait_for_end(job);
    assert_eq!(record["outcome"]["word"], "completed");
    assert_eq!(record["name"], "greet");
    assert_eq!(record["nodes"], serde_json::json!(["a1", "a2"]));
    assert!(record["started"].is_string() && record["ended"].is_string(), "{record}");
    let output = fs::read_to_string(deployment.path().join(format!("rms-{job}.out"))).expect("the default output file");
    assert_eq!(output, "hello from a[1-2] on no node of 2\n");
}

#[test]
fn jobs_find_their_files_whatever_directory_the_agent_was_started_in() {
    // The agent is called `node-agent run --dir DIR …`.
    let relative = "if [ \"$2\" = run ]; then cd \"$4/..\"; program=$1 dir=$(basename \"$4\"); shift 4; \
                    exec \"$program\" run --dir \"$dir\" \"$@\"; fi; exec \"$@\"";
    let node = NodeOptions::new("a", "a1").wrapped(&["sh", "-c", relative, "sh"]);
    let deployment = Deployment::builder().node(node).start();
    let script = "cat $RMS_HOSTFILE $RMS_HOSTFILE_MPICH $RMS_GENERATION_FILE";
    let job = deployment.submit(&["--wrap", script, "-o", "out"]);
    assert_eq!(deployment.wait_for_end(job)["outcome"]["word"], "completed");
    let output = fs::read_to_string(deployment.path().join("out")).expect("its output");
    assert_eq!(output, "# generation 1\na1 slots=1\n# generation 1\na1:1\n1\n");
}

#[test]
fn run_streams_output_forwards_input_and_gives_the_highest_code() {
    let deployment = two_nodes().start();
    let output =
        deployment.rms(&["run", "-N", "2", "-n", "4", "sh", "-c", "echo task $RMS_TASK_ID on $RMS_NODE_NAME"]).ok();
    let mut lines: Vec<&str> = output.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["task 0 on a1", "task 1 on a1", "task 2 on a2", "task 3 on a2"]);

    let worst = deployment.rms(&["run", "-O", "-n", "3", "-N", "1", "sh", "-c", "exit $RMS_TASK_ID"]);
    assert_eq!(worst.code, 2, "{worst:?}");
    let signalled = deployment.rms(&["run", "sh", "-c", "kill -USR1 $$"]);
    assert_eq!(signalled.code, 128 + 10, "{signalled:?}");
    let input = deployment.rms_with_input(&["run", "cat"], "one\ntwo\n").ok();
    assert_eq!(input.stdout, "one\ntwo\n");
    let none = deployment.rms_with_input(&["run", "-t", "1m", "--no-stdin", "cat"], "one\ntwo\n").ok();
    assert_eq!(none.stdout, "", "it ends, and has read nothing");
    let error = deployment.rms(&["run", "sh", "-c", "echo oops >&2; exit 7"]).fails(7);
    assert!(error.stderr.contains("oops"), "{error:?}");
}

#[test]
fn patterns_name_the_files_and_tasks_find_their_place_in_the_environment() {
    let deployment = two_nodes().start();
    let job = deployment.submit(&[
        "-N",
        "2",
        "-n",
        "2",
        "-J",
        "pat",
        "-o",
        "%x-%j-%N.out",
        "-e",
        "%x-%j.err",
        "--wrap",
        "echo out; echo err >&2",
    ]);
    assert_eq!(deployment.wait_for_end(job)["outcome"]["word"], "completed");
    let read =
        |name: String| fs::read_to_string(deployment.path().join(&name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(read(format!("pat-{job}-a1.out")), "out\n");
    assert_eq!(read(format!("pat-{job}.err")), "err\n");

    let dump = "echo $RMS_JOB_ID $RMS_NNODES $RMS_NTASKS $RMS_NODELIST; cat $RMS_HOSTFILE | wc -l; env | grep -c ^OMPI_PARENT || true";
    let mut command = deployment.command(&["run", "-N", "2", "-n", "2", "sh", "-c", dump]);
    command.env("OMPI_PARENT_PORT", "x").env("SLURM_JOB_ID", "1").env("PMI_RANK", "7");
    let output = deployment.finish(command).ok();
    assert!(output.stdout.contains("2 2 a[1-2]"), "{output:?}");
    let environment = deployment.rms(&["run", "env"]).ok().stdout;
    for foreign in ["SLURM_JOB_ID", "PMI_RANK=7"] {
        assert!(!environment.contains(foreign), "{foreign} in {environment}");
    }
}

#[test]
fn long_the_wall_time_ends_a_job_and_its_whole_tree() {
    let deployment = Deployment::builder().cluster("a", 1).config("[settings]\nkill_grace = \"500ms\"").start();
    let pidfile = deployment.path().join("pids");
    // It ignores TERM, forks twice and leaves its session: only its tree is left to find it by.
    let script = format!(
        "#!/bin/bash\ntrap '' TERM\n(setsid bash -c 'trap \"\" TERM; echo $BASHPID >> {0}; sleep 1000' &)\necho $$ >> {0}\nsleep 1000\n",
        pidfile.display()
    );
    let script = deployment.script("stubborn.sh", &script);
    let job = deployment.submit(&["-t", "1s", &script]);
    let record = deployment.wait_for_end(job);
    assert_eq!(record["outcome"]["word"], "timeout");
    let pids = fs::read_to_string(&pidfile).expect("both wrote their pids");
    let pids: Vec<i32> = pids.lines().map(|line| line.parse().expect("a pid")).collect();
    assert_eq!(pids.len(), 2, "{pids:?}");
    for pid in pids {
        assert!(!is_alive(pid), "process {pid} outlived its job");
    }
}

#[test]
fn cancel_hold_release_and_signal_do_what_they_say() {
    let deployment = Deployment::of_nodes(1);
    let trap = "trap 'echo usr1; exit 3' USR1; echo ready; while :; do sleep 0.1; done";
    let running = deployment.submit(&["-o", "trap.out", "--wrap", trap]);
    deployment.wait_for_state(running, "started");
    let output = deployment.path().join("trap.out");
    wait_until("the trap to be set", SOON, || fs::read_to_string(&output).ok().filter(|text| text.contains("ready")));
    let held = deployment.submit(&["--hold", "--wrap", "true"]);
    assert_eq!(deployment.queued(held).expect("it waits")["state"], "held");
    let waiting = deployment.submit(&["--wrap", "true"]);
    deployment.wait_for_state(waiting, "waiting");

    deployment.rms(&["cancel", &waiting.to_string()]).ok();
    assert_eq!(deployment.wait_for_end(waiting)["outcome"]["word"], "cancelled");
    deployment.rms(&["cancel", "--signal", "USR1", &held.to_string()]).fails(1);
    assert_eq!(deployment.rms(&["show", "-t", "waiting"]).ok().text(), "no such job waits or runs");
    // One of them is held, which is no error of who means all.
    deployment.rms(&["cancel", "--signal", "USR1", "all"]).ok();
    let record = deployment.wait_for_end(running);
    assert_eq!((&record["outcome"]["word"], &record["outcome"]["code"]), (&"failed".into(), &3.into()));
    assert!(fs::read_to_string(&output).expect("it is there").contains("usr1"));
    deployment.rms(&["release", &held.to_string()]).ok();
    assert_eq!(deployment.wait_for_end(held)["outcome"]["word"], "completed");
    let long = deployment.script(&format!("{}\t.sh", "p".repeat(150)), "#!/bin/sh\n");
    let named = deployment.submit(&[&long]);
    assert_eq!(deployment.wait_for_end(named)["name"], "p".repeat(128));
}

#[test]
fn long_wait_tells_of_the_jobs_it_was_asked_for_and_gives_their_code() {
    let deployment = Deployment::of_nodes(1);
    deployment.rms(&["run", "true"]).ok();
    let job = deployment.submit(&["--wrap", "sleep 1; exit 3"]);
    deployment.rms(&["wait", &job.to_string(), "1", "--timeout", "0"]).fails(124);
    deployment.rms(&["wait", "1", "--timeout", "0"]).ok();
    let unknown = deployment.rms(&["wait", &job.to_string(), "99", "--timeout", "0"]).fails(125);
    assert!(unknown.stderr.contains("there is no job 99"), "{unknown:?}");
    let waited = deployment.rms(&["wait", &job.to_string()]).fails(3);
    assert_eq!(waited.text(), format!("job {job}: failed with exit code 3"));
    deployment.rms(&["wait", "1", "--json"]).ok();
}

#[test]
fn long_usage_counts_the_whole_tree() {
    let deployment = Deployment::of_nodes(1);
    let burn = "python3 -c \"x=bytearray(64<<20)\nwhile True:\n import os\n if os.times().user > 0.5: break\"";
    let script = deployment.script("burn.sh", &format!("#!/bin/sh\n{burn} &\n{burn} &\nwait\n"));
    let job = deployment.submit(&[&script]);
    let record = deployment.wait_for_end(job);
    assert_eq!(record["outcome"]["word"], "completed");
    let cpu_ms = record["cpu_ms"].as_u64().expect("a number");
    assert!((900..20_000).contains(&cpu_ms), "two children burnt half a second each: {cpu_ms} ms");
    let peak = record["peak_memory_kib"].as_u64().expect("a number");
    assert!(peak >= 64 << 10, "each child held 64 MiB: {peak} KiB");
}

#[test]
fn what_is_impossible_is_refused_and_says_what_would_be_possible() {
    let deployment = Deployment::builder()
        .node(NodeOptions::new("a", "a1").with(&["--topology", "pack:2 core:24 pu:1", "--features", "big"]))
        .cluster("b", 2)
        .start();
    let refuse = |arguments: &[&str], hint: &str| {
        let mut all = vec!["submit", "--wrap", "true"];
        all.extend(arguments);
        let output = deployment.rms(&all);
        assert_ne!(output.code, 0, "{arguments:?}");
        let said = format!("{}{}", output.stdout, output.stderr);
        assert!(said.contains(hint), "{arguments:?} said: {said}");
    };
    refuse(&["-N", "3"], "cluster b has 2");
    refuse(&["-t", "0s"], "zero");
    refuse(&["-M", "nowhere"], "the clusters are a, b");
    refuse(&["--constraint", "gpu"], "big");
    refuse(&["-n", "1", "-c", "49"], "48 CPUs");
    let job = deployment.submit(&["-n", "1", "-c", "48", "--wrap", "true"]);
    assert_eq!(deployment.wait_for_end(job)["nodes"], serde_json::json!(["a1"]));
}

#[test]
fn explain_names_the_step_of_the_profile_that_blocks() {
    let deployment = two_nodes().start();
    let first = deployment.submit(&["-N", "1", "-t", "1h", "--wrap", "sleep 1000"]);
    deployment.wait_for_state(first, "started");
    let second = deployment.submit(&["-N", "2", "-t", "10m", "--wrap", "true"]);
    let line = deployment.wait_for_state(second, "waiting");
    assert!(line["estimate"].is_string(), "{line}");
    let explained = deployment.rms(&["explain", &second.to_string(), "--json"]).ok().json();
    let reason = &explained["jobs"][0]["reason"];
    assert_eq!((&reason["kind"], &reason["wanted"], &reason["busy"]), (&"blocked".into(), &2.into(), &1.into()));
    assert_eq!(reason["by"][0]["job"], first);
    let text = deployment.rms(&["explain", &second.to_string()]).ok().stdout;
    assert!(text.contains(&first.to_string()), "{text}");

    let svg = deployment.path().join("view.svg");
    deployment.rms(&["view", "--svg", &svg.to_string_lossy()]).ok();
    assert!(fs::read_to_string(&svg).expect("it was drawn").starts_with("<svg"));
    let view = deployment.rms(&["view", "--json"]).ok().json();
    assert_eq!(view["clusters"][0]["capacity"], 2);
}

#[test]
fn long_settings_change_at_run_time_and_a_ghost_keeps_its_node() {
    let deployment = Deployment::of_nodes(1);
    deployment.rms(&["admin", "set", "fair_start", "3s"]).ok();
    let first = deployment.submit(&["--wrap", "true"]);
    deployment.wait_for_state(first, "ghost");
    let second = deployment.submit(&["--wrap", "true"]);
    let nodes = deployment.rms(&["nodes", "--json"]).ok().json();
    assert_eq!(nodes["nodes"][0]["state"], "ghost");
    let record = deployment.wait_for_end(second);
    let first = deployment.record(first).expect("it is done");
    let seconds = |record: &serde_json::Value, key: &str| {
        seconds_of(record[key].as_str().unwrap_or_else(|| panic!("{key} in {record}")))
    };
    let gap = seconds(&record, "started") - seconds(&first, "ended");
    assert!(gap >= 2.9, "the ghost kept the node for {gap} s");
    let audit = deployment.rms(&["admin", "audit", "--json"]).ok().stdout;
    assert!(audit.contains("fair_start") && audit.contains("3s"), "{audit}");
}

/// Seconds since 1970 of an ISO 8601 time.
fn seconds_of(text: &str) -> f64 {
    let at: jiff::Timestamp = text.parse().expect("a time with its offset");
    at.as_millisecond() as f64 / 1000.0
}
