//! Faults under real processes: whatever is killed, no job is lost and none runs twice.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use test_kit::{Deployment, is_alive, wait_until};

const SOON: Duration = Duration::from_secs(30);
const AWAY: Duration = Duration::from_secs(3);

/// A job that writes a line when it starts and one when it ends, so that a second run would show.
fn witness(deployment: &Deployment, name: &str, seconds: f64) -> String {
    let file = deployment.path().join(format!("{name}.runs"));
    format!("echo start $$ >> {0}; sleep {seconds}; echo end >> {0}", file.display())
}

fn runs(deployment: &Deployment, name: &str) -> String {
    fs::read_to_string(deployment.path().join(format!("{name}.runs"))).unwrap_or_default()
}

#[test]
fn long_a_killed_server_loses_no_job_and_starts_none_twice() {
    let mut deployment = Deployment::of_nodes(2);
    let long = deployment.submit(&["--wrap", &witness(&deployment, "long", 4.0)]);
    let short = deployment.submit(&["--wrap", &format!("{}; exit 5", witness(&deployment, "short", 1.0))]);
    deployment.wait_for_state(long, "started");
    deployment.wait_for_state(short, "started");
    let waiting: Vec<u64> =
        (0..3).map(|idx| deployment.submit(&["--wrap", &witness(&deployment, &format!("w{idx}"), 0.1)])).collect();
    wait_until("both to run", SOON, || {
        (!runs(&deployment, "long").is_empty() && !runs(&deployment, "short").is_empty()).then_some(())
    });

    deployment.kill_server();
    // The short one ends while nobody listens.
    wait_until("the short job to end", SOON, || runs(&deployment, "short").contains("end").then_some(()));
    std::thread::sleep(AWAY);
    deployment.start_server();

    let record = deployment.wait_for_end(short);
    let at = |key: &str| record[key].as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok()).expect("a time");
    let ran = at("ended").duration_since(at("started")).as_secs_f64();
    assert!((0.9..AWAY.as_secs_f64()).contains(&ran), "it ended when nobody listened: {record}");
    assert_eq!((&record["outcome"]["word"], &record["outcome"]["code"]), (&"failed".into(), &5.into()));
    assert_eq!(deployment.wait_for_end(long)["outcome"]["word"], "completed");
    for job in &waiting {
        assert_eq!(deployment.wait_for_end(*job)["outcome"]["word"], "completed");
    }
    for name in ["long", "short", "w0", "w1", "w2"] {
        assert_eq!(runs(&deployment, name).matches("start").count(), 1, "{name} ran once");
    }
}

#[test]
fn long_a_run_can_be_left_while_the_server_does_not_answer() {
    let mut deployment = Deployment::of_nodes(1);
    let mut run = deployment.command(&["run", "sleep", "300"]);
    let mut run = run.stderr(Stdio::piped()).spawn().expect("it starts");
    deployment.wait_for_state(1, "started");
    deployment.kill_server();
    let pid = Pid::from_raw(run.id() as i32);
    let term = || kill(pid, Signal::SIGTERM).expect("it runs");
    // The first is for the job, and nobody hears it.
    term();
    std::thread::sleep(Duration::from_millis(1500));
    term();
    let code = wait_until("the run to end", SOON, || run.try_wait().expect("our child")).code();
    let mut told = String::new();
    run.stderr.take().expect("a pipe").read_to_string(&mut told).expect("text");
    assert_eq!(code, Some(143), "{told}");
    assert!(told.contains("the server does not answer, so job 1 may go on"), "{told}");
    deployment.start_server();
    deployment.rms(&["cancel", "1"]).ok();
    assert_eq!(deployment.wait_for_end(1)["outcome"]["word"], "cancelled");
}

#[test]
fn long_a_list_that_is_watched_outlives_the_server() {
    let mut deployment = Deployment::of_nodes(1);
    let path = deployment.path().join("lists");
    let n_lists = || fs::read_to_string(&path).unwrap_or_default().lines().count();
    let file = |name: &str| fs::File::create(deployment.path().join(name)).expect("the directory is ours");
    let mut watch = deployment.command(&["queue", "--watch=100ms", "--json"]);
    let mut watch = watch.stdout(file("lists")).stderr(file("words")).spawn().expect("it starts");
    wait_until("a list", SOON, || (n_lists() > 0).then_some(()));
    deployment.kill_server();
    let words = deployment.path().join("words");
    let told = || fs::read_to_string(&words).unwrap_or_default();
    wait_until("the command to notice", SOON, || told().contains("the server does not answer").then_some(()));
    let before = n_lists();
    deployment.start_server();
    wait_until("further lists", SOON, || (n_lists() > before).then_some(()));
    assert!(watch.try_wait().expect("our child").is_none(), "{}", told());
    kill(Pid::from_raw(watch.id() as i32), Signal::SIGINT).expect("it runs");
    assert_eq!(watch.wait().expect("it ends").code(), Some(0));
}

