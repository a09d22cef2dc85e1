//! Events from outside: all input of the core.

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

/// An event from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A call of a client.
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
    /// Why an agent can start no job; absent if it can.
    AgentTroubled {
        name: String,
        reason: Option<String>,
    },
    /// A call of an external launcher for its application (001, §4.2).
    LauncherCalled {
        ticket: Ticket,
        who: Identity,
        call: LauncherCall,
    },
    /// The connection of this application's launcher is gone. Not sent for a connection that another one has replaced.
    LauncherGone {
        job: JobId,
    },
    /// 001: done. The processes were the launcher's own, and they are gone on every node.
    ApplicationDone {
        job: JobId,
        run: Run,
        outcome: Outcome,
    },
    /// A call of the negotiator of an application (002). `who` is the job itself.
    NegotiatorCalled {
        ticket: Ticket,
        who: Identity,
        call: NegotiatorCall,
    },
    /// The channel of this execution's negotiator is gone. Not sent for a channel that another one has replaced.
    NegotiatorGone {
        job: JobId,
        run: Run,
    },
    /// An agent makes a request for a job that it runs: one of its ranks wants to spawn. Answered as a
    /// [`Call::Negotiate`] is.
    AgentAsked {
        ticket: Ticket,
        name: String,
        job: JobId,
        run: Run,
        ask: Ask,
    },
    /// An agent requests a certificate for the processes of a job that it runs, with which they act for the job.
    /// `serial` was drawn by the server.
    AgentCertifies {
        ticket: Ticket,
        name: String,
        job: JobId,
        run: Run,
        csr: Vec<u8>,
        serial: String,
    },
    /// A peer has used this certificate, for the first time as far as is known.
    CertificateUsed {
        serial: String,
    },
    /// How long the last walk over the queue and its consequences took. Reporting it is optional: it matters where the
    /// server chooses the depth of the queue.
    PassTook {
        took: Duration,
    },
    /// The clock was set forward, or the machine was suspended: some of the time that seems to have passed has not.
    ClockSetForward,
    /// Time has passed: a timer of [`next_timer`](crate::Rms::next_timer) is due.
    Tick,
}
