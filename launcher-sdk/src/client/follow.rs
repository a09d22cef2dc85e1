//! Follows a job's output and state, and sends its input; reconnects when the link breaks.

mod input;

use rms_api::Refused;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rms_api::answer::JobChange;
use rms_model::{JobId, Run};
use rms_wire::{Backoff, ClientRequest, Followed, Input, LinkError, Receiver};
use tokio::sync::{mpsc, watch};

pub use rms_wire::{Missing, Offset, Stream};

use self::input::{Inputs, Protocol};
use super::submissions::Submissions;
use super::{Client, begin};
use crate::error::CallError;

/// An event of a followed job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FollowEvent {
    /// Bytes that a task has written, in order and without gaps for each task and stream.
    Output {
        /// The node of the task, counted from 0 in the order of the job's nodes.
        node_idx: u32,
        /// The task, counted from 0 over all nodes.
        task: u32,
        /// Standard output or error.
        stream: Stream,
        /// What was written.
        bytes: Vec<u8>,
    },
    /// The job's state has changed. A higher run number means that it was restarted, and its output begins anew.
    Change(JobChange),
    /// Some output is lost: the output received is not complete.
    Missing(Missing),
    /// The job has ended, and a node with some of its output is not connected; the server waits for that node.
    Away {
        /// The node's name.
        node: String,
        /// After this time its output is reported as [`Missing`](FollowEvent::Missing).
        at_most: Duration,
    },
}

/// A followed job. Dropping it stops following; the job goes on.
#[derive(Debug)]
pub struct Follow {
    /// When full, nothing more is read from the server, and QUIC's flow control slows it down.
    events: mpsc::Receiver<Result<FollowEvent, CallError>>,
    /// When full, [`InputSender::send`] waits, and with it the producer of the input.
    input: mpsc::Sender<Input>,
}

impl Follow {
    pub(crate) fn start(client: Client, job: JobId, input: bool) -> Follow {
        let (event_sender, events) = mpsc::channel(64);
        let (input_sender, inputs) = mpsc::channel(4);
        let inputs = input.then(|| Arc::new(Inputs::new(inputs)));
        tokio::spawn(async move {
            let position = Position::new(job);
            let mut follower =
                Follower { client, known: Submissions::default(), position, inputs, events: event_sender };
            if let Err(error) = follower.run().await {
                // The receiver may have been dropped.
                let _ = follower.events.send(Err(error)).await;
            }
        });
        Follow { events, input: input_sender }
    }

    /// Waits for the next event; `None` once the job has ended and all of its output was returned. Cancel safe.
    ///
    /// # Errors
    /// The job cannot be followed, or the server is unreachable for too long. Nothing comes after an error.
    pub async fn next(&mut self) -> Result<Option<FollowEvent>, CallError> {
        self.events.recv().await.transpose()
    }

    /// Returns a handle that feeds the job's task 0; it can be used while [`Follow::next`] waits.
    pub fn input(&self) -> InputSender {
        InputSender(self.input.clone())
    }
}

/// Feeds the standard input of a followed job, which one follower at a time does. Input is held here until the job has
/// its nodes, and up to 1 MiB of it until the job's node has taken it: after a link broke, that is sent again. With a
/// server or an agent that is older than this, input in flight may be lost then, but never its end.
#[derive(Clone, Debug)]
pub struct InputSender(mpsc::Sender<Input>);

impl InputSender {
    /// Sends bytes; waits while the job does not read. Returns `false` once nothing reads the input any more.
    pub async fn send(&self, bytes: Vec<u8>) -> bool {
        self.0.send(Input { bytes, eof: false }).await.is_ok()
    }

    /// Ends the input.
    pub async fn end(&self) {
        // A job that has ended has no input to close.
        let _ = self.0.send(Input::END).await;
    }
}

/// How much of the job's output was received.
#[derive(Debug)]
struct Position {
    job: JobId,
    run: Option<Run>,
    /// By task and stream: the node where it was last seen, and the bytes received. Nodes may change their numbers.
    offsets: BTreeMap<(u32, Stream), (u32, u64)>,
    /// The job's current nodes, and (`open`) all nodes from which more output may come: a restarted server does not know which
    /// nodes have left the job.
    present: BTreeSet<String>,
    open: BTreeSet<String>,
}

impl Position {
    fn new(job: JobId) -> Position {
        Position { job, run: None, offsets: BTreeMap::new(), present: BTreeSet::new(), open: BTreeSet::new() }
    }

    fn resume_request(&self, input_from: Option<u64>) -> rms_wire::Follow {
        let offset = |(&(task, stream), &(node_idx, offset)): (&(u32, Stream), &(u32, u64))| Offset {
            node_idx,
            task,
            stream,
            offset,
        };
        let from = self.offsets.iter().map(offset).collect();
        rms_wire::Follow { job: self.job, run: self.run, from, input: input_from.is_some(), input_from }
    }

