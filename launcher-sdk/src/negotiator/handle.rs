//! The handles of an application: to the negotiator, and to one negotiation.

use std::path::Path;
use std::sync::Arc;

use negotiation::{Ending, Item, NegotiationId, Phase, Reason};
use rms_api::negotiate::{HeldNode, Holding};
use rms_model::{ClusterId, JobId, Run, Time};
use tokio::sync::{mpsc, oneshot};

use super::environment::JobEnvironment;
use super::error::{ConnectError, NegotiatorError};
use super::event::Event;
use super::hostfile::{self, HostfileStyle};
use super::limits::Limits;
use super::negotiations::Act;
pub use super::owner::Settled;
use super::owner::{self, Command, Shared};
use super::policy::Policy;
use super::want::{self, Want};

/// Negotiates the size of an application. Clones are handles to the same negotiator; see [the module](super) for its
/// use with threads.
#[derive(Clone, Debug)]
pub struct Negotiator {
    commands: mpsc::Sender<Command>,
    shared: Arc<Shared>,
}

/// A handle to one negotiation. Cloning or dropping it has no effect on the negotiation.
#[derive(Clone, Debug)]
pub struct Negotiation {
    id: NegotiationId,
    negotiator: Negotiator,
}

#[cfg(test)]
impl Negotiator {
    /// A handle whose owner answers nothing; its events are what a test puts there.
    pub(super) fn of(shared: Arc<Shared>) -> Negotiator {
        Negotiator { commands: mpsc::channel(1).0, shared }
    }
}

impl Negotiator {
    /// Connects for the job that this process belongs to, according to its environment. Waits up to 30 s for the
    /// credentials that the agent places while the job starts, and as long for the server.
    ///
    /// If another process of the job was connected, that one gets [`Event::Replaced`].
    ///
    /// # Errors
    /// See [`ConnectError`]: each says what to do.
    pub async fn connect() -> Result<Negotiator, ConnectError> {
        Negotiator::connect_with(JobEnvironment::read()?).await
    }

    /// Like [`Negotiator::connect`], with an environment that the caller has built or changed.
    ///
    /// # Errors
    /// See [`Negotiator::connect`].
    pub async fn connect_with(environment: JobEnvironment) -> Result<Negotiator, ConnectError> {
        let (commands, shared) = owner::start(environment).await?;
        Ok(Negotiator { commands, shared })
    }

    /// Returns the id of the job.
    pub fn job(&self) -> JobId {
        self.shared.job
    }

    /// Returns which execution of the job this is.
    pub fn run(&self) -> Run {
        self.shared.run
    }

    /// Returns the current time, by the clock by which offers expire.
    pub fn now(&self) -> Time {
        self.shared.clock.now()
    }

    /// Returns whether the negotiator is connected to the server now.
    pub fn is_connected(&self) -> bool {
        self.shared.snapshot.borrow().is_connected
    }

    /// Returns what the application holds, as last received from the server. Nodes that come are included once they are
    /// agreed, and marked as [coming](HeldNode::is_coming) until they are ready.
    pub fn holding(&self) -> Holding {
        self.shared.snapshot.borrow().holding.clone()
    }

    /// Returns the nodes that the application can use: those that it holds, that are not [coming](HeldNode::is_coming)
    /// any more, and that it was not asked to leave. The first node, where it began, always stays.
    pub fn nodes(&self) -> Vec<HeldNode> {
        hostfile::staying(&self.shared.snapshot.borrow().holding).cloned().collect()
    }

    /// Finds the number of a cluster, as the items of a [`Want::template`] need it; `None` if there is no such cluster. The
    /// server sends the list of clusters with each new connection.
    pub fn cluster(&self, name: &str) -> Option<ClusterId> {
        want::cluster(&self.shared.snapshot.borrow().clusters, name)
    }

    /// Returns the name of a cluster, as the items of an offer number it; `None` if there is no such cluster.
    pub fn cluster_name(&self, cluster: ClusterId) -> Option<String> {
        self.shared.snapshot.borrow().clusters.get(&cluster).cloned()
    }

