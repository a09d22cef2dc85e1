//! What goes into the loop of a node, and what comes out: supervisors are names, files and processes are somebody else's.

use rms_api::desired::{Desired, DesiredJob, JobReport, NodeReport};
use rms_api::negotiate::Ask;
use rms_model::{JobId, Run, Span};
use serde::{Deserialize, Serialize};

use super::remains::{LostReason, SpoolEntry};

/// An execution of a job on this node.
pub type ExecutionId = (JobId, Run);

/// Something that happened on the node, or came from the server.
#[derive(Clone, Debug, PartialEq)]
pub enum Inbound {
    /// Once, before anything else: what earlier agents have left in the spool.
    Found(Vec<(ExecutionId, SpoolEntry)>),
    Desired(Desired),
    Signal {
        job: JobId,
        run: Run,
        signal: i32,
    },
    /// The server listens: everything is said again, and news from now on.
    LinkUp,
    LinkDown,
    /// The server has answered a question for more nodes.
    Grown {
        seq: u64,
        result: Growth,
    },
    /// The spawner runs, or why there is none.
    SpawnerStarted(Result<(), String>),
    SpawnerGone,
    /// A supervisor that was asked for can be reached, or why there is none.
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
    /// A supervisor was ordered to start an execution that another one has. It did nothing, and is idle.
    AlreadyThere {
        seat: String,
        job: JobId,
        run: Run,
    },
    /// A supervisor tells what has become of its job.
    Changed(JobReport),
    /// A start failed, and it was the node's fault; the report follows.
    Fault {
        reason: String,
    },
    /// These processes of a job do not die; the report follows.
    Unkillable {
        pids: Vec<i32>,
    },
    /// Ranks are to be started for which the job has no room.
    AskGrowth {
        seat: String,
        seq: u64,
        nodes: u32,
        least: u32,
    },
    /// What was to be [examined](Outbound::Examine).
    Examined {
        job: JobId,
        run: Run,
        remains: SpoolEntry,
    },
    /// What was to be [removed](Outbound::RemoveEntry) is gone, or cannot be removed.
    Removed {
        job: JobId,
        run: Run,
    },
    /// What was to be [ended](Outbound::EndLeftovers) has ended so.
    LeftoversEnded(JobReport),
    /// Somebody has deleted the spool, and it was made anew.
    SpoolMade,
    /// What was to be [looked at](Outbound::Look).
    Looked(Look),
}

/// A supervisor that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// Whether it can serve another job after its first one.
    pub can_start_over: bool,
}

/// Whether a job gets more nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Growth {
    /// They come in an update of this generation, or have come.
    Granted {
        generation: u32,
    },
    Refused {
        reason: String,
    },
}

/// What no event tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// The disk of the spool; none if it does not say.
    pub disk: Option<Disk>,
    /// Those of the processes asked for that are still there.
    pub unkillable: Vec<i32>,
    /// What else keeps the node from starting jobs, and what to do.
    pub problem: Option<String>,
    /// Executions that have left more in the spool than they may, and what they are told.
    pub violations: Vec<(ExecutionId, String)>,
}

/// The disk of a spool, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    pub size: u64,
    /// For who is not root.
    pub free: u64,
    /// Whether more files can be made.
    pub has_files: bool,
    /// Whether whoever writes there now may lose some of it.
    pub is_out_of_room: bool,
}

/// What is to be done, in this order; none of it makes the loop wait.
#[derive(Clone, Debug, PartialEq)]
pub enum Outbound {
    StartSpawner,
    /// Make a supervisor that waits for an order: answered by [`Inbound::SeatMade`].
    MakeSeat {
        seat: String,
    },
    /// End a supervisor without a job, if it is still there, and clear its cgroup, with its folder if that has no
    /// execution's name.
    EndSeat {
        seat: String,
        with_folder: bool,
    },
    /// A job is to be started here, as soon as there is a supervisor for it.
    Register(DesiredJob),
    /// An execution that an earlier agent has left, as its entry says.
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
    /// Use the connection to the supervisor that was found to serve the job; answered by [`Inbound::SeatGone`] where that
    /// is closed again.
    Adopt {
        seat: String,
        job: JobId,
        run: Run,
    },
    /// The nodes or the wall time of the job have changed; its supervisor is told, if it has one.
    Update(DesiredJob),
    /// For the supervisor of the job.
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
    /// Its processes have been started.
    Begun {
        job: JobId,
        run: Run,
    },
    /// No process of it is left.
    Ended {
        job: JobId,
        run: Run,
    },
    /// Nobody will ask for it again.
    Drop {
        job: JobId,
        run: Run,
    },
    /// Mark its entry: the server has the result, and its streams may still be read.
    MarkForgotten {
        job: JobId,
        run: Run,
    },
    /// Remove its entry: answered by [`Inbound::Removed`].
    RemoveEntry {
        job: JobId,
        run: Run,
    },
    /// Look what there is of it in the spool: answered by [`Inbound::Examined`].
    Examine {
        job: JobId,
        run: Run,
    },
    /// Its supervisor is gone: end what is left of it, and write its result: answered by [`Inbound::LeftoversEnded`].
    EndLeftovers {
        job: JobId,
        run: Run,
        why: LostReason,
    },
    /// Look at the disk, at these processes, and at what jobs have written: answered by [`Inbound::Looked`].
    Look {
        unkillable: Vec<i32>,
    },
    /// To the server: all jobs of the node.
    Hello {
        report: NodeReport,
        /// Why no job can start here, if none can.
        trouble: Option<String>,
    },
    Report(NodeReport),
    /// Why no job can start here; none: the node is well.
    Trouble(Option<String>),
    /// More nodes for a job; the answer is an [`Inbound::Grown`].
    Ask {
        seq: u64,
        question: Question,
    },
}

/// What a supervisor is told of its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobOrder {
    /// The nodes or the wall time may be others than it knows.
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
    /// The result is known to the server. `keep`: somebody may still read the streams.
    Forget {
        keep: bool,
    },
    /// The answer to its question of that number.
    Growth {
        seq: u64,
        result: Growth,
    },
    /// The disk of the spool has no room.
    SpoolFull,
    /// It does not keep to the rules of the node.
    Violated {
        reason: String,
    },
}

/// What one supervisor asks the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub job: JobId,
    pub run: Run,
    /// The supervisor's number of it.
    pub seq: u64,
    pub ask: Ask,
}
