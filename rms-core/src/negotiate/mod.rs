//! The negotiation manager (002, §5): how running applications get more nodes and give nodes back.
//!
//! Each running job that negotiates has a [`negotiation::Dialogues`], the server's end of its dialogues. Their outcomes
//! are recorded as facts before they are sent, so a restarted server continues where it was. The server announces only
//! what it holds: nodes that it offers are kept free, and nodes that are given back become free once the agents report
//! that the processes are gone.

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
pub(crate) use budget::balance;
pub(crate) use budget::budgets;
pub(crate) use budget::shortage_for_longer;
pub(crate) use grow::is_changing_time;
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

/// What the manager knows beside the state; a restarted server rebuilds it.
#[derive(Debug, Default)]
pub(crate) struct Negotiators {
    /// The dialogues, with the timers that the durable copies lack.
    dialogues: BTreeMap<JobId, Dialogues>,
    /// When to review a job next.
    wakes: BTreeSet<(Time, JobId)>,
    wake_of: BTreeMap<JobId, Time>,
    /// Jobs whose negotiator has an open channel, and the nodes on which `mpirun` has started ranks.
    attached: BTreeMap<JobId, BTreeSet<NodeId>>,
    /// How often the negotiator of an execution calls, over all its channels.
    call_rates: BTreeMap<JobId, CallRates>,
    /// When the channel of a job's negotiator was lost.
    gone: BTreeMap<JobId, Time>,
    /// The callers that wait for the outcome of a request.
    tickets: BTreeMap<(JobId, NegotiationId), Ticket>,
    /// Growth that waits for nodes, in the order of the requests.
    waiting: BTreeSet<(Time, JobId, NegotiationId)>,
    /// What applications have declined recently.
    refusals: Refusals,
    /// How much growth has delayed waiting jobs.
    undelayed: UndelayedStarts,
}

/// The manager with what it needs to handle one event.
pub(crate) struct Negotiations<'a> {
    pub(crate) context: &'a mut Context,
    pub(crate) negotiators: &'a mut Negotiators,
}

impl Negotiations<'_> {
    /// Returns by how much a growth may delay the estimated start of a waiting job.
    pub(super) fn delay_tolerance(&self) -> Span {
        self.context.state().settings().delay_tolerance
    }

    /// Returns the most that is paid for a node and hour that an application gives back: nothing, because the
    /// application keeps what it saves.
    pub(super) fn bid_price(&self, _job: JobId) -> Price {
        Price(0)
    }

    /// Returns how long the server's proposals are valid.
    pub(super) fn offer_valid(&self) -> Span {
        self.context.state().settings().offer_valid
    }

    /// Returns how long an application may take to keep a promise before it is warned, and as long again before its
    /// nodes are taken.
    pub(super) fn promise_span(&self) -> Span {
        promise_span(self.context.state().settings())
    }
}
