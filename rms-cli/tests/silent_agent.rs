//! Checks that a signal ends `rms run` inside a job even if the agent does not answer, because it is stopped.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use node_agent::frame;
use node_agent::rsh::{CommandEnd, STDOUT};

/// A step, the agent's end of its connection, and the directory of the socket.
struct Step {
    child: Child,
    agent: UnixStream,
    _dir: tempfile::TempDir,
}

impl Step {
    /// Begins a step with an environment of this many bytes, and accepts its connection.
    fn call(n_bytes: usize) -> Step {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("agent.sock");
        let listener = UnixListener::bind(&socket).expect("bound");
        let mut command = Command::new(env!("CARGO_BIN_EXE_rms"));
        command
            .args(["run", "-n", "1", "hostname"])
            .env_clear()
            .env("RMS_AGENT_SOCKET", &socket)
            .env("RMS_JOB_ID", "7");
        command.envs((0..n_bytes >> 16).map(|n| (format!("V{n}"), "v".repeat(1 << 16))));
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("rms starts");
        let agent = listener.accept().expect("a caller").0;
        Step { child, agent, _dir: dir }
    }

    /// Begins a step, lets the agent report that it runs, and waits until the command has received that.
    fn begin() -> Step {
        let mut step = Step::call(0);
        let started = CommandEnd::Started { step: 0, nodes: vec!["n1".to_owned()], tasks: vec![1] };
        step.say(&frame::message(&started));
        step.say(&frame::bytes(STDOUT, b"begun\n"));
        let mut line = String::new();
        BufReader::new(step.child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
        assert_eq!(line, "begun\n");
        step
    }

    fn say(&mut self, frame: &[u8]) {
        self.agent.write_all(frame).expect("it listens");
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("it runs");
    }

    /// Waits until the command asks the agent to end the step.
    fn hears_end(&mut self) {
        let mut heard = Vec::new();
        let mut piece = [0; 16 << 10];
        while !String::from_utf8_lossy(&heard).contains("\"End\"") {
            let n = self.agent.read(&mut piece).expect("it speaks");
            assert!(n > 0, "it has left");
            heard.extend_from_slice(&piece[..n]);
        }
    }

    /// Returns the exit code of the command, and its output.
    fn ended(mut self) -> (Option<i32>, String) {
        let begun = Instant::now();
        while self.child.try_wait().expect("a child").is_none() {
            if begun.elapsed() > PATIENCE {
                let _ended = self.child.kill();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let output = self.child.wait_with_output().expect("it has ended");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Longer than the command waits for an answer.
const PATIENCE: Duration = Duration::from_secs(15);

fn check(step: Step, code: i32) {
    let (ended, said) = step.ended();
    assert_eq!(ended, Some(code), "{said}");
    assert!(said.contains("the agent of this node does not answer"), "{said}");
}

#[test]
fn long_a_signal_ends_a_step_that_has_not_begun() {
    for n_bytes in [0, 1 << 20] {
        for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130)] {
            let step = Step::call(n_bytes);
            step.signal(signal);
            check(step, code);
        }
    }
}

#[test]
fn long_a_signal_ends_the_command_of_a_step_that_runs() {
    let step = Step::begin();
    step.signal(Signal::SIGTERM);
    check(step, 143);
}

#[test]
fn a_second_signal_ends_the_command_at_once() {
    let mut step = Step::begin();
    step.signal(Signal::SIGINT);
    step.hears_end();
    // Sent twice by one program, the signal counts once.
    step.signal(Signal::SIGINT);
    std::thread::sleep(Duration::from_millis(300));
    assert!(step.child.try_wait().expect("a child").is_none(), "it waits");
    let begun = Instant::now();
    step.signal(Signal::SIGINT);
    check(step, 130);
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}

#[test]
fn long_a_step_that_takes_its_time_to_end_is_waited_for_while_the_agent_answers() {
    let mut step = Step::begin();
    step.signal(Signal::SIGTERM);
    step.hears_end();
    step.say(&frame::message(&CommandEnd::Taken { n_bytes: 0 }));
    std::thread::sleep(Duration::from_secs(6));
    assert!(step.child.try_wait().expect("a child").is_none(), "it waits");
    step.say(&frame::message(&CommandEnd::Ended { code: 143 }));
    assert_eq!(step.ended().0, Some(143));
}
