//! The negotiation manager (002, §5): how running applications come to more and to fewer nodes.
//!
//! Each running job that negotiates has a [`negotiation::Dialogues`], the server's end of its dialogues. What they come
//! to is written down as facts before anybody hears of it, so a server that is started again goes on where it was.
//! Nothing is told that is not held: nodes that are offered are kept free, and nodes that are given back are free once
//! the agents have seen the processes gone.

mod answer;
mod ask;
mod attach;
mod budget;
mod delay;
mod dialogues;
mod grow;
mod hold;
mod inside;
pub(crate) mod open;
mod parts;
pub mod policy;
mod progress;
mod reclaim;
mod records;
mod refusals;
mod shrink;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use attach::MAX_MESSAGES;
#[cfg(test)]
pub(crate) use budget::account;
pub(crate) use budget::budgets;
pub use hold::{HoldError, check};
pub(crate) use records::negotiations;

use std::collections::{BTreeMap, BTreeSet};

use negotiation::{Dialogues, NegotiationId, Price};
use rms_model::{JobId, NodeId, Span, Time};

use crate::context::Context;
use crate::event::Ticket;
use crate::state::negotiations::promise_span;
use attach::CallRates;
use delay::UndelayedStarts;
use refusals::Refusals;

/// What the manager knows beside the state: a server that is started again makes it anew.
#[derive(Debug, Default)]
pub(crate) struct Negotiators {
    /// With the timers that the durable copies lack.
    dialogues: BTreeMap<JobId, Dialogues>,
    /// When to look at a job again.
    wakes: BTreeSet<(Time, JobId)>,
    wake_of: BTreeMap<JobId, Time>,
    /// Jobs that have a negotiator, over a channel that is up, and the nodes on which `mpirun` has started ranks.
    attached: BTreeMap<JobId, BTreeSet<NodeId>>,
    /// How often the negotiator of an execution calls, over whichever channels.
    call_rates: BTreeMap<JobId, CallRates>,
    /// Since when the channels of others are gone.
    gone: BTreeMap<JobId, Time>,
    /// Who waits for what comes of an ask.
    tickets: BTreeMap<(JobId, NegotiationId), Ticket>,
    /// Growth that waits for nodes, in the order in which it was asked for.
    waiting: BTreeSet<(Time, JobId, NegotiationId)>,
    /// What applications have declined not long ago.
    refusals: Refusals,
    /// How late growth has made those who wait.
    undelayed: UndelayedStarts,
}

/// The manager at work.
pub(crate) struct Negotiations<'a> {
    pub(crate) context: &'a mut Context,
    pub(crate) negotiators: &'a mut Negotiators,
}

impl Negotiations<'_> {
    /// By how much a growth may delay the estimated start of a waiting job.
    pub(super) fn delay_tolerance(&self) -> Span {
        self.context.state().settings().delay_tolerance
    }

    /// What is paid at most for a node and hour that an application gives back: nothing, for what it saves is its own.
    pub(super) fn bid_price(&self, _job: JobId) -> Price {
        Price(0)
    }

    /// For how long the server's proposals stand.
    pub(super) fn offer_valid(&self) -> Span {
        self.context.state().settings().offer_valid
    }

    /// How long an application may take to give what it has promised, before it is warned; and as long again after that.
    pub(super) fn promise_span(&self) -> Span {
        promise_span(self.context.state().settings())
    }
}
