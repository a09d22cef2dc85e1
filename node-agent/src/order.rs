//! The messages between an agent and a supervisor.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rms_api::desired::{JobReport, Launch, LaunchNode, Stay};
use rms_core::node_loop::Growth;
use rms_model::{Inherited, JobId, Limits, Mebibytes, Run, Span};
use rms_wire::peer::StepPart;
use serde::{Deserialize, Serialize};

use crate::cgroup::DeviceNumber;
use crate::pmi::JobNode;
use crate::pmi::frames::{Down, HubFrame, Up};

/// One share of a job, with everything that a supervisor needs to run it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    pub job: JobId,
    pub run: Run,
    /// As sent by the server, the same on every node of the job.
    pub launch: Arc<Launch>,
    /// The index of this node in [`Launch::nodes`].
    pub node_idx: u32,
    /// The CPUs of every process of the job; absent for all CPUs.
    pub mask: Option<BTreeSet<u32>>,
    /// Where `rms-rsh` reaches the agent.
    pub agent_socket: PathBuf,
    /// The remote-shell replacement, if it is installed.
    pub rsh: Option<PathBuf>,
    /// Distinguishes this execution on this node from any other process on the machine.
    pub mark: String,
    /// Where processes of the job find the credentials to negotiate, if they may.
    pub negotiates: Option<Negotiates>,
    /// The directory with `srun`, if `rms` is installed next to the agent.
    pub aliases: Option<PathBuf>,
    /// The CPUs of a job that shares the node, core by core, one list per package.
    #[serde(default)]
    pub packages: Vec<Vec<u32>>,
    /// The job's devices on a node that it shares; absent for all.
    #[serde(default)]
    pub devices: Option<OwnDevices>,
    /// The library with which OpenMP programs follow the CPUs of their job, if it is installed.
    #[serde(default)]
    pub malleable_library: Option<PathBuf>,
    /// How long to wait before CPUs are taken from processes that have not acknowledged the loss; absent for the
    /// default.
    #[serde(default)]
    pub shrink_patience: Option<Span>,
}

/// The devices of a job on a node that it shares.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnDevices {
    /// The numbers of the job's GPUs among all GPUs of the node.
    pub gpus: Vec<u32>,
    /// The device files of other jobs, which are closed to this one.
    pub closed: BTreeSet<DeviceNumber>,
    /// The kernel shows no other GPUs to the job's programs, so that theirs are numbered from 0.
    pub is_alone: bool,
    /// The device files of the job's devices, by name and number, without devices that are only counted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, BTreeMap<u32, BTreeSet<DeviceNumber>>>,
}

impl OwnDevices {
    /// Returns whether a device of the job has other files now, so that its number denotes another device. Files that
    /// are gone do not count.
    pub fn has_other_files(&self, now: &OwnDevices) -> bool {
        let is_other = |name: &str, number: &u32, files: &BTreeSet<DeviceNumber>| {
            let files_now = now.files.get(name).and_then(|numbers| numbers.get(number));
            files_now.is_some_and(|now| !now.is_subset(files))
        };
        self.files.iter().any(|(name, numbers)| numbers.iter().any(|(number, files)| is_other(name, number, files)))
    }
}

/// How the processes of a job reach the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Negotiates {
    /// The directory where the processes' key will be placed.
    pub credentials: PathBuf,
    /// `host:port`.
    pub server: String,
}

impl Order {
    /// Returns the launch for changes that apply to this node alone.
    pub fn launch_mut(&mut self) -> &mut Launch {
        Arc::make_mut(&mut self.launch)
    }

    /// Returns the order for processes whose caller has another umask and other limits than the job.
    pub fn of_caller(&self, umask: u32, limits: Limits) -> Order {
        let mut order = self.clone();
        let execution = &mut order.launch_mut().execution;
        (execution.umask, execution.limits) = (umask, limits);
        order
    }

    /// Returns this node.
    pub fn place(&self) -> Option<&LaunchNode> {
        self.launch.nodes.get(self.node_idx as usize)
    }

    /// Returns the memory limit of the job here; 0 for none.
    pub fn memory(&self) -> Mebibytes {
        let granted = self.place().and_then(|place| place.grant.as_ref()).map(|grant| grant.memory);
        granted.unwrap_or(self.launch.memory)
    }

    /// Returns the nodes that the job may use: all but those that it is about to leave.
    pub fn usable(&self) -> impl Iterator<Item = &LaunchNode> {
        self.launch.nodes.iter().filter(|place| !place.departing)
    }

    /// Returns how long processes have to give CPUs back voluntarily.
    pub fn shrink_patience(&self) -> Duration {
        self.shrink_patience.unwrap_or(SHRINK_PATIENCE).to_std()
    }

    /// Returns the generation with which this node joined.
    pub fn joined(&self) -> u32 {
        self.place().map_or(1, |place| place.joined)
    }

    pub fn stay(&self) -> Stay {
        Stay { submitted: self.launch.submitted, joined: self.joined() }
    }

    /// Returns whether the streams of the tasks stay in the spool for a client that follows them.
    pub fn is_streamed(&self) -> bool {
        self.launch.execution.stdio.is_followed()
    }
}