#[test]
fn long_commands_that_wait_say_that_the_server_does_not_answer() {
    let mut deployment = Deployment::of_nodes(1);
    let end = deployment.path().join("end");
    let job = ["sh", "-c", "while [ ! -e \"$0\" ]; do sleep 0.1; done", end.to_str().expect("a name")];
    let file = |name: &str| fs::File::create(deployment.path().join(name)).expect("the directory is ours");
    let start = |name: &str, words: &[&str]| {
        let mut command = deployment.command(words);
        let child = command.stdout(file(&format!("{name}.out"))).stderr(file(name)).spawn().expect("it starts");
        (deployment.path().join(name), child)
    };
    let mut waiting = vec![start("run", &[&["run", "-t", "1m"], &job[..]].concat())];
    wait_until("it to run", SOON, || {
        (deployment.rms(&["queue", "-q", "-t", "running"]).ok().text() == "1").then_some(())
    });
    waiting.push(start("logs", &["logs", "1"]));
    let told = |path: &std::path::Path, what: &str| fs::read_to_string(path).is_ok_and(|words| words.contains(what));
    wait_until("it to follow", SOON, || told(&waiting[1].0, "still runs").then_some(()));
    deployment.kill_server();
    for (path, _) in &waiting {
        let what = format!("{} to say that the server does not answer", path.display());
        wait_until(&what, SOON, || told(path, "the server does not answer").then_some(()));
    }
    deployment.start_server();
    for (path, _) in &waiting {
        let what = format!("{} to say that it answers again", path.display());
        wait_until(&what, SOON, || told(path, "the server answers again").then_some(()));
    }
    fs::write(&end, "").expect("the directory is ours");
    for (path, child) in &mut waiting {
        let code = child.wait().expect("our child").code();
        assert_eq!(code, Some(0), "{}: {:?}", path.display(), fs::read_to_string(&path));
    }
}

#[test]
fn input_of_a_run_that_waits_outlives_the_server() {
    let mut deployment = Deployment::of_nodes(1);
    let before = deployment.submit(&["--wrap", "sleep 1000"]);
    let mut command = deployment.command(&["run", "-t", "1m", "cat"]);
    let mut run = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    run.stdin.take().expect("it is piped").write_all(b"hello\n").expect("it is read");
    wait_until("it to wait", SOON, || {
        let queue = deployment.rms(&["queue", "--json"]).ok().json();
        (queue["jobs"].as_array()?.len() == 2).then_some(())
    });

    deployment.kill_server();
    deployment.start_server();
    deployment.rms(&["cancel", &before.to_string()]).ok();
    let output = run.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), b"hello\n".as_slice()), "{output:?}");
}

/// The first agent that is back is not all that there is: the job takes the whole idle cluster.
#[test]
fn long_after_a_restart_a_moldable_job_waits_for_the_agents_that_are_on_their_way() {
    let mut deployment = Deployment::of_nodes(4);
    let late = ["a2", "a3", "a4"];
    late.iter().for_each(|name| deployment.kill_agent(name));
    deployment.kill_server();
    deployment.start_server();
    let began = std::time::Instant::now();
    wait_until("the first agent to be back", SOON, || {
        let nodes = deployment.rms(&["nodes", "--json"]).ok().json();
        let lines = nodes["nodes"].as_array()?.clone();
        lines.iter().any(|line| line["node"] == "a1" && line["state"] == "idle").then_some(())
    });
    let job = deployment.submit(&["-N", "1-4", "--amdahl", "1", "-t", "1000s", "--wrap", "sleep 60"]);
    let line = deployment.queued(job).expect("it waits");
    assert_eq!(line["reason"]["kind"], "agents_expected", "after {:?}: {line}", began.elapsed());
    late.iter().for_each(|name| deployment.restart_agent(name));
    let line = deployment.wait_for_state(job, "started");
    assert_eq!(line["nodes"].as_array().map(Vec::len), Some(4), "{line}");
}

