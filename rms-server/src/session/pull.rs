//! Pulls the output of one node of a job from its agent, through reconnects, until the agent says that it is complete.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rms_api::call::Query;
use rms_api::{Answer, Call, Refused};
use rms_model::{Identity, JobId, Run, Settings, Span, Time};
use rms_wire::link::{Backoff, Budget, Held};
use rms_wire::message::{MAX_CHUNK_BYTES, MAX_LINES};
use rms_wire::{Chunk, FollowOrder, Input, InputAt, Kind, Link, LinkError, Missing, Offset, Sender, Spooled, Stream};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::Instant;

use crate::inbox::Answered;
use crate::shared::Shared;

/// The pull from one node of a followed job.
#[derive(Debug)]
pub struct Pull {
    pub shared: Arc<Shared>,
    /// Who follows.
    pub who: Identity,
    pub job: JobId,
    pub submitted: Time,
    pub run: Run,
    pub node_idx: u32,
    pub node: String,
    pub offsets: Offsets,
    /// The channel to the follower. When it is full, the agent waits for the follower.
    pub pulled: mpsc::Sender<PullEvent>,
    /// The memory for everything that this identity follows, in KiB, and the part that the offsets take.
    pub held: Arc<Semaphore>,
    pub held_for_offsets: Vec<OwnedSemaphorePermit>,
    /// The input, for node 0, whose task 0 gets it; it passes to the next run of the job.
    pub input: Option<Arc<Mutex<Inputs>>>,
    /// How many bytes of input this run has taken; absent for a follower that does not repeat input.
    pub input_taken: Option<Arc<AtomicU64>>,
    /// Becomes true when the job is over.
    pub is_over: watch::Receiver<bool>,
}

/// The follower's input. If the follower does not repeat it, its end is told to each agent that is asked from then on:
/// it may be lost with an agent, or with the run that it ended.
#[derive(Debug)]
pub struct Inputs {
    queue: mpsc::Receiver<InputAt>,
    are_repeated: bool,
    has_ended: bool,
}

/// How far each stream was delivered to the follower.
pub type Offsets = BTreeMap<(u32, Stream), u64>;

/// What a pull sends to its session.
#[derive(Debug)]
pub enum PullEvent {
    /// A chunk, with the memory that it takes.
    Chunk(Chunk, Held),
    /// The job is over and the node's agent is away; the pull waits for it for `at_most`.
    Away { node: String, at_most: Duration },
    /// Task 0 has been given so much input; with `again`, the follower is to send from there on.
    Taken { run: Run, n_bytes: u64, again: bool },
    /// Nothing more will come from this node; `missing` is lost.
    End { node_idx: u32, missing: Option<Missing> },
}

/// How one connection to the agent ended.
enum PullEnd {
    /// The agent has sent everything.
    Whole,
    /// The agent has sent all that it has, which is not everything.
    Short { reason: String, from: Vec<Offset> },
    /// The follower has left.
    Unwanted,
    /// The follower does not read; the pull goes on when it does.
    Stalled,
    /// The agent cannot serve it, or not yet: it may not know the job.
    Failed { reason: String },
    /// Other streams that nobody reads take all the memory of this identity.
    NoRoom,
    /// The link broke; the pull goes on over the next one.
    Lost(LinkError),
}

impl Inputs {
    pub fn new(queue: mpsc::Receiver<InputAt>, are_repeated: bool) -> Inputs {
        Inputs { queue, are_repeated, has_ended: false }
    }

    /// Returns the next input, and an end that is not repeated again and again; `None` if the follower has left.
    /// Cancel safe.
    async fn next(&mut self) -> Option<InputAt> {
        if self.has_ended {
            return Some(InputAt { offset: 0, bytes: Vec::new(), eof: true });
        }
        let input = self.queue.recv().await?;
        self.has_ended = input.eof && !self.are_repeated;
        Some(input)
    }

    /// Sends all input to an agent, which takes each byte once.
    async fn send_at_offsets(&mut self, sender: &mut Sender) {
        while let Some(input) = self.next().await {
            // If it fails, the reading half sees the end, too.
            if sender.send(&input).await.is_err() {
                return;
            }
        }
    }