    /// Writes [`Negotiator::nodes`] to a file, atomically.
    ///
    /// # Errors
    /// [`NegotiatorError::Hostfile`].
    pub fn write_hostfile(&self, path: impl AsRef<Path>, style: HostfileStyle) -> Result<(), NegotiatorError> {
        let path = path.as_ref();
        let written = hostfile::write(&self.shared.snapshot.borrow().holding, path, style);
        written.map_err(|source| NegotiatorError::Hostfile { path: path.to_owned(), source })
    }

    /// Declares the limits within which the server may offer nodes and ask for nodes back; they replace those of the
    /// submission. When this returns, the server has them. They are declared again after each reconnection.
    ///
    /// # Errors
    /// [`NegotiatorError::Refused`]: the limits contradict themselves. Or the application has ended.
    pub async fn declare(&self, limits: Limits) -> Result<(), NegotiatorError> {
        self.ask(|reply| Command::Declare { declared: limits.into(), reply }).await
    }

    /// Lets a policy answer the server's proposals, at once and on the negotiator's thread, including those that wait
    /// for an answer now. With `None`, the application answers itself.
    ///
    /// # Errors
    /// The application has ended, or it has another negotiator.
    pub async fn answer_with(&self, policy: impl Into<Option<Policy>>) -> Result<(), NegotiatorError> {
        let policy = policy.into();
        self.ask(|reply| Command::Answer { policy, reply }).await
    }

    /// Opens a negotiation. The request may not have reached the server when this returns; the negotiator repeats it
    /// until it has.
    ///
    /// # Errors
    /// The request cannot be negotiated, or a negotiation for the same direction is open already.
    pub async fn request(&self, want: Want) -> Result<Negotiation, NegotiatorError> {
        let id = self.ask(|reply| Command::Request { want, reply }).await?;
        Ok(self.negotiation(id))
    }

    /// Names the nodes that an application with a profile leaves when its next, smaller stage begins; they replace
    /// those named earlier. Until then it keeps them; processes that still run there at that time are ended. If it
    /// names fewer than must go, its last nodes go, too. When this returns, the server has the names.
    ///
    /// # Errors
    /// [`NegotiatorError::Refused`]: the application has no profile, its next stage is not smaller by so many nodes, some
    /// nodes are not its own, or its first node is among them. Or the application has ended.
    pub async fn free<S: AsRef<str>>(&self, nodes: impl IntoIterator<Item = S>) -> Result<(), NegotiatorError> {
        let nodes = nodes.into_iter().map(|node| node.as_ref().to_owned()).collect();
        self.ask(|reply| Command::Free { nodes, reply }).await
    }

    /// Returns a handle to a negotiation that an [event](Event) named.
    pub fn negotiation(&self, id: NegotiationId) -> Negotiation {
        Negotiation { id, negotiator: self.clone() }
    }

    /// Waits for the next event; `None` after the last. Cancel safe. Several callers may wait at once: each event goes to one
    /// of them.
    pub async fn next_event(&self) -> Option<Event> {
        self.shared.events.next().await
    }

    /// Returns an event if one is pending; does not wait.
    pub fn poll_event(&self) -> Option<Event> {
        self.shared.events.try_take()
    }

    /// Calls `callback` with every event until the last, on a thread of its own; a slow callback delays only later events.
    /// The thread holds a handle until the last event. If `callback` panics, the thread ends, and further events are for
    /// [`Negotiator::next_event`].
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn call_back(&self, mut callback: impl FnMut(Event) + Send + 'static) -> std::io::Result<()> {
        let negotiator = self.clone();
        let run = move || {
            let runtime = negotiator.shared.runtime.clone();
            while let Some(event) = runtime.block_on(negotiator.next_event()) {
                callback(event);
            }
        };
        std::thread::Builder::new().name("rms-events".to_owned()).spawn(run).map(drop)
    }

    pub(crate) fn runtime(&self) -> &tokio::runtime::Handle {
        &self.shared.runtime
    }

    async fn act(&self, id: NegotiationId, act: Act) -> Result<(), NegotiatorError> {
        self.ask(|reply| Command::Act { id, act, reply }).await
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, NegotiatorError>>) -> Command,
    ) -> Result<T, NegotiatorError> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.map_err(|_| NegotiatorError::Stopped)?;
        answer.await.map_err(|_| NegotiatorError::Stopped)?
    }
}

