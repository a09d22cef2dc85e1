//! The output and input of `rms run`: all of it comes, whoever is killed meanwhile, or what is missing is said and is no success.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Output, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use test_kit::{Deployment, SmallDisk, wait_until};

const SOON: Duration = Duration::from_secs(30);
/// More than all buffers between a task and the terminal hold.
const N_BYTES: usize = 24 << 20;
const OUTPUT_MISSING: i32 = 74;

/// A run whose output nobody reads yet.
struct Run {
    child: Child,
    job: u64,
}

/// What came of it.
#[derive(Debug)]
struct Done {
    code: i32,
    n_bytes: usize,
    is_whole: bool,
    stderr: String,
}

impl Run {
    /// Starts it, and waits until the job has ended.
    fn unread(deployment: &Deployment, arguments: &[&str]) -> Run {
        let write = format!("head -c {} /dev/zero | tr '\\0' x; echo; echo END", N_BYTES);
        let mut all = vec!["run"];
        all.extend(arguments);
        all.extend(["sh", "-c", &write]);
        let mut command = deployment.command(&all);
        let newest = || {
            let history = deployment.rms(&["history", "--json"]).ok().json();
            history["jobs"].as_array()?.iter().filter_map(|record| record["job"].as_u64()).max()
        };
        let before = newest();
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let job = wait_until("the job to end", SOON, || newest().filter(|job| Some(*job) > before));
        Run { child, job }
    }

    /// Reads it to its end, on a thread.
    fn read(mut self) -> JoinHandle<Done> {
        std::thread::spawn(move || {
            let mut stdout = self.child.stdout.take().expect("it is piped");
            let mut stderr = self.child.stderr.take().expect("it is piped");
            let errors = std::thread::spawn(move || {
                let mut text = String::new();
                stderr.read_to_string(&mut text).expect("it is text");
                text
            });
            let mut bytes = Vec::new();
            stdout.read_to_end(&mut bytes).expect("it is a pipe");
            let code = self.child.wait().expect("it is our child").code().unwrap_or(-1);
            let n_ends = bytes.windows(4).filter(|window| window == b"END\n").count();
            let n_bytes = bytes.iter().filter(|byte| **byte == b'x').count();
            let is_whole = n_bytes % N_BYTES == 0 && n_bytes / N_BYTES == n_ends && n_ends > 0;
            Done { code, n_bytes, is_whole, stderr: errors.join().expect("it has read") }
        })
    }

    fn finish(self) -> Done {
        self.read().join().expect("it has ended")
    }
}

fn stream(deployment: &Deployment, node: &str, job: u64) -> PathBuf {
    deployment.agent_dir(node).join(format!("spool/jobs/{job}.1/out.0"))
}

/// Its node forgets the job at its end, which often comes before the client asks for the output, and here always.
#[test]
fn a_run_that_writes_to_a_file_misses_no_output() {
    let mut deployment = Deployment::of_nodes(1);
    let file = deployment.path().join("out").display().to_string();
    let mut run = deployment.command(&["run", "-o", &file, "--begin", "now+2", "echo", "written"]);
    let run = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let pid = Pid::from_raw(run.id() as i32);
    wait_until("the job", SOON, || (deployment.rms(&["show", "1"]).code == 0).then_some(()));
    kill(pid, Signal::SIGSTOP).expect("it is ours");
    deployment.kill_server();
    deployment.start_server();
    deployment.wait_for_end(1);
    kill(pid, Signal::SIGCONT).expect("it is ours");
    let run = run.wait_with_output().expect("it ends");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    assert_eq!(fs::read_to_string(&file).expect("it is there"), "written\n");
}