    /// Sends all input to an agent in order, without offsets.
    async fn send_in_order(&mut self, sender: &mut Sender) {
        while let Some(InputAt { offset: _, bytes, eof }) = self.next().await {
            if sender.send(&Input { bytes, eof }).await.is_err() || eof {
                return;
            }
        }
    }

    /// Sends all input that is repeated to an agent that knows no offsets. What is on its way counts as taken, and may
    /// be lost with the link.
    async fn send_once(&mut self, sender: &mut Sender, run: Run, taken: &AtomicU64, events: &mpsc::Sender<PullEvent>) {
        let mut n_bytes = taken.load(Ordering::Relaxed);
        let mut again = true;
        // The follower may have left, which the pull notices.
        while events.send(PullEvent::Taken { run, n_bytes, again }).await.is_ok() {
            again = false;
            let Some(input) = self.next().await else { return };
            let Some(InputAt { offset, bytes, eof }) = input.after(n_bytes) else { continue };
            n_bytes = offset + bytes.len() as u64;
            taken.store(n_bytes, Ordering::Relaxed);
            if sender.send(&Input { bytes, eof }).await.is_err() {
                return;
            }
        }
    }
}

impl Pull {
    pub async fn run(mut self) {
        let missing = self.pull_until_done().await;
        if let Some(Missing { node, reason, from, is_unknown: false }) = &missing {
            tracing::info!(job = %self.job, node, reason, n_streams = from.len(), "output is missing");
        }
        // The follower may have left.
        let _ = self.pulled.send(PullEvent::End { node_idx: self.node_idx, missing }).await;
    }

