//! What an agent and a supervisor tell each other.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rms_api::desired::{JobReport, Launch, LaunchNode};
use rms_core::node_loop::Growth;
use rms_model::{JobId, Mebibytes, Run, Span};
use rms_wire::peer::StepPart;
use serde::{Deserialize, Serialize};

use crate::cgroup::DeviceNumber;
use crate::pmi::JobNode;
use crate::pmi::frames::{Down, HubFrame, Up};

/// One share of a job, complete: a supervisor asks nobody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    pub job: JobId,
    pub run: Run,
    /// As the server said it, the same on every node of the job.
    pub launch: Arc<Launch>,
    /// Which of [`Launch::nodes`] this is.
    pub node_idx: u32,
    /// The CPUs of every process of the job; absent: all that there are.
    pub mask: Option<BTreeSet<u32>>,
    /// Where `rms-rsh` reaches the agent.
    pub agent_socket: PathBuf,
    /// The remote-shell replacement, if it is installed.
    pub rsh: Option<PathBuf>,
    /// Tells this execution on this node from any other process on the machine.
    pub mark: String,
    /// Where processes of the job find what they negotiate with, if they may.
    pub negotiates: Option<Negotiates>,
    /// The directory with `srun`, if `rms` is installed beside the agent.
    pub aliases: Option<PathBuf>,
    /// The CPUs of a job that shares the node, core by core, in a list for each package.
    #[serde(default)]
    pub packages: Vec<Vec<u32>>,
    /// What it has of the node's devices, where it shares them; absent: all.
    #[serde(default)]
    pub devices: Option<OwnDevices>,
    /// The library by which OpenMP programs follow the CPUs of their job, where it is installed.
    #[serde(default)]
    pub malleable_library: Option<PathBuf>,
    /// Before CPUs are taken away from processes that have not said that they use them no more; absent: the default.
    #[serde(default)]
    pub shrink_patience: Option<Span>,
}

/// What a job has of the devices of a node that it shares.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnDevices {
    /// The numbers of its GPUs among all that the node has.
    pub gpus: Vec<u32>,
    /// The device files of others.
    pub closed: BTreeSet<DeviceNumber>,
    /// The kernel shows its programs no other GPUs, so that theirs begin with number 0.
    pub is_alone: bool,
}

/// How the processes of a job reach the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Negotiates {
    /// The directory where their key will be.
    pub credentials: PathBuf,
    /// `host:port`.
    pub server: String,
}

impl Order {
    /// What is executed otherwise here than on the other nodes of the job.
    pub fn launch_mut(&mut self) -> &mut Launch {
        Arc::make_mut(&mut self.launch)
    }

    /// This node.
    pub fn place(&self) -> Option<&LaunchNode> {
        self.launch.nodes.get(self.node_idx as usize)
    }

    /// The limit of the memory of the job here; 0: none.
    pub fn memory(&self) -> Mebibytes {
        let granted = self.place().and_then(|place| place.grant.as_ref()).map(|grant| grant.memory);
        granted.unwrap_or(self.launch.memory)
    }

    /// The nodes that the job may use: all but those that it is to leave.
    pub fn usable(&self) -> impl Iterator<Item = &LaunchNode> {
        self.launch.nodes.iter().filter(|place| !place.departing)
    }

    /// How long processes have to give CPUs back of their own accord.
    pub fn shrink_patience(&self) -> Duration {
        self.shrink_patience.unwrap_or(SHRINK_PATIENCE).to_std()
    }

    /// With which generation this node came.
    pub fn joined(&self) -> u32 {
        self.place().map_or(1, |place| place.joined)
    }

    /// Do the streams of the tasks stay in the spool for a client that follows them?
    pub fn is_streamed(&self) -> bool {
        self.launch.execution.stdio.is_followed()
    }
}

