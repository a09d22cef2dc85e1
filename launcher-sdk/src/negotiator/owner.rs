//! The negotiator's thread, which owns the dialogues, the connection and the timers.

use rms_api::Refused;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use negotiation::{Ending, NegotiationId, Phase, Reason};
use rms_api::negotiate::{Attached, Declared, Holding, Keeps, NegotiatorAnswer, NegotiatorNotice};
use rms_model::{ClusterId, JobId, Outcome as JobOutcome, Run};
use rms_wire::{Backoff, Endpoint, LinkError, NegotiatorTold};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot, watch};

use super::channel::{ATTACH_WITHIN, AttachError, Channel};
use super::clock::Clock;
use super::environment::JobEnvironment;
use super::error::{ConnectError, NegotiatorError};
use super::event::{Event, Ready, Warning};
use super::hostfile;
use super::negotiations::{Act, Negotiations, Outcome};
use super::policy::Policy;
use super::queue::Queue;
use super::want::Want;

/// State that the handles read without asking the owner.
#[derive(Debug)]
pub(super) struct Shared {
    pub job: JobId,
    pub run: Run,
    pub clock: Clock,
    pub events: Queue,
    pub snapshot: watch::Receiver<Snapshot>,
    /// The runtime of the owner's thread; blocking callers wait on it.
    pub runtime: tokio::runtime::Handle,
}

/// The current state of the negotiator.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub holding: Holding,
    pub clusters: BTreeMap<ClusterId, String>,
    pub is_connected: bool,
    /// The phases of the latest negotiations, as many as are kept.
    pub phases: BTreeMap<NegotiationId, Phase>,
    pub settled: BTreeMap<NegotiationId, Settled>,
    /// The last event, once it has occurred.
    pub last: Option<Event>,
}

/// How a negotiation has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// With a result.
    Ready(Box<Ready>),
    /// Without a result; everything is as before.
    Ended {
        /// How.
        ending: Ending,
        /// Why.
        reason: Reason,
        /// What exactly was not possible, for people, as in [`Event::Ended`].
        why: Option<String>,
    },
}

/// A command from a handle to the owner.
#[derive(Debug)]
pub(super) enum Command {
    Declare { declared: Declared, reply: Reply<()> },
    Answer { policy: Option<Policy>, reply: Reply<()> },
    Request { want: Want, reply: Reply<NegotiationId> },
    Act { id: NegotiationId, act: Act, reply: Reply<()> },
    Free { nodes: Vec<String>, reply: Reply<()> },
}

/// Nodes to be left at the next stage; kept until the server has answered.
struct PendingFree {
    nodes: Vec<String>,
    reply: Reply<()>,
    seq: u64,
}

type Reply<T> = oneshot::Sender<Result<T, NegotiatorError>>;

/// The most commands that wait for the owner. Above that the caller waits, but never for long.
const MAX_COMMANDS: usize = 64;

/// Connects, and hands the connection over to a new thread.
pub(super) async fn start(environment: JobEnvironment) -> Result<(mpsc::Sender<Command>, Arc<Shared>), ConnectError> {
    let system = |error: &dyn std::error::Error| ConnectError::System(error.to_string());
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| system(&error))?;
    let (started, start) = oneshot::channel();
    let handle = runtime.handle().clone();
    let run = move || {
        runtime.block_on(async move {
            match Owner::connect(environment, handle).await {
                Ok((owner, commands, shared)) => {
                    // The caller may no longer wait; the owner then finds that no handle is left.
                    let _ = started.send(Ok((commands, shared)));
                    owner.run().await;
                }
                Err(error) => drop(started.send(Err(error))),
            }
        });
    };
    std::thread::Builder::new().name("rms-negotiator".to_owned()).spawn(run).map_err(|error| system(&error))?;
    start.await.map_err(|_| ConnectError::System("the negotiator's thread has ended".to_owned()))?
}