/// A message from the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToSupervisor {
    Start(Box<Order>),
    /// The nodes or the wall time of the running job have changed.
    Update(Box<Order>),
    /// Wait for `patience`, TERM, wait for `grace`, KILL.
    Stop {
        patience: Span,
        grace: Span,
    },
    Kill,
    /// The job violates the rules of the node.
    Violated {
        reason: String,
    },
    Signal {
        signal: i32,
    },
    /// The server has the result. With `keep`, a client may still read the streams.
    Forget {
        keep: bool,
    },
    /// Runs one more command inside the job; its streams are numbered from `stream` on.
    Exec(Box<ExecOrder>),
    /// No client waits for this command any more.
    ExecAbandon {
        stream: u64,
    },
    /// `n_bytes` of a stream were forwarded.
    Taken {
        stream: u64,
        n_bytes: u64,
    },
    /// A message from another node of the job.
    Pmi {
        node: JobNode,
        frame: HubFrame,
    },
    /// The connection to the hub was (re)established: send unanswered messages again.
    PmiLinked,
    /// The answer to [`FromSupervisor::AskGrowth`].
    Growth {
        seq: u64,
        result: Growth,
    },
    /// Starts the tasks of a step.
    Step(Box<StepOrder>),
    /// Sends a signal to the tasks of a step.
    StepSignal {
        stream: u64,
        signal: i32,
    },
    /// Sends TERM to the tasks of a step, and KILL after its grace time. With `silent`, no client listens to them any
    /// more.
    StepEnd {
        stream: u64,
        silent: bool,
    },
    /// A message from the hub of a step's ranks.
    StepPmi {
        stream: u64,
        frame: Down,
    },
    /// The disk of the spool is full: what the job writes there may be lost.
    SpoolFull,
}

/// The tasks of a step on this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepOrder {
    /// The first stream of the step's block: task `n` has [`STREAMS_PER_EXEC`] streams from `stream + n *
    /// STREAMS_PER_EXEC` on, as a command has.
    pub stream: u64,
    pub part: StepPart,
    /// Somebody on another node of the job ordered it: it ends before the job does here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_of_other_node: bool,
}

/// A command to be run inside a job on behalf of `rms-rsh`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecOrder {
    /// The stream of its input; output is `stream + 1`, errors are `stream + 2`.
    pub stream: u64,
    pub command: String,
    /// Of the caller; that of the job if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inherited: Option<Inherited>,
    /// Somebody on another node of the job ordered it: it ends before the job does here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_of_other_node: bool,
}

/// A message from the supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromSupervisor {
    /// Ready for an order; sent on connecting and after each job.
    Idle,
    /// The first message on connecting if there is a job; after that, each change.
    Job(JobReport),
    /// The start failed because of the node; the report follows.
    Fault {
        reason: String,
    },
    /// These processes of the job cannot be killed; the report follows.
    Unkillable {
        pids: Vec<i32>,
    },
    /// Another supervisor runs this job already; this one did nothing and is idle.
    AlreadyThere {
        job: JobId,
        run: Run,
    },
    ExecStarted {
        stream: u64,
    },
    ExecEnded {
        stream: u64,
        code: i32,
    },
    ExecFailed {
        stream: u64,
        reason: String,
    },
    /// `n_bytes` of an input were written to the process.
    Taken {
        stream: u64,
        n_bytes: u64,
        /// On connecting, for the standard input of task 0: all that there was so far.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        total: Option<InputCount>,
    },
    /// A message to another node of the job.
    Pmi {
        node: JobNode,
        frame: HubFrame,
    },
    /// From the first node: there is no room for ranks that are to be started. At most one such request is open; it is
    /// repeated under its number to an agent that has not received it.
    AskGrowth {
        seq: u64,
        /// How many more nodes are requested.
        nodes: u32,
        /// The job cannot use fewer nodes.
        least: u32,
    },
    /// Exactly one of `code` and `signal` is set.
    StepTaskEnded {
        stream: u64,
        task: u32,
        code: Option<i32>,
        signal: Option<i32>,
    },
    /// The ranks of a step abort.
    StepAborted {
        stream: u64,
        code: i32,
    },
    /// A message to the hub of a step's ranks.
    StepPmi {
        stream: u64,
        frame: Up,
    },
    /// No process of a step is left here.
    StepDone {
        stream: u64,
    },
    /// No part of a step runs here.
    StepFailed {
        stream: u64,
        reason: String,
    },
}

/// How much input a supervisor has received for a task, and how much of it the task's pipe has taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputCount {
    pub received: u64,
    pub written: u64,
}

/// The default patience: most parallel regions end sooner.
pub const SHRINK_PATIENCE: Span = Span::from_millis(1000);
/// The stream that is the standard input of task 0.
pub const TASK_INPUT: u64 = 0;
/// Streams of commands are numbered from here on, in steps of [`STREAMS_PER_EXEC`].
pub const FIRST_EXEC: u64 = 16;
pub const STREAMS_PER_EXEC: u64 = 4;
/// The size of a step's own block of streams, above those of all commands.
pub const STREAMS_PER_STEP: u64 = 1 << 32;
/// The most bytes that a sender has in flight in each stream.
pub const WINDOW: u64 = 256 << 10;
/// Returns how much of a window a piece takes, even if it is short: a queue holds the pieces of whole windows.
pub fn cost(n_bytes: u64) -> u64 {
    n_bytes.max(WINDOW / MAX_PIECES_PER_WINDOW)
}
pub const MAX_PIECES_PER_WINDOW: u64 = 64;

#[cfg(test)]
pub mod tests {
    use rms_model::{Labels, Owner, Work};

    use super::*;

    /// Returns a share of a job with these nodes.
    pub fn order(nodes: impl IntoIterator<Item = LaunchNode>) -> Order {
        let labels = Labels::named("story");
        let nodes = nodes.into_iter().collect();
        Order {
            job: JobId(1),
            run: Run(1),
            launch: Arc::new(Launch { labels, nodes, ..Launch::of(Owner("ada".to_owned()), Work::Nodes) }),
            node_idx: 0,
            mask: None,
            agent_socket: PathBuf::new(),
            rsh: None,
            mark: String::new(),
            negotiates: None,
            aliases: None,
            packages: Vec::new(),
            devices: None,
            malleable_library: None,
            shrink_patience: None,
        }
    }
}
