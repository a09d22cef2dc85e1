//! Pulls the output of one node of a job from its agent, through reconnects, until the agent says it was all.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rms_api::call::Query;
use rms_api::{Answer, Call, Refused};
use rms_model::{Identity, JobId, Run, Settings, Span};
use rms_wire::link::{Backoff, Budget, Held};
use rms_wire::message::{MAX_CHUNK_BYTES, MAX_LINES};
use rms_wire::{Chunk, FollowOrder, Input, Link, LinkError, Missing, Offset, Spooled, Stream};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::Instant;

use crate::inbox::Answered;
use crate::shared::Shared;

/// One node's share of a followed job.
#[derive(Debug)]
pub struct Pull {
    pub shared: Arc<Shared>,
    /// Who follows.
    pub who: Identity,
    pub job: JobId,
    pub run: Run,
    pub node_idx: u32,
    pub node: String,
    pub offsets: Offsets,
    /// What the follower gets. When it is full, the agent waits, and in the end the follower is why.
    pub pulled: mpsc::Sender<PullEvent>,
    /// What all that this identity follows may take here, in KiB, and what of it the offsets take.
    pub held: Arc<Semaphore>,
    pub held_for_offsets: Vec<OwnedSemaphorePermit>,
    /// For node 0, whose task 0 gets it; the receiver passes to the next execution of the job.
    pub input: Option<Arc<Mutex<mpsc::Receiver<Input>>>>,
    /// Becomes true when the job is over.
    pub is_over: watch::Receiver<bool>,
}

/// How much of each stream the follower has.
pub type Offsets = BTreeMap<(u32, Stream), u64>;

/// What comes of pulling.
#[derive(Debug)]
pub enum PullEvent {
    /// With its part of the memory.
    Chunk(Chunk, Held),
    /// The job is over and the node's agent is away; it is waited for, at most so long.
    Away { node: String, at_most: Duration },
    /// Nothing more will come from this node, and this never will.
    End { node_idx: u32, missing: Option<Missing> },
}

/// How one connection to the agent ended.
enum PullEnd {
    /// The agent has sent everything.
    Whole,
    /// It has sent all that it has, which is less.
    Short { reason: String, from: Vec<Offset> },
    /// The follower does not want more.
    Unwanted,
    /// The follower does not read; what is left comes when it does.
    Stalled,
    /// The agent cannot serve it, or not yet: it may not have heard of the job.
    Failed { reason: String },
    /// Other streams that nobody reads take the memory that there is for them all.
    NoRoom,
    /// The link broke; what is left comes from the next one.
    Lost(LinkError),
}

impl Pull {
    pub async fn run(mut self) {
        let missing = self.pull_until_done().await;
        if let Some(Missing { node, reason, from }) = &missing {
            tracing::info!(job = %self.job, node, reason, n_streams = from.len(), "output is missing");
        }
        // A follower that has left does not care.
        let _ = self.pulled.send(PullEvent::End { node_idx: self.node_idx, missing }).await;
    }