struct Owner {
    environment: JobEnvironment,
    endpoint: Endpoint,
    shared: Arc<Shared>,
    snapshot: watch::Sender<Snapshot>,
    commands: mpsc::Receiver<Command>,
    negotiations: Negotiations,
    connection: Connection,
    backoff: Backoff,
    /// The limits that the application has declared, if any.
    declared: Option<Declared>,
    /// The callers that wait for the answer to the declaration, and its sequence number.
    declare_replies: Vec<Reply<()>>,
    declare_seq: u64,
    pending_frees: Vec<PendingFree>,
}

enum Connection {
    Up(Box<Channel>),
    /// An attempt to connect is in progress, or the delay before it.
    Reconnecting(Attempt),
    /// The connection is closed for good.
    Closed(Box<Event>),
}

type Attempt = Pin<Box<dyn Future<Output = Result<(Channel, Box<Attached>), AttachError>> + Send>>;

/// The event that the owner's loop waited for.
enum Next {
    Message(Result<NegotiatorTold, LinkError>),
    Attached(Result<(Channel, Box<Attached>), AttachError>),
    Command(Option<Command>),
    Timer,
}

impl Owner {
    async fn connect(
        mut environment: JobEnvironment,
        runtime: tokio::runtime::Handle,
    ) -> Result<(Owner, mpsc::Sender<Command>, Arc<Shared>), ConnectError> {
        let credentials = environment.await_credentials().await?;
        let endpoint = Endpoint::dial_to(&environment.server, &credentials)
            .map_err(|error| ConnectError::System(error.to_string()))?;
        let (channel, attached) = first_attach(&environment, &endpoint).await?;
        if environment.keeps == Keeps::All {
            // Nodes that come later are not among them.
            let staying = hostfile::staying(&attached.holding);
            environment.keeps = Keeps::Nodes(staying.map(|node| node.name.clone()).collect());
        }
        let negotiations = Negotiations::new(&attached);
        let snapshot = Snapshot {
            holding: attached.holding.clone(),
            clusters: attached.clusters.clone(),
            is_connected: true,
            phases: BTreeMap::new(),
            settled: BTreeMap::new(),
            last: None,
        };
        let (snapshot, snapshots) = watch::channel(snapshot);
        let shared = Arc::new(Shared {
            job: environment.job,
            run: environment.run,
            clock: Clock::start(),
            events: Queue::default(),
            snapshot: snapshots,
            runtime,
        });
        let (sender, commands) = mpsc::channel(MAX_COMMANDS);
        let mut owner = Owner {
            environment,
            endpoint,
            shared: Arc::clone(&shared),
            snapshot,
            commands,
            negotiations,
            connection: Connection::Up(Box::new(channel)),
            backoff: Backoff::default(),
            declared: None,
            declare_replies: Vec::new(),
            declare_seq: 0,
            pending_frees: Vec::new(),
        };
        // Done before the first handle exists, so that its first read finds what an earlier process has left.
        let now = shared.clock.now();
        let mut outcome = owner.negotiations.recall(now, &attached.open);
        outcome.merge(owner.negotiations.tick(now));
        owner.deliver(outcome).await;
        Ok((owner, sender, shared))
    }

    /// Runs until no handle is left.
    async fn run(mut self) {
        loop {
            match self.next().await {
                Next::Message(Ok(told)) => self.on_message(told).await,
                Next::Message(Err(error)) => self.reconnect(&error),
                Next::Attached(attached) => self.on_attached(attached).await,
                Next::Command(Some(command)) => self.on_command(command).await,
                Next::Command(None) => break,
                Next::Timer => {
                    let outcome = self.negotiations.tick(self.shared.clock.now());
                    self.deliver(outcome).await;
                }
            }
        }
        self.endpoint.close("done");
        // Usually the close is sent at once; otherwise the server notices the silence.
        let _ = tokio::time::timeout(GOODBYE_WITHIN, self.endpoint.wait_idle()).await;
    }