    /// Pulls until everything that can come has come. Returns what is missing.
    async fn pull_until_done(&mut self) -> Option<Missing> {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));
        loop {
            let link = tokio::select! {
                biased;
                link = self.shared.registry.agent(&self.node) => link,
                reason = self.agent_lost() => return Some(self.missing(reason)),
            };
            match self.pull_once(&link).await {
                PullEnd::Whole | PullEnd::Unwanted => return None,
                PullEnd::Short { reason, from } => return Some(Missing { from, ..self.missing(reason) }),
                PullEnd::Stalled => match self.pulled.reserve().await {
                    Ok(_room) => continue,
                    Err(_) => return None,
                },
                PullEnd::NoRoom => {
                    // Other streams of the follower are read in the end, or lose their channels.
                    let part = Budget::kib_of(MAX_CHUNK_BYTES, MAX_CHUNK_BYTES);
                    drop(self.held.acquire_many(part).await);
                    continue;
                }
                PullEnd::Lost(error) => tracing::debug!(node = self.node, %error, "following is interrupted"),
                // While the job runs, the agent may still learn of it.
                PullEnd::Failed { reason } if *self.is_over.borrow() => {
                    let missing = self.missing(reason);
                    return Some(Missing { is_unknown: missing.from.is_empty(), ..missing });
                }
                PullEnd::Failed { reason } => tracing::debug!(node = self.node, reason, "no output to follow yet"),
            }
            tokio::time::sleep(backoff.delay()).await;
        }
    }

    /// Returns this node's output as missing, from the last offsets.
    fn missing(&self, reason: String) -> Missing {
        let from = from(self.node_idx, &self.offsets).into_iter().take(MAX_LINES).collect();
        Missing { node: self.node.clone(), reason, from, is_unknown: false }
    }

    /// Waits until the job is over and its agent counts as lost; returns why nothing more comes.
    async fn agent_lost(&self) -> String {
        let mut is_over = self.is_over.clone();
        // A follower that has left drops the sender: then there is nothing to wait for, either.
        drop(is_over.wait_for(|is_over| *is_over).await);
        let patience = self.node_lost_after().await;
        // The agent may have been away since before the job ended.
        let until = self.shared.registry.away_since(&self.node) + patience.to_std();
        let at_most = until.saturating_duration_since(Instant::now());
        if at_most > UNREPORTED_ABSENCE {
            let away = PullEvent::Away { node: self.node.clone(), at_most };
            let _left = self.pulled.send(away).await;
        }
        tokio::time::sleep_until(until).await;
        format!("its agent is away, and has not come back within {patience} (node_lost_after)")
    }

    /// Returns the current value of the setting.
    async fn node_lost_after(&self) -> Span {
        let asked = self.shared.inbox.call(self.who.clone(), Call::Query(Query::Settings)).await;
        let Ok(Answered::Done(Answer::Settings(settings))) = asked else { return Settings::default().node_lost_after };
        let value = settings.into_iter().find(|(key, _)| key == "node_lost_after");
        let parsed = value.and_then(|(_, value)| value.parse().ok());
        parsed.unwrap_or(Settings::default().node_lost_after)
    }

    /// Returns a link on which the agent takes input at offsets, if the follower sends such input.
    async fn counting_link(&self) -> Option<Link> {
        self.input_taken.as_ref().filter(|_| self.input.is_some())?;
        let counting = self.shared.registry.agent_serving(&self.node, Kind::InputAt);
        tokio::time::timeout(ANNOUNCED_AFTER, counting).await.ok()
    }

    async fn pull_once(&mut self, link: &Link) -> PullEnd {
        let counting = self.counting_link().await;
        let (link, counts_input) = (counting.as_ref().unwrap_or(link), counting.is_some());
        let taken = self.input_taken.clone().filter(|_| self.input.is_some());
        let input_from = taken.as_ref().filter(|_| counts_input).map(|taken| taken.load(Ordering::Relaxed));
        let is_over = *self.is_over.borrow();
        let (from, submitted) = (from(self.node_idx, &self.offsets), Some(self.submitted));
        let order = FollowOrder { job: self.job, run: self.run, from, is_over, submitted, input_from };
        let opened = async {
            let (mut sender, receiver) = link.open().await?.split();
            sender.send(&order).await?;
            Ok((sender, receiver))
        };
        let (mut sender, mut receiver) = match tokio::time::timeout(OPENED_AFTER, opened).await {
            Ok(Ok(halves)) => halves,
            // The link would not take the order the next time either.
            Ok(Err(LinkError::Encode(error))) => {
                return PullEnd::Short { reason: format!("it has too many streams: {error}"), from: Vec::new() };
            }
            Ok(Err(error)) => return PullEnd::Lost(error),
            Err(_) => {
                let reason = "its agent sends the output of as many jobs as it can: try again later".to_owned();
                return PullEnd::Failed { reason };
            }
        };
        let (input, run, events) = (self.input.clone(), self.run, self.pulled.clone());
        let mut again = true;
        // A channel with input is kept, as input on its way would be lost with it.
        let patience = self.input.is_none().then_some(NO_ROOM_TIMEOUT);
        receiver.within(Budget { kib: Arc::clone(&self.held), most: u32::MAX, patience });
        let reading = async {
            loop {
                match receiver.recv_held::<Spooled>().await {
                    Ok(Some((Spooled::Chunk(chunk), held))) => {
                        if let Some(ended) = self.take(chunk, held).await {
                            return ended;
                        }
                    }
                    Ok(Some((Spooled::Taken { n_bytes }, _))) => {
                        let Some(taken) = &self.input_taken else { continue };
                        taken.store(n_bytes, Ordering::Relaxed);
                        let told = PullEvent::Taken { run, n_bytes, again: std::mem::take(&mut again) };
                        if self.pulled.send(told).await.is_err() {
                            return PullEnd::Unwanted;
                        }
                    }
                    Ok(Some((Spooled::End, _))) => return PullEnd::Whole,
                    Ok(Some((Spooled::Failed { reason }, _))) => return PullEnd::Failed { reason },
                    Ok(Some((Spooled::Missing { reason, from }, _))) => return PullEnd::Short { reason, from },
                    Ok(None) => return PullEnd::Lost(LinkError::ChannelReset),
                    Err(LinkError::NoRoom) => return PullEnd::NoRoom,
                    Err(error) => return PullEnd::Lost(error),
                }
            }
        };
        let writing = async {
            if let Some(input) = input {
                let mut inputs = input.lock().await;
                match &taken {
                    None => inputs.send_in_order(&mut sender).await,
                    Some(_) if counts_input => inputs.send_at_offsets(&mut sender).await,
                    Some(taken) => inputs.send_once(&mut sender, run, taken, &events).await,
                }
            }
            std::future::pending::<()>().await;
        };
        // Both run until the reading ends; neither is polled again, so no frame is cut.
        tokio::select! {
            ended = reading => ended,
            () = writing => PullEnd::Unwanted,
        }
    }

    /// Passes a chunk to the follower; returns why the pull ends, if it cannot.
    async fn take(&mut self, chunk: Chunk, held: Held) -> Option<PullEnd> {
        // If the follower stalls, the channel is given up, with all that the agent has sent after this chunk. A channel
        // with input is kept, as input on its way would be lost with it.
        let room = match self.input {
            Some(_) => Ok(self.pulled.reserve().await),
            None => tokio::time::timeout(STALLED_AFTER, self.pulled.reserve()).await,
        };
        let room = match room {
            Ok(Ok(room)) => room,
            Ok(Err(_)) => return Some(PullEnd::Unwanted),
            Err(_) => return Some(PullEnd::Stalled),
        };
        // An agent sends output of its own node only.
        let chunk = Chunk { node_idx: self.node_idx, ..chunk };
        let end = chunk.offset.saturating_add(chunk.bytes.len() as u64);
        let n_streams = self.offsets.len();
        let offset = self.offsets.entry((chunk.task, chunk.stream)).or_insert(0);
        *offset = end.max(*offset);
        if n_streams.is_multiple_of(STREAMS_PER_PART) && self.held_for_offsets.len() < n_streams / STREAMS_PER_PART {
            match Arc::clone(&self.held).try_acquire_many_owned(KIB_OF_STREAMS) {
                Ok(part) if n_streams <= MAX_STREAMS => self.held_for_offsets.push(part),
                Ok(_) | Err(_) => {
                    let reason = "too many streams are followed at once: follow fewer jobs".to_owned();
                    return Some(PullEnd::Short { reason, from: Vec::new() });
                }
            }
        }
        room.send(PullEvent::Chunk(chunk, held));
        None
    }
}

