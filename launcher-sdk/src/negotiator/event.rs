//! The events of an application's negotiations.

use negotiation::{Direction, Ending, Item, NegotiationId, Reason, Resource, Template};
use rms_api::Refused;
use rms_api::negotiate::{HeldNode, Holding};
use rms_model::{Outcome, Span, Time};

/// An event of the negotiator. A newer event replaces an older unread one: for each negotiation, and for the holding,
/// only the newest event is kept. So an application that reads no events for hours finds a short list, which is up to
/// date except for offers that have expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The server offers something, or asks for something back. Answer it before [`Offer::until`].
    Offered(Offer),
    /// The server does not accept our last proposal, and proposes what it would accept. Answer it like an offer.
    Countered(Offer),
    /// A change is agreed, but not ready yet. Nodes that come are being prepared. If nodes go: move away from them at
    /// the next breakpoint, and [release](super::Negotiation::release) them. An application that takes longer than the
    /// server's `release_grace` is warned, and then loses its last nodes. A restarted process is told at once of
    /// agreements that its predecessor has not carried out.
    Accepted(Agreed),
    /// The change is done: processes can be placed on nodes that came; nodes that went are gone.
    Ready(Ready),
    /// The negotiation is over without a result, and everything is as before. But nodes that were not released in time
    /// are taken, which [`Event::Holding`] reports.
    Ended {
        /// Which negotiation.
        negotiation: NegotiationId,
        /// The last proposal, of either end.
        template: Option<Template>,
        /// How.
        ending: Ending,
        /// Why.
        reason: Reason,
        /// What exactly was not possible, for people: the terms with their limits. Only if a term of the proposal was
        /// the cause, and the server says so.
        why: Option<String>,
    },
    /// What the application holds has changed: its nodes, or the time at which it is ended. Nodes that come are reported
    /// twice: as [coming](HeldNode::is_coming) once they are agreed, and again when they are ready. This comes before
    /// [`Event::Ready`], and mostly before [`Event::Accepted`] and [`Event::Ended`] of the same change: do not wait for
    /// it after another event, but compare [`Holding::generation`].
    Holding(Holding),
    /// These nodes are lost with everything that ran there, and the application goes on without them: a forced shrink
    /// without a negotiation. [`Event::Holding`] follows.
    NodesLost(Vec<HeldNode>),
    /// The next stage of an application with a profile needs fewer nodes and begins soon, or is due: move away from
    /// some, and [free](super::Negotiator::free) them. Reported once for each stage; [`Event::Holding`] has the current
    /// and coming stages.
    StageEnds(StageEnds),
    /// Something went wrong that does not affect what is agreed.
    Warned(Warning),
    /// The application has ended, or is being ended. Nothing comes after it.
    JobEnding(Outcome),
    /// Another process of the job negotiates for it now. Nothing comes after it.
    Replaced,
    /// The server does not negotiate with this execution of the job any more. Nothing comes after it.
    Lost(Refused),
}

/// A proposal of the server that waits for an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Which negotiation.
    pub negotiation: NegotiationId,
    /// Whether the application would get something (grow) or give something back (shrink).
    pub direction: Direction,
    /// The number of proposals of both ends so far.
    pub round: u16,
    /// What is proposed.
    pub template: Template,
    /// Our own last proposal in this negotiation.
    pub mine: Option<Template>,
    /// Until when the offer is valid, by the [negotiator's clock](super::Negotiator::now).
    pub until: Time,
}

/// Something that both ends agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Which negotiation.
    pub negotiation: NegotiationId,
    /// Whether the application gets or gives.
    pub direction: Direction,
    /// What was agreed.
    pub template: Template,
    /// The nodes that go if the application does not choose others: those that were named, then its last ones, never
    /// its first. Empty if nodes come.
    pub leaving: Vec<HeldNode>,
    /// If nodes go: the server takes them if they are not released by then, by the
    /// [negotiator's clock](super::Negotiator::now). It moves if an admin changes `release_grace` meanwhile.
    pub until: Option<Time>,
}

/// An agreed change that is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Which negotiation.
    pub negotiation: NegotiationId,
    /// Whether the application got or gave.
    pub direction: Direction,
    /// What was agreed.
    pub template: Template,
    /// The nodes that came or went; none if it was about cores or time.
    pub nodes: Vec<HeldNode>,
    /// What the application holds now.
    pub holding: Holding,
}

/// A smaller stage follows the current stage of the application (000).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageEnds {
    /// The number of the next stage, counted from 1.
    pub next: u32,
    /// When it begins, by the server's clock.
    pub at: Time,
    /// The nodes that go if the application does not choose others: those that are chosen already, then its last ones,
    /// never its first.
    pub leaving: Vec<HeldNode>,
}

/// Something that went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// The server has refused a message; the negotiation is unchanged.
    Refused {
        /// Which negotiation.
        negotiation: NegotiationId,
        /// Why.
        reason: String,
    },
    /// The connection is lost; the negotiator reconnects.
    ServerAway {
        /// Why it was lost.
        reason: String,
    },
    /// The connection is re-established.
    ServerBack,
}

impl Offer {
    /// Returns how many nodes the application would get or give.
    pub fn n_nodes(&self) -> u64 {
        self.template.n_nodes()
    }

    /// Returns how much more, or less, wall time the application would have.
    pub fn time(&self) -> Span {
        time_of(&self.template)
    }
}

impl Agreed {
    /// Returns how many nodes the application gets or gives.
    pub fn n_nodes(&self) -> u64 {
        self.template.n_nodes()
    }
}

impl Ready {
    /// Returns how much more, or less, wall time the application has.
    pub fn time(&self) -> Span {
        time_of(&self.template)
    }
}

impl Event {
    /// Returns the negotiation that it belongs to, if any.
    pub fn negotiation(&self) -> Option<NegotiationId> {
        match self {
            Event::Offered(offer) | Event::Countered(offer) => Some(offer.negotiation),
            Event::Accepted(agreed) => Some(agreed.negotiation),
            Event::Ready(ready) => Some(ready.negotiation),
            Event::Ended { negotiation, .. } => Some(*negotiation),
            Event::Holding(_) | Event::NodesLost(_) | Event::StageEnds(_) | Event::Warned(_) => None,
            Event::JobEnding(_) | Event::Replaced | Event::Lost(_) => None,
        }
    }

    /// Returns whether nothing comes after it.
    pub fn is_last(&self) -> bool {
        match self {
            Event::JobEnding(_) | Event::Replaced | Event::Lost(_) => true,
            Event::Offered(_)
            | Event::Countered(_)
            | Event::Accepted(_)
            | Event::Ready(_)
            | Event::Ended { .. }
            | Event::Holding(_)
            | Event::NodesLost(_)
            | Event::StageEnds(_)
            | Event::Warned(_) => false,
        }
    }
}

fn time_of(template: &Template) -> Span {
    let is_time = |item: &&Item| item.is_live() && item.resource == Resource::Time;
    let millis = template.items().iter().find(is_time).map_or(0, |item| item.quantity.0);
    Span::from_millis(i64::try_from(millis).unwrap_or(i64::MAX))
}
