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

/// Speaks for an application about its size. Clones are the same negotiator; see [the module](super) for what may be done
/// from where.
#[derive(Clone, Debug)]
pub struct Negotiator {
    commands: mpsc::Sender<Command>,
    shared: Arc<Shared>,
}

/// One negotiation: a handle that may be kept, cloned, and dropped without any effect.
#[derive(Clone, Debug)]
pub struct Negotiation {
    id: NegotiationId,
    negotiator: Negotiator,
}

impl Negotiator {
    /// Speaks for the job that this process belongs to, as the environment says. Waits for half a minute for the
    /// credentials that the agent places beside the start of the job, and as long for the server.
    ///
    /// Another process of the job that did this before is told [`Event::Replaced`].
    ///
    /// # Errors
    /// See [`ConnectError`]: each says what to do.
    pub async fn connect() -> Result<Negotiator, ConnectError> {
        Negotiator::connect_with(JobEnvironment::read()?).await
    }

    /// As [`Negotiator::connect`], with what the environment does not say, or says otherwise.
    ///
    /// # Errors
    /// As [`Negotiator::connect`].
    pub async fn connect_with(environment: JobEnvironment) -> Result<Negotiator, ConnectError> {
        let (commands, shared) = owner::start(environment).await?;
        Ok(Negotiator { commands, shared })
    }

    /// The job.
    pub fn job(&self) -> JobId {
        self.shared.job
    }

    /// Which execution of the job this is.
    pub fn run(&self) -> Run {
        self.shared.run
    }

    /// The clock by which offers run out.
    pub fn now(&self) -> Time {
        self.shared.clock.now()
    }

    /// Whether there is a connection to the server just now.
    pub fn is_connected(&self) -> bool {
        self.shared.snapshot.borrow().is_connected
    }

    /// What the application holds, as far as we were told. Nodes that come are there from the agreement on, and marked as
    /// [coming](HeldNode::is_coming) until they are ready.
    pub fn holding(&self) -> Holding {
        self.shared.snapshot.borrow().holding.clone()
    }

    /// The nodes that the application can use: those that it holds, are [ready](HeldNode::is_coming), and that it was not asked
    /// to leave. The first is where it began, and stays.
    pub fn nodes(&self) -> Vec<HeldNode> {
        hostfile::staying(&self.shared.snapshot.borrow().holding).cloned().collect()
    }

    /// The number of a cluster, as the items of a [`Want::template`] have it; none if the server has told of no such
    /// cluster. It tells of all that there are with each new connection.
    pub fn cluster(&self, name: &str) -> Option<ClusterId> {
        want::cluster(&self.shared.snapshot.borrow().clusters, name)
    }

    /// Writes [`Negotiator::nodes`] to a file, whole or not at all.
    ///
    /// # Errors
    /// [`NegotiatorError::Hostfile`].
    pub fn write_hostfile(&self, path: impl AsRef<Path>, style: HostfileStyle) -> Result<(), NegotiatorError> {
        let path = path.as_ref();
        let written = hostfile::write(&self.shared.snapshot.borrow().holding, path, style);
        written.map_err(|source| NegotiatorError::Hostfile { path: path.to_owned(), source })
    }

    /// Says within which limits the server may offer and ask back, in the place of those of the submission. When this
    /// returns the server knows. Said again after each new connection.
    ///
    /// # Errors
    /// [`NegotiatorError::Refused`]: limits that contradict themselves; or it is over.
    pub async fn declare(&self, limits: Limits) -> Result<(), NegotiatorError> {
        self.ask(|reply| Command::Declare { declared: limits.into(), reply }).await
    }

    /// Lets a policy answer what the server proposes, at once and on the negotiator's thread; what waits for an answer now,
    /// too. `None`: the application answers itself.
    ///
    /// # Errors
    /// It is over.
    pub async fn answer_with(&self, policy: impl Into<Option<Policy>>) -> Result<(), NegotiatorError> {
        let policy = policy.into();
        self.ask(|reply| Command::Answer { policy, reply }).await
    }

    /// Opens a negotiation. When this returns the server may not have heard of it yet; it will.
    ///
    /// # Errors
    /// What cannot be negotiated, and a negotiation for the same direction that is open.
    pub async fn request(&self, want: Want) -> Result<Negotiation, NegotiatorError> {
        let id = self.ask(|reply| Command::Request { want, reply }).await?;
        Ok(self.negotiation(id))
    }