    /// Until everything has come that can. What cannot is returned.
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
                PullEnd::Short { reason, from } => return Some(Missing { node: self.node.clone(), reason, from }),
                PullEnd::Stalled => match self.pulled.reserve().await {
                    Ok(_room) => continue,
                    Err(_) => return None,
                },
                PullEnd::NoRoom => {
                    // The one who follows reads them in the end, or loses their channels.
                    let part = Budget::kib_of(MAX_CHUNK_BYTES, MAX_CHUNK_BYTES);
                    drop(self.held.acquire_many(part).await);
                    continue;
                }
                PullEnd::Lost(error) => tracing::debug!(node = self.node, %error, "following is interrupted"),
                // While the job runs, its node may still come to have it.
                PullEnd::Failed { reason } if *self.is_over.borrow() => return Some(self.missing(reason)),
                PullEnd::Failed { reason } => tracing::debug!(node = self.node, reason, "no output to follow yet"),
            }
            tokio::time::sleep(backoff.delay()).await;
        }
    }

    /// Of this node, from where its output ends here.
    fn missing(&self, reason: String) -> Missing {
        let from = from(self.node_idx, &self.offsets).into_iter().take(MAX_LINES).collect();
        Missing { node: self.node.clone(), reason, from }
    }

    /// Until the job is over and its agent counts as lost: why nothing more comes.
    async fn agent_lost(&self) -> String {
        let mut is_over = self.is_over.clone();
        // A follower that has left drops the sender, and then there is nothing to wait for either.
        drop(is_over.wait_for(|is_over| *is_over).await);
        let patience = self.node_lost_after().await;
        // It may have been away for longer than the job is over.
        let until = self.shared.registry.away_since(&self.node) + patience.to_std();
        let at_most = until.saturating_duration_since(Instant::now());
        if at_most > UNREPORTED_ABSENCE {
            let away = PullEvent::Away { node: self.node.clone(), at_most };
            let _left = self.pulled.send(away).await;
        }
        tokio::time::sleep_until(until).await;
        format!("its agent is away, and has not come back within {patience} (node_lost_after)")
    }

    /// As it is set now.
    async fn node_lost_after(&self) -> Span {
        let asked = self.shared.inbox.call(self.who.clone(), Call::Query(Query::Settings)).await;
        let Ok(Answered::Done(Answer::Settings(settings))) = asked else { return Settings::default().node_lost_after };
        let value = settings.into_iter().find(|(key, _)| key == "node_lost_after");
        let parsed = value.and_then(|(_, value)| value.parse().ok());
        parsed.unwrap_or(Settings::default().node_lost_after)
    }

    async fn pull_once(&mut self, link: &Link) -> PullEnd {
        let order = FollowOrder { job: self.job, run: self.run, from: from(self.node_idx, &self.offsets) };
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
        // Input that is under way would be lost with its channel, so that is kept.
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
                let mut input = input.lock().await;
                while let Some(input) = input.recv().await {
                    if sender.send(&input).await.is_err() {
                        // The reading half sees the end too.
                        break;
                    }
                }
            }
            std::future::pending::<()>().await;
        };
        // Both run until the reading ends; neither is taken up again, so no frame is cut.
        tokio::select! {
            ended = reading => ended,
            () = writing => PullEnd::Unwanted,
        }
    }

    /// Passes a chunk on; says so if the follower has left.
    async fn take(&mut self, chunk: Chunk, held: Held) -> Option<PullEnd> {
        // What was read of a channel that nobody reads on is given up, with all that the agent has sent after it. Input
        // that is under way would be lost with its channel.
        let room = match self.input {
            Some(_) => Ok(self.pulled.reserve().await),
            None => tokio::time::timeout(STALLED_AFTER, self.pulled.reserve()).await,
        };
        let room = match room {
            Ok(Ok(room)) => room,
            Ok(Err(_)) => return Some(PullEnd::Unwanted),
            Err(_) => return Some(PullEnd::Stalled),
        };
        // An agent speaks for its own node alone.
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

/// An agent that is restarted is back sooner.
const UNREPORTED_ABSENCE: Duration = Duration::from_secs(2);

/// A follower that takes nothing for so long is waited for without a channel to the agent.
const STALLED_AFTER: Duration = Duration::from_secs(2);

/// The same, for one for which there is no memory, because that is taken by others of the same follower.
const NO_ROOM_TIMEOUT: Duration = Duration::from_millis(500);

/// So many streams are counted together; each is an entry of a map.
const STREAMS_PER_PART: usize = 512;
const KIB_OF_STREAMS: u32 = 32;
/// Two streams for each task of a node; no node has more tasks.
const MAX_STREAMS: usize = 65_536;

fn from(node_idx: u32, offsets: &Offsets) -> Vec<Offset> {
    let offset = |(&(task, stream), &offset): (&(u32, Stream), &u64)| Offset { node_idx, task, stream, offset };
    offsets.iter().map(offset).collect()
}

/// A part of what an identity may have us hold for what it follows and watches.
pub fn reserve_memory(held: &Arc<Semaphore>, n_bytes: usize) -> Result<OwnedSemaphorePermit, Refused> {
    let kib = u32::try_from(n_bytes / 1024 + 1).unwrap_or(u32::MAX);
    let too_much = |_| Refused::new("too_many", "you follow or watch too much at once: end some of that first");
    Arc::clone(held).try_acquire_many_owned(kib).map_err(too_much)
}
