//! Effects: what is to be done outside once the facts behind it are durable, and the answers to calls.

use rms_api::answer::{Answer, JobChange};
use rms_api::desired::Desired;
use rms_api::negotiate::{NegotiatorAnswer, NegotiatorNotice};
use rms_api::refusal::Refusal;
use rms_api::subscription::{LauncherAnswer, Notice};
use rms_model::token::Issued;
use rms_model::{JobId, Run};

use crate::event::Ticket;

/// An action outside the core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Answer {
        ticket: Ticket,
        answer: Result<Answer, Refusal>,
    },
    /// The node's whole desired state; only the newest generation matters.
    Desire {
        node: String,
        desired: Desired,
    },
    /// Best effort: a signal to every task of the job on this node.
    Signal {
        node: String,
        job: JobId,
        run: Run,
        signal: i32,
    },
    /// A change of a job, for its watchers.
    Announce(JobChange),
    LauncherAnswer {
        ticket: Ticket,
        answer: Result<LauncherAnswer, Refusal>,
    },
    /// For the launcher of this application; without one it is dropped, because a launcher that attaches is told
    /// everything.
    Notify {
        job: JobId,
        notice: Notice,
    },
    NegotiatorAnswer {
        ticket: Ticket,
        answer: Result<NegotiatorAnswer, Refusal>,
    },
    /// For the negotiator of this application; without one it is dropped, because a negotiator that attaches is told
    /// everything.
    TellNegotiator {
        job: JobId,
        notice: NegotiatorNotice,
    },
    /// Sign a certificate over the key of `csr` and hand it to the caller.
    Sign {
        ticket: Ticket,
        issued: Issued,
        csr: Vec<u8>,
        cluster: Option<String>,
    },
    /// End live links that use these certificates.
    CloseLinks {
        serials: Vec<String>,
    },
    /// The agent is refused: its link is closed with this reason.
    RefuseAgent {
        node: String,
        refusal: Refusal,
    },
}
