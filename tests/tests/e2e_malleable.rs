//! Malleable batch jobs without any SDK, with real agents and processes: farms, signals, commands, and scripts that ask.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use test_kit::{Deployment, wait_until};

const SOON: Duration = Duration::from_secs(60);

fn of_nodes(n_nodes: u32) -> Deployment {
    let settings = "[settings]\nkill_grace = \"2s\"\nrelease_grace = \"3s\"\n";
    Deployment::builder().cluster("a", n_nodes).config(settings).start()
}

fn log(deployment: &Deployment) -> String {
    fs::read_to_string(deployment.path().join("log")).unwrap_or_default()
}

fn wait_for_line(deployment: &Deployment, start: &str) {
    wait_until(start, SOON, || log(deployment).lines().any(|line| line.starts_with(start)).then_some(()));
}

/// How many nodes a job has.
fn n_nodes(deployment: &Deployment, job: u64) -> usize {
    let line = deployment.queued(job).unwrap_or_else(|| panic!("job {job} is in the queue"));
    line["nodes"].as_array().map_or(0, Vec::len)
}

fn wait_for_nodes(deployment: &Deployment, job: u64, wanted: usize) {
    wait_until(&format!("job {job} to have {wanted} nodes"), SOON, || {
        (n_nodes(deployment, job) == wanted).then_some(())
    });
}

fn negotiations_open(deployment: &Deployment, job: u64) -> usize {
    let line = deployment.queued(job).unwrap_or_else(|| panic!("job {job} is in the queue"));
    line["negotiating"].as_array().map_or(0, Vec::len)
}

fn negotiations(deployment: &Deployment, job: u64) -> Vec<Value> {
    let told = deployment.rms(&["negotiations", &job.to_string(), "--json"]).ok().json();
    told["negotiations"].as_array().cloned().unwrap_or_default()
}

fn n_files(dir: &Path) -> usize {
    fs::read_dir(dir).map_or(0, |entries| entries.filter_map(Result::ok).count())
}

#[test]
fn long_a_farm_grows_into_idle_nodes_gives_them_back_and_loses_no_result() {
    let mut deployment = of_nodes(4);
    let farm = deployment.path().join("farm");
    fs::create_dir_all(farm.join("todo")).expect("a directory");
    for item in 0..200 {
        fs::write(farm.join(format!("todo/{item:03}")), format!("{item}\n")).expect("a file");
    }
    let work = deployment.script("work.sh", "#!/bin/sh\nsleep 0.4\ncat \"$1\"\n");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/farm.sh");
    let rigid = deployment.submit(&["-N", "2", "-t", "10m", "--wrap", "sleep 600"]);
    deployment.wait_for_state(rigid, "started");

    let (dir, script) = (farm.display().to_string(), script.display().to_string());
    let export = format!("ALL,FARM_WORK={work}");
    let job = deployment.submit(&["--malleable", "1-4", "-t", "10m", "-D", &dir, "--export", &export, &script]);
    wait_for_nodes(&deployment, job, 2);
    deployment.rms(&["cancel", &rigid.to_string()]).ok();
    wait_for_nodes(&deployment, job, 4);
    deployment.kill_server();
    deployment.start_server();

    let urgent = deployment.submit(&["-N", "2", "-t", "10m", "--wrap", "sleep 3"]);
    deployment.wait_for_state(urgent, "started");
    assert_eq!(n_nodes(&deployment, job), 2, "it gave two back");
    deployment.wait_for_end(urgent);

    let record = deployment.wait_for_end(job);
    assert_eq!(record["outcome"]["word"], "completed", "{record}");
    assert_eq!((n_files(&farm.join("todo")), n_files(&farm.join("doing"))), (0, 0));
    for item in 0..200 {
        let result = fs::read_to_string(farm.join(format!("done/{item:03}"))).expect("a result of every item");
        assert_eq!(result, format!("{item}\n"));
    }
}

/// Tells of each change, and confirms it.
fn watcher(deployment: &Deployment, confirm: &str) -> String {
    let (log, rms) = (deployment.path().join("log"), deployment.rms_program());
    let text = format!(
        "#!/bin/sh\nrms() {{ {} \"$@\"; }}\n\
         look() {{\n  generation=$(cat $RMS_GENERATION_FILE)\n  \
         echo generation $generation: $(grep -v '^#' $RMS_HOSTFILE | cut -d' ' -f1) >> {}\n  {confirm}\n}}\n\
         trap look USR1\nlook\nwhile :; do sleep 1000 & wait $!; done\n",
        rms.display(),
        log.display()
    );
    deployment.script("watch.sh", &text)
}