/// The tenth time as the first: nobody waits for a heartbeat, and no back-off grows with the restarts.
#[test]
fn long_a_server_is_of_use_at_once_after_each_of_ten_restarts() {
    let mut deployment = Deployment::of_nodes(2);
    let job =
        deployment.submit(&["-N", "1", "--wrap", &format!("while [ ! -e {} ]; do sleep 0.1; done", end(&deployment))]);
    deployment.wait_for_state(job, "started");
    let mut waiting = deployment.command(&["wait", &job.to_string()]).spawn().expect("rms starts");
    let mut all = Vec::new();
    for _ in 0..10 {
        deployment.kill_server();
        let begun = Instant::now();
        deployment.start_server();
        deployment.rms(&["run", "-N", "1", "true"]).ok();
        all.push(begun.elapsed());
    }
    println!("{all:?}");
    // Far more than it takes, for machines that are busy, and far less than the thirty seconds of a back-off.
    assert!(all.iter().all(|took| *took < Duration::from_secs(6)), "{all:?}");
    fs::write(end(&deployment), "").expect("the directory is ours");
    let waited = Instant::now();
    assert!(waiting.wait().expect("it is our child").success());
    assert!(waited.elapsed() < Duration::from_secs(6), "a client that waits has noticed, too: {:?}", waited.elapsed());
}

fn end(deployment: &Deployment) -> String {
    deployment.path().join("end").display().to_string()
}

/// More than the agent's queue and its threads hold before it serves.
#[test]
fn an_agent_starts_on_a_node_that_has_lost_hundreds_of_jobs() {
    let mut deployment = Deployment::of_nodes(1);
    deployment.kill_agent("a1");
    let jobs = deployment.agent_dir("a1").join("spool/jobs");
    for job in 1001..=1400 {
        let entry = jobs.join(format!("{job}.1"));
        fs::create_dir(&entry).expect("an entry");
        fs::write(entry.join("entry"), "cut off by a power failure").expect("a file of it");
    }
    deployment.restart_agent("a1");
    deployment.rms(&["run", "-t", "1m", "true"]).ok();
    let is_empty = || fs::read_dir(&jobs).is_ok_and(|entries| entries.count() <= 1);
    wait_until("the entries to be removed", Duration::from_secs(60), || is_empty().then_some(()));
}

#[test]
fn long_a_restarted_agent_takes_its_jobs_over() {
    let mut deployment = Deployment::of_nodes(1);
    let job = deployment.submit(&["--wrap", &format!("{}; exit 4", witness(&deployment, "j", 2.0))]);
    wait_until("it to run", SOON, || runs(&deployment, "j").contains("start").then_some(()));
    deployment.kill_agent("a1");
    wait_until("it to end without an agent", SOON, || runs(&deployment, "j").contains("end").then_some(()));
    deployment.restart_agent("a1");
    let record = deployment.wait_for_end(job);
    assert_eq!((&record["outcome"]["word"], &record["outcome"]["code"]), (&"failed".into(), &4.into()));
    assert_eq!(runs(&deployment, "j").matches("start").count(), 1);

    // And one that is still running when the agent is back can still be cancelled.
    let job = deployment.submit(&["--wrap", &witness(&deployment, "k", 1000.0)]);
    wait_until("it to run", SOON, || runs(&deployment, "k").contains("start").then_some(()));
    deployment.kill_agent("a1");
    deployment.restart_agent("a1");
    deployment.rms(&["cancel", &job.to_string()]).ok();
    assert_eq!(deployment.wait_for_end(job)["outcome"]["word"], "cancelled");
    let line = runs(&deployment, "k");
    let pid: i32 = line.split_whitespace().nth(1).expect("start PID").parse().expect("a pid");
    assert!(!is_alive(pid), "the cancelled job's shell lives on");
}

#[test]
fn long_a_job_on_several_nodes_ends_though_the_agent_of_any_of_them_was_restarted() {
    let mut deployment = Deployment::of_nodes(3);
    for node in ["a1", "a2", "a3"] {
        let name = format!("of-{node}");
        let program = format!("{}; exit 4", witness(&deployment, &name, 2.0));
        let mut run = deployment.command(&["run", "-N", "3", "-t", "1m", "sh", "-c", &program]);
        let mut run = run.stderr(std::process::Stdio::null()).spawn().expect("it starts");
        let all_run = || (runs(&deployment, &name).matches("start").count() == 3).then_some(());
        wait_until("it to run on all nodes", SOON, all_run);
        deployment.kill_agent(node);
        deployment.restart_agent(node);
        assert_eq!(run.wait().expect("it ends").code(), Some(4), "{node}");
    }
}