    async fn next(&mut self) -> Next {
        let clock = self.shared.clock;
        let deadline = self.negotiations.next_deadline().map(|due| clock.instant(due));
        let due = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        match &mut self.connection {
            Connection::Up(channel) => tokio::select! {
                told = channel.next() => Next::Message(told),
                command = self.commands.recv() => Next::Command(command),
                () = due => Next::Timer,
            },
            Connection::Reconnecting(attempt) => tokio::select! {
                attached = attempt => Next::Attached(attached),
                command = self.commands.recv() => Next::Command(command),
                () = due => Next::Timer,
            },
            Connection::Closed(_) => Next::Command(self.commands.recv().await),
        }
    }

    async fn on_message(&mut self, told: NegotiatorTold) {
        let now = self.shared.clock.now();
        let notice = match told {
            NegotiatorTold::Answer { seq, answer } => return self.on_answer(seq, answer),
            NegotiatorTold::Notice(notice) => notice,
        };
        match notice {
            NegotiatorNotice::Said(message) => {
                let outcome = self.negotiations.receive(now, &message);
                self.deliver(outcome).await;
            }
            NegotiatorNotice::Holding(holding) => {
                let outcome = self.negotiations.set_holding(now, *holding);
                self.deliver(outcome).await;
            }
            NegotiatorNotice::Refused { negotiation, number: _, reason } => {
                let outcome = self.negotiations.refused(negotiation, reason);
                self.deliver(outcome).await;
            }
            NegotiatorNotice::Ended { outcome } => self.close(Event::JobEnding(outcome)),
            NegotiatorNotice::Replaced => self.close(Event::Replaced),
            NegotiatorNotice::Counted { n_opened } => self.negotiations.skip_to(n_opened),
            NegotiatorNotice::NodesLost { nodes } => {
                let lost = self.negotiations.known_nodes(nodes);
                self.shared.events.put(Event::NodesLost(lost));
            }
        }
    }

    /// Handles the answer to a declaration or to freed nodes; nothing else that is sent after attaching is answered.
    fn on_answer(&mut self, seq: u64, answer: Result<NegotiatorAnswer, Refused>) {
        let freed = self.pending_frees.iter().position(|pending_free| pending_free.seq == seq);
        if seq != self.declare_seq && freed.is_none() {
            return;
        }
        let answer = answer.map(drop);
        if let Some(idx) = freed {
            let _ = self.pending_frees.remove(idx).reply.send(answer.map_err(NegotiatorError::Refused));
            return;
        }
        if answer.is_err() {
            // A refused declaration is not sent again.
            self.declared = None;
        }
        for reply in self.declare_replies.drain(..) {
            let _ = reply.send(answer.clone().map_err(NegotiatorError::Refused));
        }
    }

    async fn on_command(&mut self, command: Command) {
        let now = self.shared.clock.now();
        if let Connection::Closed(last) = &self.connection {
            let error = ended(self.shared.job, last);
            // The caller may no longer wait.
            return match command {
                Command::Declare { reply, .. } | Command::Answer { reply, .. } => drop(reply.send(Err(error))),
                Command::Act { reply, .. } | Command::Free { reply, .. } => drop(reply.send(Err(error))),
                Command::Request { reply, .. } => drop(reply.send(Err(error))),
            };
        }
        match command {
            Command::Declare { declared, reply } => {
                self.declared = Some(declared);
                self.declare_replies.push(reply);
                self.declare().await;
            }
            Command::Answer { policy, reply } => {
                let outcome = self.negotiations.answer_with(now, policy);
                self.deliver(outcome).await;
                let _ = reply.send(Ok(()));
            }
            Command::Free { nodes, reply } => {
                self.pending_frees.push(PendingFree { nodes, reply, seq: 0 });
                self.free(self.pending_frees.len() - 1).await;
            }
            Command::Request { want, reply } => match self.negotiations.request(now, want) {
                Ok((id, outcome)) => {
                    self.publish_phases();
                    let _ = reply.send(Ok(id));
                    self.deliver(outcome).await;
                }
                Err(error) => drop(reply.send(Err(error))),
            },
            Command::Act { id, act, reply } => match self.negotiations.act(now, id, act) {
                Ok(outcome) => {
                    self.publish_phases();
                    let _ = reply.send(Ok(()));
                    self.deliver(outcome).await;
                }
                Err(error) => drop(reply.send(Err(error))),
            },
        }
    }