#[test]
fn long_a_script_is_told_by_a_signal_and_confirms() {
    let mut deployment = of_nodes(4);
    let script = watcher(&deployment, "rms resize-done --generation $generation");
    // It is offered nothing before it has looked once.
    deployment.rms(&["admin", "drain", "a[3-4]", "--reason", "later"]).ok();
    let job = deployment.submit(&["--malleable", "2-4", "-N", "2", "-t", "10m", "--on-resize", "signal:USR1", &script]);
    wait_for_line(&deployment, "generation 1: a1 a2");
    deployment.rms(&["admin", "resume", "a[3-4]"]).ok();
    wait_for_nodes(&deployment, job, 4);
    wait_for_line(&deployment, "generation 2: a1 a2 a3 a4");
    deployment.kill_server();
    deployment.start_server();
    let urgent = deployment.submit(&["-N", "2", "-t", "10m", "--wrap", "sleep 600"]);
    deployment.wait_for_state(urgent, "started");
    wait_for_line(&deployment, "generation 3: a1 a2");
    let line = deployment.queued(job).expect("it runs");
    assert_eq!(line["malleable"]["violations"], 0, "{line}");
    let story = deployment.rms(&["negotiations", &job.to_string()]).ok().stdout;
    assert!(story.contains("to grow") && story.contains("to shrink") && story.contains("ready: a["), "{story}");
    let explained = deployment.rms(&["explain", &job.to_string()]).ok().stdout;
    assert!(explained.contains("it can be changed: 2 to 4 nodes"), "{explained}");

    // Once it has ended, the same is told from the history, beside what is open now.
    let all = |deployment: &Deployment| {
        let told = deployment.rms(&["negotiations", "--all", "--json"]).ok().json();
        told["negotiations"].as_array().expect("a list").iter().filter(|line| line["job"] == job).count()
    };
    let n_told = all(&deployment);
    assert!(n_told >= 2, "it has grown and shrunk");
    deployment.rms(&["cancel", &urgent.to_string(), &job.to_string()]).ok();
    deployment.wait_for_end(job);
    deployment.wait_for_end(urgent);
    assert_eq!(deployment.rms(&["negotiations", "-q"]).ok().stdout.trim(), "");
    assert!(all(&deployment) >= n_told);
    assert_eq!(deployment.rms(&["negotiations", &job.to_string()]).ok().stdout.matches("to shrink").count(), 1);
}

#[test]
fn a_command_is_told_and_confirms_for_its_job() {
    let deployment = of_nodes(3);
    let (log, rms) = (deployment.path().join("log"), deployment.rms_program());
    let hook = deployment.script(
        "hook.sh",
        &format!(
            "#!/bin/sh\necho hook $RMS_RESIZE_GENERATION of $RMS_MALLEABLE_LEAST to $RMS_MALLEABLE_MOST on $RMS_NODELIST >> {}\n{} \
             resize-done\n",
            log.display(),
            rms.display()
        ),
    );
    let exec = format!("exec:{hook}");
    let job =
        deployment.submit(&["--malleable", "1-3", "-N", "1", "-t", "10m", "--on-resize", &exec, "--wrap", "sleep 600"]);
    wait_for_nodes(&deployment, job, 3);
    wait_for_line(&deployment, "hook 2 of 1 to 3 on a[1-3]");
    let urgent = deployment.submit(&["-N", "1", "-t", "10m", "--wrap", "sleep 600"]);
    deployment.wait_for_state(urgent, "started");
    wait_for_line(&deployment, "hook 3 of 1 to 3 on a[1-2]");
    assert_eq!(deployment.queued(job).expect("it runs")["malleable"]["violations"], 0);
}

#[test]
fn long_who_never_confirms_loses_the_nodes_after_the_grace_and_what_runs_there() {
    let deployment = of_nodes(3);
    let at_each = "[ $generation = 2 ] && for node in a2 a3; do \
                   $OMPI_MCA_plm_rsh_agent $node \"trap '' TERM; echo \\$\\$ > on-$node; sleep 1000\" & done";
    let script = watcher(&deployment, at_each);
    let job = deployment.submit(&["--malleable", "1-3", "-N", "1", "-t", "10m", "--on-resize", "signal:USR1", &script]);
    wait_for_line(&deployment, "generation 2: a1 a2 a3");
    let pid = |node: &str| {
        let path = deployment.path().join(format!("on-{node}"));
        wait_until("a process", SOON, || fs::read_to_string(&path).ok()?.trim().parse::<i32>().ok())
    };
    let pids = [pid("a2"), pid("a3")];
    let urgent = deployment.submit(&["-N", "2", "-t", "10m", "--wrap", "sleep 600"]);
    deployment.wait_for_state(urgent, "started");
    wait_for_line(&deployment, "generation 3: a1");
    for pid in pids {
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "it was killed before others got the node");
    }
    assert_eq!(n_nodes(&deployment, job), 1);
    let told = negotiations(&deployment, job);
    assert!(told.iter().any(|line| line["direction"] == "shrink"), "{told:?}");
}

