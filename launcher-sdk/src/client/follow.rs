//! The output of a job and what becomes of it, over as many links as it takes; its input the other way.

use rms_api::Refused;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rms_api::answer::JobChange;
use rms_model::{JobId, Run};
use rms_wire::{Backoff, ClientRequest, Followed, Input, LinkError, Receiver, Sender};
use tokio::sync::{Mutex, mpsc};

pub use rms_wire::{Missing, Offset, Stream};

use super::Client;
use crate::error::CallError;

/// What a followed job tells.
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
    /// The job has moved on. A higher run number means that it was started again and its output begins anew.
    Change(JobChange),
    /// Output that will not come: what came is not all that the job has written.
    Missing(Missing),
    /// The job has ended, and a node that has output of it is away; it is waited for.
    Away {
        /// Its name.
        node: String,
        /// After this, what it has is [`Missing`](FollowEvent::Missing).
        at_most: Duration,
    },
}

/// A followed job. Dropping it ends the following; the job goes on.
#[derive(Debug)]
pub struct Follow {
    /// Full: nothing more is read from the server, and QUIC slows it down.
    events: mpsc::Receiver<Result<FollowEvent, CallError>>,
    /// Full: [`InputSender::send`] waits, and with it whoever produces the input.
    input: mpsc::Sender<Input>,
}

impl Follow {
    pub(crate) fn start(client: Client, job: JobId, input: bool) -> Follow {
        let (event_sender, events) = mpsc::channel(64);
        let (input_sender, inputs) = mpsc::channel(4);
        let inputs = Arc::new(Mutex::new(Inputs { queue: inputs, is_open: input }));
        tokio::spawn(async move {
            let place = Place::new(job);
            let mut following = Following { client, place, inputs, events: event_sender };
            if let Err(error) = following.run().await {
                // Nobody may be listening any more.
                let _ = following.events.send(Err(error)).await;
            }
        });
        Follow { events, input: input_sender }
    }

    /// The next thing that happens; `None` once the job has ended and everything it wrote has come. May be
    /// cancelled.
    ///
    /// # Errors
    /// A job that cannot be followed, or a server that is away for too long; nothing comes after an error.
    pub async fn next(&mut self) -> Result<Option<FollowEvent>, CallError> {
        self.events.recv().await.transpose()
    }

    /// A handle to feed the job's task 0 from beside [`Follow::next`].
    pub fn input(&self) -> InputSender {
        InputSender(self.input.clone())
    }
}

/// Feeds the standard input of a followed job. What was on its way when a link broke may be lost.
#[derive(Clone, Debug)]
pub struct InputSender(mpsc::Sender<Input>);

impl InputSender {
    /// Sends bytes; waits while the job does not read. `false` once nobody takes them any more.
    pub async fn send(&self, bytes: Vec<u8>) -> bool {
        self.0.send(Input { bytes, eof: false }).await.is_ok()
    }

    /// Ends the input.
    pub async fn end(&self) {
        // A job that is gone has no input to end.
        let _ = self.0.send(Input { bytes: Vec::new(), eof: true }).await;
    }
}

#[derive(Debug)]
struct Inputs {
    queue: mpsc::Receiver<Input>,
    /// Input was asked for and has not ended.
    is_open: bool,
}

/// Where in the job's output we stand.
#[derive(Debug)]
struct Place {
    job: JobId,
    run: Option<Run>,
    /// Of each task's streams, on which node it was seen and how much of it has come: nodes may change their numbers.
    offsets: BTreeMap<(u32, Stream), (u32, u64)>,
    /// Nodes that it has, and those from which there may be more to come: a restarted server does not know which of them
    /// have left the job.
    present: BTreeSet<String>,
    open: BTreeSet<String>,
}

impl Place {
    fn new(job: JobId) -> Place {
        Place { job, run: None, offsets: BTreeMap::new(), present: BTreeSet::new(), open: BTreeSet::new() }
    }