impl Negotiation {
    /// Returns its id: `a1` was opened by the application, `r1` by the server.
    pub fn id(&self) -> NegotiationId {
        self.id
    }

    /// Returns the phase of the negotiation, as far as the application knows; `None` once it is over and forgotten.
    pub fn phase(&self) -> Option<Phase> {
        self.negotiator.shared.snapshot.borrow().phases.get(&self.id).copied()
    }

    /// Accepts the server's last proposal. The result comes as an event.
    ///
    /// # Errors
    /// There is no proposal to accept, or it has expired.
    pub async fn accept(&self) -> Result<(), NegotiatorError> {
        self.negotiator.act(self.id, Act::Accept).await
    }

    /// Makes a counter-proposal: the items of the server's last proposal, in the same order, with other quantities and
    /// terms. Neither end may take back a concession; `docs/negotiation.md` has the rules.
    ///
    /// # Errors
    /// There is no proposal to counter, it has expired, or the rules forbid the counter-proposal.
    pub async fn counter(&self, items: Vec<Item>) -> Result<(), NegotiatorError> {
        self.negotiator.act(self.id, Act::Counter(items)).await
    }

    /// Rejects the server's last proposal.
    ///
    /// # Errors
    /// There is no proposal to reject.
    pub async fn reject(&self, reason: Reason) -> Result<(), NegotiatorError> {
        self.negotiator.act(self.id, Act::Reject(reason)).await
    }

    /// Withdraws the application's own proposal, or leaves the negotiation. If the server has accepted meanwhile, the
    /// change takes place all the same.
    ///
    /// # Errors
    /// The change is agreed already, or the negotiation is over.
    pub async fn withdraw(&self) -> Result<(), NegotiatorError> {
        self.negotiator.act(self.id, Act::Withdraw(Reason::Changed)).await
    }

    /// Releases nodes, by name, at a breakpoint after an agreed shrink: the application has moved away from them, and they can
    /// be taken. Processes that still run there are ended. [`Event::Ready`] follows once they are gone. Nodes that it was
    /// told to leave and has lost meanwhile count as left, named or not; if all of them are gone, nothing is done.
    ///
    /// # Errors
    /// No shrink is agreed, these are not the agreed nodes, or the job's first node is among them.
    pub async fn release<S: AsRef<str>>(&self, nodes: impl IntoIterator<Item = S>) -> Result<(), NegotiatorError> {
        let names = nodes.into_iter().map(|name| name.as_ref().to_owned()).collect();
        self.negotiator.act(self.id, Act::Release(Some(names))).await
    }

    /// Like [`Negotiation::release`], for the nodes in [`Agreed::leaving`](super::Agreed::leaving).
    ///
    /// # Errors
    /// See [`Negotiation::release`].
    pub async fn release_last(&self) -> Result<(), NegotiatorError> {
        self.negotiator.act(self.id, Act::Release(None)).await
    }

    /// Reports that an agreed change cannot be carried out: it fails and is rolled back.
    ///
    /// # Errors
    /// No change is agreed.
    pub async fn fail(&self) -> Result<(), NegotiatorError> {
        self.negotiator.act(self.id, Act::Fail(Reason::Lost)).await
    }

    /// Waits until the negotiation is over, and returns the result. Proposals of the server meanwhile are events, which
    /// the application or a [policy](Negotiator::answer_with) must answer. Cancel safe.
    ///
    /// # Errors
    /// The application has ended, or it has another negotiator.
    pub async fn settled(&self) -> Result<Settled, NegotiatorError> {
        let mut snapshot = self.negotiator.shared.snapshot.clone();
        let found = snapshot
            .wait_for(|snapshot| {
                let is_known = snapshot.phases.contains_key(&self.id);
                snapshot.last.is_some() || snapshot.settled.contains_key(&self.id) || !is_known
            })
            .await
            .map_err(|_| NegotiatorError::Stopped)?;
        match (found.settled.get(&self.id), &found.last) {
            (Some(settled), _) => Ok(settled.clone()),
            (None, Some(last)) => Err(owner::ended(self.negotiator.job(), last)),
            // It ended so long ago that its result is no longer kept.
            (None, None) => Ok(Settled::Ended { ending: Ending::Failed, reason: Reason::Unknown, why: None }),
        }
    }
}
