//! What processes of a job and the agent of their node tell each other: `rms-rsh`, and `rms` inside the job.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// First frame: what is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Call {
    Step {
        step: Box<StepRequest>,
    },
    /// The way to the server with the job's own credentials; [`CommandEnd::Credentials`] follows.
    Credentials {
        credentials: (),
    },
    Command(Request),
}

/// A step of the job: tasks of one program, on nodes of the job. [`Say`] and bytes of [`STDIN`] follow; bytes of the tasks'
/// streams come back, each under [`task_stream`], between the answers that tell how it goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepRequest {
    pub argv: Vec<String>,
    /// All of it, as the caller has it.
    pub environment: Vec<(String, String)>,
    pub cwd: String,
    pub umask: u32,
    /// So many nodes, between the two; as many as the tasks need if absent.
    pub nodes: Option<(u32, u32)>,
    pub tasks: Option<u32>,
    pub tasks_per_node: Option<u32>,
    pub cpus_per_task: Option<u32>,
    /// These nodes among others, and none of those.
    pub named: Vec<String>,
    pub excluded: Vec<String>,
    /// Not the first ones of the job.
    pub first_node: u32,
    /// More tasks than CPUs are meant.
    pub overcommit: bool,
    /// Wait until no other step has the CPUs.
    pub exclusive: bool,
    /// The first task that fails ends the others.
    pub kill_on_bad_exit: bool,
    pub input: Input,
}

/// Which tasks of a step read what its caller reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    #[default]
    None,
    First,
    All,
}

/// From the caller of a step, while it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Say {
    Signal {
        signal: i32,
    },
    /// TERM, and KILL once the job's grace time is over.
    End,
}

/// First frame of [`Call::Command`]: run this there. Bytes of stream [`STDIN`] follow, then an empty piece.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// A node of the job, by its name or as its hostfiles call it.
    pub node: String,
    /// For `sh -c`.
    pub command: String,
}

/// The last frame; before it come bytes of [`STDOUT`] and [`STDERR`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommandEnd {
    Ended {
        code: i32,
    },
    Failed {
        reason: String,
    },
    /// A step waits for CPUs that other steps have.
    Waiting,
    /// A step runs on these nodes, with so many tasks on each.
    Started {
        step: u32,
        nodes: Vec<String>,
        tasks: Vec<u32>,
    },
    /// A task of a step has ended: one of code and signal is set.
    TaskEnded {
        task: u32,
        node: String,
        code: Option<i32>,
        signal: Option<i32>,
    },
    /// So much of the input has been read by all who read it.
    Taken {
        n_bytes: u64,
    },
    /// A step ends for this reason.
    Told {
        reason: String,
    },
    Credentials {
        dir: PathBuf,
        server: String,
    },
}

/// The stream of a step's task, where `stream` is [`STDOUT`] or [`STDERR`].
pub fn task_stream(task: u32, stream: u64) -> u64 {
    u64::from(task) << 2 | stream
}

pub const STDIN: u64 = 0;
pub const STDOUT: u64 = 1;
pub const STDERR: u64 = 2;

/// Where the agent listens, in the environment of every job.
pub const SOCKET_VARIABLE: &str = "RMS_AGENT_SOCKET";
/// When nothing could be run at all, as ssh says it.
pub const EXIT_FAILED: i32 = 255;
/// When a step was lost, or could not be started.
pub const EXIT_LOST: i32 = 125;
/// So much input a caller may have on the way.
pub const INPUT_WINDOW: u64 = crate::order::WINDOW;