#[test]
fn errors_of_a_run_go_to_the_file_that_is_named_for_them() {
    let deployment = Deployment::of_nodes(1);
    let run = |file: &str| {
        let task = "echo out $RMS_TASK_ID; echo error $RMS_TASK_ID >&2";
        deployment.rms(&["run", "-O", "-n", "2", "-e", file, "sh", "-c", task])
    };
    let file = deployment.path().join("errors.%t").display().to_string();
    let ran = run(&file).ok();
    let mut lines: Vec<&str> = ran.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!((lines, ran.stderr.as_str()), (vec!["out 0", "out 1"], ""));
    let written = ["0", "1"].map(|task| fs::read_to_string(file.replace("%t", task)).expect("it was written"));
    assert_eq!(written, ["error 0\n", "error 1\n"]);
    let refused = run("/no/such/folder/errors");
    assert!(refused.code != 0 && refused.stderr.contains("/no/such/folder/errors"), "{refused:?}");
}

#[test]
fn a_run_whose_output_cannot_be_written_ends_its_job() {
    let deployment = Deployment::of_nodes(1);
    let mut run = deployment.command(&["run", "sh", "-c", "while :; do echo x; sleep 0.1; done"]);
    let full = fs::File::options().write(true).open("/dev/full").expect("Linux has it");
    let run = run.stdout(full).output().expect("it starts");
    let said = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(OUTPUT_MISSING), "{said}");
    assert!(said.contains("No space left on device") && said.contains("job 1 is ended"), "{said}");
    assert_eq!(deployment.wait_for_end(1)["outcome"]["word"], "cancelled");
    let full = fs::File::options().write(true).open("/dev/full").expect("Linux has it");
    let run = deployment.command(&["run", "--json", "true"]).stdout(full).output().expect("it starts");
    let said = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(OUTPUT_MISSING), "{said}");
    assert!(said.contains("No space left on device"), "{said}");
}

#[test]
fn long_an_agent_that_was_away_sends_what_it_has_left() {
    let mut deployment = Deployment::of_nodes(1);
    let run = Run::unread(&deployment, &[]);
    deployment.kill_agent("a1");
    let reading = run.read();
    std::thread::sleep(Duration::from_secs(14));
    deployment.restart_agent("a1");
    let done = reading.join().expect("it has ended");
    assert!(done.code == 0 && done.is_whole, "{done:?}");
    assert!(done.stderr.contains("node a1") && done.stderr.contains("waiting for it"), "{done:?}");
}

#[test]
fn long_what_a_lost_node_had_is_named_and_is_no_success() {
    let config = "[settings]\nnode_lost_after = \"3s\"";
    let mut deployment = Deployment::builder().cluster("a", 2).config(config).start();
    let run = Run::unread(&deployment, &["-N", "2", "-n", "2"]);
    let job = run.job;
    deployment.kill_agent("a2");
    let done = run.finish();
    assert_eq!(done.code, OUTPUT_MISSING, "{done:?}");
    assert!((N_BYTES..2 * N_BYTES).contains(&done.n_bytes), "all of the other node came: {done:?}");
    let said = done.stderr.lines().find(|line| line.contains("is missing")).expect("it is said");
    assert!(said.contains("node a2") && said.contains("stdout of task 1 from byte "), "{said}");
    let logs = deployment.rms(&["logs", &job.to_string()]).fails(OUTPUT_MISSING);
    assert!(logs.stderr.contains("node a2"), "{}", logs.stderr);

    // Who does not want to wait for it says so.
    deployment.rms(&["admin", "set", "node_lost_after", "1h"]).ok();
    let mut logs = deployment.command(&["logs", &job.to_string()]);
    logs.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut logs = logs.spawn().expect("it starts");
    let mut stderr = logs.stderr.take().expect("it is piped");
    let mut said = [0; 60];
    stderr.read_exact(&mut said).expect("it says that it waits");
    kill(Pid::from_raw(logs.id() as i32), Signal::SIGINT).expect("it is ours");
    assert_ne!(logs.wait().expect("it is our child").code(), Some(0));

    deployment.restart_agent("a2");
    let logs = deployment.rms(&["logs", &job.to_string()]).ok();
    assert_eq!(logs.stdout.matches('x').count(), 2 * N_BYTES, "the node has it still");
}