    /// Returns the part of a chunk that is new.
    fn take_new(&mut self, chunk: rms_wire::Chunk) -> Option<FollowEvent> {
        let rms_wire::Chunk { node_idx, task, stream, offset, mut bytes } = chunk;
        let (seen_on, have) = self.offsets.entry((task, stream)).or_insert((node_idx, 0));
        *seen_on = node_idx;
        let n_known = usize::try_from(have.saturating_sub(offset)).unwrap_or(usize::MAX);
        if n_known >= bytes.len() {
            return None;
        }
        *have = offset + bytes.len() as u64;
        bytes.drain(..n_known);
        Some(FollowEvent::Output { node_idx, task, stream, bytes })
    }

    /// Applies a state change; the output of another run begins at offset 0.
    fn apply(&mut self, change: &JobChange) {
        if self.run != Some(change.run) {
            if self.run.is_some() {
                self.offsets.clear();
                self.present.clear();
                self.open.clear();
            }
            self.run = Some(change.run);
        }
        if !change.nodes.is_empty() {
            let present: BTreeSet<String> = change.nodes.iter().cloned().collect();
            self.open.extend(present.difference(&self.present).cloned());
            self.present = present;
        }
    }

    /// Records that nothing more comes from a node. Returns `false` if its output was complete, so that nothing is
    /// missing.
    fn close_node(&mut self, missing: &Missing) -> bool {
        self.open.remove(&missing.node)
    }

    /// Takes the nodes for which the server reported neither the end of the output nor a loss, as missing.
    fn take_unreported(&mut self) -> Vec<Missing> {
        let reason = "it had left the job when the server was restarted";
        let missing = |node| Missing { node, reason: reason.to_owned(), from: Vec::new(), is_unknown: false };
        std::mem::take(&mut self.open).into_iter().map(missing).collect()
    }
}

struct Follower {
    client: Client,
    known: Submissions,
    position: Position,
    /// Absent if the caller sends no input.
    inputs: Option<Arc<Inputs>>,
    events: mpsc::Sender<Result<FollowEvent, CallError>>,
}

/// How following over one link ended.
enum Ended {
    /// Everything was received.
    Complete,
    /// The link or the channel broke.
    Broken { received_any: bool },
    /// The caller has dropped its [`Follow`].
    Dropped,
}

impl Follower {
    async fn run(&mut self) -> Result<(), CallError> {
        let mut backoff = Backoff::default();
        loop {
            let link = self.client.link(RECONNECT_PATIENCE).await?;
            let input_from = self.inputs.as_ref().map(|inputs| inputs.reopen(self.position.run));
            let call = ClientRequest::Follow(self.position.resume_request(input_from));
            let Some(channel) = begin(&link, &call).await else {
                self.client.pause(backoff.delay()).await;
                continue;
            };
            let (mut sender, receiver) = channel.split();
            let (agreed, protocol) = watch::channel(None);
            let feeder = match &self.inputs {
                // A task of its own: a job that does not read its input must not block its output.
                Some(inputs) => Some(tokio::spawn(Arc::clone(inputs).feed(sender, protocol))),
                None => {
                    sender.finish();
                    None
                }
            };
            let ended = self.receive(receiver, &agreed).await;
            if let Some(feeder) = feeder {
                feeder.abort();
                // The task holds the queue of the inputs until it has ended.
                let _ = feeder.await;
            }
            match ended? {
                Ended::Complete | Ended::Dropped => return Ok(()),
                // Back off, so as not to loop against a server that drops the client each time.
                Ended::Broken { received_any: false } => self.client.pause(backoff.delay()).await,
                Ended::Broken { received_any: true } => backoff.reset(),
            }
        }
    }