    /// Of an application with a profile: names the nodes that it leaves when its next, smaller stage begins, in the place of
    /// those that it has named before. Until then they are its own; what still runs there then is ended. Those that it
    /// does not name are its last ones. When this returns the server knows.
    ///
    /// # Errors
    /// [`NegotiatorError::Refused`]: it has no profile, its next stage is not smaller by so many, they are not its own, or
    /// its first node is among them; or it is over.
    pub async fn free<S: AsRef<str>>(&self, nodes: impl IntoIterator<Item = S>) -> Result<(), NegotiatorError> {
        let nodes = nodes.into_iter().map(|node| node.as_ref().to_owned()).collect();
        self.ask(|reply| Command::Free { nodes, reply }).await
    }

    /// A handle to a negotiation that an [event](Event) was about.
    pub fn negotiation(&self, id: NegotiationId) -> Negotiation {
        Negotiation { id, negotiator: self.clone() }
    }

    /// The next event; `None` after the last. May be cancelled, and waited for from several places: each event goes to
    /// one of them.
    pub async fn next_event(&self) -> Option<Event> {
        self.shared.events.next().await
    }

    /// An event that is there already.
    pub fn poll_event(&self) -> Option<Event> {
        self.shared.events.try_take()
    }

    /// Calls back with every event, on a thread of its own, until the last; what the callback takes its time with waits,
    /// and nothing else does. It holds a handle, which ends with the last event.
    ///
    /// # Errors
    /// The system gives no thread.
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
    /// Its number: `a1` was opened by the application, `r1` by the server.
    pub fn id(&self) -> NegotiationId {
        self.id
    }

    /// Where it stands, as far as the application knows; `None` once it is over and forgotten.
    pub fn phase(&self) -> Option<Phase> {
        self.negotiator.shared.snapshot.borrow().phases.get(&self.id).copied()
    }

    /// Agrees to what the server has proposed last. What comes of it is an event.
    ///
    /// # Errors
    /// There is nothing to agree to, or it has run out.
    pub async fn accept(&self) -> Result<(), NegotiatorError> {
        self.negotiator.act(self.id, Act::Accept).await
    }

    /// Proposes something else about the same: the items of the server's last proposal, in the same order, with other
    /// quantities and terms. No end may take back what it has conceded; `docs/negotiation.md` has the rules.
    ///
    /// # Errors
    /// There is nothing to counter, it has run out, or the rules forbid it.
    pub async fn counter(&self, items: Vec<Item>) -> Result<(), NegotiatorError> {
        self.negotiator.act(self.id, Act::Counter(items)).await
    }

    /// Says no to what the server has proposed last.
    ///
    /// # Errors
    /// There is nothing to say no to.
    pub async fn reject(&self, reason: Reason) -> Result<(), NegotiatorError> {
        self.negotiator.act(self.id, Act::Reject(reason)).await
    }

    /// Takes the own proposal back, or leaves the talk. If the server has agreed already, it comes about nevertheless.
    ///
    /// # Errors
    /// It is agreed, or over.
    pub async fn withdraw(&self) -> Result<(), NegotiatorError> {
        self.negotiator.act(self.id, Act::Withdraw(Reason::Changed)).await
    }

    /// At a breakpoint, of a shrink that was agreed: the application has moved away from these nodes, by name, and they
    /// can be taken. What still runs there is ended. [`Event::Ready`] follows once it is gone.
    ///
    /// # Errors
    /// It is not agreed, or these are other nodes than were agreed.
    pub async fn release<S: AsRef<str>>(&self, nodes: impl IntoIterator<Item = S>) -> Result<(), NegotiatorError> {
        let names = nodes.into_iter().map(|name| name.as_ref().to_owned()).collect();
        self.negotiator.act(self.id, Act::Release(Some(names))).await
    }

    /// As [`Negotiation::release`], of the nodes that [`Agreed::leaving`](super::Agreed::leaving) has.
    ///
    /// # Errors
    /// As [`Negotiation::release`].
    pub async fn release_last(&self) -> Result<(), NegotiatorError> {
        self.negotiator.act(self.id, Act::Release(None)).await
    }

    /// What was agreed cannot be done: it fails, and what was done is rolled back.
    ///
    /// # Errors
    /// It is not agreed.
    pub async fn fail(&self) -> Result<(), NegotiatorError> {
        self.negotiator.act(self.id, Act::Fail(Reason::Lost)).await
    }

    /// Waits until it is over, and says how. Proposals of the server meanwhile are events, which somebody must answer,
    /// or a [policy](Negotiator::answer_with). May be cancelled.
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
            // So long ago that it was forgotten.
            (None, None) => Ok(Settled::Ended { ending: Ending::Failed, reason: Reason::Unknown }),
        }
    }
}