/// From the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToSupervisor {
    Start(Box<Order>),
    /// The nodes or the wall time of the job that runs have changed.
    Update(Box<Order>),
    /// Wait for `patience`, TERM, wait for `grace`, KILL.
    Stop {
        patience: Span,
        grace: Span,
    },
    Kill,
    /// It does not keep to the rules of the node.
    Violated {
        reason: String,
    },
    Signal {
        signal: i32,
    },
    /// The result is known to the server. `keep`: somebody may still read the streams.
    Forget {
        keep: bool,
    },
    /// Runs one more command inside the job; its streams are numbered from `stream` on.
    Exec(Box<ExecOrder>),
    /// Nobody waits for this command any more.
    ExecAbandon {
        stream: u64,
    },
    /// So many bytes of a stream were passed on.
    Taken {
        stream: u64,
        n_bytes: u64,
    },
    /// From another node of the job.
    Pmi {
        node: JobNode,
        frame: HubFrame,
    },
    /// The way to the hub has been made (again): what was not answered is to be sent again.
    PmiLinked,
    /// The answer to [`FromSupervisor::AskGrowth`].
    Growth {
        seq: u64,
        result: Growth,
    },
    /// Starts the tasks of a step.
    Step(Box<StepOrder>),
    /// A signal to the tasks of a step.
    StepSignal {
        stream: u64,
        signal: i32,
    },
    /// TERM to the tasks of a step, KILL after its grace time. `silent`: nobody listens to them any more.
    StepEnd {
        stream: u64,
        silent: bool,
    },
    /// From the hub of a step's ranks.
    StepPmi {
        stream: u64,
        frame: Down,
    },
    /// The disk of the spool has no room: what the job writes there may be lost.
    SpoolFull,
}

/// The tasks that a step has on this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepOrder {
    /// Begins its block of streams: those of task `n` are [`STREAMS_PER_EXEC`] from `stream + n * STREAMS_PER_EXEC` on,
    /// as of a command.
    pub stream: u64,
    pub part: StepPart,
}

/// A command to be run inside a job on behalf of `rms-rsh`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecOrder {
    /// Its input; output is `stream + 1`, errors are `stream + 2`.
    pub stream: u64,
    pub command: String,
}

/// From the supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromSupervisor {
    /// Ready for an order; sent on connecting and after each job.
    Idle,
    /// The first word on connecting to one that has a job, and each change after that.
    Job(JobReport),
    /// The start failed, and it was the node's fault; the report follows.
    Fault {
        reason: String,
    },
    /// These processes of the job do not die; the report follows.
    Unkillable {
        pids: Vec<i32>,
    },
    /// Another supervisor was faster; this one did nothing and is idle.
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
    /// So many bytes of an input were written to the process.
    Taken {
        stream: u64,
        n_bytes: u64,
    },
    /// For another node of the job.
    Pmi {
        node: JobNode,
        frame: HubFrame,
    },
    /// From node 0: ranks are to be started for which there is no room. At most one such question is open; it is
    /// repeated under its number to an agent that has not heard it.
    AskGrowth {
        seq: u64,
        /// How many more nodes.
        nodes: u32,
        /// Fewer are of no use.
        least: u32,
    },
    /// One of the two is set.
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
    /// For the hub of a step's ranks.
    StepPmi {
        stream: u64,
        frame: Up,
    },
    /// No process of a step is left here.
    StepDone {
        stream: u64,
    },
    /// Nothing of a step runs here.
    StepFailed {
        stream: u64,
        reason: String,
    },
}

/// A parallel region of most programs is over sooner.
pub const SHRINK_PATIENCE: Span = Span::from_millis(1000);
/// The stream that is the standard input of task 0.
pub const TASK_INPUT: u64 = 0;
/// Streams of commands are numbered from here on, in steps of [`STREAMS_PER_EXEC`].
pub const FIRST_EXEC: u64 = 16;
pub const STREAMS_PER_EXEC: u64 = 4;
/// Each step has a block of its own, above all commands.
pub const STREAMS_PER_STEP: u64 = 1 << 32;
/// A sender has at most so many bytes on the way in each stream.
pub const WINDOW: u64 = 256 << 10;
/// What a piece takes of a window, however short it is: a queue holds the pieces of whole windows.
pub fn cost(n_bytes: u64) -> u64 {
    n_bytes.max(WINDOW / MAX_PIECES_PER_WINDOW)
}
pub const MAX_PIECES_PER_WINDOW: u64 = 64;

#[cfg(test)]
pub mod tests {
    use rms_model::{Labels, NodeId, Owner, Work};

    use super::*;

    /// With one task on one CPU.
    pub fn node(name: &str) -> LaunchNode {
        LaunchNode {
            node: NodeId(1),
            name: name.to_owned(),
            cluster: "a".to_owned(),
            address: "127.0.0.1:1".to_owned(),
            first_task: 0,
            n_tasks: 1,
            cpus: 1,
            joined: 1,
            departing: false,
            grant: None,
        }
    }

    /// A share of a job with these nodes.
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