/// It is not offered nodes of a cluster where it has none; who asks for them gets them, and what runs there is real.
#[test]
fn long_a_farm_that_is_asked_for_nodes_of_another_cluster_works_there() {
    let settings = "[settings]\nkill_grace = \"2s\"\nrelease_grace = \"3s\"\n";
    let mut deployment = Deployment::builder().cluster("a", 1).cluster("b", 2).config(settings).start();
    let work = deployment.script("work.sh", "#!/bin/sh\necho $$ > on-$RMS_NODE_NAME\nexec sleep 1000\n");
    let pid = |node: &str| {
        let path = deployment.path().join(format!("on-{node}"));
        wait_until(&path.display().to_string(), SOON, || fs::read_to_string(&path).ok()?.trim().parse::<i32>().ok())
    };
    let job = deployment.submit(&["-M", "a", "-N", "1", "--malleable", "1-2", "-t", "10m", "--workers", &work]);
    pid("a1");
    assert_eq!(n_nodes(&deployment, job), 1, "nobody has said that it can use the other cluster");
    let id = job.to_string();
    let came = deployment.rms(&["negotiate", &id, "--grow", "1", "-M", "b"]).ok();
    assert_eq!(came.stdout, "b1\n");
    let there = pid("b1");
    deployment.kill_server();
    deployment.start_server();
    assert_eq!(deployment.queued(job).expect("it runs")["nodes"], serde_json::json!(["a1", "b1"]));
    let told = deployment.rms(&["negotiations", &id]).ok().stdout;
    assert!(told.contains("b"), "{told}");
    let gone = deployment.rms(&["negotiate", &id, "--shrink", "1", "-M", "b"]).ok();
    assert_eq!(gone.stdout, "b1\n");
    assert!(!Path::new(&format!("/proc/{there}")).exists(), "it is free once nothing runs there");
    let first = deployment.rms(&["negotiate", &id, "--shrink", "1", "-M", "a"]);
    assert_eq!(first.code, 1, "its first node stays: {first:?}");
}

#[test]
fn long_a_script_negotiates_from_inside_and_others_from_outside() {
    let deployment = of_nodes(4);
    let rms = deployment.rms_program();
    let text = format!(
        "#!/bin/sh\n{0} negotiate --grow 2 --accept-at-least 1 > granted; echo code $? >> granted\n\
         {0} negotiate --grow 40 --json > refused; echo code $? >> refused\n\
         {0} negotiate --extend 5m > longer; echo code $? >> longer\n\
         {0} negotiations > told; echo code $? >> told\nsleep 600\n",
        rms.display()
    );
    let script = deployment.script("ask.sh", &text);
    let job = deployment.submit(&["--negotiable", "-N", "1", "-t", "10m", &script]);
    let read = |name: &str| {
        let path = deployment.path().join(name);
        wait_until(name, SOON, || fs::read_to_string(&path).ok().filter(|text| text.contains("code ")))
    };
    assert_eq!(read("granted"), "a2\na3\ncode 0\n");
    let refused = read("refused");
    assert!(refused.contains("\"error\"") && refused.ends_with("code 1\n"), "{refused}");
    assert_eq!(read("longer"), "5m\ncode 0\n");
    let told = read("told");
    assert!(told.contains("opened at") && told.contains("by a process of the job"), "{told}");
    assert_eq!(n_nodes(&deployment, job), 3);

    let id = job.to_string();
    let back = deployment.rms(&["negotiate", &id, "--shrink", "1", "--nodes", "a2"]).ok();
    assert_eq!(back.stdout, "a2\n");
    assert_eq!(deployment.queued(job).expect("it runs")["nodes"], serde_json::json!(["a1", "a3"]));
    let told = negotiations(&deployment, job);
    let by: Vec<&Value> = told.iter().map(|line| &line["by"]).collect();
    assert_eq!(told.len(), 4, "{told:?}");
    assert!(by.iter().all(|by| by.is_string()), "{by:?}");
    let ada = deployment.join_person("user", "ada");
    let theirs = deployment.finish(deployment.command_as(&ada, &["negotiate", &id, "--grow", "1"]));
    assert_eq!(theirs.code, 1, "{theirs:?}");
    assert!(theirs.stderr.contains("belongs to"), "{theirs:?}");
}

