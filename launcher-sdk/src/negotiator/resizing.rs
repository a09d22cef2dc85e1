//! For applications that are content with their limits: what is to be done at a breakpoint, and nothing else.

use std::collections::BTreeSet;

use negotiation::{ActError, Direction, NegotiationId};
use rms_api::negotiate::{HeldHost, Holding};
use rms_model::NodeId;

use super::error::NegotiatorError;
use super::event::{Agreed, Event, Ready};
use super::handle::Negotiator;
use super::limits::Limits;
use super::owner;
use super::policy::Policy;

/// Declares limits, answers everything within them, and tells at each breakpoint what has come of it. It takes the
/// negotiator's events, so nobody else should.
#[derive(Debug)]
pub struct Resizing {
    negotiator: Negotiator,
    /// Hosts that the application has been told of.
    known: BTreeSet<NodeId>,
}

/// Something that is to be done at a breakpoint.
#[derive(Debug)]
pub enum Change {
    /// Processes can be placed on these hosts.
    Came(Came),
    /// Hosts are to be left.
    Leave(Leave),
    /// Hosts are lost, and what ran there: go on without them. Only who [said](super::JobEnvironment::survives_loss) that it
    /// can, or was submitted so, is told; others are ended.
    Lost(Vec<HeldHost>),
}

/// Hosts have come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Came {
    /// The new ones.
    pub hosts: Vec<HeldHost>,
    /// All that the application holds now.
    pub holding: Holding,
}

/// Hosts are to be left: move what runs there elsewhere, then say [`Leave::done`]. Dropped without that, it is as if the
/// breakpoint was not reached: [`Resizing::breakpoint`] does not tell it again, and the server waits, warns, and at
/// last takes the hosts.
#[derive(Debug)]
#[must_use = "the server waits until the hosts are left"]
pub struct Leave {
    negotiator: Negotiator,
    negotiation: NegotiationId,
    n_hosts: u64,
    /// The last ones, unless others were named. Any other of the application's hosts but the first will do: see
    /// [`Leave::done_with`].
    pub hosts: Vec<HeldHost>,
}

impl Resizing {
    /// From now on everything within the limits is agreed to, also while the application computes.
    ///
    /// # Errors
    /// As [`Negotiator::declare`].
    pub async fn within(negotiator: &Negotiator, limits: Limits) -> Result<Resizing, NegotiatorError> {
        negotiator.declare(limits.clone()).await?;
        negotiator.answer_with(Policy::within(limits)).await?;
        let known = negotiator.holding().hosts.iter().map(|host| host.node).collect();
        Ok(Resizing { negotiator: negotiator.clone(), known })
    }

    /// What is to be done now, if anything; waits for nothing. Call it until it says `None`.
    ///
    /// # Errors
    /// The application is being ended, or another process speaks for it.
    pub async fn breakpoint(&mut self) -> Result<Option<Change>, NegotiatorError> {
        while let Some(event) = self.negotiator.poll_event() {
            if let Some(change) = self.change_of(event)? {
                return Ok(Some(change));
            }
        }
        Ok(None)
    }

    /// Waits until there is something to do. May be cancelled.
    ///
    /// # Errors
    /// As [`Resizing::breakpoint`].
    pub async fn next_change(&mut self) -> Result<Change, NegotiatorError> {
        loop {
            let event = self.negotiator.next_event().await.ok_or(NegotiatorError::Stopped)?;
            if let Some(change) = self.change_of(event)? {
                return Ok(change);
            }
        }
    }

    /// The negotiator, to request something, or to write a host file.
    pub fn negotiator(&self) -> &Negotiator {
        &self.negotiator
    }

    /// Those that are news.
    fn came(&mut self, mut hosts: Vec<HeldHost>, holding: Holding) -> Option<Change> {
        hosts.retain(|host| self.known.insert(host.node));
        (!hosts.is_empty()).then_some(Change::Came(Came { hosts, holding }))
    }

    fn change_of(&mut self, event: Event) -> Result<Option<Change>, NegotiatorError> {
        match event {
            Event::Ready(Ready { direction: Direction::Grow, hosts, holding, .. }) => Ok(self.came(hosts, holding)),
            // Hosts for which others have asked are heard of in no other way.
            Event::Holding(holding) => {
                let there: BTreeSet<NodeId> = holding.hosts.iter().map(|host| host.node).collect();
                self.known.retain(|node| there.contains(node));
                let staying = holding.hosts.iter().filter(|host| !host.is_departing).cloned().collect();
                Ok(self.came(staying, holding))
            }
            Event::Accepted(agreed) if agreed.direction == Direction::Shrink && agreed.n_hosts() > 0 => {
                let n_hosts = agreed.n_hosts();
                let Agreed { negotiation, leaving: hosts, .. } = agreed;
                Ok(Some(Change::Leave(Leave { negotiator: self.negotiator.clone(), negotiation, n_hosts, hosts })))
            }
            Event::HostsLost(hosts) => Ok(Some(Change::Lost(hosts))),
            last @ (Event::JobEnding(_) | Event::Replaced | Event::Lost(_)) => {
                Err(owner::ended(self.negotiator.job(), &last))
            }
            // The policy answers what is proposed, and what is only agreed or is over asks for nothing.
            Event::Offered(_) | Event::Countered(_) | Event::Accepted(_) | Event::Ready(_) => Ok(None),
            Event::Ended { .. } | Event::Warned(_) => Ok(None),
        }
    }
}

impl Leave {
    /// Names of the hosts that go if [`Leave::done`] is said.
    pub fn names(&self) -> Vec<&str> {
        self.hosts.iter().map(|host| host.name.as_str()).collect()
    }

    /// How many hosts are to be left.
    pub fn n_hosts(&self) -> u64 {
        self.n_hosts
    }

    /// These hosts are left: what still runs there is ended, and they are given to others.
    ///
    /// # Errors
    /// The application is being ended, or another process speaks for it.
    pub async fn done(self) -> Result<(), NegotiatorError> {
        forgive_late(self.negotiator.negotiation(self.negotiation).release_last().await)
    }

    /// The same of as many others, by name.
    ///
    /// # Errors
    /// As [`Leave::done`], and hosts that are not the application's, or are more or fewer than agreed.
    pub async fn done_with<S: AsRef<str>>(self, hosts: impl IntoIterator<Item = S>) -> Result<(), NegotiatorError> {
        forgive_late(self.negotiator.negotiation(self.negotiation).release(hosts).await)
    }
}

/// Whoever was too slow has lost the hosts already, or may keep them: there is nothing left to do.
fn forgive_late(released: Result<(), NegotiatorError>) -> Result<(), NegotiatorError> {
    match released {
        Err(NegotiatorError::Act(ActError::NotNow(_) | ActError::NoSuch(_))) => Ok(()),
        released => released,
    }
}
