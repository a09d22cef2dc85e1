//! Input and output of the loop around the core. Peers are identified by numbers.

use std::time::Duration;

use std::fmt;

use rms_api::answer::JobChange;
use rms_api::desired::{AgentHello, Desired, NodeReport};
use rms_api::negotiate::{Ask, NegotiatorAnswer, NegotiatorCall, NegotiatorNotice};
use rms_api::subscription::{LauncherAnswer, LauncherCall, Notice};
use rms_api::{Answer, Call, Refusal, Refused};
use rms_model::token::Issued;
use rms_model::{Identity, JobId, Owner, Run, Time};

use crate::event::Ticket;

/// Distinguishes the successive links of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub u64);

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Distinguishes the successive channels of a launcher or a negotiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChannelId(pub u64);

/// An event from outside, with its sender. A ticket is used once.
#[derive(Clone, Debug, PartialEq)]
pub enum Inbound {
    Called {
        ticket: Ticket,
        who: Identity,
        call: Call,
    },
    /// A peer has used a certificate that was issued in place of others, for the first time.
    CertificateUsed {
        serial: String,
    },
    /// An agent's link is up; its earlier link is closed.
    AgentConnected {
        name: String,
        link: LinkId,
        hello: AgentHello,
        report: NodeReport,
    },
    /// Why an agent can start no job; absent if it can. Accepted only while `link` is the agent's newest, like all
    /// messages of agents.
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
    /// An agent makes a request for a job on its node.
    AgentAsked {
        ticket: Ticket,
        name: String,
        link: LinkId,
        job: JobId,
        run: Run,
        what: AgentAsk,
    },
    LauncherCalled {
        ticket: Ticket,
        channel: ChannelId,
        who: Identity,
        call: LauncherCall,
    },
    /// The channel is gone and sends nothing after this; ignored if another one has taken over its application.
    LauncherGone {
        channel: ChannelId,
    },
    /// A call of a negotiator.
    NegotiatorCalled {
        ticket: Ticket,
        channel: ChannelId,
        who: Identity,
        call: NegotiatorCall,
    },
    /// As for [`Inbound::LauncherGone`].
    NegotiatorGone {
        channel: ChannelId,
    },
    /// How long the last walk over the queue and its consequences took.
    PassTook {
        took: Duration,
    },
    /// As for [`Event::ClockSetForward`](crate::Event::ClockSetForward).
    ClockSetForward,
    /// The holder of the ticket is sent the present state of these jobs, and every change from now on.
    Watch {
        ticket: Ticket,
        jobs: Vec<JobId>,
    },
}

/// An agent's request for a job on its node.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentAsk {
    /// A request for another size.
    Size(Box<Ask>),
    /// A certificate over this key for the processes of the job.
    Certificate { csr: Vec<u8>, serial: String },
}

/// Output, with its recipient. Nothing is sent to peers that are gone.
#[derive(Clone, Debug, PartialEq)]
pub enum Outbound {
    Answer {
        ticket: Ticket,
        answer: Result<Answer, Denial>,
    },
    /// Sign a certificate and send it to the caller.
    Sign {
        ticket: Ticket,
        issued: Issued,
        csr: Vec<u8>,
        cluster: Option<String>,
    },
    LauncherAnswer {
        ticket: Ticket,
        answer: Result<LauncherAnswer, Denial>,
    },
    NegotiatorAnswer {
        ticket: Ticket,
        answer: Result<NegotiatorAnswer, Denial>,
    },
    /// The watched jobs that are in the system.
    Found {
        ticket: Ticket,
        found: Result<Vec<Found>, Failing>,
    },
    /// A watched job has changed.
    Changed {
        ticket: Ticket,
        change: JobChange,
    },
    /// None of the jobs watched under this ticket will change any more.
    WatchEnds {
        ticket: Ticket,
    },
    /// No answer will be sent.
    Silence {
        ticket: Ticket,
    },
    /// The node's whole desired state: a newer one replaces one that was not sent yet.
    Desire {
        link: LinkId,
        desired: Desired,
    },
    /// Best effort: a signal to every task of the job on the node.
    Signal {
        link: LinkId,
        job: JobId,
        run: Run,
        signal: i32,
    },
    CloseLink {
        link: LinkId,
        reason: String,
    },
    /// Close every link that uses one of these certificates.
    CloseLinks {
        serials: Vec<String>,
    },
    TellLauncher {
        channel: ChannelId,
        notice: Notice,
    },
    TellNegotiator {
        channel: ChannelId,
        notice: NegotiatorNotice,
    },
}

/// Why a call is denied.
#[derive(Clone, Debug, PartialEq)]
pub enum Denial {
    Refused(Refusal),
    Failing(Failing),
}

/// The journal cannot be written, and why; nothing is accepted or sent until it can.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failing {
    pub message: String,
}

/// The present state of a job that is in the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub owner: Owner,
    pub submitted: Time,
    pub change: JobChange,
}

impl Failing {
    /// Returns the denial as it is sent to the caller.
    pub fn refused(&self) -> Refused {
        Refused::new("journal_failing", self)
    }
}

impl Denial {
    /// Returns the denial as it is sent to the caller.
    pub fn refused(&self) -> Refused {
        match self {
            Denial::Refused(refusal) => Refused::from(refusal),
            Denial::Failing(failing) => failing.refused(),
        }
    }
}