    fn order(&self, input: bool) -> rms_wire::Follow {
        let offset = |(&(task, stream), &(node_idx, offset)): (&(u32, Stream), &(u32, u64))| Offset {
            node_idx,
            task,
            stream,
            offset,
        };
        rms_wire::Follow { job: self.job, run: self.run, from: self.offsets.iter().map(offset).collect(), input }
    }

    /// The part of a chunk that is new.
    fn take(&mut self, chunk: rms_wire::Chunk) -> Option<FollowEvent> {
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

    /// Another execution writes from its beginning.
    fn see(&mut self, change: &JobChange) {
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

    /// Nothing more comes from a node. What was missing before it is known to be whole is no news.
    fn is_news(&mut self, missing: &Missing) -> bool {
        self.open.remove(&missing.node)
    }

    /// What nobody has told of, though all was told.
    fn unheard_of(&mut self) -> Vec<Missing> {
        let reason = "it had left the job when the server was restarted";
        let missing = |node| Missing { node, reason: reason.to_owned(), from: Vec::new(), is_unknown: false };
        std::mem::take(&mut self.open).into_iter().map(missing).collect()
    }
}

struct Following {
    client: Client,
    place: Place,
    inputs: Arc<Mutex<Inputs>>,
    events: mpsc::Sender<Result<FollowEvent, CallError>>,
}

/// How the following over one link ended.
enum Ended {
    /// Everything has come.
    Complete,
    /// The link or the channel is gone, after something was heard or not.
    Broken { heard: bool },
    /// Nobody listens.
    Unwanted,
}

impl Following {
    async fn run(&mut self) -> Result<(), CallError> {
        let mut backoff = Backoff::default();
        loop {
            let link = self.client.link(RECONNECT_PATIENCE).await?;
            let input = self.inputs.lock().await.is_open;
            let Ok(mut channel) = link.open().await else { continue };
            let call = ClientRequest::Follow(self.place.order(input));
            if channel.send(&call).await.is_err() {
                continue;
            }
            let (mut sender, receiver) = channel.split();
            let feeding = if input {
                Some(tokio::spawn(feed(sender, Arc::clone(&self.inputs))))
            } else {
                sender.finish();
                None
            };
            let ended = self.listen(receiver).await;
            if let Some(feeding) = feeding {
                feeding.abort();
                // It holds the inputs until it has really ended.
                let _ = feeding.await;
            }
            match ended? {
                Ended::Complete | Ended::Unwanted => return Ok(()),
                // Never in a busy circle with a server that drops us each time.
                Ended::Broken { heard: false } => self.client.pause(backoff.delay()).await,
                Ended::Broken { heard: true } => backoff.reset(),
            }
        }
    }

    async fn listen(&mut self, mut receiver: Receiver) -> Result<Ended, CallError> {
        let mut heard = false;
        loop {
            let received = tokio::select! {
                received = receiver.recv::<Followed>() => received,
                () = self.events.closed() => return Ok(Ended::Unwanted),
            };
            let event = match received {
                Ok(Some(Followed::Chunk(chunk))) => self.place.take(chunk),
                Ok(Some(Followed::Change(change))) => {
                    self.place.see(&change);
                    Some(FollowEvent::Change(change))
                }
                Ok(Some(Followed::Missing(missing))) => {
                    self.place.is_news(&missing).then_some(FollowEvent::Missing(missing))
                }
                Ok(Some(Followed::Whole { node })) => {
                    self.place.open.remove(&node);
                    None
                }
                Ok(Some(Followed::Away { node, secs })) => {
                    Some(FollowEvent::Away { node, at_most: Duration::from_secs(secs) })
                }
                Ok(Some(Followed::Refused(refused))) if is_passing(&refused) => return Ok(Ended::Broken { heard }),
                Ok(Some(Followed::Refused(refused))) => return Err(CallError::Refused(refused)),
                Ok(Some(Followed::End)) => {
                    for missing in self.place.unheard_of() {
                        // Nobody may be listening any more.
                        let _ = self.events.send(Ok(FollowEvent::Missing(missing))).await;
                    }
                    return Ok(Ended::Complete);
                }
                Ok(None) => return Ok(Ended::Broken { heard }),
                Err(error) if is_wrong(&error) => return Err(CallError::Interrupted(error)),
                Err(_) => return Ok(Ended::Broken { heard }),
            };
            heard = true;
            if let Some(event) = event
                && self.events.send(Ok(event)).await.is_err()
            {
                return Ok(Ended::Unwanted);
            }
        }
    }
}

/// Does the server speak another language? One that is killed cuts its channels short, which is no such thing.
pub(crate) fn is_wrong(error: &LinkError) -> bool {
    error.is_violation() && !matches!(error, LinkError::CutShort | LinkError::Silent)
}

/// Refusals that mean: ask again. We were too slow, the server is about to be restarted, or it cannot write down now what
/// has ended.
pub(crate) fn is_passing(refused: &Refused) -> bool {
    matches!(refused.kind.as_str(), "too_slow" | "stopping" | "history_behind")
}

/// Sends input until it ends. Beside the listening: a job that does not read its input must not silence its output.
async fn feed(mut sender: Sender, inputs: Arc<Mutex<Inputs>>) {
    let mut inputs = inputs.lock().await;
    while let Some(input) = inputs.queue.recv().await {
        let eof = input.eof;
        if eof {
            inputs.is_open = false;
        }
        // What is on its way when the link breaks cannot be known to have arrived, and input must not come twice.
        if sender.send(&input).await.is_err() {
            return;
        }
        if eof {
            break;
        }
    }
    sender.finish();
}

/// How long a follower waits for a server that went away: it may be restarted, upgraded or moved.
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
        JobChange { job: JobId(1), run: Run(run), state: JobState::Started, nodes, outcome: None }
    }