#[test]
fn long_a_lost_node_ends_its_jobs_and_is_fenced_when_it_comes_back() {
    let mut deployment = Deployment::builder()
        .cluster("a", 2)
        .config("[settings]\nnode_lost_after = \"1s\"\nlost_policy = \"requeue\"")
        .start();
    // Only the first run takes long.
    let file = deployment.path().join("j.runs");
    let wrap = format!(
        "n=$(cat {0} 2>/dev/null | wc -l); echo start $$ >> {0}; [ $n = 0 ] && sleep 1000; sleep 4; echo end >> {0}",
        file.display()
    );
    let job = deployment.submit(&["--requeue", "--wrap", &wrap]);
    let line = deployment.wait_for_state(job, "started");
    let first = line["nodes"][0].as_str().expect("a node").to_owned();
    wait_until("it to run", SOON, || runs(&deployment, "j").contains("start").then_some(()));
    let text = runs(&deployment, "j");
    let pid: i32 = text.split_whitespace().nth(1).expect("start PID").parse().expect("a pid");

    deployment.kill_agent(&first);
    let line = wait_until("it to start again elsewhere", SOON, || {
        deployment.queued(job).filter(|line| line["run"] == 2 && line["state"] == "started")
    });
    assert_ne!(line["nodes"][0], first.as_str());
    assert!(is_alive(pid), "the first run lives on behind the dead agent");

    deployment.restart_agent(&first);
    wait_until("the fenced run to be killed", SOON, || (!is_alive(pid)).then_some(()));
    assert_eq!(deployment.wait_for_end(job)["outcome"]["word"], "completed");
    let text = runs(&deployment, "j");
    assert_eq!((text.matches("start").count(), text.matches("end").count()), (2, 1), "{text}");
}

#[test]
fn a_killed_supervisor_takes_its_tree_with_it_and_is_reported() {
    let deployment = Deployment::of_nodes(1);
    let job = deployment.submit(&["--wrap", &witness(&deployment, "j", 1000.0)]);
    wait_until("it to run", SOON, || runs(&deployment, "j").contains("start").then_some(()));
    let shell: i32 = runs(&deployment, "j").split_whitespace().nth(1).expect("start PID").parse().expect("a pid");
    let stat = fs::read_to_string(format!("/proc/{shell}/stat")).expect("the shell lives");
    let supervisor: i32 =
        stat.rsplit_once(") ").expect("a stat line").1.split_whitespace().nth(1).expect("ppid").parse().expect("a pid");
    kill(Pid::from_raw(supervisor), Signal::SIGKILL).expect("it is ours");
    assert_eq!(deployment.wait_for_end(job)["outcome"]["word"], "supervisor_lost");
    wait_until("its tree to go", SOON, || (!is_alive(shell)).then_some(()));
    let next = deployment.submit(&["--wrap", "true"]);
    assert_eq!(deployment.wait_for_end(next)["outcome"]["word"], "completed");
}

#[test]
fn two_servers_on_one_directory_and_what_the_second_says() {
    let deployment = Deployment::of_nodes(1);
    let binaries = test_kit::binaries();
    let mut second = std::process::Command::new(&binaries.server);
    second.arg("run").arg("--dir").arg(deployment.server_dir()).args(["--listen", "127.0.0.1:0"]);
    let output = deployment.finish(second).fails(1);
    assert!(output.stderr.contains(&deployment.server_pid().to_string()), "it names who holds the lock: {output:?}");
    deployment.rms(&["queue"]).ok();
}

#[test]
fn long_run_survives_a_restart_of_the_server() {
    let mut deployment = Deployment::of_nodes(1);
    let mut command = deployment.command(&["run", "sh", "-c", "echo one; sleep 3; echo two; exit 6"]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let child = command.spawn().expect("it starts");
    wait_until("it to run", SOON, || {
        let queue = deployment.rms(&["queue", "--json"]).ok().json();
        queue["jobs"].as_array()?.iter().any(|line| line["state"] == "started").then_some(())
    });
    deployment.kill_server();
    deployment.start_server();
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(6), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "one\ntwo\n");
}

/// A restored server gives the numbers of later jobs out again, while the nodes still keep the output of those.
#[test]
fn a_job_with_the_number_of_one_from_before_a_restore_runs_and_has_its_own_output() {
    let mut deployment = Deployment::of_nodes(1);
    let (journal, backup) = (deployment.server_dir().join("journal"), deployment.path().join("backup"));
    let copy = |from: &Path, to: &Path| {
        let copied = Command::new("cp").arg("-a").args([from, to]).status().expect("cp runs");
        assert!(copied.success());
    };
    deployment.kill_server();
    copy(&journal, &backup);
    deployment.start_server();
    assert_eq!(deployment.rms(&["run", "echo", "old"]).ok().stdout, "old\n");
    deployment.kill_server();
    fs::rename(&journal, deployment.path().join("journal.old")).expect("it is ours");
    copy(&backup, &journal);
    deployment.start_server();
    assert_eq!(deployment.rms(&["run", "echo", "new"]).ok().stdout, "new\n");
    let history = deployment.rms(&["history", "--json"]).ok().json();
    assert_eq!(history["jobs"][0]["job"], 1, "{history}");
    assert_eq!(deployment.rms(&["logs", "1"]).ok().stdout, "new\n");
}
