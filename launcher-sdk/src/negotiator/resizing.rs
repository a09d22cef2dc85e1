//! The simple interface for applications with limits: at each breakpoint it returns what to do.

use std::collections::{BTreeMap, VecDeque};

use negotiation::{ActError, Direction, NegotiationId, Reason};
use rms_api::negotiate::{HeldNode, Holding};
use rms_model::NodeId;

use super::error::NegotiatorError;
use super::event::{Event, Ready, StageEnds};
use super::handle::Negotiator;
use super::limits::Limits;
use super::owner;
use super::policy::Policy;

/// Declares limits, answers all proposals within them, and returns at each breakpoint what to do. It consumes the
/// negotiator's events, so the application must not read them itself.
#[derive(Debug)]
pub struct Resizing {
    negotiator: Negotiator,
    /// Nodes that were reported to the application.
    known: BTreeMap<NodeId, HeldNode>,
    /// Those of them that it was asked to leave, and for which negotiation; `None` for its next stage.
    leaving: BTreeMap<NodeId, Option<NegotiationId>>,
    waiting: VecDeque<Change>,
}

/// Something to do at a breakpoint.
#[derive(Debug)]
pub enum Change {
    /// Processes can be placed on these nodes: those that come together are reported together, when all are ready.
    Added(Added),
    /// Nodes are to be left.
    Leave(Leave),
    /// Nodes are gone with everything that ran there: go on without them. Either they are lost, which is reported only
    /// to applications that [survive this](super::JobEnvironment::survives_loss) or were submitted so (others are
    /// ended); or they were taken, because a user or admin asked for that or the application did not leave them in
    /// time.
    Lost(Vec<HeldNode>),
}

/// Nodes that the application has got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
    /// The new ones.
    pub nodes: Vec<HeldNode>,
    /// All that the application holds now.
    pub holding: Holding,
}

/// Nodes to leave: move what runs there elsewhere, then call [`Leave::done`]. If it is dropped without that,
/// [`Resizing::breakpoint`] does not return it again; the server waits, warns, and finally takes the nodes.
#[derive(Debug)]
#[must_use = "the server waits until the nodes are left"]
pub struct Leave {
    negotiator: Negotiator,
    /// `None`: they are left for the next stage of the application.
    negotiation: Option<NegotiationId>,
    n_nodes: u64,
    /// The nodes to leave: the last ones, unless others were named. The application may choose other nodes, but not its
    /// first one: see [`Leave::done_with`].
    pub nodes: Vec<HeldNode>,
}

impl Resizing {
    /// Declares the limits. From now on all proposals within them are accepted, even while the application computes.
    ///
    /// # Errors
    /// See [`Negotiator::declare`].
    pub async fn within(negotiator: &Negotiator, limits: Limits) -> Result<Resizing, NegotiatorError> {
        negotiator.declare(limits.clone()).await?;
        negotiator.answer_with(Policy::within(limits)).await?;
        Ok(Resizing::of(negotiator.clone()))
    }

    /// For an application that uses what the negotiator holds.
    pub(super) fn of(negotiator: Negotiator) -> Resizing {
        let mut known = by_node(&negotiator.holding());
        known.retain(|_, node| !node.is_coming);
        Resizing { negotiator, known, leaving: BTreeMap::new(), waiting: VecDeque::new() }
    }

    /// Returns what to do now, if anything; does not wait. Call it until it returns `None`.
    ///
    /// # Errors
    /// The application is being ended, or it has another negotiator.
    pub async fn breakpoint(&mut self) -> Result<Option<Change>, NegotiatorError> {
        while self.waiting.is_empty()
            && let Some(event) = self.negotiator.poll_event()
        {
            self.handle(event)?;
        }
        Ok(self.waiting.pop_front())
    }

    /// Waits until there is something to do. Cancel safe.
    ///
    /// # Errors
    /// See [`Resizing::breakpoint`].
    pub async fn next_change(&mut self) -> Result<Change, NegotiatorError> {
        loop {
            if let Some(change) = self.waiting.pop_front() {
                return Ok(change);
            }
            let event = self.negotiator.next_event().await.ok_or(NegotiatorError::Stopped)?;
            self.handle(event)?;
        }
    }

    /// Returns the negotiator, to request something, or to write a hostfile.
    pub fn negotiator(&self) -> &Negotiator {
        &self.negotiator
    }

    /// Reports the nodes that are new to the application.
    fn push_added(&mut self, mut nodes: Vec<HeldNode>, holding: &Holding) {
        nodes.retain(|node| self.known.insert(node.node, node.clone()).is_none());
        if !nodes.is_empty() {
            self.waiting.push_back(Change::Added(Added { nodes, holding: holding.clone() }));
        }
    }

    fn push_leave(&mut self, negotiation: Option<NegotiationId>, n_nodes: u64, mut nodes: Vec<HeldNode>) {
        // The end of a stage is reported again if it was announced differently: the application is already leaving
        // these nodes.
        nodes.retain(|node| self.leaving.insert(node.node, negotiation).is_none());
        if !nodes.is_empty() {
            let negotiator = self.negotiator.clone();
            self.waiting.push_back(Change::Leave(Leave { negotiator, negotiation, n_nodes, nodes }));
        }
    }

    /// Cancels the leaving of nodes after the change did not take place. The nodes that the application still has are
    /// reported to it again.
    fn cancel_leaving(&mut self, negotiation: Option<NegotiationId>, holding: &Holding) {
        let staying = self.leaving.extract_if(.., |_, of| *of == negotiation).map(|(node, _)| node);
        let staying: Vec<HeldNode> = staying.filter_map(|node| self.known.remove(&node)).collect();
        let is_held = |node: &HeldNode| holding.nodes.iter().any(|held| held.node == node.node);
        self.push_added(staying.into_iter().filter(is_held).collect(), holding);
    }