#[test]
fn long_a_farm_goes_on_without_nodes_that_are_lost_the_first_one_too() {
    let settings = "[settings]\nnode_lost_after = \"1s\"\nkill_grace = \"2s\"\n";
    let mut deployment = Deployment::builder().cluster("a", 3).config(settings).start();
    let work = deployment.script("work.sh", "#!/bin/sh\nwhile [ ! -e end ]; do sleep 0.2; done\n");
    let farm = ["--malleable", "1-3", "-N", "3", "-t", "10m"];
    let job = deployment.submit(&[&farm[..], &["--workers", &work]].concat());
    wait_for_nodes(&deployment, job, 3);
    deployment.kill_agent("a2");
    wait_for_nodes(&deployment, job, 2);
    deployment.kill_agent("a1");
    wait_for_nodes(&deployment, job, 1);
    let told = deployment.rms(&["show", &job.to_string()]).ok().stdout;
    assert!(told.contains("a3"), "{told}");
    fs::write(deployment.path().join("end"), "").expect("the directory is ours");
    let record = deployment.wait_for_end(job);
    assert_eq!(record["outcome"]["word"], "completed", "{record}");
    deployment.restart_agent("a1");
    deployment.restart_agent("a2");
}

#[test]
fn long_who_can_go_on_without_a_lost_node_is_told_of_it_and_does() {
    let settings = "[settings]\nnode_lost_after = \"1s\"\nkill_grace = \"2s\"\noffer_idle = \"never\"\n";
    let mut deployment = Deployment::builder().cluster("a", 4).config(settings).start();
    let script = watcher(&deployment, "rms resize-done --generation $generation");
    let told = ["--malleable", "1-2", "-N", "2", "-t", "10m", "--on-resize", "signal:USR1"];
    let told = deployment.submit(&[&told[..], &["--on-node-loss", "shrink", &script]].concat());
    wait_for_line(&deployment, "generation 1: a1 a2");
    let elastic = deployment.example("elastic", &[]).get_program().to_string_lossy().into_owned();
    let speaks = ["--malleable", "1-2", "--negotiable", "-N", "2", "-t", "10m", "-o", "elastic"];
    let speaks = deployment.submit(&[&speaks[..], &["--wrap", &format!("{elastic} 1-2")]].concat());
    let output = || fs::read_to_string(deployment.path().join("elastic")).unwrap_or_default();
    wait_until("it to begin", SOON, || output().contains("begins on a3 a4").then_some(()));
    let shown = deployment.rms(&["show", &told.to_string()]).ok().stdout;
    assert!(shown.contains("goes on without it, if as many as its least are left"), "{shown}");
    let ends = ["--malleable", "1-2", "--on-resize", "signal:USR1", "--on-node-loss", "fail", "-H", "--wrap", "true"];
    let shown = deployment.submit(&ends);
    let shown = deployment.rms(&["show", &shown.to_string()]).ok().stdout;
    assert!(shown.contains("it ends"), "{shown}");
    deployment.kill_agent("a2");
    deployment.kill_agent("a4");
    wait_for_line(&deployment, "generation 2: a1");
    let output = || fs::read_to_string(deployment.path().join("elastic")).unwrap_or_default();
    wait_until("it to be told", SOON, || output().contains("lost a4").then_some(()));
    for job in [told, speaks] {
        assert_eq!(n_nodes(&deployment, job), 1, "it goes on");
    }
    deployment.rms(&["cancel", &told.to_string(), &speaks.to_string()]).ok();
    deployment.wait_for_end(told);
    deployment.wait_for_end(speaks);
    deployment.restart_agent("a2");
    deployment.restart_agent("a4");
}

