//! Messages between processes of a job (`rms-rsh`, and `rms` inside the job) and the agent of their node.

use std::path::PathBuf;

use nix::sys::resource::{Resource, getrlimit};
use rms_model::{Inherited, Limits};
use serde::{Deserialize, Serialize};

/// The first frame: the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Call {
    Step {
        step: Box<StepRequest>,
    },
    /// Requests the address of the server and the job's own credentials; [`CommandEnd::Credentials`] follows.
    Credentials {
        credentials: (),
    },
    Command(Request),
}

/// A step of the job: tasks of one program, on nodes of the job. [`Say`] and bytes of [`STDIN`] follow; bytes of the
/// tasks' streams come back, each under [`task_stream`], interleaved with messages about the step's progress.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepRequest {
    pub argv: Vec<String>,
    /// The caller's whole environment.
    pub environment: Vec<(String, String)>,
    pub cwd: String,
    pub umask: u32,
    /// Those of the job if absent.
    #[serde(default)]
    pub limits: Option<Limits>,
    /// The minimum and maximum number of nodes; absent for as many as the tasks need.
    pub nodes: Option<(u32, u32)>,
    pub tasks: Option<u32>,
    pub tasks_per_node: Option<u32>,
    pub cpus_per_task: Option<u32>,
    /// Nodes that the step must include; `excluded` are nodes that it must not use.
    pub named: Vec<String>,
    pub excluded: Vec<String>,
    /// The index of the first node of the job that the step may use; earlier ones are skipped.
    pub first_node: u32,
    /// More tasks than CPUs are intended.
    pub overcommit: bool,
    /// Waits until no other step uses the CPUs.
    pub exclusive: bool,
    /// The first task that fails ends the others.
    pub kill_on_bad_exit: bool,
    pub input: Input,
}

/// Which tasks of a step read the caller's input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    #[default]
    None,
    First,
    All,
}

/// A message from the caller of a running step. The agent answers each with some frame, at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Say {
    Signal {
        signal: i32,
    },
    /// Sends TERM, and KILL once the job's grace time is over.
    End,
}

/// The first frame of [`Call::Command`]: a command to run on a node. Bytes of stream [`STDIN`] follow, then an empty
/// piece.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// A node of the job, by its name or by its name in hostfiles.
    pub node: String,
    /// The command line for `sh -c`.
    pub command: String,
    /// Of the caller; that of the job if absent.
    #[serde(default)]
    pub inherited: Option<Inherited>,
}

/// Returns what a process that this one starts inherits.
pub fn inherited() -> Inherited {
    let soft = |resource| getrlimit(resource).ok().map(|(soft, _)| soft);
    let limits = Limits {
        open_files: soft(Resource::RLIMIT_NOFILE),
        core_bytes: soft(Resource::RLIMIT_CORE),
        stack_bytes: soft(Resource::RLIMIT_STACK),
        locked_bytes: soft(Resource::RLIMIT_MEMLOCK),
        processes: soft(Resource::RLIMIT_NPROC),
        address_space_bytes: soft(Resource::RLIMIT_AS),
    };
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    Inherited { umask: umask(&status).unwrap_or(DEFAULT_UMASK), limits }
}

/// Reads the umask from the process status, as the system call can read it only by changing it.
fn umask(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(line.trim(), 8).ok()
}

const DEFAULT_UMASK: u32 = 0o022;

/// The messages to the caller. Bytes of [`STDOUT`] and [`STDERR`] come before the last one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommandEnd {
    Ended {
        code: i32,
    },
    Failed {
        reason: String,
    },
    /// The step waits for CPUs that other steps use.
    Waiting,
    /// The step runs on `nodes`, with `tasks` on each.
    Started {
        step: u32,
        nodes: Vec<String>,
        tasks: Vec<u32>,
    },
    /// A task of a step has ended; exactly one of code and signal is set.
    TaskEnded {
        task: u32,
        node: String,
        code: Option<i32>,
        signal: Option<i32>,
    },
    /// `n_bytes` of the input have been read by all tasks that read it; 0 if this only answers a [`Say`].
    Taken {
        n_bytes: u64,
    },
    /// The step ends for this reason.
    Told {
        reason: String,
    },
    Credentials {
        dir: PathBuf,
        server: String,
    },
}

/// Returns the number of a task's stream, where `stream` is [`STDOUT`] or [`STDERR`].
pub fn task_stream(task: u32, stream: u64) -> u64 {
    u64::from(task) << 2 | stream
}

pub const STDIN: u64 = 0;
pub const STDOUT: u64 = 1;
pub const STDERR: u64 = 2;

/// The environment variable with the agent's socket, set in every job.
pub const SOCKET_VARIABLE: &str = "RMS_AGENT_SOCKET";
/// The exit code if nothing could be run, as with ssh.
pub const EXIT_FAILED: i32 = 255;
/// The exit code if a step was lost or could not be started.
pub const EXIT_LOST: i32 = 125;
/// The most bytes of input that a caller may have in flight.
pub const INPUT_WINDOW: u64 = crate::order::WINDOW;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_umask_is_read_where_the_kernel_writes_it() {
        assert_eq!(umask("Name:\tsh\nUmask:\t0027\nState:\tR\n"), Some(0o027));
        assert_eq!(umask("Name:\tsh\n"), None);
    }
}
