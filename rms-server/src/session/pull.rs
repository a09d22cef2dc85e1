//! Pulls the output of one node of a job from its agent, through reconnects, until the agent says that it is complete.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rms_api::call::Query;
use rms_api::{Answer, Call, Refused};
use rms_model::{Identity, JobId, Run, Settings, Span, Time};
use rms_wire::link::{Backoff, Budget, Held};
use rms_wire::message::{MAX_CHUNK_BYTES, MAX_LINES};
use rms_wire::{Chunk, FollowOrder, Input, Link, LinkError, Missing, Offset, Spooled, Stream};
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
    /// Becomes true when the job is over.
    pub is_over: watch::Receiver<bool>,
}

/// The follower's input. Its end is told to each agent that is asked from then on: it may be lost with an agent, or
/// with the run that it ended.
#[derive(Debug)]
pub struct Inputs {
    queue: mpsc::Receiver<Input>,
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
    pub fn new(queue: mpsc::Receiver<Input>) -> Inputs {
        Inputs { queue, has_ended: false }
    }

    /// Returns the next input, its end again and again; `None` if the follower has left. Cancel safe.
    async fn next(&mut self) -> Option<Input> {
        if self.has_ended {
            return Some(Input::END);
        }
        let input = self.queue.recv().await?;
        self.has_ended = input.eof;
        Some(input)
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

    async fn pull_once(&mut self, link: &Link) -> PullEnd {
        let is_over = *self.is_over.borrow();
        let (from, submitted) = (from(self.node_idx, &self.offsets), Some(self.submitted));
        let order = FollowOrder { job: self.job, run: self.run, from, is_over, submitted };
        let opened = async {
            let (mut sender, receiver) = link.open().await?.split();
            sender.send(&order).await?;
            Ok((sender, receiver))
        };
        let (mut sender, mut receiver) = match opened.await {
            Ok(halves) => halves,
            Err(error) => return PullEnd::Lost(error),
        };
        let input = self.input.clone();
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
                while let Some(input) = inputs.next().await {
                    let is_last = input.eof;
                    // If it fails, the reading half sees the end, too.
                    if sender.send(&input).await.is_err() || is_last {
                        break;
                    }
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

/// Shorter absences are not reported: a restarted agent is back sooner.
const UNREPORTED_ABSENCE: Duration = Duration::from_secs(2);

/// After a follower has read nothing for this long, the channel to the agent is closed until it reads again.
const STALLED_AFTER: Duration = Duration::from_secs(2);

/// The same, if there is no memory because other streams of the same follower take it.
const NO_ROOM_TIMEOUT: Duration = Duration::from_millis(500);

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
