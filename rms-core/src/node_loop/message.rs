//! Input and output of the loop of a node. Supervisors are identified by names; files and processes are handled
//! elsewhere.

use rms_api::desired::{Desired, DesiredJob, JobReport, NodeReport};
use rms_api::negotiate::Ask;
use rms_model::{JobId, Run, Span};
use serde::{Deserialize, Serialize};

use super::remains::{LostReason, SpoolEntry};

/// An execution of a job on this node.
pub type ExecutionId = (JobId, Run);

/// An event on the node, or a message of the server.
#[derive(Clone, Debug, PartialEq)]
pub enum Inbound {
    /// Sent once, before anything else: what earlier agents have left in the spool.
    Found(Vec<(ExecutionId, SpoolEntry)>),
    Desired(Desired),
    Signal {
        job: JobId,
        run: Run,
        signal: i32,
    },
    /// The link to the server is up: everything is reported again, and changes from now on.
    LinkUp,
    LinkDown,
    /// The server's answer to a request for more nodes.
    Grown {
        seq: u64,
        result: Growth,
    },
    /// The spawner has started, or the reason why not.
    SpawnerStarted(Result<(), String>),
    SpawnerGone,
    /// A requested supervisor can be reached, or the reason why there is none.
    SeatMade {
        seat: String,
        made: Result<Made, String>,
    },
    /// A supervisor waits for an order.
    SeatIdle {
        seat: String,
    },
    /// A supervisor has ended.
    SeatGone {
        seat: String,
    },
    /// A supervisor was ordered to start an execution that another one runs. It did nothing, and is idle.
    AlreadyThere {
        seat: String,
        job: JobId,
        run: Run,
    },
    /// A supervisor reports the state of its job.
    Changed(JobReport),
    /// A start failed because of the node; the report follows.
    Fault {
        reason: String,
    },
    /// These processes of a job cannot be killed; the report follows.
    Unkillable {
        pids: Vec<i32>,
    },
    /// A supervisor requests more nodes: ranks are to be started for which the job has no room.
    AskGrowth {
        seat: String,
        seq: u64,
        nodes: u32,
        least: u32,
    },
    /// The result of [`Outbound::Examine`].
    Examined {
        job: JobId,
        run: Run,
        remains: SpoolEntry,
    },
    /// The entry of an [`Outbound::RemoveEntry`] is gone, or cannot be removed.
    Removed {
        job: JobId,
        run: Run,
    },
    /// The result of [`Outbound::EndLeftovers`].
    LeftoversEnded(JobReport),
    /// The spool was deleted, and has been created again.
    SpoolMade,
    /// The result of [`Outbound::Look`].
    Looked(Look),
}

/// A supervisor that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// Whether it can serve another job after its first one.
    pub can_start_over: bool,
}

/// Whether a job gets more nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Growth {
    /// The nodes come with an update of this generation, or have come.
    Granted {
        generation: u32,
    },
    Refused {
        reason: String,
    },
}

/// What the agent must check itself because no event reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// The disk of the spool; none if it cannot be determined.
    pub disk: Option<Disk>,
    /// Those of the given processes that still exist.
    pub unkillable: Vec<i32>,
    /// What else keeps the node from starting jobs, and what to do about it.
    pub problem: Option<String>,
    /// Executions that have left more in the spool than they may, and the reason that they are told.
    pub violations: Vec<(ExecutionId, String)>,
}

/// The disk of a spool, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    pub size: u64,
    /// Free for users other than root.
    pub free: u64,
    /// Whether more files can be created.
    pub has_files: bool,
    /// Whether a process that writes there now may lose data.
    pub is_out_of_room: bool,
    /// Whether its file system is mounted read-only, as after an error of the disk.
    pub is_read_only: bool,
}

/// Actions, to be done in this order; none of them blocks the loop.
#[derive(Clone, Debug, PartialEq)]
pub enum Outbound {
    StartSpawner,
    /// Start a supervisor that waits for an order: answered by [`Inbound::SeatMade`].
    MakeSeat {
        seat: String,
    },
    /// End a supervisor without a job, if it still runs, and clear its cgroup; also its folder if that is not named
    /// after an execution.
    EndSeat {
        seat: String,
        with_folder: bool,
    },
    /// A job is to be started here as soon as there is a supervisor for it.
    Register(DesiredJob),
    /// Register an execution that an earlier agent has left, as its entry says.
    Restore {
        job: JobId,
        run: Run,
        has_ended: bool,
    },
    /// Give the job to this supervisor.
    Order {
        seat: String,
        job: JobId,
        run: Run,
    },
    /// Use the connection to the supervisor that was found to serve the job; answered by [`Inbound::SeatGone`] if that
    /// connection has been closed.
    Adopt {
        seat: String,
        job: JobId,
        run: Run,
    },
    /// The nodes or the wall time of the job have changed; its supervisor is told, if it has one.
    Update(DesiredJob),
    /// Send an order to the supervisor of the job.
    Tell {
        job: JobId,
        run: Run,
        what: JobOrder,
    },
    /// No supervisor serves the job any more.
    Detach {
        job: JobId,
        run: Run,
    },
    /// The processes of the execution have been started.
    Begun {
        job: JobId,
        run: Run,
    },
    /// No process of the execution is left.
    Ended {
        job: JobId,
        run: Run,
    },
    /// The execution will not be needed again.
    Drop {
        job: JobId,
        run: Run,
    },
    /// Mark the entry: the server has the result, and the streams may still be read.
    MarkForgotten {
        job: JobId,
        run: Run,
    },
    /// Remove the entry: answered by [`Inbound::Removed`].
    RemoveEntry {
        job: JobId,
        run: Run,
    },
    /// Examine what the spool has of the execution: answered by [`Inbound::Examined`].
    Examine {
        job: JobId,
        run: Run,
    },
    /// The supervisor is gone: end what is left of the execution, and write its result: answered by
    /// [`Inbound::LeftoversEnded`].
    EndLeftovers {
        job: JobId,
        run: Run,
        why: LostReason,
    },
    /// Check the disk, these processes, and what jobs have written: answered by [`Inbound::Looked`].
    Look {
        unkillable: Vec<i32>,
    },
    /// Report all jobs of the node to the server.
    Hello {
        report: NodeReport,
        /// Why no job can start here, if none can.
        trouble: Option<String>,
    },
    Report(NodeReport),
    /// Why no job can start here; `None` if jobs can.
    Trouble(Option<String>),
    /// Request more nodes for a job; answered by [`Inbound::Grown`].
    Ask {
        seq: u64,
        question: Question,
    },
}

/// An order to a supervisor about its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobOrder {
    /// The nodes or the wall time may have changed.
    Update,
    /// Wait for `patience`, TERM, wait for `grace`, KILL.
    Stop {
        patience: Span,
        grace: Span,
    },
    Kill,
    Signal {
        signal: i32,
    },
    /// The server knows the result. `keep`: the streams may still be read.
    Forget {
        keep: bool,
    },
    /// The answer to the supervisor's question of that number.
    Growth {
        seq: u64,
        result: Growth,
    },
    /// The disk of the spool is full.
    SpoolFull,
    /// The job breaks the rules of the node.
    Violated {
        reason: String,
    },
}

/// A supervisor's question to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub job: JobId,
    pub run: Run,
    /// The supervisor's number of the question.
    pub seq: u64,
    pub ask: Ask,
}
