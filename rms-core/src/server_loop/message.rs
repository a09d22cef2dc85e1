//! What goes into the loop around the core, and what comes out: peers are numbers.

use std::time::Duration;

use std::fmt;

use rms_api::answer::JobChange;
use rms_api::desired::{AgentHello, Desired, NodeReport};
use rms_api::negotiate::{Ask, NegotiatorAnswer, NegotiatorCall, NegotiatorNotice};
use rms_api::subscription::{LauncherAnswer, LauncherCall, Notice};
use rms_api::{Answer, Call, Refusal, Refused};
use rms_model::token::Issued;
use rms_model::{Identity, JobId, Owner, Run};

use crate::event::Ticket;

/// Tells one link of an agent from its next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub u64);

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Tells one channel of a launcher or a negotiator from its next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChannelId(pub u64);

/// Something that happened outside, and whom it came from. A ticket is used once.
#[derive(Clone, Debug, PartialEq)]
pub enum Inbound {
    Called {
        ticket: Ticket,
        who: Identity,
        call: Call,
    },
    /// Somebody has come with a certificate that was issued in place of others, for the first time.
    CertificateUsed {
        serial: String,
    },
    /// An agent's link is up; one that it had before is closed.
    AgentConnected {
        name: String,
        link: LinkId,
        hello: AgentHello,
        report: NodeReport,
    },
    /// Why an agent can start no job, or that it can. Taken for what it is only while `link` is the agent's newest, as all
    /// that agents say.
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
    /// An agent asks for a job on its node.
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
    /// The channel is gone, and said nothing after this; of no matter if another one has taken its application over.
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
    /// As for launchers.
    NegotiatorGone {
        channel: ChannelId,
    },
    /// The last walk over the queue took so long, with all that came of it.
    PassTook {
        took: Duration,
    },
    /// Whoever holds the ticket is told what these jobs are now, and of every change of them from now on.
    Watch {
        ticket: Ticket,
        jobs: Vec<JobId>,
    },
}

/// What an agent wants for a job on its node.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentAsk {
    /// Another size.
    Size(Box<Ask>),
    /// A certificate over this key for the processes of the job.
    Certificate { csr: Vec<u8>, serial: String },
}

/// What goes out, and to whom. Who is gone is told nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Outbound {
    Answer {
        ticket: Ticket,
        answer: Result<Answer, Denial>,
    },
    /// A certificate is to be made and handed to the caller.
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
    /// Those of the jobs that are in the system.
    Found {
        ticket: Ticket,
        found: Result<Vec<Found>, Failing>,
    },
    /// A job has changed that is watched.
    Changed {
        ticket: Ticket,
        change: JobChange,
    },
    /// Nothing will change any more that is watched under this ticket.
    WatchEnds {
        ticket: Ticket,
    },
    /// There is no answer.
    Silence {
        ticket: Ticket,
    },
    /// The node's whole desired state: a newer one takes the place of one that was not sent yet.
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
    /// Every link that uses one of these certificates.
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

/// Why somebody does not get what was asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Denial {
    Refused(Refusal),
    Failing(Failing),
}

/// The journal cannot be written, and why; nothing is taken in or told until it can.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failing {
    pub message: String,
}

/// A job that is in the system, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub owner: Owner,
    pub change: JobChange,
}

impl Failing {
    /// As whoever asked is told.
    pub fn refused(&self) -> Refused {
        Refused::new("journal_failing", self)
    }
}

impl Denial {
    /// As whoever asked is told.
    pub fn refused(&self) -> Refused {
        match self {
            Denial::Refused(refusal) => Refused::from(refusal),
            Denial::Failing(failing) => failing.refused(),
        }
    }
}