#[test]
fn long_interrupting_the_wait_for_output_is_no_success() {
    let mut deployment = Deployment::of_nodes(1);
    let run = Run::unread(&deployment, &[]);
    deployment.kill_agent("a1");
    let pid = Pid::from_raw(run.child.id() as i32);
    let reading = run.read();
    std::thread::sleep(Duration::from_secs(3));
    kill(pid, Signal::SIGINT).expect("it is ours");
    let done = reading.join().expect("it has ended");
    assert!(done.code == 130 && done.stderr.contains("not all of its output"), "{done:?}");
}

#[test]
fn long_output_that_is_left_comes_when_the_server_and_the_agent_are_back() {
    let mut deployment = Deployment::of_nodes(2);
    let run = Run::unread(&deployment, &["-N", "2", "-n", "2"]);
    deployment.kill_server();
    deployment.kill_agent("a2");
    let reading = run.read();
    deployment.start_server();
    std::thread::sleep(Duration::from_secs(3));
    deployment.restart_agent("a2");
    let done = reading.join().expect("it has ended");
    assert!(done.code == 0 && done.is_whole, "{done:?}");
}

#[test]
fn long_what_is_deleted_or_cut_from_a_spool_is_missing() {
    let mut deployment = Deployment::of_nodes(1);
    type Damage = fn(&PathBuf);
    let damages: [(&str, Damage); 3] = [
        ("deleted", |path| fs::remove_file(path).expect("it is there")),
        ("has 100 bytes", |path| {
            fs::File::options().write(true).open(path).and_then(|file| file.set_len(100)).expect("cut")
        }),
        ("changed after", |path| {
            let file = fs::File::options().write(true).open(path).expect("it is there");
            std::os::unix::fs::FileExt::write_all_at(&file, b"nonsense", N_BYTES as u64 - 8).expect("written");
        }),
    ];
    for (word, damage) in damages {
        let run = Run::unread(&deployment, &[]);
        // A file that the agent has open is read to its end, whatever becomes of its name.
        deployment.kill_agent("a1");
        damage(&stream(&deployment, "a1", run.job));
        deployment.restart_agent("a1");
        let done = run.finish();
        assert!(done.code == OUTPUT_MISSING && done.stderr.contains(word), "{word}: {done:?}");
        assert!(done.stderr.contains("stdout of task 0 from byte "), "{done:?}");
    }
}

#[test]
fn long_output_for_which_the_disk_of_its_node_had_no_room_is_no_success() {
    let Some(disk) = SmallDisk::of_mib(32) else { return };
    let deployment = Deployment::with_node_on(&disk);
    // Its end says nothing of what could not be written.
    let output = deployment.rms(&["run", "sh", "-c", "head -c 60M /dev/zero 2>/dev/null; true"]);
    let output = output.fails(OUTPUT_MISSING);
    assert!(output.stderr.contains("node a1") && output.stderr.contains("full"), "{}", output.stderr);
    drop(deployment);
}

#[test]
fn a_batch_job_whose_output_is_in_its_file_has_lost_none() {
    let deployment = Deployment::of_nodes(1);
    let job = deployment.submit(&["-o", "named.out", "--wrap", "echo hi"]);
    deployment.wait_for_end(job);
    let logs = deployment.rms(&["logs", &job.to_string()]).ok();
    assert!(logs.stderr.contains("to the file that its -o flag named") && !logs.stderr.contains("missing"), "{logs:?}");
    let json = deployment.rms(&["logs", "--json", &job.to_string()]).ok().json();
    assert_eq!((&json["output"], &json["missing"]), (&"".into(), &serde_json::json!([])));
    // The nodes keep the output of this one, which is none.
    deployment.rms(&["run", "true"]).ok();
    let logs = deployment.rms(&["logs", "last"]).ok();
    assert_eq!((logs.text(), logs.stderr.as_str()), ("", ""));
}

