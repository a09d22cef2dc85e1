//! What enters the driver: the one bounded queue between everything outside and the core.

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

/// Something that happened outside, with where its consequences go.
#[derive(Debug)]
pub enum Inbound {
    Call {
        who: Identity,
        call: Call,
        reply: oneshot::Sender<Answered>,
    },
    /// Somebody has come with a certificate that was issued in place of others, for the first time.
    CertificateUsed {
        serial: String,
    },
    /// An agent's link is up; one that it had before is closed.
    AgentConnected {
        name: String,
        hello: AgentHello,
        report: NodeReport,
        outbox: AgentOutbox,
    },
    /// Taken for what it is only while `link` is the agent's newest.
    /// Why an agent can start no job, or that it can.
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
    /// A launcher's call. Its answer, and whatever its application is told from then on, goes into the outbox.
    LauncherCalled {
        who: Identity,
        call: LauncherCall,
        seq: u64,
        outbox: LauncherOutbox,
        /// Its memory, until it was heard.
        held: Held,
    },
    /// The channel is gone; of no matter if another one has taken its application over.
    LauncherGone {
        channel: ChannelId,
    },
    /// A call of a negotiator. Its answer, and whatever it is told from then on, goes into the outbox.
    NegotiatorCalled {
        who: Identity,
        call: NegotiatorCall,
        caller: negotiator_outbox::Caller,
        held: Held,
    },
    /// The channel is gone; of no matter if another one has taken its application over.
    NegotiatorGone {
        channel: ChannelId,
    },
    /// An agent asks for a job on its node. Taken for what it is only while `link` is the agent's newest.
    AgentAsked {
        name: String,
        link: LinkId,
        job: JobId,
        run: Run,
        what: AgentAsk,
        reply: oneshot::Sender<Answered>,
    },
    /// Tells `watcher` of every change of these jobs from now on, and `reply` what they are now.
    Watch {
        jobs: Vec<JobId>,
        watcher: Watcher,
        reply: oneshot::Sender<Result<Vec<Found>, Failing>>,
    },
    Snapshot(Result<SnapshotMade, SnapshotError>),
    /// Commit what there is and end.
    Stop,
}

/// What came of a call.
#[derive(Debug)]
pub enum Answered {
    Done(Answer),
    Refused(Refusal),
    /// The core wants this certificate to be signed and handed to the caller.
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

/// A certificate to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignOrder {
    pub issued: Issued,
    pub csr: Vec<u8>,
    pub cluster: Option<String>,
}

/// How the rest of the server speaks to the driver.
#[derive(Clone, Debug)]
pub struct Inbox {
    sender: mpsc::Sender<Inbound>,
}

/// The server is stopping: nobody takes anything in any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server is stopping")]
pub struct Stopping;

/// When the inbox is full, whoever has something waits before it reads its next frame. So a busy driver slows its
/// peers down through the flow control of their links, and no queue grows.
const MAX_INBOUND: usize = 4096;

impl Inbox {
    /// The inbox, and the end that the driver reads.
    pub fn new() -> (Inbox, mpsc::Receiver<Inbound>) {
        let (sender, receiver) = mpsc::channel(MAX_INBOUND);
        (Inbox { sender }, receiver)
    }

    /// # Errors
    /// The driver has ended.
    pub async fn put(&self, inbound: Inbound) -> Result<(), Stopping> {
        self.sender.send(inbound).await.map_err(|_| Stopping)
    }

    /// For threads outside of the runtime.
    ///
    /// # Errors
    /// The driver has ended.
    pub fn put_blocking(&self, inbound: Inbound) -> Result<(), Stopping> {
        self.sender.blocking_send(inbound).map_err(|_| Stopping)
    }

    /// Until the driver has ended.
    pub async fn closed(&self) {
        self.sender.closed().await;
    }

    /// The jobs that are in the system as they are now, and a stream of what becomes of them.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn watch(&self, jobs: Vec<JobId>) -> Result<(Vec<Found>, mpsc::Receiver<JobChange>), WatchError> {
        let (watcher, changes) = Watcher::new();
        let (reply, found) = oneshot::channel();
        self.put(Inbound::Watch { jobs, watcher, reply }).await?;
        Ok((found.await.map_err(|_| Stopping)??, changes))
    }

    /// Asks the core something and waits until the answer is durable.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn call(&self, who: Identity, call: Call) -> Result<Answered, Stopping> {
        let (reply, answered) = oneshot::channel();
        self.put(Inbound::Call { who, call, reply }).await?;
        answered.await.map_err(|_| Stopping)
    }
}
