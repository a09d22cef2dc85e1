//! Negotiating in programs without an async runtime: the same handles, each call blocking until it is done.

use std::path::Path;
use std::time::Duration;

use negotiation::{Item, NegotiationId, Phase, Reason};
use rms_api::negotiate::{HeldNode, Holding};
use rms_model::{JobId, Run, Time};
use thiserror::Error;

use crate::negotiator::{
    self, Change, ConnectError, Event, HostfileStyle, JobEnvironment, Leave, Limits, NegotiatorError, Policy, Settled,
    Want,
};

/// A [`negotiator::Negotiator`] whose calls block the calling thread. Not for use inside an async runtime. It may be used
/// from many threads at once; its own thread keeps the connection while none of them waits.
#[derive(Clone, Debug)]
pub struct Negotiator(negotiator::Negotiator);

/// A [`negotiator::Negotiation`] whose calls block the calling thread.
#[derive(Clone, Debug)]
pub struct Negotiation {
    negotiation: negotiator::Negotiation,
    negotiator: Negotiator,
}

/// A [`negotiator::Resizing`] whose calls block the calling thread.
#[derive(Debug)]
pub struct Resizing {
    resizing: negotiator::Resizing,
    negotiator: Negotiator,
}

/// No event has arrived within the time-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("nothing has happened in time")]
pub struct TimedOut;

impl Negotiator {
    /// See [`negotiator::Negotiator::connect`].
    ///
    /// # Errors
    /// See [`negotiator::Negotiator::connect`].
    pub fn connect() -> Result<Negotiator, ConnectError> {
        Negotiator::connect_with(JobEnvironment::read()?)
    }

    /// See [`negotiator::Negotiator::connect_with`].
    ///
    /// # Errors
    /// See [`negotiator::Negotiator::connect`].
    pub fn connect_with(environment: JobEnvironment) -> Result<Negotiator, ConnectError> {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.map_err(|error| ConnectError::System(error.to_string()))?;
        runtime.block_on(negotiator::Negotiator::connect_with(environment)).map(Negotiator)
    }

    /// Returns the same negotiator, for async code.
    pub fn as_async(&self) -> &negotiator::Negotiator {
        &self.0
    }

    /// See [`negotiator::Negotiator::job`].
    pub fn job(&self) -> JobId {
        self.0.job()
    }

    /// See [`negotiator::Negotiator::run`].
    pub fn run(&self) -> Run {
        self.0.run()
    }

    /// See [`negotiator::Negotiator::now`].
    pub fn now(&self) -> Time {
        self.0.now()
    }

    /// See [`negotiator::Negotiator::is_connected`].
    pub fn is_connected(&self) -> bool {
        self.0.is_connected()
    }

    /// See [`negotiator::Negotiator::holding`].
    pub fn holding(&self) -> Holding {
        self.0.holding()
    }

    /// See [`negotiator::Negotiator::nodes`].
    pub fn nodes(&self) -> Vec<HeldNode> {
        self.0.nodes()
    }

    /// See [`negotiator::Negotiator::write_hostfile`].
    ///
    /// # Errors
    /// See [`negotiator::Negotiator::write_hostfile`].
    pub fn write_hostfile(&self, path: impl AsRef<Path>, style: HostfileStyle) -> Result<(), NegotiatorError> {
        self.0.write_hostfile(path, style)
    }

    /// See [`negotiator::Negotiator::declare`].
    ///
    /// # Errors
    /// See [`negotiator::Negotiator::declare`].
    pub fn declare(&self, limits: Limits) -> Result<(), NegotiatorError> {
        self.wait(self.0.declare(limits))
    }

    /// See [`negotiator::Negotiator::free`].
    ///
    /// # Errors
    /// See [`negotiator::Negotiator::free`].
    pub fn free<S: AsRef<str>>(&self, nodes: impl IntoIterator<Item = S>) -> Result<(), NegotiatorError> {
        self.wait(self.0.free(nodes))
    }

    /// See [`negotiator::Negotiator::answer_with`].
    ///
    /// # Errors
    /// See [`negotiator::Negotiator::answer_with`].
    pub fn answer_with(&self, policy: impl Into<Option<Policy>>) -> Result<(), NegotiatorError> {
        self.wait(self.0.answer_with(policy))
    }

    /// See [`negotiator::Negotiator::request`].
    ///
    /// # Errors
    /// See [`negotiator::Negotiator::request`].
    pub fn request(&self, want: Want) -> Result<Negotiation, NegotiatorError> {
        let negotiation = self.wait(self.0.request(want))?;
        Ok(Negotiation { negotiation, negotiator: self.clone() })
    }

    /// See [`negotiator::Negotiator::negotiation`].
    pub fn negotiation(&self, id: NegotiationId) -> Negotiation {
        Negotiation { negotiation: self.0.negotiation(id), negotiator: self.clone() }
    }

    /// Waits for the next event; `None` after the last.
    pub fn next_event(&self) -> Option<Event> {
        self.wait(self.0.next_event())
    }

    /// Waits for the next event, with a time-out; `None` after the last.
    ///
    /// # Errors
    /// [`TimedOut`].
    pub fn next_event_within(&self, span: Duration) -> Result<Option<Event>, TimedOut> {
        self.wait(async { tokio::time::timeout(span, self.0.next_event()).await.map_err(|_| TimedOut) })
    }

    /// See [`negotiator::Negotiator::poll_event`].
    pub fn poll_event(&self) -> Option<Event> {
        self.0.poll_event()
    }