    /// Handles a changed holding, which is the only report of nodes that others have requested, or that came and went
    /// with a stage.
    fn holding_changed(&mut self, holding: &Holding) {
        if !next_stage_is_smaller(holding) {
            self.cancel_leaving(None, holding);
        }
        let held = by_node(holding);
        let gone: Vec<HeldNode> =
            self.known.extract_if(.., |node, _| !held.contains_key(node)).map(|(_, node)| node).collect();
        let lost: Vec<HeldNode> = gone.into_iter().filter(|node| !self.leaving.contains_key(&node.node)).collect();
        self.leaving.retain(|node, _| held.contains_key(node));
        if !lost.is_empty() {
            self.waiting.push_back(Change::Lost(lost));
        }
        if holding.awaits_nodes() {
            return;
        }
        let can_be_used = |node: &&HeldNode| !node.is_departing;
        self.push_added(holding.nodes.iter().filter(can_be_used).cloned().collect(), holding);
    }

    fn handle(&mut self, event: Event) -> Result<(), NegotiatorError> {
        match event {
            Event::Ready(Ready { direction: Direction::Grow, nodes, holding, .. }) => self.push_added(nodes, &holding),
            // They may come back before the application looks again: a holding that follows has them then.
            Event::Ready(Ready { direction: Direction::Shrink, nodes, .. }) => {
                for node in &nodes {
                    self.known.remove(&node.node);
                    self.leaving.remove(&node.node);
                }
            }
            Event::Holding(holding) => self.holding_changed(&holding),
            Event::Accepted(agreed) if agreed.direction == Direction::Shrink && agreed.n_nodes() > 0 => {
                self.push_leave(Some(agreed.negotiation), agreed.n_nodes(), agreed.leaving);
            }
            Event::StageEnds(StageEnds { leaving, .. }) => self.push_leave(None, leaving.len() as u64, leaving),
            Event::NodesLost(mut nodes) => {
                nodes.retain(|node| self.known.remove(&node.node).is_some());
                if !nodes.is_empty() {
                    self.waiting.push_back(Change::Lost(nodes));
                }
            }
            Event::Ended { negotiation, reason, .. } => match reason {
                // The nodes are taken all the same, which the holding shows.
                Reason::BrokenPromise | Reason::Administrator => {}
                Reason::Declined
                | Reason::NoResources
                | Reason::Price
                | Reason::Policy
                | Reason::Lapsed
                | Reason::TooManyRounds
                | Reason::BadProposal
                | Reason::Crossed
                | Reason::AlreadyOpen
                | Reason::Unknown
                | Reason::Overdue
                | Reason::Lost
                | Reason::Stopping
                | Reason::Changed
                | Reason::Recalled
                | Reason::KeepsRanks => self.cancel_leaving(Some(negotiation), &self.negotiator.holding()),
            },
            last @ (Event::JobEnding(_) | Event::Replaced | Event::Lost(_)) => {
                return Err(owner::ended(self.negotiator.job(), &last));
            }
            // The policy answers proposals; a change that is only agreed needs no action.
            Event::Offered(_) | Event::Countered(_) | Event::Accepted(_) | Event::Warned(_) => {}
        }
        Ok(())
    }
}

/// Returns whether the next stage of the application has fewer nodes than the current one.
fn next_stage_is_smaller(holding: &Holding) -> bool {
    match holding.stages.as_deref().map(|stages| stages.legs.as_slice()) {
        Some([current, next, ..]) => next.nodes < current.nodes,
        Some(_) | None => false,
    }
}

fn by_node(holding: &Holding) -> BTreeMap<NodeId, HeldNode> {
    holding.nodes.iter().map(|node| (node.node, node.clone())).collect()
}

impl Leave {
    /// Returns the names of the nodes that go if [`Leave::done`] is called.
    pub fn names(&self) -> Vec<&str> {
        self.nodes.iter().map(|node| node.name.as_str()).collect()
    }

    /// Returns how many nodes to leave.
    pub fn n_nodes(&self) -> u64 {
        self.n_nodes
    }

    /// Reports that these nodes are left: processes that still run there are ended, and the nodes become free.
    ///
    /// # Errors
    /// The application is being ended, or it has another negotiator.
    pub async fn done(self) -> Result<(), NegotiatorError> {
        match self.negotiation {
            Some(negotiation) => ignore_too_late(self.negotiator.negotiation(negotiation).release_last().await),
            // The stage has begun meanwhile, or another one was announced instead.
            None => match self.negotiator.free(self.names()).await {
                Err(NegotiatorError::Refused(_)) => Ok(()),
                freed => freed,
            },
        }
    }

    /// Like [`Leave::done`], for the same number of other nodes, by name.
    ///
    /// # Errors
    /// Those of [`Leave::done`], and nodes that are not the application's or whose number differs from what was agreed.
    pub async fn done_with<S: AsRef<str>>(self, nodes: impl IntoIterator<Item = S>) -> Result<(), NegotiatorError> {
        match self.negotiation {
            Some(negotiation) => ignore_too_late(self.negotiator.negotiation(negotiation).release(nodes).await),
            None => self.negotiator.free(nodes).await,
        }
    }
}

/// Ignores that a release came too late: the application has already lost the nodes, or may keep them.
fn ignore_too_late(released: Result<(), NegotiatorError>) -> Result<(), NegotiatorError> {
    match released {
        Err(NegotiatorError::Act(ActError::NotNow(_) | ActError::NoSuch(_))) => Ok(()),
        released => released,
    }
}