/// Of one from outside, and of one from within the job: it does not get nodes that nobody waits for any more.
#[test]
fn a_request_is_withdrawn_by_a_signal() {
    let deployment = of_nodes(2);
    let (log, rms) = (deployment.path().join("log"), deployment.rms_program());
    let asks = format!("timeout --preserve-status 3 {} negotiate --grow 1 --wait 5m", rms.display());
    let within = format!("{asks}; echo $? > {}; sleep 600", log.display());
    let rigid = deployment.submit(&["-N", "1", "-t", "10m", "--wrap", "sleep 600"]);
    deployment.wait_for_state(rigid, "started");
    let asker = deployment.submit(&["--negotiable", "-N", "1", "-t", "10m", "--wrap", &within]);
    let open = |is_open: bool| {
        let is_so = || (negotiations_open(&deployment, asker) == usize::from(is_open)).then_some(());
        wait_until("the request", SOON, is_so);
        let shown = deployment.rms(&["show", &asker.to_string()]).ok().stdout;
        assert_eq!(shown.contains("negotiates"), is_open, "{shown}");
    };
    wait_for_line(&deployment, "143");
    open(false);
    let ask = deployment
        .command(&["negotiate", &asker.to_string(), "--grow", "1", "--wait", "5m"])
        .stderr(Stdio::piped())
        .spawn();
    let ask = ask.expect("it starts");
    open(true);
    kill(Pid::from_raw(ask.id() as i32), Signal::SIGTERM).expect("it is ours");
    let ask = ask.wait_with_output().expect("it ends");
    let told = String::from_utf8_lossy(&ask.stderr);
    assert_eq!((ask.status.code(), told.contains("withdrawn")), (Some(143), true), "{told}");
    open(false);
    deployment.rms(&["cancel", &rigid.to_string()]).ok();
    deployment.wait_for_end(rigid);
    assert_eq!(n_nodes(&deployment, asker), 1);
}

#[test]
fn long_who_waits_for_nodes_in_vain_hears_so_and_others_give_some_where_they_can() {
    let deployment = of_nodes(3);
    let asker = deployment.submit(&["--negotiable", "-N", "1", "-t", "10m", "--wrap", "sleep 600"]);
    let rigid = deployment.submit(&["-N", "2", "-t", "10m", "--wrap", "sleep 600"]);
    deployment.wait_for_state(asker, "started");
    deployment.wait_for_state(rigid, "started");
    for wait in ["1s", "2s", "3s"] {
        let refused = deployment.rms(&["negotiate", &asker.to_string(), "--grow", "1", "--wait", wait, "--json"]);
        assert_eq!(refused.json()["error"]["kind"], "no_resources", "{refused:?}");
    }
    deployment.rms(&["cancel", &rigid.to_string()]).ok();
    let farm = deployment.submit(&["--malleable", "1-2", "-N", "2", "-t", "10m", "--workers", "sleep", "600"]);
    wait_for_nodes(&deployment, farm, 2);
    deployment.rms(&["negotiate", &asker.to_string(), "--grow", "1", "--wait", "25s"]).ok();
    assert_eq!((n_nodes(&deployment, asker), n_nodes(&deployment, farm)), (2, 1));
    deployment.rms(&["priority", &farm.to_string(), "10"]).ok();
    let refused = deployment.rms(&["negotiate", &asker.to_string(), "--grow", "1", "--wait", "1s", "--json"]);
    assert_eq!(refused.json()["error"]["kind"], "no_resources", "{refused:?}");
}

/// What two ranks write at the same time are whole lines, and what workers on nodes that come later write is shown.
#[test]
fn long_a_run_shows_whole_lines_of_all_nodes_those_that_come_later_too() {
    let deployment = of_nodes(3);
    let rigid = deployment.submit(&["-N", "2", "-t", "10m", "--wrap", "sleep 600"]);
    deployment.wait_for_state(rigid, "started");
    // The beginning of a line is shown, as that of a question, while only one task has written.
    let text = "#!/bin/sh\necho on $RMS_NODE_NAME.\ntouch wrote-$RMS_NODE_NAME\n\
                while [ ! -e all ]; do sleep 0.1; done\n\
                while [ ! -e end ]; do printf 'on '; sleep 0.1; echo $RMS_NODE_NAME.; done\n";
    let work = deployment.script("work.sh", text);
    let run = ["run", "--malleable", "1-3", "-N", "1", "-t", "10m", "--workers", &work];
    let output = std::thread::scope(|scope| {
        let running = scope.spawn(|| deployment.rms(&run).ok().stdout);
        wait_until("it to run", SOON, || deployment.queued(rigid + 1).filter(|line| line["state"] == "started"));
        deployment.rms(&["cancel", &rigid.to_string()]).ok();
        wait_for_nodes(&deployment, rigid + 1, 3);
        let wrote = |node: &str| deployment.path().join(format!("wrote-{node}")).exists();
        wait_until("all to write", SOON, || ["a1", "a2", "a3"].into_iter().all(wrote).then_some(()));
        for step in ["all", "end"] {
            std::thread::sleep(Duration::from_secs(1));
            fs::write(deployment.path().join(step), "").expect("the directory is ours");
        }
        running.join().expect("it ends")
    });
    for node in ["a1", "a2", "a3"] {
        assert!(output.contains(&format!("on {node}.\n")), "{node}: {output}");
    }
    assert!(output.lines().all(|line| line.starts_with("on a") && line.len() == "on a1.".len()), "{output}");
}