    /// See [`negotiator::Negotiator::call_back`].
    ///
    /// # Errors
    /// See [`negotiator::Negotiator::call_back`].
    pub fn call_back(&self, callback: impl FnMut(Event) + Send + 'static) -> std::io::Result<()> {
        self.0.call_back(callback)
    }

    /// Waits on the negotiator's runtime, which its own thread drives.
    fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.0.runtime().block_on(work)
    }
}

impl Negotiation {
    /// See [`negotiator::Negotiation::id`].
    pub fn id(&self) -> NegotiationId {
        self.negotiation.id()
    }

    /// See [`negotiator::Negotiation::phase`].
    pub fn phase(&self) -> Option<Phase> {
        self.negotiation.phase()
    }

    /// See [`negotiator::Negotiation::accept`].
    ///
    /// # Errors
    /// See [`negotiator::Negotiation::accept`].
    pub fn accept(&self) -> Result<(), NegotiatorError> {
        self.negotiator.wait(self.negotiation.accept())
    }

    /// See [`negotiator::Negotiation::counter`].
    ///
    /// # Errors
    /// See [`negotiator::Negotiation::counter`].
    pub fn counter(&self, items: Vec<Item>) -> Result<(), NegotiatorError> {
        self.negotiator.wait(self.negotiation.counter(items))
    }

    /// See [`negotiator::Negotiation::reject`].
    ///
    /// # Errors
    /// See [`negotiator::Negotiation::reject`].
    pub fn reject(&self, reason: Reason) -> Result<(), NegotiatorError> {
        self.negotiator.wait(self.negotiation.reject(reason))
    }

    /// See [`negotiator::Negotiation::withdraw`].
    ///
    /// # Errors
    /// See [`negotiator::Negotiation::withdraw`].
    pub fn withdraw(&self) -> Result<(), NegotiatorError> {
        self.negotiator.wait(self.negotiation.withdraw())
    }

    /// See [`negotiator::Negotiation::release`].
    ///
    /// # Errors
    /// See [`negotiator::Negotiation::release`].
    pub fn release<S: AsRef<str>>(&self, nodes: impl IntoIterator<Item = S>) -> Result<(), NegotiatorError> {
        self.negotiator.wait(self.negotiation.release(nodes))
    }

    /// See [`negotiator::Negotiation::release_last`].
    ///
    /// # Errors
    /// See [`negotiator::Negotiation::release`].
    pub fn release_last(&self) -> Result<(), NegotiatorError> {
        self.negotiator.wait(self.negotiation.release_last())
    }

    /// See [`negotiator::Negotiation::fail`].
    ///
    /// # Errors
    /// See [`negotiator::Negotiation::fail`].
    pub fn fail(&self) -> Result<(), NegotiatorError> {
        self.negotiator.wait(self.negotiation.fail())
    }

    /// See [`negotiator::Negotiation::settled`].
    ///
    /// # Errors
    /// See [`negotiator::Negotiation::settled`].
    pub fn settled(&self) -> Result<Settled, NegotiatorError> {
        self.negotiator.wait(self.negotiation.settled())
    }

    /// Like [`negotiator::Negotiation::settled`], with a time-out.
    ///
    /// # Errors
    /// `Ok(Err(TimedOut))` if it is not over in time. Otherwise see [`negotiator::Negotiation::settled`].
    pub fn settled_within(&self, span: Duration) -> Result<Result<Settled, TimedOut>, NegotiatorError> {
        let waited = self.negotiator.wait(async { tokio::time::timeout(span, self.negotiation.settled()).await });
        match waited {
            Ok(settled) => settled.map(Ok),
            Err(_) => Ok(Err(TimedOut)),
        }
    }
}

impl Resizing {
    /// See [`negotiator::Resizing::within`].
    ///
    /// # Errors
    /// See [`negotiator::Resizing::within`].
    pub fn within(negotiator: &Negotiator, limits: Limits) -> Result<Resizing, NegotiatorError> {
        let resizing = negotiator.wait(negotiator::Resizing::within(&negotiator.0, limits))?;
        Ok(Resizing { resizing, negotiator: negotiator.clone() })
    }

    /// See [`negotiator::Resizing::breakpoint`].
    ///
    /// # Errors
    /// See [`negotiator::Resizing::breakpoint`].
    pub fn breakpoint(&mut self) -> Result<Option<Change>, NegotiatorError> {
        let Resizing { resizing, negotiator } = self;
        negotiator.wait(resizing.breakpoint())
    }

    /// See [`negotiator::Resizing::next_change`].
    ///
    /// # Errors
    /// See [`negotiator::Resizing::breakpoint`].
    pub fn next_change(&mut self) -> Result<Change, NegotiatorError> {
        let Resizing { resizing, negotiator } = self;
        negotiator.wait(resizing.next_change())
    }

    /// See [`Leave::done`].
    ///
    /// # Errors
    /// See [`Leave::done`].
    pub fn left(&self, leave: Leave) -> Result<(), NegotiatorError> {
        self.negotiator.wait(leave.done())
    }

    /// See [`Leave::done_with`].
    ///
    /// # Errors
    /// See [`Leave::done_with`].
    pub fn left_with<S: AsRef<str>>(
        &self,
        leave: Leave,
        nodes: impl IntoIterator<Item = S>,
    ) -> Result<(), NegotiatorError> {
        self.negotiator.wait(leave.done_with(nodes))
    }

    /// Returns the negotiator, to request something, or to write a hostfile.
    pub fn negotiator(&self) -> &Negotiator {
        &self.negotiator
    }
}