/// An agent's link has this long to open one more channel.
const OPENED_AFTER: Duration = Duration::from_secs(10);

/// Shorter absences are not reported: a restarted agent is back sooner.
const UNREPORTED_ABSENCE: Duration = Duration::from_secs(2);

/// After a follower has read nothing for this long, the channel to the agent is closed until it reads again.
const STALLED_AFTER: Duration = Duration::from_secs(2);

/// The same, if there is no memory because other streams of the same follower take it.
const NO_ROOM_TIMEOUT: Duration = Duration::from_millis(500);

/// How long an agent that has just connected may take to announce what it serves.
const ANNOUNCED_AFTER: Duration = Duration::from_secs(1);

/// Memory for the offsets is reserved for this many streams at a time; each is an entry of a map.
const STREAMS_PER_PART: usize = 512;
const KIB_OF_STREAMS: u32 = 32;
/// Two streams for each task of a node, with the most tasks of a node.
const MAX_STREAMS: usize = 65_536;

fn from(node_idx: u32, offsets: &Offsets) -> Vec<Offset> {
    let offset = |(&(task, stream), &offset): (&(u32, Stream), &u64)| Offset { node_idx, task, stream, offset };
    offsets.iter().map(offset).collect()
}

/// Reserves memory of an identity's quota for what it follows and watches.
pub fn reserve_memory(held: &Arc<Semaphore>, n_bytes: usize) -> Result<OwnedSemaphorePermit, Refused> {
    let kib = u32::try_from(n_bytes / 1024 + 1).unwrap_or(u32::MAX);
    let too_much = |_| Refused::new("too_many", "you follow or watch too much at once: end some of that first");
    Arc::clone(held).try_acquire_many_owned(kib).map_err(too_much)
}
