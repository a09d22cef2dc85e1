//! The output of commands, and waiting for a condition.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

/// A finished command.
#[derive(Clone, Debug)]
pub struct Output {
    pub command: String,
    /// The exit code, or 128 + the signal that ended it.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    pub(super) fn of(command: String, output: std::process::Output) -> Output {
        use std::os::unix::process::ExitStatusExt;
        let status = output.status;
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Output { command, code, stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Returns the output of a command that had to succeed.
    pub fn ok(self) -> Output {
        assert_eq!(self.code, 0, "`{}` failed:\n{}{}", self.command, self.stdout, self.stderr);
        self
    }

    /// Returns the output of a command that had to fail with this code.
    pub fn fails(self, code: i32) -> Output {
        assert_eq!(self.code, code, "`{}`:\n{}{}", self.command, self.stdout, self.stderr);
        self
    }

    pub fn json(&self) -> Value {
        let parsed = serde_json::from_str(&self.stdout);
        parsed.unwrap_or_else(|error| panic!("`{}` printed no JSON ({error}):\n{}", self.command, self.stdout))
    }

    /// The standard output without the last line break.
    pub fn text(&self) -> &str {
        self.stdout.trim_end()
    }
}

/// Polls a condition, because a test has no other way to see into other processes. Panics with `what` when it takes too
/// long.
pub fn wait_until<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < limit, "waited {limit:?} in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs 'rms submit --json' repeatedly, like a person who tries once and believes what the command prints; returns the
/// jobs that it names, each with the value beside its command. Panics if a job is named twice.
pub fn submit_all<T>(commands: Vec<(T, Command)>, pause: Duration) -> BTreeMap<u64, T> {
    let mut promised = BTreeMap::new();
    for (what, mut command) in commands {
        std::thread::sleep(pause);
        let output = command.output().expect("the command starts");
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        if let (true, Some(job)) = (output.status.success(), answer["job"].as_u64()) {
            assert!(promised.insert(job, what).is_none(), "job {job} was promised twice");
        }
    }
    promised
}