    async fn receive(
        &mut self,
        mut receiver: Receiver,
        agreed: &watch::Sender<Option<Protocol>>,
    ) -> Result<Ended, CallError> {
        let mut received_any = false;
        let mut repeats = false;
        loop {
            let received = tokio::select! {
                received = receiver.recv::<Followed>() => received,
                () = self.events.closed() => return Ok(Ended::Dropped),
            };
            let event = match received {
                Ok(Some(Followed::Chunk(chunk))) => self.position.take_new(chunk),
                Ok(Some(Followed::Change(change))) => {
                    self.known.check(&change)?;
                    self.position.apply(&change);
                    // Until then input would only lie in the server's memory, and be lost with it.
                    if !change.nodes.is_empty() && !repeats {
                        agreed.send_replace(Some(Protocol::Once));
                    }
                    Some(FollowEvent::Change(change))
                }
                Ok(Some(Followed::Taken { run, n_bytes, again })) => {
                    repeats = true;
                    self.inputs.iter().for_each(|inputs| inputs.taken(run, n_bytes, again));
                    if again {
                        agreed.send_replace(Some(Protocol::Repeated));
                    }
                    None
                }
                Ok(Some(Followed::Missing(missing))) => {
                    self.position.close_node(&missing).then_some(FollowEvent::Missing(missing))
                }
                Ok(Some(Followed::Whole { node })) => {
                    self.position.open.remove(&node);
                    None
                }
                Ok(Some(Followed::Away { node, secs })) => {
                    Some(FollowEvent::Away { node, at_most: Duration::from_secs(secs) })
                }
                Ok(Some(Followed::Refused(refused))) if is_transient(&refused) => {
                    return Ok(Ended::Broken { received_any });
                }
                Ok(Some(Followed::Refused(refused))) => return Err(CallError::Refused(refused)),
                Ok(Some(Followed::End)) => {
                    for missing in self.position.take_unreported() {
                        // The receiver may have been dropped.
                        let _ = self.events.send(Ok(FollowEvent::Missing(missing))).await;
                    }
                    return Ok(Ended::Complete);
                }
                Ok(None) => return Ok(Ended::Broken { received_any }),
                Err(error) if is_protocol_error(&error) => return Err(CallError::Interrupted(error)),
                Err(_) => return Ok(Ended::Broken { received_any }),
            };
            received_any = true;
            if let Some(event) = event
                && self.events.send(Ok(event)).await.is_err()
            {
                return Ok(Ended::Dropped);
            }
        }
    }
}

/// Returns whether the error is a violation of the protocol. A killed server truncates its channels; that is none.
pub(crate) fn is_protocol_error(error: &LinkError) -> bool {
    error.is_violation() && !matches!(error, LinkError::CutShort | LinkError::Silent)
}

/// Returns whether to retry after this refusal: we were too slow, the server is about to restart, or it cannot write
/// the history now.
pub(crate) fn is_transient(refused: &Refused) -> bool {
    matches!(refused.kind.as_str(), "too_slow" | "stopping" | "history_behind")
}

/// How long a follower waits for an unreachable server: it may be restarted, upgraded or moved.
pub(crate) const RECONNECT_PATIENCE: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use rms_api::answer::JobState;
    use rms_wire::Chunk;

    use super::*;

    fn chunk(offset: u64, bytes: &[u8]) -> Chunk {
        Chunk { node_idx: 0, task: 0, stream: Stream::Out, offset, bytes: bytes.to_vec() }
    }

    fn output(event: Option<FollowEvent>) -> Option<Vec<u8>> {
        match event {
            Some(FollowEvent::Output { bytes, .. }) => Some(bytes),
            Some(FollowEvent::Change(_) | FollowEvent::Missing(_) | FollowEvent::Away { .. }) | None => None,
        }
    }

    fn on(run: u32, nodes: &[&str]) -> JobChange {
        let nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
        JobChange { job: JobId(1), run: Run(run), state: JobState::Started, nodes, outcome: None, submitted: None }
    }

    #[test]
    fn what_a_node_had_that_left_is_missing_unless_all_of_it_came() {
        let mut position = Position::new(JobId(1));
        let reason = || "gone".to_owned();
        let missing =
            |node: &str| Missing { node: node.to_owned(), reason: reason(), from: Vec::new(), is_unknown: false };
        position.apply(&on(1, &["a1", "a2", "a3"]));
        position.apply(&on(1, &["a1"]));
        position.open.remove("a2");
        assert!(!position.close_node(&missing("a2")), "it has come before");
        assert!(position.close_node(&missing("a1")) && !position.close_node(&missing("a1")));
        let nodes = |missing: Vec<Missing>| missing.into_iter().map(|missing| missing.node).collect::<Vec<_>>();
        assert_eq!(nodes(position.take_unreported()), ["a3"]);
        position.apply(&on(1, &["a1", "a2"]));
        assert_eq!(nodes(position.take_unreported()), ["a2"], "it has come again, and writes anew");
    }

    #[test]
    fn what_comes_twice_is_told_once() {
        let mut position = Position::new(JobId(1));
        assert_eq!(output(position.take_new(chunk(0, b"hello "))), Some(b"hello ".to_vec()));
        assert_eq!(output(position.take_new(chunk(0, b"hello "))), None);
        assert_eq!(output(position.take_new(chunk(3, b"lo world"))), Some(b"world".to_vec()));
        assert_eq!(
            position.resume_request(None).from,
            [Offset { node_idx: 0, task: 0, stream: Stream::Out, offset: 11 }]
        );
    }

    #[test]
    fn another_run_begins_anew() {
        let mut position = Position::new(JobId(1));
        position.take_new(chunk(0, b"abc"));
        position.apply(&on(1, &["a1"]));
        assert_eq!(position.resume_request(None).from.len(), 1);
        position.apply(&on(2, &["a1"]));
        assert!(position.resume_request(Some(9)).from.is_empty());
        assert_eq!(output(position.take_new(chunk(0, b"abc"))), Some(b"abc".to_vec()));
    }
}
