//! What happened outside: everything that can enter the core.

use std::time::Duration;

use rms_api::call::Call;
use rms_api::desired::AgentHello;
use rms_api::desired::NodeReport;
use rms_api::negotiate::{Ask, NegotiatorCall};
use rms_api::subscription::LauncherCall;
use rms_model::{Identity, JobId, Outcome, Run};

/// Names the caller that waits for an answer; opaque to the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client asks or orders something.
    Called {
        ticket: Ticket,
        who: Identity,
        call: Call,
    },
    /// An agent's link is up. `report` names every job on the node.
    AgentConnected {
        name: String,
        hello: AgentHello,
        report: NodeReport,
    },
    AgentReported {
        name: String,
        report: NodeReport,
    },
    AgentGone {
        name: String,
    },
    /// Why an agent can start no job; absent: it can.
    AgentTroubled {
        name: String,
        reason: Option<String>,
    },
    /// An external launcher says something for its application (001, §4.2).
    LauncherCalled {
        ticket: Ticket,
        who: Identity,
        call: LauncherCall,
    },
    /// The connection over which a launcher spoke for this application is gone. Not to be said of one that another has
    /// replaced.
    LauncherGone {
        job: JobId,
    },
    /// 001: done. The processes were the launcher's own, and they are gone on every node.
    ApplicationDone {
        job: JobId,
        run: Run,
        outcome: Outcome,
    },
    /// The negotiator of an application says something (002). `who` is the job itself.
    NegotiatorCalled {
        ticket: Ticket,
        who: Identity,
        call: NegotiatorCall,
    },
    /// The channel over which a process spoke for this execution is gone. Not to be said of one that another has
    /// replaced.
    NegotiatorGone {
        job: JobId,
        run: Run,
    },
    /// An agent asks for a job that it has: a rank of it wants to spawn. Answered as a [`Call::Negotiate`] is.
    AgentAsked {
        ticket: Ticket,
        name: String,
        job: JobId,
        run: Run,
        ask: Ask,
    },
    /// An agent wants a certificate for the processes of a job that it has: they speak for the job with it. `serial` was
    /// drawn by the server.
    AgentCertifies {
        ticket: Ticket,
        name: String,
        job: JobId,
        run: Run,
        csr: Vec<u8>,
        serial: String,
    },
    /// Somebody has come with this certificate, for the first time as far as is known.
    CertificateUsed {
        serial: String,
    },
    /// The last walk over the queue took so long, with all that came of it. Nobody has to say so: it matters where the depth
    /// of the queue is the server's to choose.
    PassTook {
        took: Duration,
    },
    /// Nothing but time: a timer of [`next_timer`](crate::Rms::next_timer) is due.
    Tick,
}