    /// Sends the declaration. Without a connection, it is sent once there is one.
    async fn declare(&mut self) {
        let (Connection::Up(channel), Some(declared)) = (&mut self.connection, &self.declared) else { return };
        match channel.declare(declared).await {
            Ok(seq) => self.declare_seq = seq,
            Err(error) => self.reconnect(&error),
        }
    }

    /// Sends the freed nodes from this index on. Without a connection, they are sent once there is one.
    async fn free(&mut self, from: usize) {
        for idx in from..self.pending_frees.len() {
            let Connection::Up(channel) = &mut self.connection else { return };
            match channel.free(&self.pending_frees[idx].nodes).await {
                Ok(seq) => self.pending_frees[idx].seq = seq,
                Err(error) => return self.reconnect(&error),
            }
        }
    }

    /// Sends the messages if there is a connection; dialogues repeat what was not received. Delivers the events to the
    /// application.
    async fn deliver(&mut self, outcome: Outcome) {
        let Outcome { messages, events } = outcome;
        for message in messages {
            let Connection::Up(channel) = &mut self.connection else { break };
            if let Err(error) = channel.say(&message).await {
                self.reconnect(&error);
            }
        }
        self.publish_phases();
        for event in events {
            self.publish_result(&event);
            self.shared.events.put(event);
        }
    }

    fn publish_phases(&self) {
        let dialogues = self.negotiations.dialogues();
        let phases: BTreeMap<NegotiationId, Phase> =
            dialogues.iter().map(|dialogue| (dialogue.id(), dialogue.phase())).collect();
        let holding = self.negotiations.holding();
        let is_news = |snapshot: &Snapshot| snapshot.phases != phases || snapshot.holding != holding;
        if is_news(&self.snapshot.borrow()) {
            self.snapshot.send_modify(|snapshot| {
                snapshot.settled.retain(|id, _| phases.contains_key(id));
                snapshot.phases.clone_from(&phases);
                snapshot.holding = holding;
            });
        }
    }

    fn publish_result(&self, event: &Event) {
        let settled = match event {
            Event::Ready(ready) => Some((ready.negotiation, Settled::Ready(Box::new(ready.clone())))),
            Event::Ended { negotiation, template: _, ending, reason, why } => {
                Some((*negotiation, Settled::Ended { ending: *ending, reason: *reason, why: why.clone() }))
            }
            Event::Offered(_) | Event::Countered(_) | Event::Accepted(_) => None,
            Event::Holding(_) | Event::NodesLost(_) | Event::StageEnds(_) => None,
            Event::Warned(_) | Event::JobEnding(_) | Event::Replaced | Event::Lost(_) => None,
        };
        if let Some((id, settled)) = settled {
            self.snapshot.send_modify(|snapshot| drop(snapshot.settled.insert(id, settled)));
        }
    }

    /// Handles a lost connection: schedules the next attempt after a delay.
    fn reconnect(&mut self, error: &LinkError) {
        let was_up = matches!(self.connection, Connection::Up(_));
        if was_up {
            self.snapshot.send_modify(|snapshot| snapshot.is_connected = false);
            self.shared.events.put(Event::Warned(Warning::ServerAway { reason: error.to_string() }));
        }
        let delay = self.backoff.delay();
        let (environment, endpoint) = (self.environment.clone(), self.endpoint.clone());
        self.connection = Connection::Reconnecting(Box::pin(async move {
            endpoint.pause(delay).await;
            Channel::attach(environment, endpoint, ATTACH_WITHIN).await
        }));
    }

