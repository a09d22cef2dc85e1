//! The driver's inbox: the one bounded queue through which all events reach the core.

use rms_api::answer::JobChange;
use rms_api::desired::AgentHello;
use rms_api::desired::NodeReport;
use rms_api::negotiate::NegotiatorCall;
use rms_api::subscription::LauncherCall;
use rms_api::{Answer, Call, Refusal};
use rms_core::server_loop::{AgentAsk, ChannelId, Denial, Failing, Found, LinkId};
use rms_model::token::Issued;
use rms_model::{Identity, JobId, Run};
use rms_wire::link::Held;
use tokio::sync::{mpsc, oneshot};

use crate::journal::{SnapshotError, SnapshotMade};
use crate::launcher_outbox::LauncherOutbox;
use crate::negotiator_outbox;
use crate::outbox::{AgentOutbox, Watcher};

/// An event from outside, with the channels for its results.
#[derive(Debug)]
pub enum Inbound {
    Call {
        who: Identity,
        call: Call,
        reply: oneshot::Sender<Answered>,
    },
    /// A certificate that may replace others was used for the first time.
    CertificateUsed {
        serial: String,
    },
    /// An agent's link is up; an earlier link of the agent is closed.
    AgentConnected {
        name: String,
        hello: AgentHello,
        report: NodeReport,
        outbox: AgentOutbox,
    },
    /// Why an agent can start no job, or that it can again. Ignored unless `link` is the agent's newest.
    AgentTroubled {
        name: String,
        link: LinkId,
        reason: Option<String>,
    },
    AgentReported {
        name: String,
        link: LinkId,
        report: NodeReport,
    },
    AgentGone {
        name: String,
        link: LinkId,
    },
    /// A launcher's call. Its answer, and all later notices to its application, go into the outbox.
    LauncherCalled {
        who: Identity,
        call: LauncherCall,
        seq: u64,
        outbox: LauncherOutbox,
        /// The memory that the call takes until it is processed.
        held: Held,
    },
    /// The channel is gone; ignored if another channel has taken over its application.
    LauncherGone {
        channel: ChannelId,
    },
    /// A call of a negotiator. Its answer, and all later notices, go into the outbox.
    NegotiatorCalled {
        who: Identity,
        call: NegotiatorCall,
        caller: negotiator_outbox::PendingCall,
        held: Held,
    },
    /// The channel is gone; ignored if another channel has taken over its application.
    NegotiatorGone {
        channel: ChannelId,
    },
    /// A request of an agent on behalf of a job on its node. Ignored unless `link` is the agent's newest.
    AgentAsked {
        name: String,
        link: LinkId,
        job: JobId,
        run: Run,
        what: AgentAsk,
        reply: oneshot::Sender<Answered>,
    },
    /// Sends the current state of these jobs to `reply`, and all later changes to `watcher`.
    Watch {
        jobs: Vec<JobId>,
        watcher: Watcher,
        reply: oneshot::Sender<Result<Vec<Found>, Failing>>,
    },
    Snapshot(Result<SnapshotMade, SnapshotError>),
    /// Commit what is pending and stop.
    Stop,
}

/// The result of a call.
#[derive(Debug)]
pub enum Answered {
    Done(Answer),
    Refused(Refusal),
    /// The core orders this certificate to be signed and sent to the caller.
    Sign(SignOrder),
    /// The journal cannot be written.
    Failing(Failing),
}

impl From<Denial> for Answered {
    fn from(denial: Denial) -> Answered {
        match denial {
            Denial::Refused(refusal) => Answered::Refused(refusal),
            Denial::Failing(failing) => Answered::Failing(failing),
        }
    }
}

/// Why jobs cannot be watched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    #[error(transparent)]
    Stopping(#[from] Stopping),
    #[error(transparent)]
    Failing(#[from] Failing),
}

/// A certificate to sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignOrder {
    pub issued: Issued,
    pub csr: Vec<u8>,
    pub cluster: Option<String>,
}

/// The sending end of the driver's queue.
#[derive(Clone, Debug)]
pub struct Inbox {
    sender: mpsc::Sender<Inbound>,
}

/// The server is stopping: the driver takes no more events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server is stopping")]
pub struct Stopping;

/// When the inbox is full, each session waits before it reads its next frame. So a busy driver slows its peers down
/// through the flow control of their links, and no queue grows.
const MAX_INBOUND: usize = 4096;

impl Inbox {
    /// Returns the inbox, and the end that the driver reads.
    pub fn new() -> (Inbox, mpsc::Receiver<Inbound>) {
        let (sender, receiver) = mpsc::channel(MAX_INBOUND);
        (Inbox { sender }, receiver)
    }

    /// Puts an event into the queue, once there is room.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn put(&self, inbound: Inbound) -> Result<(), Stopping> {
        self.sender.send(inbound).await.map_err(|_| Stopping)
    }

    /// Puts an event, from a thread outside the runtime.
    ///
    /// # Errors
    /// The driver has ended.
    pub fn put_blocking(&self, inbound: Inbound) -> Result<(), Stopping> {
        self.sender.blocking_send(inbound).map_err(|_| Stopping)
    }

    /// Waits until the driver has ended.
    pub async fn closed(&self) {
        self.sender.closed().await;
    }

    /// Returns the current state of those jobs that are in the system, and a stream of their changes.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn watch(&self, jobs: Vec<JobId>) -> Result<(Vec<Found>, mpsc::Receiver<JobChange>), WatchError> {
        let (watcher, changes) = Watcher::new();
        let (reply, found) = oneshot::channel();
        self.put(Inbound::Watch { jobs, watcher, reply }).await?;
        Ok((found.await.map_err(|_| Stopping)??, changes))
    }

    /// Sends a call to the core, and waits for the answer, which comes once its facts are durable.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn call(&self, who: Identity, call: Call) -> Result<Answered, Stopping> {
        let (reply, answered) = oneshot::channel();
        self.put(Inbound::Call { who, call, reply }).await?;
        answered.await.map_err(|_| Stopping)
    }
}