    #[test]
    fn what_a_node_had_that_left_is_missing_unless_all_of_it_came() {
        let mut place = Place::new(JobId(1));
        let missing = |node: &str| Missing {
            node: node.to_owned(),
            reason: "gone".to_owned(),
            from: Vec::new(),
            is_unknown: false,
        };
        place.see(&on(1, &["a1", "a2", "a3"]));
        place.see(&on(1, &["a1"]));
        place.open.remove("a2");
        assert!(!place.is_news(&missing("a2")), "it has come before");
        assert!(place.is_news(&missing("a1")) && !place.is_news(&missing("a1")));
        let nodes = |missing: Vec<Missing>| missing.into_iter().map(|missing| missing.node).collect::<Vec<_>>();
        assert_eq!(nodes(place.unheard_of()), ["a3"]);
        place.see(&on(1, &["a1", "a2"]));
        assert_eq!(nodes(place.unheard_of()), ["a2"], "it has come again, and writes anew");
    }

    #[test]
    fn what_comes_twice_is_told_once() {
        let mut place = Place::new(JobId(1));
        assert_eq!(output(place.take(chunk(0, b"hello "))), Some(b"hello ".to_vec()));
        assert_eq!(output(place.take(chunk(0, b"hello "))), None);
        assert_eq!(output(place.take(chunk(3, b"lo world"))), Some(b"world".to_vec()));
        assert_eq!(place.order(false).from, [Offset { node_idx: 0, task: 0, stream: Stream::Out, offset: 11 }]);
    }

    #[test]
    fn another_run_begins_anew() {
        let mut place = Place::new(JobId(1));
        place.take(chunk(0, b"abc"));
        place.see(&on(1, &["a1"]));
        assert_eq!(place.order(false).from.len(), 1);
        place.see(&on(2, &["a1"]));
        assert!(place.order(true).from.is_empty());
        assert_eq!(output(place.take(chunk(0, b"abc"))), Some(b"abc".to_vec()));
    }
}