#[test]
fn the_file_of_a_batch_job_that_has_ended_is_read_although_its_node_is_away() {
    let mut deployment = Deployment::of_nodes(1);
    let job = deployment.submit(&["--wrap", "echo hi"]);
    deployment.wait_for_end(job);
    deployment.kill_agent("a1");
    wait_until("the agent to be away", Duration::from_secs(20), || {
        deployment.rms(&["nodes"]).ok().text().contains("away").then_some(())
    });
    let logs = deployment.rms(&["logs", &job.to_string()]).ok();
    assert_eq!(logs.text(), "hi");
    let (said, file) = (&logs.stderr, format!("this is the file rms-{job}.out"));
    assert!(said.contains(&file) && !said.contains("waiting"), "{logs:?}");
}

/// A run of `cat`, which a thread feeds lines, one after the other.
fn fed(deployment: &Deployment, task: &[&str], n_lines: usize, pause: Duration) -> JoinHandle<(Vec<u8>, Output)> {
    let mut command = deployment.command(&[["run", "-t", "5m"].as_slice(), task].concat());
    let run = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut run = run.spawn().expect("it starts");
    let mut stdin = run.stdin.take().expect("it is piped");
    let given: Vec<String> = (0..n_lines).map(|line| format!("line {line}\n")).collect();
    let whole = given.concat().into_bytes();
    std::thread::spawn(move || {
        for line in given {
            stdin.write_all(line.as_bytes()).expect("the job reads");
            if !pause.is_zero() {
                std::thread::sleep(pause);
            }
        }
    });
    std::thread::spawn(move || (whole, run.wait_with_output().expect("it is our child")))
}

fn check_all_came(reading: JoinHandle<(Vec<u8>, Output)>) {
    let (given, output) = reading.join().expect("it has ended");
    let n_lines = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), n_lines(&output.stdout)), (Some(0), n_lines(&given)), "{said}");
    assert!(output.stdout == given, "it came in another order");
}

fn wait_for_a_line(deployment: &Deployment, node: &str, job: u64) {
    let path = stream(deployment, node, job);
    wait_until("the first output", SOON, || fs::metadata(&path).ok().filter(|file| file.len() > 0));
}

#[test]
fn long_input_on_its_way_to_an_agent_that_is_killed_comes_once() {
    let mut deployment = Deployment::of_nodes(1);
    let reading = fed(&deployment, &["cat"], 400, Duration::from_millis(10));
    wait_for_a_line(&deployment, "a1", 1);
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(300));
        deployment.kill_agent("a1");
        std::thread::sleep(Duration::from_millis(300));
        deployment.restart_agent("a1");
    }
    check_all_came(reading);
}

#[test]
fn long_input_on_its_way_to_a_server_that_is_killed_comes_once() {
    let mut deployment = Deployment::of_nodes(1);
    let reading = fed(&deployment, &["cat"], 400, Duration::from_millis(10));
    wait_for_a_line(&deployment, "a1", 1);
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(300));
        deployment.kill_server();
        std::thread::sleep(Duration::from_millis(300));
        deployment.start_server();
    }
    check_all_came(reading);
}

#[test]
fn long_input_that_a_job_reads_slowly_comes_once_though_all_are_killed() {
    let mut deployment = Deployment::of_nodes(1);
    // More than all buffers between the terminal and the task hold.
    let slow = "head -c 100000; sleep 3; head -c 900000; sleep 2; exec cat";
    let reading = fed(&deployment, &["sh", "-c", slow], 500_000, Duration::ZERO);
    wait_for_a_line(&deployment, "a1", 1);
    deployment.kill_server();
    deployment.start_server();
    std::thread::sleep(Duration::from_millis(1500));
    deployment.kill_agent("a1");
    deployment.restart_agent("a1");
    std::thread::sleep(Duration::from_millis(1500));
    deployment.kill_agent("a1");
    deployment.kill_server();
    deployment.start_server();
    deployment.restart_agent("a1");
    check_all_came(reading);
}
