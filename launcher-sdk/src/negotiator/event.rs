//! What an application learns of its negotiations.

use negotiation::{Direction, Ending, Item, NegotiationId, Reason, Resource, Template};
use rms_api::Refused;
use rms_api::negotiate::{HeldNode, Holding};
use rms_model::{Outcome, Span, Time};

/// Something happened. Events that nobody has taken yet are laid over each other: of one negotiation, only the newest
/// waits, and of what is held, too. So an application that does not look for hours finds a short list, and nothing in it
/// is out of date but for what ran out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The server offers something, or asks for something back. Answer it before [`Offer::until`].
    Offered(Offer),
    /// The server does not accept our last proposal, and says what it would. Answer it as an offer.
    Countered(Offer),
    /// It is agreed, and not ready yet. Nodes that come are being prepared. For nodes that go: move away from them, at
    /// the next breakpoint, and [release](super::Negotiation::release) them; who takes longer than the server's
    /// `release_grace` is warned, and then loses its last nodes. A process that was started again is told at once of what
    /// the one before it has agreed to and not done.
    Accepted(Agreed),
    /// It is done: processes can be placed on nodes that came, and nodes that went are gone.
    Ready(Ready),
    /// It is over without a result, and everything is as before.
    Ended {
        /// Which negotiation.
        negotiation: NegotiationId,
        /// What was proposed last, by whichever end.
        template: Option<Template>,
        /// How.
        ending: Ending,
        /// Why.
        reason: Reason,
    },
    /// What the application holds has changed: its nodes, or when it is ended. Nodes that come are told twice: from the
    /// agreement on, as [coming](HeldNode::is_coming), and when they are ready.
    Holding(Holding),
    /// These nodes are lost with all that ran there, and the application goes on without them: a shrink by force, which
    /// was asked of nobody. [`Event::Holding`] follows.
    NodesLost(Vec<HeldNode>),
    /// The next stage of an application with a profile needs fewer nodes and begins soon, or is due: move away from some,
    /// and [free](super::Negotiator::free) them. Told once for each stage; [`Event::Holding`] tells of every stage that
    /// has begun, and of those that come.
    StageEnds(StageEnds),
    /// Something is not as it should be; nothing is decided by that.
    Warned(Warning),
    /// The application has left the system, or is being ended. Nothing comes after it.
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
    /// Whether the application would get or give.
    pub direction: Direction,
    /// Proposals of both ends so far.
    pub round: u16,
    /// What is proposed.
    pub template: Template,
    /// Our own last proposal in this negotiation.
    pub mine: Option<Template>,
    /// An answer counts until then, by the [negotiator's clock](super::Negotiator::now).
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
    /// The nodes that go if the application does not choose others: those that were named, then its last ones, never its
    /// first. Empty where nodes come.
    pub leaving: Vec<HeldNode>,
    /// Where nodes go: the server takes them if they are not released by then, by the
    /// [negotiator's clock](super::Negotiator::now). An admin who changes `release_grace` meanwhile moves that.
    pub until: Option<Time>,
}

/// Something that was agreed and has come about.
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

/// The stage that an application is in goes over into a smaller one (000).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageEnds {
    /// The stage that comes, counted from 1.
    pub next: u32,
    /// When it begins, by the server's clock.
    pub at: Time,
    /// The nodes that go if the application does not choose others: those that are chosen already, then its last ones,
    /// never its first.
    pub leaving: Vec<HeldNode>,
}

/// What is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// The server has not taken a message; the negotiation goes on as it was.
    Refused {
        /// Which negotiation.
        negotiation: NegotiationId,
        /// Why.
        reason: String,
    },
    /// The connection is lost; it is being made again.
    ServerAway {
        /// What happened to it.
        reason: String,
    },
    /// The connection is there again.
    ServerBack,
}

impl Offer {
    /// How many nodes the application would get or give.
    pub fn n_nodes(&self) -> u64 {
        self.template.n_nodes()
    }

    /// How much more, or less, wall time the application would have.
    pub fn time(&self) -> Span {
        time_of(&self.template)
    }
}

impl Agreed {
    /// How many nodes the application gets or gives.
    pub fn n_nodes(&self) -> u64 {
        self.template.n_nodes()
    }
}

impl Ready {
    /// How much more, or less, wall time the application has.
    pub fn time(&self) -> Span {
        time_of(&self.template)
    }
}

impl Event {
    /// Which negotiation it is about, if it is about one.
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

    /// Whether nothing comes after it.
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