    async fn on_attached(&mut self, attached: Result<(Channel, Box<Attached>), AttachError>) {
        let (channel, attached) = match attached {
            Ok(attached) => attached,
            Err(AttachError::Link(error)) => return self.reconnect(&error),
            Err(AttachError::Refused(refused)) if may_retry(&refused) => {
                return self.reconnect(&LinkError::Denied { reason: refused.message });
            }
            Err(AttachError::Refused(refused)) => return self.close(Event::Lost(refused)),
        };
        self.backoff.reset();
        self.connection = Connection::Up(Box::new(channel));
        self.negotiations.set_clusters(attached.clusters);
        self.snapshot.send_modify(|snapshot| {
            snapshot.is_connected = true;
            snapshot.clusters.clone_from(self.negotiations.clusters());
        });
        self.shared.events.put(Event::Warned(Warning::ServerBack));
        let now = self.shared.clock.now();
        let is_known = self.declared.as_ref().is_none_or(|declared| *declared == attached.declared);
        if !is_known || !self.declare_replies.is_empty() {
            self.declare().await;
        }
        self.free(0).await;
        let mut outcome = self.negotiations.set_holding(now, attached.holding);
        outcome.merge(self.negotiations.recall(now, &attached.open));
        outcome.merge(self.negotiations.resume(now));
        self.deliver(outcome).await;
    }

    /// Closes the negotiator: waiting and later callers learn why.
    fn close(&mut self, last: Event) {
        for reply in self.declare_replies.drain(..) {
            let _ = reply.send(Err(ended(self.shared.job, &last)));
        }
        for pending_free in self.pending_frees.drain(..) {
            let _ = pending_free.reply.send(Err(ended(self.shared.job, &last)));
        }
        self.snapshot.send_modify(|snapshot| {
            snapshot.is_connected = false;
            snapshot.last = Some(last.clone());
        });
        self.shared.events.put(last.clone());
        self.connection = Connection::Closed(Box::new(last));
    }
}

/// Tries to attach for as long as the environment allows; a refusal that is not temporary ends the attempts.
async fn first_attach(
    environment: &JobEnvironment,
    endpoint: &Endpoint,
) -> Result<(Channel, Box<Attached>), ConnectError> {
    let begun = Instant::now();
    let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(2));
    loop {
        let left = environment.patience.saturating_sub(begun.elapsed()).max(FIRST_ATTEMPT);
        let error = match Channel::attach(environment.clone(), endpoint.clone(), left).await {
            Ok(attached) => return Ok(attached),
            Err(AttachError::Refused(refused)) if may_retry(&refused) => LinkError::Denied { reason: refused.message },
            Err(AttachError::Refused(refused)) => return Err(ConnectError::Refused(refused)),
            Err(AttachError::Link(LinkError::Denied { reason })) => {
                return Err(ConnectError::Denied { server: environment.server.clone(), reason });
            }
            Err(AttachError::Link(error)) => error,
        };
        let delay = backoff.delay();
        if begun.elapsed() + delay >= environment.patience {
            let (server, waited) = (environment.server.clone(), begun.elapsed());
            return Err(ConnectError::Unreachable { server, waited, source: error });
        }
        endpoint.pause(delay).await;
    }
}

/// Returns the error of every call after the last event.
pub(super) fn ended(job: JobId, last: &Event) -> NegotiatorError {
    match last {
        Event::JobEnding(outcome) => NegotiatorError::JobEnded { job, outcome: outcome.clone() },
        Event::Replaced => NegotiatorError::Replaced,
        Event::Lost(refused) => NegotiatorError::Lost(refused.clone()),
        Event::Offered(_)
        | Event::Countered(_)
        | Event::Accepted(_)
        | Event::Ready(_)
        | Event::Ended { .. }
        | Event::Holding(_)
        | Event::NodesLost(_)
        | Event::StageEnds(_)
        | Event::Warned(_) => NegotiatorError::JobEnded { job, outcome: JobOutcome::Completed },
    }
}

/// Returns whether the refusal is temporary: the server is starting, stopping, or asked too often.
fn may_retry(refused: &Refused) -> bool {
    matches!(refused.kind.as_str(), "stopping" | "too_slow" | "journal_failing" | "rate_limit" | "busy")
}

/// The least time for an attempt: even if little time is left, the first attempt must be able to succeed.
const FIRST_ATTEMPT: Duration = Duration::from_millis(200);
const GOODBYE_WITHIN: Duration = Duration::from_millis(200);
